"""Converts OpenResponses events to VS Code's parts, one JSON line each, with `PartDecoder`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypedDict, Unpack

from openresponses_bridge.decoder import PartDecoder, PartResult, encode_parts
from openresponses_bridge.decoder.part_decoder import ErrorPolicy
from openresponses_bridge.decoder.thinking import ThinkingPolicy
from openresponses_bridge.decoder.tool_calls import CallIdSource
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.events import Event


class OutboundOptions(TypedDict, total=False):
    """The options of `PartDecoder`, which says what they mean."""

    thinking: ThinkingPolicy
    call_id_prefix: str
    call_id_source: CallIdSource
    custom_tools: bool
    citations: Literal["link", "drop"]
    errors: ErrorPolicy
    no_response: bool
    paragraph_breaks: bool
    include_encrypted_thinking: bool
    max_argument_bytes: int
    repair: bool
    model: str | None
    trace: Callable[[str], None] | None


class Outbound:
    """Encodes parts. Options are those of `PartDecoder`. A chunk is a line with its line end."""

    def __init__(self, **options: Unpack[OutboundOptions]) -> None:
        self._decoder = PartDecoder(**options)

    @property
    def result(self) -> PartResult:
        """The facts about the stream besides its parts."""
        return self._decoder.result

    @property
    def diagnostics(self) -> Diagnostics:
        return self._decoder.result.diagnostics

    def feed(self, event: Event) -> list[bytes]:
        """Return the parts that this event completes."""
        return [encode_parts((part,)) for part in self._decoder.feed(event)]

    def close(self) -> list[bytes]:
        """Return the last lines when the stream has ended."""
        return [encode_parts((part,)) for part in self._decoder.close()]
