"""`n` choices over Chat Completions: one run each, which one client reads, pays for and leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support import sdks
from tests.support.chat_folds import Folded, chunks
from tests.support.choices import FAULTS, PATH, TURN, ask
from tests.support.serving import call, opened, running, serving
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, contains, refusal, text
from tests.support.upstream import call as tool_call
from tests.support.waiting import wait_until

KEY = {"authorization": "Bearer greedy"}
OTHER = {"authorization": "Bearer modest"}


@pytest.fixture
def client(bridged: str) -> Iterator[sdks.openai.OpenAI]:
    with sdks.openai.OpenAI(base_url=f"{bridged}/v1", api_key="none", max_retries=0) as sdk:
        yield sdk


@pytest.fixture
def shared(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server with two keys, each of which may have three responses being made."""
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        limits=Limits(concurrent=5, concurrent_per_key=3, choices=4),
        api_keys=[hashed("greedy"), hashed("modest")],
    )
    with serving(settings) as base:
        yield base


# ── the official SDK ───────────────────────────────────────────────────────────────────────────────────────
def test_two_choices_whole(client: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [Script(text("One")), Script(text("T", "wo"))]
    answer = client.chat.completions.create(model="m", messages=TURN, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert sorted(choice.message.content or "" for choice in answer.choices) == ["One", "Two"]
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (
        6,
        3,
        9,
    )
    assert len(upstream.received) == 2, "an upstream that has no n is asked once for each"
    assert not any("n" in request.body for request in upstream.received)


def test_two_choices_streamed(client: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    called = [tool_call(0, '{"a":1}', "look", "c1"), chunk("tool_calls"), *text("its usage")[-2:]]
    upstream.scripts["m"] = [Script(text("O", "ne")), Script(called)]
    with client.chat.completions.create(
        model="m", messages=TURN, n=2, stream=True, stream_options={"include_usage": True}
    ) as stream:
        sent = [piece.to_dict() for piece in stream]
    folded = [Folded(sent, choice) for choice in (0, 1)]
    messages = sorted((each.message for each in folded), key=lambda each: str(each["finish_reason"]))
    assert messages[0]["content"] == "One"
    assert messages[1]["calls"] == [("c1", "look", '{"a":1}')]
    assert [piece["usage"]["total_tokens"] for piece in sent if piece.get("usage")] == [9]  # type: ignore[index]
    assert sent[-1]["choices"] == [], "usage comes once, behind all choices"
    assert len({(piece["id"], piece["created"]) for piece in sent}) == 1


def test_the_stream_helper_keeps_choices_apart(
    client: sdks.openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = [Script([0.1, *text("a", "b")]), Script(text("c", "d"))]
    with client.chat.completions.stream(model="m", messages=TURN, n=2) as stream:
        final = stream.get_final_completion()
    assert sorted(choice.message.content or "" for choice in final.choices) == ["ab", "cd"]


def test_an_error_of_all_choices_is_raised(client: sdks.openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = refusal(429, {"retry-after": "7"}, code="slow_down", message="Wait.")
    for stream in (False, True):
        with pytest.raises(sdks.openai.RateLimitError) as refused:
            client.chat.completions.create(model="m", messages=TURN, n=2, stream=stream)
        assert refused.value.code == "slow_down"
        assert refused.value.response.headers["retry-after"] == "7"


# ── choices that fail ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", FAULTS)
def test_a_choice_that_fails_does_not_lose_the_other(
    bridged: str, upstream: ScriptedUpstream, fault: str
) -> None:
    code = "upstream_disconnected" if fault == "cut" else "broken"
    scripts = [FAULTS[fault], Script(text("whole"))]
    upstream.scripts["m"] = list(scripts)
    reply = ask(bridged)
    assert reply.status == 200
    by_reason = {choice["finish_reason"]: choice for choice in reply.json["choices"]}
    assert by_reason.keys() == {"error", "stop"}
    assert by_reason["stop"]["message"]["content"] == "whole"
    assert by_reason["error"]["error"]["code"] == code
    assert (by_reason["error"]["message"]["content"] or "") == ("" if fault == "refused" else "half")

    upstream.scripts["m"] = list(scripts)
    reply = ask(bridged, stream=True, stream_options={"include_usage": True})
    assert reply.body.endswith(b"data: [DONE]\n\n")
    sent = chunks(reply.body)
    assert not any("error" in piece for piece in sent), "an error beside the choices would end them all"
    ends = {
        choice["finish_reason"]: choice
        for piece in sent
        for choice in piece["choices"]
        if choice["finish_reason"]
    }
    assert ends.keys() == {"error", "stop"}
    assert ends["error"]["error"]["code"] == code
    assert Folded(sent, ends["stop"]["index"]).message["content"] == "whole"


def test_choices_that_all_fail_are_an_error(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = FAULTS["in band"]
    whole = ask(bridged)
    assert (whole.status, whole.error["code"]) == (502, "broken")
    streamed = ask(bridged, stream=True)
    assert chunks(streamed.body)[-1]["error"]["code"] == "broken"


def test_each_choice_is_counted_among_responses_that_ended(bridged: str, upstream: ScriptedUpstream) -> None:
    def ended(status: str) -> float:
        lines = call(bridged, "GET", "/metrics").body.decode().splitlines()
        name = "openresponses_bridge_responses_total"
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and status in line)

    before = ended("completed"), ended("failed")
    upstream.scripts["m"] = [FAULTS["refused"], Script(text("whole"))]
    assert ask(bridged).status == 200
    assert (ended("completed"), ended("failed")) == (before[0] + 1, before[1] + 1)


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────
def test_n_has_a_limit_and_is_a_number(shared: str, bridged: str) -> None:
    for n, base, headers in ((4, shared, KEY), (9, bridged, {}), (128, bridged, {}), (129, bridged, {})):
        reply = ask(base, headers, n=n)
        assert (reply.status, reply.error["param"]) == (400, "n"), n
    assert "the limit is 3" in ask(shared, KEY, n=4).error["message"], "of one key there are never four"
    for odd in (0, -1, "2", 2.5, True, [2], {"n": 2}):
        reply = ask(bridged, n=odd)
        assert (reply.status, reply.error["param"]) == (400, "n"), odd


def test_each_choice_counts_in_the_share_of_its_key(shared: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts |= {"long": Script([chunk(content="a"), HANG]), "m": Script(text("b"))}
    with opened(
        shared, "POST", PATH, {"model": "long", "messages": TURN, "n": 2, "stream": True}, KEY
    ) as reply:
        reply.read(10)
        assert running(shared) == 2
        refused = ask(shared, KEY)
        assert (refused.status, refused.error["code"]) == (429, "too_many_concurrent_requests")
        assert ask(shared, KEY, n=1).status == 200, "there is room for one more of this key"
        assert ask(shared, OTHER, n=3).status == 200, "and for three of another"
    wait_until(lambda: running(shared) == 0)
    assert ask(shared, KEY, n=3).status == 200


def test_a_client_that_leaves_cancels_all(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([chunk(content="a"), HANG])
    with opened(bridged, "POST", PATH, {"model": "m", "messages": TURN, "n": 3, "stream": True}) as reply:
        reply.read(10)
        wait_until(lambda: len(upstream.received) == 3)
    wait_until(lambda: all(request.gone_at for request in upstream.received))
    wait_until(lambda: running(bridged) == 0)


def test_nothing_is_stored_and_the_line_is_kept_alive(bridged: str, upstream: ScriptedUpstream) -> None:
    got = bytearray()
    upstream.scripts["m"] = Script([chunk(content="a"), partial(contains, got, ": keep-alive"), *text("b")])
    reply = ask(bridged, stream=True, store=True, into=got)
    assert b": keep-alive\n\n" in reply.body
    response_id = "resp_" + chunks(reply.body)[0]["id"].removeprefix("chatcmpl-")
    assert call(bridged, "GET", f"/v1/responses/{response_id}").status == 404


def test_losses_are_reported_once(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("b"))
    reply = ask(bridged, messages=[{"role": "user", "content": "Hi", "odd": 1}])
    assert reply.status == 200
    assert reply.headers["openresponses-losses"].count("odd") == 1
    assert json.loads(reply.body)["object"] == "chat.completion"
