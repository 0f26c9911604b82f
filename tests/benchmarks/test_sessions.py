"""The benchmark of sessions runs, reports what it could not measure, and leaves nothing behind."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress

import psycopg
import pytest
import redis

from tests.benchmarks import places, sessions

TINY = sessions.Effort(rounds=1, times=1, tokens=16, turns=(1, 2), sizes=(1,))


class Absent(AbstractContextManager[str]):
    """Takes the place of functions in `tests.support.services` on a machine without the services."""

    def __enter__(self) -> str:
        pytest.skip("nobody is at home")

    def __exit__(self, *_: object) -> None:
        raise AssertionError("was never entered")


def test_every_store_has_its_rows_in_every_table() -> None:
    tables = sessions.run(TINY).split("\n\n")
    sent = [text for text in tables if "NOT measured" in text]
    rows = ["memory", "SQLite", *(["PostgreSQL"] if not any("PostgreSQL" in text for text in sent) else [])]
    for text in tables[len(sent) :]:
        assert all(f"\n{row}" in text for row in ("plain", *rows)), text
    assert len(tables) == 4 + len(sent)


def test_a_service_that_is_absent_is_reported_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "postgres_database", Absent)
    monkeypatch.setattr(places, "redis_server", Absent)
    text = sessions.run(TINY)
    assert "PostgreSQL is NOT measured: nobody is at home" in text
    assert "Redis is NOT measured: nobody is at home" in text
    assert "\nSQLite" in text
    assert "\nPostgreSQL" not in text.replace("\nPostgreSQL is NOT", "")


def test_what_was_made_is_gone_after_an_interrupt() -> None:
    services = interrupted()
    if services.redis is None or "PostgreSQL" not in services.stores:
        pytest.skip("needs PostgreSQL and Redis")
    with redis.Redis.from_url(services.redis) as client:
        assert not list(client.scan_iter(f"{services.prefix}*"))
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(services.stores["PostgreSQL"].replace("+psycopg", ""))


def interrupted() -> places.Services:
    """The services of a run that was interrupted after it had written a key."""
    with suppress(KeyboardInterrupt), places.services() as services:
        if services.redis is not None:
            with redis.Redis.from_url(services.redis) as client:
                client.set(f"{services.prefix}:log:resp_1", "frames")
        raise KeyboardInterrupt
    return services
