"""What a client carries for us between turns, so that it comes back as it left: sealed and versioned.

A thinking block's signature, a redacted block, a condensed history travel in `encrypted_content`. The
envelope is text of four fields::

    orb1 . s|p . kind . base64url

`orb1` names the format and its version, `s` sealed (AES-GCM: 12 bytes of nonce, ciphertext, tag, with
the fields before it authenticated) or `p` plain (16 bytes of SHA-256, payload), `kind` what is inside.
Without a key envelopes are plain: checked against accidents, not against forgers, which is enough
where client and server are one person.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bridge.errors import LocalError, RemoteError

VERSION: Final = "orb1"
NONCE_BYTES: Final = 12
_KEY_SIZES: Final = (16, 24, 32)
_CHECKSUM_BYTES: Final = 16
_TAG_BYTES: Final = 16
_SEALED: Final = "s"
_PLAIN: Final = "p"
_KIND: Final = re.compile(r"[a-z0-9_-]{1,40}")
_ENVELOPE: Final = re.compile(r"(?P<version>orb\d+)\.(?P<rest>.*)", re.DOTALL)
_BODY: Final = re.compile(r"(?P<mode>[sp])\.(?P<kind>[a-z0-9_-]{1,40})\.(?P<data>[A-Za-z0-9_-]*={0,2})")


class SealError(RemoteError):
    """A text that can't be opened here. `FOREIGN`: not one of ours, or of another version or key
    policy. `BROKEN`: ours, but altered, cut, or sealed with another key."""

    FOREIGN = "bridge.seal.foreign"
    BROKEN = "bridge.seal.broken"


class Sealed(NamedTuple):
    """What an envelope held."""

    kind: str
    payload: bytes


class Sealer:
    """Makes and opens envelopes. `key` is 16, 24 or 32 bytes, None for plain envelopes; `nonce` gives
    12 fresh bytes each time it is called."""

    __slots__ = ("_cipher", "_nonce")

    def __init__(self, key: bytes | None = None, nonce: Callable[[], bytes] | None = None) -> None:
        if key is not None and len(key) not in _KEY_SIZES:
            raise LocalError("bridge.seal.key", f"a key has 16, 24 or 32 bytes, this one {len(key)}")
        self._cipher = None if key is None else AESGCM(key)
        self._nonce = nonce or _random_nonce

    def seal(self, payload: bytes, kind: str) -> str:
        """`payload` in an envelope. `kind` is up to 40 of ``a-z 0-9 _ -``, readable to everyone."""
        if not _KIND.fullmatch(kind):
            raise LocalError("bridge.seal.kind", f"not a kind: {kind!r}")
        if self._cipher is None:
            head = f"{VERSION}.{_PLAIN}.{kind}"
            body = _checksum(head, payload) + payload
        else:
            head = f"{VERSION}.{_SEALED}.{kind}"
            nonce = self._nonce()
            body = nonce + self._cipher.encrypt(nonce, payload, head.encode())
        return f"{head}.{urlsafe_b64encode(body).decode()}"

    def open(self, text: str) -> Sealed:
        """What `seal` put in. Raises SealError (`bridge.seal.foreign`, `bridge.seal.broken`)."""
        mode, kind, body = _parse(text)
        head = f"{VERSION}.{mode}.{kind}"
        if mode == _PLAIN:
            return Sealed(kind, self._open_plain(head, body))
        return Sealed(kind, self._open_sealed(head, body))

    def _open_plain(self, head: str, body: bytes) -> bytes:
        if self._cipher is not None:
            raise SealError(SealError.FOREIGN, "the envelope is not sealed, and here only sealed ones count")
        payload = body[_CHECKSUM_BYTES:]
        if not secrets.compare_digest(body[:_CHECKSUM_BYTES], _checksum(head, payload)):
            raise SealError(SealError.BROKEN, "the envelope was altered on its way")
        return payload

    def _open_sealed(self, head: str, body: bytes) -> bytes:
        if self._cipher is None:
            raise SealError(SealError.FOREIGN, "the envelope is sealed with a key, and here there is none")
        if len(body) < NONCE_BYTES + _TAG_BYTES:
            raise SealError(SealError.BROKEN, "the envelope was cut")
        try:
            return self._cipher.decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], head.encode())
        except InvalidTag as error:
            raise SealError(
                SealError.BROKEN, "the envelope was altered on its way or sealed with another key"
            ) from error


def is_envelope(text: str) -> bool:
    """Whether a text has the look of one of our envelopes, of any version."""
    return _ENVELOPE.match(text) is not None


def _parse(text: str) -> tuple[str, str, bytes]:
    envelope = _ENVELOPE.fullmatch(text)
    if envelope is None:
        raise SealError(SealError.FOREIGN, "not an envelope of this server")
    if envelope["version"] != VERSION:
        raise SealError(
            SealError.FOREIGN, f"an envelope of version {envelope['version'][:12]}, this is {VERSION}"
        )
    fields = _BODY.fullmatch(envelope["rest"])
    if fields is None:
        raise SealError(SealError.BROKEN, "the envelope is not whole")
    try:
        body = urlsafe_b64decode(fields["data"])
    except Base64Error as error:
        raise SealError(SealError.BROKEN, "the envelope is not whole") from error
    if urlsafe_b64encode(body).decode() != fields["data"]:  # spare bits of the last character
        raise SealError(SealError.BROKEN, "the envelope was altered on its way")
    return fields["mode"], fields["kind"], body


def _checksum(head: str, payload: bytes) -> bytes:
    return hashlib.sha256(head.encode() + b"." + payload).digest()[:_CHECKSUM_BYTES]


def _random_nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)
