"""Laws S3, S4 and S6 on the way of a token that waits for nothing: no coroutine is made for it."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from openresponses_bridge.dialects.base import KEEP_ALIVE
from openresponses_bridge.dialects.responses import ResponsesForm
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.events import Event
from openresponses_server.api.app import create_app
from openresponses_server.http.flow import offer
from openresponses_server.observation.trace_folder import HEADER
from openresponses_server.runs import client as runs_client
from openresponses_server.settings import Limits, Settings, Tracing, UpstreamSettings
from tests.support.direct_writes import DirectWrites
from tests.support.raw_sockets import RawConnection, raw_connection, request
from tests.support.serving import Reply, call, opened, running, serving, serving_app, violations
from tests.support.upstream import Script, ScriptedUpstream, Step, by_turns, chunk, paced, text
from tests.support.waiting import NEVER, wait_until

TOKENS = 40
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
SURFACES = [
    ("/v1/responses", {"input": "Hi", "store": False}),
    ("/v1/responses", {"input": "Hi", "store": True}),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "n": 2}),
    ("/v1/messages", {**CHAT, "max_tokens": 99}),
    ("/vscode/v1/chat", {"messages": [{"role": 1, "content": "Hi"}]}),
    ("/inspector/v1/responses", {"input": "Hi"}),
]
NAMES = ["responses", "stored", "chat", "choices", "messages", "parts", "inspector"]
LIVE = {"input": "Hi", "stream": True, "store": False}
SEND_BUFFER = 16 * 1024


@pytest.fixture
def base(upstream: ScriptedUpstream, written: DirectWrites) -> Iterator[str]:
    """Without keep-alives, which would come between tokens on a busy machine."""
    upstreams = [UpstreamSettings(url=upstream.url)]
    with serving(Settings(upstreams=upstreams, keep_alive=NEVER), SEND_BUFFER) as base:
        yield base


def asked(model: str, **more: Any) -> bytes:
    return request("/v1/responses", {"model": model, **LIVE, **more})


def read_into(got: bytearray, base: str, path: str, body: dict[str, Any]) -> int:
    """Ask, and add what comes as it comes; the status."""
    with opened(base, "POST", path, body) as answer:
        while data := answer.read1():
            got += data
        return answer.status


def body_of(got: bytes) -> bytes:
    """The body of one answer in chunks, which has to be whole and the only one."""
    start = got.index(b"\r\n\r\n") + 4
    pieces = []
    while True:
        end = got.index(b"\r\n", start)
        size = int(got[start:end], 16)
        start = end + 2 + size + 2
        assert got[start - 2 : start] == b"\r\n"
        if not size:
            assert start == len(got)
            return b"".join(pieces)
        pieces.append(got[end + 2 : start - 2])


def text_of(body: bytes) -> str:
    """The text of a stream that is valid and has ended."""
    reply = Reply(200, {}, body)
    assert violations(reply) == []
    assert body.endswith(b"data: [DONE]\n\n")
    shown: str = reply.final["output"][0]["content"][0]["text"]
    return shown


def without_names(body: bytes | bytearray) -> bytes:
    """An answer without what differs from one to the next."""
    body = re.sub(rb'"[a-z]+[_-][A-Za-z0-9]{16,}"', b'"id"', bytes(body))
    return re.sub(rb'("(?:\w+_at|created|at|seconds|ms)":)[\d.]+', rb"\1 0", body)


@pytest.mark.parametrize(("path", "body"), SURFACES, ids=NAMES)
def test_tokens_of_each_surface_take_it(
    base: str, upstream: ScriptedUpstream, written: DirectWrites, path: str, body: dict[str, Any]
) -> None:
    words = [f"w{number}. " for number in range(TOKENS)]
    got = bytearray()
    upstream.scripts["m"] = by_turns(words, got)
    status = read_into(got, base, path, {"model": "m", "stream": True, **body})
    assert status == 200
    assert written.count >= TOKENS - 1
    plain = re.sub(rb"\s", b"", bytes(got))
    places = [plain.index(b'"' + word.strip().encode()) for word in words]
    assert places == sorted(places)


@pytest.mark.parametrize(("path", "body"), SURFACES[:2], ids=NAMES[:2])
def test_server_that_offers_no_such_way_sends_the_same(
    base: str, upstream: ScriptedUpstream, written: DirectWrites, path: str, body: dict[str, Any]
) -> None:
    asked = {"model": "m", "stream": True, **body}
    mine, plain = bytearray(), bytearray()
    upstream.scripts["m"] = by_turns(["w1.", "w2.", "w3."], mine)
    read_into(mine, base, path, asked)
    count = written.count
    upstream.scripts["m"] = by_turns(["w1.", "w2.", "w3."], plain)
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], keep_alive=NEVER)
    with serving_app(create_app(settings)) as other:
        read_into(plain, other, path, asked)
    assert without_names(plain) == without_names(mine)
    assert written.count == count > 0


async def test_choices_keep_their_order_while_one_of_them_waits(upstream: ScriptedUpstream) -> None:
    """All of them begin before the first goes on, which OpenAI's SDK counts on."""
    upstream.scripts["m"] = paced(*["a"] * 80)
    body = json.dumps({"model": "m", "stream": True, "n": 2, **CHAT}).encode()
    came: list[bytes] = []
    passed: list[bytes] = []

    started = False

    def write(data: bytes) -> bool:
        if started:
            passed.append(data)
            came.append(data)
        return started

    async def send(message: Any) -> None:
        nonlocal started
        if message["type"] == "http.response.start":
            started = True
        else:
            if not came:
                await asyncio.sleep(0.2)  # meanwhile all tokens of the other choice come
            came.append(message["body"])

    requests = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        return next(requests, None) or await asyncio.Event().wait()

    path = "/v1/chat/completions"
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    scope |= {"root_path": "", "query_string": b"", "client": ("127.0.0.1", 1), "http_version": "1.1"}
    scope |= {"scheme": "http", "server": ("127.0.0.1", 80)}
    scope["headers"] = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    offer(scope, write)
    app = create_app(Settings(upstreams=[UpstreamSettings(url=upstream.url)]))
    async with app.router.lifespan_context(app):
        await app(scope, receive, send)
    frames = [json.loads(each[6:]) for each in b"".join(came).split(b"\n\n") if each.startswith(b"data: {")]
    firsts = [(each["choices"][0]["index"], each["choices"][0]["delta"].get("role")) for each in frames[:2]]
    assert firsts == [(0, "assistant"), (1, "assistant")]
    assert passed


@pytest.mark.parametrize("store", [False, True])
def test_s4_client_that_reads_nothing_has_its_upstream_wait(
    base: str,
    upstream: ScriptedUpstream,
    written: DirectWrites,
    store: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stored response goes on without it after a while; until then, both are the same."""
    monkeypatch.setattr(runs_client, "_TIMEOUT", NEVER)
    piece = "x" * 30_000
    upstream.scripts["m"] = paced(*[piece] * 80, every=0.001)
    size = 80 * len(piece)
    with raw_connection(base, reads_little=True) as client:
        client.send(asked("m", store=store))
        wait_until(lambda: written.count > 0 and written.refused > 1)
        before = written.count
        assert upstream.last("m").sent < size * 0.9
        assert written.held <= HIGH_WATER_LIMIT + 2 * len(piece)
        client.widen()
        got = client.read(until=b"\r\n0\r\n\r\n")
    assert text_of(body_of(got)) == piece * 80 + "end"
    assert written.paused == 0
    assert written.count > before  # it is taken again when the client reads


def test_upstream_that_bursts_is_bounded_by_its_client(
    base: str, upstream: ScriptedUpstream, written: DirectWrites
) -> None:
    piece = chunk(content="x" * 10_000)
    upstream.scripts["m"] = Script([chunk(content="a"), 0.05, *[piece] * 4000, *text("end")])
    with raw_connection(base, reads_little=True) as client:
        client.send(asked("m"))
        wait_until(lambda: written.refused > 0)
        client.widen()
        got = client.read(until=b"event: response.output_text.done\n")
    numbers = re.findall(rb'output_text\.delta","sequence_number":(\d+)', got)
    assert len(numbers) == 4002
    assert numbers == [b"%d" % (int(numbers[0]) + place) for place in range(4002)]
    assert written.count > 0
    assert written.paused == 0
    assert written.held <= HIGH_WATER_LIMIT + 256 * 1024


@pytest.mark.parametrize("half", [False, True])
def test_s3_client_that_leaves_between_tokens_aborts_its_upstream(
    base: str, upstream: ScriptedUpstream, written: DirectWrites, half: bool
) -> None:
    upstream.scripts["m"] = paced(*["a"] * 2000)
    with raw_connection(base) as client:
        client.send(asked("m"))
        wait_until(lambda: written.count > 5)
        client.socket.shutdown(socket.SHUT_WR) if half else client.socket.close()
        wait_until(lambda: upstream.last("m").gone_at is not None)
    wait_until(lambda: running(base) == 0)


def test_pipelined_streams_come_one_behind_the_other(
    base: str, upstream: ScriptedUpstream, written: DirectWrites
) -> None:
    upstream.scripts |= {"m": paced(*["a"] * 20), "n": paced(*["b"] * 20)}
    with raw_connection(base) as client:
        client.send(asked("m") + asked("n"))
        first = client.read(until=b"\r\n0\r\n\r\n")
        assert first.endswith(b"\r\n0\r\n\r\n")
        second = client.read(until=b"\r\n0\r\n\r\n")
    assert text_of(body_of(first)) == "a" * 20 + "end"
    assert text_of(body_of(second)) == "b" * 20 + "end"


def has_comments(got: bytearray, count: int) -> bool:
    return got.count(KEEP_ALIVE) >= count


def test_s6_comments_come_between_events_and_never_within_one(
    upstream: ScriptedUpstream, written: DirectWrites
) -> None:
    """What is large leaves in parts, and the upstream is waited for now and then."""
    steps: list[Step] = []
    got = bytearray()
    for number in range(60):
        waited = number % 6 == 0
        comments = partial(has_comments, got, number // 6 + 1) if waited else 0.002
        steps += [chunk(content=f"{number} " + "x" * 20_000), comments]
    upstream.scripts["m"] = Script([*steps, *text("end")])
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], keep_alive=0.05)
    with serving(settings, SEND_BUFFER) as base, raw_connection(base, reads_little=True) as client:
        client.send(asked("m"))
        while not got.endswith(b"\r\n0\r\n\r\n"):
            got += client.socket.recv(50_000)
    body = body_of(bytes(got))
    frames = body.split(b"\n\n")
    comments = [frame for frame in frames if frame.startswith(b":")]
    assert len(comments) >= 10
    assert {frame + b"\n\n" for frame in comments} == {KEEP_ALIVE}
    assert all(frame.startswith((b"event: ", b"data: [DONE]", b":")) for frame in frames[:-1])
    shown = text_of(body)
    assert [int(each) for each in re.findall(r"(\d+) x", shown)] == list(range(60))


def test_tokens_beside_a_comment_that_waits_come_in_order(
    upstream: ScriptedUpstream, written: DirectWrites
) -> None:
    """Many at once, each with its own client that stops reading now and then."""
    upstream.scripts["m"] = paced(*[f"{number} " + "x" * 20_000 for number in range(25)], every=0.01)
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)], keep_alive=0.01, limits=Limits(concurrent=20)
    )
    bodies: list[bytes] = []

    def read(client: RawConnection, pause: float) -> None:
        stop = threading.Event()
        got = b""
        while not got.endswith(b"\r\n0\r\n\r\n"):
            got += client.read(seconds=0.02)
            stop.wait(pause)
        bodies.append(body_of(got))

    with serving(settings, SEND_BUFFER) as base:

        def one(number: int) -> None:
            with raw_connection(base, reads_little=True) as client:
                client.send(asked("m"))
                read(client, 0.05 * number)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(bodies) == 8
    for body in bodies:
        assert re.findall(r"(\d+) x", text_of(body)) == [str(number) for number in range(25)]
    assert b"".join(bodies).count(KEEP_ALIVE) > 8
    assert written.refused > 8
    assert written.paused == 0


def test_defect_between_tokens_cuts_the_answer_off(
    base: str, upstream: ScriptedUpstream, written: DirectWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.scripts["m"] = paced(*["a"] * 2000)

    def encode(events: Sequence[Event]) -> bytes:
        if events[-1].sequence_number > 20:
            raise RuntimeError("a defect")
        return encode_sse(events)

    monkeypatch.setattr(ResponsesForm, "encoders", (encode,))
    with capture_logs() as lines, raw_connection(base) as client:
        client.send(asked("m"))
        got = client.read()
        client.wait_until_closed()
        wait_until(lambda: upstream.last("m").gone_at is not None)
        wait_until(lambda: running(base) == 0)
    assert b"output_text.delta" in got
    assert not got.endswith(b"0\r\n\r\n")
    assert "request.internal_error" in [line["event"] for line in lines]


def test_trace_has_each_piece(upstream: ScriptedUpstream, written: DirectWrites, tmp_path: Any) -> None:
    upstream.scripts["m"] = paced(*["a"] * 20)
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], trace=Tracing(folder=str(tmp_path)))
    with serving(settings) as base:
        reply = call(base, "POST", "/v1/responses", {"model": "m", **LIVE})
        trace = call(base, "GET", reply.headers[HEADER]).body
    exchange, came = None, ""
    for line in map(json.loads, trace.splitlines()):
        if line.get("leg") == "client":
            exchange = line["exchange"]
        elif exchange is not None and line.get("exchange") == exchange:
            came += line.get("text", "")
    assert came.encode() == reply.body, trace[:3000]
    assert written.count == 0
