"""The connections to one server, kept alive and reused.

A server may close an idle connection at the moment in which it is reused. A request that fails for this
reason is retried once, on a new connection. This applies only to a reused connection on which no byte of an
answer was received (RFC 9110, 9.2.2): a request that fails otherwise may have been acted on, and a new
connection that fails would fail again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final, TypedDict, TypeVar

import structlog
from aiohappyeyeballs import start_connection

from openresponses_server.http.client.body import FairScheduler
from openresponses_server.http.client.connect_options import (
    ConnectOptions,
    ConnectOptionsError,
    TlsOptions,
    tls_context,
)
from openresponses_server.http.client.connection import (
    ClientConnection,
    Http1Response,
    Origin,
    RequestTarget,
    request_head,
    request_target_of,
)
from openresponses_server.http.client.failures import ConnectError, ConnectionLost, cause_of, is_permanent
from openresponses_server.http.client.proxies import Proxy, Tunnel, proxy_refusal
from openresponses_server.http.client.upload import Upload
from openresponses_server.settings import Timeouts
from openresponses_server.tasks import retrieve_exception

_LOOKUP_SECONDS: Final = 10.0  # for which the result of a look-up is used
_NEXT_ADDRESS_SECONDS: Final = 0.25  # until the next address is tried in parallel (RFC 8305)

AddressInfo = tuple[Any, ...]
"""A tuple of `getaddrinfo`."""
GetAddressInfo = Callable[..., Awaitable[list[AddressInfo]]]
"""`getaddrinfo` of an event loop."""
AnyProtocol = TypeVar("AnyProtocol", bound=asyncio.Protocol)


class _Tls(TypedDict, total=False):
    """asyncio's arguments for TLS; empty without it."""

    ssl: ssl.SSLContext
    server_hostname: str


class Connector:
    """Opens connections to one server, directly or through a proxy or a Unix socket. Concurrent look-ups of
    one name share the result."""

    def __init__(self, options: ConnectOptions) -> None:
        self._loop = asyncio.get_running_loop()
        self._getaddrinfo: GetAddressInfo = self._loop.getaddrinfo
        self._options = options
        self._lookups: dict[tuple[str, int], tuple[float, asyncio.Task[list[AddressInfo]]]] = {}

    async def connect(
        self, origin: Origin, factory: Callable[[], AnyProtocol], *, is_tunnelled: bool = False
    ) -> AnyProtocol:
        """Open a connection to this origin. `is_tunnelled`: a proxy only tunnels, even without TLS. Raises
        OSError."""
        options = self._options
        try:
            proxy = options.proxy_of(origin)
            if options.socket is not None:
                return await self._connect_over_socket(options.socket, origin, factory)
            if proxy is None:
                return (await self._connect_directly(origin, factory, options.tls_options))[1]
            return await self._connect_through(proxy, origin, factory, origin.tls or is_tunnelled)
        except ConnectOptionsError as error:
            raise _misconfigured(error) from error

    async def _connect_over_socket(
        self, path: str, origin: Origin, factory: Callable[[], AnyProtocol]
    ) -> AnyProtocol:
        with _verification_errors(self._options.tls_options):
            try:
                tls = self._tls(origin, self._options.tls_options)
                _, connection = await self._loop.create_unix_connection(factory, path, **tls)
            except ssl.SSLError:
                raise
            except OSError as error:
                what = (
                    "its socket does not exist" if isinstance(error, FileNotFoundError) else cause_of(error)
                )
                why = f"the socket {path}: {os.strerror(error.errno) if error.errno else what}"
                raise ConnectError(what, why) from error
        return connection

    async def _connect_through(
        self, proxy: Proxy, origin: Origin, factory: Callable[[], AnyProtocol], is_tunnelled: bool
    ) -> AnyProtocol:
        tls_options = self._options.proxy_tls_options
        if not is_tunnelled:  # the proxy forwards each request
            with _proxy_errors(proxy):
                return (await self._connect_directly(proxy.origin, factory, tls_options))[1]
        with _proxy_errors(proxy):
            tunnel_factory = partial(Tunnel, self._loop, proxy, origin)
            transport, tunnel = await self._connect_directly(proxy.origin, tunnel_factory, tls_options)
        try:
            await tunnel.establish(transport)
            connection = factory()
            if origin.tls:
                with _verification_errors(self._options.tls_options):
                    context = tls_context(self._options.tls_options)
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

    async def _connect_directly(
        self, origin: Origin, factory: Callable[[], AnyProtocol], tls_options: TlsOptions
    ) -> tuple[asyncio.Transport, AnyProtocol]:
        """A connection to this origin without a proxy."""
        tls = self._tls(origin, tls_options)
        if origin.is_literal:
            with _verification_errors(tls_options):
                return await self._loop.create_connection(factory, origin.host, origin.port, **tls)
        addresses = await self._addresses(origin.host, origin.port)
        try:
            sock = await self._socket(addresses)
        except OSError:
            self._lookups.pop((origin.host, origin.port), None)
            raise
        try:
            with _verification_errors(tls_options):
                return await self._loop.create_connection(factory, sock=sock, **tls)
        except BaseException:
            sock.close()
            raise

    def _tls(self, origin: Origin, tls_options: TlsOptions) -> _Tls:
        return {"ssl": tls_context(tls_options), "server_hostname": origin.host} if origin.tls else {}

    async def _addresses(self, host: str, port: int) -> list[AddressInfo]:
        now = self._loop.time()
        since, look = self._lookups.get((host, port), (0.0, None))
        if look is None or (look.done() and (now - since > _LOOKUP_SECONDS or look.exception() is not None)):
            look = self._loop.create_task(self._look_up(host, port))
            look.add_done_callback(retrieve_exception)
            self._lookups[host, port] = now, look
        return await asyncio.shield(look)

    async def _look_up(self, host: str, port: int) -> list[AddressInfo]:
        return await self._getaddrinfo(host, port, type=socket.SOCK_STREAM)

    async def _socket(self, addresses: list[AddressInfo]) -> socket.socket:
        return await start_connection(
            addresses, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS, interleave=1, loop=self._loop
        )

    def close(self) -> None:
        for _, look in self._lookups.values():
            look.cancel()
        self._lookups.clear()


def _misconfigured(error: ConnectOptionsError) -> ConnectError:
    return ConnectError("its connection is not set up correctly", str(error), permanent=True)


@contextmanager
def _verification_errors(tls_options: TlsOptions) -> Iterator[None]:
    """Turn a certificate that is not accepted into a ConnectError whose cause names what is trusted."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        what = "its certificate is not accepted"
        why = f"{what}: {error.verify_message or error.reason}; {tls_options.described}"
        raise ConnectError(what, why, permanent=True) from error


@contextmanager
def _proxy_errors(proxy: Proxy) -> Iterator[None]:
    """Turn failures into a ConnectError that names the proxy."""
    try:
        yield
    except OSError as error:
        what = "the proxy can't be reached"
        why = f"the proxy {proxy.address} can't be reached: {cause_of(error)}"
        raise ConnectError(what, why, permanent=is_permanent(error)) from error


_PROXY_AUTHENTICATION_REQUIRED: Final = 407  # RFC 9110, 15.5.8
_MAX_TARGETS: Final = 64  # addresses whose request targets are kept
_IDLE_SECONDS: Final = 15.0  # after which an unused connection is closed
_STALE_SECONDS: Final = 1.0  # in which the end of a connection that was closed before arrives
_log = structlog.get_logger(__name__)


class ConnectionPool:
    """The connections to one server. Make it in the event loop that uses it."""

    def __init__(
        self,
        name: str,
        timeouts: Timeouts,
        options: ConnectOptions | None = None,
        connector: Callable[[ConnectOptions], Connector] = Connector,
    ) -> None:
        """`name`: the upstream's, for the log; with "" nothing is logged. `options`: by default those of the
        environment. `connector` makes what opens the connections."""
        self._name = name
        self._options = options or ConnectOptions()
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._scheduler = FairScheduler()
        self._connector = connector(self._options)
        self._open: set[ClientConnection] = set()
        self._free: dict[Origin, list[ClientConnection]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._target_of = lru_cache(_MAX_TARGETS)(self._find_target)
        if self._options.tls_options.verify is False:
            _log.warning("upstream.certificate_not_verified", upstream=name)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        data: bytes | Upload = b"",
        session: str = "",
        once: bool = False,
    ) -> Http1Response:
        """Send a request. Returns when the head of the answer was received. The request is sent again on a
        new connection if a reused one was closed so soon that the server can't have received it; with `once`
        it never is, since even then the server may have acted on it. `session` makes no difference: a server
        keeps nothing for a connection. Raises OSError, and what reading an `Upload` raises."""
        target = self._target_of(url)
        body = data.whole if isinstance(data, Upload) and data.whole is not None else data
        head = request_head(method, target, headers, body.length if isinstance(body, Upload) else len(body))
        # what is read as it is sent can't be sent again, so that it needs a new connection
        reused = None if isinstance(body, Upload) else self._idle_connection(target.origin)
        if reused is not None:
            try:
                answer = await reused.request(head, body, self._timeouts.first_byte)
            except TimeoutError:
                raise
            except OSError as error:
                if once or reused.has_received:
                    raise
                if method != "GET" and reused.worked > _STALE_SECONDS:
                    after = f"{reused.worked:.1f} seconds after the request"
                    raise ConnectionLost(f"it closed the connection {after}, before its answer") from error
                if self._name:
                    _log.info("upstream.connection_stale", upstream=self._name, reason=cause_of(error))
                answer = await self._request_on_new(target, head, body)
        else:
            answer = await self._request_on_new(target, head, body)
        if answer.status == _PROXY_AUTHENTICATION_REQUIRED:
            self._check_proxy_status(target, answer)
        return answer

    async def _request_on_new(
        self, target: RequestTarget, head: bytes, body: bytes | Upload
    ) -> Http1Response:
        new = await self._new_connection(target.origin)
        return await new.request(head, body, self._timeouts.first_byte)

    def _find_target(self, url: str) -> RequestTarget:
        try:
            return self._options.target(request_target_of(url))
        except ConnectOptionsError as error:
            raise _misconfigured(error) from error

    async def connect(self, url: str, factory: Callable[[], AnyProtocol]) -> AnyProtocol:
        """A connection outside the pool, for a WebSocket; the caller closes it. Raises OSError."""
        async with asyncio.timeout(self._timeouts.connect):
            return await self._connector.connect(request_target_of(url).origin, factory, is_tunnelled=True)

    def _check_proxy_status(self, target: RequestTarget, answer: Http1Response) -> None:
        """Raises ConnectError if this demand for credentials is the proxy's own."""
        proxy = None if target.origin.tls else self._options.proxy_of(target.origin)
        if proxy is not None:
            answer.close()
            raise proxy_refusal(proxy, answer.status, target.target)

    def prewarm(
        self, url: str, *, headers: Mapping[str, str], session: str = "", conversation: str = ""
    ) -> None:
        """Do nothing: a connection for HTTP is opened when it is needed."""

    async def close(self) -> None:
        """Close all connections."""
        if self._timer is not None:
            self._timer.cancel()
        self._connector.close()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)  # in which the system closes them

    def _idle_connection(self, origin: Origin) -> ClientConnection | None:
        """The most recently used one, so that the others reach their idle timeout."""
        free = self._free.get(origin)
        while free:
            connection = free.pop()
            if not connection.is_closing:
                return connection
        return None

    async def _new_connection(self, origin: Origin) -> ClientConnection:
        factory = partial(
            ClientConnection, self._scheduler, partial(self._release, origin), self._open.discard
        )
        async with asyncio.timeout(self._timeouts.connect):
            connection = await self._connector.connect(origin, factory)
        if not connection.is_closing:
            self._open.add(connection)
        return connection

    def _release(self, origin: Origin, connection: ClientConnection) -> None:
        connection.free_since = self._loop.time()
        self._free.setdefault(origin, []).append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(_IDLE_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        """Close the connections that were idle too long."""
        now, wait = self._loop.time(), None
        for origin, free in list(self._free.items()):
            idle = [each for each in free if now - each.free_since >= _IDLE_SECONDS or each.is_closing]
            for connection in idle:
                connection.abort()
                free.remove(connection)
            if free:
                wait = min(each.free_since for each in free) + _IDLE_SECONDS - now
            else:
                del self._free[origin]
        self._timer = None if wait is None else self._loop.call_later(max(wait, 1.0), self._close_idle)
