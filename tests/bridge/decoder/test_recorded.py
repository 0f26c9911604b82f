"""Recorded streams of real servers: the parts have the content of the done and terminal events."""

import json
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.content import OutputTextContent, ReasoningTextContent, SummaryTextContent
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall, Item, Message, ReasoningItem
from tests.support.machines import plain
from tests.support.shared import shared_files
from tests.support.vscode_parts import Decoded, recorded

STREAMS = [
    parameter
    for folder in ("responses", "responses-inline", "openresponses")
    for parameter in shared_files(folder, "*.sse", "*.txt")
]
TERMINAL = (ev.ResponseCompleted, ev.ResponseIncomplete, ev.ResponseFailed)
each_stream = pytest.mark.parametrize("path", STREAMS)


def finished(events: list[Event]) -> dict[int, Item]:
    """The items that were done, by output index. One server sends them without their content."""
    done = [event for event in events if isinstance(event, ev.OutputItemDone)]
    items = {event.output_index: event.item for event in done if event.item is not None}
    return {index: item for index, item in items.items() if not isinstance(item, Message) or item.content}


def texts(events: list[Event]) -> dict[tuple[int, int], str]:
    """What the done events and finished items say each text is; the items have the last word."""
    by_place = {
        (event.output_index, event.content_index): event.text
        for event in events
        if isinstance(event, ev.OutputTextDone)
    }
    for event in events:
        if isinstance(event, ev.ContentPartDone) and isinstance(event.part, OutputTextContent):
            by_place[event.output_index, event.content_index] = event.part.text
    for index, item in finished(events).items():
        if isinstance(item, Message):
            parts = enumerate(item.content)
            by_place.update(
                {(index, at): part.text for at, part in parts if isinstance(part, OutputTextContent)}
            )
    return by_place


def streamed(events: list[Event]) -> str:
    """What the deltas say, for texts that no other event states."""
    return "".join(event.delta for event in events if isinstance(event, ev.OutputTextDelta))


def calls_of(events: list[Event]) -> list[tuple[str, str, Any]]:
    calls: list[tuple[str, str, Any]] = []
    for _, item in sorted(finished(events).items()):
        if isinstance(item, FunctionCall) and item.status != "incomplete":
            calls.append((f"gw-{item.call_id}", item.name, json.loads(item.arguments or "{}")))
        if isinstance(item, CustomToolCall):
            calls.append((f"gw-{item.call_id}", item.name, {"input": item.input}))
    return calls


def thinking_of(events: list[Event]) -> str:
    return "".join(
        part.text
        for _, item in sorted(finished(events).items())
        if isinstance(item, ReasoningItem)
        for part in (*(item.content or ()), *item.summary)
        if isinstance(part, ReasoningTextContent | SummaryTextContent)
    )


@each_stream
def test_the_parts_hold_the_text_reasoning_and_calls_that_the_stream_states(path: Path) -> None:
    for events in recorded(path):
        decoded = Decoded(events, citations="drop", errors="none")
        stated = "".join(text for _, text in sorted(texts(events).items()))
        assert decoded.text == (stated or streamed(events))
        assert decoded.calls == calls_of(events)
        assert decoded.thinking.replace("\n\n", "") == thinking_of(events).replace("\n\n", "")


@each_stream
def test_the_result_holds_how_it_ended(path: Path) -> None:
    for events in recorded(path):
        result = Decoded(events).result
        (terminal,) = [event for event in events if isinstance(event, TERMINAL)] or [None]
        assert (result.error is None) == isinstance(terminal, ev.ResponseCompleted | ev.ResponseIncomplete)
        if isinstance(terminal, ev.ResponseCompleted):
            assert result.finish_reason == ("tool-calls" if calls_of(events) else "stop")
        if terminal is not None:
            assert result.usage == terminal.response.usage
            assert (result.response_id or "").startswith(terminal.response.id)


@each_stream
def test_errors_and_notes_are_reported_once(path: Path) -> None:
    for events in recorded(path):
        decoded = Decoded(events)
        noted = decoded.result.finish_reason in ("length", "content-filter", "other")
        assert decoded.text.count("**Error:**") == (decoded.result.error is not None)
        assert decoded.text.count("**Note:**") == noted


@each_stream
def test_e1_the_fold_before_the_end_is_the_finished_items(path: Path) -> None:
    for events in recorded(path):
        accumulator = ResponseAccumulator()
        for event in events[:-1]:
            accumulator.feed(event)
        items = finished(events)
        folded = accumulator.response.output if accumulator.response else []
        for index, item in items.items():
            assert plain(folded[index]) == plain(item)


@each_stream
def test_e1_the_fold_is_the_terminal_response(path: Path) -> None:
    for events in recorded(path):
        accumulator = ResponseAccumulator()
        for event in events:
            accumulator.feed(event)
        if isinstance(events[-1], TERMINAL) and events[-1].response.output:
            assert plain(accumulator.response)["output"] == plain(events[-1].response.output)


@each_stream
@pytest.mark.parametrize("silenced", ["delta", "done", "added"])
def test_a_stream_without_some_of_its_events_says_the_same(path: Path, silenced: str) -> None:
    for events in recorded(path):
        if not isinstance(events[-1], ev.ResponseCompleted) or not events[-1].response.output:
            continue  # nothing states the output once more
        remaining = [event for event in events if not event.type.endswith(silenced)]
        whole, fewer = (Decoded(each, citations="drop") for each in (events, remaining))
        assert (fewer.text, fewer.calls) == (whole.text, whole.calls)


@each_stream
def test_case_26_a_stream_cut_short_is_an_error_and_runs_no_half_call(path: Path) -> None:
    for events in recorded(path):
        whole = Decoded(events, errors="none", citations="drop")
        for end in range(0, len(events) - 1, 1 + len(events) // 25):
            cut = Decoded(events[:end], errors="none", citations="drop")
            assert cut.result.finish_reason == "error"
            assert whole.text.startswith(cut.text)
            assert cut.calls == whole.calls[: len(cut.calls)]
