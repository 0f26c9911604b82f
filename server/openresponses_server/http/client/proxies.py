"""Proxies: their addresses, the environment's variables for them, and tunnels through them."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
from base64 import b64encode
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

from openresponses_server.http.client.connection import Origin, ascii_host, bracketed_host, is_literal
from openresponses_server.http.client.failures import ConnectError
from openresponses_server.settings.hosts import PORTS

_MOST_HEAD_BYTES: Final = 16 * 1024  # bytes of an answer to CONNECT
_END: Final = b"\r\n\r\n"
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: |\r\n)")  # of an answer to CONNECT
_AUTHENTICATION_STATUSES: Final = (401, 407)  # tinyproxy answers 401 to a wrong password
_TLS_ALERT: Final = b"\x15\x03"
_ENTRY: Final = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>[0-9]{1,5}))?")
_ALL: Final = "*"


class Proxy:
    """One proxy. `address`, for messages, has no user and no password; `authorization` has them."""

    __slots__ = ("address", "authorization", "origin", "secrets")

    def __init__(self, url: str) -> None:
        """Raises ValueError, whose message does not quote the address."""
        full_url = url.strip() if "://" in url else f"http://{url.strip()}"
        try:
            parts = urlsplit(full_url)
            host, port = ascii_host(parts.hostname or ""), parts.port
        except ValueError:  # its message may quote a part of the password
            host, port = "", None
        if not host or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError(
                "it is not an address such as http://user:password@host:port, with special "
                "characters of the password percent-encoded"
            )
        if parts.scheme not in PORTS:
            raise ValueError(f"{parts.scheme}:// is not supported for a proxy, only http:// and https:// are")
        self.origin = Origin(parts.scheme == "https", host, port or PORTS[parts.scheme], is_literal(host))
        self.address = f"{parts.scheme}://{bracketed_host(host)}:{self.origin.port}"
        self.authorization = ""
        self.secrets: tuple[str, ...] = ()
        if parts.username is not None:
            password = unquote(parts.password or "")
            shown = b64encode(f"{unquote(parts.username)}:{password}".encode()).decode()
            self.authorization = f"Basic {shown}"
            self.secrets = (password, parts.password or "", shown)

    def __repr__(self) -> str:
        return f"Proxy({self.address})"


class NoProxyList:
    """The hosts that the variable `NO_PROXY` lists, which are reached without a proxy: names, which include
    their subdomains, with or without a dot or `*.` before them; addresses and networks (`10.0.0.0/8`); each
    with or without a port; `*` for all. Names are not looked up."""

    def __init__(self, listed: str) -> None:
        self._names: list[tuple[str, int | None]] = []
        self._networks: list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, int | None]] = []
        self._all = False
        for entry in listed.replace(",", " ").split():
            self._add(entry.lower())

    def _add(self, entry: str) -> None:
        if entry == _ALL:
            self._all = True
            return
        try:  # an IPv6 address has colons without a port behind them
            self._networks.append((ipaddress.ip_network(entry, strict=False), None))
            return
        except ValueError:
            match = _ENTRY.fullmatch(entry)
        if match is None:
            return
        host, port = match["host"].strip("[]"), int(match["port"]) if match["port"] else None
        try:
            self._networks.append((ipaddress.ip_network(host, strict=False), port))
        except ValueError:
            name = host.removeprefix("*").strip(".")
            try:
                name = ascii_host(name)
            except ValueError:
                return  # no host has that name
            if name:
                self._names.append((name, port))

    def has(self, origin: Origin) -> bool:
        """Return True if this host is listed."""
        if self._all:
            return True
        host = origin.host.lower().rstrip(".")
        if origin.is_literal:
            address = ipaddress.ip_address(host)
            mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
            return any(
                port in (None, origin.port) and ((mapped or address) in network or address in network)
                for network, port in self._networks
            )
        return any(
            port in (None, origin.port) and (host == name or host.endswith(f".{name}"))
            for name, port in self._names
        )


def is_this_machine(origin: Origin) -> bool:
    """Return True if the host is on loopback (RFC 6761, 6.3 for names)."""
    if origin.is_literal:
        return ipaddress.ip_address(origin.host).is_loopback
    host = origin.host.lower().rstrip(".")
    return host == "localhost" or host.endswith(".localhost")


def environment_proxy(origin: Origin) -> Proxy | None:
    """The proxy that the environment names for this origin: in `HTTPS_PROXY` or `HTTP_PROXY`, by the scheme,
    else in `ALL_PROXY`, with the exceptions of `NO_PROXY`; each in lower case first, and an empty one does
    not count. None for this machine. Raises ValueError, which names the variable."""
    proxies = getproxies_environment()
    scheme = "https" if origin.tls else "http"
    kind = scheme if proxies.get(scheme) else "all"
    url = proxies.get(kind)
    if not url or is_this_machine(origin) or NoProxyList(proxies.get("no", "")).has(origin):
        return None
    try:
        return Proxy(url)
    except ValueError as error:
        name = f"{kind}_proxy"
        raise ValueError(f"{name if name in os.environ else name.upper()}: {error}") from None


class Tunnel(asyncio.Protocol):
    """A connection to a proxy until the proxy has answered CONNECT (RFC 9110, 9.3.6)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, proxy: Proxy, origin: Origin) -> None:
        self._proxy = proxy
        self._target = f"{bracketed_host(origin.host)}:{origin.port}"
        self._received = bytearray()
        self._opened: asyncio.Future[None] = loop.create_future()

    async def establish(self, transport: asyncio.WriteTransport) -> None:
        """Request the tunnel and wait for it. Raises ConnectError."""
        lines = [f"CONNECT {self._target} HTTP/1.1", f"host: {self._target}"]
        if self._proxy.authorization:
            lines.append(f"proxy-authorization: {self._proxy.authorization}")
        transport.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        await self._opened

    def data_received(self, data: bytes) -> None:
        if self._opened.done():
            return
        seen = len(self._received)
        self._received += data
        while not self._opened.done():
            end = self._received.find(_END, max(seen - len(_END) + 1, 0))
            if end < 0 and len(self._received) <= _MOST_HEAD_BYTES:
                return
            line = _STATUS_LINE.match(self._received)
            if line is None or end < 0:
                self._fail(not_a_proxy(self._proxy, bytes(self._received)))
                return
            status = int(line[1])
            del self._received[: end + len(_END)]
            seen = 0
            if status >= 300:
                self._fail(proxy_refusal(self._proxy, status, self._target))
            elif status >= 200 and self._received:
                # the client begins TLS: bytes of the proxy would be read as the upstream's
                self._fail(not_a_proxy(self._proxy, bytes(self._received)))
            elif status >= 200:
                self._opened.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        what = "closed the connection before its answer"
        if self._received[: len(_TLS_ALERT)] == _TLS_ALERT:
            self._fail(not_a_proxy(self._proxy, bytes(self._received)))
        self._fail(ConnectError(f"the proxy {what}", f"the proxy {self._proxy.address} {what}"))

    def _fail(self, error: ConnectError) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)


def proxy_refusal(proxy: Proxy, status: int, target: str) -> ConnectError:
    """The error for a proxy that answers with this status instead of connecting to `target`."""
    if status in _AUTHENTICATION_STATUSES:
        asks = (
            "does not accept the user and password" if proxy.authorization else "asks for a user and password"
        )
        return ConnectError(f"the proxy {asks}", f"the proxy {proxy.address} {asks}", permanent=True)
    what = f"refuses to connect to it (status {status})"
    cause = f"the proxy {proxy.address} refuses to connect to {target} (status {status})"
    return ConnectError(f"the proxy {what}", cause, permanent=status < 500)


def not_a_proxy(proxy: Proxy, received: bytes) -> ConnectError:
    """The error for an answer that is not a proxy's."""
    tls = received.startswith(_TLS_ALERT)
    why = "it speaks TLS: is its address https://?" if tls else "it does not speak HTTP"
    what = "what answers at the proxy's address is not a proxy"
    return ConnectError(what, f"{what}: {proxy.address}, {why}", permanent=True)
