"""What a command waits for: only what it uses is imported."""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
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


# each in a process of its own, forked from one that has imported what comes before
_EACH_ALONE = """
import os
import sys

from openresponses_server.__main__ import main
{imports}

folder, *codes = sys.argv[1:]
for number, code in enumerate(codes):
    child = os.fork()
    if not child:
        try:
            exec(code)
        except SystemExit as end:
            assert not end.code
        with open(f"{{folder}}/{{number}}", "w") as file:
            print(*sys.modules, file=file)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, code
"""


def loaded_by_each(codes: Sequence[str], folder: Path, imports: str = "") -> list[set[str]]:
    """The modules that are loaded when each of these codes has run, in a process that had imported the
    program, and `imports`. The folder is that of their data, too."""
    results = folder / "loaded"
    results.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _EACH_ALONE.format(imports=imports), str(results), *codes],
        cwd=REPOSITORY,
        env={**os.environ, "XDG_DATA_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [set((results / str(number)).read_text().split()) for number in range(len(codes))]


def test_help_loads_what_parses_flags_and_nothing_else(tmp_path: Path) -> None:
    paths = [path for path, _ in commands()]
    assert len(paths) > 40
    words = [["openresponses-bridge", *path.split(), "--help"] for path in paths]
    codes = [f"sys.argv = {each}; main()" for each in words]
    for command, imported in zip(paths, loaded_by_each(codes, tmp_path, "import click"), strict=True):
        unused = {*HEAVY, "asyncio", "difflib", "msgspec", "ssl", "tempfile", "tomllib"}
        assert imported & unused == set(), command
        assert "click" in imported
        own = {name for name in imported if name.partition(".")[0] == "openresponses_bridge"}
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


# what makes a service; it has loaded no more than `Settings()` needs
_OF_A_SERVICE = """
from openresponses_server.api.app import create_app
from openresponses_server.settings import Settings, UpstreamSettings
"""


def test_the_service_and_the_doctor_load_what_their_settings_need(tmp_path: Path) -> None:
    in_order = tmp_path / "in-order.sqlite3"
    upgrade(database_url(f"sqlite:///{in_order}"))
    doctor = ["doctor", "--store", "memory://", "--port", "0"]
    codes = {
        "without a database": "create_app(Settings())",
        "an upstream": "create_app(Settings(upstreams=[UpstreamSettings(url='http://127.0.0.1:9')]))",
        "a new database": f"create_app(Settings(store='sqlite:///{tmp_path}/new.sqlite3'))",
        "a database in order": f"create_app(Settings(store='sqlite:///{in_order}'))",
        "the doctor": f"sys.argv[1:] = {doctor}; main()",
    }
    each = loaded_by_each(list(codes.values()), tmp_path, _OF_A_SERVICE)
    loaded = dict(zip(codes, each, strict=True))
    packages = {"alembic", "cryptography", "sqlalchemy"}
    assert {name: imported & packages for name, imported in loaded.items()} == {
        "without a database": set(),
        "an upstream": set(),
        "a new database": {"sqlalchemy"},
        "a database in order": set(),  # is not waited for
        "the doctor": set(),
    }
    assert "openresponses_server.store.stores" in loaded["a database in order"]
    assert "sqlalchemy.dialects.sqlite" in loaded["a new database"]
    assert "sqlalchemy.dialects.postgresql" not in loaded["a new database"]


def test_what_makes_a_databases_tables_does_not_stay(tmp_path: Path) -> None:
    file = tmp_path / "new.sqlite3"
    used = (
        "import asyncio; from openresponses_server.store.stores import open_store; "
        f"asyncio.run(open_store('sqlite:///{file}').get('r', ''))"
    )
    assert modules(used) & {"alembic", "mako", "sqlalchemy.dialects.postgresql"} == set()
    assert upgrade(database_url(f"sqlite:///{file}")) == (REVISION, REVISION)
