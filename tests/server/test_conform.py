"""`conform` against live servers: ours, one that refuses everything, none at all."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bridge.conformance.scenarios import SCENARIOS
from server.cli import main

pytestmark = pytest.mark.timeout(60)


def conform(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["conform", *arguments], catch_exceptions=False)


def verdicts(result: Result) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in map(json.loads, result.stdout.splitlines())}


class _Liar(BaseHTTPRequestHandler):
    """Lists a model, and answers everything else with a response that is no response."""

    def do_GET(self) -> None:
        self._tell(200, {"object": "list", "data": [{"id": "liar"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._tell(200, {"id": "resp_1", "object": "response", "status": "completed"})

    do_DELETE = do_POST  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        return None

    def _tell(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def liar() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Liar)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_our_server_fails_nothing(demo: str) -> None:
    result = conform(demo, "--model", "demo", "--json")
    found = verdicts(result)
    assert [each for each in found.values() if each["outcome"] == "failed"] == []
    assert result.exit_code == 0
    assert list(found) == list(SCENARIOS)
    for area in ("transport", "schema", "order", "tools", "turns", "errors", "websocket", "compaction"):
        assert {each["outcome"] for each in found.values() if each["id"].startswith(area)} == {"passed"}


def test_a_server_that_lies_fails(liar: str) -> None:
    result = conform(liar, "--json", "--timeout", "5")
    found = verdicts(result)
    assert result.exit_code == 1
    assert found["transport.whole"]["outcome"] == "failed"
    assert "schema" in found["transport.whole"]["message"]
    assert found["errors.malformed-json"]["outcome"] == "failed"
    assert found["websocket.turns"]["outcome"] == "skipped"


def test_without_a_model_the_first_listed_is_asked(demo: str) -> None:
    result = conform(demo, "--only", "transport.whole")
    assert result.exit_code == 0
    assert "1 passed, 0 failed, 0 skipped" in result.stdout


@pytest.mark.parametrize("arguments", [(), ("--model", "x")])
def test_a_server_that_is_not_there_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    result = conform("http://127.0.0.1:1", *arguments)
    assert result.exit_code == 2
    assert "127.0.0.1:1" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ftp://x",), "no http address"),
        (("http://127.0.0.1:1", "--only", "nothing"), "no scenario"),
        (("http://127.0.0.1:1", "--api-key-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[str, ...], said: str) -> None:
    result = conform(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
