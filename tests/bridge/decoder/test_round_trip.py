"""Calls → events → parts: VS Code gets what the machine was given, however that was divided."""

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.decoder import (
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
)
from openresponses_bridge.protocol.codec import decode_event, encode
from tests.support.machines import WIRES, Run
from tests.support.scale import with_many_examples
from tests.support.vscode_parts import Decoded, compact

pieces = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
values = st.dictionaries(
    pieces, st.integers() | pieces | st.none() | st.lists(st.booleans(), max_size=2), max_size=3
)
says = st.tuples(
    st.sampled_from(["text", "reasoning", "reasoning_summary"]), st.lists(pieces, min_size=1, max_size=4)
)
calls = st.tuples(st.just("tool_call"), st.lists(values, min_size=1, max_size=3))
steps = st.lists(says | calls, max_size=8)
KINDS: dict[type[Any], str] = {
    LanguageModelTextPart: "text",
    LanguageModelThinkingPart: "thinking",
    LanguageModelToolCallPart: "call",
}


def perform(run: Run, script: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    """Make the calls; what they say, runs of one kind joined."""
    sent: list[tuple[str, Any]] = []
    index = 0
    for call, arguments in script:
        if call != "tool_call":
            kind = "text" if call == "text" else "thinking"
            for piece in arguments:
                run(call, piece)
            sent.append((kind, "".join(arguments)))
            continue
        begun = range(index, index + len(arguments))
        index += len(arguments)
        for at, value in zip(begun, arguments, strict=True):
            run("tool_call", at, f"call_{at}", "look", compact(value)[:3])
        for at, value in zip(begun, arguments, strict=True):
            if rest := compact(value)[3:]:
                run("tool_call", at, None, None, rest)
            run("tool_call_done", at)
            sent.append(("call", (f"gw-call_{at}", value)))
    return sent


def joined(sent: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Runs of one kind as one: words joined, calls by id, since those side by side end in any order. The
    blank lines between sections of thinking are VS Code's."""
    runs: list[tuple[str, Any]] = []
    for kind, run in itertools.groupby(sent, key=lambda each: each[0]):
        what = [each[1] for each in run]
        if kind == "call":
            runs.append((kind, sorted(what, key=lambda call: int(call[0].rpartition("_")[2]))))
        else:
            runs.append((kind, "".join(what).replace("\n", "") if kind == "thinking" else "".join(what)))
    return runs


def heard(decoded: Decoded) -> list[tuple[str, Any]]:
    sent: list[tuple[str, Any]] = []
    for part in decoded.parts:
        if isinstance(part, LanguageModelToolCallPart):
            sent.append(("call", (part.call_id, part.input)))
        elif isinstance(part, LanguageModelTextPart | LanguageModelThinkingPart) and part.value:
            sent.append((KINDS[type(part)], part.value))
    return sent


@given(steps, st.sampled_from(WIRES))
def test_parts_equal_what_was_called(script: list[tuple[str, list[Any]]], wire: str) -> None:
    run = Run(wire)
    sent = perform(run, script)
    run("usage", {"input_tokens": 1, "output_tokens": 2})
    run("finish", "stop")
    decoded = Decoded(run.events)
    assert joined(heard(decoded)) == joined(sent)
    assert decoded.result.finish_reason == ("tool-calls" if decoded.calls else "stop")
    assert decoded.result.usage is not None
    assert len(decoded.result.diagnostics) == 0
    assert decoded.result.response_id == run.machine.response_id


@given(steps, st.sampled_from(WIRES), st.sampled_from(["finish", "fail", "cancel"]))
def test_parts_equal_what_was_called_up_to_a_bad_end(
    script: list[tuple[str, list[Any]]], wire: str, end: str
) -> None:
    run = Run(wire)
    sent = perform(run, script)
    run(end, *{"finish": ["length"], "fail": ["broken"], "cancel": []}[end])
    decoded = Decoded(run.events, errors="none")
    assert joined(heard(decoded)) == joined(sent)
    assert decoded.result.finish_reason == {"finish": "length", "fail": "error", "cancel": "cancelled"}[end]
    assert (decoded.result.error is not None) == (end == "fail")


@given(steps)
def test_events_over_the_wire_decode_to_the_same_parts(script: list[tuple[str, list[Any]]]) -> None:
    run = Run()
    perform(run, script)
    run("finish", "stop")
    assert Decoded(decode_event(encode(event)) for event in run.events).parts == Decoded(run.events).parts


@given(st.lists(st.integers(1, 30), max_size=3), values)
def test_case_25_a_call_that_the_machine_calls_cut_never_runs(at: list[int], value: dict[str, Any]) -> None:
    run = Run()
    arguments = compact({"key": value})
    cuts = sorted(position % len(arguments) for position in at)
    for index, cut in enumerate(cuts):
        run("tool_call", index, f"call_{index}", "look", arguments[: max(1, cut)])
    run("finish", "tool_calls")
    assert Decoded(run.events).calls == []


test_many_calls_as_parts = with_many_examples(test_parts_equal_what_was_called, steps, st.sampled_from(WIRES))
test_many_events_over_the_wire = with_many_examples(test_events_over_the_wire_decode_to_the_same_parts, steps)
