"""n choices of one answer: n responses of their own, told in one stream."""

from __future__ import annotations

from typing import Any

import msgspec

from bridge.diagnostics import Diagnostics
from bridge.dialects.chat_completions.client.chunks import DONE, Chunk, ErrorBody, StreamChunk
from bridge.dialects.chat_completions.client.ending import summed
from bridge.dialects.chat_completions.client.outbound import Outbound
from bridge.dialects.chat_completions.types import ChatUsage
from bridge.protocol.events import Event


class Choices:
    """`feed(choice, event)` for the events of each machine, in any mixture.

    Options are those of `Outbound`, but for `choice`. An error of one ends the stream, since a client
    can't tell whose it was; usage is told once, as the sum.
    """

    def __init__(self, n: int, *, id: str, created: int, **options: Any) -> None:
        self._outbounds = [Outbound(choice=choice, id=id, created=created, **options) for choice in range(n)]
        self._usage: list[ChatUsage] = []
        self._last: StreamChunk | None = None
        self._failed = False

    @property
    def diagnostics(self) -> Diagnostics:
        """All that was lost, of every choice."""
        found = Diagnostics()
        for outbound in self._outbounds:
            found.extend(outbound.diagnostics)
        return found

    def feed(self, choice: int, event: Event) -> list[Chunk]:
        return [] if self._failed else self._passed(self._outbounds[choice].feed(event))

    def close(self) -> list[Chunk]:
        """The summed usage if it was asked for, then `[DONE]`."""
        chunks: list[Chunk] = []
        for outbound in self._outbounds:
            if not self._failed:
                chunks += self._passed(outbound.close()[:-1])
        if self._last is not None and not self._failed:
            chunks.append(msgspec.structs.replace(self._last, usage=summed(self._usage)))
        return [*chunks, DONE]

    def _passed(self, chunks: list[Chunk]) -> list[Chunk]:
        passed: list[Chunk] = []
        for chunk in chunks:
            if isinstance(chunk, StreamChunk) and isinstance(chunk.usage, ChatUsage):
                self._usage.append(chunk.usage)
                self._last = chunk
            else:
                passed.append(chunk)
                self._failed = self._failed or isinstance(chunk, ErrorBody)
        return passed
