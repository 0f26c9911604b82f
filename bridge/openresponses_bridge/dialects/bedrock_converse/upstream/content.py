"""Converts content parts to content blocks: texts, images, documents and videos."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import Fields, data_of, invalid
from openresponses_bridge.dialects.bedrock_converse.options import ConverseOptions
from openresponses_bridge.dialects.bedrock_converse.reasoning import open_citation
from openresponses_bridge.dialects.bedrock_converse.types import (
    AUDIO_FORMATS,
    DOCUMENT_FORMATS,
    IMAGE_FORMATS,
    SLUG,
    VIDEO_FORMATS,
)
from openresponses_bridge.protocol.unknown import UnknownPart
from openresponses_bridge.seal import Sealer

Block = dict[str, Any]

_S3: Final = "s3://"
_S3_LOCATION: Final = "s3Location"
_FORMATS: Final = frozenset(DOCUMENT_FORMATS.values())
_ENDINGS: Final = {"jpg": "jpeg", "3gp": "three_gp", "htm": "html", "markdown": "md", "text": "txt"}
# characters that a document's name can't have
_UNNAMEABLE: Final = re.compile(r"[^A-Za-z0-9()\[\] -]|(?<= ) ")
_LONGEST_NAME: Final = 200
_NAMELESS: Final = "document"


class BlockEncoder:
    """Encodes content parts as blocks. A part that Converse does not accept is a loss, a malformed one an
    error."""

    def __init__(self, options: ConverseOptions, sealer: Sealer, diagnostics: Diagnostics) -> None:
        self._options = options
        self._sealer = sealer
        self._diagnostics = diagnostics
        self._names: set[str] = set()  # of documents; each has a name of its own

    def block(self, part: Any, param: str) -> Block | None:
        """Return the block of the part at this path; None if it is left out, as blank texts are, since the
        API refuses them."""
        if isinstance(part, UnknownPart):
            return self._raw(part, param)
        make = _MAKERS.get(part.type)
        if make is None:
            self._diagnostics.loss(f"content.{part.type[:64]}", "Converse has no such content")
            return None
        return make(self, part, param)

    def own(self, block: Block, param: str) -> Block:
        """Return a block that the client gave as a block. Raises InvalidRequestError for one with an address
        of S3, unless that is allowed."""
        if self._options.s3 == "refuse" and _leads_to_s3(block):
            raise invalid(param, "files at an address of S3 are not read here")
        return block

    def _raw(self, part: UnknownPart, param: str) -> Block | None:
        own = part.raw.get("block")
        if part.type.startswith(SLUG) and isinstance(own, dict) and own:
            return self.own(dict(own), param)
        if part.type == "input_audio":
            return self._sound(part, param)
        self._diagnostics.loss(f"content.{part.type[:64]}", "Converse has no such content")
        return None

    def _sound(self, part: UnknownPart, param: str) -> Block | None:
        audio = Fields(part.raw, param).inner("input_audio")
        form, data = audio.need("format", str), audio.need("data", str)
        if form not in AUDIO_FORMATS:
            self._diagnostics.loss(f"content.input_audio.{form[:64]}", "a format that Converse does not have")
            return None
        return {"audio": {"format": form, "source": {"bytes": data}}}

    def _text(self, part: Any, _param: str) -> Block | None:
        if not part.text.strip():
            return None
        cited = getattr(part, "annotations", None)
        return self._cited(part.text, cited) if cited else {"text": part.text}

    def _cited(self, text: str, annotations: Any) -> Block:
        """Return a text with the citations that the API itself made."""
        sealed = [getattr(each, "encrypted_content", None) for each in annotations]
        candidates = [open_citation(self._sealer, each) if each else None for each in sealed]
        for each, raw in enumerate(getattr(one, "raw", None) for one in annotations):
            if isinstance(raw, dict) and isinstance(raw.get("citation"), dict):
                candidates[each] = raw["citation"]
        citations = [each for each in candidates if each is not None]
        if len(citations) < len(candidates):
            self._diagnostics.loss("content.annotations", "citations that are not of Converse")
        if not citations:
            return {"text": text}
        return {"citationsContent": {"content": [{"text": text}], "citations": citations}}

    def _refusal(self, part: Any, _param: str) -> Block | None:
        return {"text": part.refusal} if part.refusal.strip() else None

    def _image(self, part: Any, param: str) -> Block | None:
        if getattr(part, "detail", None) in ("low", "high"):
            self._diagnostics.loss("content.input_image.detail", "the model chooses the detail itself")
        return self._media("image", part.image_url, f"{param}.image_url", IMAGE_FORMATS)

    def _video(self, part: Any, param: str) -> Block | None:
        return self._media("video", part.video_url, f"{param}.video_url", VIDEO_FORMATS)

    def _media(self, kind: str, url: str | None, param: str, formats: dict[str, str]) -> Block | None:
        if not url:
            self._diagnostics.loss(f"content.input_{kind}.file_id", "a file of another server")
            return None
        if not url.startswith("data:"):
            form = _ending(url)
            if url.startswith(_S3) and form in formats.values():
                return self.own({kind: {"format": form, "source": _at_s3(url)}}, param)
            self._diagnostics.loss(f"content.input_{kind}", "the upstream fetches no address")
            return None
        media, data = data_of(url, param)
        if media not in formats:
            self._diagnostics.loss(
                f"content.input_{kind}.{media[:64]}", "a format that Converse does not have"
            )
            return None
        return {kind: {"format": formats[media], "source": {"bytes": data}}}

    def _file(self, part: Any, param: str) -> Block | None:
        name = part.filename or ""
        if part.file_url:
            form = _ending(name) or _ending(part.file_url)
            if not part.file_url.startswith(_S3) or form not in _FORMATS:
                self._diagnostics.loss("content.input_file", "the upstream fetches no address")
                return None
            at = f"{param}.file_url"
            source = _at_s3(part.file_url)
            return self.own({"document": {"format": form, "name": self._named(name), "source": source}}, at)
        if not part.file_data:
            self._diagnostics.loss("content.input_file.file_id", "a file of another server")
            return None
        media, data = "", part.file_data
        if data.startswith("data:"):
            media, data = data_of(data, f"{param}.file_data")
        suffix = DOCUMENT_FORMATS.get(media) or _ending(name) or ("" if media else "pdf")
        if suffix not in _FORMATS:
            shown = media or suffix
            self._diagnostics.loss(f"content.input_file.{shown[:64]}", "a format that Converse does not have")
            return None
        return {"document": {"format": suffix, "name": self._named(name), "source": {"bytes": data}}}

    def _named(self, filename: str) -> str:
        """Return a name that the API accepts and that no other document of the request has."""
        stem = filename.rpartition(".")[0] if "." in filename else filename
        legal = _UNNAMEABLE.sub("-", stem[:_LONGEST_NAME]).strip() or _NAMELESS
        if legal != stem and filename:
            self._diagnostics.repair("content.input_file.filename", "changed to what the upstream accepts")
        name, number = legal, 1
        while name in self._names:
            number += 1
            name = f"{legal[: _LONGEST_NAME - 12]} ({number})"
        self._names.add(name)
        return name


_TEXTS: Final = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_MAKERS: Final[dict[str, Callable[[BlockEncoder, Any, str], Block | None]]] = {
    **dict.fromkeys(_TEXTS, BlockEncoder._text),
    "refusal": BlockEncoder._refusal,
    "input_image": BlockEncoder._image,
    "input_file": BlockEncoder._file,
    "input_video": BlockEncoder._video,
}


def _at_s3(url: str) -> Block:
    return {_S3_LOCATION: {"uri": url}}


def _ending(name: str) -> str:
    """Return the format for the extension of a file's name; "" without one."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    return _ENDINGS.get(ending, ending)


def _leads_to_s3(block: Block) -> bool:
    left: list[Any] = [block]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if _S3_LOCATION in each:
                return True
            left += each.values()
        elif isinstance(each, list):
            left += each
    return False
