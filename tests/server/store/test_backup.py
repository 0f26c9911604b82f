"""What docs/backup.md says, tried over HTTP: a restored store answers as the one before did."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openresponses_cli.commands.cli import main
from openresponses_server.settings import Settings
from openresponses_server.settings.files import hashed
from tests.support.document_blocks import commands
from tests.support.services import postgres_database
from tests.support.serving import call, respond, serving, stream

PAGE = "docs/backup.md"
KEYS = {"a": {"authorization": "Bearer of-a"}, "b": {"authorization": "Bearer of-b"}}


def db(*arguments: str) -> None:
    done = CliRunner().invoke(main, ["db", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output


@contextmanager
def keyed(store: str) -> Iterator[str]:
    with serving(Settings(store=store, api_keys=[hashed("of-a"), hashed("of-b")])) as base:
        yield base


def conversations(base: str) -> dict[str, list[str]]:
    """The ids of a chain of each key; the middle turn of the first one is deleted."""
    chains: dict[str, list[str]] = {}
    for key, headers in KEYS.items():
        chains[key] = []
        for number, send in enumerate((respond, stream, respond)):
            link = chains[key][-1] if chains[key] else None
            body = {"model": "demo-tools", "input": f"{key} {number}", "previous_response_id": link}
            reply = send(base, headers, **body)  # type: ignore[operator]
            chains[key].append((reply.final if number == 1 else reply.json)["id"])
    assert call(base, "DELETE", f"/v1/responses/{chains['a'][1]}", None, KEYS["a"]).status == 200
    return chains


def shown(base: str, made: dict[str, list[str]]) -> list[Any]:
    """All that either key is answered about all of them."""
    paths = ("", "/input_items", "?stream=true", "?stream=true&starting_after=2")
    answers = [
        call(base, "GET", f"/v1/responses/{each}{path}", None, headers)
        for ids in made.values()
        for each in ids
        for path in paths
        for headers in KEYS.values()
    ]
    return [(answer.status, answer.body) for answer in answers]


def continued(base: str, made: dict[str, list[str]]) -> list[Any]:
    """What the model is asked by one more turn of each, by its size."""
    return [
        respond(base, KEYS[key], model="demo", input="And?", previous_response_id=ids[-1]).json["usage"][
            "input_tokens"
        ]
        for key, ids in made.items()
    ]


def tried(heading: str, folder: Path, *placed: tuple[str, str]) -> None:
    """The `db` commands of the page under this heading, each placeholder replaced."""
    for command in commands(PAGE, heading):
        for name, there in placed:
            command = command.replace(name, there)
        program, group, *words = shlex.split(command)
        assert (program, group) == ("openresponses-bridge", "db")
        with chdir(folder):
            db(*words)


def by_export(before: str, after: str, folder: Path) -> None:
    placed = (("sqlite:///sessions.sqlite3", before), ("postgresql+psycopg://…", after))
    tried("Export and import", folder, *placed)


def by_backup(before: str, after: str, folder: Path) -> None:
    placed = (("sqlite:///sessions.sqlite3", before), ("sessions-2026-01-31.sqlite3", after[10:]))
    tried("SQLite", folder, *placed)


def by_dump(before: str, after: str, folder: Path) -> None:
    if None in (shutil.which("pg_dump"), shutil.which("pg_restore")):
        pytest.skip("pg_dump and pg_restore are not installed")
    source, target = (url.replace("+psycopg", "") for url in (before, after))
    for command in commands(PAGE, "PostgreSQL"):
        environment = {**os.environ, "DATABASE": source, "EMPTY_DATABASE": target}
        subprocess.run(["sh", "-ec", command], cwd=folder, env=environment, check=True)


@pytest.mark.parametrize(
    ("kinds", "move"),
    [
        (("sqlite", "postgres"), by_export),
        (("postgres", "sqlite"), by_export),
        (("sqlite", "sqlite"), by_backup),
        (("postgres", "postgres"), by_dump),
    ],
    ids=["sqlite to postgres", "postgres to sqlite", "backup", "pg_dump"],
)
def test_restored_store_answers_as_before(
    kinds: tuple[str, str], move: Callable[[str, str, Path], None], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        before, after = (
            stack.enter_context(postgres_database())
            if kind == "postgres"
            else f"sqlite:///{tmp_path}/{number}.sqlite3"
            for number, kind in enumerate(kinds)
        )
        with keyed(before) as base:
            chains = conversations(base)
            expected = shown(base, chains)
            move(before, after, tmp_path)  # while the server runs
            sizes = continued(base, chains)
        assert [status for status, _ in expected].count(200) == 5 * 4
        with keyed(after) as base:
            assert shown(base, chains) == expected
            assert continued(base, chains) == sizes
