"""The media types of files by their names, for APIs that require them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

MEDIA_TYPES: Final[Mapping[str, str]] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "xml": "text/xml",
    "json": "application/json",
    "mp3": "audio/mp3",
    "wav": "audio/wav",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
}
"""The media types by the extensions of files."""


def media_type_of(name: str, known: Mapping[str, str] = MEDIA_TYPES) -> str | None:
    """Return the media type of the file with this name; None if its extension is not among the `known`
    ones."""
    return known.get(name.rpartition(".")[2].lower()) if "." in name else None


def media_type_at(url: str, known: Mapping[str, str] = MEDIA_TYPES) -> str | None:
    """Return the media type of the file at this address, by its path."""
    try:
        path = urlsplit(url).path
    except ValueError:
        return None
    return media_type_of(path, known)
