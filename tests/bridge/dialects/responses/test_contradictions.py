"""An upstream whose terminal event contradicts its stream: the events already sent remain valid, and each
difference is reported."""

from __future__ import annotations

import pytest

from openresponses_bridge.protocol import events as ev
from tests.support.damaged_responses import (
    CheckedResponses,
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

DIFFERS = "response.output: its {} differs from the streamed one, which is kept"
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
    fed = CheckedResponses([created(), added(call()), argue('{"a":1}'), end], wire)
    assert fed.status == "incomplete"
    assert [item["status"] for item in fed.output] == ["incomplete"]
    assert fed.calls == [("call_u", "look", '{"a":1}')]
    assert not any(isinstance(event, ev.FunctionCallArgumentsDone) for event in fed.events)


@pytest.mark.parametrize("output", [[], [call('{"a":1}')]], ids=["not listed", "listed"])
def test_a_call_of_a_completed_response_is_whole(output: list[Json]) -> None:
    """Servers leave the done events out."""
    fed = CheckedResponses([created(), added(call()), argue('{"a":1}'), ended("completed", *output)])
    assert (fed.status, fed.output[0]["status"]) == ("completed", "completed")


def test_a_call_that_an_incomplete_response_calls_completed_is_whole() -> None:
    end = ended("incomplete", call('{"a":1}'), message("Hel", status="incomplete"))
    fed = CheckedResponses([created(), added(call()), argue('{"a":1}'), end])
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


def search(**fields: object) -> Json:
    """An item that the server itself fills."""
    return {"type": "web_search_call", "id": "ws_u", "status": "completed", **fields}


def patch(path: str) -> Json:
    item = {"type": "apply_patch_call", "id": "ap_u", "call_id": "c", "status": "completed"}
    return {**item, "operation": {"type": "delete_file", "path": path}}


ACTION = {"type": "search", "query": "fog"}
OTHER_ACTION = {"type": "search", "query": "rain"}
SEARCH = [created(), added(search(status="in_progress")), done(search(action=ACTION, results=["a"]))]
UNANNOUNCED = [created(), done(search(action=ACTION))]
PATCH = [created(), done(patch("a"))]
FOUND = [*TEXT, done(search(action=ACTION), 1)]
CONTRADICTIONS: dict[str, tuple[list[Json], list[Json], str]] = {
    "another text": (TEXT, [message("Goodbye")], DIFFERS.format("message")),
    "more text": (TEXT, [message("Hello, all")], DIFFERS.format("message")),
    "less text": (TEXT, [message("Hell")], DIFFERS.format("message")),
    "no text": (TEXT, [message()], DIFFERS.format("message")),
    "a second part": (TEXT, [message("Hello", "Again")], DIFFERS.format("message")),
    "another whole text": (WHOLE, [message("Goodbye")], DIFFERS.format("message")),
    "another search": (SEARCH, [search(action=OTHER_ACTION)], DIFFERS.format("web_search_call")),
    "more of a search": (UNANNOUNCED, [search(results=["b"])], DIFFERS.format("web_search_call")),
    "a failed search": (SEARCH, [search(status="failed")], DIFFERS.format("web_search_call")),
    "another patch": (PATCH, [patch("b")], DIFFERS.format("apply_patch_call")),
    "without the search": (FOUND, [message("Hello")], LEFT_OUT.format("web_search_call")),
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
    before = CheckedResponses([*frames, ended()])
    fed = CheckedResponses([*frames, ended("completed", *output)])
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
    "a search": (SEARCH, [search(action=ACTION, results=["a"])]),
    "a search under another id, without its results": (
        SEARCH,
        [search(id="ws_x", action=ACTION, results=[])],
    ),
    "a patch": (PATCH, [patch("a")]),
    "without raw reasoning": (THOUGHT, [reasoning()]),
    "a whole item": (WHOLE, [message("Hello")]),
    "an item that nothing came of": ([created(), added(message()), *TEXT[1:]], [message("Hello")]),
}


@pytest.mark.parametrize("case", AGREEING)
def test_a_terminal_output_that_says_the_same_is_not_reported(case: str) -> None:
    frames, output = AGREEING[case]
    assert CheckedResponses([*frames, ended("completed", *output)]).notes("warning") == []


# ── items that upstream ended as incomplete, with others after or beside them ──────────────────────────────
CUT = done(message("Hel", id="msg_a", status="incomplete"), 0)
NEXT: dict[str, list[Json]] = {
    "a message": [added(message(id="msg_b"), 1), say("All", 1, "msg_b"), done(message("All", id="msg_b"), 1)],
    "a call": [added(call(), 1), argue("{}", 1), done(call("{}"), 1)],
    "a whole item": [done({"type": "web_search_call", "id": "ws", "status": "completed"}, 1)],
    "reasoning": [
        added(reasoning(), 1),
        delta("reasoning_text", "Hm", 1, "rs_u"),
        done(reasoning("Hm"), 1),
    ],
}
BEGUN = [created(), added(message(id="msg_a")), say("Hel", 0, "msg_a")]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("end", ["completed", "incomplete"])
@pytest.mark.parametrize("following", NEXT)
def test_an_incomplete_item_stays_so_whatever_follows(following: str, end: str, wire: str) -> None:
    fed = CheckedResponses([*BEGUN, CUT, *NEXT[following], ended(end)], wire)
    assert fed.status == "incomplete"
    assert [item["status"] for item in fed.output] == ["incomplete", "completed"]
    assert fed.texts[0] == "Hel"


@pytest.mark.parametrize("wire", WIRES)
def test_an_incomplete_thought_stays_so(wire: str) -> None:
    thought = [added(reasoning()), delta("reasoning_text", "Hm", 0, "rs_u")]
    thought.append(done(reasoning("Hm", status="incomplete")))
    fed = CheckedResponses([created(), *thought, *NEXT["a message"], ended("completed")], wire)
    assert [item["status"] for item in fed.output] == ["incomplete", "completed"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "order", [[0, 1], [1, 0]], ids=["the first one ends first", "the other one ends first"]
)
def test_an_interleaved_item_that_is_incomplete_leaves_an_incomplete_one(order: list[int], wire: str) -> None:
    """Its beginning has ended when the other one began, so what says that it is cut comes at the end."""
    ends = [CUT, done(message("All", id="msg_b"), 1)]
    frames = [*BEGUN, added(message(id="msg_b"), 1), say("All", 1, "msg_b")]
    fed = CheckedResponses([*frames, *(ends[index] for index in order), ended("incomplete")], wire)
    assert fed.status == "incomplete"
    assert fed.texts == ["Hel", "All", ""]
    assert [item["status"] for item in fed.output] == ["completed", "completed", "incomplete"]
    assert "output_item.done: incomplete after its text had ended, sent as another" in fed.repairs


@pytest.mark.parametrize("wire", WIRES)
def test_interleaved_text_that_goes_on_is_cut_where_it_was_cut(wire: str) -> None:
    frames = [*BEGUN, added(message(id="msg_b"), 1), say("Al", 1, "msg_b"), say("lo", 0, "msg_a")]
    whole = done(message("Hello", id="msg_a", status="incomplete"), 0)
    last = [say("l", 1, "msg_b"), done(message("All", id="msg_b"), 1), ended("incomplete")]
    fed = CheckedResponses([*frames, whole, *last], wire)
    assert fed.texts == ["Hel", "Al", "lo", "l"]
    assert [item["status"] for item in fed.output] == ["completed", "completed", "incomplete", "completed"]
