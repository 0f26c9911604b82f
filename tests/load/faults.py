"""A TCP proxy that breaks connections according to a schedule with a seed, so that a run can be repeated."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import Final, NamedTuple

from tests.support.listening import listening

_READ: Final = 65_536
_PIECE: Final = 7  # bytes of each piece of what is split


class Kind(StrEnum):
    """A fault of one direction of a connection."""

    DELAY = "delay"
    SPLIT = "split"
    BANDWIDTH = "bandwidth"
    STALL = "stall"
    CORRUPT = "corrupt"
    CUT = "cut"
    RESET = "reset"
    HALF_CLOSE = "half-close"


HARMLESS: Final = frozenset({Kind.DELAY, Kind.SPLIT, Kind.BANDWIDTH})
"""Kinds of faults after which every byte still arrives."""
BREAKING: Final = frozenset({Kind.CUT, Kind.RESET, Kind.HALF_CLOSE})


class Fault(NamedTuple):
    """A fault after `at` bytes of this direction; `size` is seconds of a delay or stall, or bytes per
    second."""

    kind: Kind
    towards_target: bool
    at: int
    size: float = 0.0


class Schedule(NamedTuple):
    """Decides which connections break and how, from their number alone: `share` of them break, within their
    first `within` bytes. The same seed gives the same faults."""

    seed: int
    kinds: tuple[Kind, ...]
    share: float = 1.0
    within: int = 4_000
    seconds: float = 0.5

    def of(self, connection: int) -> tuple[Fault, ...]:
        """The faults of this connection."""
        chance = random.Random(f"{self.seed}:{connection}")
        if not self.kinds or chance.random() >= self.share:
            return ()
        kind = chance.choice(self.kinds)
        size = chance.uniform(2_000, 20_000) if kind is Kind.BANDWIDTH else chance.uniform(0.0, self.seconds)
        return (Fault(kind, chance.random() < 0.25, chance.randrange(self.within), size),)


NONE: Final = Schedule(0, ())


class FaultProxy:
    """Listens on `port` and passes connections on to the ports of this machine in `targets`, in turn.
    `schedule` applies to connections that begin from now on; `count` has the number of faults that have
    happened."""

    def __init__(self, target: int, schedule: Schedule = NONE) -> None:
        self.targets = [target]
        self.schedule = schedule
        self.port = 0
        self.accepted = 0
        self.count: Counter[Kind] = Counter()
        self._open: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[FaultProxy]:
        """Accept connections within the context."""
        async with listening(self._serve) as self.port:
            yield self

    def reset_all(self) -> int:
        """Reset every open connection; returns how many there were."""
        count = len(self._open)
        for pair in list(self._open):
            _reset(pair)
        return count

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        faults = self.schedule.of(self.accepted)
        target = self.targets[self.accepted % len(self.targets)]
        self.accepted += 1
        there, out = await asyncio.open_connection("127.0.0.1", target)
        pair = (writer, out)
        self._open.add(pair)
        try:
            with suppress(OSError, RuntimeError):  # uvloop raises this for a closed transport
                await self._pass(reader, there, pair, faults)
        finally:
            self._open.discard(pair)
            for each in pair:
                each.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        there: asyncio.StreamReader,
        pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        faults: tuple[Fault, ...],
    ) -> None:
        writer, out = pair
        towards, back = (
            asyncio.create_task(
                self._copy(
                    source, to, pair, [each for each in faults if each.towards_target is towards_target]
                )
            )
            for source, to, towards_target in ((reader, out, True), (there, writer, False))
        )
        try:
            await asyncio.gather(towards, back)
        finally:
            towards.cancel()
            back.cancel()

    async def _copy(
        self,
        source: asyncio.StreamReader,
        to: asyncio.StreamWriter,
        pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        faults: Iterable[Fault],
    ) -> None:
        passed = 0
        waiting = sorted(faults, key=lambda fault: fault.at)
        lasting: Fault | None = None
        while data := await source.read(_READ):
            while waiting and passed + len(data) > waiting[0].at:
                fault = waiting.pop(0)
                self.count[fault.kind] += 1
                before, data = data[: fault.at - passed], data[fault.at - passed :]
                passed += len(before)
                await _write(to, before, lasting)
                match fault.kind:
                    case Kind.DELAY | Kind.SPLIT | Kind.BANDWIDTH:
                        lasting = fault
                    case Kind.STALL:
                        await asyncio.sleep(fault.size)
                    case Kind.CORRUPT:
                        data = bytes([data[0] ^ 0x20]) + data[1:]
                    case Kind.CUT:
                        for each in pair:
                            each.close()
                        return
                    case Kind.RESET:
                        _reset(pair)
                        return
                    case Kind.HALF_CLOSE:
                        to.write_eof()
                        while await source.read(_READ):
                            pass  # data that arrives later is lost
                        return
            passed += len(data)
            await _write(to, data, lasting)
        with suppress(OSError, RuntimeError):
            to.write_eof()


async def _write(to: asyncio.StreamWriter, data: bytes, lasting: Fault | None) -> None:
    kind = None if lasting is None else lasting.kind
    if kind is Kind.SPLIT:
        for start in range(0, len(data), _PIECE):
            to.write(data[start : start + _PIECE])
            await to.drain()
            await asyncio.sleep(0)
        return
    if lasting is not None and kind is Kind.DELAY:
        await asyncio.sleep(lasting.size / 10)
    if lasting is not None and kind is Kind.BANDWIDTH:
        await asyncio.sleep(len(data) / lasting.size)
    to.write(data)
    await to.drain()


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST."""
    if (sock := writer.get_extra_info("socket")) is not None:  # a closed connection has no socket
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _reset(pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
    for each in pair:
        reset(each)
