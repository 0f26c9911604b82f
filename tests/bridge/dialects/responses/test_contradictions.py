"""An upstream whose end contradicts what it streamed: what was sent stands, and what differs is reported."""

from __future__ import annotations

import pytest

from bridge.protocol import events as ev
from tests.support.foreign import (
    Foreign,
    Json,
    added,
    argue,
    call,
    created,
    delta,
    done,
    ended,
    message,
    reasoning,
    say,
)
from tests.support.machines import WIRES

DIFFERS = "response.output: its {} differs from what was streamed, which stands"
LEFT_OUT = "response.output: leaves out a {} that was streamed"


# ── calls that upstream never finished ─────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter"])
@pytest.mark.parametrize(
    "output",
    [[], [call('{"a":1}', status="in_progress")], [call('{"a":1}', status="incomplete")]],
    ids=["not listed", "in progress", "incomplete"],
)
def test_a_call_that_upstream_never_finished_is_incomplete(
    output: list[Json], reason: str, wire: str
) -> None:
    """Whole as its arguments look, clients would run it."""
    end = ended("incomplete", *output, incomplete_details={"reason": reason})
    fed = Foreign([created(), added(call()), argue('{"a":1}'), end], wire)
    assert fed.status == "incomplete"
    assert [item["status"] for item in fed.output] == ["incomplete"]
    assert fed.calls == [("call_u", "look", '{"a":1}')]
    assert not any(isinstance(event, ev.FunctionCallArgumentsDone) for event in fed.events)


@pytest.mark.parametrize("output", [[], [call('{"a":1}')]], ids=["not listed", "listed"])
def test_a_call_of_a_completed_response_is_whole(output: list[Json]) -> None:
    """Servers leave the done events out."""
    fed = Foreign([created(), added(call()), argue('{"a":1}'), ended("completed", *output)])
    assert (fed.status, fed.output[0]["status"]) == ("completed", "completed")


def test_a_call_that_an_incomplete_response_calls_completed_is_whole() -> None:
    end = ended("incomplete", call('{"a":1}'), message("Hel", status="incomplete"))
    fed = Foreign([created(), added(call()), argue('{"a":1}'), end])
    assert [item["status"] for item in fed.output] == ["completed", "incomplete"]


# ── terminal outputs ───────────────────────────────────────────────────────────────────────────────────────
TEXT = [created(), added(message()), say("Hello"), done(message("Hello"))]
CALL = [created(), added(call()), argue('{"a":1}'), done(call('{"a":1}'))]
THOUGHT = [
    created(),
    added(reasoning()),
    delta("reasoning_text", "Hm", 0, "rs_u"),
    done(reasoning("Hm")),
]
WHOLE = [created(), done(message("Hello"))]
BOTH = [*TEXT, added(call(), 1), argue('{"a":1}', 1), done(call('{"a":1}'), 1)]

CONTRADICTIONS: dict[str, tuple[list[Json], list[Json], str]] = {
    "another text": (TEXT, [message("Goodbye")], DIFFERS.format("message")),
    "more text": (TEXT, [message("Hello, all")], DIFFERS.format("message")),
    "less text": (TEXT, [message("Hell")], DIFFERS.format("message")),
    "no text": (TEXT, [message()], DIFFERS.format("message")),
    "a second part": (TEXT, [message("Hello", "Again")], DIFFERS.format("message")),
    "another whole text": (WHOLE, [message("Goodbye")], DIFFERS.format("message")),
    "other arguments": (CALL, [call('{"a":2}')], DIFFERS.format("function_call")),
    "no arguments": (CALL, [call("")], DIFFERS.format("function_call")),
    "another function": (CALL, [call('{"a":1}', name="delete")], DIFFERS.format("function_call")),
    "another thought": (THOUGHT, [reasoning("Oh")], DIFFERS.format("reasoning")),
    "without the call": (BOTH, [message("Hello")], LEFT_OUT.format("function_call")),
    "without the text": (BOTH, [call('{"a":1}')], LEFT_OUT.format("message")),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_terminal_output_that_differs_is_reported_and_what_was_streamed_stands(case: str) -> None:
    frames, output, warning = CONTRADICTIONS[case]
    before = Foreign([*frames, ended()])
    fed = Foreign([*frames, ended("completed", *output)])
    assert warning in fed.notes("warning")
    assert before.notes("warning") == []
    assert (fed.texts, fed.calls) == (before.texts, before.calls)


AGREEING: dict[str, tuple[list[Json], list[Json]]] = {
    "the same": (BOTH, [message("Hello"), call('{"a":1}')]),
    "in another order, under other ids": (
        BOTH,
        [call('{"a":1}', id="fc_x"), message("Hello", id="msg_x")],
    ),
    "nothing at all": (BOTH, []),
    "without raw reasoning": (THOUGHT, [reasoning()]),
    "a whole item": (WHOLE, [message("Hello")]),
    "an item that nothing came of": ([created(), added(message()), *TEXT[1:]], [message("Hello")]),
}


@pytest.mark.parametrize("case", AGREEING)
def test_a_terminal_output_that_says_the_same_is_not_reported(case: str) -> None:
    frames, output = AGREEING[case]
    assert Foreign([*frames, ended("completed", *output)]).notes("warning") == []
