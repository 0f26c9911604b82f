"""`ToolCallAggregator`: aliases, stable indexes, bounds, eviction (laws D2, D9; field cases 1 to 4, 7)."""

import pytest

from openresponses_bridge.calls.aggregator import ToolCallAggregator
from openresponses_bridge.errors import ToolError


def test_deltas_add_up() -> None:
    calls = ToolCallAggregator()
    begun = calls.begin(0, "fc_0", "call_0", "look")
    for delta in ('{"a"', ":", "1}"):
        assert calls.append(delta, 0, "fc_0") is begun
    assert calls.finish_arguments("", 0, "fc_0").arguments == '{"a":1}'


@pytest.mark.parametrize(
    "aliases",
    [
        (0, "", ""),
        (None, "fc_0", ""),
        (None, "", "call_0"),
        (None, "call_0", ""),
        (0, "rotated", ""),
        (0, "fc_0", ""),
    ],
)
def test_a_call_answers_to_each_of_its_aliases(aliases: tuple[int | None, str, str]) -> None:
    calls = ToolCallAggregator()
    begun = calls.begin(0, "fc_0", "call_0", "look")
    calls.begin(1, "fc_1", "call_1", "look")
    assert calls.find(*aliases) is begun


def test_unknown_aliases_find_nothing() -> None:
    calls = ToolCallAggregator()
    calls.begin(0, "fc_0", "call_0", "look")
    assert calls.find(1, "fc_1", "call_1") is None
    assert calls.find() is None


def test_interleaved_calls_stay_apart_with_stable_indexes() -> None:
    calls = ToolCallAggregator()
    for index in (3, 5):
        calls.begin(index, f"fc_{index}", f"call_{index}", "look")
    for delta in "abc":
        calls.append(delta, 3, "fc_3")
        calls.append(delta.upper(), 5, "fc_5")
    assert [(call.index, call.arguments) for call in calls] == [(0, "abc"), (1, "ABC")]
    calls.complete(3, "fc_3")
    assert [call.index for call in calls.drain_completed_calls()] == [0]
    assert calls.begin(6, "fc_6").index == 2, "an index is never used again"


def test_case_01_two_calls_at_one_index_are_two() -> None:
    calls = ToolCallAggregator()
    first = calls.begin(0, "fc_a", "call_a", "look")
    second = calls.begin(0, "fc_b", "call_b", "look")
    assert first is not second
    calls.append("1", 0, "fc_a")
    calls.append("2", 0, "fc_b")
    assert calls.complete(0, "fc_a", "call_a") is first
    assert calls.complete(0, "fc_b", "call_b") is second
    assert [call.arguments for call in calls.drain_completed_calls()] == ["1", "2"]


def test_case_02_a_known_id_wins_over_the_index() -> None:
    calls = ToolCallAggregator()
    first = calls.begin(0, "fc_a", "call_a", "look")
    second = calls.begin(1, "fc_b", "call_b", "look")
    assert calls.append("x", 1, "fc_a") is first
    assert (first.arguments, second.arguments) == ("x", "")


def test_ids_that_change_are_followed_by_index() -> None:
    calls = ToolCallAggregator()
    begun = calls.begin(0, "fc_a", "call_a", "look")
    assert calls.append("{}", 0, "fc_b") is begun
    assert calls.complete(0, "fc_c", "call_c") is begun
    assert begun.call_id == "call_c"


@pytest.mark.parametrize(
    "again", [(0, "fc_0", "call_0"), (0, "fc_x", "call_0"), (0, "", ""), (None, "", "call_0")]
)
def test_a_call_announced_twice_is_one(again: tuple[int | None, str, str]) -> None:
    calls = ToolCallAggregator()
    begun = calls.begin(0, "fc_0", "call_0", "look")
    assert calls.begin(*again, "look") is begun
    assert len(calls) == 1


@pytest.mark.parametrize("other", [(1, "fc_1", "call_0"), (1, "fc_0", "call_1")])
def test_one_id_at_two_indexes_may_be_two_calls(other: tuple[int, str, str]) -> None:
    calls = ToolCallAggregator()
    first = calls.begin(0, "fc_0", "call_0", "look")
    second = calls.begin(*other, "look")
    assert second is not first
    assert calls.find(0, "fc_0") is first
    assert calls.find(1, other[1], other[2]) is second


def test_gap_1_deltas_before_the_announcement_are_kept() -> None:
    calls = ToolCallAggregator()
    nameless = calls.append('{"a":', 0, "fc_0")
    assert nameless.name == ""
    begun = calls.begin(0, "fc_0", "call_0", "look")
    calls.append("1}", 0, "fc_0")
    assert begun is nameless
    assert (begun.name, begun.call_id, begun.arguments) == ("look", "call_0", '{"a":1}')


def test_case_07_an_empty_done_keeps_the_deltas() -> None:
    calls = ToolCallAggregator()
    calls.begin(0, "fc_0", "call_0", "look")
    calls.append("{}", 0)
    assert calls.finish_arguments("", 0).arguments == "{}"


def test_case_07_a_done_alone_opens_and_fills_a_call() -> None:
    call = ToolCallAggregator().finish_arguments("{}", 0, "fc_0")
    assert (call.arguments, call.arguments_done, call.name) == ("{}", True, "")


def test_done_counts_over_the_deltas_and_ends_them() -> None:
    calls = ToolCallAggregator()
    calls.append('{"a":', 0)
    calls.finish_arguments('{"a":2}', 0)
    assert calls.append("junk", 0).arguments == '{"a":2}'


def test_arguments_announced_whole_are_not_doubled_by_their_deltas() -> None:
    calls = ToolCallAggregator()
    call = calls.begin(0, "fc_0", "call_0", "look", '{"a":1}')
    assert call.arguments == '{"a":1}'
    for delta in ('{"a"', ":1}"):
        calls.append(delta, 0)
    assert call.arguments == '{"a":1}'


def test_arguments_announced_in_part_go_on() -> None:
    calls = ToolCallAggregator()
    call = calls.begin(0, "fc_0", "call_0", "look", '{"a"')
    calls.append(":1}", 0)
    assert call.arguments == '{"a":1}'


def test_an_announcement_does_not_double_what_was_streamed() -> None:
    calls = ToolCallAggregator()
    calls.append('{"a":1}', 0, "fc_0")
    assert calls.begin(0, "fc_0", "call_0", "look", '{"a":1}').arguments == '{"a":1}'


def test_drained_calls_are_evicted_with_their_aliases() -> None:
    calls = ToolCallAggregator()
    calls.begin(0, "fc_0", "call_0", "look")
    done = calls.complete(0, "fc_0", "call_0", "look", "{}")
    assert done.completed
    assert calls.drain_completed_calls() == [done]
    assert calls.drain_completed_calls() == []
    assert (len(calls), calls.find(0, "fc_0", "call_0")) == (0, None)


def test_evicting_a_call_leaves_the_aliases_of_others() -> None:
    calls = ToolCallAggregator()
    first = calls.begin(0, "fc_a", "call_a", "look")
    second = calls.begin(0, "fc_b", "call_b", "look")
    calls.evict(first)
    assert calls.find(0, "fc_b") is second
    unplaced = calls.begin(None, "fc_c")
    calls.evict(unplaced)
    assert list(calls) == [second]


def test_a_shared_id_stays_with_the_first_and_eviction_of_the_second_keeps_it() -> None:
    calls = ToolCallAggregator()
    first = calls.begin(0, "fc_0", "call_0", "look")
    second = calls.begin(1, "fc_1", "call_0", "look")
    calls.evict(second)
    assert calls.find(None, "", "call_0") is first


def test_custom_calls_are_marked() -> None:
    calls = ToolCallAggregator()
    assert calls.begin(0, "ctc_0", "call_0", "sql", "", True).custom
    assert calls.complete(0, "ctc_0", "call_0", "sql", "SELECT 1", True).arguments == "SELECT 1"


@pytest.mark.parametrize("way", ["begin", "append", "finish_arguments", "complete"])
def test_arguments_over_the_limit_are_an_error_and_the_call_is_forgotten(way: str) -> None:
    calls = ToolCallAggregator(max_argument_bytes=10)
    other = calls.begin(1, "fc_1", "call_1", "other")
    if way != "begin":
        calls.begin(0, "fc_0", "call_0", "look")
    feed = {
        "begin": lambda: calls.begin(0, "fc_0", "call_0", "look", "x" * 11),
        "append": lambda: [calls.append("12345", 0, "fc_0") for _ in range(3)],
        "finish_arguments": lambda: calls.finish_arguments("x" * 11, 0, "fc_0"),
        "complete": lambda: calls.complete(0, "fc_0", "call_0", "look", "x" * 11),
    }[way]
    with pytest.raises(ToolError, match="tool call 'look' exceed") as error:
        feed()
    assert error.value.code == "bridge.tools.arguments_too_large"
    assert "10 bytes" in error.value.message
    assert error.value.context["limit"] == 10
    assert list(calls) == [other]
    assert calls.find(0, "fc_0", "call_0") is None


def test_the_limit_counts_utf8_bytes_and_admits_what_is_just_within() -> None:
    calls = ToolCallAggregator(max_argument_bytes=6)
    assert calls.append("éé\ud83d"[:2] + "ab", 0).arguments == "ééab"
    with pytest.raises(ToolError):
        calls.append("é", 0)


def test_the_default_limit_is_one_megabyte() -> None:
    calls = ToolCallAggregator()
    calls.append("x" * 1_000_000, 0)
    with pytest.raises(ToolError, match="1,000,000"):
        calls.append("x", 0)


def test_clear_forgets_all_and_indexes_go_on() -> None:
    calls = ToolCallAggregator()
    calls.begin(0, "fc_0", "call_0", "look")
    calls.clear()
    assert (list(calls), calls.find(0, "fc_0", "call_0")) == ([], None)
    assert calls.begin(0, "fc_0", "call_0", "look").index == 1
