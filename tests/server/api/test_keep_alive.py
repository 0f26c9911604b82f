"""Law S6 and field case 43: what keeps a silent stream alive, and when."""

from functools import partial

import pytest

from tests.support.serving import Reply, respond, stream
from tests.support.upstream import Script, ScriptedUpstream, chunk, contains, refusal, text

CODEX = ({"user-agent": "codex_exec/0.169.0 (Debian)"}, {"user-agent": "x", "originator": "codex_vscode"})
OTHERS = ({"user-agent": "curl/8"}, {"user-agent": "Mozilla/5.0 (like codex)"}, {})
BEAT = "openresponses-bridge:keepalive"


@pytest.fixture
def got() -> bytearray:
    """What a client has got."""
    return bytearray()


def beats(reply: Reply) -> list[dict[str, object]]:
    return [event for event in reply.events if event["type"] == BEAT]


@pytest.mark.parametrize("headers", CODEX)
def test_case_43_codex_gets_numbered_events(
    bridged: str, upstream: ScriptedUpstream, got: bytearray, headers: dict[str, str]
) -> None:
    upstream.scripts["slow"] = Script([chunk(content="a"), partial(contains, got, BEAT, 4), *text("b")])
    reply = stream(bridged, headers, got, model="slow")
    assert len(beats(reply)) >= 2
    assert [event["sequence_number"] for event in reply.events] == list(range(len(reply.events)))
    assert all(beat.keys() == {"type", "sequence_number"} for beat in beats(reply))
    assert b": keep-alive" not in reply.body
    assert reply.final["status"] == "completed"


@pytest.mark.parametrize("headers", OTHERS)
def test_s6_others_get_comments(
    bridged: str, upstream: ScriptedUpstream, got: bytearray, headers: dict[str, str]
) -> None:
    upstream.scripts["slow"] = Script(
        [chunk(content="a"), partial(contains, got, ": keep-alive", 2), *text("b")]
    )
    reply = stream(bridged, headers, got, model="slow")
    assert not beats(reply)
    assert reply.body.count(b": keep-alive\n\n") >= 2


def test_silence_from_the_start_is_broken_by_the_first_events(
    bridged: str, upstream: ScriptedUpstream, got: bytearray
) -> None:
    upstream.scripts["thinks"] = Script([b": thinking\n\n", partial(contains, got, BEAT), *text("b")])
    reply = stream(bridged, CODEX[0], got, model="thinks")
    assert reply.types[:3] == ["response.created", "response.in_progress", BEAT]


def test_s6_nothing_is_said_before_the_status_is_known(bridged: str, upstream: ScriptedUpstream) -> None:
    busy = refusal(429, {"retry-after": "60"}, message="Slow down", code="limit")
    upstream.scripts["busy"] = Script(busy.steps, busy.status, busy.headers, before=0.7)
    reply = respond(bridged, CODEX[0], model="busy", stream=True)
    assert (reply.status, reply.error["code"]) == (429, "limit")
