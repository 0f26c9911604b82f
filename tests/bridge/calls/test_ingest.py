"""`ToolCallAggregator.ingest_delta`: notifications as they come, under whichever names."""

from time import process_time
from typing import Any

import pytest

from openresponses_bridge import ToolCallAggregator
from openresponses_bridge.errors import ToolError
from tests.support.costs import assert_at_most

CALL = {"type": "function_call", "id": "fc_a", "call_id": "call_a", "name": "find"}


def said(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def added(holder: str = "item", **fields: Any) -> dict[str, Any]:
    return said("output_item.added", **{holder: CALL | fields})


def done(holder: str = "item", **fields: Any) -> dict[str, Any]:
    return said("output_item.done", **{holder: CALL | fields})


def delta(piece: str, **names: Any) -> dict[str, Any]:
    return said("function_call_arguments.delta", delta=piece, **(names or {"call_id": "call_a"}))


def whole(arguments: str = "", **names: Any) -> dict[str, Any]:
    return said("function_call_arguments.done", arguments=arguments, **(names or {"call_id": "call_a"}))


def pieces(calls: ToolCallAggregator, *notifications: dict[str, Any]) -> str:
    """What they add, together."""
    changes = map(calls.ingest_delta, notifications)
    return "".join(change.arguments for change in changes if change is not None)


def drained(calls: ToolCallAggregator) -> list[tuple[int, str, str, str]]:
    return [(call.index, call.call_id, call.name, call.arguments) for call in calls.drain_completed_calls()]


WHOLE = [(0, "call_a", "find", '{"a":1}')]


@pytest.mark.parametrize("holder", ["item", "output_item", "outputItem"])
@pytest.mark.parametrize(
    "names", [{"call_id": "call_a"}, {"item_id": "fc_a"}, {"id": "call_a"}, {"id": "fc_a"}]
)
def test_pieces_become_a_call_under_any_names(holder: str, names: dict[str, str]) -> None:
    calls = ToolCallAggregator()
    sent = pieces(calls, added(holder), delta('{"a"', **names), delta(":1}", **names), whole(**names))
    assert (sent, drained(calls)) == ('{"a":1}', [])
    assert pieces(calls, done(holder)) == ""
    assert (drained(calls), len(calls), drained(calls)) == (WHOLE, 0, [])


def test_a_method_with_params_is_the_same() -> None:
    calls = ToolCallAggregator()
    for each in (added(), delta('{"a":1}'), done()):
        kind = each.pop("type")
        assert calls.ingest_delta({"method": kind, "params": each}) is not None
    assert drained(calls) == WHOLE


@pytest.mark.parametrize(
    "notifications",
    [
        [added(), done(arguments='{"a":1}')],
        [done(arguments='{"a":1}')],
        [added(), delta('{"a"'), done(arguments='{"a":1}')],
        [added(), whole('{"a":1}'), done()],
        [added(), delta('{"a"'), whole('{"a":1}'), done(arguments='{"a":1}')],
        [added(arguments='{"a":1}'), done(arguments='{"a":1}')],
        [delta('{"a":1}'), added(), done()],
        [added(), added(), delta('{"a":1}'), whole(), delta("}"), whole("{}"), done(arguments="[]")],
    ],
)
def test_case_07_what_was_not_streamed_is_added_once(notifications: list[dict[str, Any]]) -> None:
    calls = ToolCallAggregator()
    assert pieces(calls, *notifications) == '{"a":1}'
    assert drained(calls) == WHOLE


def test_two_calls_side_by_side_keep_their_indexes() -> None:
    calls = ToolCallAggregator()
    other = {"id": "fc_b", "call_id": "call_b", "name": "look"}
    pieces(calls, added(), added(**other), delta('{"a"'), delta('{"b"', call_id="call_b"))
    pieces(calls, delta(":1}"), delta(":2}", call_id="call_b"), done(**other), done())
    assert drained(calls) == [*WHOLE, (1, "call_b", "look", '{"b":2}')]


@pytest.mark.parametrize(
    "late", [added(), delta("x"), whole("x"), done(arguments="x"), delta("x", item_id="fc_a")]
)
def test_what_comes_after_a_call_was_drained_adds_nothing(late: dict[str, Any]) -> None:
    calls = ToolCallAggregator()
    pieces(calls, added(), done(arguments='{"a":1}'))
    assert drained(calls) == WHOLE
    assert (calls.ingest_delta(late), len(calls), drained(calls)) == (None, 0, [])


def test_arguments_that_differ_from_the_pieces_are_reported_and_the_pieces_stand() -> None:
    for last in (
        whole('{"b":2}'),
        done(arguments='{"b":2}'),
        done(arguments="{}"),
        done(arguments='{"a":1} '),
    ):
        calls = ToolCallAggregator()
        pieces(calls, added(), delta('{"a":1}'), whole())
        change = calls.ingest_delta(last)
        assert change is not None
        assert (change.differs, change.arguments, change.call.arguments) == (True, "", '{"a":1}')


def test_custom_calls_and_namespaces() -> None:
    calls = ToolCallAggregator()
    fields = {"type": "custom_tool_call", "namespace": "n"}
    pieces(calls, added(**fields), said("custom_tool_call_input.delta", item_id="fc_a", delta="***"))
    pieces(calls, said("custom_tool_call_input.done", item_id="fc_a", input="*** Begin"), done(**fields))
    (call,) = calls.drain_completed_calls()
    assert (call.custom, call.namespace, call.arguments) == (True, "n", "*** Begin")


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"type": 3},
        {"type": "response.output_text.delta", "delta": "Hi"},
        {"method": "response.output_item.added", "params": []},
        said("output_item.added"),
        said("output_item.added", item=["function_call"]),
        said("output_item.added", item={"type": "message", "id": "fc_a"}),
        said("output_item.done", item={"type": ["function_call"]}),
        said("function_call_arguments.done", call_id="call_z", arguments="{}"),
        said("function_call_arguments.delta", call_id="call_a", delta=3),
        said("function_call_arguments.delta", call_id="call_a"),
    ],
)
def test_what_is_about_no_call_adds_nothing(other: dict[str, Any]) -> None:
    calls = ToolCallAggregator()
    assert (calls.ingest_delta(other), len(calls)) == (None, 0)


@pytest.mark.parametrize(
    "last", [delta("xx"), whole("x" * 11), done(arguments="x" * 11), delta("é" * 2), whole("x" * 9 + "éé")]
)
def test_beyond_the_limit_is_an_error_and_the_call_is_forgotten(last: dict[str, Any]) -> None:
    calls = ToolCallAggregator(max_argument_bytes=10)
    pieces(calls, added(), delta("x" * 9))
    with pytest.raises(ToolError) as caught:
        calls.ingest_delta(last)
    assert caught.value.code == ToolError.ARGUMENTS_TOO_LARGE
    assert (len(calls), drained(calls)) == (0, [])


def test_saying_again_what_is_whole_costs_no_more_than_what_is_said() -> None:
    def seconds(size: int) -> float:
        calls = ToolCallAggregator()
        pieces(calls, added(), delta("x" * size), whole())
        begin = process_time()
        for _ in range(2_000):
            calls.ingest_delta(whole("x"))
        return process_time() - begin

    assert_at_most(10, lambda: seconds(900_000), lambda: seconds(9))


@pytest.mark.untraced
def test_draining_costs_what_is_drained_and_not_what_is_open() -> None:
    def seconds(open_ones: int) -> float:
        calls = ToolCallAggregator()
        for n in range(open_ones):
            calls.ingest_delta(added(id=f"fc_{n}", call_id=f"call_{n}"))
        begin = process_time()
        for n in range(300):
            calls.ingest_delta(done(id=f"fc_{n}", call_id=f"call_{n}"))
            assert len(calls.drain_completed_calls()) == 1
        return process_time() - begin

    assert_at_most(5, lambda: seconds(5_000), lambda: seconds(300))
