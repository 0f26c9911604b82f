"""The newest frames of one run in memory, for any number of readers, with one event for all readers that wait
at the end."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator

from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.logs.base import CHUNK_BYTES, LogGap


class FrameWindow:
    """The newest frames, after `dropped` earlier ones. All readers share them, and each has a chunk of them
    at hand."""

    __slots__ = ("_changed", "_failure", "_frames", "bytes", "dropped", "ended", "run_id")

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.dropped = 0
        self.bytes = 0
        self.ended = False
        self._frames: list[Frames] = []
        self._failure: Exception | None = None
        self._changed: asyncio.Event | None = None

    def append(self, frames: Frames) -> None:
        """Add the next frames, and wake those that wait for them."""
        self._frames.append(frames)
        self.bytes += len(frames.data)
        if self._changed is not None:  # mostly nobody reads along
            self._wake()

    def end(self, failure: Exception | None = None) -> None:
        """End the window: readers end after the last frame, with `failure` if there is one."""
        self.ended, self._failure = True, failure
        self._wake()

    def empty(self, failure: Exception) -> None:
        """End the window at once: readers raise `failure` without the frames that they have not got yet."""
        self.dropped += len(self._frames)
        self._frames, self.bytes = [], 0
        self.end(failure)

    def cut(self, keep: int) -> int:
        """Drop the oldest frames, so that about `keep` bytes are left, and at least the last frames. Returns
        the number of dropped bytes."""
        count = size = 0
        while self.bytes - size > keep and count < len(self._frames) - 1:
            size += len(self._frames[count].data)
            count += 1
        del self._frames[:count]
        self.dropped += count
        self.bytes -= size
        return size

    async def read(self, after: int, *, wait: bool = True) -> AsyncIterator[Frames]:
        """Yield the frames with a number above `after`; with `wait`, until the end. Raises LogGap if one is
        missing, and the failure of the window's end."""
        # by bisection, since there may be many
        place = self.dropped + bisect_right(self._frames, after, key=lambda frames: frames.last)
        while True:
            index = place - self.dropped
            if index < 0 and self._frames:
                raise LogGap(self.run_id, after + 1, self._frames[0].first)
            if index < 0 or index == len(self._frames):
                if self._failure is not None:
                    raise self._failure
                if self.ended or not wait:
                    return
                await self._wait()
                continue
            ready, count = _together(self._frames, index)
            place += count
            rest = ready.after(after)
            if rest is not None:
                if rest.first != after + 1:
                    raise LogGap(self.run_id, after + 1, rest.first)
                after = rest.last
                yield rest

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


def _together(frames: list[Frames], index: int) -> tuple[Frames, int]:
    """Join the consecutive batches from `index` up to the size limit. Returns the joined batch and the number
    of batches in it. A single one is not copied."""
    end, size = index + 1, len(frames[index].data)
    while end < len(frames) and frames[end].first == frames[end - 1].last + 1:
        size += len(frames[end].data)
        if size > CHUNK_BYTES:
            break
        end += 1
    together = joined(frames[index:end])
    assert together is not None
    return together, end - index
