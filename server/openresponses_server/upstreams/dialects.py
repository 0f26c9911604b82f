"""The dialects of upstreams, as one table: where requests go, and with which headers. Its rows are made of
the dialects' own entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from openresponses_bridge.dialects.base import Dialect, UpstreamSide
from openresponses_bridge.dialects.table import dialects
from openresponses_server.upstreams.addresses import base_url, versioned_base_url


class KeyHeader(NamedTuple):
    """Where a key goes, and what stands before it."""

    name: str
    prefix: str = ""


class HttpDialect(NamedTuple):
    """One row. `path` is below the upstream's address, which `address` makes of what the user wrote."""

    dialect: Dialect
    path: str
    address: Callable[[str], str] = base_url
    key_header: KeyHeader = KeyHeader("authorization", "Bearer ")
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def side(self) -> UpstreamSide:
        """The dialect as the upstream speaks it."""
        assert self.dialect.upstream is not None
        return self.dialect.upstream


class ProcessDialect(NamedTuple):
    """A row of one that a process speaks: it has neither path nor address."""

    dialect: Dialect
    path: str = ""

    @property
    def side(self) -> UpstreamSide:
        """The dialect as the upstream speaks it."""
        assert self.dialect.upstream is not None
        return self.dialect.upstream

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
        endpoint.path,
        versioned_base_url if endpoint.versioned else base_url,
        KeyHeader(endpoint.key_header, endpoint.key_prefix),
        endpoint.headers,
    )


DIALECTS: Final[Mapping[str, UpstreamDialect]] = {
    name: ProcessDialect(each) if each.upstream.endpoint is None else http_dialect(each)
    for name, each in reversed(dialects().items())
    if each.upstream is not None
}
"""Those that most servers speak first, as people read them."""
CHAT: Final = http_dialect(dialects()["chat"])
RESPONSES: Final = http_dialect(dialects()["responses"])
DEFAULT: Final = CHAT.dialect.name  # what an upstream speaks of which nothing else is known
