"""Every place that responses can be stored in."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from openresponses_server.store.base import ResponseStore
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.migrate import upgrade
from tests.support.services import postgres_database
from tests.support.stores import LaterPlace, MemoryPlace, Place, emptied


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL database of this test process, with our tables."""
    with postgres_database() as url:
        upgrade(make_url(url))
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite file with our tables."""
    path = tmp_path_factory.mktemp("sqlite") / "sessions.sqlite3"
    upgrade(database_url(f"sqlite:///{path}"))
    return path


def make_place(kind: str, request: pytest.FixtureRequest) -> Place:
    if kind == "memory":
        return MemoryPlace()
    if kind == "postgres":
        return Place(emptied(request.getfixturevalue("postgres_url")))
    path = request.getfixturevalue("tmp_path") / "sessions.sqlite3"
    shutil.copy(request.getfixturevalue("sqlite_template"), path)
    return (LaterPlace if kind == "sqlite later" else Place)(f"sqlite:///{path}")


@pytest.fixture(params=["memory", "sqlite", "sqlite later", "postgres"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """Each kind of store."""
    instance = make_place(request.param, request)
    yield instance
    await instance.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def shared_place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """Each kind that outlives a process and that several may use."""
    instance = make_place(request.param, request)
    yield instance
    await instance.close()


@pytest.fixture
def store(place: Place) -> ResponseStore:
    return place.open()
