"""What a command waits for: only what it uses is imported."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from openresponses_cli.commands import flags
from openresponses_server.observation.recordings import dialects, playing
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.migrate import upgrade
from openresponses_server.store.sql.sqlite_file import REVISION
from openresponses_server.upstreams.dialects import DIALECTS
from tests.support.command_line import commands
from tests.support.shared import REPOSITORY

HEAVY = {
    "alembic",
    "cryptography",
    "jsonschema_rs",
    "prometheus_client",
    "rich",
    "sqlalchemy",
    "starlette",
    "structlog",
    "uvicorn",
}
PARSING = {
    "openresponses_bridge",
    "openresponses_bridge.text",
    "openresponses_bridge.dialects",
    "openresponses_bridge.dialects.table",
}
"""What of the library the parsing of flags needs."""
STREAM = 'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
APP = (
    "from openresponses_server.api.app import create_app; "
    "from openresponses_server.settings import {0}; create_app({1})"
)
UPSTREAM = "Settings(upstreams=[UpstreamSettings(url='http://127.0.0.1:9')])"


def heavy(code: str, *arguments: str) -> set[str]:
    """Which of the heavy packages are loaded when this code has run."""
    shown = "print(*(name for name in sys.modules if '.' not in name), file=sys.stderr)"
    return HEAVY & loaded(code, shown, arguments)


def loaded(code: str, shown: str, arguments: Iterable[str]) -> set[str]:
    program = f"import sys\ntry:\n    {code}\nexcept SystemExit as end:\n    assert not end.code\n"
    done = subprocess.run(
        [sys.executable, "-c", program + shown, *arguments],
        cwd=REPOSITORY,
        input=STREAM,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def modules(code: str, *arguments: str) -> set[str]:
    """The modules that are loaded when this code has run, packages' own ones too."""
    shown = "print(*sys.modules, file=sys.stderr)"
    return loaded(code, shown, arguments)


# each in a process of its own, forked from one that has parsed nothing yet
_ALL_HELP = """
import os
import sys

from openresponses_server.__main__ import main

folder, *commands = sys.argv[1:]
for number, command in enumerate(commands):
    child = os.fork()
    if not child:
        sys.argv = ["openresponses-bridge", *command.split(), "--help"]
        try:
            main()
        except SystemExit as end:
            assert not end.code
        with open(f"{folder}/{number}", "w") as file:
            print(*sys.modules, file=file)
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, command
"""


def test_help_loads_what_parses_flags_and_nothing_else(tmp_path: Path) -> None:
    asked = [path for path, _ in commands()]
    program = [sys.executable, "-c", _ALL_HELP, str(tmp_path), *asked]
    done = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(asked) > 40
    for number, command in enumerate(asked):
        found = set((tmp_path / str(number)).read_text().split())
        unused = {*HEAVY, "asyncio", "difflib", "msgspec", "ssl", "tempfile", "tomllib"}
        assert found & unused == set(), command
        assert "click" in found
        own = {name for name in found if name.partition(".")[0] == "openresponses_bridge"}
        assert own <= PARSING, f"{command}: {own - PARSING}"


def test_the_names_in_help_are_those_of_captures() -> None:
    assert list(flags.SOURCES) == [playing.AUTO, *dialects.DIALECTS]
    assert list(flags.TARGETS) == list(dialects.ENCODERS)
    assert list(flags.DIALECTS) == list(DIALECTS)


@pytest.mark.parametrize("arguments", ["--version", "validate --explain stream.first_created", "replay"])
def test_commands_that_serve_nothing_load_nothing_heavy(arguments: str) -> None:
    assert heavy("from openresponses_server.__main__ import main; main()", *arguments.split()) == set()


def test_the_demo_in_the_terminal_loads_what_colours_it() -> None:
    assert heavy("from openresponses_server.__main__ import main; main()", "demo") == {"rich"}


def test_a_capture_is_inspected_without_a_server() -> None:
    assert heavy("from openresponses_server.__main__ import main; main()", "inspect") == {"rich"}


@pytest.mark.parametrize(
    ("named", "settings", "loaded"),
    [
        ("Settings", "Settings()", set()),
        ("Settings", "Settings(store='sqlite:///{folder}/new.sqlite3')", {"sqlalchemy"}),
        ("Settings, UpstreamSettings", UPSTREAM, set()),
    ],
)
def test_the_service_loads_what_its_settings_need(
    tmp_path: Path, named: str, settings: str, loaded: set[str]
) -> None:
    asked_for = {"alembic", "cryptography", "sqlalchemy"}
    given = settings.replace("{folder}", str(tmp_path))
    assert heavy(APP.format(named, given)) & asked_for == loaded


def test_the_doctor_loads_what_the_settings_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    asked = "doctor", "--store", "memory://", "--port", "0"
    found = heavy("from openresponses_server.__main__ import main; main()", *asked)
    assert found & {"alembic", "sqlalchemy"} == set()


def test_a_database_that_is_in_order_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    upgrade(database_url(f"sqlite:///{file}"))
    loaded = modules(APP.format("Settings", f"Settings(store='sqlite:///{file}')"))
    assert "sqlalchemy" not in loaded
    assert "openresponses_server.store.stores" in loaded


def test_a_database_that_is_used_loads_no_other(tmp_path: Path) -> None:
    loaded = modules(APP.format("Settings", f"Settings(store='sqlite:///{tmp_path}/new.sqlite3')"))
    assert "sqlalchemy.dialects.sqlite" in loaded
    assert "sqlalchemy.dialects.postgresql" not in loaded


def test_what_makes_a_databases_tables_does_not_stay(tmp_path: Path) -> None:
    file = tmp_path / "new.sqlite3"
    used = (
        "import asyncio; from openresponses_server.store.stores import open_store; "
        f"asyncio.run(open_store('sqlite:///{file}').get('r', ''))"
    )
    assert modules(used) & {"alembic", "mako", "sqlalchemy.dialects.postgresql"} == set()
    assert upgrade(database_url(f"sqlite:///{file}")) == (REVISION, REVISION)
