"""The bodies of recorded answers, line by line and at the times at which they came."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from openresponses_server.observation.recordings.records import Chunk, Ended, Record


def speed_of(speed: float | str) -> float | None:
    """How many times as fast as recorded; None without any waiting."""
    return None if speed == "max" else 1.0 if speed == "real" else float(speed)


class Clock:
    """Runs `speed` times as fast as the recording did; without a speed nothing is waited for."""

    def __init__(
        self,
        speed: float | None,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed = speed
        self._now = now
        self._wait = wait
        self._offset: float | None = None
        self.at = 0.0
        """The time of the recording that was reached last."""

    def reach(self, at: float) -> None:
        """Wait for what the recording has at this time; the first time that is asked for is now."""
        self.at = at
        if self._speed is None:
            return
        due = at / self._speed
        if self._offset is None:
            self._offset = self._now() - due
        left = due + self._offset - self._now()
        if left > 0:
            self._wait(left)


def body_lines(records: Iterable[Record], clock: Clock) -> Iterator[bytes]:
    """The lines of a recorded body with their ends, as soon as each of them was whole, and b"" for each
    record, so that those which complete no line are seen too."""
    pieces: list[bytes] = []
    for record in records:
        yield b""
        if not isinstance(record, Chunk):
            if isinstance(record, Ended):
                clock.reach(record.at)
            continue
        clock.reach(record.at)
        *whole, rest = record.data.split(b"\n")
        for line in whole:
            yield b"".join([*pieces, line, b"\n"])
            pieces = []
        if rest:
            pieces.append(rest)
    if last := b"".join(pieces):
        yield last
