"""After long sessions no secret is anywhere but where it was sent: keys of clients and upstreams, and what
clients give with their tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from websockets.sync.client import connect

from openresponses_cli.commands.cli import main
from openresponses_server.settings.files import hashed
from tests.support.request_secrets import SECRETS, TOOLS
from tests.support.services import postgres_database
from tests.support.serving import Reply, call
from tests.support.session_clients import CLIENTS, SessionClient
from tests.support.strict_sessions import MODELS, address_of, planned, profile_of, strict_upstreams
from tests.support.upstream import JSON, Received, Script, ScriptedUpstream, frame
from tests.support.workers import working

CLIENT_KEY = "hidden-client-key-1f4c"
OPERATOR_KEY = "hidden-operator-key-77ab"
HEADER = "hidden-header-of-all-requests-9d"
KEYS = {name: f"hidden-key-of-{name}-3b" for name in [*MODELS, "echo"]}
OUTSIDE = [CLIENT_KEY, OPERATOR_KEY, HEADER, *KEYS.values()]
AUTHORIZED = {"authorization": f"Bearer {CLIENT_KEY}"}


def echoing(received: Received) -> Script:
    """An upstream whose errors repeat what it was sent: at once or, for `late`, in the stream."""
    headers, body = received.headers, received.body
    message = f"No: {headers['authorization']}, {headers['x-team']}, {json.dumps(body.get('tools'))}"
    error = {"type": "invalid_request_error", "code": "invalid_prompt", "message": message}
    if body["model"] == "late":
        started = {
            "id": "resp_1",
            "object": "response",
            "status": "in_progress",
            "model": "late",
            "output": [],
        }
        failed = started | {"status": "failed", "error": error}
        return Script(
            [
                frame(type="response.created", sequence_number=0, response=started),
                frame(type="response.failed", sequence_number=1, response=failed),
            ]
        )
    return Script([json.dumps({"error": error}).encode()], 401 if body["model"] == "denied" else 400, JSON)


def config(folder: Path, upstreams: dict[str, ScriptedUpstream], echo: ScriptedUpstream) -> str:
    """The settings: everything that keeps or shows something is on."""
    lines = [
        f"api_keys = [{json.dumps(hashed(CLIENT_KEY))}]",
        f"operator_keys = [{json.dumps(hashed(OPERATOR_KEY))}]",
        'log_level = "debug"',
        f"record = {json.dumps(str(folder / 'recordings'))}",
        "[trace]",
        f"folder = {json.dumps(str(folder / 'traces'))}",
    ]
    for name, each in upstreams.items():
        lines += [
            "[[upstreams]]",
            *(f'{field} = "{value}"' for field, value in profile_of(name).items()),
            f'models = ["{MODELS[name]}"]',
            f'url = "{address_of(name, each)}"',
        ]
        lines += [f'api_key = "${{KEY_{name.upper()}}}"', 'headers = { x-team = "${TEAM}" }']
    lines += [
        "[[upstreams]]",
        'name = "echo"',
        'dialect = "responses"',
        'models = ["soon", "denied", "late"]',
    ]
    lines += [f'url = "{echo.url}"', 'api_key = "${KEY_ECHO}"', 'headers = { x-team = "${TEAM}" }']
    return "\n".join(lines)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/kept.sqlite3"
    else:
        with postgres_database() as url:
            yield url


def test_secrets_of_a_session_are_nowhere(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(f"KEY_{name.upper()}", key)
    monkeypatch.setenv("TEAM", HEADER)
    shown: dict[str, bytes] = {}
    with ExitStack() as running:
        plans = [plan for _, plans in CLIENTS for plan in plans]
        strict, scripted = running.enter_context(strict_upstreams(planned(plans)))
        echo = running.enter_context(ScriptedUpstream())
        echo.answer = echoing
        worker = running.enter_context(working(tmp_path, store, config=config(tmp_path, scripted, echo)))
        sessions = [client(worker.base, AUTHORIZED, TOOLS) for client, _ in CLIENTS]
        for session in sessions:
            for turn, model in enumerate(MODELS.values(), 1):
                session.turn(turn, model)
        assert [each.refused for each in strict.values()] == [[]] * len(strict)
        sent = json.dumps([each.body for each in scripted["openai"].received])
        assert [secret for secret in SECRETS[:11] if secret not in sent] == []
        for each in scripted.values():
            assert all(received.headers["x-team"] == HEADER for received in each.received)
        shown |= said_of(worker.base, sessions)
        shown |= {f"running, {name}": data for name, data in files_in(tmp_path).items()}
        shown |= exported(store, tmp_path)
    shown |= {f"stopped, {name}": data for name, data in files_in(tmp_path).items()}
    logs = [data for name, data in shown.items() if name.endswith(".log")]
    assert any(b"invalid_prompt" in data for data in logs)
    assert {Path(name).parts[0] for name in files_in(tmp_path)} >= {"recordings", "traces"}
    assert b"Turn 3." in shown["the export"]
    assert b"[key]" in shown["POST /v1/responses soon"]
    leaks = {where: seen for where, data in shown.items() if (seen := found_in(data))}
    assert leaks == {}


def files_in(folder: Path) -> dict[str, bytes]:
    """The files of a folder: the store and its log of writes, traces, recordings, the process's log."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def found_in(data: bytes) -> list[str]:
    return [secret for secret in [*SECRETS, *OUTSIDE] if secret.encode() in data]


def said_of(base: str, sessions: list[SessionClient]) -> dict[str, bytes]:
    """What the server answers on all its addresses, by them."""
    shown = {f"heard by {type(each).__name__}": b"".join(each.heard) for each in sessions}

    def ask(method: str, path: str, body: Any = None, key: str = CLIENT_KEY) -> Reply:
        reply = call(base, method, path, body, {"authorization": f"Bearer {key}"})
        shown[f"{method} {path} {body and body['model']}"] = reply.body
        return reply

    request = {"input": "Turn 1.", "tools": TOOLS}
    for model in ("soon", "denied", "late", MODELS["openai"], MODELS["qwen"]):
        for streamed in (True, False):
            reply = ask("POST", "/v1/responses", request | {"model": model, "stream": streamed})
            expected = {"soon": 400, "denied": 400, "late": 200 if streamed else 400}.get(model, 200)
            assert reply.status == expected, (model, streamed, reply.body)
        ask("POST", "/inspector/v1/responses", request | {"model": model})
        ask("POST", "/inspector/v1/context", request | {"model": model})
        ask("POST", "/v1/responses/input_tokens", request | {"model": model})
    messages = {"max_tokens": 9000, "messages": [{"role": "user", "content": "Turn 1."}], "stream": True}
    chat = {"messages": [{"role": "user", "content": "Turn 1."}], "tools": TOOLS, "stream": True}
    for model in ("soon", "denied", "late", *MODELS.values()):
        ask("POST", "/v1/messages", messages | {"model": model})
        ask("POST", "/v1/chat/completions", chat | {"model": model})
    response_ids = [response for each in sessions[2:] for response in each.responses[-2:]]
    response_ids.append(
        ask("POST", "/v1/responses", request | {"model": "late", "background": True}).json["id"]
    )
    for response in response_ids:
        for rest in ("", "?stream=true", "/input_items", "/trace"):
            ask("GET", f"/v1/responses/{response}{rest}")
        ask("GET", f"/inspector/v1/responses/{response}")
        ask("GET", f"/inspector/v1/responses/{response}/request")
    for path in ("/inspector/v1/responses", "/v1/models", "/v1/usage", "/readyz"):
        assert ask("GET", path).status == 200
    assert ask("GET", "/metrics", key=OPERATOR_KEY).status == 200
    with connect(f"{base.replace('http', 'ws', 1)}/v1/responses", additional_headers=AUTHORIZED) as socket:
        for model in ("soon", "denied", "late", MODELS["openai"]):
            socket.send(json.dumps({"type": "response.create", **request, "model": model}))
            frames = [socket.recv()]
            while json.loads(frames[-1])["type"] not in ENDS:
                frames.append(socket.recv())
            shown[f"WebSocket {model}"] = "".join(map(str, frames)).encode()
    return shown


ENDS = ("error", "response.completed", "response.failed", "response.incomplete")


def exported(store: str, folder: Path) -> dict[str, bytes]:
    """What the store holds, as an export and, of PostgreSQL, as the rows of its tables."""
    done = CliRunner().invoke(main, ["db", "export", "--store", store, str(folder / "export.jsonl")])
    assert done.exit_code == 0, done.output
    contents = {"the export": (folder / "export.jsonl").read_bytes()}
    if store.startswith("postgresql"):
        with psycopg.connect(store.replace("+psycopg", "")) as database:
            tables = database.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            ).fetchall()
            assert tables
            for (table,) in tables:
                rows = database.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
                contents[f"the rows of {table}"] = b"\n".join(map(_cells, rows))
    return contents


def _cells(row: tuple[Any, ...]) -> bytes:
    return b"\t".join(cell if isinstance(cell, bytes) else str(cell).encode() for cell in row)
