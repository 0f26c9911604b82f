"""Hosts, as headers, flags and settings spell them."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Final, NamedTuple

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
# a name or an IPv4 address, or an IPv6 address in brackets; then a port. Nothing before, as user@ would be
_AUTHORITY: Final = re.compile(r"(?:([A-Za-z0-9._-]{1,255})|\[([0-9A-Fa-f:.]{2,45})\])(?::([0-9]{0,5}))?")


class Place(NamedTuple):
    """A host, in lower case and without a dot at its end, and a port, None where none is said."""

    host: str
    port: int | None


def place_of(authority: str) -> Place | None:
    """What `host[:port]` means, None when it is not that."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    name, address, port = found.groups()
    if name is None:
        try:
            host = str(IPv6Address(address))
        except AddressValueError:
            return None
    else:
        host = name.lower().removesuffix(".")
    return Place(host, int(port) if port else None)


def named_host(name: str) -> str | None:
    """A host as a setting names it, without a port; an IPv6 address may stand without brackets."""
    place = place_of(f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name)
    return None if place is None or place.port is not None else place.host


def is_loopback(host: str) -> bool:
    """Whether an address to bind can be reached from this machine alone. A name is none but `localhost`:
    127.example.com may be anywhere."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == LOOPBACK[0]
