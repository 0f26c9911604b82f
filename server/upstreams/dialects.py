"""The dialects of upstreams, as one table: where requests go, and with which headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from bridge.dialects import anthropic_messages, chat_completions, codex, responses
from bridge.dialects.base import Dialect, UpstreamSide
from server.upstreams.addresses import base_url, versioned_base_url


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
CHAT: Final = HttpDialect(chat_completions.DIALECT, "/chat/completions")
RESPONSES: Final = HttpDialect(responses.DIALECT, "/responses")
DEFAULT: Final = CHAT.dialect.name  # what an upstream speaks of which nothing else is known
CODEX: Final = ProcessDialect(codex.DIALECT)
DIALECTS: Final[Mapping[str, UpstreamDialect]] = {
    row.dialect.name: row
    for row in (
        CHAT,
        HttpDialect(
            anthropic_messages.DIALECT,
            "/messages",
            address=versioned_base_url,
            key_header=KeyHeader("x-api-key"),
            headers=MappingProxyType({"anthropic-version": "2023-06-01"}),
        ),
        RESPONSES,
        CODEX,
    )
}
