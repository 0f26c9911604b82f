"""`usage()`: the names and counts that it accepts, those that it corrects and those that it refuses."""

from typing import Any

import pytest

from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol.usage import MOST_TOKENS, Usage
from tests.support.machines import Run

SPELLINGS: list[tuple[dict[str, Any], Usage]] = [
    (
        {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 2},
         "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 13},
        Usage.of(9, 4, cached_tokens=2, reasoning_tokens=3),
    ),
    (
        {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2},
         "completion_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 13},
        Usage.of(9, 4, cached_tokens=2, reasoning_tokens=3),
    ),
    (
        {"input_tokens": 4, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 3,
         "output_tokens": 4, "output_tokens_details": {"thinking_tokens": 3}},
        Usage.of(9, 4, cached_tokens=2, reasoning_tokens=3, cache_write_tokens=3),
    ),
    ({"cache_creation_input_tokens": 3, "output_tokens": 1}, Usage.of(3, 1, cache_write_tokens=3)),
    ({"prompt_tokens": 9, "input_tokens": None}, Usage.of(9, 0)),
    ({"input_tokens": 2.0, "output_tokens": "4"}, Usage.of(2, 4)),
    ({"input_tokens": MOST_TOKENS, "output_tokens": MOST_TOKENS}, Usage.of(MOST_TOKENS, MOST_TOKENS)),
    ({"input_tokens": 1, "cost": 0.5}, Usage.of(1, 0)),
    (
        {"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 5}, "estimated": True},
        Usage.of(9, 0, cache_write_tokens=5, estimated=True),
    ),
    (Usage.of(9, 1, estimated=True), Usage.of(9, 1, estimated=True)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "taken"), SPELLINGS)
def test_counts_are_taken_in_every_spelling(given: dict[str, Any], taken: Usage) -> None:
    run = Run()
    run("usage", given)
    run("finish")
    assert run.machine.snapshot.usage == taken
    assert run.notes("repair") == []


NO_COUNTS: dict[str, Any] = {
    "negative": -1, "very negative": -(10**30), "too many": MOST_TOKENS + 1, "huge": 10**400, "fraction": 1.5,
    "float": 1e300, "nan": float("nan"), "bool": True, "text": "many", "negative text": "-1",
    "digits": "9" * 30, "other digit": "\u0663", "list": [1], "object": {"a": 1},
}  # fmt: skip
PLACES = [
    "input_tokens", "output_tokens", "prompt_tokens", "completion_tokens", "cache_read_input_tokens",
    "cached_tokens", "reasoning_tokens",
]  # fmt: skip


@pytest.mark.parametrize("number", NO_COUNTS)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_count_is_refused_and_changes_nothing(place: str, number: str) -> None:
    details = {"cached_tokens": "input_tokens_details", "reasoning_tokens": "output_tokens_details"}
    usage = {place: NO_COUNTS[number]}
    if place in details:
        usage = {details[place]: usage}
    run = Run()
    run("usage", Usage.of(3, 2))
    with pytest.raises(StreamStateError, match="usage: not token counts: ") as refused:
        run("usage", usage)
    assert refused.value.code == "bridge.stream.invalid_argument"
    run("finish")
    assert run.machine.snapshot.usage == Usage.of(3, 2)


@pytest.mark.parametrize(
    "place", ["input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "total_tokens"]
)
@pytest.mark.parametrize("number", [-1, 10**13, 1.5, True, "many", None], ids=str)
def test_a_struct_with_what_is_no_count_is_refused_too(place: str, number: Any) -> None:
    counts = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10, place: number}
    if place == "total_tokens" and number is None:
        return  # the sum
    with pytest.raises(StreamStateError, match=f"{place} is not a whole number"):
        Run()("usage", Usage.of(**counts))


@pytest.mark.parametrize(
    "given", [{"tokens": 3}, {"usage": {"input_tokens": 3}}, {"inputTokens": 3}], ids=str
)
def test_an_object_in_no_spelling_we_know_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(StreamStateError, match="none of these names token counts: "):
        Run()("usage", given)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (
            {"input_tokens": "3", "cache_read_input_tokens": "4", "output_tokens": "2"},
            Usage.of(7, 2, cached_tokens=4),
        ),
        (Usage.of(5, 3, cached_tokens="1", total_tokens=8), Usage.of(5, 3, cached_tokens=1)),  # type: ignore[arg-type]
    ],
)
def test_counts_may_be_text(given: Any, taken: Usage) -> None:
    """Alone, and where they are added, as Anthropic's are."""
    run = Run()
    run("usage", given)
    run("finish")
    assert run.machine.snapshot.usage == taken


@pytest.mark.parametrize(
    ("given", "taken", "repaired"),
    [
        ({"input_tokens": 3, "output_tokens": 2, "total_tokens": 99}, Usage.of(3, 2), ["usage.total_tokens"]),
        ({"prompt_tokens": 3, "total_tokens": 0}, Usage.of(3, 0), ["usage.total_tokens"]),
        ({"total_tokens": 5}, Usage.of(5, 0), []),
        (
            {"input_tokens": 3, "input_tokens_details": {"cached_tokens": 4}},
            Usage.of(3, 0, cached_tokens=3),
            ["usage.cached_tokens"],
        ),
        (
            {"output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 4}},
            Usage.of(0, 3, reasoning_tokens=3),
            ["usage.reasoning_tokens"],
        ),
        (Usage.of(1, 1, cached_tokens=2, reasoning_tokens=2, total_tokens=3),
         Usage.of(1, 1, cached_tokens=1, reasoning_tokens=1),
         ["usage.cached_tokens", "usage.reasoning_tokens", "usage.total_tokens"]),
    ],
)  # fmt: skip
def test_sums_and_parts_that_do_not_fit_are_put_right_with_a_note(
    given: Any, taken: Usage, repaired: list[str]
) -> None:
    run = Run()
    run("usage", given)
    run("finish")
    assert run.machine.snapshot.usage == taken
    assert run.notes("repair") == repaired


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"prompt_tokens": 9, "completion_tokens": None, "total_tokens": 12}, Usage.of(9, 3)),
        ({"completion_tokens": 3, "total_tokens": 12}, Usage.of(9, 3)),
        ({"input_tokens": 0, "output_tokens": 3, "total_tokens": 12}, Usage.of(9, 3)),
        (Usage.of(9, 0, total_tokens=12), Usage.of(9, 3)),
    ],
)
def test_a_count_that_is_left_out_is_what_the_total_has_beside_the_other(given: Any, taken: Usage) -> None:
    run = Run()
    run("usage", given)
    run("finish")
    assert run.machine.snapshot.usage == taken
    assert run.notes("repair") in (["usage.output_tokens"], ["usage.input_tokens"])


REPORTS: list[tuple[list[Any], Usage]] = [
    ([Usage.of(9, 4, cached_tokens=2), Usage.of(0, 0)], Usage.of(9, 4, cached_tokens=2)),
    (
        [Usage.of(9, 4, cached_tokens=2, reasoning_tokens=3), {"output_tokens": 6}],
        Usage.of(9, 6, cached_tokens=2),
    ),
    ([{"input_tokens": 9}, {"output_tokens": 6}], Usage.of(9, 6)),
    ([Usage.of(9, 4), Usage.of(12, 5)], Usage.of(12, 5)),
    ([Usage.of(9, 4), {"total_tokens": 20}], Usage.of(9, 4)),
    ([{"total_tokens": 20}, Usage.of(9, 4)], Usage.of(9, 4)),
    ([{"total_tokens": 20}, Usage.of(0, 0)], Usage.of(20, 0)),
    ([{"total_tokens": 20}, {"total_tokens": 21}], Usage.of(21, 0)),
    ([Usage.of(9, 0, estimated=True), Usage.of(0, 4)], Usage.of(9, 4, estimated=True)),
    ([Usage.of(9, 4, estimated=True), Usage.of(9, 4)], Usage.of(9, 4)),
]


@pytest.mark.parametrize(("reports", "taken"), REPORTS)
def test_what_a_later_report_leaves_out_or_has_as_zero_stands(reports: list[Any], taken: Usage) -> None:
    run = Run()
    for each in reports:
        run("usage", each)
    run("finish")
    assert run.machine.snapshot.usage == taken
