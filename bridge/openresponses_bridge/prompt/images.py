"""Images of raw messages as the one text that the APIs take for them: an address or a data URL."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.prompt.raw import Base64Image, ImageSource, ImageUrl

_SCHEME: Final = "data:"
_BASE64: Final = ";base64"


def url_of(source: ImageSource) -> str:
    """The address, or the data as a data URL."""
    if isinstance(source, ImageUrl):
        return source.url
    return f"{_SCHEME}{source.media_type}{_BASE64},{source.data}"


def source_of(url: str) -> ImageSource:
    """An address or a data URL as a source. A data URL that is not base64 stays an address."""
    head, comma, data = url.partition(",")
    if comma and head.startswith(_SCHEME) and head.endswith(_BASE64):
        return Base64Image(head[len(_SCHEME) :].partition(";")[0].lower(), data)
    return ImageUrl(url)
