"""`db upgrade`, `db sweep`, `db export`."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from server.cli import main
from server.sessions.stores import open_store
from tests.support.stores import frames, record


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["db", *arguments], catch_exceptions=False)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.sqlite3"


def filled(url: str) -> None:
    async def fill() -> None:
        store = open_store(url)
        await store.put(record("old", expires_at=1.0, owner="k"), frames(0, 1))
        await store.put(record("new", "old", expires_at=4e9, owner="k"))
        await store.close()

    asyncio.run(fill())


def test_upgrade_tells_the_revisions(url: str) -> None:
    assert run("upgrade", "--store", url).output == "at revision 0002 (before: empty)\n"
    assert run("upgrade", "--store", url).output == "at revision 0002\n"


def test_sweep_deletes_what_expired(url: str) -> None:
    filled(url)
    assert run("sweep", "--store", url).output == "1 responses deleted\n"
    assert run("sweep", "--store", url).output == "0 responses deleted\n"


def test_export_writes_json_lines(url: str) -> None:
    filled(url)
    lines = [json.loads(line) for line in run("export", "--store", url).output.splitlines()]
    assert [(line["id"], line["previous_response_id"]) for line in lines] == [("new", "old"), ("old", None)]
    assert lines[1]["frames"] == frames(0, 1).data.decode()


def test_store_is_the_default_file_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("OPENRESPONSES_BRIDGE_STORE", raising=False)
    assert run("export").output == ""
    if sys.platform == "linux":
        assert (tmp_path / "openresponses-bridge" / "sessions.sqlite3").is_file()


@pytest.mark.parametrize("name", ["upgrade", "sweep", "export"])
def test_what_can_not_be_done_is_told(tmp_path: Path, name: str) -> None:
    wrong = run(name, "--store", "mysql://me:hunter2@host/x")
    assert wrong.exit_code == 2
    assert "store mysql" in wrong.output
    (tmp_path / "text").write_text("no database" * 100)
    broken = run(name, "--store", f"sqlite:///{tmp_path}/text")
    assert broken.exit_code == 1
    assert broken.output == "Error: The session store's file is no SQLite database.\n"


def test_sqlalchemy_is_loaded_only_by_who_needs_it() -> None:
    program = (
        "import sys, server.cli, server.sessions.stores, server.event_logs.logs, server.commands.db;"
        "print([name for name in ('sqlalchemy', 'alembic', 'psycopg', 'redis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
