"""A process that is stopped in the middle of a transaction does not block the others for long."""

import asyncio

import pytest
from sqlalchemy import Connection, make_url, update
from sqlalchemy.util import await_only

from openresponses_server.store.base import Lease
from openresponses_server.store.sql import postgres
from openresponses_server.store.sql.postgres import Postgres
from openresponses_server.store.sql.tables import responses
from tests.support.stores import Place, emptied, record

FAR = 4e9


@pytest.mark.anyio
@pytest.mark.parametrize("claims", ["orphans", "one"])
async def test_s1_run_of_a_process_that_stopped_while_it_wrote_is_claimed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, claims: str
) -> None:
    monkeypatch.setattr(postgres, "IDLE_SECONDS", 0.2)
    place = Place(emptied(postgres_url))
    other = place.open()
    await other.put(record("r", lease=Lease("w", 10.0)))
    stopped, written, thawed = Postgres(make_url(postgres_url)), asyncio.Event(), asyncio.Event()
    attempts = 0

    def renew(connection: Connection) -> None:
        nonlocal attempts
        attempts += 1
        condition = responses.c.lease_worker == "w"
        connection.execute(update(responses).where(condition).values(lease_until=FAR))
        if attempts == 1:
            written.set()
            await_only(thawed.wait())

    renewing = asyncio.create_task(stopped.write(renew))
    await written.wait()
    lease = Lease("settler", FAR)
    if claims == "one":
        assert await other.acquire("r", lease, 20.0) is not None
    else:
        while not await other.claim_orphans(lease, 20.0):
            await asyncio.sleep(0.01)
    thawed.set()
    await renewing
    assert attempts == 2  # the first was rolled back
    claim = await other.acquire("r", Lease("another", FAR), 20.0)
    assert claim is None  # the settler still holds it
    await stopped.close()
    await place.close()
