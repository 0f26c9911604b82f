"""Content parts of the protocol → content of Chat messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol.unknown import UnknownPart

ChatPart = dict[str, Any]
_DETAILS = {"original": "high"}  # Chat knows auto, low and high


def chat_content(given: str | Sequence[Any], diagnostics: Diagnostics, where: str) -> str | list[ChatPart]:
    """Text as a string, which every server takes; a list of parts when there is more than text."""
    if isinstance(given, str):
        return given
    if _TEXTS.issuperset(map(type, given)):  # as almost always
        texts: Sequence[Any] = given
        return "\n\n".join([part.text for part in texts])
    parts = [
        chat
        for index, part in enumerate(given)
        if (chat := chat_part(part, diagnostics, f"{where}[{index}]"))
    ]
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def chat_part(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart | None:
    """One part, None when Chat has no place for it (then it is a loss)."""
    made = _PARTS[type(part)](part, diagnostics, where)
    if made is None:
        diagnostics.loss(where, f"{part.type} can't be expressed here")
    return made


def _text(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart:
    return {"type": "text", "text": part.text}


def _refusal(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart:
    return {"type": "text", "text": part.refusal}


def _image(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart | None:
    if not part.image_url:
        return None
    image = {"url": part.image_url}
    if part.detail:
        image["detail"] = _DETAILS.get(part.detail, part.detail)
        if part.detail in _DETAILS:
            diagnostics.loss(f"{where}.detail", f"{part.detail} sent as {image['detail']}")
    return {"type": "image_url", "image_url": image}


def _file(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart | None:
    given = {
        name: getattr(part, name) for name in ("filename", "file_data", "file_id") if getattr(part, name)
    }
    return {"type": "file", "file": given} if given.keys() & {"file_data", "file_id"} else None


def _video(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart:
    # not OpenAI's; vLLM, OpenRouter and others take it, and who does not says so
    return {"type": "video_url", "video_url": {"url": part.video_url}}


def _unknown(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart | None:
    return part.raw if part.type == "input_audio" else None


_PARTS: dict[type[Any], Callable[[Any, Diagnostics, str], ChatPart | None]] = {
    ct.InputTextContent: _text,
    ct.OutputTextParam: _text,
    ct.OutputTextContent: _text,
    ct.TextContent: _text,
    ct.SummaryTextContent: _text,
    ct.ReasoningTextContent: _text,
    ct.RefusalContent: _refusal,
    ct.InputImageParam: _image,
    ct.InputImageContent: _image,
    ct.InputFileContent: _file,
    ct.InputVideoContent: _video,
    UnknownPart: _unknown,
}
_TEXTS: frozenset[type[Any]] = frozenset({kind for kind, made in _PARTS.items() if made is _text})
