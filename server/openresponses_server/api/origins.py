"""Law S10: the hosts for which requests are answered, and the web pages that may send them.

A browser sends requests of any page to any address, including the user's own computer, and under any name,
because the page's name server can resolve its name to 127.0.0.1. A page can't set the headers `host`,
`origin` and `sec-fetch-site`. Any client can set `x-forwarded-host`, so it is not read.

| | without keys | with keys |
| --- | --- | --- |
| another host than those known | refused | refused where `allowed_hosts` is set, except for probes |
| a page of another origin (`null` is one), not in `cors_origins` | refused | refused |
| `sec-fetch-site: cross-site` without an origin that may ask | refused | refused |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from starlette.types import Scope

from openresponses_server.errors import HttpError
from openresponses_server.http.headers import HeaderFields
from openresponses_server.settings import Settings
from openresponses_server.settings.hosts import LOOPBACK, PORTS, Authority, authority_of, host_name

_ANY: Final = "*"
_PROBE_PATHS: Final = frozenset({"/healthz", "/readyz"})  # requested by IP address or by the name of a pod
_ORIGIN: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,63})://(.{1,320})")
_BROWSER_HEADERS: Final = ("origin", "sec-fetch-site")  # headers that browsers set
_MOST_CACHED: Final = 16  # spellings of known hosts, which are not parsed again
_SHOWN: Final = 80  # characters


class Origins:
    """Refuses requests with unknown host names, and those of pages of other origins."""

    def __init__(self, settings: Settings) -> None:
        self._every_page = _ANY in settings.cors_origins
        self._pages = frozenset(filter(None, map(_parse_origin, settings.cors_origins)))
        self._keyed = settings.asks_for_keys
        self._hosts: frozenset[str] | None = None
        if settings.allowed_hosts or not self._keyed:
            named = (*LOOPBACK, settings.host, *settings.allowed_hosts)
            self._hosts = frozenset(filter(None, map(host_name, named)))
        self._spelled: set[str] = set()

    def check(self, scope: Scope, headers: HeaderFields) -> None:
        """Raises HttpError."""
        is_known = headers.get("host") in self._spelled and headers.are_single
        if is_known and headers.keys().isdisjoint(_BROWSER_HEADERS):
            return
        path, hosts = scope["path"], headers.getlist("host")
        if len(hosts) > 1:
            raise HttpError(400, "The request has several Host headers.", code="invalid_host")
        if not hosts and scope["http_version"] == "1.1":  # RFC 9112, 3.2
            raise HttpError(400, "The request has no Host header.", code="invalid_host")
        authority = authority_of(hosts[0]) if hosts else None
        if not self._is_known_host(authority, path):
            raise _unknown_host(hosts[0] if hosts else "")
        if authority is not None and len(self._spelled) < _MOST_CACHED and self._is_known_host(authority, ""):
            self._spelled.add(hosts[0])
        self._check_page(authority, headers.getlist("origin"), headers.get("sec-fetch-site", ""))

    def _is_known_host(self, authority: Authority | None, path: str) -> bool:
        if self._hosts is None or (self._keyed and path in _PROBE_PATHS):
            return True
        return authority is not None and authority.host in self._hosts

    def _check_page(self, authority: Authority | None, origins: Iterable[str], site: str) -> None:
        has_origin = False
        for origin in origins:
            has_origin = True
            if not self._is_allowed(origin, authority):
                raise _foreign_origin(origin)
        if not has_origin and site.strip().lower() == "cross-site" and not self._every_page:
            raise _foreign_origin("another site")

    def _is_allowed(self, origin: str, authority: Authority | None) -> bool:
        normal = _parse_origin(origin)
        if self._every_page or (normal is not None and normal in self._pages):
            return True
        return normal is not None and authority is not None and normal == _origin_at(normal.scheme, authority)


class _AllowedOrigin(NamedTuple):
    scheme: str
    host: str
    port: int | None


def _parse_origin(origin: str) -> _AllowedOrigin | None:
    """Parse an origin; the port defaults to that of the scheme. None for `null` and for values that no
    browser sends."""
    match = _ORIGIN.fullmatch(origin.strip())
    authority = None if match is None else authority_of(match[2])
    return None if match is None or authority is None else _origin_at(match[1].lower(), authority)


def _origin_at(scheme: str, authority: Authority) -> _AllowedOrigin:
    """Return the origin of this server's pages with this scheme: a proxy may terminate TLS."""
    return _AllowedOrigin(
        scheme, authority.host, PORTS.get(scheme) if authority.port is None else authority.port
    )


def _unknown_host(host: str) -> HttpError:
    what = f"The server is not known as {host[:_SHOWN]!r}" if host else "The request names no host"
    return HttpError(403, f"{what}: see --allowed-host.", code="host_not_allowed")


def _foreign_origin(origin: str) -> HttpError:
    return HttpError(
        403,
        f"A web page of another origin ({origin[:_SHOWN]}) can't use this server: see cors_origins.",
        code="origin_not_allowed",
    )
