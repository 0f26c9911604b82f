"""Asking again and asking another: only before the first byte, as patient as the upstream asks for."""

import gc
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from openresponses_server.errors import UpstreamError
from openresponses_server.requests.prepared import UpstreamForm
from openresponses_server.settings import Retries, Settings, UpstreamSettings
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.refusals import seconds_of
from openresponses_server.upstreams.routing.attempts import Attempt, Remedy, waiting_time
from tests.support import dialect_scripts as scripts
from tests.support.serving import opened, respond, serving, stream
from tests.support.upstream import CUT, HANG, Script, ScriptedUpstream, refusal, text

QUICK = Retries(times=2, first_wait=0.01, longest_wait=1.0)


def error(status: int, code: str | None = None, **headers: str) -> UpstreamError:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return UpstreamError(status, "x", code=code, headers=sent)


@pytest.mark.parametrize(
    ("refused", "made", "jitter", "expected"),
    [
        (error(503), 0, 1.0, 0.5),
        (error(503), 0, 0.0, 0.25),
        (error(529), 3, 1.0, 4.0),
        (error(429, retry_after="3"), 0, 0.0, 3.0),
        (error(429, retry_after="0"), 5, 1.0, 0.0),
        (error(429, retry_after="21"), 0, 1.0, None),
        (error(502, UpstreamError.UNREACHABLE), 0, 1.0, 0.5),
        (error(504, UpstreamError.TIMEOUT), 0, 1.0, None),
        (error(400), 0, 1.0, None),
        (error(401), 0, 1.0, None),
        (error(404), 0, 1.0, None),
        (error(413), 0, 1.0, None),
    ],
)
def test_waiting_time(refused: UpstreamError, made: int, jitter: float, expected: float | None) -> None:
    assert waiting_time(refused, made, Retries(times=9), jitter) == expected


def test_retry_after_is_seconds_or_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 28 < (seconds_of(soon) or 0) <= 30
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert seconds_of("7") == 7
    assert seconds_of("soon") is None
    assert seconds_of(None) is None


@pytest.mark.anyio
async def test_a_remedy_that_changes_nothing_leaves_it_to_the_next_one() -> None:
    upstream = SimpleNamespace(name="u", clean=lambda text, _key: text)
    attempt = Attempt(cast(Any, SimpleNamespace(upstream=upstream)), UpstreamRequest("/", b"{}", "r"), [])

    def remedy(*, helps: bool, other: Attempt | None) -> Remedy:
        async def make(_error: UpstreamError) -> Attempt | None:
            return other

        return Remedy("request.changed", lambda _error: helps, make)

    other, never = replace(attempt, again=True), replace(attempt, images=True)
    remedies = [
        remedy(helps=True, other=None),
        remedy(helps=False, other=never),
        remedy(helps=True, other=other),
    ]
    assert await replace(attempt, remedies=remedies).fallback_for(error(400)) is other
    assert await replace(attempt, remedies=remedies[:2]).fallback_for(error(400)) is None


def settings(upstream: ScriptedUpstream, **more: Any) -> Settings:
    second = UpstreamSettings(name="second", url=upstream.url, dialect="anthropic", models=["unused"])
    fields: dict[str, Any] = {"retries": QUICK, **more}
    return Settings(upstreams=[UpstreamSettings(name="first", url=upstream.url, **fields), second])


def asked(upstream: ScriptedUpstream, model: str) -> int:
    return sum(each.body["model"] == model for each in upstream.received)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_what_passes_is_asked_again(upstream: ScriptedUpstream, status: int) -> None:
    model = f"passing-{status}"
    upstream.scripts[model] = [refusal(status, message="x"), refusal(status, message="x"), Script(text("a"))]
    with serving(settings(upstream)) as base:
        assert stream(base, model=model).final["status"] == "completed"
    assert asked(upstream, model) == 3


@pytest.mark.parametrize("status", [400, 404, 413])
def test_what_stays_is_not_asked_again(upstream: ScriptedUpstream, status: int) -> None:
    model = f"staying-{status}"
    upstream.scripts[model] = refusal(status, message="x")
    with serving(settings(upstream, failover=["second"])) as base:
        assert respond(base, model=model).status == status
    assert asked(upstream, model) == 1


def test_retries_are_bounded_and_end_in_the_first_error(upstream: ScriptedUpstream) -> None:
    upstream.scripts["always-busy"] = refusal(429, {"retry-after": "0"}, message="Slow down")
    with serving(settings(upstream)) as base:
        reply = respond(base, model="always-busy")
    assert (reply.status, reply.error["message"], reply.headers["retry-after"]) == (429, "Slow down", "0")
    assert asked(upstream, "always-busy") == 3


def test_nothing_is_asked_again_after_the_first_byte(upstream: ScriptedUpstream) -> None:
    upstream.scripts["begun-and-cut"] = Script([*scripts.piece("chat"), CUT])
    with serving(settings(upstream, failover=["second"])) as base:
        assert stream(base, model="begun-and-cut").final["error"]["code"] == "upstream_disconnected"
    assert asked(upstream, "begun-and-cut") == 1


@pytest.mark.parametrize("down", ["refused", "busy", "silent"])
def test_failover_to_another_dialect(upstream: ScriptedUpstream, down: str) -> None:
    from tests.support.serving import FAST

    model = f"down-{down}"
    cases = {"busy": refusal(503, message="x"), "silent": Script([], before=HANG)}
    upstream.scripts[model] = cases.get(down, Script())
    upstream.scripts["claude"] = Script(scripts.call("anthropic", ("c1", "f", '{"a": 1}')))
    url = "http://127.0.0.1:9" if down == "refused" else upstream.url
    first = UpstreamSettings(name="first", url=url, failover=["second/claude"], timeouts=FAST)
    second = UpstreamSettings(name="second", url=upstream.url, dialect="anthropic", models=["claude"])
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    with serving(Settings(upstreams=[first, second])) as base:
        final = stream(base, model=model, tools=[tool]).final
    assert (final["status"], final["model"]) == ("completed", model)
    assert [(item["name"], item["arguments"]) for item in final["output"]] == [("f", '{"a": 1}')]
    assert upstream.last("claude").path == "/v1/messages"


def test_failover_reports_the_first_error_when_all_fail(upstream: ScriptedUpstream) -> None:
    upstream.scripts["first-down"] = refusal(503, message="First.")
    upstream.scripts["second-down"] = refusal(500, message="Second.")
    with serving(settings(upstream, failover=["second/second-down"], retries=Retries())) as base:
        reply = respond(base, model="first-down")
    assert (reply.status, reply.error["message"]) == (503, "First.")
    assert asked(upstream, "second-down") == 1


def test_connections_are_pooled(upstream: ScriptedUpstream) -> None:
    import time

    upstream.scripts["pooled"] = Script(text("a"))
    with serving(settings(upstream)) as base:
        before = len(upstream.connections)
        for _ in range(4):
            respond(base, model="pooled")
            time.sleep(0.05)
    assert len(upstream.connections) - before == 1


def test_the_body_that_was_sent_does_not_stay_while_its_answer_comes(upstream: ScriptedUpstream) -> None:
    upstream.scripts["slow"] = Script([*text("a")[:2], HANG])
    marked = "a mark that no other request has " * 3
    body = {"model": "slow", "input": marked, "stream": True, "store": False}
    with serving(settings(upstream)) as base, opened(base, "POST", "/v1/responses", body) as answer:
        assert answer.readline().startswith(b"event: response.created")
        while count := bodies_with(marked):
            time.sleep(0.05)
    assert count == 0


def bodies_with(words: str) -> int:
    """How many requests to upstreams are in memory that hold these words."""
    requests = [each for each in gc.get_objects() if isinstance(each, UpstreamRequest | UpstreamForm)]
    bodies = [each.body if isinstance(each, UpstreamRequest) else each.outgoing.body for each in requests]
    return sum(words.encode() in body for body in bodies)
