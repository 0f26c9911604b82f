"""The Messages stream as structs, for both directions.

Reading: every field may be missing or null, and unknown fields are skipped; a frame with a value of another
type is read by `upstream/inbound.py`, field by field. Writing: default values are left out, `type` comes
first. Objects that grow with every release (messages, blocks, usage) are plain dictionaries. Counts are
tokens.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.protocol.unknown import Extensible


class TextDelta(Struct, tag="text_delta", tag_field="type", omit_defaults=True, gc=False):
    """The next piece of a text block."""

    text: str | None = None


class InputJsonDelta(Struct, tag="input_json_delta", tag_field="type", omit_defaults=True, gc=False):
    """The next piece of a tool's input, as JSON text."""

    partial_json: str | None = None


class ThinkingDelta(Struct, tag="thinking_delta", tag_field="type", omit_defaults=True, gc=False):
    """The next piece of a thinking block."""

    thinking: str | None = None


class SignatureDelta(Struct, tag="signature_delta", tag_field="type", omit_defaults=True, gc=False):
    """The signature of a thinking block, which comes before the block's end."""

    signature: str | None = None


class CitationsDelta(Struct, tag="citations_delta", tag_field="type", omit_defaults=True):
    """A source of the open text block."""

    citation: dict[str, Any] | None = None


class CompactionDelta(Struct, tag="compaction_delta", tag_field="type", omit_defaults=True, gc=False):
    """The compacted history, as text and in an opaque form."""

    content: str | None = None
    encrypted_content: str | None = None


Delta = TextDelta | InputJsonDelta | ThinkingDelta | SignatureDelta | CitationsDelta | CompactionDelta

NO_INDEX = -1
TIERS: Final = {"default": "standard", "priority": "priority", "batch": "batch"}
"""The service tiers of answers: the protocol's names → Anthropic's."""
DIALECT: Final = "anthropic"
SLUG: Final = "anthropic:"  # with a hosted block's type, the type of its item
SYSTEM_FIELDS: Final = f"{SLUG}system_fields"  # the type of an item with the fields of a system message


class MessageStart(Struct, tag="message_start", tag_field="type"):
    """The message before its content: id, model, the usage so far."""

    message: dict[str, Any] | None = None


class ContentBlockStart(Struct, tag="content_block_start", tag_field="type"):
    """A block begins."""

    index: int = NO_INDEX
    content_block: dict[str, Any] | None = None


class ContentBlockDelta(Struct, tag="content_block_delta", tag_field="type", gc=False):
    """A block grows."""

    index: int = NO_INDEX
    delta: Delta | None = None


class ContentBlockStop(Struct, tag="content_block_stop", tag_field="type", gc=False):
    """A block is whole."""

    index: int = NO_INDEX


class MessageDelta(Extensible, frozen=True, tag="message_delta", tag_field="type", omit_defaults=True):
    """The reason for which the message ends, and its cumulative usage."""

    delta: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None


class MessageStop(Struct, tag="message_stop", tag_field="type"):
    """The end."""


class Ping(Struct, tag="ping", tag_field="type"):
    """Keeps the connection alive."""


class ErrorFrame(Struct, tag="error", tag_field="type", omit_defaults=True):
    """A failure within a stream, in the format of an error body. Some servers put the message, or the error
    itself as `message`, beside `type`."""

    error: dict[str, Any] | None = None
    message: str | None = None
    code: str | None = None


class WholeMessage(Struct, tag="message", tag_field="type"):
    """A message that was not streamed."""

    id: str | None = None
    model: str | None = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None


class UnknownFrame(Struct):
    """A frame of an unknown type, `kind`, with all its fields."""

    kind: str
    fields: dict[str, Any]


KnownFrame = (
    MessageStart
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | Ping
    | ErrorFrame
    | WholeMessage
)
Frame = KnownFrame | UnknownFrame
# frames that an outbound sends
Chunk = (
    MessageStart
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | ErrorFrame
)
