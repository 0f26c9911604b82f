"""How many connections a process takes, and when a peer counts as stuck or slow."""

import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from openresponses_server.http.registry import SLOWEST, ConnectionRegistry, ReceiveMonitor, SendMonitor
from openresponses_server.settings import Limits, Settings


class Connection:
    """As the registry sees one."""

    def __init__(self, *, makes_room: bool = True) -> None:
        self.makes_room = makes_room
        self.looks: list[float] = []

    def check_timeouts(self, now: float) -> None:
        self.looks.append(now)

    def close_if_idle(self) -> bool:
        return self.makes_room


class Waiting(Connection):
    """One that waits for its client."""

    def __init__(self, owner: str) -> None:
        super().__init__(makes_room=False)
        self.owner = owner
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(("files", "most"), [(resource.RLIM_INFINITY, 10), (1024, 10), (140, 6), (20, 1)])
async def test_s8_connections_leave_files_for_upstreams(
    monkeypatch: pytest.MonkeyPatch, files: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (files, files))
    registry = ConnectionRegistry(Settings(limits=Limits(connections=10)))
    connections = [Connection() for _ in range(11)]
    assert [registry.add(each) for each in connections].count(True) == most
    for each in connections:
        registry.remove(each)


async def test_s8_whoever_waits_longest_makes_room_first() -> None:
    registry = ConnectionRegistry(Settings(limits=Limits(connections=4)))
    serving, stuck, first, second = (Connection(), Connection(makes_room=False), Connection(), Connection())
    for each in (serving, stuck, first, second):
        assert registry.add(each)
        registry.mark_idle(each)
    registry.mark_busy(serving)
    late = Connection()
    assert registry.add(late)
    registry.remove(first)  # closed already
    registry.mark_busy(late)
    assert registry.add(Connection())
    assert not registry.add(Connection())
    for each in (serving, stuck, second, late):
        registry.remove(each)


async def test_s8_whoever_waits_most_makes_room_and_nobody_who_waits_once() -> None:
    registry = ConnectionRegistry(Settings(limits=Limits(connections=5)))
    one, *many, other = (Waiting(owner) for owner in ("one", "many", "many", "many", "other"))
    for each in (one, *many, other):
        assert registry.add(each)
        registry.mark_waiting(each)
    late = Connection()
    assert registry.add(late)
    assert [each.aborted for each in (one, *many, other)] == [False, True, False, False, False]
    registry.mark_served(many[1])
    assert not registry.add(Connection())
    assert not any(each.aborted for each in (one, *many[1:], other))
    for each in (one, *many, other, late):
        registry.remove(each)


class Transport:
    """As much of one as SendMonitor asks."""

    def __init__(self, connection: socket.socket | None) -> None:
        self.buffered = 0
        self._socket = connection

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def get_extra_info(self, _name: str) -> Any:
        return self._socket


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        with server:
            yield server, client


def test_s8_peer_that_accepts_nothing_is_stuck(pair: tuple[socket.socket, socket.socket]) -> None:
    server, client = pair
    server.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            server.send(b"x" * 100_000)
    sending = SendMonitor(Transport(server), 10.0)  # type: ignore[arg-type]
    assert [sending.is_stuck(now) for now in (0.0, 9.0, 10.0)] == [False, False, True]
    sending.reset()
    assert not sending.is_stuck(20.0)
    read = 0
    while read < 1_000_000:
        read += len(client.recv(100_000))
    assert not sending.is_stuck(40.0), "its system took some"


def test_s8_without_the_system_s_word_our_own_buffer_counts() -> None:
    transport = Transport(None)
    sending = SendMonitor(transport, 10.0)  # type: ignore[arg-type]
    assert not any(sending.is_stuck(now) for now in (0.0, 100.0)), "nothing is unsent"
    transport.buffered = 500
    assert [sending.is_stuck(now) for now in (100.0, 105.0, 110.0)] == [False, False, True]
    transport.buffered = 499
    assert not sending.is_stuck(120.0)


def test_s8_sender_has_to_bring_so_much_in_each_time() -> None:
    receiving = ReceiveMonitor(10.0, 1000.0)
    receiving.begin(100.0)
    receiving.add(10 * SLOWEST)
    assert not receiving.is_slow(109.0)
    assert not receiving.is_slow(110.0)
    receiving.add(10 * SLOWEST - 1)
    assert not receiving.is_slow(119.0)
    assert receiving.is_slow(120.0)


def test_s8_sender_has_to_end_in_time_without_what_it_waited_for() -> None:
    receiving = ReceiveMonitor(10.0, 25.0)
    receiving.begin(100.0)
    for now in (110.0, 120.0):
        receiving.add(100 * SLOWEST)
        assert not receiving.is_slow(now)
    receiving.wait(130.0)  # it was not read for ten seconds
    receiving.add(100 * SLOWEST)
    assert not receiving.is_slow(134.9)
    assert receiving.is_slow(135.0)
