"""The dialects that upstreams speak, as a table: paths, addresses and headers of requests. Its rows are made
from the library's table of dialects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from openresponses_bridge.dialects.base import Dialect, Endpoint, UpstreamSide
from openresponses_bridge.dialects.base.dialect import MODEL
from openresponses_bridge.dialects.table import dialects

_VERSION: Final = "/v1"
_ROOT: Final = "/."


def base_url(url: str, version: str = _VERSION) -> str:
    """An address in the form of OpenAI's and Google's clients → the base of its paths: the version is added
    if there is no path, a slash at the end is removed. One that ends in `/.` has no path and needs none (RFC
    3986, section 6.2.2.3). Raises ValueError if it is not an http:// or https:// address."""
    path = _path_of(url)
    if path == _ROOT:
        return url.rstrip("/").removesuffix(_ROOT)
    return url.rstrip("/") + ("" if path else version)


def versioned_base_url(url: str, version: str = _VERSION) -> str:
    """An address in the form of Anthropic's clients, with or without the version → the base of its paths.
    Raises ValueError if it is not an http:// or https:// address."""
    path = _path_of(url)
    return url.rstrip("/") + ("" if path.endswith(version) else version)


def without_password(url: str) -> str:
    """The address for logs and messages, without user, password and query. A password may contain any
    character, so everything before the last `@` is removed first."""
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
    """The header for an API key, and the prefix of its value."""

    name: str
    prefix: str = ""


class HttpDialect(NamedTuple):
    """The row of a dialect that is spoken over HTTP."""

    dialect: Dialect
    side: UpstreamSide
    endpoint: Endpoint
    path: Callable[..., str]
    """`Endpoint.path_of`: the path of a request to a model, relative to the upstream's address."""
    address: Callable[[str], str] = base_url
    """Makes the base of the paths from the address in the settings; raises ValueError."""
    key_header: KeyHeader = KeyHeader("authorization", "Bearer ")
    headers: Mapping[str, str] = MappingProxyType({})
    fixed_path: str = ""
    """That path, if it depends neither on the model nor on whether the answer is streamed; else ""."""


class ProcessDialect(NamedTuple):
    """The row of a dialect that a process speaks. It has no path and no address."""

    dialect: Dialect
    side: UpstreamSide
    fixed_path: str = ""

    def path(self, model: str, *, stream: bool = True) -> str:
        """Empty: there is no address."""
        return ""

    def address(self, url: str) -> str:
        """The address, which is empty. Raises ValueError for any other."""
        if url:
            raise ValueError(f"dialect {self.dialect.name} is a process and has no address")
        return url


UpstreamDialect = HttpDialect | ProcessDialect


def has_sockets(dialect: UpstreamDialect) -> bool:
    """Return True if the dialect can be spoken over WebSockets."""
    return isinstance(dialect, HttpDialect) and dialect.endpoint.socket is not None


def http_dialect(dialect: Dialect) -> HttpDialect:
    """Make the row of a dialect that is spoken over HTTP."""
    assert dialect.upstream is not None
    endpoint = dialect.upstream.endpoint
    assert endpoint is not None
    return HttpDialect(
        dialect,
        dialect.upstream,
        endpoint,
        endpoint.path_of,
        partial(versioned_base_url if endpoint.versioned else base_url, version=endpoint.version),
        KeyHeader(endpoint.key_header, endpoint.key_prefix),
        endpoint.headers,
        endpoint.path if endpoint.whole_path is None and MODEL not in endpoint.path else "",
    )


DIALECTS: Final[Mapping[str, UpstreamDialect]] = {
    name: ProcessDialect(each, each.upstream) if each.upstream.endpoint is None else http_dialect(each)
    for name, each in reversed(dialects().items())
    if each.upstream is not None
}
"""By name, the most common first."""
CHAT: Final = http_dialect(dialects()["chat"])
RESPONSES: Final = http_dialect(dialects()["responses"])
FORWARDING: Final = frozenset({CHAT.dialect.name, RESPONSES.dialect.name})
"""The dialects of OpenAI's API, whose servers may have its other endpoints below the same address."""
DEFAULT: Final = CHAT.dialect.name
"""The dialect of an upstream whose settings and profile name none."""
