"""What inbounds share: defaults for the members that few need, and `FrameTemplate`.

A template decodes frames that differ from the last one in a single string by decoding that string only.

Most servers send the pieces of one text in frames that are otherwise the same. After a frame was decoded, the
bytes around its string are kept as a template. A later frame with the same bytes around another string means
the same with that string: JSON has no other reading, since replacing the string was tried once.
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
_FEW: Final = 8  # frames; what was learnt for fewer was not worth it
_WASTED: Final = 16  # how often that may be before nothing is learnt any more
_STARTED: Final = 2  # the events of a response that begins without items of the server's
_decode = msgspec.json.Decoder(str).decode

Apply = Callable[[str], list[Event] | None]
"""The events of a frame with this string; None, and no change, when all of the frame has to be read."""


class StringTemplate:
    """The bytes around one string, with its quotation marks: `head` ends with one and `tail` begins with one.
    `apply` is given the string of each frame that matches."""

    __slots__ = ("_after", "_apply", "_before", "_head", "_string", "_tail", "fed")

    def __init__(self, head: bytes, tail: bytes, apply: Apply) -> None:
        self._head, self._tail = head, tail
        # where these stand, and the string between them: comparing slices is quicker than asking for them
        self._before, self._after = slice(len(head)), slice(-len(tail), None)
        # the marks are compared and decoded: white space before them may end a line of SSE
        self._string = slice(len(head) - 1, 1 - len(tail))
        self._apply = apply
        self.fed = 0
        """How many frames have matched."""

    def feed(self, data: bytes) -> list[Event] | None:
        """The events of a frame that differs from the template in its string alone; None, and no change, for
        any other."""
        if data[self._before] == self._head and data[self._after] == self._tail:
            string = data[self._string]
            if _LF in string:
                return None  # several frames, as a rule: quicker to see than by an exception
            try:
                said = _decode(string)
                events = self._apply(said) if said else None
            except (msgspec.MsgspecError, UnicodeError, BridgeError):
                return None  # whoever reads all of the frame reports it
            if events is not None:
                self.fed += 1
            return events
        return None


class FrameString(NamedTuple):
    """The single string of a frame: its `text`, `read`, which decodes it from any such payload or raises what
    msgspec raises, and `apply`, which feeds the next one to the machine."""

    text: str
    read: Callable[[bytes], object]
    apply: Apply


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
            head, found, tail = data.partition(written)
            if found and _ENCODED not in data and _reads(read, head + _ENCODED + tail):
                if self.learned:
                    self.reset()
                head, tail = head + _MARK, _MARK + tail
                self.payload, self.learned = StringTemplate(head, tail, apply), True
                if b"\n" not in data and b"\r" not in data:  # nor in any string, which would not be JSON
                    name = b"event: %b\n" % event.encode() if event else b""
                    self.sse = StringTemplate(name + b"data: " + head, tail + b"\n\n", apply)
                return

    def reset(self) -> None:
        """A frame was another one."""
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
    """The members of an `Inbound` that only some dialects need: frames that are never alike, reads that end
    nothing, an upstream that keeps nothing. `diagnostics` are the machine's, so that one report has all that
    was repaired and lost."""

    __slots__ = ()

    diagnostics: Diagnostics
    template: FrameTemplate = FrameTemplate()  # of all that learn nothing
    kept_id: str | None = None

    def read_done(self) -> list[Event]:
        """Handle the end of a read, whose frames were all fed."""
        return []

    def flush(self) -> list[Event]:
        """Give what is held back of the output, because the upstream has failed."""
        return []


class OnceBegun(BaseInbound):
    """An inbound that starts its machine with its first frame and reads none after its end. A response may
    consist of several answers, each with an inbound of its own, and begin with items of the server's."""

    __slots__ = ("_before", "_ended", "_live", "_machine", "diagnostics")

    def __init__(self, machine: ResponseStream) -> None:
        self.diagnostics = machine.diagnostics
        self._machine = machine
        self._live = False  # between the first frame and the end
        self._ended = False
        self._before = 0  # items of the output when this answer began

    @property
    def own_output(self) -> list[Item]:
        """The items of this answer so far. Costs the size of the response."""
        return self._machine.snapshot.output[self._before :]

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """One frame's payload."""
        raise NotImplementedError

    def _outside(self, data: bytes, event: str) -> list[Event]:
        """A frame while the stream is not live."""
        if self._ended:
            self.diagnostics.ignored("frame", "came after the end")
            return []
        if self._machine.phase is ResponseStreamPhase.IDLE:
            self._read_first(data)
        return self._begin() + self.feed(data, event)

    def _read_first(self, data: bytes) -> None:
        """Read what the first frame says of the answer, before the response begins, which is to have it."""

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
