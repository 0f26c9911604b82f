"""A wrong call is refused with its code and changes nothing (law E9)."""

from typing import Any

import pytest

from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.errors import LocalError, StreamStateError
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownPart
from openresponses_bridge.state import LIFECYCLE_METHODS, METHODS, OUTPUT_METHODS, ResponseStreamPhase
from tests.support.machines import machine, plain

P = ResponseStreamPhase
CITATION = {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1, "title": "t"}
HOSTED = {"type": "acme:call", "id": "h", "status": "completed"}

# a right way to make each call
RIGHT: dict[str, tuple[Any, ...]] = {
    "adopt": (machine().snapshot,),
    "report": (machine().snapshot,),
    "report_names": ("gpt-5-2026", "flex"),
    "native": ("anthropic", {"a": 1}),
    "start": (),
    "text": ("b",),
    "annotation": (CITATION,),
    "refusal": ("no",),
    "reasoning": ("r",),
    "reasoning_summary": ("s", 0),
    "reasoning_encrypted": ("e",),
    "part_done": (),
    "block_done": (),
    "item_extra": ({"new": 1}, 0),
    "part_extra": ({"new": 1},),
    "expect_item": ("next",),
    "tool_call": (0, None, None, "}"),
    "tool_call_done": (0,),
    "end_nameless": (),
    "item_added": ({**HOSTED, "id": "h2"},),
    "item_event": ("h", "acme:progress", {}),
    "item": (HOSTED,),
    "extension_event": ("acme:note", {}),
    "usage": ({"input_tokens": 1},),
    "stop_sequence": ("END",),
    "defer_finish": ("stop",),
    "finish": ("stop",),
    "fail": ("down",),
    "cancel": (),
}
INTO: dict[ResponseStreamPhase, list[tuple[Any, ...]]] = {
    P.IN_PROGRESS: [],
    P.COMPLETED: [("item", HOSTED), ("tool_call", 0, None, None, "}"), ("finish",)],
    P.INCOMPLETE: [("cancel",)],
    P.FAILED: [("fail", "down")],
}


def in_phase(phase: ResponseStreamPhase) -> ResponseStreamStateMachine:
    """A machine that stands in the phase, with a text, a call and an announced item behind it."""
    subject = machine()
    if phase is P.IDLE:
        return subject
    subject.start()
    subject.item_added(HOSTED)
    subject.text("a")
    subject.tool_call(0, "c", "f", "{")
    for call, *arguments in INTO[phase]:
        getattr(subject, call)(*arguments)
    assert subject.phase is phase
    return subject


def follow_up(subject: ResponseStreamStateMachine) -> list[Any]:
    """What the machine does next: every call that its phase still admits, up to its end."""
    sent: list[Any] = [plain(subject.snapshot)]
    if subject.phase is P.IDLE:
        sent.append(plain(subject.start()))
    if subject.phase is P.IN_PROGRESS:
        sent += [
            plain(subject.text("x")),
            plain(subject.tool_call(9, "z", "g", "{}")),
            plain(subject.finish("stop")),
        ]
    return [*sent, plain(subject.snapshot), [str(case) for case in subject.diagnostics], subject.phase]


WRONG = [
    (phase, call)
    for phase in P
    for call in sorted(OUTPUT_METHODS | LIFECYCLE_METHODS)
    if call not in METHODS[phase]
]
ADMITTED = [(phase, call) for phase in P for call in METHODS[phase]]


def test_e9_every_call_of_the_table_is_a_method_and_has_a_right_way_here() -> None:
    assert set(RIGHT) == OUTPUT_METHODS | LIFECYCLE_METHODS
    assert {call for _, call in ADMITTED} == set(RIGHT)
    assert all(callable(getattr(ResponseStreamStateMachine, call)) for call in RIGHT)
    public = {name for name in vars_of(ResponseStreamStateMachine) if not name.startswith("_")}
    read = {"phase", "wire", "response_id", "snapshot", "in_one_form", "usage_at_start"}
    assert public - {*read, "require"} == set(RIGHT)


def vars_of(cls: type) -> set[str]:
    return {name for base in cls.__mro__[:-1] for name in vars(base)}


@pytest.mark.parametrize(("phase", "call"), ADMITTED)
def test_e9_a_right_call_leads_to_a_phase_of_the_table(phase: ResponseStreamPhase, call: str) -> None:
    subject = in_phase(phase)
    getattr(subject, call)(*RIGHT[call])
    assert METHODS[phase][call][subject.snapshot.status] is subject.phase


@pytest.mark.parametrize(("phase", "call"), WRONG)
def test_e9_a_call_in_a_wrong_phase_is_refused_and_changes_nothing(
    phase: ResponseStreamPhase, call: str
) -> None:
    subject, untouched = in_phase(phase), in_phase(phase)
    with pytest.raises(StreamStateError) as caught:
        getattr(subject, call)(*RIGHT[call])
    if call in LIFECYCLE_METHODS:
        code = "bridge.stream.invalid_transition"
    elif phase is P.IDLE:
        code = "bridge.stream.output_before_start"
    else:
        code = "bridge.stream.delta_after_terminal"
    assert caught.value.code == code
    assert caught.value.context == {"call": call, "phase": str(phase)}
    assert call in caught.value.message
    assert str(phase) in caught.value.message
    assert isinstance(caught.value, LocalError)
    assert follow_up(subject) == follow_up(untouched)


WRONG_ARGUMENTS: list[tuple[str, tuple[Any, ...], str]] = [
    *((call, (argument,), "string") for call in ("text", "refusal", "reasoning", "reasoning_summary",
      "reasoning_encrypted") for argument in (5, b"a", ["a"])),
    ("text", ("a", [{"token": "a"}]), "logprobs"),
    ("text", ("a", ["a"]), "logprobs"),
    ("text", ("a", 5), "logprobs"),
    ("annotation", (None,), "annotation"),
    ("annotation", (5,), "annotation"),
    ("annotation", ("url",), "annotation"),
    ("annotation", ({},), "type"),
    ("annotation", ({"type": "url_citation", "url": "u"},), "start_index"),
    ("expect_item", (5,), "string"),
    ("expect_item", ("x", "thinking"), "commentary or final_answer"),
    ("tool_call", ("0",), "index"),
    ("tool_call", ([],), "index"),
    ("tool_call", (None, "a", "f"), "index"),
    ("tool_call", (1, 5, "f"), "id is not a string"),
    ("tool_call", (1, "a", 5), "name is not a string"),
    ("tool_call", (1, "a", "f", {"x": 1}), "arguments is not a string"),
    ("tool_call", (0, None, None, {"x": 1}), "string"),
    ("tool_call", (1, "a", "f", "{}", "code"), "function or custom"),
    ("tool_call", (1, "a", "f", "{}", "function", 5), "namespace is not a string"),
    ("tool_call_done", (1,), "no tool call at index 1"),
    ("tool_call_done", ("0",), "index"),
    ("item_added", (5,), "output item"),
    ("item_added", ({},), "needs a type"),
    ("item_added", ({"type": "message", "id": "m"},), "streams"),
    ("item_added", (it.CustomToolCall("k", "c", "n", ""),), "streams"),
    ("item_event", ("nobody", "acme:x", {}), "announced"),
    ("item_event", ("h", "acme:x", 5), "mapping"),
    ("item_event", ("h", 5, {}), "string"),
    ("item_event", ("h", "", {}), "not report progress"),
    ("item_event", ("h", "response.completed", {}), "not report progress"),
    ("item", ("message",), "output item"),
    ("item", (None,), "output item"),
    ("item", ({},), "needs a type"),
    ("item", (UnknownItem({"id": "x"}),), "needs a type"),
    ("item", ({"type": "function_call", "id": "x", "call_id": "y", "arguments": "{}"},), "needs a name"),
    ("item", (it.CustomToolCall("x", "y", "", "z"),), "needs a name"),
    ("item", ({"type": "message", "role": "user", "content": []},), "assistant's, got user"),
    ("item", (it.Message("m", "completed", "assistant", [ct.InputTextContent("a")]),), "input_text"),
    ("item", (it.Message("m", "completed", "assistant", [UnknownPart({"type": "acme:part"})]),), "acme:part"),
    ("extension_event", ("note", {}), "slug:name"),
    ("extension_event", ("acme:no spaces", {}), "slug:name"),
    ("extension_event", ("acme:a\nb", {}), "slug:name"),
    ("extension_event", (5, {}), "string"),
    ("extension_event", ("acme:note", [1]), "mapping"),
    ("usage", (5,), "token counts"),
    ("stop_sequence", (5,), "expected a string"),
    ("usage", ({"input_tokens": "many"},), "token counts"),
    ("usage", ({"input_tokens": float("inf")},), "token counts"),
    ("usage", ({"input_tokens_details": [1]},), "token counts"),
    ("defer_finish", (5,), "reason"),
    ("finish", (5,), "reason"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "arguments", "says"), WRONG_ARGUMENTS)
def test_e9_a_wrong_argument_is_refused_and_changes_nothing(
    call: str, arguments: tuple[Any, ...], says: str
) -> None:
    subject, untouched = in_phase(P.IN_PROGRESS), in_phase(P.IN_PROGRESS)
    with pytest.raises(StreamStateError) as caught:
        getattr(subject, call)(*arguments)
    assert caught.value.code == "bridge.stream.invalid_argument"
    assert caught.value.message.startswith(f"{call}: ")
    assert says in caught.value.message
    assert caught.value.context == {"call": call}
    assert follow_up(subject) == follow_up(untouched)


def test_a_wire_that_is_none_of_ours_is_refused() -> None:
    with pytest.raises(StreamStateError, match="openresponses, openai"):
        ResponseStreamStateMachine("m", wire="other")
