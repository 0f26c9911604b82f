"""An answer that is held to its format, as each dialect calls what is behind it: its events are valid, and
what is held comes out as it would have come, or with its JSON alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.dialects.base import AnswerContext, AnswerWay
from openresponses_bridge.dialects.table import TABLE, dialects
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer
from openresponses_server.requests.answer_format import ANSWER
from openresponses_server.requests.formatted_stream import FormattedStream
from openresponses_server.upstreams.routing.attempts import AnswerPlan
from tests.support.cases import case
from tests.support.model_frames import frames
from tests.support.model_scripts import SCRIPTS, Step

SCHEMA: dict[str, Any] = {"type": "object"}
PLANS = {
    "held": AnswerPlan(AnswerWay.INSTRUCTED, SCHEMA, True),
    "streamed": AnswerPlan(AnswerWay.NATIVE, SCHEMA, False),
    "plain": AnswerPlan(AnswerWay.NATIVE, None, False),
    "function": AnswerPlan(AnswerWay.FUNCTION, SCHEMA, False),
    "function, held": AnswerPlan(AnswerWay.FUNCTION, SCHEMA, True),
}
NAMES = ("chat", "anthropic", "gemini", "responses")
UPSTREAMS = {line.name: line.package for line in TABLE if line.name in NAMES}
NEW = {"id", "call_id", "created_at", "completed_at", "signature", "encrypted_content", "upstream"}


class Judged:
    """A stream behind which a machine is, and the events so far."""

    def __init__(self, plan: AnswerPlan | None) -> None:
        identities = ToolIdentityMap()
        request = decode_request(encode({"input": "x"}))
        machine = ResponseStreamStateMachine("m", request, tool_identities=identities, wire="openai")
        self.stream: Any = machine
        self.formatted = None
        if plan is not None:
            self.stream = self.formatted = FormattedStream(machine, identities)
            self.formatted.answer_by(plan)
        self.identities = identities
        self.events: list[Event] = []

    def read(self, dialect: str, steps: list[Step]) -> None:
        side = dialects()[dialect].upstream
        assert side is not None
        context = AnswerContext(side.options(), Sealer(), self.identities)
        inbound = side.inbound(self.stream, context)
        for frame in frames(UPSTREAMS[dialect], steps):
            self.events += inbound.feed(frame)
            if self.formatted is not None and self.formatted.question is not None:
                return
        self.events += inbound.close()

    def settle(self, objection: str | None = None) -> Response:
        if self.formatted is not None and self.formatted.question is not None:
            self.events += self.formatted.settle(objection)
        validator = StreamValidator()
        violations = [each for event in self.events for each in validator.feed(event)] + validator.close()
        assert violations == []
        return self.stream.snapshot  # type: ignore[no-any-return]


def shown(value: Any) -> Any:
    """An output without what is made anew each time."""
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items() if name not in NEW}
    return [shown(each) for each in value] if isinstance(value, list) else value


def output(response: Response) -> Any:
    return shown(json.loads(encode(response))["output"])


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in ("cancel", "cut")])
@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_the_answers_of_every_dialect(dialect: str, name: str) -> None:
    for plan in PLANS:
        for objection in (None, "No."):
            with case(plan, objection):
                compare(dialect, SCRIPTS[name], plan, objection)


def compare(dialect: str, steps: list[Step], plan: str, objection: str | None) -> None:
    as_it_comes, buffered = Judged(None), Judged(PLANS[plan])
    as_it_comes.read(dialect, steps)
    buffered.read(dialect, steps)
    question = None if buffered.formatted is None else buffered.formatted.question
    judges = question is not None
    text = as_it_comes.stream.snapshot.output_text
    assert question is None or question.text == text
    plain, response = as_it_comes.settle(), buffered.settle(objection)
    assert response.status == ("failed" if judges and objection else plain.status)
    assert judges == (plan != "plain" and plain.status == "completed" and is_answer(output(plain)))
    holds = "held" in plan or "function" in plan
    expected = output(plain)
    if holds and not is_answer(expected):  # words before a call are left out
        expected = [item for item in expected if is_refusal(item) or item["type"] != "message"]
    elif holds:  # text comes last
        expected.sort(key=lambda item: item["type"] == "message")
    if plain.status == "completed" and objection is None:
        assert output(response) == expected
    assert plain.usage == response.usage


def is_answer(items: list[dict[str, Any]]) -> bool:
    return not any(is_refusal(item) or item["type"] == "function_call" for item in items)


def is_refusal(item: dict[str, Any]) -> bool:
    return any(part["type"] == "refusal" for part in item.get("content") or ())


def words_of(*pieces: str) -> list[Step]:
    return [("text", piece) for piece in pieces]


@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_another_answer_takes_the_place_of_the_first(dialect: str) -> None:
    judged = Judged(PLANS["held"])
    judged.read(dialect, [("reasoning", "Hm."), *words_of("N", "o."), ("end", "stop")])
    assert judged.formatted is not None
    assert judged.formatted.corrected("It is not JSON.") is not None
    judged.formatted.next_answer()
    judged.read(dialect, [("reasoning", "Ah."), *words_of("```json\n{", "}\n```"), ("end", "stop")])
    response = judged.settle()
    assert [item["type"] for item in output(response) if item["type"] != "reasoning"] == ["message"]
    assert response.output_text == "{}"


def test_what_refers_to_text_stays_with_it_or_goes() -> None:
    def cited(text: str) -> Response:
        judged = Judged(PLANS["held"])
        stream = judged.stream
        judged.events += stream.start()
        judged.events += stream.expect_item("msg_1", "final_answer")
        judged.events += stream.text(
            text, [{"token": text, "logprob": -1.0, "bytes": [], "top_logprobs": []}]
        )
        citation = {"type": "url_citation", "url": "https://a.example/", "title": "A"}
        judged.events += stream.annotation(citation | {"start_index": 0, "end_index": 2})
        judged.events += stream.part_done()
        judged.events += stream.block_done()
        judged.events += stream.reasoning("So.")
        judged.events += stream.block_done()
        assert "response.output_text.delta" not in [event.type for event in judged.events]
        judged.events += stream.finish("stop")
        return judged.settle()

    same, cut = cited("{}"), cited("{} is it")
    (_, message), (_, other) = same.output, cut.output
    assert (message.id, message.content[0].text, other.content[0].text) == ("msg_1", "{}", "{}")  # type: ignore[union-attr]
    assert len(message.content[0].annotations) == len(message.content[0].logprobs) == 1  # type: ignore[union-attr]
    assert other.content[0].annotations == []  # type: ignore[union-attr]


@pytest.mark.parametrize("plan", ["held", "streamed", "plain"])
def test_call_is_the_answer_only_where_a_function_was_to_give_it(plan: str) -> None:
    judged = Judged(PLANS[plan])
    stream = judged.stream
    judged.events += stream.start()
    judged.events += stream.tool_call(0, "call_0", ANSWER, "{}")
    judged.events += stream.tool_call_done(0)
    judged.events += stream.finish("tool_calls")
    (called,) = output(judged.settle())
    assert (called["type"], called["name"]) == ("function_call", ANSWER)


@pytest.mark.parametrize("plan", PLANS)
def test_e9_call_before_the_start_is_refused(plan: str) -> None:
    with pytest.raises(StreamStateError):
        Judged(PLANS[plan]).stream.tool_call(0, "call_0", None, "{}")


CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}
MESSAGE = {
    "type": "message",
    "id": "msg_9",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "{}", "annotations": [], "logprobs": []}],
}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
STEPS = st.sampled_from(
    [
        *[("text", each) for each in ("", "{", "}", "```", "```json\n", "No. ", "\n")],
        ("reasoning", "Hm."),
        ("reasoning_summary", "So."),
        ("refusal", "I won't."),
        ("part_done",),
        ("block_done",),
        ("item", MESSAGE),
        ("item", SEARCH),
        ("item", CALL | {"status": "completed"}),
        ("item", CALL | {"status": "completed", "name": ANSWER}),
        ("tool_call", 0, "call_0", "look", "{}"),
        ("tool_call", 1, "call_1", ANSWER, '{"a"'),
        ("tool_call", 1, None, None, ":1}"),
        ("tool_call_done", 1),
        ("expect_item", "msg_2"),
    ]
)


@given(
    steps=st.lists(STEPS, max_size=8),
    plan=st.sampled_from(sorted(PLANS)),
    end=st.sampled_from(["finish", "length", "fail", "cancel"]),
    objection=st.sampled_from([None, "No."]),
)
def test_whatever_comes_the_events_are_valid(
    steps: list[Step], plan: str, end: str, objection: str | None
) -> None:
    judged = Judged(PLANS[plan])
    stream = judged.stream
    judged.events += stream.start()
    given: set[str] = set()
    for number, (verb, *facts) in enumerate(steps):
        if verb == "item":
            facts = [facts[0] | {"id": f"{facts[0]['id']}{number}", "call_id": f"c{number}"}]
        if verb == "expect_item":
            facts = [f"msg_2{number}"]
        if verb == "tool_call_done" and "tool_call1" not in given:
            continue
        if verb == "tool_call" and facts[2] is None and "tool_call1" not in given:
            continue
        given.add(f"{verb}{facts[0] if verb == 'tool_call' else ''}")
        judged.events += getattr(stream, verb)(*facts)
    if end == "fail":
        judged.events += stream.fail({"type": "server_error", "code": "x", "message": "Down.", "param": None})
    elif end == "cancel":
        judged.events += stream.cancel()
    else:
        judged.events += stream.finish("stop" if end == "finish" else end)
    response = judged.settle(objection)
    assert response.status in ("completed", "failed", "incomplete", "cancelled")
