"""Law S8 on a WebSocket: what a hostile client can make us keep, inflate, parse and wait for."""

import asyncio
import json
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus, PayloadTooBig
from websockets.frames import Frame, Opcode

from openresponses_server.http.websocket import CompressedMessage, WebSocketConnection, WholeMessageDeflate
from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.clocks import ConnectionClock, connection_clock
from tests.support.raw_sockets import (
    HANDSHAKE,
    RawConnection,
    answer,
    deflated,
    raw_connection,
    raw_websocket,
    ws_frame,
)
from tests.support.serving import call, running, serving
from tests.support.sockets import opened_socket
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk
from tests.support.waiting import wait_until

HASTY = Limits(header_seconds=0.4, body_seconds=0.4, write_seconds=0.4, idle_seconds=0.6, header_bytes=20_000)
LIMIT = 1_000_000
TEXT, BINARY, PING, MORE = 1, 2, 9, 0
CREATE = {"type": "response.create", "model": "m", "input": "x", "store": False}


@pytest.fixture(scope="module")
def clock() -> Iterator[ConnectionClock]:
    with connection_clock() as clock:
        yield clock


@pytest.fixture(scope="module")
def hasty(upstream: ScriptedUpstream, clock: ConnectionClock) -> Iterator[str]:
    """Its timeouts are over when a test moves its clock."""
    upstreams = [UpstreamSettings(url=upstream.url)]
    with serving(Settings(limits=HASTY, upstreams=upstreams, max_body_bytes=LIMIT), clock=clock) as base:
        yield base


def close_code(data: bytes) -> int:
    """The code in the close frame at the end of it."""
    place = data.rindex(b"\x88")
    return int.from_bytes(data[place + 2 : place + 4], "big")


def error_in(data: bytes) -> Any:
    """The error envelope in it."""
    return json.JSONDecoder().raw_decode(data[data.index(b'{"type":"error"') :].decode("latin-1"))[0]


def create(**more: Any) -> bytes:
    return ws_frame(TEXT, json.dumps(CREATE | more).encode())


# ── deflate ────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("fragments", [1, 2, 50])
@pytest.mark.parametrize("size", [LIMIT + 1, 50 * LIMIT])
def test_s8_message_that_inflates_beyond_the_limit_is_a_413(hasty: str, fragments: int, size: int) -> None:
    bomb = deflated(b" " * size)
    step = len(bomb) // fragments + 1
    parts = [bomb[start : start + step] for start in range(0, len(bomb), step)]
    with raw_websocket(hasty, deflate=True) as client:
        for number, part in enumerate(parts):
            opcode = MORE if number else TEXT
            client.send(ws_frame(opcode, part, last=part is parts[-1], compressed=not number))
        got = client.read()
    assert (error_in(got)["status"], error_in(got)["error"]["code"]) == (413, "request_too_large")
    assert close_code(got) == 1009


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_fragments_of_a_compressed_message_wait_as_they_came(step: int) -> None:
    text = json.dumps({"input": "x" * 20_000}).encode()
    sent = deflated(text)
    deflate = WholeMessageDeflate(True, True, 12, 12)
    for start in range(0, len(sent), step):
        frame = Frame(Opcode.CONT if start else Opcode.TEXT, sent[start : start + step], False, not start)
        assert deflate.decode(frame, max_size=LIMIT).data == b""
        assert len(deflate._fragments) <= len(sent)
        ping = Frame(Opcode.PING, b"between")
        assert deflate.decode(ping, max_size=LIMIT) is ping
    message = deflate.decode(Frame(Opcode.CONT, b"", True), max_size=LIMIT).data
    assert isinstance(message, CompressedMessage)
    assert b"".join(deflate.inflate(message)) == text
    plain = Frame(Opcode.TEXT, b"plain")
    assert deflate.decode(plain, max_size=LIMIT) is plain


def test_s8_compressed_fragments_are_bounded_before_they_are_inflated() -> None:
    deflate = WholeMessageDeflate(True, True, 12, 12)
    deflate.decode(Frame(Opcode.TEXT, b"x" * 60, False, True), max_size=100)
    with pytest.raises(PayloadTooBig):
        deflate.decode(Frame(Opcode.CONT, b"x" * 60, False), max_size=100)


def reaches(upstream: ScriptedUpstream, client: RawConnection, message: bytes) -> None:
    """Send this message, and wait until its request is at the upstream."""
    before = len(upstream.received)
    client.send(message)
    while len(upstream.received) == before:
        time.sleep(0.01)


def test_s10_others_are_served_between_two_steps_of_inflating(
    hasty: str, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.scripts["m"] = Script([chunk(content="Hi"), chunk("stop")])
    inflate, served, ticks = WholeMessageDeflate.inflate, list[bool](), list[None]()

    def watched(self: WholeMessageDeflate, message: CompressedMessage) -> Iterator[bytes]:
        for number, piece in enumerate(inflate(self, message)):
            served.append(len(ticks) == number)
            asyncio.get_running_loop().call_soon(ticks.append, None)
            yield piece

    monkeypatch.setattr(WholeMessageDeflate, "inflate", watched)
    text = json.dumps(CREATE).encode()
    with raw_websocket(hasty, deflate=True) as client:
        large = deflated(b" " * (LIMIT - len(text)) + text)
        reaches(upstream, client, ws_frame(TEXT, large, compressed=True))
    assert len(served) > 2
    assert all(served)


def test_s8_a_step_of_inflating_is_bounded() -> None:
    deflate = WholeMessageDeflate(False, False, 12, 12)
    for size in (0, 1, 2**18 - 1, 2**18, 2**18 + 1, 50 * LIMIT):
        steps = [len(piece) for piece in deflate.inflate(CompressedMessage(deflated(b" " * size)))]
        assert sum(steps) == size
        assert max(steps) <= 2**18


def finished(text: bytes) -> bytes:
    """A message that ends with a final block (RFC 7692, 7.2.3.4)."""
    deflating = zlib.compressobj(9, wbits=-12)
    return deflating.compress(text) + deflating.flush(zlib.Z_FINISH) + b"\0"


def test_s8_what_comes_behind_a_final_block_is_not_kept() -> None:
    deflate = WholeMessageDeflate(False, False, 12, 12)
    for text in (b"one", b"", b"another"):
        assert b"".join(deflate.inflate(CompressedMessage(finished(text)))) == text
    assert b"".join(deflate.inflate(CompressedMessage(deflated(b"open")))) == b"open"
    with pytest.raises(zlib.error):
        list(deflate.inflate(CompressedMessage(finished(b"one") + b"x" * LIMIT)))
    assert deflate.decoder.unused_data == b""


def test_messages_behind_a_final_block_are_read(hasty: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([chunk(content="Hi"), chunk("stop")])
    message = ws_frame(TEXT, finished(json.dumps(CREATE | {"stream_id": "a"}).encode()), compressed=True)
    with raw_websocket(hasty, deflate=True) as client:
        for _ in range(3):
            reaches(upstream, client, message)
        client.send(ws_frame(TEXT, finished(b"{}") + b"more", compressed=True))
        assert close_code(client.read()) == 1002


@pytest.mark.parametrize("compression", ["deflate", None])
def test_fragmented_message_is_taken(hasty: str, upstream: ScriptedUpstream, compression: str | None) -> None:
    upstream.scripts["m"] = Script([chunk(content="Hi"), chunk("stop")])
    text = json.dumps(CREATE | {"input": "é" * 5000})
    with opened_socket(hasty, compression=compression) as socket:
        for _ in range(2):
            socket.connection.send([text[start : start + 100] for start in range(0, len(text), 100)])
            assert socket.rest().final["status"] == "completed"
    assert upstream.received[-1].body["messages"][-1]["content"] == "é" * 5000


# ── time ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "begun",
    [
        ws_frame(TEXT, b"{" * 500)[:300],
        ws_frame(TEXT, b'{"a', last=False),
        ws_frame(TEXT, deflated(b" " * LIMIT), last=False, compressed=True),
    ],
    ids=["part of a frame", "first fragment", "compressed"],
)
@pytest.mark.parametrize("dribbles", [False, True])
def test_s8_message_without_progress_ends_the_connection(
    hasty: str, clock: ConnectionClock, begun: bytes, dribbles: bool
) -> None:
    with raw_websocket(hasty, deflate=True) as client:
        client.send(begun)
        got = b""
        while b"\x88" not in got:
            clock.now += 0.15
            got += client.read(until=b"\x88", seconds=0.1)
            if dribbles:
                client.send(b"\x89\x80\0\0\0\0")
        got += client.read()
    assert error_in(got)["status"] == 408
    assert close_code(got) == 1008


def test_silent_socket_stays_open(hasty: str, clock: ConnectionClock) -> None:
    with raw_websocket(hasty) as client:
        for _ in range(3):
            clock.passes(0.5)
        assert client.is_open()


def test_s8_socket_that_is_not_read_is_cut_off(
    hasty: str, clock: ConnectionClock, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = Script([*(chunk(content="x" * 500_000) for _ in range(24)), chunk("stop")])
    with raw_websocket(hasty, reads_little=True) as client:
        client.send(create())
        wait_until(lambda: running(hasty) == 1)
        clock.passes_until(lambda: not running(hasty), HASTY.write_seconds)
        client.widen()
        assert len(client.read()) < 1_000_000, "the system still had it"


# ── floods ─────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many frames each look at a piece found."""
    counts: list[int] = []
    handle = WebSocketConnection.handle_events

    def counting(connection: WebSocketConnection) -> None:
        counts.append(len(connection.conn.events))
        handle(connection)

    monkeypatch.setattr(WebSocketConnection, "handle_events", counting)
    return counts


@pytest.mark.parametrize(
    "flood",
    [
        ws_frame(PING, b"") * 50_000,
        ws_frame(TEXT, b"", last=False) + ws_frame(MORE, b"", last=False) * 50_000,
        ws_frame(TEXT, b"", last=False) + ws_frame(MORE, b"a", last=False) * 50_000,
    ],
    ids=["pings", "empty fragments", "small fragments"],
)
def test_s8_flood_of_frames_is_read_slowly(hasty: str, frames: list[int], flood: bytes) -> None:
    with raw_websocket(hasty) as client:
        client.send(flood)
        wait_until(lambda: sum(frames) > 500)
        assert call(hasty, "GET", "/healthz").status == 200
        assert sum(frames) < 40_000  # all of them take fifty seconds
        assert max(frames) < 1000


def test_s8_messages_while_busy_wait_unread(
    hasty: str, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued: list[int] = []
    handle = WebSocketConnection.handle_events

    def counting(connection: WebSocketConnection) -> None:
        handle(connection)
        queued.append(connection.queue.qsize())

    monkeypatch.setattr(WebSocketConnection, "handle_events", counting)
    upstream.scripts["m"] = Script([chunk(content="a"), HANG])
    with raw_websocket(hasty) as client:
        client.send(create() + ws_frame(TEXT, b"{}") * 30_000)
        assert client.read(until=b"response_in_progress")
        wait_until(lambda: max(queued) > 1)
    assert max(queued) < 1000


def test_pings_are_answered(hasty: str) -> None:
    with raw_websocket(hasty) as client:
        client.send(b"".join(ws_frame(PING, b"%04d" % number) for number in range(1500)))
        got = client.read(until=b"1499")
    assert got.count(b"\x8a\x04") == 1500


# ── what is not a message───────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (ws_frame(TEXT, b"\xff\xfe"), 1007),
        (ws_frame(MORE, b"a"), 1002),
        (ws_frame(3, b"a"), 1002),
        (ws_frame(TEXT, b"a", compressed=True), 1002),
        (b"\x81\x01a", 1002),  # without a mask
        (b"\x81\xff" + b"\xff" * 8, 1009),
        (ws_frame(PING, b"a" * 200), 1002),
    ],
)
def test_what_breaks_the_protocol_closes_the_connection(hasty: str, sent: bytes, code: int) -> None:
    with raw_websocket(hasty) as client:
        client.send(sent + create())
        got = client.read()
    assert close_code(got) == code
    assert b"response.created" not in got


def test_handshake_that_can_t_be_read_is_answered(hasty: str) -> None:
    with raw_connection(hasty) as client:
        client.send(HANDSHAKE + b"x-long: " + b"a" * 10_000 + b"\r\n\r\n")
        status, body = answer(client.read())
    assert status == 400
    assert "8,192 bytes" in body["error"]["message"]


def test_socket_behind_an_unanswered_request_is_refused(hasty: str) -> None:
    with raw_connection(hasty) as client:
        client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + HANDSHAKE + b"\r\n")
        got = client.read()
    assert got.count(b"HTTP/1.1 ") == 1
    assert b" 200 " in got


# ── number ─────────────────────────────────────────────────────────────────────────────────────────────
def refusal_of(base: str, key: str) -> tuple[int, str | None, str]:
    """Status, retry-after and message of a handshake that is refused."""
    with pytest.raises(InvalidStatus) as refused, opened_socket(base, {"authorization": f"Bearer {key}"}):
        pass
    response = refused.value.response
    error = json.loads(response.body)["error"]
    assert error["code"] == "too_many_websockets"
    return response.status_code, response.headers["retry-after"], error["message"]


def test_s8_sockets_are_counted_per_key_and_in_all() -> None:
    limits = Limits(sockets_per_key=2, sockets=3)
    keys = [hashed("one"), hashed("two")]
    with capture_logs(), serving(Settings(api_keys=keys, limits=limits)) as base, ExitStack() as stack:

        def opened(key: str) -> Any:
            return stack.enter_context(opened_socket(base, {"authorization": f"Bearer {key}"}))

        first, _ = opened("one"), opened("one")
        assert refusal_of(base, "one")[:2] == (429, "1")
        opened("two")
        assert "3 open WebSockets" in refusal_of(base, "two")[2]
        assert first.turn(input="x").final["status"] == "completed"
        first.connection.close()
        opened("one").turn(input="x")


def test_raw_clients_leave_no_socket_behind(hasty: str) -> None:
    clients: list[RawConnection] = []
    with ExitStack() as stack:
        clients += [stack.enter_context(raw_websocket(hasty)) for _ in range(HASTY.sockets_per_key // 2)]
    with ExitStack() as stack:
        clients += [stack.enter_context(raw_websocket(hasty)) for _ in range(HASTY.sockets_per_key // 2)]
    assert len(clients) == HASTY.sockets_per_key
