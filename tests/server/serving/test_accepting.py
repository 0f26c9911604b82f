"""Workers take turns at accepting simultaneous connections."""

import asyncio
import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from openresponses_server.serving import worker
from openresponses_server.serving.worker import GradualAcceptServer

COUNT = 32


class _Noted(asyncio.Protocol):
    def __init__(self, made: list[asyncio.BaseTransport]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.append(transport)


class _Full(socket.socket):
    """Once the process may open no more files."""

    failed = False

    def accept(self) -> Any:
        if not self.failed:
            self.failed = True
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(COUNT)
        yield sock


def connected(listener: socket.socket, stack: ExitStack, count: int) -> None:
    for _ in range(count):
        stack.enter_context(socket.create_connection(listener.getsockname(), 5))


async def until(made: list[asyncio.BaseTransport], count: int) -> None:
    while len(made) < count:
        await asyncio.sleep(0.001)


async def test_connections_that_wait_are_taken_in_turns(listener: socket.socket) -> None:
    transports: list[list[asyncio.BaseTransport]] = [[], []]
    with ExitStack() as stack, listener.dup() as other:
        connected(listener, stack, COUNT)
        servers = [
            GradualAcceptServer(each, lambda into=into: _Noted(into))  # type: ignore[misc]
            for each, into in zip((listener, other), transports, strict=True)
        ]
        while sum(map(len, transports)) < COUNT:
            await asyncio.sleep(0.001)
        assert min(map(len, transports)) >= COUNT // 2 - 1
        for server in servers:
            server.close()
            await server.wait_closed()
        for transport in [*transports[0], *transports[1]]:
            transport.close()


class _Pending:
    """A listener at which so many connections are pending."""

    def __init__(self) -> None:
        self.pending = 0

    def setblocking(self, _blocking: bool) -> None: ...
    def fileno(self) -> int:
        return -1

    def accept(self) -> Any:
        if not self.pending:
            raise BlockingIOError
        self.pending -= 1
        accepted, client = socket.socketpair()
        client.close()
        return accepted, None


async def test_s8_as_many_are_accepted_as_come_however_long_an_iteration_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In each of them some have come meanwhile, far more than one."""
    monkeypatch.setattr(GradualAcceptServer, "_listen", lambda _self: None)
    transports: list[asyncio.BaseTransport] = []
    listener = _Pending()
    server = GradualAcceptServer(cast(Any, listener), lambda: _Noted(transports))
    waited = []
    for _ in range(60):
        listener.pending += 6
        server._accept()
        waited.append(listener.pending)
    assert waited.index(0) < 20
    assert max(waited[20:]) == 0
    await until(transports, 360)
    for transport in transports:
        transport.close()


async def test_none_is_taken_when_it_is_closed(listener: socket.socket) -> None:
    transports: list[asyncio.BaseTransport] = []
    with ExitStack() as stack:
        server = GradualAcceptServer(listener, lambda: _Noted(transports))
        connected(listener, stack, 1)
        await until(transports, 1)
        with listener.dup() as duplicate:
            server.close()
            server.close()
            connected(duplicate, stack, 1)
            await asyncio.sleep(0.05)
        assert len(transports) == 1
        transports[0].close()


async def test_a_process_that_may_open_no_more_files_tries_it_again(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_RETRY_SECONDS", 0.01)
    transports: list[asyncio.BaseTransport] = []
    with ExitStack() as stack, _Full(fileno=listener.detach()) as full:
        server = GradualAcceptServer(full, lambda: _Noted(transports))
        connected(full, stack, 1)
        await until(transports, 1)
        assert full.failed
        server.close()
        transports[0].close()
