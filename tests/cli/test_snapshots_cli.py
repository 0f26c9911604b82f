"""What each command prints, and how it exits."""

import asyncio
import re
import shlex
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_cli.commands.cli import main
from openresponses_server.observation.recordings.dialects import ENCODERS
from openresponses_server.store.sql.sqlite_file import REVISION
from openresponses_server.store.stores import open_store
from openresponses_server.upstreams.profiles import names
from tests.support.command_line import commands
from tests.support.model_frames import frames
from tests.support.model_scripts import SCRIPTS, Step, played
from tests.support.normalised import Normalised
from tests.support.snapshots import snapshots
from tests.support.stores import frames as stored_frames
from tests.support.stores import record
from tests.support.upstream import Script, ScriptedUpstream

NAME = "openresponses-bridge"
WIDE = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}


HELPS = {"-".join([NAME, *path.split()]): path for path, _ in commands()}


class Session:
    """Commands one after the other in one empty folder, as they look in a terminal 100 columns wide."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.normalised = Normalised()

    def run(self, command: str, stdin: bytes | str | None = None) -> "Session":
        runner = CliRunner(env=WIDE)
        done = runner.invoke(main, shlex.split(command), input=stdin, prog_name=NAME, terminal_width=100)
        shown = self.normalised(f"$ {NAME} {command}")
        sent = self.normalised(done.output.replace(f"{Path.cwd()}/", "")).rstrip("\n")
        sent = sent.replace(f"at revision {REVISION}", "at revision NNNN")  # each migration counts it up
        sent = sent.replace(", ".join(names()), "PROFILES")  # each file of one adds its name
        sent = re.sub(r"(?m)^.*  # default\n", "", sent)  # the settings are on a page of their own
        sent = re.sub(r'"seconds":[\d.e-]+', '"seconds":0.0', sent)
        self.show(shown, sent, f"[exit code {done.exit_code}]", "")
        return self

    def show(self, *lines: str) -> None:
        self._lines += lines

    def __str__(self) -> str:
        return "\n".join(self._lines)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.chdir(tmp_path)
    return Session()


@snapshots("help/{name}.txt", name=HELPS)
def test_help(snapshot: SnapshotAssertion, session: Session, name: str) -> None:
    assert str(session.run(f"{HELPS[name]} --help".strip())) == snapshot


def sse(dialect: str, steps: list[Step]) -> bytes:
    return b"".join(b"data: " + frame + b"\n\n" for frame in frames(dialect, steps))


CAPTURE = sse("chat_completions", SCRIPTS["text_then_tool"])
# a delta and the end are missing
BROKEN = encode_sse(
    [event for event in played(SCRIPTS["text"]).events[:-1] if getattr(event, "delta", "") != " there"]
)


@snapshots("replay/{sink}.txt", sink=ENCODERS)
def test_replay(snapshot: SnapshotAssertion, session: Session, sink: str) -> None:
    assert str(session.run(f"replay - --to {sink}", CAPTURE)) == snapshot


FOREIGN = ("anthropic_messages", "codex", "responses", "copilot", "vscode")


@snapshots("replay/from_{dialect}.txt", dialect=FOREIGN)
def test_replay_from(snapshot: SnapshotAssertion, session: Session, dialect: str) -> None:
    """A capture in JSON lines, whose dialect `replay` finds by itself."""
    capture = b"".join(frame + b"\n" for frame in frames(dialect, SCRIPTS["text_then_tool"]))
    assert str(session.run("replay - --to chat", capture)) == snapshot


def validated(session: Session) -> None:
    stream = CliRunner().invoke(main, ["replay"], input=CAPTURE).stdout_bytes
    session.run("validate -", stream)
    session.run("validate -", BROKEN).run("validate - --json", BROKEN)
    session.run("validate -", b'{"type":\n').run("validate -", b"").run("validate missing.sse")


def inspected(session: Session) -> None:
    """Trees of what came, of what is wrong with it, of what a model would like a terminal to do."""
    stream = CliRunner().invoke(main, ["replay"], input=CAPTURE).stdout_bytes
    evil = [("text", "\x1b[2J\u202egnp.exe [bold]x[/]\n" + "endless " * 200), ("end", "stop")]
    failed = encode_sse(played([("text", "Half an ans"), ("fail", "model_error", "It fell over.")]).events)
    session.run("inspect -", stream).run("inspect", BROKEN).run("inspect --json", BROKEN)
    session.run("inspect", sse("chat_completions", evil)).run("inspect", failed)
    session.run("inspect", stream + b"data: {\n\n").run("inspect missing.sse").run("inspect resp_1 --ask Hi")


def unreadable(session: Session) -> None:
    session.run("replay -", b"nonsense\n").run("replay -", b'{"who":"knows"}\n').run("replay missing.sse")
    session.run("replay - --to latin", CAPTURE).run("dance").run("")


def looked_after(session: Session) -> None:
    async def fill() -> None:
        store = open_store("sqlite:///s.sqlite3")
        await store.put(record("resp_old", expires_at=1.0, owner="k"), stored_frames(0, 1))
        await store.put(record("resp_new", "resp_old", expires_at=4e9, owner="k"))
        await store.close()

    store = "--store sqlite:///s.sqlite3"
    session.run(f"db sweep {store}").run(f"db upgrade {store}").run(f"db upgrade --create {store}")
    session.run(f"db upgrade {store}")
    asyncio.run(fill())
    session.run(f"db export {store}").run(f"db sweep {store}").run(f"db sweep {store}")
    session.run("db upgrade --store mysql://somewhere/s")


def asked(session: Session) -> None:
    answers = [
        "other",
        "https://models.example/v1",
        "chat",
        "MODELS_KEY",
        "large, small",
        "n",
        "y",
        "",
        "9000",
    ]
    session.run("init", "\n".join(answers) + "\n")
    written = Path("bridge.toml").read_text("utf-8").rstrip("\n")
    session.show("$ cat bridge.toml", written, "")
    session.run("init", "n\n")


def refused(session: Session) -> None:
    """What `serve` says before it serves."""
    Path("bridge.toml").write_text("port = 'many'\n", "utf-8")
    session.run("serve --dialect chat").run("serve --upstream http://m.example/v1 --dialect klingon")
    session.run("serve --store mysql://somewhere/s").run("serve --host 0.0.0.0")
    session.run("serve --config bridge.toml").run("serve --config missing.toml")


CONFIG = """port = 9001
store = "memory://"
api_keys = ["${BRIDGE_KEY:-some secret}"]

[models."gpt-4.1"]
tools = true

[[upstreams]]
profile = "ollama"
models = ["gpt-4.1"]
headers = { authorization = "Bearer ${BRIDGE_KEY:-some secret}" }
"""


def looked_at(session: Session) -> None:
    Path("bridge.toml").write_text(CONFIG, "utf-8")
    session.run("config check bridge.toml --host localhost")
    Path("bridge.toml").write_text(CONFIG.replace("models = [", "modles = ["), "utf-8")
    session.run("config check bridge.toml")
    session.run("config check --upstream olama").run("config check --store sqllite:")


def configured(session: Session) -> None:
    """What is to be put where, for each agent."""
    session.run("run codex --print-config --upstream ollama --model qwen3")
    session.run("run codex --print-config --server https://models.example/ --key-env SERVER_KEY --model big")
    session.run("run claude --print-config --upstream ollama --model qwen3")
    session.run("run codx").run("run codex --server http://127.0.0.1:9 --upstream ollama")


SESSIONS: dict[str, Any] = {
    "run": configured,
    "config": looked_at,
    "demo": lambda session: session.run("demo"),
    "validate": validated,
    "inspect": inspected,
    "unreadable": unreadable,
    "db": looked_after,
    "init": asked,
    "serve_refused": refused,
}


@snapshots("{name}.txt", name=SESSIONS)
def test_sessions(
    snapshot: SnapshotAssertion, session: Session, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("MODELS_KEY", "BRIDGE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    SESSIONS[name](session)
    assert str(session) == snapshot


@snapshots("serve.txt")
def test_serve(
    snapshot: SnapshotAssertion,
    snapshot_file: str,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    upstream: ScriptedUpstream,
) -> None:
    """The greeting of a server that ends at once; `test_cli_serve` has processes of their own."""

    def end(_server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        for each in sockets:
            each.close()
        for thread in threading.enumerate():
            if thread.name == "startup":  # it asks upstreams
                thread.join()

    monkeypatch.setattr(uvicorn.Server, "run", end)
    monkeypatch.setattr("openresponses_server.settings.to_workers", lambda settings: None)
    monkeypatch.setattr("openresponses_server.observation.logs.configure_logs", lambda **_given: None)
    session.run("serve --port 0 --store memory://")
    upstream.models = ["large", "larger"]
    session.run(f"serve --port 0 --store memory:// --upstream {upstream.url} --model large")
    session.run(f"serve --port 0 --store memory:// --upstream {upstream.url} --model lrage")
    upstream.models = None
    session.run(f"serve --port 0 --store memory:// --upstream {upstream.url}")
    assert str(session) == snapshot


@snapshots("conform.txt")
def test_conform(snapshot: SnapshotAssertion, snapshot_file: str, session: Session, demo: str) -> None:
    """The report on our own server, which has to be clean, and how areas and failures are named."""
    session.run(f"conform {demo} --model demo")
    assert " 0 failed, 0 skipped" in str(session)
    session.run(f"conform {demo} --model demo --only order --json")
    session.run(f"conform {demo} --model nobody --only order --skip order.agreement")
    session.run(f"conform {demo} --model demo --level core --only turns --only errors")
    session.run(f"conform {demo} --only nothing")
    assert str(session) == snapshot


@snapshots("record.txt")
def test_record(
    snapshot: SnapshotAssertion,
    snapshot_file: str,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    upstream: ScriptedUpstream,
) -> None:
    """What a recording looks like, and what is said of it."""
    monkeypatch.setenv("A_KEY", "sk-A1b2C3d4E5f6G7h8I9j0")
    Path("body.json").write_text('{"model":"once","messages":[],"stream":true,"api_key":"sk-other"}')
    upstream.scripts["once"] = Script([b"data: for sk-A1b2C3d4E5f6G7h8I9j0\n\n"])
    session.run(f"record --request body.json -o hello.jsonl --upstream {upstream.url} --api-key-env A_KEY")
    recording = re.sub(r'"at":[\d.e-]+', '"at":N', Path("hello.jsonl").read_text())
    recording = re.sub(r'"(created_at|request_id|x-request-id)":"[^"]*"', r'"\1":"…"', recording)
    session.show(session.normalised(recording))
    session.run("replay hello.jsonl --to responses --exchange 2")
    session.run("record Hi -o hello.jsonl")
    session.run("replay hello.jsonl --speed fast")
    assert str(session) == snapshot
