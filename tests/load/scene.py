"""The environment of a server under load: its services, its process, and the faults of both."""

from __future__ import annotations

import asyncio
import glob
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tests.load.faults import NONE, FaultProxy, Kind, Schedule
from tests.load.watch import children
from tests.support.processes import base_of, started
from tests.support.services import OwnPostgres, OwnRedis, can_mount, own_postgres, own_redis

_HELD: Final = 10.0  # seconds of a fault that lasts
_ROOM: Final = 3 << 30  # bytes of PostgreSQL's file system
_HOUR: Final = 3600
_REPLACED: Final = 90.0  # seconds within which workers have been replaced
_KEY_BYTES: Final = 32
_LIMITS: Final = """
[limits]
concurrent_per_key = 10000
background = 10000
background_per_key = 10000
connections = 20000
readers = 10000
readers_per_key = 10000
sockets = 10000
sockets_per_key = 10000
"""


class Services(NamedTuple):
    """A database and a Redis of the load's own."""

    postgres: OwnPostgres
    redis: OwnRedis


class Scene:
    """The services (None if the store is a file, as by default), the links to them (only with faults), the
    server's process and its `port` for clients. `flags` start another server over the same services; `store`
    is the store's file."""

    def __init__(
        self,
        folder: Path,
        links: dict[str, FaultProxy],
        services: Services | None,
        model_pid: int,
        server: tuple[subprocess.Popen[str], tuple[str, ...], int],
    ) -> None:
        self.links = links
        self.services = services
        self.model_pid = model_pid
        self.process, self.flags, self.direct_port = server
        self.port = links["clients"].port if links else self.direct_port
        self.store = store_of(folder)
        self._folder = folder

    @property
    def postgres(self) -> OwnPostgres:
        """The database of a scene that has one."""
        assert self.services is not None
        return self.services.postgres

    @property
    def redis(self) -> OwnRedis:
        """The Redis of a scene that has one."""
        assert self.services is not None
        return self.services.redis

    def workers(self) -> list[int]:
        """The worker processes."""
        return children(self.process.pid) or [self.process.pid]

    def set_clock(self, seconds: int) -> None:
        """Set the offset of the server's clock in seconds."""
        set_clock(self._folder / "clock", seconds)

    @contextmanager
    def another(self, clock: int) -> Iterator[subprocess.Popen[str]]:
        """Start one more server, as on another machine, whose clock is off by so many seconds."""
        file = self._folder / "another clock"
        set_clock(file, clock)
        with (
            (self._folder / "log").open("a") as output,
            started(
                *self.flags,
                folder=self._folder,
                errors=output.fileno(),
                environment=clock_of(file),
                forked=False,
            ) as process,
        ):
            yield process

    async def replace_workers(self) -> None:
        """Replace all workers, and wait until the present ones have ended."""
        before = set(self.workers())
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + _REPLACED
        while before & set(self.workers()):
            assert time.monotonic() < deadline, "the workers are not replaced"
            await asyncio.sleep(0.2)

    async def rotate_keys(self) -> None:
        """Make a new key the one that seals, as docs/backup.md says: envelopes of all earlier keys can still
        be opened."""
        file = _sealing_keys(self._folder)
        new, used = secrets.token_bytes(_KEY_BYTES), file.read_bytes()
        for keys in (used + new, new + used):
            _replace(file, keys)
            await self.replace_workers()


def store_of(folder: Path) -> Path:
    """The file with the responses of a server with the default store."""
    return folder / "responses.sqlite3"


def _sealing_keys(folder: Path) -> Path:
    return folder / "openresponses-bridge" / "sealing.key"


def _replace(file: Path, data: bytes) -> None:
    draft = file.with_name(f"{file.name}.draft")
    draft.touch(mode=0o600)
    draft.write_bytes(data)
    draft.replace(file)


def set_clock(file: Path, seconds: int) -> None:
    """Set the offset of the clock for processes with the environment that `clock_of` makes from this file."""
    _replace(file, b"%+d" % seconds)


def _faketime() -> str | None:
    return max(glob.glob("/usr/lib/*/faketime/libfaketime.so.1"), default=None)


def clock_of(file: Path) -> dict[str, str]:
    """The environment of a process whose clock has the offset in the file; its monotonic clock and the times
    of files are the machine's. `time.sleep` fails in such a process, since libfaketime takes the monotonic
    time until which it sleeps for a time of its own clock."""
    library = _faketime()
    if library is None:
        return {}
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


Happening = Callable[[Scene, random.Random], Awaitable[None]]


class Fault(NamedTuple):
    """A fault; `missing` says why it can't happen on this machine, or is empty."""

    happen: Happening
    missing: Callable[[], str] = str
    of_services: bool = False
    """Whether the fault affects PostgreSQL or Redis."""


def _on(link: str, *kinds: Kind) -> Fault:
    async def fault(scene: Scene, chance: random.Random) -> None:
        proxy = scene.links[link]
        before = proxy.count.copy()
        proxy.schedule = Schedule(chance.randrange(1 << 30), kinds, 0.7)
        if link in ("postgresql", "redis"):
            proxy.reset_all()  # connections are kept, so that the faults need new ones
        await asyncio.sleep(_HELD)
        proxy.schedule = NONE
        proxy.reset_all()
        assert link != "upstream" or proxy.count - before, "no fault happened"

    return Fault(fault, of_services=link in ("postgresql", "redis"))


async def _restart(server: OwnRedis | OwnPostgres) -> None:
    await asyncio.to_thread(server.stop)
    await asyncio.sleep(2)
    await asyncio.to_thread(server.start)


async def _redis_restarts(scene: Scene, _chance: random.Random) -> None:
    await _restart(scene.redis)


async def _redis_freezes(scene: Scene, _chance: random.Random) -> None:
    scene.redis.freeze()
    await asyncio.sleep(_HELD)
    scene.redis.thaw()


async def _postgres_restarts(scene: Scene, _chance: random.Random) -> None:
    await _restart(scene.postgres)


async def _disk_full(scene: Scene, _chance: random.Random) -> None:
    await asyncio.to_thread(scene.postgres.fill)
    await asyncio.sleep(_HELD)
    await asyncio.to_thread(scene.postgres.make_room)


async def _worker_killed(scene: Scene, chance: random.Random) -> None:
    with suppress(ProcessLookupError):
        os.kill(chance.choice(scene.workers()), signal.SIGKILL)
    await asyncio.sleep(_HELD)


async def _worker_frozen(scene: Scene, chance: random.Random) -> None:
    worker = chance.choice(scene.workers())
    os.kill(worker, signal.SIGSTOP)
    try:
        await asyncio.sleep(_HELD)
    finally:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)


async def _workers_replaced(scene: Scene, _chance: random.Random) -> None:
    await scene.replace_workers()


async def _keys_rotated(scene: Scene, _chance: random.Random) -> None:
    await scene.rotate_keys()


def _clock_steps(seconds: int) -> Happening:
    async def fault(scene: Scene, _chance: random.Random) -> None:
        scene.set_clock(seconds)
        await asyncio.sleep(_HELD)
        scene.set_clock(0)

    return fault


async def _clocks_differ(scene: Scene, chance: random.Random) -> None:
    with ExitStack() as stack:
        process = stack.enter_context(scene.another(chance.choice((-_HOUR, _HOUR))))
        targets = scene.links["clients"].targets
        port = port_of(await asyncio.to_thread(base_of, process))
        targets.append(port)
        await asyncio.sleep(_HELD)
        targets.remove(port)
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, _REPLACED)


def _no_mount() -> str:
    return "" if can_mount() else "no file system can be mounted here (root)"


def _no_faketime() -> str:
    return "" if _faketime() else "libfaketime is not installed"


_BYTES: Final = (Kind.DELAY, Kind.SPLIT, Kind.BANDWIDTH, Kind.STALL)
_BREAKS: Final = (Kind.CUT, Kind.RESET, Kind.HALF_CLOSE)
CORRUPTS: Final = "upstream corrupts"
"""The fault after which a text may differ. Other links are not corrupted: only TLS would detect a changed
byte on the way to PostgreSQL or Redis, so there is no outcome to require."""
FAULTS: Final[dict[str, Fault]] = {
    "slow upstream": _on("upstream", *_BYTES),
    "upstream breaks": _on("upstream", *_BREAKS),
    CORRUPTS: _on("upstream", Kind.CORRUPT),
    "slow clients": _on("clients", *_BYTES),
    "clients break": _on("clients", *_BREAKS),
    "slow PostgreSQL": _on("postgresql", *_BYTES),
    "PostgreSQL breaks": _on("postgresql", *_BREAKS),
    "slow Redis": _on("redis", *_BYTES),
    "Redis breaks": _on("redis", *_BREAKS),
    "Redis restarts": Fault(_redis_restarts, of_services=True),
    "Redis freezes": Fault(_redis_freezes, of_services=True),
    "PostgreSQL restarts": Fault(_postgres_restarts, of_services=True),
    "disk full": Fault(_disk_full, _no_mount, of_services=True),
    "a worker is killed": Fault(_worker_killed),
    "a worker is frozen": Fault(_worker_frozen),
    "workers are replaced": Fault(_workers_replaced),
    "sealing keys rotated": Fault(_keys_rotated),
    "clocks go ahead": Fault(_clock_steps(_HOUR), _no_faketime),
    "clocks go back": Fault(_clock_steps(-_HOUR), _no_faketime),
    "clocks differ": Fault(_clocks_differ, _no_faketime),
}
"""Clocks jump by an hour, and return after ten seconds."""


def port_of(address: str) -> int:
    """The port in an address."""
    port = urlsplit(address).port
    assert port is not None
    return port


@asynccontextmanager
async def standing(
    workers: int, folder: Path, *, faults: bool, default_store: bool = False
) -> AsyncIterator[Scene]:
    """Start the whole scene; with `faults`, each link goes through a proxy, and clocks can be set. With
    `default_store` there are a file of SQLite and event logs in files, and neither PostgreSQL nor Redis."""
    with ExitStack() as stack:
        async with AsyncExitStack() as proxied:
            links: dict[str, FaultProxy] = {}

            async def through(link: str, port: int) -> int:
                if not faults:
                    return port
                links[link] = await proxied.enter_async_context(FaultProxy(port).listening())
                return links[link].port

            model = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.load.model"], stdout=subprocess.PIPE, text=True
                )
            )
            stack.callback(model.kill)
            assert model.stdout is not None
            upstream = await through("upstream", int(model.stdout.readline()))
            services: Services | None = None
            stored: tuple[str, ...] = ("--store", f"sqlite:///{store_of(folder)}")
            if not default_store:
                services = Services(
                    stack.enter_context(own_postgres(_ROOM if faults and can_mount() else None)),
                    stack.enter_context(own_redis()),
                )
                database = await through("postgresql", port_of(services.postgres.url))
                log = await through("redis", port_of(services.redis.url))
                stored = (
                    *("--event-log", f"redis://127.0.0.1:{log}/0"),
                    *("--store", f"postgresql+psycopg://postgres@127.0.0.1:{database}/test"),
                )

            config = folder / "config.toml"
            config.write_text(f'[[upstreams]]\nurl = "http://127.0.0.1:{upstream}/v1"\n{_LIMITS}')
            keys = _sealing_keys(folder)
            keys.parent.mkdir(mode=0o700)
            _replace(keys, secrets.token_bytes(_KEY_BYTES))
            set_clock(folder / "clock", 0)
            flags = ("--config", str(config), *stored)
            output = stack.enter_context((folder / "log").open("a"))
            process = stack.enter_context(
                started(
                    *flags,
                    *("--workers", str(workers)),
                    folder=folder,
                    errors=output.fileno(),
                    environment=clock_of(folder / "clock") if faults else None,
                    forked=False,
                )
            )
            port = port_of(await asyncio.to_thread(base_of, process))
            await through("clients", port)
            yield Scene(folder, links, services, model.pid, (process, flags, port))
