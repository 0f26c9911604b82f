"""Converts images and files of a request to parts: the data itself, or an address that Google fetches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    MEDIA_TYPES,
    Fields,
    data_of,
    google_file_of,
    media_type_at,
    media_type_of,
    sound_format,
)
from openresponses_bridge.dialects.gemini.options import GeminiOptions
from openresponses_bridge.protocol.unknown import UnknownPart

Part = dict[str, Any]

_TEXT: Final = "text/plain"
_DETAILS: Final = {"low": "MEDIA_RESOLUTION_LOW", "high": "MEDIA_RESOLUTION_HIGH"}


class PartEncoder:
    """Encodes content parts. A part that Gemini does not have is a loss, malformed data are an error."""

    def __init__(self, options: GeminiOptions, diagnostics: Diagnostics) -> None:
        self._options = options
        self._diagnostics = diagnostics

    def part(self, part: Any, param: str) -> Part | None:
        """Return the part for a part of the request at this path; None if it is left out."""
        makers = _OF_RAW if isinstance(part, UnknownPart) else _MAKERS
        make = makers.get(part.type)
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
            return self._kept(part, param)
        image = self._at(part.image_url, None, f"{param}.image_url")
        if getattr(part, "detail", None) in _DETAILS:
            self._diagnostics.loss("content.input_image.detail", "Gemini has one for all media of a request")
        return image

    def _file(self, part: Any, param: str) -> Part | None:
        if part.file_url:
            return self._at(part.file_url, part.filename or None, f"{param}.file_url")
        if not part.file_data:
            return self._kept(part, param)
        if part.file_data.startswith("data:"):
            return self._at(part.file_data, part.filename or None, f"{param}.file_data")
        media = media_type_of(part.filename or "") or MEDIA_TYPES["pdf"]
        return {"inlineData": {"mimeType": media, "data": part.file_data}}

    def _video(self, part: Any, param: str) -> Part | None:
        return self._at(part.video_url, None, f"{param}.video_url")

    def _sound(self, part: Any, param: str) -> Part:
        """Return a part for OpenAI's `input_audio`, whose format is a subtype of `audio/`."""
        sound = Fields(part.raw, param).inner("input_audio")
        kind = sound_format(sound)
        return {"inlineData": {"mimeType": f"audio/{kind}", "data": sound.need("data", str)}}

    def _kept(self, part: Any, param: str) -> Part | None:
        address = google_file_of(part, param, self._options.kept_files, self._diagnostics)
        return None if address is None else {"fileData": {"fileUri": address}}

    def _at(self, url: str, filename: str | None, param: str) -> Part | None:
        if not url.startswith("data:"):
            media = media_type_of(filename or "") or media_type_at(url)
            return {"fileData": ({"mimeType": media} if media else {}) | {"fileUri": url}}
        media, data = data_of(url, param)
        return {"inlineData": {"mimeType": media or media_type_of(filename or "") or _TEXT, "data": data}}


_OF_RAW: Final[dict[str, Callable[[PartEncoder, Any, str], Part | None]]] = {
    "input_audio": PartEncoder._sound,
}
_TEXTS: Final = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_MAKERS: Final[dict[str, Callable[[PartEncoder, Any, str], Part | None]]] = {
    **dict.fromkeys(_TEXTS, PartEncoder._text),
    "refusal": lambda _encoder, part, _param: {"text": part.refusal},
    "input_image": PartEncoder._image,
    "input_file": PartEncoder._file,
    "input_video": PartEncoder._video,
}
