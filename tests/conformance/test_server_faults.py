"""A server with one fault fails the scenarios about it and no others; one that lacks features, or is right in
another way, fails none."""

from collections.abc import Iterator

import pytest

from openresponses_bridge.conformance.scenario import ServerUnderTest
from openresponses_bridge.conformance.scenarios import SCENARIOS
from openresponses_server.settings import Settings
from tests.support.rewritten_answers import Exchange, Played, Rewrite, recorded
from tests.support.server_faults import EVERY, FAULTS, VARIANTS, Fault, Variant
from tests.support.serving import serving

TARGET = ServerUnderTest("demo")
Records = dict[str, list[Exchange]]


@pytest.fixture(scope="module")
def records() -> Iterator[Records]:
    """What our own server answers to each scenario."""
    with serving(Settings()) as base:
        yield recorded(base, TARGET)


def played(records: Records, rewrite: Rewrite) -> dict[str, Played]:
    return {each.id: Played(each, TARGET, records[each.id], rewrite) for each in SCENARIOS.values()}


def failed(plays: dict[str, Played]) -> set[str]:
    return {name for name, play in plays.items() if play.outcome == "failed"}


@pytest.mark.untraced
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fails_the_scenarios_about_it_and_no_others(records: Records, fault: Fault) -> None:
    plays = played(records, fault.rewrite)
    changed = {name for name, play in plays.items() if play.changed}
    fails = changed if fault.fails == EVERY else set(fault.fails.split())
    assert failed(plays) == fails - set(fault.but.split())
    assert failed(plays)


@pytest.mark.untraced
def test_every_scenario_fails_because_of_a_fault(records: Records) -> None:
    failures = {name for fault in FAULTS for name in failed(played(records, fault.rewrite))}
    assert failures == set(SCENARIOS)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_what_is_legal_or_not_offered_fails_nothing(records: Records, variant: Variant) -> None:
    plays = played(records, variant.change)
    assert {name: play.message for name, play in plays.items() if play.outcome == "failed"} == {}
    assert any(play.changed for play in plays.values())
    skipped = {name for name, play in plays.items() if play.outcome == "skipped"}
    assert skipped == {
        name for name in SCENARIOS if name in variant.skips or name.split(".")[0] in variant.skips
    }


def test_one_fault_is_one_cause(records: Records) -> None:
    """A fault that most streams show has the same cause wherever it shows."""
    faults = {fault.name: fault for fault in FAULTS}
    for name in (
        "no [DONE]",
        "usage is not a sum",
        "usage is not a sum in streams",
        "a delta is at another place",
    ):
        plays = played(records, faults[name].rewrite)
        causes = {cause for play in plays.values() if play.outcome == "failed" for cause in play.causes}
        assert len(failed(plays)) >= 8
        assert len(causes) == 1, causes
