"""What a command waits for: only what it uses is imported."""

import subprocess
import sys

import pytest

from tests.support.shared import REPOSITORY

HEAVY = {
    "aiohttp",
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
STREAM = 'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
APP = "from server.app import create_app; from server.settings import {0}; create_app({1})"
UPSTREAM = "Settings(upstreams=[UpstreamSettings(url='http://127.0.0.1:9')])"


def heavy(code: str, *arguments: str) -> set[str]:
    """Which of the heavy packages are loaded when this code has run."""
    program = f"import sys\ntry:\n    {code}\nexcept SystemExit as end:\n    assert not end.code\n"
    shown = "print(*(name for name in sys.modules if '.' not in name), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program + shown, *arguments],
        cwd=REPOSITORY,
        input=STREAM,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return HEAVY & set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "--version",
        "serve --help",
        "validate --explain stream.first_created",
        "replay",
        "conform --help",
        "inspect --help",
    ],
)
def test_commands_that_serve_nothing_load_nothing_heavy(arguments: str) -> None:
    assert heavy("from server.__main__ import main; main()", *arguments.split()) == set()


def test_the_demo_in_the_terminal_loads_what_colours_it() -> None:
    assert heavy("from server.__main__ import main; main()", "demo") == {"rich"}


def test_a_capture_is_inspected_without_a_server() -> None:
    assert heavy("from server.__main__ import main; main()", "inspect") == {"rich"}


@pytest.mark.parametrize(
    ("named", "settings", "loaded"),
    [
        ("Settings", "Settings()", set()),
        ("Settings", "Settings(store='sqlite:')", {"sqlalchemy"}),
        ("Settings, UpstreamSettings", UPSTREAM, {"aiohttp"}),
    ],
)
def test_the_service_loads_what_its_settings_need(named: str, settings: str, loaded: set[str]) -> None:
    asked_for = {"aiohttp", "alembic", "cryptography", "sqlalchemy"}
    assert heavy(APP.format(named, settings)) & asked_for == loaded
