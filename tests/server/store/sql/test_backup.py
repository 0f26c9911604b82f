"""A copy of a SQLite file that is being written to is a database of one moment."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from openresponses_server.settings import SettingsError
from openresponses_server.store.base import StoreError
from openresponses_server.store.sql import transfer
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.transfer import back_up
from openresponses_server.store.stores import open_store
from tests.support.stores import frames, record


async def test_servers_write_while_a_copy_is_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite3"
    store = open_store(url)
    base = record("r", input=[])
    for number in range(40):
        put = replace(base, response=replace(base.response, id=f"r{number}"))
        await store.put(put, frames(0, 3, "x" * 200_000))
    target = tmp_path / "copy.sqlite3"
    copying = asyncio.create_task(asyncio.to_thread(back_up, database_url(url), target))
    written = 0
    while not copying.done():
        # the second of each pair stands on the first: a copy of one moment never has it alone
        await store.put(record(f"first{written}"))
        await store.put(record(f"second{written}", f"first{written}"))
        written += 1
    assert await copying == target.stat().st_size
    assert written
    await store.put(record("later"))
    copy = open_store(f"sqlite:///{target}")
    names = {name.decode() async for line in copy.export() if (name := line.split(b'"')[3])}
    assert {f"r{number}" for number in range(40)} <= names
    assert "later" not in names
    assert all(f"first{each[6:]}" in names for each in names if each.startswith("second"))
    for opened in (store, copy):
        await opened.close()


async def test_what_was_deleted_is_not_in_the_copy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite3"
    store = open_store(url)
    await store.put(record("kept"))
    await store.put(record("gone", text="a secret of the user"), frames(0, 1))
    await store.delete("gone")
    await store.close()
    back_up(database_url(url), tmp_path / "copy.sqlite3")
    assert b"a secret of the user" not in (tmp_path / "copy.sqlite3").read_bytes()


async def test_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = database_url(f"sqlite:///{tmp_path}/s.sqlite3")
    store = open_store(f"sqlite:///{tmp_path}/s.sqlite3")
    await store.put(record("r"))
    await store.close()
    target = tmp_path / "copy.sqlite3"
    with pytest.raises(StoreError, match="can't be made"):
        back_up(url, tmp_path / "no" / "folder")
    with pytest.raises(StoreError):
        back_up(database_url(f"sqlite:///{tmp_path}/no/s.sqlite3"), target)

    def comes_meanwhile(source: Path, unfinished: Path) -> None:
        target.write_text("of another")

    with monkeypatch.context() as patched:
        patched.setattr(transfer, "_copy", comes_meanwhile)
        with pytest.raises(StoreError):
            back_up(url, target)
    assert target.read_text() == "of another"
    with pytest.raises(SettingsError, match="already exists"):
        back_up(url, target)
    assert not list(tmp_path.glob("*.unfinished"))


async def test_copy_of_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite3"
    store = open_store(f"sqlite:///{path}")
    base = record("r", input=[])
    for number in range(50):
        one = replace(base, response=replace(base.response, id=f"r{number}"))
        await store.put(one, frames(0, 3, "x" * 5000))
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(path.read_bytes())
    for page in range(8, len(data) // 4096, 3):
        data[page * 4096 : page * 4096 + 400] = b"\xff" * 400
    path.write_bytes(data)
    with pytest.raises(StoreError):
        back_up(database_url(f"sqlite:///{path}"), tmp_path / "copy.sqlite3")
    assert not (tmp_path / "copy.sqlite3").exists()
