"""The connections to one server. A pooled one may be closed without this side knowing yet: its server
closed it in the moment in which it was taken. A request that meets such a one is made once more, on a new
one.

That is only for a connection that was used before, on which no byte of an answer came (RFC 9110, 9.2.2): a
request that fails otherwise may have been acted on, and a new connection that fails would fail again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypedDict, TypeVar

import structlog
from aiohappyeyeballs import start_connection

from openresponses_server.http.client.body import FairScheduler
from openresponses_server.http.client.connection import (
    Connection,
    Http1Response,
    Origin,
    RequestTarget,
    head_of,
    request_target_of,
)
from openresponses_server.http.client.failures import NotReached, cause_of, is_lasting
from openresponses_server.http.client.proxies import Proxy, Tunnel, refused
from openresponses_server.http.client.ways import Trust, Way, WayError, tls_context
from openresponses_server.settings import Timeouts

# An origin → a connection to it: its name looked up, its certificate checked, through what is between.

_KNOWN: Final = 10.0  # seconds that a look-up is used for
_NEXT_ADDRESS: Final = 0.25  # seconds until another address is tried beside the one before (RFC 8305)

AddressInfo = tuple[Any, ...]
"""As `getaddrinfo` gives it."""
_Protocol = TypeVar("_Protocol", bound=asyncio.Protocol)


class _Tls(TypedDict, total=False):
    """What asyncio's connections take for TLS; empty without it."""

    ssl: ssl.SSLContext
    server_hostname: str


class Reaching:
    """Of one upstream. A name is looked up once for all who ask at the same time."""

    def __init__(self, way: Way) -> None:
        self._loop = asyncio.get_running_loop()
        self._way = way
        self._known: dict[tuple[str, int], tuple[float, asyncio.Task[list[AddressInfo]]]] = {}

    async def connect(
        self, origin: Origin, made: Callable[[], _Protocol], *, is_tunnelled: bool = False
    ) -> _Protocol:
        """`is_tunnelled`: a proxy does not ask itself, even without TLS. Raises OSError."""
        way = self._way
        try:
            proxy = way.proxy_of(origin)
            if way.socket is not None:
                return await self._over_socket(way.socket, origin, made)
            if proxy is None:
                return (await self._opened(origin, made, way.trust))[1]
            return await self._through(proxy, origin, made, origin.tls or is_tunnelled)
        except WayError as error:
            raise _not_set_up(error) from error

    async def _over_socket(self, path: str, origin: Origin, made: Callable[[], _Protocol]) -> _Protocol:
        with _verified(self._way.trust):
            try:
                tls = self._tls(origin, self._way.trust)
                _, connection = await self._loop.create_unix_connection(made, path, **tls)
            except ssl.SSLError:
                raise
            except OSError as error:
                what = "its socket is not there" if isinstance(error, FileNotFoundError) else cause_of(error)
                why = f"the socket {path}: {os.strerror(error.errno) if error.errno else what}"
                raise NotReached(what, why) from error
        return connection

    async def _through(
        self, proxy: Proxy, origin: Origin, made: Callable[[], _Protocol], is_tunnelled: bool
    ) -> _Protocol:
        trust = self._way.proxy_trust
        if not is_tunnelled:  # the proxy asks itself
            with _to_proxy(proxy):
                return (await self._opened(proxy.origin, made, trust))[1]
        with _to_proxy(proxy):
            begun = partial(Tunnel, self._loop, proxy, origin)
            transport, tunnel = await self._opened(proxy.origin, begun, trust)
        try:
            await tunnel.open(transport)
            connection = made()
            if origin.tls:
                with _verified(self._way.trust):
                    context = tls_context(self._way.trust)
                    secured = await self._loop.start_tls(
                        transport, connection, context, server_hostname=origin.host
                    )
                assert secured is not None
                transport = secured
            else:
                transport.set_protocol(connection)
            connection.connection_made(transport)
        except BaseException:
            transport.abort()
            raise
        return connection

    async def _opened(
        self, origin: Origin, made: Callable[[], _Protocol], trust: Trust
    ) -> tuple[asyncio.Transport, _Protocol]:
        """A connection to where this is, with nothing in between."""
        tls = self._tls(origin, trust)
        if origin.is_literal:
            with _verified(trust):
                return await self._loop.create_connection(made, origin.host, origin.port, **tls)
        addresses = await self._addresses(origin.host, origin.port)
        try:
            found = await self._socket(addresses)
        except OSError:
            self._known.pop((origin.host, origin.port), None)
            raise
        try:
            with _verified(trust):
                return await self._loop.create_connection(made, sock=found, **tls)
        except BaseException:
            found.close()
            raise

    def _tls(self, origin: Origin, trust: Trust) -> _Tls:
        return {"ssl": tls_context(trust), "server_hostname": origin.host} if origin.tls else {}

    async def _addresses(self, host: str, port: int) -> list[AddressInfo]:
        now = self._loop.time()
        since, look = self._known.get((host, port), (0.0, None))
        if look is None or (look.done() and (now - since > _KNOWN or look.exception() is not None)):
            look = self._loop.create_task(self._look_up(host, port))
            look.add_done_callback(_retrieved)
            self._known[host, port] = now, look
        return await asyncio.shield(look)

    async def _look_up(self, host: str, port: int) -> list[AddressInfo]:
        return await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)

    async def _socket(self, addresses: list[AddressInfo]) -> socket.socket:
        return await start_connection(
            addresses, happy_eyeballs_delay=_NEXT_ADDRESS, interleave=1, loop=self._loop
        )

    def close(self) -> None:
        for _, look in self._known.values():
            look.cancel()
        self._known.clear()


def _not_set_up(error: WayError) -> NotReached:
    return NotReached("it is not set up to be reached", str(error), lasting=True)


@contextmanager
def _verified(trust: Trust) -> Iterator[None]:
    """A certificate that is not accepted is a failure of its own, which names what is trusted."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        what = "its certificate is not accepted"
        why = f"{what}: {error.verify_message or error.reason}; {trust.described}"
        raise NotReached(what, why, lasting=True) from error


@contextmanager
def _to_proxy(proxy: Proxy) -> Iterator[None]:
    """What fails in it is the proxy's matter."""
    try:
        yield
    except OSError as error:
        what = "the proxy can't be reached"
        why = f"the proxy {proxy.address} can't be reached: {cause_of(error)}"
        raise NotReached(what, why, lasting=is_lasting(error)) from error


def _retrieved(look: asyncio.Task[list[AddressInfo]]) -> None:
    """Nobody may be left who waits for it."""
    if not look.cancelled():
        look.exception()


_WHO_ASKS: Final = 407  # Proxy Authentication Required (RFC 9110, 15.5.8)
_IDLE: Final = 15.0  # seconds after which a connection that nobody needs is closed
_log = structlog.get_logger(__name__)


class Connections:
    """Made in the event loop that they are used in; `name` is the upstream's, for the log; where it is
    "" nothing is logged. `way` is how it is reached: without one as the environment says."""

    def __init__(self, name: str, timeouts: Timeouts, way: Way | None = None) -> None:
        self._name = name
        self._way = way or Way()
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._scheduler = FairScheduler()
        self._reaching = Reaching(self._way)
        self._open: set[Connection] = set()
        self._free: dict[Origin, list[Connection]] = {}
        self._timer: asyncio.TimerHandle | None = None
        if self._way.trust.verify is False:
            _log.warning("upstream.certificate_not_verified", upstream=name)

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], data: bytes = b""
    ) -> Http1Response:
        """The answer, when its head is here. Raises OSError."""
        try:
            target = self._way.target(request_target_of(url))
        except WayError as error:
            raise _not_set_up(error) from error
        head = head_of(method, target, headers, len(data))
        pooled = self._pooled(target.origin)
        if pooled is not None:
            try:
                return self._of_upstream(target, await pooled.ask(head, data, self._timeouts.first_byte))
            except TimeoutError:
                raise
            except OSError as error:
                if not pooled.is_stale:
                    raise
                if self._name:
                    _log.info("upstream.connection_stale", upstream=self._name, reason=cause_of(error))
        new = await self._connected(target.origin)
        return self._of_upstream(target, await new.ask(head, data, self._timeouts.first_byte))

    async def connect(self, url: str, made: Callable[[], _Protocol]) -> _Protocol:
        """A connection of one's own to where this address is, for a WebSocket; whoever asked for it closes
        it. Raises OSError."""
        async with asyncio.timeout(self._timeouts.connect):
            return await self._reaching.connect(request_target_of(url).origin, made, is_tunnelled=True)

    def _of_upstream(self, target: RequestTarget, answer: Http1Response) -> Http1Response:
        """The same answer, unless it is a proxy's own that asks who we are."""
        if answer.status == _WHO_ASKS and not target.origin.tls:
            proxy = self._way.proxy_of(target.origin)
            if proxy is not None:
                answer.close()
                raise refused(proxy, answer.status, target.target)
        return answer

    async def close(self) -> None:
        """Close them all."""
        if self._timer is not None:
            self._timer.cancel()
        self._reaching.close()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)  # in which the system closes them

    def _pooled(self, origin: Origin) -> Connection | None:
        """The one that was used last, so that the others can go."""
        free = self._free.get(origin)
        while free:
            connection = free.pop()
            if not connection.is_closing:
                return connection
        return None

    async def _connected(self, origin: Origin) -> Connection:
        made = partial(Connection, self._scheduler, partial(self._is_free, origin), self._open.discard)
        async with asyncio.timeout(self._timeouts.connect):
            connection = await self._reaching.connect(origin, made)
        if not connection.is_closing:
            self._open.add(connection)
        return connection

    def _is_free(self, origin: Origin, connection: Connection) -> None:
        connection.free_since = self._loop.time()
        self._free.setdefault(origin, []).append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(_IDLE, self._look)

    def _look(self) -> None:
        """Close those that nobody has needed for a while."""
        now, wait = self._loop.time(), None
        for origin, free in list(self._free.items()):
            idle = [each for each in free if now - each.free_since >= _IDLE or each.is_closing]
            for connection in idle:
                connection.abort()
                free.remove(connection)
            if free:
                wait = min(each.free_since for each in free) + _IDLE - now
            else:
                del self._free[origin]
        self._timer = None if wait is None else self._loop.call_later(max(wait, 1.0), self._look)
