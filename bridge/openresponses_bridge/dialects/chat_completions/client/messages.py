"""Converts Chat messages to input items.

A call and its answer are joined by id, in the old form by the function's name. Answers without a call are
refused here, where their place in the client's own request is known (field case 45).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import BREAKPOINT, EXPLICIT, Fields, invalid, sound_format
from openresponses_bridge.dialects.chat_completions.carried import (
    AUDIO,
    Carried,
    CarriedFields,
    DetailsField,
    seal_carried,
)
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as ii
from openresponses_bridge.protocol.unknown import Extensible, UnknownItem, UnknownPart
from openresponses_bridge.seal import Sealer

_CACHE = "cache_control"  # of OpenRouter and others
_DETAILS = ("low", "high", "auto", "original")


def _text(part: Fields) -> Any:
    return ct.InputTextContent(part.need("text", str))


def _image(part: Fields) -> Any:
    # some clients send the address instead of OpenAI's object
    image_url = part.either("image_url", dict, str)
    if image_url is None:
        raise invalid(part.at("image_url"), "is required")
    if isinstance(image_url, str):
        return ct.InputImageParam(image_url)
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


def _sound(part: Fields) -> Any:
    sound = part.inner("input_audio")
    sound.get("data", str)
    sound_format(sound)
    return UnknownPart(part.whole())


def _output_text(part: Fields) -> Any:
    return ct.OutputTextParam(part.need("text", str))


def _refusal(part: Fields) -> Any:
    return ct.RefusalContent(part.need("refusal", str))


_Reader = Callable[[Fields], Any]
ASKED: dict[str, _Reader] = {
    "text": _text,
    "image_url": _image,
    "file": _file,
    "video_url": _video,
    "input_audio": _sound,
}
INSTRUCTED: dict[str, _Reader] = {"text": _text}
ANSWERED: dict[str, _Reader] = {"text": _output_text, "refusal": _refusal}
# the contents of a tool's answer; images exceed Chat's documentation, but clients send them
BROUGHT: dict[str, _Reader] = {"text": _text, "image_url": _image, "file": _file, "video_url": _video}


def content_of(
    message: Fields, readers: dict[str, _Reader], item: int, carried: CarriedFields
) -> str | list[Any] | None:
    """Return a text unchanged, or parts; None if the message has no content. `item` is its index in the
    input."""
    content = message.either("content", str, list)
    if not isinstance(content, list):
        return content  # type: ignore[no-any-return]
    parts = []
    for at, part in enumerate(message.each("content")):
        kind = part.need("type", str)
        reader = readers.get(kind)
        if reader is None:
            raise invalid(part.at("type"), f"{kind[:64]!r} is not one of {', '.join(readers)}")
        parts.append(_carry_part(part, (item, at), reader(part), carried))
    return parts


def _citation(annotation: Any, text: str) -> ct.UrlCitation | None:
    """Return the citation of a web address, whose fields are nested or beside its type; None for any other
    citation."""
    inner = annotation.get("url_citation", annotation) if isinstance(annotation, dict) else None
    if not isinstance(inner, dict) or annotation.get("type") != "url_citation":
        return None
    url, title = inner.get("url"), inner.get("title")
    start, end = (inner.get(name, 0) for name in ("start_index", "end_index"))
    if not isinstance(url, str) or type(start) is not int or type(end) is not int:
        return None
    if not 0 <= start <= end <= len(text):
        return None
    return ct.UrlCitation(url, start, end, title if isinstance(title, str) else "")


_NATIVE_OF_PARTS = ("prompt_cache_breakpoint",)
_ORIGINAL = "original"


def _carry_part(part: Fields, at: tuple[int, int], content: Any, carried: CarriedFields) -> Any:
    """Keep the fields of a part that only servers of this API read. Returns the part, with its cache
    breakpoint."""
    native = {name: each for name in _NATIVE_OF_PARTS if (each := part.raw(name)) is not None}
    if getattr(content, "detail", None) == _ORIGINAL:
        native["image_url"] = {"detail": _ORIGINAL}
    if native:
        carried.parts[at] = native
    if not isinstance(content, Extensible):
        return content
    if part.raw(_CACHE):
        carried.cached = True
        return replace(content, extra=EXPLICIT)
    breakpoint = native.get(BREAKPOINT)
    return content if breakpoint is None else replace(content, extra={BREAKPOINT: breakpoint})


class MessageReader:
    """Reads messages in order. `items` is the input, `carried` what only servers of this API read of it, and
    `needed` what other upstreams refuse. Calls without answers are left to the upstream's dialect, whose
    option decides about them."""

    def __init__(self, diagnostics: Diagnostics, sealer: Sealer) -> None:
        self._diagnostics = diagnostics
        self._sealer = sealer
        self._expected: dict[str, list[type[Any]]] = {}  # id → the types of its expected outputs
        self._legacy: dict[str, list[str]] = {}  # function's name → ids that were made for its calls
        self._count = 0
        self.items: list[Any] = []
        self.carried = CarriedFields()
        self.needed: dict[str, str] = {}

    def message(self, message: Fields) -> None:
        """Read the next message. Raises InvalidRequestError with its place."""
        role = message.need("role", str)
        reader = _ROLES.get(role)
        if reader is None:
            raise invalid(message.at("role"), f"{role[:64]!r} is not one of {', '.join(_ROLES)}")
        before = len(self.items)
        reader(self, message, role)
        if (name := message.get("name", str)) is not None:
            self._carry_name(before, name)

    def _carry_name(self, begun: int, name: str) -> None:
        """Keep the name of the author of a message, whose first item is at `begun`."""
        for at, item in enumerate(self.items[begun:], begun):
            if isinstance(item, ii.FunctionCallOutputParam | ii.CustomToolCallOutputParam):
                return  # the name is the tool's
            if not isinstance(item, ii.ReasoningParam):
                self.carried.messages[at] = {"name": name}
                return

    def _content(self, message: Fields, readers: dict[str, _Reader]) -> str | list[Any] | None:
        return content_of(message, readers, len(self.items), self.carried)

    def _instructions(self, message: Fields, role: Any) -> None:
        self._append(message, role, self._content(message, INSTRUCTED))

    def _user(self, message: Fields, role: Any) -> None:
        self._append(message, role, self._content(message, ASKED))

    def _append(self, message: Fields, role: Any, content: str | list[Any] | None) -> None:
        if content is None:
            raise invalid(message.at("content"), "is required")
        self.items.append(ii.MessageParam(role, content))

    def _assistant(self, message: Fields, role: Any) -> None:
        self._reasoning(message)
        content = self._content(message, ANSWERED)
        refusal = message.get("refusal", str)
        if refusal:
            parts = [ct.OutputTextParam(content)] if isinstance(content, str) and content else content
            content = [*(parts or []), ct.RefusalContent(refusal)]
        content = self._cited(message, content)
        if content:  # an answer may have none, and clients send it back like that
            self.items.append(ii.MessageParam("assistant", content))
        self._spoken(message)
        for call in message.each("tool_calls"):
            self._call(call)
        function = message.maybe_inner("function_call")
        if function is not None:
            self._legacy_call(function)

    def _cited(self, message: Fields, content: str | list[Any] | None) -> str | list[Any] | None:
        """Return the content with the citations of web addresses in it. Their indexes count in the whole
        text, so they need a single text; others are losses."""
        entries = message.raw("annotations")
        if not entries:
            return content
        parts = [ct.OutputTextParam(content)] if isinstance(content, str) else content or []
        texts = [part for part in parts if isinstance(part, ct.OutputTextParam)]
        citations = (
            [_citation(each, texts[0].text) for each in entries]
            if isinstance(entries, list) and texts
            else []
        )
        cited = [each for each in citations if each is not None] if len(texts) == 1 else []
        if not cited or len(cited) < len(citations):
            self._diagnostics.loss(message.at("annotations"), "not all of them are citations of its one text")
        if not cited:
            return content
        return [replace(part, annotations=cited) if part is texts[0] else part for part in parts]

    def _spoken(self, message: Fields) -> None:
        """Keep the sound of an earlier answer, which its server knows by an id."""
        audio = message.get("audio", dict)
        if audio:
            self.needed[message.at("audio")] = "the server that made this sound alone knows it"
            self.items.append(UnknownItem({"type": AUDIO, "audio": audio}))

    def _reasoning(self, message: Fields) -> None:
        """Read reasoning, which has several names; under more than one it is the same text."""
        texts = [message.get(name, str) for name in ("reasoning_content", "reasoning", "reasoning_text")]
        text = next(filter(None, texts), None)
        by_field = {name: [each.whole() for each in message.each(name)] for name in get_args(DetailsField)}
        field: DetailsField = "reasoning_details" if by_field["reasoning_details"] else "thinking_blocks"
        details = by_field[field]
        sealed = seal_carried(self._sealer, Carried(details=details, field=field)) if details else UNSET
        if text or details:
            content = [ct.ReasoningTextContent(text)] if text else UNSET
            self.items.append(ii.ReasoningParam([], content=content, encrypted_content=sealed))
        self._extra_content(message, None)

    def _extra_content(self, of: Fields, call_id: str | None) -> None:
        """Keep the extra content of a message or a call, which Google requires back."""
        extra = of.get("extra_content", dict)
        if extra:
            sealed = seal_carried(self._sealer, Carried(extra=extra, call_id=call_id))
            self.items.append(ii.ReasoningParam([], encrypted_content=sealed))

    def _call(self, call: Fields) -> None:
        call_id = call.need("id", str)
        if not call_id:
            raise invalid(call.at("id"), "is empty")
        kind = call.one_of("type", ("function", "custom")) or "function"
        call.skip("index")
        self._extra_content(call, call_id)
        inner = call.inner(kind)
        name = inner.need("name", str)
        if not name:
            raise invalid(inner.at("name"), "is empty")
        if kind == "custom":
            self._expect_output(call_id, ii.CustomToolCallOutputParam)
            self.items.append(ii.CustomToolCallParam(call_id, name, inner.need("input", str)))
            return
        self._expect_output(call_id, ii.FunctionCallOutputParam)
        self.items.append(ii.FunctionCallParam(call_id, name, inner.need("arguments", str)))

    def _legacy_call(self, function: Fields) -> None:
        name = function.need("name", str)
        self._count += 1
        call_id = f"call_{self._count}"
        self._legacy.setdefault(name, []).append(call_id)
        self._expect_output(call_id, ii.FunctionCallOutputParam)
        self.items.append(ii.FunctionCallParam(call_id, name, function.need("arguments", str)))

    def _expect_output(self, call_id: str, output: type[Any]) -> None:
        self._expected.setdefault(call_id, []).append(output)

    def _tool(self, message: Fields, role: str) -> None:
        self._output(message, message.need("tool_call_id", str), "tool_call_id")

    def _function(self, message: Fields, role: str) -> None:
        call_ids = self._legacy.get(message.need("name", str))
        self._output(message, call_ids.pop(0) if call_ids else "", "name")

    def _output(self, message: Fields, call_id: str, field: str) -> None:
        waiting = self._expected.get(call_id)
        if not waiting:
            raise _unpaired(message.at(field), "no tool call before it has this name or id")
        output = waiting.pop(0)
        content = self._content(message, BROUGHT)
        self.items.append(output(call_id, content or ""))


_ROLES: dict[str, Callable[[MessageReader, Fields, str], None]] = {
    "system": MessageReader._instructions,
    "developer": MessageReader._instructions,
    "user": MessageReader._user,
    "assistant": MessageReader._assistant,
    "tool": MessageReader._tool,
    "function": MessageReader._function,
}


def _unpaired(param: str, message: str) -> InvalidRequestError:
    return invalid(param, message, InvalidRequestError.UNPAIRED_CALL)
