"""Invariant: a text can be opened only if it is an envelope of this key, byte for byte. Any other text is a
SealError in linear time, and neither an altered envelope nor one of another key ever reveals its content."""

from __future__ import annotations

from openresponses_bridge.seal import Sealer, SealError, is_envelope
from tests.fuzz.core import Target

NONCE = bytes(range(12))
KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
# envelopes of one key for three owners, and those of another server
SEALERS = (
    *(Sealer(KEY, lambda: NONCE).bound(owner) for owner in ("", "alice", "bob")),
    Sealer(OTHER, lambda: NONCE).bound("alice"),
)
PLAIN = Sealer()
HELD = ((b"my history", "compaction"), (b"", "thinking"), (bytes(range(256)), "redacted_thinking"))
SEALED = {(sealer, sealer.seal(*held)): held for sealer in SEALERS for held in HELD}


def any_envelope(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    is_envelope(text)
    for sealer in SEALERS:
        try:
            opened = sealer.open(text)
        except SealError as error:
            _says_nothing(error)
            continue
        assert (sealer, text) in SEALED, (
            "an envelope that was altered, or is of another key or owner, was opened"
        )
        assert (opened.payload, opened.kind) == SEALED[sealer, text]
    try:
        opened = PLAIN.open(text)
    except SealError:
        return
    assert PLAIN.seal(opened.payload, opened.kind) == text


def _says_nothing(error: SealError) -> None:
    assert 400 <= error.http_status < 500
    assert not any(payload and payload.decode("latin-1") in error.message for payload, _ in HELD)


SEEDS = (
    *(text.encode() for _, text in SEALED),
    *(PLAIN.seal(*held).encode() for held in HELD),
)
WORDS = (b"orb1", b"orb2.", b".s.", b".p.", b".", b"=", b"==", b"-_", "é".encode(), b"\n", b"thinking")
TARGETS = [Target("unseal", any_envelope, SEEDS, WORDS)]
