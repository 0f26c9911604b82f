"""Decodes frames that differ from the last one in a single string by decoding that string only.

Most servers send the pieces of one text in frames that are otherwise the same. After a frame was decoded, the
bytes around its string are kept as a template. A later frame with the same bytes around another string means
the same with that string: JSON has no other reading, since replacing the string was tried once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import msgspec

_EXCHANGED: Final = "what stands here is exchanged"
_ENCODED: Final = msgspec.json.encode(_EXCHANGED)
_FEW: Final = 8  # frames; what was learnt for fewer was not worth it
_WASTED: Final = 16  # how often that may be before nothing is learnt any more
_decode = msgspec.json.Decoder(str).decode


class StringTemplate:
    """The bytes around one string of a frame."""

    __slots__ = ("_after", "_before", "_head", "_string", "_tail")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self._head, self._tail = head, tail
        # where these stand, and the string between them: comparing slices is quicker than asking for them
        self._before, self._after = slice(len(head)), slice(-len(tail), None)
        self._string = slice(len(head), -len(tail))

    def extract(self, data: bytes) -> str | None:
        """The string between the template's bytes; None when the data does not match the template."""
        if data[self._before] == self._head and data[self._after] == self._tail:
            try:
                return _decode(data[self._string])
            except (msgspec.MsgspecError, UnicodeError):
                pass
        return None


class FrameTemplate:
    """The template of a stream's frames, learnt from one of them. `enabled` becomes False once the frames
    were found to differ in more than a string."""

    __slots__ = ("_learnt", "_wasted", "enabled", "payload", "read")

    def __init__(self) -> None:
        self.payload = self.read = _NOWHERE
        """Of the string in a frame's payload, and in a read that is such a frame and nothing else."""
        self._learnt = 0  # the frame from which it was
        self._wasted = 0
        self.enabled = True

    def learn(self, data: bytes, number: int, said: str, read: Callable[[bytes], object]) -> bool:
        """Make a template from frame `number`, whose string is `said` according to `read`. Returns whether
        the string was found. `read` raises msgspec.MsgspecError for frames that it can't decode."""
        if number - self._learnt < _FEW:
            self._wasted += 1
            self.enabled = self._wasted < _WASTED
        self._learnt = number
        for string in (msgspec.json.encode(said), json.dumps(said).encode()):
            head, found, tail = data.partition(string)
            if found and _ENCODED not in data and _reads(read, head + _ENCODED + tail):
                self.payload = StringTemplate(head, tail)
                if b"\n" not in data and b"\r" not in data:  # nor in any string, which would not be JSON
                    self.read = StringTemplate(b"data: " + head, tail + b"\n\n")
                else:
                    self.read = _NOWHERE
                return True
        return False


_NOWHERE: Final = StringTemplate(b"", b"")


def _reads(read: Callable[[bytes], object], data: bytes) -> bool:
    try:
        return read(data) == _EXCHANGED
    except (msgspec.MsgspecError, UnicodeError):
        return False
