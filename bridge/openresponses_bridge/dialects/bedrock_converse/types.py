"""The names of Converse that both sides use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DIALECT: Final = "bedrock"
SLUG: Final = "bedrock:"
"""With a block's kind, the type of the part or item that has a block which the protocol does not know."""
EVENTS: Final = (
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
    "metadata",
)
TIERS: Final = {"default": "default", "priority": "priority", "flex": "flex", "reserved": "reserved"}
"""Service tiers: the protocol's names → those of Converse."""
IMAGE_FORMATS: Final = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
DOCUMENT_FORMATS: Final = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
VIDEO_FORMATS: Final = {
    "video/x-matroska": "mkv",
    "video/quicktime": "mov",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/x-flv": "flv",
    "video/mpeg": "mpeg",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
"""Media types → formats."""
AUDIO_FORMATS: Final = frozenset(
    {
        *("mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "mka"),
        *("x-aac", "m4a", "mpeg", "mpga", "pcm", "webm"),
    }
)
CACHE_POINT: Final = "cachePoint"
GUARDED: Final = "guardContent"
REASONING: Final = "reasoningContent"
REASONING_TEXT: Final = "reasoningText"
REDACTED: Final = "redactedContent"
STOP_REASON: Final = "stopReason"
ADDITIONAL_RESPONSE: Final = "additionalModelResponseFields"
METADATA: Final = frozenset({"usage", "metrics", "trace", "performanceConfig", "serviceTier"})
TOTAL: Final = "totalTokens"
_PARTS: Final = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
COUNTS: Final = (*_PARTS, TOTAL)
"""The counts of `usage`."""


def kind_of(block: Mapping[str, Any]) -> str:
    """Return the kind of a content block, its only field; "" if it has none."""
    return next((name for name, value in block.items() if value is not None), "")


def sum_of(usage: Mapping[str, Any]) -> int:
    """Return the sum of the other counts of a usage."""
    return sum(count for name in _PARTS if type(count := usage.get(name)) is int)
