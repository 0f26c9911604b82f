"""OpenResponses events → VS Code's parts, one JSON line each. `PartDecoder` does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypedDict, Unpack

from openresponses_bridge.decoder import PartDecoder, PartResult, encode_parts
from openresponses_bridge.decoder.finish import STATEFUL_MARKER_MIME, USAGE_MIME
from openresponses_bridge.decoder.part_decoder import ErrorPolicy
from openresponses_bridge.decoder.thinking import ThinkingPolicy
from openresponses_bridge.decoder.tool_calls import CallIdSource
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import ClientSide, Dialect, Recording, type_of
from openresponses_bridge.dialects.vscode.inbound import Inbound
from openresponses_bridge.dialects.vscode.reading import decode_chat
from openresponses_bridge.dialects.vscode.request import from_vscode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer


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
    model: str | None
    trace: Callable[[str], None] | None


class Outbound:
    """Takes the options of `PartDecoder`. A chunk is a line with its line end."""

    def __init__(self, **options: Unpack[OutboundOptions]) -> None:
        self._decoder = PartDecoder(**options)

    @property
    def result(self) -> PartResult:
        """What the stream said beside its parts."""
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


# The entry of the dialect.


def _from_client(body: bytes, _sealer: Sealer) -> tuple[CreateResponse, Diagnostics]:
    return from_vscode(decode_chat(body))


def _is_closing(value: Mapping[str, Any]) -> bool:
    """Whether a part stands behind all of an answer: its usage, and the marker of the next request."""
    return value.get("mimeType") in (USAGE_MIME, STATEFUL_MARKER_MIME)


DIALECT: Final = Dialect(
    name="vscode",
    title="VS Code",
    client=ClientSide(outbound=Outbound, encode=b"".join, request=_from_client),
    recording=Recording(
        recognises=lambda value: type_of(value).startswith("LanguageModel"),
        inbound=lambda machine: Inbound(machine, expects_marker=False),
        concludes=_is_closing,
        begins=lambda value, _before: not _is_closing(value),
    ),
)
"""Its answers are always streamed."""
