"""A stream as lines of JSON for the inspector, each event with what is wrong with it (see
`captures/observing.py`)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.sse import DONE, SSEDecoder
from openresponses_server.observation.recordings.observing import Observer
from openresponses_server.runs.client import Batch

LINES_TYPE = b"application/x-ndjson"
LINE_KEEP_ALIVE = b"\n"


class ObservedForm:
    """The answer to one request, received at `began` (of `time.perf_counter`); `report` is what its
    translation notes."""

    stream_type = LINES_TYPE
    keep_alive = LINE_KEEP_ALIVE
    one_form = False

    def __init__(self, report: Diagnostics, began: float) -> None:
        self._lines = ObservedFrames(report, began=began)

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        data = self._lines.feed(batch.encoded())
        return data + self._lines.feed(DONE) + self._lines.close() if ended else data

    def whole(self, response: Response) -> bytes | None:
        return None


class ObservedFrames:
    """Bytes of server-sent events, cut anywhere, into lines with the time at which they were read: since
    `began`, or since the first were."""

    def __init__(self, *reports: Diagnostics, began: float | None = None) -> None:
        self._frames = SSEDecoder()
        self._observer = Observer("auto", *reports)
        self._began = began

    def feed(self, data: bytes) -> bytes:
        """The lines of the frames that are whole."""
        at = self._at()
        return b"".join([self._observer.frame(frame, at) for frame in self._frames.feed(data)])

    def close(self) -> bytes:
        """The last line."""
        return self._observer.close(self._at())

    def _at(self) -> float:
        now = time.perf_counter()
        self._began = now if self._began is None else self._began
        return round(now - self._began, 6)


async def observed_frames(
    pieces: AsyncIterator[bytes], after: int, began: float | None = None
) -> AsyncIterator[bytes]:
    """The lines of a stored stream whose events have a number above `after`. The events before are read as
    well, since what is wrong with an event depends on them."""
    lines, left = ObservedFrames(began=began), after + 1
    async for piece in pieces:
        made = lines.feed(piece)
        while left > 0 and made:
            made, left = made[made.index(b"\n") + 1 :], left - 1
        if made:
            yield made
    yield lines.close()
