"""What inbounds share: defaults for the members that few need, and `FrameTemplate`.

A template decodes frames that differ from the last one in a single string by decoding that string only.

Most servers send the pieces of one text in frames that are otherwise the same. After a frame was decoded, the
bytes around its string are kept as a template. A later frame with the same bytes around another string means
the same with that string: JSON has no other reading, since replacing the string was tried once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import msgspec

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event

_EXCHANGED: Final = "what stands here is exchanged"
_ENCODED: Final = msgspec.json.encode(_EXCHANGED)
_FEW: Final = 8  # frames; what was learnt for fewer was not worth it
_WASTED: Final = 16  # how often that may be before nothing is learnt any more
_decode = msgspec.json.Decoder(str).decode

Apply = Callable[[str], list[Event] | None]
"""The events of a frame with this string; None, and no change, when all of the frame has to be read."""


class StringTemplate:
    """The bytes around one string. `apply` is given the string of each frame that matches."""

    __slots__ = ("_after", "_apply", "_before", "_head", "_string", "_tail", "fed")

    def __init__(self, head: bytes, tail: bytes, apply: Apply) -> None:
        self._head, self._tail = head, tail
        # where these stand, and the string between them: comparing slices is quicker than asking for them
        self._before, self._after = slice(len(head)), slice(-len(tail), None)
        self._string = slice(len(head), -len(tail))
        self._apply = apply
        self.fed = 0
        """How many frames have matched."""

    def feed(self, data: bytes) -> list[Event] | None:
        """The events of a frame that differs from the template in its string alone; None, and no change, for
        any other."""
        if data[self._before] == self._head and data[self._after] == self._tail:
            try:
                said = _decode(data[self._string])
                events = self._apply(said) if said else None
            except (msgspec.MsgspecError, UnicodeError, BridgeError):
                return None  # whoever reads all of the frame reports it
            if events is not None:
                self.fed += 1
            return events
        return None


class FrameTemplate:
    """The template of a stream's frames, learnt from one of them. `enabled` becomes False once the frames
    were found to differ in more than a string."""

    __slots__ = ("_fed", "_learnt", "_wasted", "enabled", "learned", "payload", "sse")

    def __init__(self) -> None:
        self.payload: StringTemplate = _NO_TEMPLATE
        """Of the string in a frame's payload."""
        self.sse: StringTemplate = _NO_TEMPLATE
        """Of that in a read which is one such frame and nothing else."""
        self._fed = 0
        self._learnt = 0  # the frame from which it was
        self._wasted = 0
        self.enabled = True
        self.learned = False
        """There is a template."""

    @property
    def fed(self) -> int:
        """How many frames have matched."""
        return self._fed + self.payload.fed + self.sse.fed

    def learn(
        self, data: bytes, number: int, said: str, read: Callable[[bytes], object], apply: Apply
    ) -> None:
        """Make a template from frame `number`, whose string is `said` according to `read`, if the string can
        be found. `read` raises msgspec.MsgspecError for frames that it can't decode."""
        if number - self._learnt < _FEW:
            self._wasted += 1
            self.enabled = self._wasted < _WASTED
        self._learnt = number
        for string in (msgspec.json.encode(said), json.dumps(said).encode()):
            head, found, tail = data.partition(string)
            if found and _ENCODED not in data and _reads(read, head + _ENCODED + tail):
                if self.learned:
                    self.reset()
                self.payload, self.learned = StringTemplate(head, tail, apply), True
                if b"\n" not in data and b"\r" not in data:  # nor in any string, which would not be JSON
                    self.sse = StringTemplate(b"data: " + head, tail + b"\n\n", apply)
                return

    def reset(self) -> None:
        """A frame was another one."""
        if self.learned:
            self._fed = self.fed
            self.payload = self.sse = _NO_TEMPLATE
            self.learned = False


def _never(_said: str) -> None:
    return None


_NO_TEMPLATE: Final = StringTemplate(b"", b"", _never)  # no data begins and ends with nothing, as it compares


def _reads(read: Callable[[bytes], object], data: bytes) -> bool:
    try:
        return read(data) == _EXCHANGED
    except (msgspec.MsgspecError, UnicodeError):
        return False


class BaseInbound:
    """The members of an `Inbound` that only some dialects need: frames that are never alike, reads that end
    nothing, an upstream that keeps nothing. `diagnostics` are the machine's, so that one report has all that
    was repaired and lost."""

    __slots__ = ()

    diagnostics: Diagnostics
    template: FrameTemplate = FrameTemplate()  # of all that learn nothing
    kept_id: str | None = None

    def read_done(self) -> list[Event]:
        """All frames of a read were fed."""
        return []
