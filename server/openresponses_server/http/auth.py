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

from openresponses_server.errors import HttpError, is_gemini_path
from openresponses_server.http.access import ACCESS, Access, refused
from openresponses_server.http.headers import fields_of, replace_headers
from openresponses_server.http.managed_keys import KeyBook
from openresponses_server.settings.files import is_among
from openresponses_server.tasks import OWNER

NOBODY: Final = ""
"""The owner of everything if no keys are required."""
GOOGLE_KEY: Final = "x-goog-api-key"
_NO_KEY: Final = (
    "No API key was given: send `Authorization: Bearer KEY`, `x-api-key: KEY` or `x-goog-api-key: KEY`."
)
_KEY_PARAMETER: Final = b"key"
_BEARER: Final = "bearer "
_OWNER_LENGTH: Final = 32  # characters of the hash: enough to distinguish keys, too few to verify one
# `/metrics` and `/v1/routes` require keys of their own, see Operators
_OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics", "/v1/routes"})
# headers that proxies add: the peer is then the proxy, and the client behind it is not certain
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


def client_key(headers: Mapping[str, str]) -> str | None:
    """The key that a client sends, in the header of OpenAI's, of Anthropic's or of Google's clients."""
    authorization = headers.get("authorization", "")
    if authorization[: len(_BEARER)].lower() == _BEARER:
        return authorization[len(_BEARER) :].strip() or None
    return headers.get("x-api-key") or headers.get(GOOGLE_KEY) or None


def accept_query_key(scope: Scope) -> None:
    """Move the key that a client of the Gemini API has in its address, `?key=`, into the header for it,
    before anything else reads the address. A key in a header counts before it. Raises HttpError 401 for
    different keys in one address: which of them another server on the way has read is not certain; and for
    one that no header can have: it could not be sent to an upstream, which would seem to be out."""
    query: bytes = scope.get("query_string", b"")
    if b"key" not in query or not is_gemini_path(scope["path"]):
        return
    keys, others = [], []
    for parameter in query.split(b"&"):
        name, _, value = parameter.partition(b"=")
        if unquote_to_bytes(name) == _KEY_PARAMETER:
            keys.append(unquote_to_bytes(value.replace(b"+", b" ")))
        else:
            others.append(parameter)
    if not keys:
        return
    scope["query_string"] = b"&".join(others)
    if len(set(keys)) > 1:
        raise refused("The address has several keys.")
    if any(byte < 0x20 or byte == 0x7F for byte in keys[0]):
        raise refused("The key in the address has control characters.")
    if client_key(fields_of(scope)) is None:
        replace_headers(scope, [*scope["headers"], (GOOGLE_KEY.encode(), keys[0])])


class AcceptedTokens(Protocol):
    """Tokens that are accepted as keys."""

    def access(self, token: str) -> Access | None:
        """What a token gives access to; None for anything else. Raises HttpError."""
        ...

    def going(self) -> AbstractAsyncContextManager[None]:
        """Have what they are verified with while the context lasts."""
        ...


class Keys:
    """The keys that are accepted: those of the settings as hashes, those of `managed`, and `tokens`. Without
    any of them every client is. With `pass_through` there are none: the upstream checks the key, and each key
    is an owner of its own."""

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
        """Those that are managed while the server runs; None: none are accepted."""
        self.tokens = tokens
        """The tokens that are accepted; None: none are."""
        self._asked_for = bool(self._hashes or managed is not None or tokens is not None)
        self.pass_through = pass_through and not self._asked_for
        """Keys are checked by the upstreams alone."""

    def owner(self, headers: Mapping[str, str]) -> str:
        """The owner of a request with these headers. Raises HttpError 401, and 503 while the managed keys are
        not known yet."""
        return self.access(headers)[0]

    def access(self, headers: Mapping[str, str]) -> tuple[str, Access | None]:
        """The same with what the key gives access to; None for all models. Raises HttpError."""
        if not self._asked_for and not self.pass_through:
            return NOBODY, None
        key = client_key(headers)
        if not self._asked_for:
            return NOBODY if key is None else _owner(key), None
        if key is None:
            raise refused(_NO_KEY)
        if is_among(key, self._hashes):
            return _owner(key), None
        if self.managed is not None:
            found = self.managed.access(key)
            if found is not None:
                return found.owner, found
        if self.tokens is not None:
            found = self.tokens.access(key)
            if found is not None:
                return found.owner, found
        if self.managed is not None and not self.managed.is_loaded:
            raise HttpError(
                503,
                "The server does not know its keys yet; try again.",
                code="keys_unavailable",
                headers={"retry-after": "1"},
            )
        raise refused("The API key is not valid.")


class Operators:
    """Who may read `/metrics` and `/v1/routes`, and spend what is the operator's without an upstream.
    `hashes` are the operators' keys; without any, operators are clients on this machine that connect directly
    and not through a proxy."""

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
            raise refused("Only operators may read this: send one of the setting `operator_keys`.")
        if not _is_direct(request):
            what = "Only direct connections from this machine may read this, and none through a proxy"
            raise HttpError(403, f"{what}: set `operator_keys` and send one of them.")

    def check_spending(self, request: HTTPConnection) -> None:
        """Whether a request that no upstream is asked for may spend what is the operator's. Raises HttpError
        403 where upstreams check the keys, since anybody could make one up."""
        if self._clients.pass_through and not _is_direct(request):
            what = "Only direct connections from this machine may search, since nobody has checked this key"
            raise HttpError(403, f"{what}: set `api_keys` instead of `pass_through`.")


class Authentication:
    """Sets the owner of each request in its state, and refuses requests without a known key."""

    def __init__(self, keys: Keys, is_open: Callable[[str], object]) -> None:
        """`is_open`: whether everyone may read a path, in addition to the health checks and `/metrics`."""
        self._keys = keys
        self._is_open = is_open

    def check(self, scope: Scope) -> None:
        """Raises HttpError 401 and 503."""
        is_open = scope["path"] in _OPEN_PATHS or self._is_open(scope["path"])
        owner, access = (NOBODY, None) if is_open else self._keys.access(fields_of(scope))
        scope.setdefault("state", {})["owner"] = owner
        OWNER.set(owner)
        ACCESS.set(access)


def _owner(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:_OWNER_LENGTH]


def _is_direct(request: HTTPConnection) -> bool:
    """Whether the client is on this machine and connects without a proxy."""
    return _is_loopback(request) and not any(name in request.headers for name in _FORWARDED)


def _is_loopback(request: HTTPConnection) -> bool:
    """Whether the connection's peer is this machine; False for a socket without addresses."""
    try:
        peer = ip_address(request.client.host if request.client is not None else "")
    except ValueError:
        return False
    return (getattr(peer, "ipv4_mapped", None) or peer).is_loopback
