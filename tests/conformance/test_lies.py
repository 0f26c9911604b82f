"""A server that lies in one way fails the scenarios that ask about it, and no others; one that only lacks
features, or is legal in another way, fails none."""

from collections.abc import Iterator

import pytest

from openresponses_bridge.conformance.scenario import ServerUnderTest
from openresponses_bridge.conformance.scenarios import SCENARIOS
from openresponses_server.settings import Settings
from tests.support.lies import EVERY, HONEST, ROWS, Honest, Row
from tests.support.lying import Exchange, Lie, Played, recorded
from tests.support.serving import serving

TARGET = ServerUnderTest("demo")
Records = dict[str, list[Exchange]]


@pytest.fixture(scope="module")
def records() -> Iterator[Records]:
    """What our own server answers to each scenario."""
    with serving(Settings()) as base:
        yield recorded(base, TARGET)


def played(records: Records, lie: Lie) -> dict[str, Played]:
    return {each.id: Played(each, TARGET, records[each.id], lie) for each in SCENARIOS.values()}


def failed(plays: dict[str, Played]) -> set[str]:
    return {name for name, play in plays.items() if play.outcome == "failed"}


@pytest.mark.no_cover
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_lie_fails_the_scenarios_about_it_and_no_others(records: Records, row: Row) -> None:
    plays = played(records, row.lie)
    changed = {name for name, play in plays.items() if play.changed}
    fails = changed if row.fails == EVERY else set(row.fails.split())
    assert failed(plays) == fails - set(row.but.split())
    assert failed(plays)


@pytest.mark.no_cover
def test_every_scenario_fails_of_a_lie(records: Records) -> None:
    found = {name for row in ROWS for name in failed(played(records, row.lie))}
    assert found == set(SCENARIOS)


@pytest.mark.parametrize("row", HONEST, ids=lambda row: row.name)
def test_what_is_legal_or_not_offered_fails_nothing(records: Records, row: Honest) -> None:
    plays = played(records, row.change)
    assert {name: play.message for name, play in plays.items() if play.outcome == "failed"} == {}
    assert any(play.changed for play in plays.values())
    skipped = {name for name, play in plays.items() if play.outcome == "skipped"}
    assert skipped == {name for name in SCENARIOS if name in row.skips or name.split(".")[0] in row.skips}


def test_one_fault_is_one_cause(records: Records) -> None:
    """A fault that most streams show has the same cause wherever it shows."""
    rows = {row.name: row for row in ROWS}
    for name in (
        "no [DONE]",
        "usage is not a sum",
        "usage is not a sum in streams",
        "a delta is at another place",
    ):
        plays = played(records, rows[name].lie)
        found = {cause for play in plays.values() if play.outcome == "failed" for cause in play.causes}
        assert len(failed(plays)) >= 8
        assert len(found) == 1, found
