"""Law S8: what is being received is reserved, per key and in sum, from its first bytes until what is made of
it is held instead; and what comes too slowly ends."""

import gzip
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import anyio
import pytest

from openresponses_server.api.app import create_app
from openresponses_server.errors import HttpError
from openresponses_server.http.auth import Keys
from openresponses_server.http.connection import http_protocol
from openresponses_server.http.encodings import zstd
from openresponses_server.limits.memory import MemoryBudget, Reservation
from openresponses_server.requests import bodies
from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.raw_sockets import HANDSHAKE, RawConnection, answer, deflated, raw_connection, ws_frame
from tests.support.serving import call, serving_app
from tests.support.sockets import opened_socket
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk
from tests.support.waiting import wait_until

ONE, TWO = "one", "two"
PART = 300_000
SMALL = Limits(loaded_bytes=1_000_000, loaded_bytes_per_key=500_000)
NOISE = random.Random(7).randbytes(PART)
TEXT, MORE = 1, 0
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "zstd": zstd.compress,
}


class Served(NamedTuple):
    base: str
    budget: MemoryBudget

    def of(self, key: str) -> int:
        return self.budget.of(Keys([hashed(key)]).owner({"x-api-key": key}))


@contextmanager
def served(limits: Limits, **settings: Any) -> Iterator[Served]:
    chosen = Settings(limits=limits, api_keys=[hashed(ONE), hashed(TWO)], **settings)
    app = create_app(chosen)
    options = {"lifespan": "on", "timeout_graceful_shutdown": 1, "http": http_protocol(chosen)}
    with serving_app(app, **options) as base:
        yield Served(base, app.state.service.available.budget)


@pytest.fixture
def server() -> Iterator[Served]:
    with served(SMALL) as instance:
        yield instance


def begun(connection: RawConnection, key: str, data: bytes, encoding: str = "identity") -> None:
    """A body that ends later."""
    lines = (
        "POST /v1/responses/input_tokens HTTP/1.1",
        *("Host: localhost", f"X-Api-Key: {key}", "Content-Type: application/json"),
        *("Transfer-Encoding: chunked", f"Content-Encoding: {encoding}"),
    )
    connection.send("\r\n".join(lines).encode() + b"\r\n\r\n%x\r\n%b\r\n" % (len(data), data))


def socket_of(connection: RawConnection, key: str, *, deflate: bool = False) -> None:
    extension = b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if deflate else b""
    connection.send(HANDSHAKE + extension + f"X-Api-Key: {key}\r\n\r\n".encode())
    assert b" 101 " in connection.read(until=b"\r\n\r\n")


def refused(connection: RawConnection) -> None:
    status, body = answer(connection.read(until=b"}}"))
    assert (status, body["error"]["code"]) == (429, "too_much_in_memory")


def refused_socket(connection: RawConnection) -> None:
    got = connection.read()
    assert b'"status":429' in got
    assert b'"too_much_in_memory"' in got
    assert int.from_bytes(got[got.rindex(b"\x88") + 2 :][:2], "big") == 1013


# ── bodies ─────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("encoding", PACKED)
def test_s8_unfinished_bodies_are_held_per_key_and_in_sum(server: Served, encoding: str) -> None:
    part = PACKED[encoding](b" " * PART)
    with ExitStack() as stack:
        first, second, third, fourth, fifth = (
            stack.enter_context(raw_connection(server.base)) for _ in range(5)
        )
        begun(first, ONE, part, encoding)
        wait_until(lambda: server.of(ONE) == PART)
        begun(second, ONE, part, encoding)
        refused(second)
        wait_until(lambda: server.of(ONE) == PART)
        begun(third, TWO, PACKED[encoding](b" " * (SMALL.loaded_bytes_per_key)), encoding)
        wait_until(lambda: server.of(TWO) == SMALL.loaded_bytes_per_key)
        begun(fourth, ONE, PACKED[encoding](b" " * 150_000), encoding)
        wait_until(lambda: server.budget.bytes == 950_000)
        begun(fifth, ONE, PACKED[encoding](b" " * 60_000), encoding)
        refused(fifth)
    wait_until(lambda: server.budget.bytes == 0)


def test_s8_many_bodies_that_inflate_hold_no_more_than_there_may_be(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    acquire = MemoryBudget.acquire

    def noted(budget: MemoryBudget, owner: str, size: int, own: int = 0, *, accepted: bool = False) -> None:
        acquire(budget, owner, size, own, accepted=accepted)
        sizes.append(budget.bytes)

    monkeypatch.setattr(MemoryBudget, "acquire", noted)
    with ExitStack() as stack:
        clients = [stack.enter_context(raw_connection(server.base)) for _ in range(60)]
        for number, client in enumerate(clients):
            begun(client, (ONE, TWO)[number % 2], gzip.compress(b" " * PART), "gzip")
        wait_until(lambda: sum(not silent(client) for client in clients) >= 58)
        assert max(sizes) <= SMALL.loaded_bytes
    wait_until(lambda: server.budget.bytes == 0)


def silent(client: RawConnection) -> bool:
    """Whether nothing has come."""
    client.socket.setblocking(False)
    try:
        return not client.socket.recv(1, 2)  # MSG_PEEK
    except BlockingIOError:
        return True


def test_s8_a_whole_body_is_held_while_it_waits_for_a_thread(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    async def on_thread(work: Callable[[], Any]) -> Any:
        while not goes_on.is_set():
            await anyio.sleep(0.01)
        return work()

    monkeypatch.setattr(bodies, "on_thread", on_thread)
    body = json.dumps({"model": "demo", "input": "a" * PART}).encode()
    end = b"0\r\n\r\n"
    with raw_connection(server.base) as first, raw_connection(server.base) as second:
        begun(first, ONE, gzip.compress(body), "gzip")
        first.send(end)
        wait_until(lambda: server.of(ONE) == len(body))
        begun(second, ONE, gzip.compress(body), "gzip")
        second.send(end)
        refused(second)
        goes_on.set()
        assert answer(first.read(until=b"}"))[0] == 200
    wait_until(lambda: server.budget.bytes == 0)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens"])
def test_s8_who_holds_nothing_else_may_send_a_body_of_any_size(path: str) -> None:
    request = {"model": "demo", "input": "a" * PART, "store": False}
    with served(Limits(loaded_bytes=1000, loaded_bytes_per_key=1000)) as server:
        for body in (json.dumps(request).encode(), gzip.compress(json.dumps(request).encode())):
            headers = {"x-api-key": ONE, "content-encoding": "gzip" if body[:1] != b"{" else "identity"}
            assert call(server.base, "POST", path, body, headers).status == 200
            wait_until(lambda: server.budget.bytes == 0)


def test_s8_a_body_is_not_held_twice_while_it_is_answered(upstream: ScriptedUpstream) -> None:
    upstream.scripts["open"] = Script([chunk(content="a"), HANG])
    request = {"model": "open", "input": "a" * PART, "stream": True, "store": False}
    upstreams = [UpstreamSettings(url=upstream.url)]
    with served(SMALL, upstreams=upstreams) as server, raw_connection(server.base) as client:
        body = json.dumps(request).encode()
        head = f"X-Api-Key: {ONE}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        client.send(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n" + head.encode() + body)
        assert b" 200 " in client.read(until=b"output_text.delta")
        assert PART < server.of(ONE) < PART + 1000


# ── messages ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "sent",
    [
        ws_frame(TEXT, NOISE)[:-10],
        ws_frame(TEXT, NOISE, last=False),
        b"".join(
            ws_frame(MORE if at else TEXT, NOISE[at : at + 999], last=False) for at in range(0, PART, 999)
        ),
        ws_frame(TEXT, NOISE, last=False, compressed=True),
    ],
    ids=["a part of a frame", "a fragment", "many fragments", "a compressed fragment"],
)
def test_s8_unfinished_messages_are_held_per_key(server: Served, sent: bytes) -> None:
    with (
        raw_connection(server.base) as first,
        raw_connection(server.base) as second,
        raw_connection(server.base) as third,
    ):
        for client, key in ((first, ONE), (second, ONE), (third, TWO)):
            socket_of(client, key, deflate=True)
        first.send(sent)
        wait_until(lambda: PART - 100 < server.of(ONE) < PART + 100)
        second.send(sent)
        refused_socket(second)
        third.send(sent)
        wait_until(lambda: PART - 100 < server.of(TWO) < PART + 100)
        wait_until(lambda: PART - 100 < server.of(ONE) < PART + 100)
    wait_until(lambda: server.budget.bytes == 0)


def test_s8_what_a_message_inflates_to_is_held(server: Served) -> None:
    with raw_connection(server.base) as body, raw_connection(server.base) as client:
        begun(body, ONE, b" " * PART)
        wait_until(lambda: server.of(ONE) == PART)
        socket_of(client, ONE, deflate=True)
        bomb = deflated(b" " * PART)
        assert len(bomb) < 1000
        client.send(ws_frame(TEXT, bomb, compressed=True))
        refused_socket(client)


def test_s8_a_large_message_is_taken_and_let_go(server: Served) -> None:
    with opened_socket(server.base, {"x-api-key": ONE}) as socket:
        for _ in range(3):
            turn = socket.turn(input="a" * 100_000, store=False, generate=False)
            assert turn.final["status"] == "completed"
        wait_until(lambda: 100_000 < server.of(ONE) < 110_000)  # what the connection remembers
    wait_until(lambda: server.budget.bytes == 0)


def test_s8_a_message_that_waits_for_a_thread_is_held(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    async def on_thread(work: Callable[[], Any]) -> Any:
        while not goes_on.is_set():
            await anyio.sleep(0.01)
        return work()

    monkeypatch.setattr(bodies, "on_thread", on_thread)
    text = json.dumps({"type": "response.create", "model": "demo", "input": "a" * PART}).encode()
    with raw_connection(server.base) as first, raw_connection(server.base) as second:
        socket_of(first, ONE)
        socket_of(second, ONE)
        first.send(ws_frame(TEXT, text))
        wait_until(lambda: server.of(ONE) == len(text))
        second.send(ws_frame(TEXT, text))
        refused_socket(second)
        goes_on.set()
        assert b"response.completed" in first.read(until=b"response.completed")
    wait_until(lambda: server.budget.bytes == 0)


# ── time ───────────────────────────────────────────────────────────────────────────────────────────────
LATE = Limits(body_seconds=60.0, body_total_seconds=0.5)


def test_s8_a_body_that_comes_fast_enough_but_never_ends_is_a_408() -> None:
    with served(LATE) as server, raw_connection(server.base) as client:
        begun(client, ONE, b"[")
        while silent(client):
            client.send(b"64\r\n" + b" " * 100 + b"\r\n")
            time.sleep(0.01)
        status, body = answer(client.read(until=b"}}"))
        assert (status, body["error"]["message"]) == (408, "The body took too long.")
        wait_until(lambda: server.budget.bytes == 0)


def test_s8_a_message_that_comes_fast_enough_but_never_ends_is_a_408() -> None:
    with served(LATE) as server, raw_connection(server.base) as client:
        socket_of(client, ONE)
        client.send(ws_frame(TEXT, b"[", last=False))
        while silent(client):
            client.send(ws_frame(MORE, b" " * 100, last=False))
            time.sleep(0.01)
        got = client.read()
        assert b'"status":408' in got
        assert int.from_bytes(got[got.rindex(b"\x88") + 2 :][:2], "big") == 1008


# ── the hold ───────────────────────────────────────────────────────────────────────────────────────────
def test_s8_a_hold_that_grows_by_itself_is_not_in_its_own_way() -> None:
    budget = MemoryBudget(100, 50)
    one, other = Reservation(budget, "a"), Reservation(budget, "a")
    for size in (10, 60, 1000):
        one.resize(size)
        assert (budget.bytes, budget.of("a")) == (size, size)
    with pytest.raises(HttpError):
        other.resize(1)
    one.resize(20)
    other.resize(30)
    with pytest.raises(HttpError):
        one.resize(21)
    assert (budget.bytes, budget.of("a")) == (50, 50)
    one.resize(0)
    other.release()
    assert (budget.bytes, budget._reserved) == (0, {})
