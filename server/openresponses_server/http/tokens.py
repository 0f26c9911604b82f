"""Tokens of an identity provider (JWT, RFC 7519 and 8725) as keys.

Everything that decides is the operator's: the issuer, the audience, the address of the issuer's keys and the
algorithms. Of a token's header only the name of its key and of its algorithm are read; addresses and keys in
it (`jku`, `jwk`, `x5u`, `x5c`) are not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any, Final

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from msgspec import Struct

from openresponses_server.errors import HttpError
from openresponses_server.http.access import Access, KeysWanted, refused
from openresponses_server.http.client.connect_options import ConnectOptions
from openresponses_server.http.client.pool import ConnectionPool, Connector
from openresponses_server.http.flow import BodyReader
from openresponses_server.limits.owners import KeyLimits, OwnerLimits, is_limit
from openresponses_server.settings import OidcSettings, Timeouts
from openresponses_server.tasks import end_tasks

_LONGEST: Final = 16 * 1024  # characters of a token
_LONGEST_OWNER: Final = 1024  # characters
_OWNER_LENGTH: Final = 31
_MOST_VERIFIED: Final = 10_000  # tokens whose signatures are not verified again
_MOST_KEYS: Final = 100
_MOST_BYTES: Final = 1024 * 1024  # of the issuer's keys
_FETCH_SECONDS: Final = 5.0
_SOONEST: Final = 10.0  # seconds between two fetches, whatever keys tokens name
_SHORTEST_RSA: Final = 2048  # bits
_UNREADABLE: Final = (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
_INVALID: Final = "The API key is not valid."
_log = structlog.get_logger(__name__)


class _Verified(Struct, frozen=True):
    """The claims of a token whose signature was verified."""

    access: Access
    limits: KeyLimits
    expires_at: float


class TokenIssuer:
    """The tokens of one issuer."""

    def __init__(
        self, settings: OidcSettings, limits: OwnerLimits, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._clock = clock
        self._keys: list[dict[str, Any]] = []
        self._text = b""
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        self._fetching: asyncio.Task[None] | None = None
        self._fetched_at = -float("inf")
        self.is_loaded = False
        """Whether the issuer's keys are known."""

    def access(self, token: str) -> Access:
        """Return the access that a token gives. Raises HttpError 401, KeysWanted if the issuer may have the
        token's key meanwhile, and 503 while its keys are not known."""
        digest = hashlib.sha256(token.encode()).digest()
        verified = self._verified.get(digest)
        if verified is None:
            verified = self._verify(token)
            self._verified[digest] = verified
            while len(self._verified) > _MOST_VERIFIED:
                self._verified.popitem(last=False)
        if self._clock() >= verified.expires_at:
            self._verified.pop(digest, None)
            raise refused(_INVALID)
        self._limits.claim(verified.access.owner, verified.limits)
        return verified.access

    def _verify(self, token: str) -> _Verified:
        try:
            header = jwt.get_unverified_header(token)
            algorithm, name = header["alg"], header.get("kid")
        except _UNREADABLE:
            raise refused(_INVALID) from None
        if algorithm not in self._settings.algorithms or "crit" in header:
            raise refused(_INVALID)
        key = self._key(name, algorithm)
        settings = self._settings
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway,
                options={"require": ["exp", "iss", "aud", settings.owner_claim]},
            )
            return self._read(claims)
        except _UNREADABLE:
            raise refused(_INVALID) from None

    def _key(self, name: Any, algorithm: str) -> Any:
        """The issuer's key of this name; a token without one may have the issuer's only key."""
        if name is not None and not isinstance(name, str):
            raise refused(_INVALID)
        fitting = [each for each in self._keys if name is None or each.get("kid") == name]
        if len(fitting) == 1:
            key = _public_key(fitting[0], algorithm)
            if key is None:
                raise refused(_INVALID)
            return key
        if fitting:
            raise refused(_INVALID)
        if self._clock() - self._fetched_at >= _SOONEST or self._fetching is not None:
            raise KeysWanted(_INVALID, self.fetch)
        if not self.is_loaded:
            raise HttpError(
                503,
                "The keys of the token's issuer can't be read; try again.",
                code="keys_unavailable",
                headers={"retry-after": "10"},
            )
        raise refused(_INVALID)

    def _read(self, claims: dict[str, Any]) -> _Verified:
        """Return these claims as a struct. Raises ValueError for what can't be used."""
        settings = self._settings
        name = claims[settings.owner_claim]
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_OWNER:
            raise ValueError("the owner")
        models = tuple(settings.models) or None
        if settings.models_claim is not None:
            names = claims.get(settings.models_claim, [])
            names = names.split() if isinstance(names, str) else names
            if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
                raise ValueError("the models")
            models = tuple(names)  # none of them where the claim is missing
        limits: dict[str, Any] = {}
        for limit, claim in settings.limits_claims.items():
            value = claims.get(claim)
            if value is None:
                continue
            if not is_limit(limit, value):
                raise ValueError("a limit")
            limits[limit] = value
        expires_at = float(claims["exp"]) + settings.leeway
        owner = "t" + hashlib.sha256(f"{settings.issuer}\0{name}".encode()).hexdigest()[:_OWNER_LENGTH]

        def again() -> Access | None:
            return access if self._clock() < expires_at else None

        access = Access(owner, models, again)
        return _Verified(access, KeyLimits(**limits), expires_at)

    async def fetch(self) -> None:
        """Read the issuer's keys, which several callers do together."""
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch())
        await asyncio.shield(self._fetching)

    async def fetch_repeatedly(self) -> None:
        """Read them again now and then, until cancelled."""
        while True:
            await self.fetch()
            await asyncio.sleep(self._settings.refresh if self.is_loaded else _SOONEST)

    async def _fetch(self) -> None:
        try:
            text = await _get(self._settings.jwks)
            keys = json.loads(text)["keys"]
            if not isinstance(keys, list) or not all(isinstance(each, dict) for each in keys):
                raise ValueError("it is not a set of keys")
            if text != self._text:
                # a token of a key that is gone is verified again, and refused
                self._verified.clear()
                self._keys, self._text = keys[:_MOST_KEYS], text
            self.is_loaded = True
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            _log.warning("tokens.keys_not_read", issuer=self._settings.issuer, reason=str(error)[:200])
        finally:
            self._fetched_at = self._clock()
            self._fetching = None


class Tokens:
    """The tokens of all issuers of the settings."""

    def __init__(self, settings: Sequence[OidcSettings], limits: OwnerLimits) -> None:
        self.issuers = {each.issuer: TokenIssuer(each, limits) for each in settings}

    def access(self, token: str) -> Access | None:
        """Return the access that a token gives; None if it is from none of these issuers. Raises as
        `TokenIssuer.access` does."""
        if token.count(".") != 2 or len(token) > _LONGEST or not token.isascii():
            return None
        try:
            named = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except _UNREADABLE:
            return None
        issuer = self.issuers.get(named) if isinstance(named, str) else None
        return None if issuer is None else issuer.access(token)

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Keep the issuers' keys while the context lasts."""
        async with AsyncExitStack() as stack:
            for issuer in self.issuers.values():
                task = asyncio.create_task(issuer.fetch_repeatedly())
                stack.push_async_callback(end_tasks, [task])
            yield


def _public_key(data: dict[str, Any], algorithm: str) -> Any:
    """The public key to verify signatures of this algorithm with; None if it is not for that."""
    if data.get("use", "sig") != "sig" or data.get("alg", algorithm) != algorithm:
        return None
    if data.get("kty") not in ("RSA", "EC", "OKP") or "d" in data:
        return None
    try:
        key = jwt.PyJWK(data, algorithm).key
    except _UNREADABLE:
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < _SHORTEST_RSA:
        return None
    return key


async def _get(url: str) -> bytes:
    """The body at this address; redirects are not followed. Raises OSError and ValueError."""
    seconds = _FETCH_SECONDS
    timeouts = Timeouts(connect=seconds, first_byte=seconds, idle=seconds, total=seconds)
    pool = ConnectionPool("", timeouts, ConnectOptions(), Connector)
    try:
        async with asyncio.timeout(seconds):
            answer = await pool.request("GET", url, headers={"accept": "application/json"})
            with closing(answer):
                if answer.status != 200:
                    raise ValueError(f"its server answered with status {answer.status}")
                data = await BodyReader(answer.content).collect(_MOST_BYTES + 1)
    finally:
        await pool.close()
    if len(data) > _MOST_BYTES:
        raise ValueError("it is too long")
    return data
