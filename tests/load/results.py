"""The results of a load's requests, and the checks of them."""

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
    """The result of one request: `outcome` is the status of a response, `left`, `refused 429` (with any
    status) or `broken`; `wrong` says what must never happen. `first` is the seconds to the first event or to
    the whole answer, `text` the received text, and `is_stored` says whether the same end has to be found in
    the store afterwards."""

    outcome: str
    first: float = 0.0
    wrong: str = ""
    response_id: str = ""
    text: str = ""
    is_stored: bool = False


class Recording(Struct, frozen=True):
    """The received events of one response, to be checked later: `parts` has the data of each connection,
    frames or, for a WebSocket, one event each. `first` is the seconds to the first of them; `is_whole` says
    that the answer on the last connection ended, `has_left` that the client left."""

    said: Said
    parts: list[bytes]
    first: float = 0.0
    is_whole: bool = False
    has_left: bool = False
    is_stored: bool = False
    is_framed: bool = True

    def judged(self) -> Result:
        """Check a recording with the validator, and compare its text."""
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
    """The position that the events have reached."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.last = -1
        self.response_id = ""
        self.status = ""
        self.was_cut_off = False
        """It was ended after a crash while its log failed: it may lack what was sent after its last
        checkpoint, events and their numbers (docs/decisions.md)."""

    def read_frame(self, frame: Frame) -> None:
        """Move on by the next frame."""
        if not is_done(frame):
            self.read(frame.data)

    def read(self, data: bytes) -> None:
        """Move on by the next event."""
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
    """Takes the events of one response as they arrive. They are checked after the load: during the load that
    would need a third of the CPU that all clients take from the server's cores."""

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
        """Take bytes of a stream."""
        self.first = self.first or time.monotonic() - self._begun
        self.count += data.count(b"\n\n")
        self._pieces.append(data)

    def feed_event(self, data: bytes) -> None:
        """Take one event of a WebSocket."""
        self.feed(data)
        self.cut()

    def cut(self) -> None:
        """Take note that what follows comes over another connection."""
        if self._pieces:
            self._before.append(b"".join(self._pieces))
            self._pieces = []

    def position(self) -> Position:
        """The position that the frames have reached."""
        self.cut()
        result = Position()
        for part in self._before:
            for frame in SSEDecoder().feed(part):
                result.read_frame(frame)
        return result

    def recording(self, *, is_whole: bool = False, has_left: bool = False) -> Recording:
        """The recording, after the end."""
        self.cut()
        return Recording(
            self._said, self._before, self.first, is_whole, has_left, self._is_stored, self._is_framed
        )


def misreported(status: str, text: str, said: Said) -> str:
    """Describe what is wrong with a response of this status and text: a completed response has to have the
    whole text, and others a beginning of it."""
    if status == "completed" and text != said.text:
        return f"completed with {text[-40:]!r} for {said.text[-40:]!r}"
    return "" if said.text.startswith(text) else f"{status} with {text[-60:]!r}"
