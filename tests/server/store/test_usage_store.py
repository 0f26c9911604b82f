"""What every store does with the sums of what keys spent (laws S7, S10): one suite for all of them."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import asdict
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from openresponses_server.store import usage as bounds
from openresponses_server.store.base import ResponseStore, StoreError
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.usage import (
    MOST,
    MOST_COST,
    NAMES,
    OTHERS,
    AgentCounts,
    Counts,
    DayUsage,
    UsageRows,
)
from tests.support.stores import Place

DAY, NEXT = "2026-01-31", "2026-02-01"
ON_DAY, ON_NEXT = 1_769_860_800.0, 1_769_947_200.0  # noon of each


def spent(owner: str = "k", day: str = DAY, *models: str, requests: int = 1, tokens: int = 10) -> UsageRows:
    return UsageRows([DayUsage(owner, day, model, counts(requests, tokens)) for model in models or ("m",)])


def counts(requests: int = 1, tokens: int = 10) -> Counts:
    return Counts(requests, 0, 0, tokens, 0, 0, 0, tokens)


def used(agent: str, at: float, owner: str = "k", **fields: Any) -> UsageRows:
    return UsageRows([], [AgentCounts(owner, agent, used_at=at, counts=counts(), **fields)])


def requests(found: UsageRows) -> dict[tuple[str, str], int]:
    return {(row.day, row.model): row.counts.requests for row in found.days}


async def test_sums_of_all_writers_are_added_up_by_day_and_model(store: ResponseStore) -> None:
    every = Counts(*range(1, len(NAMES) + 1))
    await store.usage.add_usage("one", 1, UsageRows([DayUsage("k", DAY, "m", every)]))
    await store.usage.add_usage("two", 1, spent("k", DAY, "m", "n", requests=4, tokens=7))
    await store.usage.add_usage("one", 2, spent("k", NEXT, "m"))
    usage = await store.usage.usage_of("k")
    assert requests(usage) == {(DAY, "m"): 5, (DAY, "n"): 4, (NEXT, "m"): 1}
    (row,) = [row for row in usage.days if (row.day, row.model) == (DAY, "m")]
    added = counts(4, 7)
    assert asdict(row.counts) == {name: getattr(every, name) + getattr(added, name) for name in NAMES}
    assert requests(await store.usage.usage_of("k", NEXT)) == {(NEXT, "m"): 1}
    assert requests(await store.usage.usage_of("k", "2026-02-02")) == {}


async def test_a_batch_that_is_added_again_counts_once(store: ResponseStore) -> None:
    for number in (1, 1, 2, 2, 1):
        await store.usage.add_usage("one", number, spent())
    assert requests(await store.usage.usage_of("k")) == {(DAY, "m"): 2}


async def test_s7_an_owner_has_its_own_and_nothing_else(store: ResponseStore) -> None:
    batch = UsageRows([*spent("k").days, *spent("l").days], used("a", 1.0, "l").agents)
    await store.usage.add_usage("one", 1, batch)
    for owner, agents in (("k", []), ("l", ["a"]), ("", []), ("%", [])):
        usage = await store.usage.usage_of(owner)
        assert {row.owner for row in usage.days} == ({owner} if owner in ("k", "l") else set())
        assert [agent.agent for agent in usage.agents] == agents


async def test_the_latest_facts_of_an_agent_are_those_of_its_latest_request(store: ResponseStore) -> None:
    later = used("a", 9.0, model="new", last_input_tokens=5, max_input_tokens=50)
    earlier = used("a", 3.0, model="old", last_input_tokens=7, max_input_tokens=70)
    await store.usage.add_usage("one", 1, later)
    await store.usage.add_usage("two", 1, earlier)
    (agent,) = (await store.usage.usage_of("k")).agents
    assert asdict(agent) == asdict(later.agents[0]) | {"counts": counts(2, 20)}


async def test_usage_is_forgotten_by_day_and_agents_by_use(store: ResponseStore) -> None:
    batch = UsageRows([*spent("k", DAY).days, *spent("k", NEXT).days], used("gone", ON_DAY).agents)
    batch.agents += used("there", ON_NEXT).agents
    await store.usage.add_usage("one", 1, batch)
    await store.usage.add_usage("two", 1, spent("l", DAY))
    await store.usage.remove_usage(ON_NEXT)
    usage = await store.usage.usage_of("k")
    assert requests(usage) == {(NEXT, "m"): 1}
    assert [agent.agent for agent in usage.agents] == ["there"]
    assert not await store.usage.usage_of("l")


async def test_s10_models_days_and_agents_are_bounded(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_MODELS", 3)
    monkeypatch.setattr(bounds, "MAX_ROWS", 5)
    monkeypatch.setattr(bounds, "MAX_AGENTS", 2)
    await store.usage.add_usage("one", 1, spent("k", DAY, "a", "b"))
    await store.usage.add_usage("one", 2, spent("k", DAY, "c", "d", "e", "a", OTHERS))
    first = {(DAY, "a"): 2, (DAY, "b"): 1, (DAY, "c"): 1, (DAY, OTHERS): 3}
    assert requests(await store.usage.usage_of("k")) == first
    await store.usage.add_usage("one", 3, spent("k", NEXT, "a"))
    assert requests(await store.usage.usage_of("k")) == first | {(NEXT, "a"): 1}
    await store.usage.add_usage("one", 4, spent("k", NEXT, "b", "c"))
    assert requests(await store.usage.usage_of("k")) == {(NEXT, model): 1 for model in "abc"}
    for number, agent in enumerate("pqr"):
        await store.usage.add_usage("one", 5 + number, used(agent, float(number)))
    assert [agent.agent for agent in (await store.usage.usage_of("k")).agents] == ["q", "r"]


async def test_s10_a_sum_never_leaves_its_range(store: ResponseStore) -> None:
    """An upstream that reports what can't be does not keep everybody's sums from being stored."""
    for number in range(3):
        await store.usage.add_usage("one", number, spent(tokens=MOST - number))
    (row,) = (await store.usage.usage_of("k")).days
    assert (row.counts.requests, row.counts.input_tokens) == (3, MOST)
    dear = UsageRows([DayUsage("k", DAY, "m", Counts(1, priced=1, cost=MOST_COST - 1))])
    for number in range(3, 6):
        await store.usage.add_usage("one", number, dear)
    (row,) = (await store.usage.usage_of("k")).days
    assert (row.counts.priced, row.counts.cost) == (3, MOST_COST)


async def test_costs_are_added_exactly(store: ResponseStore) -> None:
    for number, cost in enumerate((10**17 + 1, 2, 0)):  # a float would round the first one
        rows = UsageRows([DayUsage("k", DAY, "m", Counts(1, priced=1, cost=cost))])
        await store.usage.add_usage("one", number, rows)
    (row,) = (await store.usage.usage_of("k")).days
    assert (row.counts.requests, row.counts.priced, row.counts.cost) == (3, 3, 10**17 + 3)


async def test_sums_are_there_for_others_and_after_a_restart(shared_place: Place) -> None:
    stores = [shared_place.open() for _ in range(4)]
    batches = [
        store.usage.add_usage(f"writer {each} {number}", 1, spent("k", DAY, *("abc" if each % 2 else "cba")))
        for number in range(5)
        for each, store in enumerate(stores)
    ]
    await asyncio.gather(*batches)
    for store in stores:
        await store.close()
    assert requests(await shared_place.open().usage.usage_of("k")) == {(DAY, model): 20 for model in "abc"}


async def test_a_batch_is_added_whole_or_not_at_all(shared_place: Place) -> None:
    store = shared_place.open()
    await store.usage.add_usage("one", 1, spent())
    engine = create_engine(database_url(shared_place.url), poolclass=NullPool)
    bad = UsageRows(spent().days, [AgentCounts("k", "a", counts=Counts(requests=None))])  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        await store.usage.add_usage("one", 2, bad)
    await store.usage.add_usage("one", 2, spent())
    assert requests(await store.usage.usage_of("k")) == {(DAY, "m"): 2}
    with engine.connect() as connection:
        assert connection.execute(text("SELECT writer, number FROM usage_writers")).all() == [("one", 2)]
