"""`auto`: the wire by whose rules a stream is checked, and the event that decides it."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from openresponses_bridge.conformance import StreamValidator, Violation
from openresponses_bridge.sse import Frame
from tests.support.scripts import Event, Script, clean_streams, everything, renumber

SEARCH = {"type": "web_search_call", "action": {"type": "search"}}
PREFIXED = {**SEARCH, "type": "openai:web_search_call"}
DECIDING: list[tuple[str, str, Callable[[], list[Event]]]] = [
    ("openresponses", "reasoning", lambda: Script().reasoning(raw=["a"]).finish()),
    (
        "openresponses",
        "prefixed item",
        lambda: Script().whole(PREFIXED).finish(),
    ),
    ("openai", "custom call", lambda: Script().custom_call("a").finish()),
    ("openai", "item without a prefix", lambda: Script().whole(SEARCH).finish()),
    ("openai", "item of tomorrow", lambda: Script().whole({"type": "teleport_call"}).finish()),
    ("openai", "progress", lambda: Script().whole(SEARCH, "response.web_search_call.searching").finish()),
    ("openai", "cancelled", lambda: Script().cancel()),
    ("openai", "error at top level", lambda: Script().fail(nested=False)),
    ("auto", "text", lambda: Script().message(("output_text", ["a"])).finish()),
    ("auto", "calls", lambda: Script().calls(["{}"]).finish()),
    ("auto", "summary", lambda: Script().reasoning(summaries=[["a"]]).finish()),
    ("auto", "error nested", lambda: Script().fail()),
    ("auto", "extension", lambda: Script().extension().whole({"type": "acme:look"}).finish()),
]


def fed(stream: list[Any], wire: Any = "auto") -> StreamValidator:
    validator = StreamValidator(wire)
    violations = []
    for event in stream:
        violations += validator.feed_frame(event) if isinstance(event, Frame) else validator.feed(event)
    violations += validator.close()
    assert violations == validator.violations
    return validator


def places(violations: list[Violation]) -> list[tuple[str, int, str]]:
    return sorted((each.rule, each.event_index, each.path) for each in violations)


def framed(stream: list[Event], done: bool) -> list[Frame]:
    named = [Frame(event["type"], msgspec.json.encode(event)) for event in stream]
    return [*named, Frame("", b"[DONE]")] if done else named


@pytest.mark.parametrize(("wire", "stream"), [pytest.param(w, s, id=name) for w, name, s in DECIDING])
def test_the_first_event_that_only_one_wire_has_decides(wire: str, stream: Callable[[], list[Event]]) -> None:
    validator = fed(stream())
    assert (validator.wire, validator.violations) == (wire, [])


@pytest.mark.parametrize("stream", [pytest.param(each, id=name) for name, each in clean_streams()])
def test_clean_streams_are_clean_whichever_wire_they_turn_out_to_be(stream: list[Event]) -> None:
    assert fed(stream).violations == []
    assert fed(framed(stream, done=True)).violations == []


@pytest.mark.parametrize("spoil", ["reasoning effort", "number", "unknown type", "[DONE]", "all"])
@pytest.mark.parametrize("wire", ["openresponses", "openai"])
def test_a_decided_stream_has_the_findings_of_its_wire(wire: str, spoil: str) -> None:
    script = Script().message(("output_text", ["a", "b", "c"])).extension()
    stream = (script.reasoning(raw=["a"]) if wire == "openresponses" else script.custom_call("a")).finish()
    if spoil in ("reasoning effort", "all"):
        stream[0]["response"]["reasoning"] = {"effort": "max", "summary": None}
    if spoil in ("number", "all"):
        stream[6]["sequence_number"] = 17
    if spoil in ("unknown type", "all"):
        stream[5]["type"] = "response.foo"
    frames = framed(stream, done=spoil not in ("[DONE]", "all"))
    validator = fed(frames)
    assert validator.wire == wire
    assert places(validator.violations) == places(fed(frames, wire).violations)
    assert validator.violations or wire == "openai"


def test_what_only_the_decided_wire_holds_against_earlier_events_is_reported_with_the_deciding_one() -> None:
    stream = Script().message(("output_text", ["a"])).reasoning(raw=["b"]).finish()
    stream[0]["response"]["reasoning"] = {"effort": "max", "summary": None}
    deciding = next(n for n, event in enumerate(stream) if event["type"] == "response.reasoning.delta")
    validator = StreamValidator("auto")
    assert [validator.feed(event) for event in stream[:deciding]] == [[]] * deciding
    (late,) = validator.feed(stream[deciding])
    assert (late.rule, late.event_index, late.path) == ("schema", 0, "$.response.reasoning.effort")


def test_what_both_wires_hold_against_an_event_is_reported_at_once() -> None:
    stream = Script().message(("output_text", ["a", "b"])).finish()
    stream[4]["type"] = "response.foo"
    validator = StreamValidator("auto")
    for event in stream[:4]:
        assert validator.feed(event) == []
    assert [each.rule for each in validator.feed(stream[4])] == ["event.unknown_type"]


def test_a_stream_that_never_decides_needs_no_marker() -> None:
    frames = framed(Script().message(("output_text", ["a"])).finish(), done=False)
    assert fed(frames).violations == []
    assert [each.rule for each in fed(frames, "openresponses").violations] == ["stream.done_marker"]


def test_mixed_spellings_are_held_against_the_first() -> None:
    stream = Script().reasoning(raw=["a", "b"]).finish()
    for other in (stream[5], stream[6]):
        other["type"] = other["type"].replace("reasoning.", "reasoning_text.")
    assert {each.rule for each in fed(stream).violations} == {"event.unknown_type"}
    ones = Script().custom_call("a").reasoning(raw=["a", "b"]).finish()
    assert {each.rule for each in fed(ones).violations} == {"event.unknown_type"}


def test_structs_text_and_objects_decide_alike() -> None:
    from openresponses_bridge.protocol.codec import decode_event

    stream = everything()
    del stream[9], stream[20]
    texts = [json.dumps(event) for event in renumber(deepcopy(stream))]
    expected = fed(texts)
    for ways in ([json.loads(text) for text in texts], [decode_event(text) for text in texts]):
        assert places(fed(ways).violations) == places(expected.violations)
        assert fed(ways).wire == expected.wire == "openresponses"
