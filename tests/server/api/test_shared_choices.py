"""`n` choices over an upstream that takes `n`: one request, which the runs of all choices read."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Limits, Retries, Settings, UpstreamSettings
from tests.support.chat_folds import Folded, chunks
from tests.support.choices import FAULTS, PATH, TURN, ask
from tests.support.serving import PATIENT, call, opened, running, serving
from tests.support.upstream import CUT, DONE, HANG, Script, ScriptedUpstream, frame, refusal, text
from tests.support.waiting import wait_until

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def of(index: int, finish: str | None = None, **delta: Any) -> bytes:
    return frame(choices=[{"index": index, "delta": delta, "finish_reason": finish}])


BOTH = [
    of(1, role="assistant", content=""),
    of(0, role="assistant", content=""),
    *(of(index, content=f"{index}") for _ in range(30) for index in (0, 1)),
    of(0, "stop"),
    of(1, "length"),
    frame(choices=[], usage=USAGE),
    DONE,
]


@pytest.fixture
def taking_n(upstream: ScriptedUpstream) -> Iterator[str]:
    """`m` and its fallback `other`, which has no `n`."""
    retries = Retries(times=1, first_wait=0.05)
    upstreams = [
        UpstreamSettings(
            name="first",
            url=upstream.url,
            models=["m"],
            options={"takes_n": True},
            retries=retries,
            failover=["second/other"],
        ),
        UpstreamSettings(name="second", url=upstream.url, models=["other"]),
    ]
    with serving(Settings(upstreams=upstreams, timeouts=PATIENT)) as base:
        yield base


def asked_for(upstream: ScriptedUpstream) -> list[Any]:
    return [(each.body["model"], each.body.get("n")) for each in upstream.received]


def test_an_upstream_that_takes_n_is_asked_once(taking_n: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(BOTH)
    whole = ask(taking_n).json
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["0" * 30, "1" * 30]
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "length"]
    assert whole["usage"]["total_tokens"] == 7, "it counted all choices"
    sent = chunks(ask(taking_n, stream=True, stream_options={"include_usage": True}).body)
    assert [Folded(sent, index).message["content"] for index in (0, 1)] == ["0" * 30, "1" * 30]
    assert [piece["usage"]["total_tokens"] for piece in sent if piece["usage"]] == [7]
    assert asked_for(upstream) == [("m", 2), ("m", 2)]
    assert ask(taking_n, n=1).status == 200
    assert asked_for(upstream)[-1] == ("m", None)
    counted = call(taking_n, "GET", "/metrics").body.decode().splitlines()
    name = 'openresponses_bridge_upstream_requests_total{outcome="accepted",upstream="first"} 3.0'
    assert name in counted, "requests are counted as the upstream got them"


def test_choices_that_do_not_come_have_failed(taking_n: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("only"))
    choices = ask(taking_n, n=3).json["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["stop", "error", "error"]
    assert choices[0]["message"]["content"] == "only"
    assert choices[1]["error"]["code"] == "upstream_empty"


def test_a_cut_is_the_failure_of_what_had_not_ended(taking_n: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([*BOTH[:-4], CUT])
    reply = ask(taking_n)
    assert (reply.status, reply.error["code"]) == (502, "upstream_disconnected")


def test_a_refusal_is_that_of_all_and_is_asked_again(taking_n: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [FAULTS["refused"], Script(BOTH)]
    assert ask(taking_n).status == 200
    assert asked_for(upstream) == [("m", 2), ("m", 2)]
    upstream.received.clear()
    upstream.scripts["m"] = refusal(400, code="no", message="No.")
    reply = ask(taking_n)
    assert (reply.status, reply.error["code"]) == (400, "no")
    assert asked_for(upstream) == [("m", 2)]


def test_a_fallback_without_n_is_asked_for_each(taking_n: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts |= {"m": refusal(503, code="down", message="Down."), "other": Script(text("one"))}
    whole = ask(taking_n).json
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["one", "one"]
    assert asked_for(upstream) == [("m", 2), ("m", 2), ("other", None), ("other", None)]


def test_a_client_that_leaves_aborts_it(taking_n: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([of(0, content="a"), of(1, content="b"), HANG])
    with opened(taking_n, "POST", PATH, {"model": "m", "messages": TURN, "n": 2, "stream": True}) as reply:
        reply.read(10)
    wait_until(lambda: upstream.received[0].gone_at)
    wait_until(lambda: running(taking_n) == 0)


def test_one_choice_that_ends_early_does_not_hold_up_the_other(
    taking_n: str, upstream: ScriptedUpstream
) -> None:
    """The first fails in its own choice, and the second goes on for longer than one read brings."""
    failed = {"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": "slow", "message": "Wait"}}
    later = [step for _ in range(5) for step in (of(1, content="x" * 5000), 0.05)]
    upstream.scripts["m"] = Script([frame(choices=[failed]), 0.05, *later, of(1, "stop"), DONE])
    first, second = ask(taking_n).json["choices"]
    assert (first["finish_reason"], first["error"]["code"]) == ("error", "slow")
    assert len(second["message"]["content"]) == 25_000


def test_a_whole_answer_where_a_stream_was_asked_for(taking_n: str, upstream: ScriptedUpstream) -> None:
    choices = [
        {"index": n, "message": {"role": "assistant", "content": f"{n}"}, "finish_reason": "stop"}
        for n in (0, 1)
    ]
    body = frame(object="chat.completion", choices=choices, usage=USAGE).removeprefix(b"data: ").strip()
    upstream.scripts["m"] = Script([body], headers={"content-type": "application/json"})
    whole = ask(taking_n).json
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["0", "1"]


# ── both ways, attacked ────────────────────────────────────────────────────────────────────────────────────
WAYS = {"asked once": {"takes_n": True}, "asked for each": {}}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
STRICT = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": NUMBERS}}


@pytest.fixture(params=WAYS, ids=str)
def either(request: pytest.FixtureRequest, upstream: ScriptedUpstream) -> Iterator[str]:
    options = {"json_schema": "json_object", **WAYS[request.param]}  # answers are judged here
    upstream_settings = UpstreamSettings(url=upstream.url, options=options)
    limits = Limits(output_bytes=200_000)
    with serving(Settings(upstreams=[upstream_settings], timeouts=PATIENT, limits=limits)) as base:
        yield base


@pytest.mark.parametrize("either", ["asked once"], indirect=True)
def test_each_answer_is_judged_by_its_schema(either: str, upstream: ScriptedUpstream) -> None:
    good, bad = '{"a":1}', '{"a":"x"}'
    upstream.scripts["m"] = Script(
        [of(0, content=good), of(1, content=bad), of(0, "stop"), of(1, "stop"), DONE]
    )
    asked_before = len(upstream.received)
    choices = ask(either, response_format=STRICT).json["choices"]
    # the second one is asked for once more, and this answer's first choice is the same
    assert [choice["finish_reason"] for choice in choices] == ["stop", "stop"]
    assert [choice["message"]["content"] for choice in choices] == [good, good]
    assert ["n" in each.body for each in upstream.received[asked_before:]] == [True, False]


def test_an_upstream_that_never_stops_is_cut_off(either: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([*(of(n % 2, content="x" * 9000) for n in range(400)), HANG])
    reply = ask(either)
    assert (reply.status, reply.error["code"]) == (502, "upstream_output_too_long")
    wait_until(lambda: all(request.gone_at for request in upstream.received))
    assert running(either) == 0


def test_one_choice_can_be_cancelled_by_its_id(either: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([of(0, content="a"), of(1, content="b"), 0.6, *BOTH])
    body = {"model": "m", "messages": TURN, "n": 2, "stream": True}
    with opened(either, "POST", PATH, body) as reply:
        first = reply.readline()
        response_id = json.loads(first.removeprefix(b"data: "))["id"].replace("chatcmpl-", "resp_")
        cancelled = call(either, "POST", f"/v1/responses/{response_id}/cancel")
        shown = chunks(first + reply.read())
    ends = {c["index"]: c for piece in shown for c in piece["choices"] if c["finish_reason"]}
    if cancelled.status == 200:
        assert ends[0]["error"]["code"] == "cancelled"
    assert ends.keys() == {0, 1}


def test_a_client_that_does_not_read_holds_its_upstream_back(either: str, upstream: ScriptedUpstream) -> None:
    pieces = [of(n % 2, content="x" * 500) for n in range(200)]
    upstream.scripts["m"] = Script([*pieces, of(0, "stop"), of(1, "stop"), DONE])
    body = {"model": "m", "messages": TURN, "n": 2, "stream": True}
    with opened(either, "POST", PATH, body) as reply:
        reply.read(10)
        time.sleep(0.2)
        shown = reply.read()
    assert shown.endswith(b"data: [DONE]\n\n")
