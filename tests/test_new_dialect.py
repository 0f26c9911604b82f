"""A dialect that is added as docs/dialects.md says, its package and its line, is everywhere: in a copy of the
repository, with nothing else changed."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from openresponses_bridge.dialects.table import TABLE
from tests.support.document_blocks import files
from tests.support.document_reader import Reader
from tests.support.forked import ForkServer
from tests.support.releases import environment_of, python_path
from tests.support.shared import REPOSITORY
from tests.support.upstream import JSON, Script, ScriptedUpstream

PAGE = "docs/dialects.md"
SAID = [
    b'data: {"toy":"say","text":"Hel"}\n\n',
    b'data: {"toy":"say","text":"lo"}\n\n',
    b'data: {"toy":"end"}\n\n',
]
OF_ALL_DIALECTS = (
    "tests/bridge/dialects/test_contract.py",
    "tests/bridge/test_no_cycles.py",
    "tests/properties/test_hostile_values.py",
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the page's package and its line in the table."""
    folder = tmp_path_factory.mktemp("repository")
    # With what is compiled, less what another process is writing now: a copy keeps the times that it goes by.
    without = shutil.ignore_patterns("*.pyc.*", ".*", "node_modules")
    for name in ("bridge", "server", "tests"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=without)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    written = files(PAGE)
    line = written.pop("table")
    table = folder / "bridge/openresponses_bridge/dialects/table.py"
    first = f'    Line("{TABLE[0].name}"'
    before = table.read_text()
    assert before.count(first) == 1
    table.write_text(before.replace(first, line + first))
    package = folder / "bridge/openresponses_bridge/dialects/toy"
    package.mkdir()
    for name, text in written.items():
        (package / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def forks(copy: Path) -> Iterator[ForkServer]:
    with closing(ForkServer(environment_of(copy))) as server:
        yield server


@pytest.fixture
def reader(copy: Path, forks: ForkServer) -> Reader:
    return Reader(Path(sys.executable), copy, forks)


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as scripted:
        scripted.scripts["m"] = Script([*SAID])
        yield scripted


def command(*words: str) -> str:
    """A command of the copy."""
    return " ".join(("openresponses-bridge", *words))


def test_it_is_held_to_what_all_dialects_are_held_to(copy: Path) -> None:
    arguments = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-k", "toy"]
    targets = [*OF_ALL_DIALECTS, "tests/fuzz/test_targets.py"]
    of_copy = os.environ | environment_of(copy) | {"PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [*arguments, *targets],
        cwd=copy,
        env=of_copy,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    tried = [line.partition("::")[0] for line in done.stdout.splitlines() if " PASSED" in line]
    assert set(tried) == set(targets)
    assert len(tried) > 15
    assert "SKIPPED" not in done.stdout


def test_captures_of_it_are_replayed_inspected_and_told_apart(reader: Reader) -> None:
    capture = reader.folder / "capture.sse"
    capture.write_bytes(b"".join(SAID))
    assert '"content":"Hel"' in reader.run(command("replay", "capture.sse", "--to", "chat"))
    snapshot = json.loads(reader.run(command("replay", "capture.sse", "--from", "toy", "--to", "snapshot")))
    assert (snapshot["status"], snapshot["output"][0]["content"][0]["text"]) == ("completed", "Hello")
    back = reader.run(command("replay", "capture.sse", "--to", "responses")).encode()
    (reader.folder / "back.sse").write_bytes(back)
    assert reader.run(command("replay", "back.sse", "--to", "toy")).encode() == b"".join(SAID)
    assert "Hello" in reader.run(command("inspect", "capture.sse"))
    assert (
        reader.run(command("validate", "capture.sse", "2>&1 || true"))
        .strip()
        .endswith("line 1: this is a Toy stream: use replay")
    )
    assert "toy" in reader.run(command("replay", "--help"))
    capture.write_bytes(b"".join(SAID[:2]))
    cut = json.loads(reader.run(command("replay", "capture.sse", "--to", "snapshot")))
    assert (cut["status"], cut["error"]["code"]) == ("failed", "upstream_cut")


def test_a_server_has_it_as_its_upstream(
    reader: Reader, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = command(
        "serve", "--upstream", upstream.url, "--dialect", "toy", "--model", "m", "--store", "memory:"
    )
    with reader.serving(f"{started} --api-key-env TOY_KEY", TOY_KEY="secret"):
        assert answered(reader) == ("completed", "Hello")
        request = upstream.last("m")
        assert (request.path, request.headers["x-toy-key"]) == ("/v1/said", "secret")
        assert request.body == {"model": "m", "said": ["Hi"], "stream": True}
        upstream.scripts["m"] = Script([b'{"toy":"answer","text":"Hello, whole."}'], headers=dict(JSON))
        assert answered(reader) == ("completed", "Hello, whole.")
        page = urlopen(f"http://127.0.0.1:{reader.port}/inspector/dialects.js").read()
        assert b'"toy"' in page


CONFIG = """
api_keys = ["k"]
store = "memory:"
keep_alive = 0.05
[[upstreams]]
url = "URL"
dialect = "toy"
models = ["m"]
"""
THINKS = b": the model thinks\n\n"


def test_its_clients_are_answered_over_http(reader: Reader, upstream: ScriptedUpstream) -> None:
    (reader.folder / "config.toml").write_text(CONFIG.replace("URL", upstream.url))
    address = f"http://127.0.0.1:{reader.port}"

    def ask(path: str, body: Any = None, key: str = "k") -> tuple[int, Any, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} | ({"x-toy-key": key} if key else {})
        try:
            with urlopen(Request(address + path, data, headers), timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except HTTPError as error:
            return error.code, error.headers, error.read()

    def error(path: str, body: Any = None, key: str = "k") -> tuple[int, Any]:
        status, _, refusal = ask(path, body, key)
        return status, json.loads(refusal)

    with reader.serving(command("serve", "--config", "config.toml")):
        status, headers, body = ask("/toy/said", {"model": "m", "said": ["Hi"], "tone": "kind"})
        assert (status, json.loads(body)) == (200, {"toy": "answer", "text": "Hello"})
        assert headers["openresponses-losses"] == "tone: is not known"
        assert upstream.last("m").body["said"] == ["Hi"]
        status, headers, body = ask("/toy/said", {"model": "m", "said": ["Hi"], "stream": True})
        assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert body == b"".join(SAID)
        heard = threading.Event()
        upstream.scripts["m"] = Script([SAID[0], heard.is_set, *SAID[1:]])
        request = Request(address + "/toy/said?toy-key=k", b'{"model":"m","said":["Hi"],"stream":true}')
        request.add_header("content-type", "application/json")
        with urlopen(request, timeout=60) as answer:
            got = b""
            while data := answer.read1():
                got += data
                if THINKS in got:
                    heard.set()
        assert heard.is_set()
        assert got.replace(THINKS, b"") == b"".join(SAID)
        status, refusal = error("/toy/said", {"model": "m", "said": ["Hi"]}, key="")
        assert (status, refusal["toy"], "`x-toy-key: KEY`" in refusal["message"]) == (401, "error", True)
        assert error("/toy/said", {"said": 7}) == (
            400,
            {"toy": "error", "message": "said: expected an array"},
        )
        assert error("/toy/said", {"model": "other", "said": ["Hi"]})[1]["toy"] == "error"
        assert error("/toy/nothing")[1]["toy"] == "error"
        assert error("/toy/models") == (200, {"toy": "models", "names": ["m"]})
        assert error("/toy/models/m") == (200, {"toy": "model", "name": "m"})
        assert error("/toy/models/none")[0] == 404
        status, counted = error("/toy/counted", {"model": "m", "said": ["Hello, how are you?"]})
        assert (status, counted["toy"] > 3) == (200, True)
        paths = error("/openapi.json")[1]["paths"]
        assert {path for path in paths if path.startswith("/toy/")} == {
            "/toy/said",
            "/toy/counted",
            "/toy/models",
            "/toy/models/{model}",
        }


BACKEND = """
from starlette.applications import Starlette
from starlette.routing import Route

from openresponses_bridge import HttpError
from openresponses_server import endpoint


async def generate(request):
    if request.input == "fail":
        raise HttpError(429, "Later.")
    yield "Hel"
    yield "lo"


app = Starlette(routes=[Route("/said", endpoint(generate, dialect="toy"), methods=["POST"])])
"""


def test_a_backend_of_ones_own_answers_its_clients(reader: Reader) -> None:
    (reader.folder / "own.py").write_text(BACKEND)
    path = python_path(*(reader.folder / root for root in ("bridge", "server", "")))
    started = f"env PYTHONPATH={quote(path)} {sys.executable} -m uvicorn own:app --port 8000"

    def ask(**body: Any) -> tuple[int, bytes]:
        data = json.dumps(body).encode()
        address = f"http://127.0.0.1:{reader.port}/said"
        try:
            with urlopen(Request(address, data, {"content-type": "application/json"}), timeout=60) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()

    with reader.serving(started):
        assert ask(said=["Hi"]) == (200, b'{"toy":"answer","text":"Hello"}')
        assert ask(said=["Hi"], stream=True) == (200, b"".join(SAID))
        assert ask(said=["fail"], stream=True) == (429, b'{"toy":"error","message":"Later."}')


def answered(reader: Reader) -> tuple[str, str]:
    body = json.dumps({"model": "m", "input": "Hi"}).encode()
    address = f"http://127.0.0.1:{reader.port}/v1/responses"
    with urlopen(Request(address, body, {"content-type": "application/json"})) as answer:
        response = json.load(answer)
    return response["status"], response["output"][0]["content"][0]["text"]


def test_what_it_sends_is_recorded(reader: Reader, upstream: ScriptedUpstream) -> None:
    where = f"--upstream {upstream.url} --dialect toy --model m"
    reader.run(command("record", "Hi", "-o", "recorded.jsonl", where))
    replayed = json.loads(reader.run(command("replay", "recorded.jsonl", "--to", "snapshot")))
    assert replayed["output"][0]["content"][0]["text"] == "Hello"
    with reader.serving(command("serve", "--upstream", "recording:recorded.jsonl", "--store", "memory:")):
        assert answered(reader) == ("completed", "Hello")
