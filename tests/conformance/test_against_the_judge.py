"""The validator against an independent judge: clean together, and never blind to what the judge sees."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openresponses_bridge.conformance import StreamValidator, Violation
from tests.support.reference_validator import judge
from tests.support.scripts import CITATION, Event, Script, clean_streams, everything, renumber

DELTAS = st.lists(st.sampled_from(["a", "bc", " ", "é🙂", "\n", '"', "\u0000", "{"]), max_size=4)
PART = st.tuples(st.sampled_from(["output_text", "refusal"]), DELTAS)
ARGUMENTS = st.sampled_from([["{}"], ["{", "}"], ['{"a"', ":1}"]])
STEP = st.one_of(
    st.tuples(st.just("message"), st.lists(PART, max_size=3), st.booleans()),
    st.tuples(st.just("calls"), st.lists(ARGUMENTS, min_size=1, max_size=3)),
    st.tuples(st.just("reasoning"), DELTAS, st.lists(DELTAS, max_size=2), st.booleans()),
    st.tuples(st.just("whole"), st.sampled_from(["acme:look", "function_call_output"])),
    st.tuples(st.just("extension")),
)
END = st.sampled_from(["completed", "incomplete", "cut message", "cut calls", "failed", "failed within"])
# what a field may be changed to: the same kind of value, another kind, a name that means something
MEANT = "completed incomplete failed in_progress user message refusal output_text function_call acme:look"
EVENT_TYPES = "response.completed response.output_text.delta response.reasoning_text.delta response.failed"
VALUES = st.sampled_from(
    [None, True, 0, 1, 7, -1, 1.5, "", "x", [], {}, ["x"], *MEANT.split(), *EVENT_TYPES.split()]
)


def played(steps: list[Any], end: str, queued: bool) -> list[Event]:
    script = Script(queued=queued)
    for step in steps:
        match step:
            case ("message", parts, cited):
                script.message(*parts, citations=[CITATION] if cited else ())
            case ("calls", calls):
                script.calls(*calls)
            case ("reasoning", raw, summaries, sealed):
                script.reasoning(raw, summaries, "sealed" if sealed else None)
            case ("whole", kind):
                fields = {"call_id": "call_0", "output": "x"} if kind == "function_call_output" else {}
                script.whole({"type": kind, **fields})
            case _:
                script.extension(note=1)
    match end:
        case "completed":
            return script.finish()
        case "incomplete":
            return script.finish("content_filter")
        case "cut message":
            return script.message(("output_text", ["a"]), status="incomplete").finish("max_output_tokens")
        case "cut calls":
            return script.calls(["{"], ['{"a'], cut=True).finish("max_output_tokens")
        case "failed":
            return script.fail()
        case _:
            return script.message(("output_text", ["a", "b"]), closed=False).fail()


STREAM = st.builds(played, st.lists(STEP, max_size=4), END, st.booleans())


def violations(events: list[Any]) -> list[str]:
    validator = StreamValidator("openresponses")
    for event in events:
        validator.feed(json.dumps(event))
    validator.close()
    return [str(violation) for violation in validator.violations]


class WithoutShortcut(StreamValidator):
    """Every delta through every rule."""

    def _goes_on(self, event: Any) -> bool:
        return False


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything within an event."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for key, child in inner for each in ((*path, key), *leaves(child, (*path, key)))]


@st.composite
def spoiled(draw: st.DrawFn) -> list[Event]:
    """A clean stream with one to three random changes."""
    events = deepcopy(draw(STREAM))
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(events) - 1))
        match draw(st.sampled_from(["drop", "repeat", "swap", "edit", "edit", "remove", "text"])):
            case "drop" if len(events) > 1:
                del events[index]
            case "repeat":
                events.insert(draw(st.integers(0, len(events))), deepcopy(events[index]))
            case "swap":
                other = draw(st.integers(0, len(events) - 1))
                events[index], events[other] = events[other], events[index]
            case change if paths := leaves(events[index]):
                *parents, last = draw(st.sampled_from(paths))
                holder: Any = events[index]
                for key in parents:
                    holder = holder[key]
                if change == "remove":
                    del holder[last]
                else:
                    holder[last] = draw(VALUES) if change == "edit" else f"{holder[last]}x"
    return renumber(events) if draw(st.booleans()) else events


@pytest.mark.parametrize("stream", [pytest.param(each, id=name) for name, each in clean_streams()])
def test_clean_streams_are_clean_to_both(stream: list[Event]) -> None:
    assert judge(stream) == []
    assert violations(stream) == []


@given(STREAM)
def test_generated_streams_are_clean_to_both(stream: list[Event]) -> None:
    assert judge(stream) == []
    assert violations(stream) == []


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(spoiled())
def test_what_the_judge_finds_the_validator_finds(stream: list[Event]) -> None:
    if problems := judge(stream):
        assert violations(stream), problems


@given(spoiled())
def test_the_short_way_of_deltas_changes_no_verdict(stream: list[Event]) -> None:
    short, long = StreamValidator("openresponses"), WithoutShortcut("openresponses")
    for event in stream:
        assert short.feed(event) == long.feed(event)
    assert short.close() == long.close()


@given(spoiled())
def test_auto_finds_what_the_wire_that_it_decides_on_finds(stream: list[Event]) -> None:
    auto = StreamValidator("auto")
    for event in stream:
        auto.feed(event)
    auto.close()
    by_wire = {wire: validated(stream, wire) for wire in ("openresponses", "openai")}
    if auto.wire in by_wire:
        assert located(auto.violations) == located(by_wire[auto.wire])
    else:
        shared = set(located(by_wire["openresponses"])) & set(located(by_wire["openai"]))
        assert set(located(auto.violations)) == shared


def validated(stream: list[Event], wire: Any) -> list[Violation]:
    validator = StreamValidator(wire)
    for event in stream:
        validator.feed(event)
    validator.close()
    return validator.violations


def located(violations: list[Violation]) -> list[tuple[int, str, str]]:
    return sorted((each.event_index, each.rule, each.path) for each in violations)


@pytest.mark.untraced
def test_each_single_change_of_one_stream_that_the_judge_finds_is_found() -> None:
    base = everything()
    for index in range(len(base)):
        dropped, repeated = deepcopy(base), deepcopy(base)
        del dropped[index]
        repeated.insert(index, base[index])
        swapped = deepcopy(base)
        swapped[index - 1], swapped[index] = swapped[index], swapped[index - 1]
        for stream in (renumber(dropped), renumber(repeated), renumber(swapped)):
            assert not judge(stream) or violations(stream), base[index]


def test_the_judge_is_no_yes_man() -> None:
    base = everything()
    spoils: list[list[Event]] = [
        base[:-1],
        [*base, base[-1]],
        renumber(base[1:]),
        [{**event, "sequence_number": number + 1} for number, event in enumerate(base)],
        [{**event, "delta": "x"} if "delta" in event else event for event in base],
        Script().fail()[:-1],
        Script().cancel(),
    ]
    assert all(judge(stream) for stream in spoils)
