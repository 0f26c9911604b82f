"""Records to store, and places to store them in."""

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from sqlalchemy import create_engine
from sqlalchemy import text as sql

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.input_items import InputItem, MessageParam
from openresponses_bridge.protocol.response import Response
from openresponses_server.store.base import ResponseStore, StoredResponse
from openresponses_server.store.frames import Frames
from openresponses_server.store.sql.sqlite_file import file_in_order
from openresponses_server.store.stores import open_store, sqlite_later


class Place:
    """A place where stores are opened on the same data, at the same time or one after another."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._stores = AsyncExitStack()

    def open(self) -> ResponseStore:
        store = open_store(self.url)
        self._stores.push_async_callback(store.close)
        return store

    async def close(self) -> None:
        await self._stores.aclose()


class MemoryPlace(Place):
    """Returns the same store each time, because no other store can see its data."""

    def __init__(self) -> None:
        super().__init__("memory:")
        self._only = open_store(self.url, limit=10_000)

    def open(self) -> ResponseStore:
        return self._only


class LaterPlace(Place):
    """A file whose stores are opened by their first calls."""

    def open(self) -> ResponseStore:
        path = file_in_order(self.url)
        assert path is not None
        store = sqlite_later(path, partial(open_store, self.url), pause=0.0)
        self._stores.push_async_callback(store.close)
        return store


_DATA = (
    "responses",
    "conversations",
    "usage_days",
    "usage_agents",
    "usage_writers",
    "used_once",
    "api_keys",
    "api_key_changes",
    "api_key_history",
)
_EMPTY = f"""DO $$ BEGIN
    IF pg_database_size(current_database()) > 30000000 THEN TRUNCATE {", ".join(_DATA)} CASCADE;
    ELSE {" ".join(f"DELETE FROM {table};" for table in _DATA)}
    END IF;
END $$"""


each_kind = pytest.mark.parametrize("place", ["memory", "sqlite", "postgres"], indirect=True)
"""For a test that does much at each kind of store, without the file that is opened by its first call: after
that it is the same store."""


def emptied(url: str) -> str:
    """Delete the data of the previous test from the database, and return its URL. Truncating makes fifty
    files anew, which takes PostgreSQL ten times as long as deleting a few rows; it is for what deleted rows
    leave behind."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute(_EMPTY)
    return url


_FAILS = {
    "sqlite": "CREATE TRIGGER fails BEFORE INSERT ON {} BEGIN SELECT RAISE(ABORT, 'no'); END",
    "postgresql": "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{1}'; END $$;"
    " CREATE TRIGGER fails BEFORE INSERT ON {0} FOR EACH ROW EXECUTE FUNCTION fails()",
}
_WORKS = {"sqlite": "DROP TRIGGER fails", "postgresql": "DROP FUNCTION fails CASCADE"}


@contextmanager
def failing_table(place: Place, table: str, sqlstate: str = "23514") -> Iterator[None]:
    """Make every insertion into this table of the database fail, in PostgreSQL with that SQLSTATE."""
    engine = create_engine(place.url)
    with engine.begin() as connection:
        connection.execute(sql(_FAILS[engine.dialect.name].format(table, sqlstate)))
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(sql(_WORKS[engine.dialect.name]))
        engine.dispose()


def streamed(text: str = "Hello", deltas: int = 1, response_id: str | None = None) -> tuple[Response, Frames]:
    """A completed response and the frames of its stream."""
    machine = ResponseStreamStateMachine("m", None, response_id=response_id)
    events = machine.start()
    for _ in range(deltas):
        events += machine.text(text)
    events += machine.finish()
    return machine.snapshot, Frames(0, len(events) - 1, encode_sse(events))


def record(
    response_id: str, previous: str | None = None, text: str = "Hello", **fields: Any
) -> StoredResponse:
    """A turn with two input items."""
    response = replace(streamed(text)[0], id=response_id, previous_response_id=previous)
    fields.setdefault("input", messages(f"to {response_id}", "and more"))
    return StoredResponse(replace(response, status=fields.pop("status", response.status)), **fields)


def messages(*texts: str) -> list[InputItem]:
    return [MessageParam("user", text) for text in texts]


def frame(number: int, text: str = "x") -> bytes:
    return b'event: e\ndata: {"n":%d,"t":"%b"}\n\n' % (number, text.encode())


def frames(first: int, last: int, text: str = "x") -> Frames:
    """Frames whose content is their number."""
    return Frames(first, last, b"".join(frame(number, text) for number in range(first, last + 1)))
