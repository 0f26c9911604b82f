"""Law S8, before a request is known: what a hostile HTTP client can hold open and make us read."""

import asyncio
import gc
import json
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from structlog.testing import capture_logs

from openresponses_server.http.connection import HttpConnection
from openresponses_server.http.registry import ReceiveMonitor
from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.clocks import ConnectionClock, connection_clock
from tests.support.raw_sockets import RawConnection, answer, raw_connection, request
from tests.support.serving import call, respond, running, serving
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk
from tests.support.waiting import wait_until

HASTY = Limits(header_seconds=0.4, body_seconds=0.4, write_seconds=0.4, idle_seconds=0.6, header_bytes=20_000)
CHUNKED = request("/v1/responses", None, "Content-Type: application/json", "Transfer-Encoding: chunked")
_HEAD_OF_JSON = ("Content-Type: application/json",)
HEALTH = request("/healthz", method="GET")
BODY = (
    b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n{"
)


@pytest.fixture(scope="module")
def clock() -> Iterator[ConnectionClock]:
    with connection_clock() as clock:
        yield clock


@pytest.fixture(scope="module")
def hasty(upstream: ScriptedUpstream, clock: ConnectionClock) -> Iterator[str]:
    """Its timeouts are over when a test moves its clock. The system keeps little for a client that does not
    read."""
    upstreams = [UpstreamSettings(url=upstream.url)]
    with serving(Settings(limits=HASTY, upstreams=upstreams, keep_alive=0.3), 65536, clock) as base:
        yield base


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is given to the parser."""
    sizes: list[int] = []
    parse = HttpConnection._parse

    def counting(connection: HttpConnection, piece: bytes) -> bool:
        sizes.append(len(piece))
        return parse(connection, piece)

    monkeypatch.setattr(HttpConnection, "_parse", counting)
    return sizes


# ── time ───────────────────────────────────────────────────────────────────────────────────────────────
def test_s8_silent_connections_are_closed_and_keep_nobody_out(hasty: str, clock: ConnectionClock) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(raw_connection(hasty)) for _ in range(300)]
        assert call(hasty, "GET", "/healthz").status == 200  # after which all of them are accepted
        clock.passes(2 * HASTY.header_seconds)
        for each in silent:
            each.wait_until_closed()


@pytest.mark.parametrize("key", ["one", "wrong", ""])
def test_s8_bodies_that_do_not_end_keep_nobody_out(key: str) -> None:
    settings = Settings(limits=Limits(connections=20), api_keys=[hashed("one"), hashed("two")])
    head = ("Content-Type: application/json", "Content-Length: 99999", f"Authorization: Bearer {key}")
    with serving(settings) as base, ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(raw_connection(base)).send(request("/v1/responses", None, *head) + b"{")
        for _ in range(3):
            assert respond(base, {"authorization": "Bearer two"}, model="demo", store=False).status == 200


@pytest.mark.parametrize("key", ["one", ""])
def test_s8_answers_that_are_hardly_read_keep_nobody_out(key: str) -> None:
    settings = Settings(limits=Limits(connections=8), api_keys=[hashed("one"), hashed("two")])
    path = "/openapi.json" if key else "/inspector/vendor/preact.js"
    many = request(path, None, f"Authorization: Bearer {key}", method="GET") * 14
    with serving(settings, 8192) as base, ExitStack() as stack:
        for _ in range(8):
            client = stack.enter_context(raw_connection(base, reads_little=True))
            client.send(many)
            client.read(until=b"HTTP/1.1 200")
        for _ in range(3):
            assert respond(base, {"authorization": "Bearer two"}, model="demo", store=False).status == 200


def arrives(client: RawConnection, parsed: list[int], data: bytes) -> None:
    """Send this, and return once the server has it."""
    size = sum(parsed) + len(data)
    client.send(data)
    wait_until(lambda: sum(parsed) == size)


def test_s8_slow_headers_are_a_408(hasty: str, clock: ConnectionClock, parsed: list[int]) -> None:
    with raw_connection(hasty) as client:
        for line in (b"POST /v1/messages HTTP/1.1\r\n", b"x-more: 1\r\n", b"x-more: 2\r\n"):
            arrives(client, parsed, line)
            clock.passes(0.15)
        got = client.read(until=b"}}")
        status, body = answer(got)
        assert (status, body["error"]["type"]) == (408, "timeout_error")  # Anthropic's shape
        assert b"\r\nconnection: close\r\n" in got
        client.wait_until_closed()


@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/responses", "server_error"), ("/v1/messages", "timeout_error")]
)
@pytest.mark.parametrize("more", [b"", b" "], ids=["silent", "dribbles"])
def test_s8_slow_body_is_a_408(
    hasty: str, clock: ConnectionClock, parsed: list[int], path: str, kind: str, more: bytes
) -> None:
    with raw_connection(hasty) as client:
        for piece in (BODY % path.encode(), more, more):
            arrives(client, parsed, piece)
            clock.passes(0.15)
        status, body = answer(client.read(until=b"}}"))
        assert (status, body["error"]["type"]) == (408, kind)
        client.wait_until_closed()


def test_s8_each_byte_of_a_body_counts_for_its_rate(hasty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That which came with the head, too; a body that came whole with it is not waited for."""
    counted: list[int] = []
    monkeypatch.setattr(ReceiveMonitor, "add", lambda _, size: counted.append(size))
    body = json.dumps({"model": "demo", "input": "x" * 6000}).encode()
    head = request("/v1/responses/input_tokens", None, *_HEAD_OF_JSON, f"Content-Length: {len(body)}")
    with raw_connection(hasty) as client:
        client.send(head + body[:1000])
        wait_until(lambda: sum(counted) == 1000)
        client.send(body[1000:])
        assert answer(client.read(until=b"}"))[0] == 200
        assert sum(counted) == len(body)
        counted.clear()
        client.send(head + body)
        assert answer(client.read(until=b"}"))[0] == 200
        assert not counted


def test_s8_slow_honest_body_is_taken(hasty: str, clock: ConnectionClock, parsed: list[int]) -> None:
    body = json.dumps({"model": "demo", "input": "x" * 6000}).encode()
    with raw_connection(hasty) as client:
        head = f"Content-Length: {len(body)}", "Content-Type: application/json"
        arrives(client, parsed, request("/v1/responses/input_tokens", None, *head))
        for start in range(0, len(body), 500):
            arrives(client, parsed, body[start : start + 500])
            clock.passes(0.1)  # three times the time of a body, ten times that of each of its parts
        assert answer(client.read(until=b"}"))[0] == 200


def test_s8_kept_connection_is_closed_when_it_is_idle(hasty: str, clock: ConnectionClock) -> None:
    with raw_connection(hasty) as client:
        for _ in range(3):
            client.send(HEALTH)
            assert b" 200 " in client.read(until=b"}")
            clock.passes(0.5)
        clock.passes(2 * HASTY.idle_seconds)
        client.wait_until_closed()


@pytest.mark.parametrize("sent", [b"", b"POST /v1/resp", BODY % b"/v1/responses"])
def test_half_closed_client_is_let_go(hasty: str, sent: bytes) -> None:
    with raw_connection(hasty) as client:
        client.send(sent)
        client.socket.shutdown(1)
        client.wait_until_closed()


def test_s8_body_of_a_refused_request_is_not_read_for_ever(hasty: str, clock: ConnectionClock) -> None:
    with raw_connection(hasty) as client:
        client.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n")
        assert b" 404 " in client.read(until=b"}}")
        clock.passes(2 * HASTY.body_seconds)
        while client.send(b"x" * 1000):
            time.sleep(0.01)
        client.wait_until_closed()


# ── size ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz HTTP/1.1\r\nx-long: " + b"a" * 5_000_000,
        b"GET /" + b"a" * 5_000_000,
        b"GET /healthz HTTP/1.1\r\n" + b"x" * 5_000_000,
        b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 800_000,
        b"\r\n" * 2_500_000,
        HEALTH + b"GET /healthz HTTP/1.1\r\nx-long: " + b"a" * 5_000_000,
    ],
    ids=["value", "path", "name", "many", "blank lines", "second request"],
)
def test_s8_head_beyond_the_limit_is_refused_unparsed(hasty: str, parsed: list[int], sent: bytes) -> None:
    with raw_connection(hasty) as client:
        client.send(sent)
        got = client.read()
    if sent.startswith(HEALTH):
        assert got.count(b"HTTP/1.1 ") >= 1  # the first is answered
        got = got.partition(b"}")[2] or got
    if b" 431 " in got:
        assert answer(got)[1]["error"]["code"] == "headers_too_large"
    else:
        assert sent.startswith(HEALTH)
    assert sum(parsed) <= 2 * HASTY.header_bytes


def test_s8_number_of_headers(hasty: str) -> None:
    for number, status in ((200, 200), (300, 431)):
        with raw_connection(hasty) as client:
            client.send(request("/healthz", None, *["a: b"] * number, method="GET"))
            assert answer(client.read(until=b"}"))[0] == status


@pytest.mark.parametrize(
    "framing",
    [b"2\r\n{}\r\n0\r\nx-trailer: " + b"a" * 3_000_000, b"2;" + b"a" * 3_000_000, b"0" * 3_000_000],
    ids=["trailer", "extension", "chunk size"],
)
def test_s8_framing_of_a_body_is_bounded(hasty: str, parsed: list[int], framing: bytes) -> None:
    with raw_connection(hasty) as client:
        client.send(CHUNKED + framing)
        status, body = answer(client.read(until=b"}}"))
        assert (status, body["error"]["type"]) == (400, "invalid_request_error")
        client.wait_until_closed()
    assert sum(parsed) <= 3 * HASTY.header_bytes


def test_trailers_are_no_headers(hasty: str) -> None:
    with raw_connection(hasty) as client:
        client.send(CHUNKED + b"2\r\n{}\r\n0\r\nx-request-id: trailing\r\n\r\n" + HEALTH)
        got = client.read(until=b'"ok"')
    assert b"trailing" not in got
    assert got.count(b"HTTP/1.1 ") == 2


# ── smuggling ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "sent",
    [
        request("/v1/responses", {}, "Transfer-Encoding: chunked"),
        request("/v1/responses", None, "Content-Length: 2", "Content-Length: 3") + b"{}",
        request("/v1/responses", None, "Content-Length: +2") + b"{}",
        CHUNKED.replace(b": chunked", b": xchunked") + b"2\r\n{}\r\n0\r\n\r\n",
        request("/v1/responses", None, "Transfer-Encoding : chunked") + b"2\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"g\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"2\r\n{}x0\r\n\r\n",
        b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
def test_what_is_not_http_is_one_400_and_the_end(hasty: str, sent: bytes) -> None:
    with raw_connection(hasty) as client:
        client.send(sent + HEALTH)
        got = client.read()
    assert got.count(b"HTTP/1.1 ") == 1
    status, body = answer(got)
    assert (status, body["error"]["code"]) == (400, "invalid_request")


# ── pipelining ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("sent", "answered"), [(12, 12), (40, 16)])
def test_pipelined_requests_are_answered_in_order_until_there_are_too_many(
    hasty: str, clock: ConnectionClock, sent: int, answered: int
) -> None:
    with raw_connection(hasty) as client:
        client.send(b"".join(request(f"/v1/models/{number}", method="GET") for number in range(sent)))
        got = client.read(until=b"'%d'" % (answered - 1))
        if sent == answered:
            clock.passes(2 * HASTY.idle_seconds)
        got += client.read()
    places = [got.find(b"'%d'" % number) for number in range(answered)]
    assert -1 not in places
    assert places == sorted(places)
    assert got.count(b"HTTP/1.1 ") == answered
    assert (b"\r\nconnection: close\r\n" in got) == (answered < sent)


def test_s8_what_is_pipelined_behind_a_stream_is_not_taken(
    hasty: str, upstream: ScriptedUpstream, parsed: list[int]
) -> None:
    upstream.scripts["open"] = Script([chunk(content="a"), HANG])
    with raw_connection(hasty) as client:
        client.send(request("/v1/responses", {"model": "open", "input": "x", "stream": True, "store": False}))
        client.read(until=b"output_text.delta")
        client.socket.settimeout(0.5)
        assert not client.send(HEALTH * 500_000)
        assert sum(parsed) < 100_000
        assert running(hasty) == 1
    wait_until(lambda: running(hasty) == 0)


@pytest.mark.parametrize("behind", [HEALTH, HEALTH * 100, b"not HTTP at all\r\n"])
def test_s3_client_that_pipelined_and_left_aborts_its_run(
    hasty: str, upstream: ScriptedUpstream, behind: bytes
) -> None:
    upstream.scripts["dripping"] = Script([part for _ in range(80) for part in (chunk(content="a"), 0.05)])
    body = {"model": "dripping", "input": "x", "stream": True, "store": False}
    with raw_connection(hasty) as client:
        client.send(request("/v1/responses", body) + behind)
        assert b" 400 " not in client.read(until=b"output_text.delta")
    wait_until(lambda: running(hasty) == 0)


# ── number ─────────────────────────────────────────────────────────────────────────────────────────────
def test_s8_connection_that_waits_makes_room_and_busy_ones_stay(upstream: ScriptedUpstream) -> None:
    upstream.scripts["open"] = Script([chunk(content="a"), HANG])
    raw_request = request("/v1/responses", {"model": "open", "input": "x", "stream": True, "store": False})
    settings = Settings(limits=Limits(connections=3), upstreams=[UpstreamSettings(url=upstream.url)])
    with (
        capture_logs() as lines,
        connection_clock() as clock,
        serving(settings, clock=clock) as base,
        ExitStack() as stack,
    ):
        busy, oldest, newest = (stack.enter_context(raw_connection(base)) for _ in range(3))
        busy.send(raw_request)
        assert b" 200 " in busy.read(until=b"output_text.delta")
        newest.send(b"GET /heal")
        assert call(base, "GET", "/healthz").status == 200
        oldest.wait_until_closed()
        newest.send(HEALTH.removeprefix(b"GET /heal"))
        assert b" 200 " in newest.read(until=b"}")
        more: list[RawConnection] = []
        for _ in range(2):
            more.append(stack.enter_context(raw_connection(base)))
            more[-1].send(raw_request)
            assert b" 200 " in more[-1].read(until=b"output_text.delta")
        late = stack.enter_context(raw_connection(base))
        got = late.read()
        assert (answer(got)[0], b"\r\nretry-after: 1\r\n" in got) == (503, True)
        assert busy.is_open()
        wait_until(lambda: any("service_unavailable" in line for line in lines))
    sums = [line for line in lines if line["event"] == "connections.refused"]
    assert any("connection_evicted" in line for line in sums)
    assert any("service_unavailable" in line for line in sums)
    upstream.scripts.clear()


# ── readers that stop ──────────────────────────────────────────────────────────────────────────────────
LARGE = [chunk(content="x" * 500_000) for _ in range(8)]


def stops_reading(base: str, clock: ConnectionClock, asked: bytes) -> bytes:
    """What came in all to a client that doesn't read until it is cut off."""
    with capture_logs() as lines, raw_connection(base, reads_little=True) as client:
        client.send(asked)
        got = client.read(until=b"200 OK")
        clock.passes_until(lambda: any("client_takes_nothing" in line for line in lines), HASTY.write_seconds)
        client.widen()
        return got + client.read()


def test_s8_client_that_stops_reading_is_cut_off(
    hasty: str, clock: ConnectionClock, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["large"] = Script([*LARGE, chunk("stop")])
    body = {"model": "large", "input": "x"}
    stored = call(hasty, "POST", "/v1/responses", body).json["id"]
    live = request("/v1/responses", {**body, "stream": True, "store": False})
    for sent in (
        live,
        request("/v1/responses", body),
        request(f"/v1/responses/{stored}?stream=true", method="GET"),
        request(f"/v1/responses/{stored}", method="GET"),
    ):
        got = stops_reading(hasty, clock, sent)
        assert b" 200 OK" in got
        assert len(got) < 3_000_000, "it was sent all of it"
    wait_until(lambda: running(hasty) == 0)


def test_slow_reader_is_not_cut_off(hasty: str, clock: ConnectionClock, upstream: ScriptedUpstream) -> None:
    upstream.scripts["large"] = Script([*LARGE, chunk("stop")])
    body = {"model": "large", "input": "x", "stream": True, "store": False}
    size = 0
    with raw_connection(hasty, reads_little=True) as client:
        client.send(request("/v1/responses", body))
        for _ in range(15):
            for _ in range(5):
                size += len(client.socket.recv(2000))
            clock.passes(0.1)
        client.widen()
        assert client.read(until=b"[DONE]").endswith(b"[DONE]\n\n\r\n0\r\n\r\n")
    assert size < 1_000_000, "it was not slow"


def test_nothing_of_a_connection_waits_for_garbage_to_be_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    references: list[weakref.ref[HttpConnection]] = []
    begin = HttpConnection.connection_made

    def noted(connection: HttpConnection, transport: asyncio.Transport) -> None:
        begin(connection, transport)
        references.append(weakref.ref(connection))

    monkeypatch.setattr(HttpConnection, "connection_made", noted)
    gc.disable()
    try:
        with serving(Settings()) as base:
            assert call(base, "GET", "/healthz").status == 200
            wait_until(lambda: [each() for each in references] == [None])
    finally:
        gc.enable()
