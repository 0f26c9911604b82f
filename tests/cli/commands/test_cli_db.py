"""`db upgrade`, `sweep`, `export`, `import` and `backup`."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import create_engine, inspect, make_url

from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_cli.commands.cli import main
from openresponses_server.store.base import ListedItem, StoredConversation
from openresponses_server.store.sql.sqlite_file import REVISION
from openresponses_server.store.stores import open_store
from tests.support.services import postgres_database
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


def test_upgrade_reports_the_revisions(url: str) -> None:
    result = run("upgrade", "--create", "--store", url)
    assert result.output == f"at revision {REVISION} (before: empty)\n"
    assert run("upgrade", "--store", url).output == f"at revision {REVISION}\n"


def test_sweep_deletes_what_expired(url: str) -> None:
    filled(url)
    assert run("sweep", "--store", url).output == "1 response deleted\n"
    assert run("sweep", "--store", url).output == "0 responses deleted\n"


def test_export_writes_json_lines(url: str) -> None:
    filled(url)
    lines = [json.loads(line) for line in run("export", "--store", url).output.splitlines()]
    assert [(line["id"], line["previous_response_id"]) for line in lines] == [("new", "old"), ("old", None)]
    assert lines[1]["frames"] == frames(0, 1).data.decode()


def test_store_is_the_default_file_unless_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("OPENRESPONSES_BRIDGE_STORE", raising=False)
    assert run("upgrade").exit_code == 0
    assert run("export").output == ""
    if sys.platform == "linux":
        assert (tmp_path / "openresponses-bridge" / "sessions.sqlite3").is_file()


@pytest.mark.parametrize("name", ["upgrade", "sweep", "export", "backup copy"])
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, name: str) -> None:
    mistyped = tmp_path / "folder" / "sesions.sqlite3"
    missing = run(*name.split(), "--store", f"sqlite:///{mistyped}")
    assert missing.exit_code == 2
    assert f"no session store was found at {mistyped}" in missing.output
    assert not mistyped.parent.exists()
    if name == "upgrade":
        assert "--create makes one" in missing.output
        return
    with closing(sqlite3.connect(tmp_path / "other.sqlite3")) as other:
        other.execute("CREATE TABLE notes (id TEXT)")
    before = (tmp_path / "other.sqlite3").read_bytes()
    assert run(*name.split(), "--store", f"sqlite:///{tmp_path}/other.sqlite3").exit_code == 2
    assert (tmp_path / "other.sqlite3").read_bytes() == before


@pytest.mark.parametrize("name", ["sweep", "export", "backup copy"])
def test_a_postgres_database_without_our_tables_is_left_alone(name: str) -> None:
    with postgres_database() as url:
        address = url.replace("@", ":hunter2@") + "?options=-csearch_path%3Dpublic"
        missing = run(*name.split(), "--store", address)
        assert missing.exit_code == 2
        assert "no session store was found at postgresql://" in missing.output
        assert "hunter2" not in missing.output
        engine = create_engine(url)
        assert inspect(engine).get_table_names() == []
        engine.dispose()


@pytest.mark.parametrize("name", ["upgrade", "sweep", "export", "backup copy", "import -"])
@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("memory://", "store: 'memory' is not one of"),
        ("", "not a URL"),
        ("postgresql+psycopg://me:hunter2@127.0.0.1/x?bogus=1", "'bogus' is not a connection option"),
    ],
)
def test_every_command_refuses_what_is_no_database(name: str, store: str, message: str) -> None:
    refused = run(*name.split(), "--store", store)
    assert refused.exit_code == 2
    assert message in refused.output
    assert "hunter2" not in refused.output


@pytest.mark.parametrize("name", ["upgrade", "sweep", "export", "backup copy", "import -"])
def test_what_postgres_says_is_reported_without_the_password(name: str) -> None:
    with postgres_database() as url:
        address = make_url(url)
        wrong = {
            f'database "{address.database}_x" does not exist': address.set(database=f"{address.database}_x"),
            'role "nobody_here" does not exist': address.set(username="nobody_here", password="hunter2"),
            "Connection refused": address.set(port=9, password="hunter2"),
        }
        for sent, to in wrong.items():
            refused = run(*name.split(), "--store", to.render_as_string(hide_password=False))
            assert refused.exit_code == 1
            assert sent in refused.output
            assert "hunter2" not in refused.output


def test_tables_of_something_else_are_named(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "foreign.sqlite3")) as foreign:
        foreign.execute("CREATE TABLE responses (id TEXT)")
    refused = run("upgrade", "--store", f"sqlite:///{tmp_path}/foreign.sqlite3")
    assert refused.exit_code == 1
    assert "table `responses`" in refused.output


@pytest.mark.parametrize("name", ["upgrade", "sweep", "export", "backup copy", "import -"])
def test_what_can_not_be_done_is_reported(tmp_path: Path, name: str) -> None:
    wrong = run(*name.split(), "--store", "mysql://me:hunter2@host/x")
    assert wrong.exit_code == 2
    assert "store: 'mysql' is not one of" in wrong.output
    (tmp_path / "text").write_text("no database" * 100)
    broken = run(*name.split(), "--store", f"sqlite:///{tmp_path}/text")
    assert broken.exit_code == 1
    assert broken.output.startswith("Error: The session store's file is not a SQLite database")
    assert broken.output.endswith(f" ({tmp_path}/text)\n")


def test_keys_name_a_store_that_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 100)
    broken = CliRunner().invoke(main, ["keys", "list", "--store", f"sqlite:///{tmp_path}/text"])
    assert broken.exit_code == 1
    assert broken.output.endswith(f" is not a database ({tmp_path}/text)\n")


def test_export_to_a_file_and_import_from_it(url: str, tmp_path: Path) -> None:
    filled(url)
    file = tmp_path / "all.jsonl"
    file.write_text("of yesterday")
    result = run("export", "--store", url, str(file))
    assert (result.exit_code, "--force replaces it" in result.output) == (2, True)
    assert file.read_text() == "of yesterday"
    done = run("export", "--force", "--store", url, str(file))
    assert done.output == f"2 responses, {file.stat().st_size} bytes written to {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == run("export", "--store", url).output
    other = f"sqlite:///{tmp_path}/other.sqlite3"
    done = run("import", "--store", other, str(file))
    assert (done.exit_code, done.output) == (0, "2 responses imported, 0 already present\n")
    again = CliRunner().invoke(main, ["db", "import", "--store", other, "-"], input=file.read_text())
    assert (again.exit_code, again.output) == (0, "0 responses imported, 2 already present\n")
    assert run("export", "--store", other).output == file.read_text()
    assert not list(tmp_path.glob("*.unfinished"))


def test_conversations_are_exported_imported_and_swept(url: str, tmp_path: Path) -> None:
    async def fill() -> None:
        store = open_store(url)
        for name, expires_at in ("conv_old", 1.0), ("conv_new", None):
            conversation = StoredConversation(name, "k", 1.0, expires_at, b"{}")
            await store.conversations.create(conversation, [ListedItem("a", MessageParam("user", "Hi"))])
        await store.close()

    filled(url)
    asyncio.run(fill())
    file, other = tmp_path / "all.jsonl", f"sqlite:///{tmp_path}/other.sqlite3"
    assert run("export", "--store", url, str(file)).output.startswith("2 responses, ")
    done = run("import", "--store", other, str(file)).output
    assert done == "2 responses and 2 conversations imported, 0 already present\n"
    assert run("import", "--store", other, str(file)).output == "0 responses imported, 4 already present\n"
    assert run("sweep", "--store", other).exit_code == 0
    left = run("export", "--store", other).output
    assert ("conv_old" in left, "conv_new" in left) == (False, True)


def test_what_is_not_a_file_is_never_replaced(url: str, tmp_path: Path) -> None:
    filled(url)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for name in ("pipe", "nowhere"):
        refused = run("export", "--force", "--store", url, str(tmp_path / name))
        assert (refused.exit_code, "is not a regular file" in refused.output) == (2, True)
    assert (tmp_path / "pipe").is_fifo()


def test_postgres_is_postgresql() -> None:
    with postgres_database() as url:
        short = make_url(url).set(drivername="postgres").render_as_string(hide_password=False)
        assert run("upgrade", "--store", short).output == f"at revision {REVISION} (before: empty)\n"
        assert run("sweep", "--store", short).output == "0 responses deleted\n"


def test_import_names_bad_lines_and_imports_the_others(url: str, tmp_path: Path) -> None:
    filled(url)
    file = tmp_path / "bad.jsonl"
    lines = run("export", "--store", url).output.splitlines()
    file.write_text("\n".join([lines[0], '{"\x1b[31m": 1}', lines[1]]))
    done = run("import", "--store", f"sqlite:///{tmp_path}/other.sqlite3", str(file))
    assert done.exit_code == 1
    assert done.stdout == "2 responses imported, 0 already present, 1 line refused\n"
    assert done.stderr.startswith("line 2: can't be read: ")
    assert "\x1b" not in done.stderr


def test_import_of_a_file_that_is_not_there_is_2(url: str) -> None:
    missing = run("import", "--store", url, "nowhere.jsonl")
    assert (missing.exit_code, missing.stderr) == (2, "nowhere.jsonl: No such file or directory\n")


def test_export_that_can_not_be_written_leaves_nothing(url: str, tmp_path: Path) -> None:
    filled(url)
    refused = run("export", "--store", url, str(tmp_path / "no" / "file"))
    assert refused.exit_code == 1
    assert "No such file or directory" in refused.output


def test_backup_is_a_store(url: str, tmp_path: Path) -> None:
    filled(url)
    copy = tmp_path / "copy.sqlite3"
    done = run("backup", "--store", url, str(copy))
    assert done.output == f"{copy.stat().st_size} bytes written to {copy}\n"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert run("export", "--store", f"sqlite:///{copy}").output == run("export", "--store", url).output
    again = run("backup", "--store", url, str(copy))
    assert again.exit_code == 2
    assert "already exists" in again.output


def test_backup_of_postgres_names_what_does_it(tmp_path: Path) -> None:
    with postgres_database() as url:
        assert run("upgrade", "--store", url).exit_code == 0
        refused = run("backup", "--store", url, str(tmp_path / "x"))
        assert refused.exit_code == 2
        assert "pg_dump" in refused.output


def test_sqlalchemy_is_loaded_only_by_who_needs_it() -> None:
    program = (
        "import sys, openresponses_cli.commands.cli, openresponses_server.store.stores\n"
        "import openresponses_cli.commands.db\n"
        "print([name for name in ('sqlalchemy', 'alembic', 'psycopg', 'redis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_store_of_a_config_is_used_unless_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "bridge.toml"
    config.write_text(f"store = '${{STORE_FOR_IT:-sqlite:///{tmp_path}/of-config.sqlite3}}'\n")
    added = ["keys", "add", "--name", "x"]

    def files() -> list[str]:
        return sorted(path.name for path in tmp_path.glob("*.sqlite3"))

    assert CliRunner().invoke(main, [*added, "--config", str(config)]).exit_code == 0
    assert files() == ["of-config.sqlite3"]
    named = f"sqlite:///{tmp_path}/of-flag.sqlite3"
    assert CliRunner().invoke(main, [*added, "--config", str(config), "--store", named]).exit_code == 0
    monkeypatch.setenv("STORE_FOR_IT", named)
    monkeypatch.setenv("OPENRESPONSES_BRIDGE_CONFIG", str(config))
    listed = CliRunner().invoke(main, ["keys", "list"])
    assert (listed.stdout.count("live"), files()) == (1, ["of-config.sqlite3", "of-flag.sqlite3"])
    assert CliRunner().invoke(main, ["db", "sweep"]).output == "0 responses deleted\n"


@pytest.mark.parametrize(
    ("text", "says"), [("store = 5", ":1: store: Expected `str`"), ("store", "Expected '='")]
)
def test_a_config_that_can_not_be_read_is_said(tmp_path: Path, text: str, says: str) -> None:
    config = tmp_path / "bridge.toml"
    config.write_text(text)
    done = CliRunner().invoke(main, ["db", "sweep", "--config", str(config)])
    assert (done.exit_code, says in done.stderr, str(config) in done.stderr) == (2, True, True)
