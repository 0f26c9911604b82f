"""Images and files of a request → parts: the data itself, or an address that Google fetches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import data_of
from openresponses_bridge.protocol.unknown import UnknownPart

Part = dict[str, Any]

_TEXT: Final = "text/plain"
# by the end of a file's name
_MEDIA: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "pdf": "application/pdf",
    "txt": _TEXT,
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
_FILES: Final = ("https://", "gs://")
_DETAILS: Final = {"low": "MEDIA_RESOLUTION_LOW", "high": "MEDIA_RESOLUTION_HIGH"}


class PartEncoder:
    """Encodes content parts. What Gemini has no part for is a loss, malformed data an error."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics

    def part(self, part: Any, param: str) -> Part | None:
        """The part at this path of the request; None for one that is left out."""
        make = None if isinstance(part, UnknownPart) else _MAKERS.get(part.type)
        if make is None:
            self._diagnostics.loss(f"content.{part.type[:64]}", "Gemini has no such content")
            return None
        return make(self, part, param)

    def _text(self, part: Any, _param: str) -> Part:
        if getattr(part, "annotations", None):
            self._diagnostics.loss("content.annotations", "citations can't be sent back")
        return {"text": part.text}

    def _image(self, part: Any, param: str) -> Part | None:
        if not part.image_url:
            return self._kept(part, "input_image")
        found = self._at(part.image_url, None, f"{param}.image_url")
        if getattr(part, "detail", None) in _DETAILS:
            self._diagnostics.loss("content.input_image.detail", "one for all media, not for one of them")
        return found

    def _file(self, part: Any, param: str) -> Part | None:
        if part.file_url:
            return self._at(part.file_url, part.filename or None, f"{param}.file_url")
        if not part.file_data:
            return self._kept(part, "input_file")
        if part.file_data.startswith("data:"):
            return self._at(part.file_data, part.filename or None, f"{param}.file_data")
        media = _media_of(part.filename or "") or _MEDIA["pdf"]
        return {"inlineData": {"mimeType": media, "data": part.file_data}}

    def _video(self, part: Any, param: str) -> Part | None:
        return self._at(part.video_url, None, f"{param}.video_url")

    def _kept(self, part: Any, kind: str) -> Part | None:
        """A file that Google keeps, by its address."""
        given = part.file_id or ""
        if given.startswith(_FILES):
            return {"fileData": {"fileUri": given}}
        self._diagnostics.loss(f"content.{kind}.file_id", "a file of another server")
        return None

    def _at(self, url: str, filename: str | None, param: str) -> Part | None:
        if not url.startswith("data:"):
            media = _media_of(filename or "") or _media_of(_path_of(url))
            return {"fileData": ({"mimeType": media} if media else {}) | {"fileUri": url}}
        media, data = data_of(url, param)
        return {"inlineData": {"mimeType": media or _media_of(filename or "") or _TEXT, "data": data}}


_TEXTS: Final = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_MAKERS: Final[dict[str, Callable[[PartEncoder, Any, str], Part | None]]] = {
    **dict.fromkeys(_TEXTS, PartEncoder._text),
    "refusal": lambda _encoder, part, _param: {"text": part.refusal},
    "input_image": PartEncoder._image,
    "input_file": PartEncoder._file,
    "input_video": PartEncoder._video,
}


def _path_of(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def _media_of(name: str) -> str | None:
    """The media type of a file by its name."""
    return _MEDIA.get(name.rpartition(".")[2].lower()) if "." in name else None
