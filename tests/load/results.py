"""What came of a request of the load, and whether it is as it has to be."""

from __future__ import annotations

import json
import time
from typing import Final, NamedTuple

from msgspec import Struct

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.sse import Frame, SSEDecoder, is_done
from openresponses_server.store.endings import CUT_OFF
from tests.load.model import Said

TERMINAL: Final = frozenset({"completed", "failed", "incomplete", "cancelled"})


class Result(NamedTuple):
    """How one request went: `outcome` is the status of a response, `left`, or `refused 429`, `broken`;
    `wrong` says what must never be. `first` is seconds to the first event or to the whole answer, `text` what
    came, and `is_stored` says whether this end is to be found again."""

    outcome: str
    first: float = 0.0
    wrong: str = ""
    response_id: str = ""
    text: str = ""
    is_stored: bool = False


class Recording(Struct, frozen=True):
    """What came of one response's events, to be judged later: `parts` is what each connection brought,
    frames or, of a WebSocket, one event each. `first` is seconds to the first of it; `is_whole` says that the
    last connection's answer ended, `has_left` that the client did."""

    said: Said
    parts: list[bytes]
    first: float = 0.0
    is_whole: bool = False
    has_left: bool = False
    is_stored: bool = False
    is_framed: bool = True

    def judged(self) -> Result:
        """By the validator, and by the text."""
        validator = StreamValidator()
        position = Position()
        for part in self.parts:
            if self.is_framed:
                for frame in SSEDecoder().feed(part):
                    position.read_frame(frame)
                    if not position.was_cut_off:
                        validator.feed_frame(frame)
            else:
                validator.feed(part)
                position.read(part)
        if position.status and not position.was_cut_off:
            validator.close()
        wrong = "; ".join(map(str, validator.violations[:3]))
        text = "".join(position.text)
        if not wrong and position.status:
            wrong = misreported(position.status, text, self.said)
        outcome = position.status or ("left" if self.has_left else "broken")
        stored = self.is_stored and bool(position.status)
        return Result(outcome, self.first, wrong, position.response_id, text, stored)


class Position:
    """How far events have come."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.last = -1
        self.response_id = ""
        self.status = ""
        self.was_cut_off = False
        """It was ended after a crash while its log failed: it may lack what was sent after its last
        checkpoint, events and their numbers (docs/decisions.md)."""

    def read_frame(self, frame: Frame) -> None:
        """The next frame."""
        if not is_done(frame):
            self.read(frame.data)

    def read(self, data: bytes) -> None:
        """The next event."""
        event = json.loads(data)
        self.last = event.get("sequence_number", self.last)
        if event["type"] == "response.output_text.delta":
            self.text.append(event["delta"])
        response = event.get("response")
        if isinstance(response, dict):
            self.response_id = response["id"]
            if response["status"] in TERMINAL:
                self.status = response["status"]
                self.was_cut_off = (response["error"] or {}).get("message") == CUT_OFF.message


class Recorder:
    """Takes the events of one response as they come. They are judged when the load is over: during it that
    would be a third of what all clients take of the server's cores."""

    def __init__(self, said: Said, *, is_stored: bool = False, is_framed: bool = True) -> None:
        self._said = said
        self._is_stored = is_stored
        self._is_framed = is_framed
        self._begun = time.monotonic()
        self._before: list[bytes] = []
        self._pieces: list[bytes] = []
        self.first = 0.0
        self.count = 0

    def feed(self, data: bytes) -> None:
        """Bytes of a stream."""
        self.first = self.first or time.monotonic() - self._begun
        self.count += data.count(b"\n\n")
        self._pieces.append(data)

    def feed_event(self, data: bytes) -> None:
        """One event of a WebSocket."""
        self.feed(data)
        self.cut()

    def cut(self) -> None:
        """What follows comes over another connection."""
        if self._pieces:
            self._before.append(b"".join(self._pieces))
            self._pieces = []

    def position(self) -> Position:
        """How far the frames have come."""
        self.cut()
        found = Position()
        for part in self._before:
            for frame in SSEDecoder().feed(part):
                found.read_frame(frame)
        return found

    def recording(self, *, is_whole: bool = False, has_left: bool = False) -> Recording:
        """After the end."""
        self.cut()
        return Recording(
            self._said, self._before, self.first, is_whole, has_left, self._is_stored, self._is_framed
        )


def misreported(status: str, text: str, said: Said) -> str:
    """What is wrong with a response of this status and text: completed ones have all of it, and others a
    beginning."""
    if status == "completed" and text != said.text:
        return f"completed with {text[-40:]!r} for {said.text[-40:]!r}"
    return "" if said.text.startswith(text) else f"{status} with {text[-60:]!r}"
