"""The server beside a project whose modules have the most common names: neither imports a module of the
other."""

from pathlib import Path

import pytest

from tests.support.wheel import Wheels, run

pytestmark = pytest.mark.packages

PROJECT = {
    "bridge.py": "SPAN = 3\n",
    "server/__init__.py": "PORT = 1\n",
    "server/backend.py": "NAME = 'mine'\n",
    "conftest.py": (
        "import pytest\nfrom server import PORT\n\n\n@pytest.fixture\ndef port() -> int:\n    return PORT\n"
    ),
    "tests/__init__.py": "",
    "tests/test_mine.py": (
        "from bridge import SPAN\nfrom server.backend import NAME\n\n\n"
        "def test_mine(port: int) -> None:\n    assert (SPAN, NAME, port) == (3, 'mine', 1)\n"
    ),
}
APP = """
from collections.abc import AsyncIterator

import bridge
import server
from openresponses_bridge import CreateResponse, ResponseStreamStateMachine
from openresponses_bridge.backend import Output
from openresponses_server import HttpError, OpenResponsesClient, endpoint
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient


async def generate(request: CreateResponse) -> AsyncIterator[Output]:
    if request.input == "refused":
        raise HttpError(429, "later")
    yield f"{bridge.SPAN} {server.PORT}"


app = Starlette(routes=[Route("/v1/responses", endpoint(generate), methods=["POST"])])

if __name__ == "__main__":
    with TestClient(app) as client:
        said = client.post("/v1/responses", json={"model": "m", "input": "Hello"}).json()
        print(said["output"][0]["content"][0]["text"])
        print(client.post("/v1/responses", json={"model": "m", "input": "refused"}).status_code)
    print(ResponseStreamStateMachine.__name__, OpenResponsesClient.__name__)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def interpreter(wheels: Wheels) -> Path:
    return wheels.environment("openresponses-server", "httpx2", "mypy", "pytest")


def test_the_tests_of_a_project_run_beside_it(interpreter: Path, project: Path) -> None:
    assert "1 passed" in run(interpreter, "-m", "pytest", "-q", "-W", "error", folder=project).stdout


def test_a_file_called_server_is_in_nobody_s_way(interpreter: Path, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("PORT = 1\n")
    (tmp_path / "bridge.py").write_text("SPAN = 3\n")
    (tmp_path / "app.py").write_text(APP)
    assert run(interpreter, "app.py", folder=tmp_path).stdout.split("\n")[:2] == ["3 1", "429"]


def test_an_app_of_the_project_answers_and_is_typed(interpreter: Path, project: Path) -> None:
    (project / "app.py").write_text(APP)
    shown = run(interpreter, "app.py", folder=project).stdout
    assert shown == "3 1\n429\nResponseStreamStateMachine OpenResponsesClient\n"
    checked = run(interpreter, "-m", "mypy", "--strict", "app.py", folder=project).stdout
    assert "Success" in checked


def test_a_bare_import_loads_nothing_heavy(interpreter: Path, tmp_path: Path) -> None:
    heavy = "{'msgspec', 'starlette', 'anyio'}"
    code = f"import sys, openresponses_server; print(*sorted(sys.modules.keys() & {heavy}))"
    assert run(interpreter, "-c", code, folder=tmp_path).stdout == "\n"
