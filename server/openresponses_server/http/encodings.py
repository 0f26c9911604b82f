"""Decompresses bodies (`content-encoding`): gzip and zstd, piece by piece.

No step produces more than one piece, whatever its input, so that a reader can stop at a limit. A zstd window
is at most 8 MB, as encoders for HTTP must ensure (RFC 9659). The parts of a body are limited, because an
empty part costs far more than its few bytes.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from openresponses_bridge.errors import HttpError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_INPUT: Final = 64 * 1024  # the most bytes of input of a step: the unused rest is copied
_OUTPUT: Final = 256 * 1024  # the most bytes of output of a step: about a millisecond
_MOST_PARTS: Final = 1024  # twice 32 MB in the blocks of 64 KB that parallel compressors write
_GZIP_ONLY: Final = 16 + zlib.MAX_WBITS
_ZSTD_WINDOW: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 23}


class DecodeStep(NamedTuple):
    """The output of one step, the rest of its input, and whether there is more output without further
    input."""

    output: bytes
    rest: bytes
    more: bool


class _Decompressor(Protocol):
    """A decompressor of one gzip member or zstd frame."""

    ended: bool

    def step(self, data: bytes) -> DecodeStep: ...


class _GzipMember:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_GZIP_ONLY)
        self.ended = False

    def step(self, data: bytes) -> DecodeStep:
        output = self._inflate.decompress(data, _OUTPUT)
        self.ended = self._inflate.eof
        rest = self._inflate.unused_data if self.ended else self._inflate.unconsumed_tail
        return DecodeStep(output, rest, len(output) == _OUTPUT and not self.ended)


class _ZstdFrame:
    def __init__(self) -> None:
        self._expand = zstd.ZstdDecompressor(options=_ZSTD_WINDOW)
        self.ended = False

    def step(self, data: bytes) -> DecodeStep:
        output = self._expand.decompress(data, _OUTPUT)
        self.ended = self._expand.eof
        rest = self._expand.unused_data if self.ended else b""
        return DecodeStep(output, rest, not self.ended and not self._expand.needs_input)


_PARTS: Final[dict[str, Callable[[], _Decompressor]]] = {
    "gzip": _GzipMember,
    "x-gzip": _GzipMember,  # the same (RFC 9110, 8.4.1.3)
    "zstd": _ZstdFrame,
}
_SUPPORTED: Final = "gzip, zstd"


class Compressed:
    """Decompresses a body of consecutive parts in one encoding. Raises HttpError 400 for invalid data."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._part: _Decompressor | None = None
        self._parts = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress these bytes, lazily and in pieces."""
        for start in range(0, len(data), _INPUT):
            yield from self._pieces(data[start : start + _INPUT])

    def close(self) -> None:
        """The body has ended."""
        if self._part is not None:
            raise self._broken("it ends too soon")

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        more = False
        while data or more:
            part = self._part or self._begin()
            try:
                output, data, more = part.step(data)
            except (zlib.error, zstd.ZstdError) as error:
                raise self._broken(str(error)) from error
            self._part = None if part.ended else part
            if output:
                yield output

    def _begin(self) -> _Decompressor:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise self._broken(f"it has more than {_MOST_PARTS} parts")
        return _PARTS[self._encoding]()

    def _broken(self, why: str) -> HttpError:
        what = f"The body is not {self._encoding} as its content-encoding says: {why[:200]}."
        return HttpError(400, what, code="invalid_content_encoding")


def decoding(headers: Sequence[str]) -> Compressed | None:
    """The decompressor for a body with these `content-encoding` headers; None if it is not compressed. Raises
    HttpError 415 for an unsupported encoding, and for several."""
    if not headers:
        return None
    listed = [each.strip().lower() for header in headers for each in header.split(",")]
    named = [each for each in listed if each not in ("", "identity")]
    if not named:
        return None
    if len(named) > 1 or named[0] not in _PARTS:
        encoding = ", ".join(named)[:80]
        what = f"The content-encoding {encoding} is not supported: use one of {_SUPPORTED}, or none."
        raise HttpError(
            415, what, code="unsupported_content_encoding", headers={"accept-encoding": _SUPPORTED}
        )
    return Compressed(named[0])
