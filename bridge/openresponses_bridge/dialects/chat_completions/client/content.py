"""Content of Chat messages → content parts of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from openresponses_bridge.dialects.base import Fields, invalid
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol.unknown import UnknownPart

_DETAILS = ("low", "high", "auto", "original")


def _text(part: Fields) -> Any:
    return ct.InputTextContent(part.need("text", str))


def _image(part: Fields) -> Any:
    # some clients put the address where OpenAI has an object
    given = part.either("image_url", dict, str)
    if given is None:
        raise invalid(part.at("image_url"), "is required")
    if isinstance(given, str):
        return ct.InputImageParam(given)
    image = part.inner("image_url")
    detail: Any = image.one_of("detail", _DETAILS)
    return ct.InputImageParam(image.need("url", str), detail or UNSET)


def _file(part: Fields) -> Any:
    file = part.inner("file")
    if "file_data" not in file and "file_id" not in file:
        raise invalid(file.at("file_data"), "is required, or file_id")
    name, data, known = (file.get(each, str) or UNSET for each in ("filename", "file_data", "file_id"))
    return ct.InputFileContent(filename=name, file_data=data, file_id=known)


def _video(part: Fields) -> Any:
    return ct.InputVideoContent(part.inner("video_url").need("url", str))


def _as_it_is(part: Fields) -> Any:
    return UnknownPart(part.whole())


def _said(part: Fields) -> Any:
    return ct.OutputTextParam(part.need("text", str))


def _refused(part: Fields) -> Any:
    return ct.RefusalContent(part.need("refusal", str))


_Reader = Callable[[Fields], Any]
ASKED: dict[str, _Reader] = {
    "text": _text,
    "image_url": _image,
    "file": _file,
    "video_url": _video,
    "input_audio": _as_it_is,
}
INSTRUCTED: dict[str, _Reader] = {"text": _text}
ANSWERED: dict[str, _Reader] = {"text": _said, "refusal": _refused}
# what a tool may bring back; images are more than Chat's document allows, and clients send them
BROUGHT: dict[str, _Reader] = {"text": _text, "image_url": _image, "file": _file, "video_url": _video}


def content_of(message: Fields, readers: dict[str, _Reader]) -> str | list[Any] | None:
    """Text as it is, or parts; None when the message has no content."""
    given = message.either("content", str, list)
    if not isinstance(given, list):
        return given  # type: ignore[no-any-return]
    parts = []
    for part in message.each("content"):
        kind = part.need("type", str)
        reader = readers.get(kind)
        if reader is None:
            raise invalid(part.at("type"), f"{kind[:64]!r} is not one of {', '.join(readers)}")
        parts.append(reader(part))
    return parts
