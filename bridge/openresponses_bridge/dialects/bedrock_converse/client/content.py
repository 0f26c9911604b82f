"""Converts the blocks of a client's messages to content parts. What the protocol can't express is carried."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from openresponses_bridge.dialects.base import Fields, invalid, sound_format
from openresponses_bridge.dialects.bedrock_converse.carried import CarriedFields
from openresponses_bridge.dialects.bedrock_converse.types import (
    DOCUMENT_FORMATS,
    GUARDED,
    IMAGE_FORMATS,
    SLUG,
    VIDEO_FORMATS,
)
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.unknown import UnknownPart

_SHOWN: Final = 100  # characters of a client's text in a message
_TEXT: Final = "text"


def _media_types(formats: Mapping[str, str]) -> dict[str, str]:
    return {name: media for media, name in formats.items()}


_IMAGES: Final = _media_types(IMAGE_FORMATS)
_DOCUMENTS: Final = _media_types(DOCUMENT_FORMATS)
_VIDEOS: Final = _media_types(VIDEO_FORMATS) | {"mpg": "video/mpeg"}


def kind_in(block: Fields) -> str:
    """Return the kind of a block, which is its only field. Raises InvalidRequestError for a block with none
    or several."""
    kinds = [name for name in block.names if name in block]
    if len(kinds) != 1:
        raise invalid(block.param, "expected one kind of content")
    return kinds[0]


class PartReader:
    """Reads blocks that are content of a message or of a tool's result. Raises InvalidRequestError with the
    place of the error."""

    def __init__(self, carried: CarriedFields) -> None:
        self._carried = carried

    def read(self, block: Fields, where: str, *, output: bool) -> Any:
        """Return the part of a block; what can't be in it is carried for the place `where`. `output` is True
        for the model's output."""
        kind = kind_in(block)
        if kind == _TEXT:
            return _text(block.need(_TEXT, str), output=output)
        read = _READERS.get(kind)
        if read is None:
            return self._own(block, f"{kind[:_SHOWN]!r} is not known")
        return read(self, block, where, output)

    def _own(self, block: Fields, why: str) -> UnknownPart:
        """Return a block that only Bedrock can read."""
        kind = kind_in(block)
        self._carried.needed[block.at(kind)] = why
        return UnknownPart({"type": f"{SLUG}{kind}", "block": block.whole()})

    def _keep(self, read: Fields, where: str, **fields: Any) -> None:
        """Carry the fields that were not read, and these, which need not be known elsewhere."""
        self._carried.report(read.unread_here)
        rest = read.rest() | fields
        if rest:
            self._carried.blocks[where] = rest

    def _keep_whole(self, block: Fields, where: str, *lost: str) -> None:
        """Carry the whole block; `lost` are the names of what is lost of it elsewhere."""
        self._carried.wholes[where] = block.whole()
        self._carried.report(lost)

    def _image(self, block: Fields, where: str, _output: bool) -> Any:
        image = block.inner("image")
        media, data = _IMAGES.get(image.need("format", str)), _data(image)
        if media is None or data is None:
            return self._own(block, _why(image))
        self._keep(image, where)
        return ct.InputImageParam(f"data:{media};base64,{data}", "auto")

    def _video(self, block: Fields, where: str, _output: bool) -> Any:
        video = block.inner("video")
        form = video.need("format", str)
        media, data = _VIDEOS.get(form), _data(video)
        if media is None or data is None:
            return self._own(block, _why(video))
        self._keep(video, where, **({} if VIDEO_FORMATS[media] == form else {"format": form}))
        return ct.InputVideoContent(f"data:{media};base64,{data}")

    def _audio(self, block: Fields, where: str, _output: bool) -> Any:
        audio = block.inner("audio")
        sound_format(audio)
        form, data = audio.need("format", str), _data(audio)
        if data is None:
            return self._own(block, _why(audio))
        self._keep(audio, where)
        return UnknownPart({"type": "input_audio", "input_audio": {"data": data, "format": form}})

    def _document(self, block: Fields, where: str, _output: bool) -> Any:
        document = block.inner("document")
        name, form = document.need("name", str), document.get("format", str)
        media, data = _DOCUMENTS.get(form or "pdf"), _data(document)
        if data is not None and media is not None:
            self._keep(document, where, name=name)
            return ct.InputFileContent(f"{name}.{form or 'pdf'}", f"data:{media};base64,{data}")
        source = document.inner("source")
        text = source.get("text", str)
        if text is None and "content" in source:
            text = "\n".join(each.need("text", str) for each in source.each("content"))
        if not text:
            return self._own(block, _why(document))
        self._keep_whole(block, where, *document.unread_here)
        encoded = b64encode(text.encode("utf-8", "replace")).decode()
        return ct.InputFileContent(f"{name}.txt", f"data:text/plain;base64,{encoded}")

    def _guarded(self, block: Fields, where: str, output: bool) -> Any:
        """Return a text or an image for the guardrail; elsewhere it is one without a guardrail."""
        guarded = block.inner(GUARDED)
        self._keep_whole(block, where, guarded.param)
        if "image" in guarded:
            return PartReader(CarriedFields()).read(
                Fields({"image": guarded.need("image", dict)}, guarded.param), where, output=output
            )
        return _text(guarded.inner(_TEXT).need(_TEXT, str), output=output)

    def _json(self, block: Fields, where: str, output: bool) -> Any:
        self._keep_whole(block, where)
        return _text(encode(block.raw("json")).decode(), output=output)

    def _found(self, block: Fields, where: str, output: bool) -> Any:
        """Return a result of a search; elsewhere it is its text after its title and source."""
        result = block.inner("searchResult")
        lines = [result.need("title", str), result.need("source", str)]
        lines += [each.need(_TEXT, str) for each in result.each("content")]
        self._keep_whole(block, where, *([result.at("citations")] if "citations" in result else []))
        return _text("\n".join(lines), output=output)

    def _cited(self, block: Fields, where: str, output: bool) -> Any:
        """Return a text with citations; elsewhere it has those of web pages, for the whole text."""
        cited = block.inner("citationsContent")
        text = "".join(each.get(_TEXT, str) or "" for each in cited.each("content"))
        pages = [_page(each, len(text)) for each in cited.each("citations")]
        lost = [cited.at("citations")] if None in pages or not output else []
        self._keep_whole(block, where, *lost)
        part = _text(text, output=output)
        citations = [each for each in pages if each is not None]
        return ct.OutputTextParam(text, list(citations)) if output and citations else part


_READERS: Final[dict[str, Callable[[PartReader, Fields, str, bool], Any]]] = {
    "image": PartReader._image,
    "video": PartReader._video,
    "audio": PartReader._audio,
    "document": PartReader._document,
    GUARDED: PartReader._guarded,
    "json": PartReader._json,
    "searchResult": PartReader._found,
    "citationsContent": PartReader._cited,
}


def _text(text: str, *, output: bool) -> Any:
    return ct.OutputTextParam(text) if output else ct.InputTextContent(text)


def _page(citation: Fields, length: int) -> ct.UrlCitation | None:
    location = citation.get("location", dict) or {}
    web = location.get("web")
    url = web.get("url") if isinstance(web, dict) else None
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return None
    return ct.UrlCitation(url, 0, length, citation.get("title", str) or "")


def _data(media: Fields) -> str | None:
    """Return the data of a medium in base64; None if it is elsewhere."""
    source = media.inner("source")
    data = source.get("bytes", str)
    if not data:
        return None
    try:
        b64decode(data, validate=True)
    except ValueError:
        raise invalid(source.at("bytes"), "is not base64") from None
    return data


def _why(media: Fields) -> str:
    is_s3 = "s3Location" in media.inner("source")
    return (
        "a file at an address of S3 can't be read by this model: send its bytes"
        if is_s3
        else "its content can be read by Bedrock alone"
    )
