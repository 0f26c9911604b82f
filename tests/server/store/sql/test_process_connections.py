"""A process of another machine that has stopped is known by its connection to PostgreSQL, when it does not
come back and renews nothing."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import TextClause, make_url

from openresponses_server.store.base import Lease, ResponseStore
from openresponses_server.store.sql import postgres
from openresponses_server.store.sql.postgres import NAME, ProcessConnections, _one_connection
from openresponses_server.store.stores import open_store
from tests.support.stores import emptied, record
from tests.support.waiting import until

TIMEOUT = 0.2
PATIENT = 1.0  # on a busy machine a renewal takes longer than the other


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_SHORTEST", TIMEOUT)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[ResponseStore]:
    opened = open_store(emptied(postgres_url))
    yield opened
    await opened.close()


async def appeared(url: str, process: str, timeout: float = TIMEOUT) -> ProcessConnections:
    connections = ProcessConnections(lambda name: _one_connection(make_url(url), name), process, timeout)
    await connections.appear()
    return connections


@pytest.fixture
async def two(postgres_url: str) -> AsyncIterator[tuple[ProcessConnections, ProcessConnections]]:
    """One that watches and one that is watched, which have seen each other."""
    pair = await appeared(postgres_url, "watching"), await appeared(postgres_url, "other")
    assert await pair[0].departed() == set()
    yield pair
    for each in pair:
        await each.leave()


def cut(url: str, process: str) -> None:
    """End the connection, from outside."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        named = (
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = %s"
        )
        assert admin.execute(named, [NAME + process]).fetchone() == (1,)


async def has_departed(watching: ProcessConnections) -> None:
    """Return once the other is known to have stopped."""
    while await watching.departed() != {"other"}:
        await asyncio.sleep(TIMEOUT / 10)


async def stays(watching: ProcessConnections, timeout: float = TIMEOUT) -> None:
    """Hold the other to be there for several times what it takes to find out that one has stopped."""
    for _ in range(50):
        assert await watching.departed() == set()
        await asyncio.sleep(timeout / 10)


Two = tuple[ProcessConnections, ProcessConnections]


async def test_process_whose_connection_ends_has_departed_after_a_while(postgres_url: str, two: Two) -> None:
    watching, _ = two
    cut(postgres_url, "other")
    assert await watching.departed() == set()
    await has_departed(watching)
    await watching.remove("other")
    await stays(watching)


async def test_process_that_is_connected_is_there(two: Two) -> None:
    await stays(two[0])


async def test_process_that_comes_back_has_not_departed(postgres_url: str, two: Two) -> None:
    watching, other = two
    cut(postgres_url, "other")
    assert await watching.departed() == set()
    assert await other.departed() == set()  # here it finds out
    assert await other.departed() == set()
    await stays(watching)


async def test_process_that_renews_its_leases_has_not_departed(
    store: ResponseStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have no connection to be known by: there is a limit to them."""
    monkeypatch.setattr(postgres, "_SHORTEST", PATIENT)
    watching = await appeared(postgres_url, "watching", PATIENT)
    other = await appeared(postgres_url, "other", PATIENT)
    assert await watching.departed() == set()
    await store.put(record("r", lease=Lease("other-1", 1.0)))

    async def renew() -> None:
        for number in range(1000):
            await store.renew({"r": "other-1"}, 2.0 + number)
            await asyncio.sleep(TIMEOUT / 4)

    renewing = asyncio.create_task(renew())
    cut(postgres_url, "other")
    await stays(watching, PATIENT)
    renewing.cancel()
    await has_departed(watching)
    for each in (watching, other):
        await each.leave()


async def test_outage_makes_nobody_departed(postgres_url: str, two: Two) -> None:
    """All connections end in it, and who is not seen again afterwards may be slower to come back."""
    watching, _ = two
    for each in ("watching", "other"):
        cut(postgres_url, each)
    await stays(watching)


async def test_process_that_was_never_seen_is_unknown(postgres_url: str, store: ResponseStore) -> None:
    await store.put(record("r", lease=Lease("other-1", 1.0)))
    watching = await appeared(postgres_url, "watching")
    await stays(watching)
    await watching.leave()


class Fleet:
    """Processes that see these names; those that are `watching`. Their clock is `now`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: set[str], watching: set[str]) -> None:
        self.names = names
        self.looks = 0
        self.now = 0.0

        async def ask(_process: ProcessConnections, statement: TextClause) -> list[tuple[str]]:
            if statement is not postgres._NAMES:
                return []
            self.looks += 1
            return [(f"{NAME}{name}",) for name in self.names]

        async def no_lease(_process: ProcessConnections, _name: str) -> None:
            return None

        monkeypatch.setattr(postgres, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(ProcessConnections, "_ask", ask)
        monkeypatch.setattr(ProcessConnections, "_last_lease", no_lease)
        url = make_url("postgresql+psycopg://root@127.0.0.1:1/none")
        self.processes = {
            name: ProcessConnections(lambda named: _one_connection(url, named), name, TIMEOUT)
            for name in watching
        }


@pytest.mark.parametrize("slow", [0, 1])
async def test_the_time_that_an_answer_takes_is_not_time_without_a_renewal(
    monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    """PostgreSQL or the watching process may have been frozen: the other had no time to renew its leases."""
    fleet = Fleet(monkeypatch, {"me", "other"}, {"me"})
    (watching,) = fleet.processes.values()
    assert await watching.departed() == set()
    fleet.names.remove("other")
    count = 0

    async def last_lease(_process: ProcessConnections, _name: str) -> float:
        nonlocal count
        count += 1
        if count == slow + 1:
            fleet.now += 2 * TIMEOUT
        return float(min(count, slow + 1))  # renewed before each but the last

    monkeypatch.setattr(ProcessConnections, "_last_lease", last_lease)
    for _ in range(slow):
        assert await watching.departed() == set()
        fleet.now += 2 * TIMEOUT
    assert await watching.departed() == set()
    assert await watching.departed() == set()
    fleet.now += 2 * TIMEOUT
    assert await watching.departed() == {"other"}


@pytest.mark.parametrize("stopped", ["p0", "p4", "p9"])
async def test_few_of_many_check_for_one_that_has_stopped(
    monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    names = {f"p{number}" for number in range(10)}
    fleet = Fleet(monkeypatch, set(names), names)
    for each in fleet.processes.values():
        assert await each.departed() == set()
    fleet.names.remove(stopped)
    del fleet.processes[stopped]
    after = int(stopped[1:]) + 1
    successors = {f"p{number % 10}" for number in range(after, after + postgres.SUCCESSORS)}
    for expected in (set(), successors, successors):  # missed, then gone for longer than the timeout
        observers = {name for name, each in fleet.processes.items() if await each.departed() == {stopped}}
        assert observers == expected
        fleet.now += 2 * TIMEOUT


async def test_a_process_that_others_have_come_before_does_not_check_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch, {"a", "b", "c", "d"}, {"d"})
    (watching,) = fleet.processes.values()
    await watching.departed()
    fleet.names.remove("a")
    await watching.departed()
    assert set(watching._missed) == {"a"}
    fleet.names.add("ab")
    await watching.departed()
    assert watching._missed == {}
    fleet.now += 2 * TIMEOUT
    assert await watching.departed() == set()


async def test_many_processes_look_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, looks in ((postgres.LOOKS, 3), (1000 * postgres.LOOKS, 1)):
        fleet = Fleet(monkeypatch, {"me", *map(str, range(1, count))}, {"me"})
        for _ in range(3):
            await fleet.processes["me"].departed()
        assert fleet.looks == looks


async def test_one_of_many_finds_between_its_looks_that_its_connection_was_lost(
    monkeypatch: pytest.MonkeyPatch, postgres_url: str, two: Two
) -> None:
    monkeypatch.setattr(postgres, "LOOKS", 0.001)
    watching, _ = two
    assert await watching.departed() == set()
    cut(postgres_url, "watching")
    for _ in range(2):
        assert await watching.departed() == set()
    monkeypatch.undo()
    other = await appeared(postgres_url, "third")
    assert "watching" in (await other._looked() or set())
    await other.leave()


async def test_without_a_server_nothing_is_known() -> None:
    watching = await appeared("postgresql+psycopg://root@127.0.0.1:1/none", "watching")
    assert await watching.departed() == set()
    await watching.leave()


async def test_connection_is_given_up(postgres_url: str, two: Two) -> None:
    _, other = two
    await other.leave()
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as admin:
        count = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = %s"
        )

        def gone() -> bool:
            return admin.execute(count, [f"{NAME}other"]).fetchone() == (0,)

        await until(gone)
