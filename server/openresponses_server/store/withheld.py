"""The output of a response in the background that nobody is shown before its end, so that the response can
be made again whenever its worker stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog
from msgspec.structs import replace

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.unseen import shows_output

_MOST: Final = 16 * 1024 * 1024  # bytes of frames; what is longer is shown from there on, as any other output
_log = structlog.get_logger(__name__)


class Withheld:
    """Of one response; `wanted`: there is anything to withhold."""

    def __init__(self, response_id: str, *, wanted: bool) -> None:
        self._id = response_id
        self.idle = not wanted
        """Nothing is withheld, nor will be."""
        self._wanted = wanted
        self._frames: list[Frames] = []
        self._size = 0

    def passing(self, events: list[Event]) -> list[Event]:
        """Those of the events that may pass now; the rest is withheld. When that is too much, all pass from
        now on, the first of them with what was withheld before (`batch`)."""
        if not self._wanted:
            return events
        first = 0
        while not self._frames and first < len(events) and not shows_output(events[first : first + 1]):
            first += 1
        if first == len(events):
            return events
        if self._size > _MOST:
            self._wanted = False
            _log.warning("run.not_withheld", response_id=self._id, bytes=self._size)
            return events
        self._frames.append(frames_of(events[first:]))
        self._size += len(self._frames[-1].data)
        return events[:first]

    def batch(self, events: Sequence[Event]) -> Frames:
        """The frames of these, behind those before them that are withheld."""
        frames = frames_of(events)
        if not self._frames:
            return frames
        whole = joined([*(each for each in self._frames if each.first < frames.first), frames])
        assert whole is not None
        return whole

    def shown(self, events: Sequence[Event]) -> Frames:
        """The same of a batch that passes: what is shown with it is withheld no more."""
        frames = self.batch(events)
        if self._frames and not self._wanted:
            self._frames.clear()
            self.idle = True
        return frames

    def of(self, snapshot: Callable[[], Response]) -> Callable[[], Response]:
        """The response as the store may show it."""
        return lambda: replace(snapshot(), output=[], usage=None) if self._wanted else snapshot()


def frames_of(events: Sequence[Event]) -> Frames:
    """Events of one stream, one behind the other, as frames."""
    first, last = events[0].sequence_number, events[-1].sequence_number
    return Frames(first, last, encode_sse(events))
