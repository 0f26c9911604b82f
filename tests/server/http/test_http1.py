"""Our connections to an upstream, against one that says whatever it wants: both event loops, real sockets."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import zlib
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.body import PIECE, FairScheduler
from openresponses_server.http.client.connection import ClientConnection, Http1Response, request_target_of
from openresponses_server.http.client.failures import ConnectionLost, RemoteProtocolError
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.encodings import zstd
from openresponses_server.http.flow import BodyReader, Discard, Source
from openresponses_server.settings import Timeouts
from openresponses_server.upstreams.http import HttpReply
from tests.support.serving import PATIENT
from tests.support.waiting import NEVER, until

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
FEW = 20
MANY = 8 * 1024 * 1024

Say = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Upstream:
    """Takes requests and has `say` answer each; counts the connections on which one came: what looks for a
    port at which nobody listens may find this one."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_counted = False
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                    self.connections += not is_counted
                    is_counted = True
                    await self._say(reader, writer)
                    await writer.drain()
        finally:
            self.closed.set()
            writer.close()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.01)


def saying(*pieces: bytes, close: bool = False) -> Say:
    """Each of these in a write of its own."""

    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.001)
        if close:
            raise ConnectionResetError

    return say


class Pieces(Discard):
    """Notes the size of each piece, all of which are zeros."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.sizes: list[int] = []
        source.start(self)

    def feed(self, data: bytes) -> None:
        assert not data.strip(b"\0")
        self.sizes.append(len(data))


async def read(answer: Http1Response) -> bytes:
    return await BodyReader(answer.content).collect(1 << 40)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs `use(connections, url, upstream)` over an upstream that answers with `say`."""

    def over(say: Say, use: Callable[..., Awaitable[Any]], timeouts: Timeouts = PATIENT) -> Any:
        async def both() -> Any:
            upstream = Upstream(say)
            server = await asyncio.start_server(upstream.handle, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/x"
            connections = ConnectionPool("m", timeouts)
            try:
                return await use(connections, url, upstream)
            finally:
                await connections.close()
                server.close()
                await upstream.end()

        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(both())

    return over


async def _twice(connections: ConnectionPool, url: str, upstream: Upstream) -> tuple[list[bytes], int]:
    bodies = []
    for _ in range(2):
        with closing(await connections.request("POST", url, headers={}, data=b"{}")) as answer:
            bodies.append(await read(answer))
    return bodies, upstream.connections


FINE = {
    "length": (OK + b"content-length: 2\r\n\r\nhi", 1),
    "nothing": (OK + b"content-length: 0\r\n\r\n", 1),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 1),
    "chunks": (CHUNKED + b"1\r\nh\r\n1;x=1\r\ni\r\n0\r\nx-trailer: 1\r\n\r\n", 1),
    "later": (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK + b"content-length: 2\r\n\r\nhi", 1),
    "line ends": (OK.replace(b"\r", b"") + b"content-length: 2\n\nhi", 1),
    "closing": (OK + b"connection: close\r\ncontent-length: 2\r\n\r\nhi", 2),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", 2),
}
EXCESS = {
    "more than one answer": (OK + b"content-length: 2\r\n\r\nhi" + OK + b"content-length: 0\r\n\r\n", 2),
    "more than an answer": (OK + b"content-length: 2\r\n\r\nhi???", 2),
}


@pytest.mark.parametrize(
    ("name", "size"),
    [*((name, size) for name in FINE for size in (1, 1000)), *((name, 1000) for name in EXCESS)],
)
def test_an_answer_ends_where_it_says(run: Callable[..., Any], name: str, size: int) -> None:
    """A connection is used again only when nothing but an answer came on it. What comes later than the answer
    can't be told from an answer to the next request."""
    raw, connections = (FINE | EXCESS)[name]
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    expected = b"" if name in ("nothing", "no content") else b"hi"
    bodies, used = run(saying(*pieces), _twice)
    assert bodies == [expected, expected]
    assert used == connections


def test_a_body_without_an_end_ends_with_its_connection(run: Callable[..., Any]) -> None:
    assert run(saying(OK + b"\r\nh", b"i", close=True), _twice) == ([b"hi", b"hi"], 2)


BROKEN = {
    "not HTTP": (b"220 mail ready\r\n", RemoteProtocolError),
    "nothing": (b"", ConnectionLost),
    "half a head": (OK + b"content-", ConnectionLost),
    "another protocol": (
        b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        RemoteProtocolError,
    ),
    "two ends": (CHUNKED[:-2] + b"content-length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n", RemoteProtocolError),
    "negative": (OK + b"content-length: -1\r\n\r\n", RemoteProtocolError),
    "two lengths": (OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nhi!", RemoteProtocolError),
    "head without end": (OK + b"x: y\r\n" * 40_000, RemoteProtocolError),
    "line without end": (OK + b"x: " + b"y" * 200_000, RemoteProtocolError),
    "unknown encoding": (OK + b"content-encoding: br\r\ncontent-length: 2\r\n\r\nhi", RemoteProtocolError),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_answer_is_not_taken_for_one(run: Callable[..., Any], name: str) -> None:
    raw, error = BROKEN[name]

    async def ask(connections: ConnectionPool, url: str, _upstream: Upstream) -> None:
        with pytest.raises(error):
            await connections.request("POST", url, headers={}, data=b"{}")

    run(saying(raw, close=True), ask)


@pytest.mark.parametrize(
    "said",
    [
        CHUNKED + b"2\r\nhi\r\n",
        CHUNKED + b"2\r\nhi\r\nzz\r\n",
        CHUNKED + b"2\r\nhi\r\nffffffffffffffffff\r\n",
        OK + b"content-length: 3\r\n\r\nhi",
        OK + b"transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
    ],
)
def test_what_came_before_a_cut_is_given_before_the_cut(run: Callable[..., Any], said: bytes) -> None:
    async def ask(connections: ConnectionPool, url: str, _upstream: Upstream) -> bytes:
        answer = await connections.request("POST", url, headers={}, data=b"{}")
        await asyncio.sleep(0.1)
        reader = BodyReader(answer.content)
        first = await reader.read()
        with pytest.raises((ConnectionLost, RemoteProtocolError)):
            await reader.read()
        return first

    assert run(saying(said, close=True), ask) == b"hi"


def test_what_is_behind_a_body_is_bounded(run: Callable[..., Any]) -> None:
    """Trailers are not read, but a parser keeps one until its line ends."""
    pieces = [CHUNKED + b"2\r\nhi\r\n0\r\nx: ", *[b"y" * 30_000] * 4]

    async def ask(connections: ConnectionPool, url: str, _upstream: Upstream) -> None:
        answer = await connections.request("POST", url, headers={}, data=b"{}")
        reader = BodyReader(answer.content)
        assert await reader.read() == b"hi"
        with pytest.raises(RemoteProtocolError):
            await reader.read()

    run(saying(*pieces), ask)


@pytest.mark.parametrize("close", [True, False], ids=["cut", "with its end"])
def test_an_encoded_answer_that_breaks_is_not_waited_for(run: Callable[..., Any], close: bool) -> None:
    body = gzip.compress(b"hi", mtime=0)[:-4]
    length = len(body) + (100 if close else 0)
    head = OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % length

    async def ask(connections: ConnectionPool, url: str, _upstream: Upstream) -> None:
        with closing(await connections.request("POST", url, headers={}, data=b"{}")) as answer:
            reply = HttpReply("m", answer, 60.0, "")
            with pytest.raises(UpstreamError):
                await BodyReader(reply).collect(MANY)
            reply.close()

    run(saying(head + body[:5], body[5:], close=close), ask)


@pytest.mark.parametrize("encoded", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_an_encoding_that_was_not_asked_for_is_undone_in_pieces(
    run: Callable[..., Any], encoded: Callable[[bytes], bytes]
) -> None:
    """Of a few bytes that make many no more is made than was read."""
    name = b"gzip" if encoded is gzip.compress else b"zstd"
    body = encoded(bytes(MANY))
    raw = OK + b"content-encoding: %b\r\ncontent-length: %d\r\n\r\n%b" % (name, len(body), body)

    async def ask(connections: ConnectionPool, url: str, upstream: Upstream) -> tuple[int, int, bool]:
        with closing(await connections.request("POST", url, headers={}, data=b"{}")) as answer:
            assert b"\r\naccept-encoding: identity\r\n" in upstream.requests[0]
            pieces = Pieces(answer.content)
            await pieces.ended.wait()
            return sum(pieces.sizes), max(pieces.sizes), answer.content.is_complete

    assert run(saying(raw), ask) == (MANY, PIECE, True)


@pytest.mark.parametrize(
    "body",
    [gzip.compress(b"hi" * 500, mtime=0)[:-9], zlib.compress(b"hi"), b"hi"],
    ids=["cut", "zlib", "plain"],
)
def test_an_encoding_that_is_none_is_a_broken_answer(run: Callable[..., Any], body: bytes) -> None:
    raw = OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    async def ask(connections: ConnectionPool, url: str, _upstream: Upstream) -> None:
        answer = await connections.request("POST", url, headers={}, data=b"{}")
        with closing(answer), pytest.raises(RemoteProtocolError):
            await read(answer)

    run(saying(raw), ask)


def test_a_body_that_nobody_reads_waits_at_its_upstream(run: Callable[..., Any]) -> None:
    """What is kept of it is bounded, and all of it comes when it is read."""
    head = OK + b"content-length: %d\r\n\r\n" % MANY

    async def ask(connections: ConnectionPool, url: str, _upstream: Upstream) -> tuple[int, int]:
        with closing(await connections.request("POST", url, headers={}, data=b"{}")) as answer:
            await until(lambda: answer.content.size)
            await asyncio.sleep(0.3)
            buffered = answer.content.size
            return buffered, len(await read(answer))

    buffered, whole = run(saying(head, *[bytes(MANY // FEW)] * FEW, bytes(MANY % FEW)), ask)
    assert 0 < buffered <= (64 + 256) * 1024
    assert whole == MANY


@pytest.mark.anyio
async def test_a_body_that_paused_its_connection_leaves_it_reading() -> None:
    """All of it came in one read, more than is kept before reading is paused; nobody has read it yet."""
    transport, freed = _ReadTransport(), list[ClientConnection]()
    connection = ClientConnection(FairScheduler(), freed.append, lambda _: None)
    connection.connection_made(transport)
    for _ in range(2):
        asking = asyncio.ensure_future(connection.request(b"", b"", 60.0))
        await asyncio.sleep(0)
        connection.data_received(OK + b"content-length: 200000\r\n\r\n" + bytes(100_000))
        assert not transport.reads
        assert not freed
        connection.data_received(bytes(100_000))
        assert transport.reads
        assert freed.pop() is connection
        assert (await asking).content.size == 200_000


class _ReadTransport(asyncio.Transport):
    """Takes what is written, and notes whether it is to read."""

    reads = True

    def write(self, data: Any) -> None:
        return None

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def test_an_answer_before_the_end_of_the_request_ends_it(run: Callable[..., Any]) -> None:
    """A refusal of a large request is heard, and its connection is not used again."""

    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await writer.drain()
        await asyncio.sleep(30)

    async def ask(connections: ConnectionPool, url: str, upstream: Upstream) -> tuple[list[int], int]:
        statuses = []
        for _ in range(2):
            with closing(await connections.request("POST", url, headers={}, data=bytes(4 * MANY))) as answer:
                statuses.append(answer.status)
                assert await read(answer) == b"no"
        return statuses, upstream.connections

    assert run(say, ask) == ([413, 413], 2)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 413 Too Large\r\n\r\nno", b""])
def test_a_server_that_reads_no_further_and_ends_its_data_is_heard(
    run: Callable[..., Any], answer: bytes
) -> None:
    """The end is not put off until it has read the request."""

    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0.3)  # its client waits to be read by then
        writer.write(answer)
        writer.write_eof()
        await asyncio.sleep(NEVER)

    async def ask(connections: ConnectionPool, url: str, _upstream: Upstream) -> bytes:
        with closing(await connections.request("POST", url, headers={}, data=bytes(4 * MANY))) as got:
            return await read(got)

    if answer:
        assert run(say, ask) == b"no"
    else:
        with pytest.raises(ConnectionLost):
            run(say, ask)


def test_an_answer_that_arrived_before_its_connection_was_reset_is_given(run: Callable[..., Any]) -> None:
    """The loop finds the reset when it writes, before it reads."""
    closed = threading.Event()

    def refuse(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4)  # and leaves the rest unread, so that closing is a reset
            connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        closed.set()

    class Body(bytes):
        def __getitem__(self, piece: Any) -> Any:
            if piece.start:
                assert closed.wait()  # between reading and writing
            return super().__getitem__(piece)

    async def ask(connections: ConnectionPool, _url: str, _upstream: Upstream) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=refuse, args=(listener,))
            thread.start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/x"
            with closing(await connections.request("POST", url, headers={}, data=Body(MANY))) as answer:
                assert (answer.status, await read(answer)) == (413, b"no")
            thread.join()
        while connections._open:
            await asyncio.sleep(0.001)

    run(saying(), ask)


def test_an_answer_to_a_request_that_is_never_read_leaves_no_connection(run: Callable[..., Any]) -> None:
    """What was not sent of the request is not waited for, even by a connection that is only closing."""
    left = asyncio.Event()

    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.sleep(0.2)  # until its buffers and the client's are full
        writer.write(OK + b"content-length: 2\r\n\r\nno")
        await left.wait()

    async def ask(connections: ConnectionPool, url: str, _upstream: Upstream) -> None:
        with closing(await connections.request("POST", url, headers={}, data=bytes(4 * MANY))) as answer:
            assert await read(answer) == b"no"
        while connections._open:
            await asyncio.sleep(0.001)
        left.set()

    run(say, ask)


def test_a_request_that_is_answered_while_its_end_is_unsent_is_the_last_of_its_connection(
    run: Callable[..., Any],
) -> None:
    """The next one would wait behind bytes that nobody reads."""

    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(OK + b"content-length: 2\r\n\r\nno")
        if len(upstream_of[0].requests) == 2:
            await asyncio.sleep(30)  # and reads no more of the body than its buffer takes

    upstream_of: list[Upstream] = []

    async def ask(connections: ConnectionPool, url: str, upstream: Upstream) -> list[int]:
        upstream_of.append(upstream)
        counts = []
        for size in (0, 256 * 1024):
            with closing(await connections.request("POST", url, headers={}, data=bytes(size))) as answer:
                assert await read(answer) == b"no"
            free = [each for idle in connections._free.values() for each in idle if not each.is_closing]
            for each in free:
                sock = each._transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            counts.append(len(free))
        return counts

    assert run(say, ask) == [1, 0]


def test_whoever_leaves_an_answer_closes_its_connection(run: Callable[..., Any]) -> None:
    async def ask(connections: ConnectionPool, url: str, upstream: Upstream) -> None:
        with closing(await connections.request("POST", url, headers={}, data=b"{}")) as answer:
            assert await BodyReader(answer.content).read() == b"hi"
        await upstream.closed.wait()

    run(saying(CHUNKED + b"2\r\nhi\r\n"), ask)


def test_whoever_stops_waiting_closes_its_connection(run: Callable[..., Any]) -> None:
    async def ask(connections: ConnectionPool, url: str, upstream: Upstream) -> None:
        with pytest.raises(TimeoutError):
            await connections.request("POST", url, headers={}, data=b"{}")
        await upstream.closed.wait()

    run(saying(b""), ask, replace(PATIENT, first_byte=0.1))


def test_whoever_leaves_when_its_answer_is_there_ends_no_other_request(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cancelled between the end of its answer and its hearing of it. The connection is free by then,
    and has another request, which would be made twice."""
    begins = ClientConnection.on_message_begin

    async def ask(connections: ConnectionPool, url: str, upstream: Upstream) -> tuple[bytes, int, int]:
        answered = asyncio.Event()

        def begun(self: ClientConnection) -> None:
            answered.set()  # whoever waits for this goes on before the request of this answer does
            begins(self)

        async def other() -> Http1Response:
            await answered.wait()
            first.cancel()
            return await connections.request("POST", url, headers={}, data=b"2")

        monkeypatch.setattr(ClientConnection, "on_message_begin", begun)
        second = asyncio.create_task(other())
        first = asyncio.create_task(connections.request("POST", url, headers={}, data=b"1"))
        with pytest.raises(asyncio.CancelledError):
            await first
        return await read(await second), len(upstream.requests), upstream.connections

    assert run(saying(OK + b"content-length: 2\r\n\r\nhi"), ask) == (b"hi", 2, 1)


def test_a_late_reader_of_an_answer_gets_nothing_of_the_next(run: Callable[..., Any]) -> None:
    async def ask(connections: ConnectionPool, url: str, upstream: Upstream) -> list[bytes]:
        first = await connections.request("POST", url, headers={}, data=b"1")
        await asyncio.sleep(0.05)
        second = await connections.request("POST", url, headers={}, data=b"2")
        await asyncio.sleep(0.05)
        first.close()
        assert upstream.connections == 1
        return [await read(first), await read(second)]

    assert run(saying(OK + b"content-length: 2\r\n\r\nhi"), ask) == [b"hi", b"hi"]


def test_a_connection_that_is_closed_before_it_is_asked_says_so(run: Callable[..., Any]) -> None:
    async def ask(connections: ConnectionPool, url: str, _upstream: Upstream) -> None:
        connection = await connections._new_connection(request_target_of(url).origin)
        connection.abort()
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionLost):
            await connection.request(b"GET / HTTP/1.1\r\n\r\n", b"", 10)
        assert not connections._open

    run(saying(OK + b"content-length: 0\r\n\r\n"), ask)
