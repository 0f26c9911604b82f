"""Converts content parts of a request to contents: the data itself, or an address that Google fetches."""

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
from openresponses_bridge.dialects.interactions.annotations import annotation_of, bytes_before
from openresponses_bridge.dialects.interactions.options import InteractionsOptions
from openresponses_bridge.dialects.interactions.types import Json
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.unknown import UnknownPart

_PDF: Final = "application/pdf"
_MEDIA: Final = {**MEDIA_TYPES, "mov": "video/mov"}  # its name in Google's documentation


class ContentEncoder:
    """Encodes content parts. A part that this API does not have is a loss, malformed data are an error."""

    def __init__(self, options: InteractionsOptions, diagnostics: Diagnostics) -> None:
        self._options = options
        self._diagnostics = diagnostics

    def content(self, part: Any, param: str) -> Json | None:
        """Return the content for the part at this path of the request; None if it is left out."""
        makers = _OF_RAW if isinstance(part, UnknownPart) else _MAKERS
        make = makers.get(part.type)
        if make is None:
            self._diagnostics.loss(f"content.{part.type[:64]}", "Interactions has no such content")
            return None
        return make(self, part, param)

    def _text(self, part: Any, _param: str) -> Json | None:
        if not part.text:
            return None
        content: Json = {"type": "text", "text": part.text}
        cited = [each for each in getattr(part, "annotations", None) or () if isinstance(each, UrlCitation)]
        if cited:
            places = {place for each in cited for place in (each.start_index, each.end_index)}
            at = bytes_before(part.text, places)
            content["annotations"] = [annotation_of(each, at, self._diagnostics) for each in cited]
        return content

    def _image(self, part: Any, param: str) -> Json | None:
        if not part.image_url:
            return self._kept(part, "image", param)
        detail = getattr(part, "detail", None)
        image = self._at(part.image_url, None, f"{param}.image_url", "image")
        return image | {"resolution": detail} if detail in ("low", "high") else image

    def _file(self, part: Any, param: str) -> Json | None:
        if part.file_url:
            return self._at(part.file_url, part.filename or None, f"{param}.file_url", "document")
        if not part.file_data:
            return self._kept(part, "document", param)
        if part.file_data.startswith("data:"):
            return self._at(part.file_data, part.filename or None, f"{param}.file_data", "document")
        media = media_type_of(part.filename or "", _MEDIA) or _PDF
        return {"type": _kind_of(media, "document"), "mime_type": media, "data": part.file_data}

    def _video(self, part: Any, param: str) -> Json:
        return self._at(part.video_url, None, f"{param}.video_url", "video")

    def _sound(self, part: Any, param: str) -> Json:
        """Return the content for OpenAI's `input_audio`, whose format is a subtype of `audio/`."""
        sound = Fields(part.raw, param).inner("input_audio")
        kind = sound_format(sound)
        return {"type": "audio", "mime_type": f"audio/{kind}", "data": sound.need("data", str)}

    def _kept(self, part: Any, kind: str, param: str) -> Json | None:
        address = google_file_of(part, param, self._options.kept_files, self._diagnostics)
        return None if address is None else {"type": kind, "uri": address}

    def _at(self, url: str, filename: str | None, param: str, kind: str) -> Json:
        if not url.startswith("data:"):
            media = media_type_of(filename or "", _MEDIA) or media_type_at(url, _MEDIA)
            named = {"mime_type": media} if media else {}
            return {"type": _kind_of(media or "", kind), "uri": url, **named}
        media, data = data_of(url, param)
        media = media or media_type_of(filename or "", _MEDIA) or "text/plain"
        return {"type": _kind_of(media, kind), "mime_type": media, "data": data}


_OF_RAW: Final[dict[str, Callable[[ContentEncoder, Any, str], Json | None]]] = {
    "input_audio": ContentEncoder._sound,
}
_TEXTS: Final = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_MAKERS: Final[dict[str, Callable[[ContentEncoder, Any, str], Json | None]]] = {
    **dict.fromkeys(_TEXTS, ContentEncoder._text),
    "refusal": lambda _encoder, part, _param: {"type": "text", "text": part.refusal},
    "input_image": ContentEncoder._image,
    "input_file": ContentEncoder._file,
    "input_video": ContentEncoder._video,
}


def _kind_of(media: str, otherwise: str) -> str:
    kind = media.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else otherwise
