"""A stream of bytes as lines of a bounded length."""

from __future__ import annotations


class LineTooLong(ValueError):
    """More bytes than a line may have have come without an end of line."""


class Lines:
    """Splits what is read. A line has at most `most` bytes; its cost is linear however it was cut up."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends. Raises LineTooLong."""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._held, whole[0]])
            self._held, self._size = [], 0
        if rest:
            self._held.append(rest)
            self._size += len(rest)
        if self._size > self._most or any(len(line) > self._most for line in whole):
            raise LineTooLong
        return [line for each in whole if (line := each.strip())]
