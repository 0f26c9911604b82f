"""The names of Converse that both sides use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DIALECT: Final = "bedrock"
SLUG: Final = "bedrock:"
"""With a block's kind: the type of the part or item that has a block which the protocol does not know."""
EVENTS: Final = (
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
    "metadata",
)
TIERS: Final = {"default": "default", "priority": "priority", "flex": "flex", "reserved": "reserved"}
"""Service tiers in the protocol's names → in those of Converse."""
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
CACHE_POINT: Final = "cachePoint"


def kind_of(block: Mapping[str, Any]) -> str:
    """Return the kind of a content block, its only field; "" if it has none."""
    return next((name for name, value in block.items() if value is not None), "")
