"""Envelopes for data that a client keeps between turns and sends back. An envelope that was changed can't be
opened.

The data are, for instance, the signature of a thinking block, a redacted block or a condensed history; they
are sent in `encrypted_content`. An envelope is a text of four fields::

    orb1 . s|so|p|po . kind . base64url

`orb1` is the format and its version. `s` is a sealed envelope: its data are a nonce of 12 bytes, the
ciphertext and the tag of AES-GCM, which also authenticates the fields before them. `p` is a plain envelope:
its data are the first 16 bytes of a SHA-256 digest, and the payload. `kind` says what the payload is. Without
a key, envelopes are plain: the digest detects accidental changes, but anybody can make an envelope, which is
enough if client and server belong to one person.

`so` and `po` are bound to an owner: the authenticated text is then the fields before the data, a dot and the
owner's name, which is not part of the envelope. Such an envelope opens for that owner only; another owner
gets the same error as for an altered one.

Plain envelopes need only the standard library; `cryptography` is imported when a sealer with a key is made.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from openresponses_bridge.errors import LocalError, RemoteError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VERSION: Final = "orb1"
NONCE_BYTES: Final = 12
_KEY_SIZES: Final = (16, 24, 32)
_CHECKSUM_BYTES: Final = 16
_TAG_BYTES: Final = 16
_SEALED: Final = "s"
_PLAIN: Final = "p"
_KIND: Final = re.compile(r"[a-z0-9_-]{1,40}")
_BOUND: Final = "o"
_ENVELOPE: Final = re.compile(r"(?P<version>orb\d+)\.(?P<rest>.*)", re.DOTALL)
_BODY: Final = re.compile(
    r"(?P<mode>[sp])(?P<bound>o?)\.(?P<kind>[a-z0-9_-]{1,40})\.(?P<data>[A-Za-z0-9_-]*={0,2})"
)


class SealError(RemoteError):
    """A text that can't be opened. `FOREIGN`: it is not an envelope of this library or has another version,
    or it is sealed and there is no key, or plain and there is one. `BROKEN`: it was altered or cut off, or
    made with another key or for another owner. `OWNER`: it is bound to an owner and was opened without one,
    or the other way round."""

    FOREIGN = "bridge.seal.foreign"
    BROKEN = "bridge.seal.broken"
    OWNER = "bridge.seal.owner"


class Sealed(NamedTuple):
    """The content of an envelope."""

    kind: str
    payload: bytes


class _Parsed(NamedTuple):
    """The fields of an envelope; `bound` is `o` if it is bound to an owner, otherwise empty."""

    mode: str
    bound: str
    kind: str
    body: bytes


class Sealer:
    """Makes and opens envelopes. `key` is 16, 24 or 32 bytes, None for plain envelopes; `nonce` returns 12
    bytes, others at each call; `others` are further keys with which envelopes are opened but not sealed.
    Raises LocalError for a key of another size (`bridge.seal.key`), and for any key where `cryptography` is
    not installed (`bridge.seal.cryptography`)."""

    __slots__ = ("_cipher", "_nonce", "_others", "_owner")

    def __init__(
        self,
        key: bytes | None = None,
        nonce: Callable[[], bytes] | None = None,
        others: Sequence[bytes] = (),
    ) -> None:
        self._cipher = None if key is None else _cipher(key)
        self._others = tuple(map(_cipher, others))
        self._nonce = nonce or _random_nonce
        self._owner = ""

    def bound(self, owner: str) -> Sealer:
        """Return a sealer with the same keys that makes and opens only envelopes bound to this owner; for the
        empty name, only envelopes that are not bound to an owner."""
        sealer = Sealer(nonce=self._nonce)
        sealer._cipher, sealer._others, sealer._owner = self._cipher, self._others, owner
        return sealer

    def seal(self, payload: bytes, kind: str) -> str:
        """Return the payload in an envelope. `kind` is 1 to 40 characters of ``a-z 0-9 _ -`` and is not
        encrypted. Raises LocalError (`bridge.seal.kind`) for any other kind."""
        if not _KIND.fullmatch(kind):
            raise LocalError("bridge.seal.kind", f"the kind {kind!r} is not 1 to 40 of a-z 0-9 _ -")
        head = _head(_PLAIN if self._cipher is None else _SEALED, self._sign, kind)
        authenticated = self._authenticated(head)
        if self._cipher is None:
            body = _checksum(authenticated, payload) + payload
        else:
            nonce = self._nonce()
            body = nonce + self._cipher.encrypt(nonce, payload, authenticated)
        return f"{head}.{urlsafe_b64encode(body).decode()}"

    def open(self, text: str) -> Sealed:
        """Return the kind and the payload that `seal` received. Raises SealError (`bridge.seal.foreign`,
        `bridge.seal.broken`, `bridge.seal.owner`)."""
        parsed = _parse(text)
        if parsed.bound != self._sign:
            whose = (
                "bound to an API key, and none was given"
                if parsed.bound
                else "not bound to the API key that was given"
            )
            raise SealError(SealError.OWNER, f"the envelope is {whose}")
        authenticated = self._authenticated(_head(parsed.mode, parsed.bound, parsed.kind))
        opened = self._open_plain if parsed.mode == _PLAIN else self._open_sealed
        return Sealed(parsed.kind, opened(authenticated, parsed.body))

    @property
    def _sign(self) -> str:
        return _BOUND if self._owner else ""

    def _authenticated(self, head: str) -> bytes:
        return f"{head}.{self._owner}".encode() if self._owner else head.encode()

    def _open_plain(self, authenticated: bytes, body: bytes) -> bytes:
        if self._cipher is not None:
            raise SealError(
                SealError.FOREIGN, "the envelope is not encrypted, and only encrypted ones are accepted here"
            )
        payload = body[_CHECKSUM_BYTES:]
        if not secrets.compare_digest(body[:_CHECKSUM_BYTES], _checksum(authenticated, payload)):
            raise SealError(SealError.BROKEN, "the envelope was altered on its way or made for another owner")
        return payload

    def _open_sealed(self, authenticated: bytes, body: bytes) -> bytes:
        if self._cipher is None:
            raise SealError(
                SealError.FOREIGN, "the envelope is encrypted, and no sealing key is configured here"
            )
        if len(body) < NONCE_BYTES + _TAG_BYTES:
            raise SealError(SealError.BROKEN, "the envelope was cut")
        from cryptography.exceptions import InvalidTag

        for cipher in (self._cipher, *self._others):
            with suppress(InvalidTag):
                return cipher.decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], authenticated)
        what = "altered on its way, sealed with another key or for another owner"
        raise SealError(SealError.BROKEN, f"the envelope was {what}")


def is_envelope(text: str) -> bool:
    """Return True if a text looks like an envelope of this library, of any version."""
    return _ENVELOPE.match(text) is not None


def _parse(text: str) -> _Parsed:
    envelope = _ENVELOPE.fullmatch(text)
    if envelope is None:
        raise SealError(SealError.FOREIGN, "not an envelope of this server")
    if envelope["version"] != VERSION:
        raise SealError(
            SealError.FOREIGN,
            f"the envelope has version {envelope['version'][:12]}, and only {VERSION} is read here",
        )
    fields = _BODY.fullmatch(envelope["rest"])
    if fields is None:
        raise SealError(SealError.BROKEN, "the envelope is incomplete")
    try:
        body = urlsafe_b64decode(fields["data"])
    except Base64Error as error:
        raise SealError(SealError.BROKEN, "the envelope is incomplete") from error
    if urlsafe_b64encode(body).decode() != fields["data"]:  # unused bits of the last character
        raise SealError(SealError.BROKEN, "the envelope was altered on its way")
    return _Parsed(fields["mode"], fields["bound"], fields["kind"], body)


def _cipher(key: bytes) -> AESGCM:
    if len(key) not in _KEY_SIZES:
        raise LocalError("bridge.seal.key", f"a sealing key must have 16, 24 or 32 bytes, not {len(key)}")
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        what = "a sealing key needs cryptography: pip install 'openresponses-bridge[seal]'"
        raise LocalError("bridge.seal.cryptography", what) from error
    return AESGCM(key)


def _head(mode: str, bound: str, kind: str) -> str:
    return f"{VERSION}.{mode}{bound}.{kind}"


def _checksum(authenticated: bytes, payload: bytes) -> bytes:
    return hashlib.sha256(authenticated + b"." + payload).digest()[:_CHECKSUM_BYTES]


def _random_nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)
