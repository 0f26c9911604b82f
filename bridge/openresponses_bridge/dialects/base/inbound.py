"""What inbounds share: defaults for the members that few need, and `FrameTemplate`.

A template decodes frames that differ from the last one in a single string by decoding that string only.

Most servers send the pieces of one text in frames that are otherwise the same. After a frame was decoded, the
bytes around its string are kept as a template. A later frame with the same bytes around another string means
the same with that string: that JSON has no other reading was tried once by replacing the string.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event, OutputItemAdded
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.state import ResponseStreamPhase
from openresponses_bridge.text import is_whole

_MARK: Final = b'"'
_LF: Final = 10
_EXCHANGED: Final = "what stands here is exchanged"
_ENCODED: Final = msgspec.json.encode(_EXCHANGED)
_FEW: Final = 8  # frames; a template for fewer was not worth its cost
_WASTED: Final = 16  # times that this may happen before no more templates are made
_STARTED: Final = 2  # the events of a response that begins without items of the server
_decode = msgspec.json.Decoder(str).decode

Apply = Callable[[str], list[Event] | None]
"""Returns the events of a frame with this string; None, and changes nothing, if the whole frame has to be
read."""


class StringTemplate:
    """The bytes around one string, with its quotation marks: `head` ends with one and `tail` begins with one.
    `apply` is called with the string of each frame that matches."""

    __slots__ = ("_after", "_apply", "_before", "_head", "_string", "_tail", "fed")

    def __init__(self, head: bytes, tail: bytes, apply: Apply) -> None:
        self._head, self._tail = head, tail
        # the slices of these and of the string: comparing slices is quicker than `startswith`
        self._before, self._after = slice(len(head)), slice(-len(tail), None)
        # the marks are compared and decoded: white space before them may end a line of SSE
        self._string = slice(len(head) - 1, 1 - len(tail))
        self._apply = apply
        self.fed = 0
        """The number of frames that have matched."""

    def feed(self, data: bytes) -> list[Event] | None:
        """Return the events of a frame that differs from the template only in its string; None, and change
        nothing, for any other frame."""
        if data[self._before] == self._head and data[self._after] == self._tail:
            string = data[self._string]
            if _LF in string:
                return None  # usually several frames; quicker than an exception
            try:
                text = _decode(string)
                events = self._apply(text) if text else None
            except (msgspec.MsgspecError, UnicodeError, BridgeError):
                return None  # reported when the whole frame is read
            if events is not None:
                self.fed += 1
            return events
        return None


class FrameString(NamedTuple):
    """The only string of a frame: its `text`; `read`, which decodes it from any such payload or raises what
    msgspec raises; and `apply`, which feeds the next string to the machine."""

    text: str
    read: Callable[[bytes], object]
    apply: Apply


class FrameTemplate:
    """The template of a stream's frames, made from one of them. `enabled` becomes False once the frames have
    differed in more than a string too often."""

    __slots__ = ("_fed", "_learnt", "_wasted", "enabled", "learned", "payload", "sse")

    def __init__(self) -> None:
        self.payload: StringTemplate = _NO_TEMPLATE
        """The template of a frame's payload."""
        self.sse: StringTemplate = _NO_TEMPLATE
        """The template of a read that is exactly one such frame."""
        self._fed = 0
        self._learnt = 0  # the number of the frame that it was made from
        self._wasted = 0
        self.enabled = True
        self.learned = False
        """True if there is a template."""

    @property
    def fed(self) -> int:
        """The number of frames that have matched."""
        return self._fed + self.payload.fed + self.sse.fed

    def learn(self, data: bytes, event: str, number: int, string: FrameString) -> None:
        """Make a template from the payload of frame `number`, if its string can be found. `event` is the name
        of its SSE event."""
        if number - self._learnt < _FEW:
            self._wasted += 1
            self.enabled = self._wasted < _WASTED
        self._learnt = number
        text, read, apply = string
        if not is_whole(text):
            return
        for written in (msgspec.json.encode(text), json.dumps(text).encode()):
            head, separator, tail = data.partition(written)
            if separator and _ENCODED not in data and _reads(read, head + _ENCODED + tail):
                if self.learned:
                    self.reset()
                head, tail = head + _MARK, _MARK + tail
                self.payload, self.learned = StringTemplate(head, tail, apply), True
                if b"\n" not in data and b"\r" not in data:  # nor in any string, where JSON allows neither
                    name = b"event: %b\n" % event.encode() if event else b""
                    self.sse = StringTemplate(name + b"data: " + head, tail + b"\n\n", apply)
                return

    def reset(self) -> None:
        """Drop the template, since a frame did not match."""
        if self.learned:
            self._fed += self.payload.fed + self.sse.fed
            self.payload = self.sse = _NO_TEMPLATE
            self.learned = False


def _never(_said: str) -> None:
    return None


_NO_TEMPLATE: Final = StringTemplate(b"", b"", _never)  # no data begins and ends with nothing, as it compares


def _reads(read: Callable[[bytes], object], data: bytes) -> bool:
    try:
        return read(data) == _EXCHANGED
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


class BaseInbound:
    """The members of an `Inbound` that only some dialects need, for those whose frames are never alike, whose
    reads end nothing, and whose upstream keeps nothing. `diagnostics` are the machine's, so that one report
    has all repairs and losses."""

    __slots__ = ()

    diagnostics: Diagnostics
    template: FrameTemplate = FrameTemplate()  # shared by all that learn nothing
    kept_id: str | None = None

    def read_done(self) -> list[Event]:
        """Handle the end of a read, whose frames were all fed."""
        return []

    def flush(self) -> list[Event]:
        """Return the events of output that was held back, because the upstream has failed."""
        return []


class OnceBegun(BaseInbound):
    """An inbound that starts its machine with its first frame, and reads no frames after its end. A response
    may consist of several answers, each with an inbound of its own, and begin with items of the server."""

    __slots__ = ("_before", "_ended", "_live", "_machine", "diagnostics")

    def __init__(self, machine: ResponseStream) -> None:
        self.diagnostics = machine.diagnostics
        self._machine = machine
        self._live = False  # between the first frame and the end
        self._ended = False
        self._before = 0  # items in the output when this answer began

    @property
    def own_output(self) -> list[Item]:
        """The items of this answer so far. The cost is that of the size of the response."""
        return self._machine.snapshot.output[self._before :]

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one frame's payload."""
        raise NotImplementedError

    def _outside(self, data: bytes, event: str) -> list[Event]:
        """Handle a frame before the stream begins or after it has ended."""
        if self._ended:
            self.diagnostics.ignored("frame", "came after the end")
            return []
        if self._machine.phase is ResponseStreamPhase.IDLE:
            self._read_first(data)
        return self._begin() + self.feed(data, event)

    def _read_first(self, data: bytes) -> None:
        """Read what the first frame says about the answer, before the response begins, which includes it."""

    def _begin(self) -> list[Event]:
        if self._live:
            return []
        self._live = True
        if self._machine.phase is ResponseStreamPhase.IDLE:
            events = self._machine.start()
            if len(events) > _STARTED:
                self._before = sum(type(event) is OutputItemAdded for event in events)
            return events
        self._before = len(self._machine.snapshot.output)
        return []

    def _mark_ended(self) -> None:
        self._live, self._ended = False, True
        if self.template.learned:
            self.template.reset()
