"""Proxies between us and an upstream: their addresses, where the environment asks for one, and the tunnel
that one makes."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
from base64 import b64encode
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

from openresponses_server.http.client.connection import PORTS, Origin, ascii_host, is_literal, named_host
from openresponses_server.http.client.failures import NotReached

_LARGEST_HEAD: Final = 16 * 1024  # bytes of an answer to CONNECT
_END: Final = b"\r\n\r\n"
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: |\r\n)")
_WHO_ASKS: Final = (401, 407)  # tinyproxy answers 401 to a wrong password
_TLS_ALERT: Final = b"\x15\x03"
_ENTRY: Final = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>[0-9]{1,5}))?")
_ALL: Final = "*"


class Proxy:
    """One proxy. `address` is how messages may name it: without the user and the password, which stand in
    `authorization` alone."""

    __slots__ = ("address", "authorization", "origin", "secrets")

    def __init__(self, url: str) -> None:
        """Raises ValueError, whose message does not quote the address."""
        given = url.strip() if "://" in url else f"http://{url.strip()}"
        try:
            parts = urlsplit(given)
            host, port = ascii_host(parts.hostname or ""), parts.port
        except ValueError:  # its message may quote a part of the password
            host, port = "", None
        if not host or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError(
                "it is not an address as http://user:password@host:port, with what is special in a password "
                "percent-encoded"
            )
        if parts.scheme not in PORTS:
            raise ValueError(
                f"{parts.scheme}:// is not a kind of proxy that can be used: http:// and https:// are"
            )
        self.origin = Origin(parts.scheme == "https", host, port or PORTS[parts.scheme], is_literal(host))
        self.address = f"{parts.scheme}://{named_host(host)}:{self.origin.port}"
        self.authorization = ""
        self.secrets: tuple[str, ...] = ()
        if parts.username is not None:
            password = unquote(parts.password or "")
            shown = b64encode(f"{unquote(parts.username)}:{password}".encode()).decode()
            self.authorization = f"Basic {shown}"
            self.secrets = (password, parts.password or "", shown)

    def __repr__(self) -> str:
        return f"Proxy({self.address})"


class Exceptions:
    """Hosts that are reached without a proxy, as `NO_PROXY` lists them: names, which stand for what is below
    them too, with or without a dot or `*.` before them; addresses and networks (`10.0.0.0/8`); each with
    or without a port; `*` for all. Names are not looked up."""

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
            found = _ENTRY.fullmatch(entry)
        if found is None:
            return
        host, port = found["host"].strip("[]"), int(found["port"]) if found["port"] else None
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
        """Whether this one is reached without a proxy."""
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
    """Whether it is reached over loopback (RFC 6761, 6.3 for names)."""
    if origin.is_literal:
        return ipaddress.ip_address(origin.host).is_loopback
    host = origin.host.lower().rstrip(".")
    return host == "localhost" or host.endswith(".localhost")


def environment_proxy(origin: Origin) -> Proxy | None:
    """What the environment asks for: `HTTPS_PROXY` or `HTTP_PROXY`, by the scheme of the upstream, else
    `ALL_PROXY`, with the exceptions of `NO_PROXY`; each in lower case first, and an empty one does not count.
    This machine is reached without. Raises ValueError naming the variable."""
    given = getproxies_environment()
    scheme = "https" if origin.tls else "http"
    kind = scheme if given.get(scheme) else "all"
    url = given.get(kind)
    if not url or is_this_machine(origin) or Exceptions(given.get("no", "")).has(origin):
        return None
    try:
        return Proxy(url)
    except ValueError as error:
        name = f"{kind}_proxy"
        raise ValueError(f"{name if name in os.environ else name.upper()}: {error}") from None


class Tunnel(asyncio.Protocol):
    """A connection to a proxy until that has answered to CONNECT (RFC 9110, 9.3.6)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, proxy: Proxy, origin: Origin) -> None:
        self._proxy = proxy
        self._target = f"{named_host(origin.host)}:{origin.port}"
        self._came = bytearray()
        self._made: asyncio.Future[None] = loop.create_future()

    async def open(self, transport: asyncio.WriteTransport) -> None:
        """Have it made. Raises NotReached."""
        lines = [f"CONNECT {self._target} HTTP/1.1", f"host: {self._target}"]
        if self._proxy.authorization:
            lines.append(f"proxy-authorization: {self._proxy.authorization}")
        transport.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        await self._made

    def data_received(self, data: bytes) -> None:
        if self._made.done():
            return
        seen = len(self._came)
        self._came += data
        end = self._came.find(_END, max(seen - len(_END) + 1, 0))
        if end < 0 and len(self._came) <= _LARGEST_HEAD:
            return
        line = _STATUS_LINE.match(self._came)
        if line is None or end < 0:
            self._fail(no_http(self._proxy, bytes(self._came)))
            return
        status = int(line[1])
        rest = bytes(self._came[end + len(_END) :])
        if status < 200:
            self._came.clear()
            self.data_received(rest)
        elif status >= 300:
            self._fail(refused(self._proxy, status, self._target))
        elif rest:  # TLS is begun by us: these would be taken for the upstream's
            self._fail(no_http(self._proxy, rest))
        else:
            self._made.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        what = "closed the connection before an answer"
        if self._came[: len(_TLS_ALERT)] == _TLS_ALERT:
            self._fail(no_http(self._proxy, bytes(self._came)))
        self._fail(NotReached(f"the proxy {what}", f"the proxy {self._proxy.address} {what}"))

    def _fail(self, error: NotReached) -> None:
        if not self._made.done():
            self._made.set_exception(error)


def refused(proxy: Proxy, status: int, target: str) -> NotReached:
    """The proxy has answered so where the upstream was asked for."""
    if status in _WHO_ASKS:
        asks = (
            "does not accept the user and password" if proxy.authorization else "asks for a user and password"
        )
        return NotReached(f"the proxy {asks}", f"the proxy {proxy.address} {asks}", lasting=True)
    what = f"refuses to connect to it (status {status})"
    cause = f"the proxy {proxy.address} refuses to connect to {target} (status {status})"
    return NotReached(f"the proxy {what}", cause, lasting=status < 500)


def no_http(proxy: Proxy, came: bytes) -> NotReached:
    """What answers there is not a proxy."""
    tls = came.startswith(_TLS_ALERT)
    why = "it speaks TLS: is its address https://?" if tls else "it does not speak HTTP"
    what = "what answers at the proxy's address is not a proxy"
    return NotReached(what, f"{what}: {proxy.address}, {why}", lasting=True)
