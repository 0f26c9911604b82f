"""Hosts in headers, flags and settings."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Final, NamedTuple

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
PORTS: Final = {"http": 80, "https": 443}
"""The default ports of the schemes."""
# a name or an IPv4 address, or an IPv6 address in brackets; then a port; no user name before it
_AUTHORITY: Final = re.compile(r"(?:([A-Za-z0-9._-]{1,255})|\[([0-9A-Fa-f:.]{2,45})\])(?::([0-9]{0,5}))?")


class Authority(NamedTuple):
    """A host, in lower case and without a final dot, and a port; None if there is none."""

    host: str
    port: int | None


def authority_of(authority: str) -> Authority | None:
    """Parse `host[:port]`; None if it is not valid."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return None
    name, address, port = match.groups()
    if name is None:
        try:
            host = str(IPv6Address(address))
        except AddressValueError:
            return None
    else:
        host = name.lower().removesuffix(".")
    return Authority(host, int(port) if port else None)


def host_name(name: str) -> str | None:
    """Parse a host without a port; an IPv6 address may have brackets. None if it is not valid."""
    authority = authority_of(f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name)
    return None if authority is None or authority.port is not None else authority.host


def is_loopback(host: str) -> bool:
    """Return True if an address to bind can be reached only from this machine. The only name that counts is
    `localhost`: 127.example.com may be anywhere."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == LOOPBACK[0]
