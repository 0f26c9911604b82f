"""The dialects of upstreams, as one table: where requests go, and with which headers. Its rows are made of
the dialects' own entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from openresponses_bridge.dialects.base import Dialect, UpstreamSide
from openresponses_bridge.dialects.table import dialects

# What a user writes as an upstream's address → the address below which its paths stand.

_VERSION: Final = "/v1"


def base_url(url: str) -> str:
    """As OpenAI's clients take it: `/v1` where no path is given, no slash at the end.

    Raises ValueError for what is not an http(s) address.
    """
    path = _path_of(url)
    return url.rstrip("/") + ("" if path else _VERSION)


def versioned_base_url(url: str) -> str:
    """As Anthropic's clients take it: what they add `/v1/messages` to, with or without that `/v1`.

    Raises ValueError for what is not an http(s) address.
    """
    path = _path_of(url)
    return url.rstrip("/") + ("" if path.endswith(_VERSION) else _VERSION)


def without_password(url: str) -> str:
    """The address as logs and messages may name it: neither what stands before an `@` nor a query. A password
    may hold any sign, so that what stands before the last `@` goes first."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    return f"{scheme}{separator}{rest.rpartition('@')[2].partition('?')[0]}"


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{without_password(url)!r} is not an http:// or https:// address")
    if parts.query or parts.fragment:
        raise ValueError(
            f"{without_password(url)!r} has a query or a fragment, which a base address must not have"
        )
    return parts.path.rstrip("/")


class KeyHeader(NamedTuple):
    """Where a key goes, and what stands before it."""

    name: str
    prefix: str = ""


class HttpDialect(NamedTuple):
    """One row. `side` is the dialect as the upstream speaks it; `path` is below the upstream's address, which
    `address` makes of what the user wrote."""

    dialect: Dialect
    side: UpstreamSide
    path: str
    address: Callable[[str], str] = base_url
    key_header: KeyHeader = KeyHeader("authorization", "Bearer ")
    headers: Mapping[str, str] = MappingProxyType({})


class ProcessDialect(NamedTuple):
    """A row of one that a process speaks: it has neither path nor address."""

    dialect: Dialect
    side: UpstreamSide
    path: str = ""

    def address(self, url: str) -> str:
        """The address, which is empty. Raises ValueError for any other."""
        if url:
            raise ValueError(f"dialect {self.dialect.name} is a process and has no address")
        return url


UpstreamDialect = HttpDialect | ProcessDialect


def http_dialect(dialect: Dialect) -> HttpDialect:
    """The row of a dialect that is spoken over HTTP."""
    assert dialect.upstream is not None
    endpoint = dialect.upstream.endpoint
    assert endpoint is not None
    return HttpDialect(
        dialect,
        dialect.upstream,
        endpoint.path,
        versioned_base_url if endpoint.versioned else base_url,
        KeyHeader(endpoint.key_header, endpoint.key_prefix),
        endpoint.headers,
    )


DIALECTS: Final[Mapping[str, UpstreamDialect]] = {
    name: ProcessDialect(each, each.upstream) if each.upstream.endpoint is None else http_dialect(each)
    for name, each in reversed(dialects().items())
    if each.upstream is not None
}
"""Those that most servers speak first, as people read them."""
CHAT: Final = http_dialect(dialects()["chat"])
RESPONSES: Final = http_dialect(dialects()["responses"])
DEFAULT: Final = CHAT.dialect.name  # what an upstream speaks of which nothing else is known
