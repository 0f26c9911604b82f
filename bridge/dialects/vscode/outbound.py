"""OpenResponses events → VS Code's parts, one JSON line each. `PartDecoder` does the work."""

from __future__ import annotations

from typing import Any

from bridge.decoder import PartDecoder, PartResult, encode_parts
from bridge.diagnostics import Diagnostics
from bridge.protocol.events import Event


class Outbound:
    """Takes the options of `PartDecoder`. A chunk is a line with its line end."""

    def __init__(self, **options: Any) -> None:
        self._decoder = PartDecoder(**options)

    @property
    def result(self) -> PartResult:
        """What the stream told beside its parts."""
        return self._decoder.result

    @property
    def diagnostics(self) -> Diagnostics:
        return self._decoder.result.diagnostics

    def feed(self, event: Event) -> list[bytes]:
        """The parts that this event makes whole."""
        return [encode_parts((part,)) for part in self._decoder.feed(event)]

    def close(self) -> list[bytes]:
        """What is left to say when the stream has ended."""
        return [encode_parts((part,)) for part in self._decoder.close()]
