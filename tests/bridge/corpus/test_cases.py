"""The corpus: expected results come from the scripts alone, and our own machine and readers agree with
them."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry

from openresponses_bridge.corpus import Case, Expected, case, cases, differences, report_of, schema
from openresponses_bridge.corpus.cases import WIRE_NAMES, case_ids
from openresponses_bridge.corpus.scripts import SCRIPTS
from openresponses_bridge.corpus.variants import VARIANTS
from openresponses_bridge.decoder import PartDecoder
from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.errors import LocalError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.sse import SSEDecoder
from openresponses_bridge.state import PUBLISHED_EVENTS, PUBLISHED_ITEMS, WIRES
from tests.support.machines import counting_ids, plain

LEGAL = {"unknown-fields", "queued", "beat-first", "cited-late", "failed-alone", "failed-first", "refused"}
MAY_BE_LEGAL = {"no-marker", "no-names", "spelling"}  # on the wire `openai`
OF_THE_BYTES = {each.name for each in VARIANTS.values() if each.events is None}
ALL = {each.id: each for each in cases()}  # at import, which is not traced
of_each_script = pytest.mark.parametrize("script", SCRIPTS)


def of(script: str) -> list[Case]:
    """The cases of a script, on both wires."""
    return [each for each in ALL.values() if each.script == script]


def events_of(each: Case) -> list[Any]:
    """What a decoder of ours reads of the bytes."""
    decoder = SSEDecoder()
    frames = [frame for piece in each.pieces for frame in decoder.feed(piece)] + decoder.close()
    return [json.loads(frame.data) for frame in frames if frame.data != b"[DONE]"]


@of_each_script
def test_the_bytes_are_the_events(script: str) -> None:
    for each in of(script):
        assert events_of(each) == each.events


@of_each_script
def test_the_accumulated_response_says_what_is_expected(script: str) -> None:
    for each in of(script):
        if each.response is None:
            assert each.expected in (Expected(status="cut"), Expected(status="failed"))
        elif each.variant == "error-alone":  # no event has a response that has failed
            assert each.response["status"] == "in_progress"
        else:
            assert differences(each.expected, report_of(each.id, each.response)) == []


@of_each_script
def test_the_parts_say_what_is_expected(script: str) -> None:
    for each in of(script):
        expected = each.expected
        decoder = PartDecoder(errors="none", citations="drop")
        parts = [json.loads(encode(part)) for event in events_of(each) for part in decoder.feed(event)]
        parts += [json.loads(encode(part)) for part in decoder.close()]
        values: dict[str, str] = {}
        for part in parts:
            values[part["type"]] = values.get(part["type"], "") + str(part.get("value", ""))
        text = values.get("LanguageModelTextPart", "").replace("*", "")  # marks refusals
        assert text == expected.text + expected.refusal
        thinking = values.get("LanguageModelThinkingPart", "").replace("\n", "")
        assert thinking == expected.reasoning + expected.summary
        calls = {part["callId"].removeprefix("gw-"): part for part in parts if "callId" in part}
        by_id = {call.call_id: call for call in expected.calls}
        assert {id for id, call in by_id.items() if not call.optional} <= calls.keys() <= by_id.keys()
        for id, part in calls.items():
            arguments = by_id[id].arguments
            assert part["input"] == ({"input": arguments} if by_id[id].custom else json.loads(arguments))
        result = decoder.result
        ended = {"completed": ("stop", "tool-calls"), "failed": ("error",), "cut": ("error",)}
        others = ("length", "content-filter", "cancelled", "other")
        assert result.finish_reason in ended.get(expected.status, others)
        if expected.error is not None:
            assert result.error is not None
            assert result.error.code == expected.error.code


@of_each_script
def test_a_bridge_sends_on_what_is_expected(script: str) -> None:
    """As an upstream: what comes out is valid, and its deltas add up to the same."""
    for each in of(script):
        machine = ResponseStreamStateMachine("m", ids=counting_ids(), wire=each.wire)
        inbound = Inbound(machine)
        sent = [event for event in events_of(each) for event in inbound.feed(json.dumps(event).encode())]
        sent += inbound.close()
        report = report_of(each.id, plain(machine.snapshot))
        if each.expected.status == "cut":  # its upstream was: told as a failure
            assert report.status == "failed"
            report.status, report.error = "cut", None
        assert differences(each.expected, report) == []
        deltas = [event.delta for event in sent if event.type == "response.output_text.delta"]
        assert "".join(deltas) == each.expected.text


@of_each_script
def test_what_is_legal_breaks_no_rule(script: str) -> None:
    for each in of(script):
        if each.variant is None or each.variant in LEGAL | OF_THE_BYTES - MAY_BE_LEGAL:
            assert each.broken_rules == ()
        else:
            assert each.broken_rules or each.variant in MAY_BE_LEGAL


@pytest.mark.untraced
def test_every_event_and_item_is_in_the_corpus() -> None:
    for wire in WIRE_NAMES:
        events = [event for each in ALL.values() if each.wire == wire for event in each.events]
        seen = {event["type"] for event in events}
        renamed = {WIRES[wire].reasoning_delta.type, WIRES[wire].reasoning_done.type}
        others = {"response.reasoning.delta", "response.reasoning.done"}
        assert PUBLISHED_EVENTS - others | renamed <= seen
        assert {event["item"]["type"] for event in events if "item" in event} >= PUBLISHED_ITEMS
    assert "response.custom_tool_call_input.done" in seen
    assert "response.web_search_call.searching" in seen


@pytest.mark.untraced
def test_each_case_builds_on_simpler_ones() -> None:
    def depth(id: str, above: tuple[str, ...] = ()) -> int:
        assert id not in above
        return 1 + max((depth(below, (*above, id)) for below in ALL[id].builds_on), default=0)

    assert max(map(depth, ALL)) < 8
    assert [*ALL] == case_ids()
    assert len({each.asks for each in SCRIPTS.values()} | {each.asks for each in VARIANTS.values()}) == len(
        SCRIPTS
    ) + len(VARIANTS)


def test_the_schema_is_that_of_the_documents() -> None:
    validator = Draft202012Validator(schema(), registry=Registry())
    for each in ALL.values():
        document = json.loads(each.document)
        assert not list(validator.iter_errors(document))
        assert document["events"] == each.events
    assert list(validator.iter_errors({"id": "text"}))


def test_names_choose_cases() -> None:
    assert [each.id for each in cases(["crlf"], ["openai"])] == ["openai/text/crlf"]
    assert {each.script for each in cases(["refusal"])} == {"refusal"}
    assert [each.id for each in cases(["openai/fail"], ["openai"])] == ["openai/fail"]
    assert len(list(cases(["cut-03", "cut-04"]))) == 4
    for wrong in ("nope", "openai/nope", "openai/text/nope", "", "chat/text"):
        with pytest.raises(LocalError, match="no case"):
            list(cases([wrong]))
        with pytest.raises(LocalError, match="no case"):
            case(wrong)
