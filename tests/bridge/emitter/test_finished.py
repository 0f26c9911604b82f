"""The events of a response that has ended, for callers that do not have its stream."""

import pytest

from openresponses_bridge.emitter.finished import events_of, is_cut_call, opening_events
from openresponses_bridge.protocol.events import Event
from tests.support.machines import machine

CITATION = {"type": "url_citation", "url": "https://a", "title": "A", "start_index": 0, "end_index": 1}


def finished(*calls, end=("finish",), wire="openai"):
    state_machine = machine(wire)
    events: list[Event] = []
    for name, *arguments in [("start",), *calls, end]:
        events += getattr(state_machine, name)(*arguments)
    return events, state_machine.snapshot


def said(events):
    """What the deltas say, by item and kind, each joined."""
    pieces: dict[tuple[int, str], str] = {}
    for event in events:
        if hasattr(event, "delta"):
            key = (event.output_index, event.type.replace("reasoning_text", "reasoning"))
            pieces[key] = pieces.get(key, "") + event.delta
    return pieces


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_they_say_what_the_stream_said(wire):
    streamed, response = finished(
        ("reasoning", "h"),
        ("reasoning", "m"),
        ("reasoning_summary", "One"),
        ("reasoning_summary", "Two", 1),
        ("text", "Hel"),
        ("text", "lo"),
        ("annotation", CITATION),
        ("refusal", "No"),
        ("tool_call", 0, "c0", "look", '{"a":'),
        ("tool_call", 0, None, None, "1}"),
        ("tool_call", 1, "c1", "empty"),
        ("tool_call_done", 1),
        wire=wire,
    )
    events = list(events_of(response))
    assert said(events) == said(streamed)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[1].type) == ("response.created", "response.in_progress")
    assert events[-1].response == response
    kinds = [event.type for event in events]
    assert kinds.count("response.output_item.done") == len(response.output)
    assert "response.output_text.annotation.added" in kinds


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (("finish", "length"), "response.incomplete"),
        (("cancel",), "response.incomplete"),
        (("fail", "broken"), "response.failed"),
    ],
)
def test_the_end_is_the_responses_own(end, last):
    _, response = finished(("text", "x"), end=end)
    *_, ended = events_of(response)
    assert (ended.type, ended.response) == (last, response)


def test_a_call_that_was_cut_is_left_out_without_a_gap():
    _, response = finished(("text", "x"), ("tool_call", 0, "c", "f", '{"a"'), end=("finish", "length"))
    events = list(events_of(response))
    assert [is_cut_call(item) for item in response.output] == [False, True]
    assert not any("function_call" in event.type for event in events)
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_a_response_that_has_not_ended_has_no_events():
    state_machine = machine("openai")
    state_machine.start()
    with pytest.raises(KeyError):
        next(events_of(state_machine.snapshot))


def test_beginnings_say_nothing_of_the_end():
    _, response = finished(("text", "x"), end=("fail", "broken"))
    for event in opening_events(response):
        begun = event.response
        assert (begun.status, begun.output, begun.error, begun.id) == ("in_progress", [], None, response.id)
