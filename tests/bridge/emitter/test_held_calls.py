"""Calls behind a filter that decides about each by its name."""

from __future__ import annotations

import pytest

from openresponses_bridge.emitter.held_calls import CallHoldingFilter, HeldCall
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.emitter.stream import CallFragment
from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import FunctionCall


class Keeping(CallHoldingFilter):
    """Keeps calls of `ours`."""

    def __init__(self) -> None:
        self.machine = ResponseStreamStateMachine("m", wire="openai")
        super().__init__(self.machine)
        self.kept: list[tuple[str, str | None]] = []
        self.start()

    def _keeps(self, call: HeldCall, type: str, namespace: str | None) -> bool:
        return (call.name, type, namespace) == ("ours", "function", None)

    def _keep(self, call: HeldCall, fragment: CallFragment) -> list[Event]:
        self.kept.append((call.id, fragment.arguments))
        return []

    @property
    def passed(self) -> list[tuple[str, str]]:
        return [
            (each.call_id, each.arguments)
            for each in self.machine.snapshot.output
            if isinstance(each, FunctionCall)
        ]


def test_fragments_wait_for_the_name_and_go_on_in_order() -> None:
    stream = Keeping()
    assert stream.tool_call(0, "a", None, '{"a"') == []
    assert stream.tool_call(1, "b", None, '{"b"') == []
    assert stream.tool_call(0, None, "look", ":1") != []
    assert stream.tool_call(1, None, "ours", ":2") == []
    stream.tool_call(0, None, None, "}")
    stream.tool_call(1, None, None, "}")
    assert stream.tool_call_done(1) == []
    stream.finish("tool_calls")
    assert stream.passed == [("a", '{"a":1}')]
    assert stream.kept == [("b", '{"b"'), ("b", ":2"), ("b", "}")]


def test_the_type_and_the_namespace_are_those_of_the_fragment_with_the_name() -> None:
    stream = Keeping()
    stream.tool_call(0, "a", None, "{}")
    stream.tool_call(0, None, "ours", None, "function", "theirs")
    stream.finish("tool_calls")
    assert (stream.passed, stream.kept) == ([("a", "{}")], [])


@pytest.mark.parametrize("ends", [True, False])
def test_an_index_is_that_of_its_newest_call(ends: bool) -> None:
    stream = Keeping()
    for id, name in (("a", "ours"), ("b", "look"), ("c", "ours"), ("d", "look")):
        stream.tool_call(0, id, name, "{}")
        stream.item_extra({"of": id}, 0)
        if ends:
            stream.tool_call_done(0)
    stream.finish("tool_calls")
    assert stream.passed == [("b", "{}"), ("d", "{}")]
    assert [getattr(each, "extra", None) for each in stream.machine.snapshot.output] == [
        {"of": "b"},
        {"of": "d"},
    ]
    assert stream.kept == [("a", "{}"), ("c", "{}")]


def test_another_answer_begins_without_the_calls_of_the_last() -> None:
    stream = Keeping()
    stream.tool_call(0, "", "ours", "{}")
    stream.next_answer()
    stream.tool_call(0, "b", None, "{}")
    stream.tool_call(0, "", "look")
    stream.finish("tool_calls")
    assert (stream.passed, stream.kept) == ([("b", "{}")], [("", "{}")])


def test_e7_a_call_that_ends_without_a_name_is_passed_on() -> None:
    stream = Keeping()
    stream.tool_call(0, "a", None, "{}")
    stream.tool_call(1, "b", None, "{}")
    stream.tool_call_done(0, cut=True)
    stream.end_nameless()
    stream.tool_call(1, "c", "look", "{}")
    stream.finish("tool_calls")
    assert stream.passed == [("c", "{}")]
    assert [case.times for case in stream.diagnostics.of("loss")] == [2]


@pytest.mark.parametrize("all_at_once", [True, False])
def test_a_call_without_an_id_does_not_get_that_of_one_that_has_ended(all_at_once: bool) -> None:
    stream = Keeping()
    stream.tool_call(0, "a", None, "{}")
    stream.end_nameless() if all_at_once else stream.tool_call_done(0, cut=True)
    stream.tool_call(0, None, "ours", "{}")
    assert stream.kept == [("", "{}")]


def test_e7_a_call_that_does_not_end_and_has_no_name_is_an_error() -> None:
    stream = Keeping()
    stream.tool_call(0, "a", None, "{}")
    stream.tool_call(0, "b", "ours", "{}")
    with pytest.raises(StreamStateError, match="index 0 never got a name"):
        stream.finish()
    assert stream.kept == [("b", "{}")]


def test_the_end_of_an_unknown_call_is_the_machines() -> None:
    stream = Keeping()
    with pytest.raises(StreamStateError, match="no tool call at index 3"):
        stream.tool_call_done(3)
    stream.tool_call(0, "a", "look", "{}")
    assert stream.tool_call_done(0) != []


def test_e9_nothing_of_a_kept_call_is_accepted_after_the_end() -> None:
    stream = Keeping()
    stream.tool_call(0, "a", "ours", "{}")
    stream.finish()
    for call in (lambda: stream.tool_call(0, None, None, "}"), lambda: stream.tool_call_done(0)):
        with pytest.raises(StreamStateError):
            call()
    assert stream.kept == [("a", "{}")]
