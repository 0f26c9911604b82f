"""Gets files from addresses that strangers have named: from the public internet alone (law S10)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from functools import partial
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from openresponses_server.http.client.connect_options import WITHOUT_PROXY, ConnectOptions
from openresponses_server.http.client.connection import Http1Response, Origin
from openresponses_server.http.client.pool import AddressInfo, AnyProtocol, ConnectionPool, Connector
from openresponses_server.http.flow import BodyReader
from openresponses_server.settings import Timeouts
from openresponses_server.tasks import wait_on_thread


class PatientConnector(Connector):
    """Opens connections to hosts that clients have named: a name is looked up on a thread of its own, so that
    nothing else waits for it."""

    def __init__(self, options: ConnectOptions) -> None:
        super().__init__(options)
        self._getaddrinfo = _getaddrinfo


class PublicConnector(PatientConnector):
    """Opens connections to addresses of the public internet only (law S10). A name is looked up once, and
    the connection is made to the addresses that were checked."""

    async def connect(
        self, origin: Origin, factory: Callable[[], AnyProtocol], *, is_tunnelled: bool = False
    ) -> AnyProtocol:
        """Raises OSError, also for a host with an address that is not public."""
        if origin.is_literal and not is_public(origin.host):
            raise NotPublic
        return await super().connect(origin, factory, is_tunnelled=is_tunnelled)

    async def _look_up(self, host: str, port: int) -> list[AddressInfo]:
        addresses = await super()._look_up(host, port)
        if not addresses or not all(is_public(each[4][0]) for each in addresses):
            raise NotPublic
        return addresses


async def _getaddrinfo(host: str, port: int, **options: Any) -> list[AddressInfo]:
    """Resolve as the event loop does, but few names at once: those that clients give may take long."""
    return await wait_on_thread(partial(socket.getaddrinfo, host, port, **options))


class NotPublic(ConnectionError):
    """A host has an address that is not public."""


# Tables of our own: those of `ipaddress` differ between releases of Python. IANA's registries of special
# addresses, of 2026-11, and services of clouds that are there inside alone, and give keys to whoever asks.
_INSIDE_V4: Final = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
            *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            "168.63.129.16/32",  # Azure
            "192.80.8.124/32",  # Equinix Metal
            *("161.26.0.0/16", "166.8.0.0/14"),  # IBM Cloud
        ),
    )
)
_GLOBAL_V6: Final = ip_network("2000::/3")  # all of the public internet
_INSIDE_V6: Final = tuple(map(ip_network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_NAT64: Final = ip_network("64:ff9b::/96")  # IPv4 addresses as IPv6 (RFC 6052)


def is_public(address: str) -> bool:
    """Return True if this is an address of the public internet; an IPv4 address within an IPv6 one counts
    too."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv4Address):
        return not any(ip in each for each in _INSIDE_V4)
    if ip.scope_id is not None:
        return False
    ipv4 = ip.ipv4_mapped or ip.sixtofour
    if ipv4 is None and ip in _NAT64:
        ipv4 = IPv4Address(int(ip) & 0xFFFF_FFFF)
    if ipv4 is not None:
        return is_public(str(ipv4))
    return ip in _GLOBAL_V6 and not any(ip in each for each in _INSIDE_V6)


class FetchError(ValueError):
    """A file that can't be fetched. The message is for the client, and reveals nothing of this network."""


class FetchedFile(NamedTuple):
    """A file's media type, in lower case and without parameters, and its bytes."""

    media_type: str
    data: bytes


_MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_LONGEST_ADDRESS: Final = 8 * 1024  # characters
_UNREACHABLE: Final = "its server can't be reached at a public address"


async def fetch_file(
    url: str,
    accepts: Callable[[str], bool],
    *,
    most: int,
    seconds: float,
    connector: Callable[[ConnectOptions], Connector] = PublicConnector,
    admits: Callable[[str], bool] = lambda _url: True,
) -> FetchedFile:
    """Get a file of at most `most` bytes from an http:// or https:// address of the public internet within
    `seconds`, redirects included, each of which is checked as the address is. `accepts` says whether a media
    type is wanted, `admits` whether an address may be asked. No proxy is used: it would look up the name
    again. Raises FetchError."""
    timeouts = Timeouts(connect=seconds, first_byte=seconds, idle=seconds, total=seconds)
    pool = ConnectionPool("", timeouts, ConnectOptions(proxy=WITHOUT_PROXY), connector)
    try:
        async with asyncio.timeout(seconds):
            for _ in range(_MOST_REDIRECTS + 1):
                if not admits(_checked(url)):
                    raise FetchError("its address is not one that may be asked")
                answer = await pool.request("GET", url, headers={"accept": "*/*"})
                with closing(answer):
                    if answer.status not in _REDIRECTS:
                        return await _file_of(answer, accepts, most)
                    url = urljoin(url, answer.headers.get("location", ""))
    except TimeoutError:
        raise FetchError(f"it did not arrive within {seconds:g} seconds") from None
    except (OSError, ValueError, UnicodeError) as error:
        if isinstance(error, FetchError):
            raise
        raise FetchError(_UNREACHABLE) from error
    finally:
        await pool.close()
    raise FetchError(f"it redirects more than {_MOST_REDIRECTS} times")


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or len(url) > _LONGEST_ADDRESS:
        raise FetchError("its address is not an http:// or https:// one")
    if "@" in parts.netloc:
        raise FetchError("its address has a user name")
    return url


async def _file_of(answer: Http1Response, accepts: Callable[[str], bool], most: int) -> FetchedFile:
    if answer.status != 200:
        raise FetchError(f"its server answered with status {answer.status}")
    media = answer.headers.get("content-type", "")[:200].partition(";")[0].strip().lower()
    if not accepts(media):
        raise FetchError("its type is not one of those that are accepted")
    length = answer.headers.get("content-length", "")
    too_long = FetchError(f"it is larger than {most} bytes")
    if length.isascii() and length.isdigit() and (len(length) > 12 or int(length) > most):
        raise too_long
    data = await BodyReader(answer.content).collect(most + 1)
    if len(data) > most:
        raise too_long
    return FetchedFile(media, data)
