"""Content parts of the protocol → blocks of the Messages API."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.errors import InvalidRequestError

Block = dict[str, Any]

_DATA_URL: Final = re.compile(
    r"data:(?P<media>[\w.+/-]*)(?:;[^,;]*)*?(?P<base64>;base64)?,(?P<data>.*)", re.DOTALL
)
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SAME_MEDIA: Final = {"image/jpg": "image/jpeg"}
_PDF: Final = "application/pdf"


class Content:
    """Turns parts into blocks; what Anthropic can't take is a loss, what is malformed an error."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._makers: dict[str, Callable[[Any, str], Block | None]] = {
            **dict.fromkeys(
                ("input_text", "output_text", "text", "summary_text", "reasoning_text"), self._text
            ),
            "refusal": self._refusal,
            "input_image": self._image,
            "input_file": self._file,
        }

    def blocks(
        self, content: str | Sequence[Any], param: str, marks: Callable[[int], Block] = lambda _index: {}
    ) -> list[Block]:
        """The blocks of a message or a tool's output. No text is blank: Anthropic refuses such. `marks` are
        further fields of the block of a part."""
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if content.strip() else []
        made = ((index, self._block(part, f"{param}[{index}]")) for index, part in enumerate(content))
        return [{**block, **marks(index)} for index, block in made if block is not None]

    def _block(self, part: Any, param: str) -> Block | None:
        make = self._makers.get(part.type)
        if make is None:
            self._diagnostics.loss(f"content.{part.type[:64]}", "Anthropic has no such content")
            return None
        return make(part, param)

    def _text(self, part: Any, param: str) -> Block | None:
        if getattr(part, "annotations", None):
            self._diagnostics.loss("content.annotations", "citations can't be sent back")
        return {"type": "text", "text": part.text} if part.text.strip() else None

    def _refusal(self, part: Any, param: str) -> Block | None:
        return {"type": "text", "text": part.refusal} if part.refusal.strip() else None

    # ── images and files ───────────────────────────────────────────────────────────────────────────
    def _image(self, part: Any, param: str) -> Block | None:
        if getattr(part, "detail", None) in ("low", "high"):
            self._diagnostics.loss("content.input_image.detail", "Anthropic chooses itself")
        url = part.image_url
        if not url:
            self._diagnostics.loss("content.input_image.file_id", "a file of another server")
            return None
        if not url.startswith("data:"):
            return {"type": "image", "source": {"type": "url", "url": url}}
        media, data = _data_url(url, f"{param}.image_url")
        if media not in _IMAGES:
            self._diagnostics.loss(f"content.input_image.{media[:64]}", "not JPEG, PNG, GIF or WebP")
            return None
        return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}

    def _file(self, part: Any, param: str) -> Block | None:
        source = self._source(part, param)
        if source is None:
            return None
        return {"type": "document", "source": source} | ({"title": part.filename} if part.filename else {})

    def _source(self, part: Any, param: str) -> Block | None:
        if part.file_url:
            return {"type": "url", "url": part.file_url}
        if not part.file_data:
            self._diagnostics.loss("content.input_file.file_id", "a file of another server")
            return None
        media, data = "", part.file_data
        if data.startswith("data:"):
            media, data = _data_url(data, f"{param}.file_data")
        if media == _PDF or (not media and (part.filename or ".pdf").lower().endswith(".pdf")):
            return {"type": "base64", "media_type": _PDF, "data": data}
        text = _as_text(data, f"{param}.file_data")
        if text is None:
            self._diagnostics.loss(f"content.input_file.{media[:64]}", "neither PDF nor plain text")
            return None
        return {"type": "text", "media_type": "text/plain", "data": text}


def _data_url(url: str, param: str) -> tuple[str, str]:
    """(media type, base64 data)."""
    match = _DATA_URL.fullmatch(url)
    if match is None or not match["base64"] or not match["data"]:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE, "not a data URL with base64 data", param=param
        )
    media = match["media"].lower()
    return _SAME_MEDIA.get(media, media), match["data"]


def _as_text(data: str, param: str) -> str | None:
    """The text that base64 data holds; None when it is not text."""
    try:
        raw = b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE, "the file's data is not base64", param=param
        ) from error
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or not text.strip() else text
