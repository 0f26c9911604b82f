"""The simulation of many workers repeats exactly, agrees with real workers, and is the one in
docs/capacity."""

import shlex

import msgspec
import pytest

from tests.benchmarks import bearing, fleet
from tests.benchmarks.bearing import Measurement, Spent
from tests.benchmarks.fleet import BEFORE, LOAD, NOW, Costs, Load, Outcome, Simulation, simulate
from tests.support.documents import blocks_of, commands_of

SMALL = Load(rate=2.0, tokens=60)


@pytest.fixture(scope="module")
def measured() -> Measurement:
    return fleet.measured()


@pytest.fixture(scope="module")
def simulated() -> Simulation:
    return msgspec.json.decode(fleet.SIMULATED.read_bytes(), type=Simulation)


def test_the_figures_of_the_page_are_those_of_the_code(measured: Measurement, simulated: Simulation) -> None:
    """A changed interval or pause of the server makes this fail."""
    again = [simulate(Costs(measured), fleet.SIZES[0], LOAD, rules) for rules in (BEFORE, NOW)]
    assert simulated.outcomes[:2] == again, "run `python -m tests.benchmarks.fleet --write` and `make docs`"


def test_another_seed_is_another_run(measured: Measurement) -> None:
    one, other = (simulate(Costs(measured), 4, SMALL, seed=seed) for seed in (1, 2))
    assert one != other
    assert one == simulate(Costs(measured), 4, SMALL, seed=1)


def test_real_workers_were_counted_about_as_they_are_simulated(simulated: Simulation) -> None:
    assert {each.workers for each in simulated.compared} == {1, 2, 4}
    for each in simulated.compared:
        for counted, made in (each.commands, each.statements):
            assert made == pytest.approx(counted, rel=0.2), each


def of(outcomes: list[Outcome], count: int, *, before: bool) -> Outcome:
    return next(each for each in outcomes if (each.workers, each.before) == (count, before))


def test_what_was_mended_grows_no_faster_than_the_workers(simulated: Simulation) -> None:
    outcomes = simulated.outcomes
    for where, cause in (("postgres", "processes watched"), ("redis", "cancellations")):
        few, many = (getattr(of(outcomes, count, before=False), where)[cause] for count in (100, 1000))
        assert many < 12 * few
        few, many = (getattr(of(outcomes, count, before=True), where)[cause] for count in (100, 1000))
        assert many > 50 * few
    assert of(outcomes, 1000, before=False).takeover_postgres < 1.0


def test_runs_of_a_killed_worker_are_settled_by_a_few_or_when_their_leases_are_over(
    measured: Measurement,
) -> None:
    for count in (4, 40):
        outcome = simulate(Costs(measured), count, SMALL)
        assert outcome.takeover_seconds <= fleet._SETTINGS.lease * 1.35
        everybody = simulate(Costs(measured), count, SMALL, BEFORE)
        assert everybody.takeover_postgres >= outcome.takeover_postgres * (count - 1) / 3 * 0.9


def test_workers_that_waited_together_do_not_stay_in_step(measured: Measurement) -> None:
    before, now = (simulate(Costs(measured), 20, SMALL, rules) for rules in (BEFORE, NOW))
    assert now.postgres_herd < before.postgres_herd / 1.5
    assert now.redis_herd < before.redis_herd / 1.5


def test_a_server_does_one_thing_after_the_other() -> None:
    one, two = fleet.Server(1), fleet.Server(2)
    assert [one.do(1.0, "a", 500_000) for _ in range(3)] == [1.5, 2.0, 2.5]
    assert [two.do(1.0, "a", 500_000) for _ in range(3)] == [1.5, 1.5, 2.0]
    one.out = 5.0, 7.0
    assert one.do(6.0, "a", 500_000) == 7.5


def test_costs_grow_in_a_line(measured: Measurement) -> None:
    of_size = {"1": Spent(0, 10, 0, 1, 0, 0, 0), "11": Spent(0, 110, 0, 1, 0, 0, 0)}
    costs = Costs(msgspec.structs.replace(measured, growth={"slots": of_size}))
    assert [round(costs.of("slots", size).redis, 6) for size in (1, 6, 11, 101)] == [10, 60, 110, 1010]


def test_the_commands_of_the_page_can_be_given() -> None:
    """The commands take minutes, so this test only parses them."""
    commands = [
        shlex.split(command, comments=True)
        for block in blocks_of("docs/capacity.md")
        if block.heading == "What each thing costs"
        for command in commands_of(block)
    ]
    modules = {f"tests.benchmarks.{each.__name__.rpartition('.')[2]}": each for each in (bearing, fleet)}
    for command in commands[:2]:
        assert modules.pop(command[2]).arguments().parse_args(command[3:]).write
    assert commands[2:] == [["make", "docs"]]
    assert not modules
