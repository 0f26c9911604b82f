"""Law S7: the owner of a request, and the operators. Keys are compared by their hashes and never stored,
logged or shown."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from ipaddress import ip_address
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from starlette.requests import HTTPConnection
from starlette.types import Scope

from openresponses_bridge.dialects.table import surface_at, surfaces
from openresponses_server.errors import HttpError
from openresponses_server.http.access import ACCESS, Access, refused, unknown_key
from openresponses_server.http.headers import HeaderFields, fields_of, replace_headers
from openresponses_server.http.managed_keys import KeyBook
from openresponses_server.settings.files import is_among
from openresponses_server.tasks import OWNER

NOBODY: Final = ""
"""The owner of everything if no keys are required."""
# `/metrics` and `/v1/routes` require keys of their own, see Operators
_OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics", "/v1/routes", "/api/hello"})
# headers that proxies add: the peer is then the proxy, and the client behind it is not certain
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_OWNER_LENGTH: Final = 32  # characters of the hash: enough to distinguish keys, too few to verify one

PLACES: Final = tuple(
    dict.fromkeys(
        (place.header, place.prefix.lower()) for surface in surfaces().values() for place in surface.keys
    )
)
"""The headers in which clients of any API send their key, and the prefix of the key there, in lower case. The
first header that has a key counts."""
_USUAL: Final = [
    f"`{place.header.title() if place.prefix else place.header}: {place.prefix}KEY`"
    for place in dict.fromkeys(surface.keys[0] for surface in surfaces().values())
]
NO_KEY: Final = f"No API key was given: send {', '.join(_USUAL[:-1])} or {_USUAL[-1]}."


def _why_refused(headers: Mapping[str, str]) -> str:
    reasons = (surface.why_refused(headers) for surface in surfaces().values())
    return next(filter(None, reasons), "")


def client_key(headers: Mapping[str, str]) -> str | None:
    """The key that a client of any API sends; None without one."""
    for header, prefix in PLACES:
        value = headers.get(header)
        if value and value[: len(prefix)].lower() == prefix:
            return (value[len(prefix) :].strip() if prefix else value) or None
    return None


def check_single_keys(headers: HeaderFields) -> None:
    """Raises HttpError 401 for a header with different keys in it: which of them another server on the way
    has read is not certain."""
    for header, _prefix in PLACES:
        if len(set(headers.getlist(header))) > 1:
            raise refused(f"The request has several {header} headers: send one.")


def accept_query_key(scope: Scope) -> None:
    """Move the key that a client has put into the query of its address, if its API has a parameter for that,
    into the header for it, before anything else reads the address. A key in a header takes precedence. Raises
    HttpError 401 for different keys in one address, since a server on the way may have read another one; and
    for a key that no header can have, since it could not be sent to an upstream, which would seem to be
    down."""
    query: bytes = scope["query_string"]
    places = surface_at(scope["path"]).surface.keys
    place = next((each for each in places if each.query), None)
    if place is None:
        return
    named = place.query.encode()
    keys, others = [], []
    for parameter in query.split(b"&"):
        name, _, value = parameter.partition(b"=")
        if unquote_to_bytes(name) == named:
            keys.append(unquote_to_bytes(value.replace(b"+", b" ")))
        else:
            others.append(parameter)
    if not keys:
        return
    scope["query_string"] = b"&".join(others)
    if len(set(keys)) > 1:
        raise refused(f"The address has several keys (`{place.query}=`): send one.")
    if any(byte < 0x20 or byte == 0x7F for byte in keys[0]):
        raise refused("The key in the address has control characters.")
    if client_key(fields_of(scope)) is None:
        replace_headers(scope, [*scope["headers"], (place.header.encode(), keys[0])])


class AcceptedTokens(Protocol):
    """Tokens that are accepted as keys."""

    def access(self, token: str) -> Access | None:
        """Return what a token gives access to; None for any other text. Raises HttpError."""
        ...

    def going(self) -> AbstractAsyncContextManager[None]:
        """Keep the keys that tokens are verified with while the context lasts."""
        ...


class Keys:
    """The keys that are accepted: those of the settings as hashes, those of `managed`, and `tokens`. Without
    any of them every client is accepted. With `pass_through` every key is: the upstream checks it, and each
    key is an owner of its own."""

    def __init__(
        self,
        hashes: Iterable[str],
        *,
        pass_through: bool = False,
        managed: KeyBook | None = None,
        tokens: AcceptedTokens | None = None,
    ) -> None:
        self._hashes = list(hashes)
        self.managed = managed
        """The keys that are managed while the server runs; None: none are accepted."""
        self.tokens = tokens
        """The tokens that are accepted; None: none are."""
        self._asked_for = bool(self._hashes or managed is not None or tokens is not None)
        self.pass_through = pass_through and not self._asked_for
        """True if only the upstreams check keys."""

    def owner(self, headers: Mapping[str, str]) -> str:
        """The owner of a request with these headers. Raises HttpError 401, and 503 while the managed keys are
        not known yet."""
        return self.access(headers)[0]

    def access(self, headers: Mapping[str, str]) -> tuple[str, Access | None]:
        """Return (the owner of a request with these headers, what its key gives access to, None for all
        models). Raises HttpError 401, and 503 while the managed keys are not known yet."""
        if not self._asked_for and not self.pass_through:
            return NOBODY, None
        key = client_key(headers)
        if not self._asked_for:
            return NOBODY if key is None else _owner(key), None
        if key is None:
            raise refused(_why_refused(headers) or NO_KEY)
        if is_among(key, self._hashes):
            return _owner(key), None
        if self.managed is not None:
            grant = self.managed.access(key)
            if grant is not None:
                return grant.owner, grant
        if self.tokens is not None:
            grant = self.tokens.access(key)
            if grant is not None:
                return grant.owner, grant
        if self.managed is not None and not self.managed.is_loaded:
            raise HttpError(
                503,
                "The server has not read its keys yet; try again.",
                code="keys_unavailable",
                headers={"retry-after": "1"},
            )
        raise refused("The API key is not valid.")


class Operators:
    """The operators, who may read `/metrics` and `/v1/routes`. `hashes` are the operators' keys; without any,
    operators are clients on this machine that connect directly and not through a proxy."""

    def __init__(self, hashes: Iterable[str], clients: Keys) -> None:
        self._hashes = list(hashes)
        self._clients = clients

    def check(self, request: HTTPConnection) -> None:
        """Raises HttpError 401, 403 and 503."""
        key = client_key(request.headers)
        if key is not None and is_among(key, self._hashes):
            return
        self._clients.owner(request.headers)
        if self._hashes:
            raise refused("Only operators may read this: send a key of the setting `operator_keys`.")
        if not _is_direct(request):
            what = "Only direct connections from this machine may read this, and none through a proxy"
            raise HttpError(403, f"{what}: set `operator_keys` and send one of them.")


class Authentication:
    """Sets the owner of each request in its state, and refuses requests without a known key."""

    def __init__(self, keys: Keys, is_open: Callable[[str], object]) -> None:
        """`is_open`: whether everyone may read a path, in addition to the health checks and `/metrics`."""
        self._keys = keys
        self._is_open = is_open

    def check(self, scope: Scope, headers: HeaderFields) -> None:
        """Raises HttpError 401 and 503."""
        is_open = scope["path"] in _OPEN_PATHS or self._is_open(scope["path"])
        owner, access = (NOBODY, None) if is_open else self._keys.access(headers)
        if self._keys.pass_through and not is_open and not _is_direct(HTTPConnection(scope)):
            access = unknown_key(owner)
        scope.setdefault("state", {})["owner"] = owner
        OWNER.set(owner)
        ACCESS.set(access)


def _owner(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:_OWNER_LENGTH]


def _is_direct(request: HTTPConnection) -> bool:
    """Return True if the client is on this machine and connects without a proxy."""
    return _is_loopback(request) and not any(name in request.headers for name in _FORWARDED)


def _is_loopback(request: HTTPConnection) -> bool:
    """Return True if the connection's peer is this machine; False for a socket without addresses."""
    try:
        peer = ip_address(request.client.host if request.client is not None else "")
    except ValueError:
        return False
    return (getattr(peer, "ipv4_mapped", None) or peer).is_loopback
