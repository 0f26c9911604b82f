"""Generated images: the one result of a hosted tool that VS Code can show."""

from __future__ import annotations

from base64 import b64decode

from openresponses_bridge.decoder.parts import LanguageModelDataPart, Part
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.hosted import ImageGenerationCall, view
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.surrogates import mended

DEFAULT_MIME = "image/png"
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
    (b"BM", "image/bmp"),
)


class Images:
    """The images of one response, each once: an item comes when it is done and again at the end."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._seen: set[str | int] = set()

    @property
    def any_shown(self) -> bool:
        """Whether there was an image."""
        return bool(self._seen)

    def item_done(self, output_index: int, item: UnknownItem) -> list[Part]:
        """A data part for an `image_generation_call` with a result; nothing for other hosted tools."""
        call = view(item)
        key = item.id or output_index
        if not isinstance(call, ImageGenerationCall) or not call.result or key in self._seen:
            return []
        self._seen.add(key)
        try:
            data = b64decode(call.result, validate=True)
        except ValueError:
            self._diagnostics.loss("image_generation_call.result", "no base64, not shown")
            return []
        return [LanguageModelDataPart.image(data, _mime(data, call.output_format or ""))]


def _mime(data: bytes, named: str) -> str:
    """The media type by the bytes, else by what the item says."""
    for magic, mime in _MAGIC:
        if data.startswith(magic):
            return mime
    return mended(f"image/{named}") if named else DEFAULT_MIME
