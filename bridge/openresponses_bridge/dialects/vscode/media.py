"""Data parts ↔ content of input items: images by their bytes, texts, files, and the media types that
are not content at all."""

from __future__ import annotations

import base64
import re

from openresponses_bridge.decoder import LanguageModelDataPart, LanguageModelTextPart, Part
from openresponses_bridge.protocol.content import InputFileContent, InputImageParam, InputTextContent

ContentParam = InputTextContent | InputImageParam | InputFileContent

# what image files begin with: the bytes know better than the declared type
_MAGIC = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"BM"), "image/bmp"),
)
_TEXTUAL = re.compile(r"text/|application/(json|xml|javascript|x-yaml|[\w.-]+\+(json|xml))|json$")
_URL = re.compile(rb"(https?://|data:)")
_DATA_URL = re.compile(
    r"data:(?P<mime>[^;,]*)(?P<parameters>(;[^;,]*)*?)(?P<base64>;base64)?,", re.IGNORECASE
)
DEFAULT_IMAGE = "image/png"
DEFAULT_FILE = "application/octet-stream"


def image_mime(data: bytes, declared: str) -> str:
    """The type of an image; `image/*` and wrong declarations are settled by the bytes."""
    for magic, mime in _MAGIC:
        if magic.match(data):
            return mime
    if declared.endswith("/*") or not declared:
        return DEFAULT_IMAGE
    return "image/jpeg" if declared == "image/jpg" else declared


def data_url(data: bytes, mime: str) -> str:
    """Bytes as a data URL."""
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def content_of(part: LanguageModelDataPart) -> ContentParam:
    """The content that a data part is. An image part may hold its address instead of its bytes."""
    mime = part.mime_type.strip().lower()
    if mime.startswith("image/"):
        held = _URL.match(part.data)
        url = (
            part.data.decode("utf-8", "replace") if held else data_url(part.data, image_mime(part.data, mime))
        )
        return InputImageParam(image_url=url)
    if _TEXTUAL.match(mime):
        return InputTextContent(part.data.decode("utf-8", "replace"))
    return InputFileContent(filename="data", file_data=data_url(part.data, mime or DEFAULT_FILE))


def part_of_url(url: str, fallback: str) -> Part | None:
    """The data part of a data URL; None for one that would have to be fetched or can't be read."""
    match = _DATA_URL.match(url)
    if match is None or not match.group("base64"):
        return None
    try:
        data = base64.b64decode(url[match.end() :], validate=True)
    except ValueError:
        return None
    mime = match.group("mime") or fallback
    return LanguageModelDataPart(data, image_mime(data, mime) if mime.startswith("image/") else mime)


def text_or_nothing(text: str) -> list[Part]:
    """A text part, none for no text."""
    return [LanguageModelTextPart(text)] if text else []
