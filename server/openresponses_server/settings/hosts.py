"""Hosts, as headers, flags and settings spell them."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Final, NamedTuple

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
# a name or an IPv4 address, or an IPv6 address in brackets; then a port. Nothing before, as user@ would be
_AUTHORITY: Final = re.compile(r"(?:([A-Za-z0-9._-]{1,255})|\[([0-9A-Fa-f:.]{2,45})\])(?::([0-9]{0,5}))?")


class Authority(NamedTuple):
    """A host, in lower case and without a dot at its end, and a port, None when it is left out."""

    host: str
    port: int | None


def authority_of(authority: str) -> Authority | None:
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
    return Authority(host, int(port) if port else None)


def named_host(name: str) -> str | None:
    """A host as a setting names it, without a port; an IPv6 address may be without brackets."""
    found = authority_of(f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name)
    return None if found is None or found.port is not None else found.host


def is_loopback(host: str) -> bool:
    """Whether an address to bind can be reached from this machine alone. The only name that counts is
    `localhost`: 127.example.com may be anywhere."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == LOOPBACK[0]
