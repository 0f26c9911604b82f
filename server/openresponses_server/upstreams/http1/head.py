"""An address and headers → the head of a request."""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from openresponses_server.upstreams.http1.errors import InvalidRequest

PORTS: Final = {"http": 80, "https": 443}
"""Of addresses that name none."""
_AS_IT_IS: Final = "/:@!$&'()*+,;=~%-._"  # what a path has that need not be quoted, and what is already
_OWN: Final = (
    ("user-agent", f"openresponses-bridge/{version('openresponses-bridge')}"),
    ("accept-encoding", "identity"),  # an encoder would hold tokens back
)


class Origin(NamedTuple):
    """What a connection is made to: `host` in ASCII, without brackets; a literal one needs no look-up."""

    tls: bool
    host: str
    port: int
    is_literal: bool


class Place(NamedTuple):
    """Where an address is. `target` is what a request line names; `headers` are those that the address makes,
    by their names in lower case."""

    origin: Origin
    target: str
    headers: tuple[tuple[str, str], ...]


@lru_cache(maxsize=256)
def place_of(url: str) -> Place:
    """Raises InvalidRequest for what is not an http(s) address."""
    try:
        parts = urlsplit(url)
        default = PORTS[parts.scheme]
        host, port = ascii_host(parts.hostname or ""), parts.port or default
        if not host:
            raise ValueError("no host")
    except (ValueError, KeyError) as error:
        raise InvalidRequest("its address is not an http:// or https:// one") from error
    named = named_host(host)
    headers = [("host", named if port == default else f"{named}:{port}")]
    if parts.username is not None:
        shown = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers.append(("authorization", f"Basic {b64encode(shown.encode()).decode()}"))
    target = quote(parts.path, safe=_AS_IT_IS) or "/"
    if parts.query:
        target += "?" + quote(parts.query, safe=_AS_IT_IS + "?")
    return Place(Origin(parts.scheme == "https", host, port, is_literal(host)), target, tuple(headers))


def head_of(method: str, place: Place, headers: Mapping[str, str], length: int) -> bytes:
    """The head of a request with a body of `length` bytes; `headers` replace ours of the same names. Raises
    InvalidRequest for one that would not end where its line does."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers) or "\0" in lines:
        raise InvalidRequest("a header has a line end in it")
    begun = _begun(method, place, tuple(headers))
    if method != "GET":
        begun += f"content-length: {length}\r\n"
    return f"{begun}{lines}\r\n".encode("utf-8", "surrogateescape")


@lru_cache(maxsize=256)
def _begun(method: str, place: Place, names: tuple[str, ...]) -> str:
    """The lines of a head that are ours; `names` are those that the request's own headers have."""
    given = {name.lower() for name in names}
    own = "".join([f"{name}: {value}\r\n" for name, value in (*place.headers, *_OWN) if name not in given])
    return f"{method} {place.target} HTTP/1.1\r\n{own}"


def ascii_host(host: str) -> str:
    """A host's name as it is looked up and named to a server. Raises ValueError when it can't be one."""
    return host if host.isascii() else host.encode("idna").decode()


def named_host(host: str) -> str:
    """A host as an address has it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_literal(host: str) -> bool:
    """Whether it is an address, which needs no look-up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
