"""A trace has all that passed of a response, for its owner alone, and changes nothing of what passes."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.observation.recordings.reader import read_recording
from openresponses_server.observation.recordings.records import (
    Chunk,
    Note,
    Record,
    RecordedEnd,
    RecordedRequest,
    RecordedStatus,
    decode_record,
)
from openresponses_server.settings import Playback, Retries, Settings, Tracing, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.in_process import InProcess
from tests.support.serving import Reply
from tests.support.upstream import CUT, Script, ScriptedUpstream, chunk, refusal, text

KEY = "sk-upstream-A1b2C3d4E5f6"
CLIENT = "client-key-Z9y8X7w6V5u4"
OTHER = "client-key-Q1w2E3r4T5y6"


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "traces"


def served(upstream: ScriptedUpstream, folder: Path | None, **more: Any) -> InProcess:
    one = UpstreamSettings(
        url=upstream.url, name="one", retries=Retries(times=1, first_wait=0.01), failover=["two/other"]
    )
    two = UpstreamSettings(url=upstream.url, name="two", models=["other"])
    trace = more.pop("trace", {})
    tracing = Tracing(folder=None if folder is None else str(folder), **trace)
    return InProcess(Settings(upstreams=[one, two], trace=tracing, **more))


@pytest.fixture
def app(upstream: ScriptedUpstream, folder: Path) -> Iterator[InProcess]:
    running = served(upstream, folder)
    yield running
    running.close()


def ask(app: InProcess, model: str = "m", headers: Any = (), **more: Any) -> Reply:
    return app.call("POST", "/v1/responses", {"model": model, "input": "Hi", **more}, headers)


def trace_of(app: InProcess, reply: Reply, headers: Any = ()) -> list[Record]:
    """The lines of the trace of this answer, behind the first."""
    response = app.call("GET", reply.headers["openresponses-trace"], headers=headers)
    assert response.status == 200
    assert response.headers["content-type"] == "application/jsonl"
    records = [decode_record(line) for line in response.body.splitlines()]
    assert all(record is not None for record in records)
    return [record for record in records[1:] if record is not None]


def legs(records: list[Record]) -> dict[str, list[RecordedRequest]]:
    requests: dict[str, list[RecordedRequest]] = {}
    for record in records:
        if isinstance(record, RecordedRequest):
            requests.setdefault(record.leg, []).append(record)
    return requests


def chunks(records: list[Record], exchange: int) -> list[bytes]:
    return [each.data for each in records if isinstance(each, Chunk) and each.exchange == exchange]


def notes(records: list[Record]) -> list[tuple[str, str, str]]:
    return [(each.kind, each.where, each.what) for each in records if isinstance(each, Note)]


def test_the_four_records_of_a_response(app: InProcess, upstream: ScriptedUpstream) -> None:
    pieces = [chunk(content="Hel")[:20], 0.02, chunk(content="Hel")[20:], 0.02, *text("lo")]
    upstream.scripts["m"] = Script(pieces)
    reply = ask(app, stream=True)
    records = trace_of(app, reply)
    (client,), (request,) = legs(records)["client"], legs(records)["upstream"]
    assert json.loads(bytes(client.body)) == {"model": "m", "input": "Hi", "stream": True}
    assert (client.path, client.dialect, client.model) == ("/v1/responses", "responses", "m")
    assert json.loads(bytes(request.body))["messages"] == [{"role": "user", "content": "Hi"}]
    assert (request.upstream, request.address, request.dialect) == ("one", "", "chat")
    shown = app.call("GET", f"/v1/responses/{client.run}/trace").body
    assert upstream.url.partition("://")[2].encode() not in shown  # where it is concerns no client
    assert client.run == request.run == reply.events[0]["response"]["id"]
    came = chunks(records, request.exchange)
    assert came[0] == pieces[0]
    assert came[1] == pieces[2]
    assert b"".join(came) == b"".join(piece for piece in pieces if isinstance(piece, bytes))
    assert b"".join(chunks(records, client.exchange)) == reply.body
    ends = [each for each in records if isinstance(each, RecordedEnd)]
    assert [each.how for each in ends] == ["finished", "finished"]
    assert ("end", "completed", "") in notes(records)
    moments = [each.at for each in records]
    assert moments == sorted(moments)
    assert moments[-1] > 0.03


def test_it_is_played_like_any_recording(app: InProcess, upstream: ScriptedUpstream, folder: Path) -> None:
    upstream.scripts["m"] = [refusal(503), Script(text("Hello", " you"))]
    live = ask(app)
    assert live.status == 200
    (path,) = folder.glob("*/*.jsonl")
    assert [each.asked.leg for each in read_recording(path).exchanges] == ["client", "upstream", "upstream"]
    again = UpstreamSettings(
        url=f"recording:{path}", retries=Retries(times=1, first_wait=0.01), playback=Playback(speed="max")
    )
    played = InProcess(Settings(upstreams=[again]))
    try:
        assert ask(played).json["output"][0]["content"] == live.json["output"][0]["content"]
    finally:
        played.close()


def test_retries_and_failover_are_noted_where_they_happen(app: InProcess, upstream: ScriptedUpstream) -> None:
    upstream.scripts = {"m": refusal(503, message="busy"), "other": Script(text("Hi"))}
    records = trace_of(app, ask(app))
    assert [each.upstream for each in legs(records)["upstream"]] == ["one", "one", "two"]
    assert [each.status for each in records if isinstance(each, RecordedStatus)] == [503, 503, 200, 200]
    remarks = notes(records)
    assert ("retry", "one", "is asked again, after 503") in remarks
    assert ("failover", "two", "is asked instead of one, after 503") in remarks


def test_repairs_losses_and_failures_are_noted(app: InProcess, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([chunk(content="x"), 0.02, CUT])
    records = trace_of(app, ask(app, stream=True, tools=[{"type": "web_search"}]))
    kinds = {each.kind for each in records if isinstance(each, Note)}
    assert kinds >= {"loss", "end"}
    (end,) = (each for each in records if isinstance(each, Note) and each.kind == "end")
    assert end.where == "failed"
    assert "lost" in end.what or "ended" in end.what
    cut = [each.how for each in records if isinstance(each, RecordedEnd)]
    assert cut == ["cut", "finished"]


@pytest.mark.parametrize(
    ("path", "dialect", "body"),
    [
        ("/v1/chat/completions", "chat", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/messages", "anthropic", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}),
        ("/vscode/v1/chat", "vscode", {"messages": [{"role": 1, "content": "Hi"}]}),
        ("/v1/responses/compact", "responses", {"input": "Hi"}),
    ],
)
def test_every_surface(
    app: InProcess, upstream: ScriptedUpstream, path: str, dialect: str, body: dict[str, Any]
) -> None:
    upstream.scripts["m"] = Script(text("Hello"))
    reply = app.call("POST", path, {"model": "m", **body})
    records = trace_of(app, reply)
    (client,) = legs(records)["client"]
    assert (client.path, client.dialect) == (path, dialect)
    assert b"".join(chunks(records, client.exchange)) == reply.body
    assert len(legs(records)["upstream"]) == 1


def test_several_choices_are_one_trace(app: InProcess, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("Hello"))
    body = {"model": "m", "n": 2, "messages": [{"role": "user", "content": "Hi"}]}
    records = trace_of(app, app.call("POST", "/v1/chat/completions", body))
    assert len(legs(records)["client"]) == 1
    assert len({each.run for each in legs(records)["upstream"]}) == len(legs(records)["upstream"])
    assert len({each.run for each in records if isinstance(each, Note) and each.kind == "end"}) == 2


def test_a_turn_on_a_websocket(app: InProcess, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("Hello"))
    message = {"type": "response.create", "model": "m", "input": "Hi"}
    first, second = app.turns([json.dumps(message).encode()] * 2)
    for events in (first, second):
        response_id = events[-1]["response"]["id"]
        lines = app.call("GET", f"/v1/responses/{response_id}/trace").body.splitlines()
        records = [record for line in lines[1:] if (record := decode_record(line)) is not None]
        (client,) = legs(records)["client"]
        assert json.loads(bytes(client.body)) == message
        sent = b"".join(chunks(records, client.exchange)).splitlines()
        assert [json.loads(line) for line in sent] == events


def test_a_response_in_the_background_goes_on_in_its_trace(
    app: InProcess, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = Script([chunk(content="Hel"), 0.05, *text("lo")])
    reply = ask(app, background=True)
    for _ in range(500):
        if app.call("GET", f"/v1/responses/{reply.json['id']}").json["status"] == "completed":
            break
        app.run(asyncio.sleep(0.01))
    records = trace_of(app, reply)
    assert json.loads(chunks(records, 1)[0])["status"] == "queued"
    assert [each.how for each in records if isinstance(each, RecordedEnd)] == ["finished", "finished"]
    assert ("end", "completed", "") in notes(records)


def test_only_its_owner_reads_it(upstream: ScriptedUpstream, folder: Path) -> None:
    upstream.scripts["m"] = Script(text("Hello"))
    app = served(upstream, folder, api_keys=[hashed(CLIENT), hashed(OTHER)])
    mine, other = ([(b"authorization", f"Bearer {key}".encode())] for key in (CLIENT, OTHER))
    try:
        reply = ask(app, headers=mine)
        assert trace_of(app, reply, mine)
        refused = app.call("GET", reply.headers["openresponses-trace"], headers=other)
        assert (refused.status, refused.error["code"]) == (404, "trace_not_found")
        unknown = app.call("GET", "/v1/responses/resp_0/trace", headers=mine)
        assert unknown.error["code"] == refused.error["code"]
        assert app.call("GET", reply.headers["openresponses-trace"]).status == 401
        (path,) = folder.glob("*/*.jsonl")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        app.close()


def test_no_name_leads_to_another_file(app: InProcess, upstream: ScriptedUpstream, folder: Path) -> None:
    upstream.scripts["m"] = Script(text("Hello"))
    ask(app)
    (path,) = folder.glob("*/*.jsonl")
    (folder.parent / "secret.jsonl").write_text("{}\n")
    path.with_name("link.jsonl").symlink_to(folder.parent / "secret.jsonl")
    os.mkfifo(path.with_name("pipe.jsonl"))
    for name in ("..%2F..%2Fsecret", "..", "link", "pipe", "%00", "x" * 300, path.stem.upper()):
        assert app.call("GET", f"/v1/responses/{name}/trace").status == 404


def test_secrets_are_not_in_it(
    upstream: ScriptedUpstream, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    cut = len(KEY) // 2
    deltas = [chunk(content=f"a {KEY} b"), chunk(content=f"is {CLIENT}"), chunk(content=KEY)]
    upstream.scripts["m"] = Script(
        [deltas[0], deltas[1], deltas[2][:-cut], 0.02, deltas[2][-cut:], *text("!")]
    )
    settings = UpstreamSettings(url=upstream.url, api_key_env="A_KEY")
    app = InProcess(
        Settings(upstreams=[settings], api_keys=[hashed(CLIENT)], trace=Tracing(folder=str(folder)))
    )
    mine = [(b"authorization", f"Bearer {CLIENT}".encode()), (b"cookie", b"session=c00kie-1234567890abcd")]
    tools = [
        {
            "type": "mcp",
            "server_label": "s",
            "server_url": "https://u:pa55w0rd@h/",
            "authorization": "t0ken-x",
        }
    ]
    try:
        reply = ask(app, headers=mine, stream=True)
        assert KEY.encode() in reply.body  # it is the model's word, which reaches the client as it is
        trace_of(app, reply, mine)
        ask(app, headers=mine, tools=tools)
    finally:
        app.close()
    shown = "".join(path.read_text() for path in folder.glob("*/*.jsonl"))
    for secret in (KEY, CLIENT, "c00kie", "pa55w0rd", "t0ken-x"):
        assert secret not in shown
    assert "[key]" in shown


def test_a_request_full_of_secrets_is_not_traced(app: InProcess, upstream: ScriptedUpstream) -> None:
    """Each of them would be looked for in all that passes."""
    upstream.scripts["m"] = Script(text("Hello"))
    keys = [{"api_key": f"secret-{at}"} for at in range(300)]
    reply = ask(app, input=[{"type": "message", "role": "user", "content": "Hi", "more": keys}])
    assert reply.status == 200
    assert "openresponses-trace" not in reply.headers
    many = [(f"x-{at}".encode(), b"a value that is long") for at in range(300)]
    assert "openresponses-trace" not in ask(app, headers=many).headers
    for count, traced in ((7, True), (9, False)):
        long = [{"password": f"{at}" + "x" * 5000} for at in range(count)]
        reply = ask(app, input=[{"type": "message", "role": "user", "content": "Hi", "more": long}])
        assert ("openresponses-trace" in reply.headers) is traced


def test_it_is_off_unless_it_is_asked_for(upstream: ScriptedUpstream) -> None:
    """Nothing stands in the way of a token then: no layer of the application, none before the upstream."""
    upstream.scripts["m"] = Script(text("Hello"))
    app = served(upstream, None)
    try:
        reply = ask(app, headers=[(b"openresponses-trace", b"1")])
        assert "openresponses-trace" not in reply.headers
        assert app.call("GET", f"/v1/responses/{reply.json['id']}/trace").status == 404
        assert "Tracing" not in {each.cls.__name__ for each in app.app.user_middleware}  # type: ignore[attr-defined]
        one = app.app.state.service.router.resolve("m").upstream
        client = getattr(one, "inner", one)._client  # behind what makes spans
        assert type(client).__name__ == "ConnectionPool"
    finally:
        app.close()


@pytest.mark.parametrize(
    ("header", "key", "traced"),
    [
        (b"1", CLIENT, True),
        (b"true", CLIENT, True),
        (b"0", CLIENT, False),
        (b"", CLIENT, False),
        (b"1", OTHER, False),
    ],
)
def test_which_requests_are_traced(
    upstream: ScriptedUpstream, folder: Path, header: bytes, key: str, traced: bool
) -> None:
    upstream.scripts["m"] = Script(text("Hello"))
    only = {"when": "asked", "keys": [hashed(CLIENT)]}
    app = served(upstream, folder, trace=only, api_keys=[hashed(CLIENT), hashed(OTHER)])
    headers = [(b"authorization", f"Bearer {key}".encode()), (b"openresponses-trace", header)]
    try:
        assert ("openresponses-trace" in ask(app, headers=headers).headers) is traced
        assert len(list(folder.glob("*/*.jsonl"))) == traced
    finally:
        app.close()


def test_a_full_disk_changes_no_answer(
    app: InProcess, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.scripts["m"] = Script(text("Hello", " you"))
    expected = ask(app, store=False).json["output"][0]["content"]
    write = os.write
    written = 0

    def full(descriptor: int, data: bytes) -> int:
        nonlocal written
        written += len(data)
        if written > 900:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    reply = ask(app, store=False)
    monkeypatch.undo()
    assert reply.json["output"][0]["content"] == expected
    assert written > 900
    records = trace_of(app, reply)
    assert isinstance(records[0], RecordedRequest)


def test_a_folder_that_cannot_be_made_changes_no_answer(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.scripts["m"] = Script(text("Hello"))
    (tmp_path / "file").write_text("")
    app = served(upstream, tmp_path / "file" / "traces")
    try:
        reply = ask(app)
        assert reply.status == 200
        assert "openresponses-trace" not in reply.headers
    finally:
        app.close()


def test_what_is_deleted_has_no_trace(app: InProcess, upstream: ScriptedUpstream, folder: Path) -> None:
    upstream.scripts["m"] = Script(text("Hello"))
    reply = ask(app)
    assert len(list(folder.glob("*/*.jsonl"))) == 1
    assert app.call("DELETE", f"/v1/responses/{reply.json['id']}").status == 200
    assert not list(folder.glob("*/*.jsonl"))
    assert app.call("GET", reply.headers["openresponses-trace"]).status == 404


def test_a_refused_request_leaves_no_file(app: InProcess, folder: Path) -> None:
    assert app.call("POST", "/v1/responses", b"{").status == 400
    assert ask(app, temperature=[]).status == 400
    assert not list(folder.glob("*/*.jsonl"))


def test_no_file_stays_open(app: InProcess, upstream: ScriptedUpstream, folder: Path) -> None:
    upstream.scripts["m"] = Script(text("Hello"))
    for _ in range(3):
        ask(app)
    opened = [os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if _linked(each)]
    assert not [each for each in opened if each.startswith(str(folder))]


def _linked(descriptor: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


def test_a_request_of_the_inspector_is_traced(app: InProcess, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("Hello"))
    reply = app.call("POST", "/inspector/v1/responses", {"model": "m", "input": "Hi"})
    records = trace_of(app, reply)
    (client,) = legs(records)["client"]
    assert (client.path, client.dialect) == ("/inspector/v1/responses", "inspector")
    assert b"".join(chunks(records, client.exchange)) == reply.body


def test_half_a_surrogate_pair_is_traced_as_what_it_is(
    app: InProcess, upstream: ScriptedUpstream, folder: Path
) -> None:
    """A client can send one in any name, and a line with one could not be read."""
    upstream.scripts["m"] = Script(text("Hello"))
    reply = ask(app, tools=[{"type": "odd\ud800"}], **{"more\ud800": "x"})
    assert reply.status == 200
    (path,) = folder.glob("*/*.jsonl")
    shown = path.read_text()
    assert '{"type":"odd\ufffd"}],"more\ufffd":"x"' in shown
    assert "odd\\\\ud800 is not known" in shown  # where it is named it is escaped
    assert len(read_recording(path).exchanges) == 2
