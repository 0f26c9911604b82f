"""Converts the input of an interaction to input items."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    Fields,
    data_of,
    data_url,
    envelope_in,
    invalid,
    open_reasoning,
    place,
    standard_base64,
)
from openresponses_bridge.dialects.interactions.carried import CarriedFields
from openresponses_bridge.dialects.interactions.hosted import HostedSteps
from openresponses_bridge.dialects.interactions.signatures import CALL as SIGNED_CALL
from openresponses_bridge.dialects.interactions.signatures import seal_signature
from openresponses_bridge.dialects.interactions.types import (
    CALL,
    CALLS,
    MEDIA,
    MODEL,
    RESULT,
    THOUGHT,
    USER,
    Json,
)
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as it
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.items import MessageRole
from openresponses_bridge.protocol.unknown import UnknownPart
from openresponses_bridge.seal import Sealer, SealError

_TEXT: Final = "text"
_GOOGLES: Final = re.compile(r"gs://|files/|https://[^/]{1,100}\.googleapis\.com/")
_VIDEO: Final = re.compile(r"https://(?:www\.youtube\.com|youtube\.com|youtu\.be)/")
_EXTENSIONS: Final = {"text/plain": "txt", "application/json": "json"}
_HOSTED: Final = frozenset({*CALLS, *CALLS.values()})
_SHOWN: Final = 100  # characters of a client's text in a message


class StepReader:
    """Reads the steps of the input in order; `items` is the input of the request. Fields without a
    counterpart are carried. Raises InvalidRequestError with the place of the error."""

    def __init__(self, sealer: Sealer, diagnostics: Diagnostics, carried: CarriedFields) -> None:
        self._sealer = sealer
        self._diagnostics = diagnostics
        self._carried = carried
        self._hosted = HostedSteps()
        self.items: list[Any] = []

    def read(self, given: Fields) -> None:
        """Read all of `input`: a text, one content, or a list of contents or steps."""
        value = given.either("input", str, list, dict)
        if isinstance(value, str):
            self.items.append(it.MessageParam("user", value))
        elif isinstance(value, dict):
            self._contents([given.inner("input")], "user")
        else:
            self._listed([*given.each("input")])
        self.items += self._hosted.end()
        self._carried.items = len(self.items)

    def _listed(self, entries: list[Fields]) -> None:
        """Read a list; consecutive contents are one message of the user."""
        contents: list[Fields] = []
        for entry in entries:
            kind = entry.need("type", str)
            if kind == _TEXT or kind in MEDIA:
                contents.append(entry)
                continue
            self._contents(contents, "user")
            contents = []
            self._step(entry, kind)
        self._contents(contents, "user")

    def _step(self, step: Fields, kind: str) -> None:
        read = _STEPS.get(kind)
        if read is not None:
            self.items += self._hosted.end()
            read(self, step)
            return
        if kind not in _HOSTED:
            self._carried.needed[step.at("type")] = f"{kind[:_SHOWN]!r} is not known"
        self.items += self._hosted.step(step.whole())

    def _user(self, step: Fields) -> None:
        step.skip("type")
        self._contents([*step.each("content")], "user", step)

    def _model(self, step: Fields) -> None:
        step.skip("type")
        self._contents([*step.each("content")], "assistant", step)

    def _contents(self, contents: list[Fields], role: MessageRole, step: Fields | None = None) -> None:
        """Add one message with these contents."""
        if not contents:
            for where in step.unread_here if step is not None else ():
                self._diagnostics.loss(where, "of a step without content")
            return
        self.items += self._hosted.end()
        parts: list[Any] = []
        for content in contents:
            parts.append(self._content(content, role))
            self._carry(content, place(len(self.items), len(parts) - 1))
        if step is not None:
            self._carry(step, place(len(self.items)))
        self.items.append(it.MessageParam(role, parts))

    def _carry(self, read: Fields, where: str) -> None:
        """Keep what was not read of an object; for media everything, with a mark for the data."""
        names = read.unread_here
        rest = read.rest()
        if any(read.equals("type", kind) for kind in MEDIA):
            rest = {name: "" if name == "data" else value for name, value in read.whole().items()}
        if rest:
            self._carried.parts[where] = rest
            self._carried.report(names)

    def _content(self, content: Fields, role: MessageRole) -> Any:
        kind = content.need("type", str)
        if kind == _TEXT:
            text = content.need(_TEXT, str)
            return ct.InputTextContent(text) if role == "user" else ct.OutputTextParam(text)
        if kind not in MEDIA:
            raise invalid(content.at("type"), f"{kind[:_SHOWN]!r} is not known")
        return _media(content, kind, self._carried)

    def _thought(self, step: Fields) -> None:
        signature = step.get("signature", str) or ""
        texts, others = [], False
        for content in step.each("summary"):
            if content.equals("type", _TEXT):
                texts.append(content.need(_TEXT, str))
                content.skip("type")
            others = others or bool(content.unread_here)
            self._carried.report(content.unread_here)
        if (envelope := envelope_in(signature)) is not None:
            self._foreign(envelope, step.at("signature"))
        elif texts or signature or others:
            if others:
                self._carried.parts[place(len(self.items))] = {"summary": step.raw("summary")}
            summary = [ct.SummaryTextContent(text) for text in texts]
            encrypted = seal_signature(self._sealer, signature)
            self.items.append(it.ReasoningParam(summary, encrypted_content=encrypted))

    def _foreign(self, envelope: str, where: str) -> None:
        """Open another upstream's reasoning."""
        try:
            self.items += open_reasoning(self._sealer, envelope)
        except SealError as error:
            self._diagnostics.loss(where, f"can't be opened here ({error.code})")

    def _call(self, step: Fields) -> None:
        step.skip("type")
        arguments = encode(step.get("arguments", dict) or {}).decode()
        call_id, name = _word(step, "id"), _word(step, "name")
        if signature := step.get("signature", str):
            sealed = seal_signature(self._sealer, signature, SIGNED_CALL)
            self.items.append(it.ReasoningParam([], encrypted_content=sealed))
        self._carry(step, place(len(self.items)))
        self.items.append(it.FunctionCallParam(call_id, name, arguments))

    def _result(self, step: Fields) -> None:
        step.skip("type")
        call_id, failed = _word(step, "call_id"), step.get("is_error", bool)
        result = step.either("result", str, list, dict)
        output: Any = result
        where = place(len(self.items))
        if isinstance(result, list) and all(map(_is_content, result)):
            output = []
            for content in step.each("result"):
                output.append(self._content(content, "user"))
                self._carry(content, place(len(self.items), len(output) - 1))
        elif not isinstance(result, str):
            output = encode(result).decode()
        self._carry(step, where)
        if result != output and not isinstance(output, list):
            self._carried.parts[where] = self._carried.parts.get(where, {}) | {"result": result}
        status: Any = "incomplete" if failed else UNSET  # the mark of an answer whose call has failed
        self.items.append(it.FunctionCallOutputParam(call_id, output, status=status))


_STEPS: Final[dict[str, Callable[[StepReader, Fields], None]]] = {
    USER: StepReader._user,
    MODEL: StepReader._model,
    THOUGHT: StepReader._thought,
    CALL: StepReader._call,
    RESULT: StepReader._result,
}


def _is_content(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") in (_TEXT, *MEDIA)


def _word(step: Fields, name: str) -> str:
    word = step.need(name, str)
    if not word:
        raise invalid(step.at(name), "is empty")
    return word


def _media(content: Fields, kind: str, carried: CarriedFields) -> Any:
    """Return a part with these bytes, or with the file at this address. Files that Google keeps are for
    Google only."""
    media = (content.get("mime_type", str) or "").lower()
    data, url = content.get("data", str), content.get("uri", str)
    if data is not None:
        return _inline(content, kind, media, standard_base64(data))
    if url is None:
        raise invalid(content.param, "has neither data nor uri")
    if _GOOGLES.match(url):
        where = content.at("uri")
        carried.needed.setdefault(
            where, "a file that is kept by Google can't be read by this model: send data"
        )
        return ct.InputFileContent(UNSET, file_id=url)
    if not url.startswith(("https://", "http://", "data:")):
        raise invalid(content.at("uri"), "expected an address of http, https or data")
    if url.startswith("data:"):
        data_of(url, content.at("uri"))
    if kind == "image":
        return ct.InputImageParam(url, "auto")
    if kind == "video" or _VIDEO.match(url):
        return ct.InputVideoContent(url)
    if url.startswith("data:"):
        return ct.InputFileContent(kind, url)
    return ct.InputFileContent(UNSET, file_url=url)


def _inline(content: Fields, kind: str, media: str, data: str) -> Any:
    try:
        b64decode(data, validate=True)
    except ValueError:
        raise invalid(content.at("data"), "is not base64") from None
    url = data_url(media or _DEFAULTS[kind], data, content.at("mime_type"), content.at("data"))
    subtype = media.partition(";")[0].partition("/")[2]
    if kind == "audio":
        sound: Json = {"data": data, "format": subtype.removeprefix("x-") or "wav"}
        return UnknownPart({"type": "input_audio", "input_audio": sound})
    if kind == "image":
        return ct.InputImageParam(url, "auto")
    if kind == "video":
        return ct.InputVideoContent(url)
    ending = _EXTENSIONS.get(media, subtype if subtype.isalnum() else "bin")
    return ct.InputFileContent(f"document.{ending}", url)


_DEFAULTS: Final = {
    "audio": "audio/wav",
    "image": "image/png",
    "video": "video/mp4",
    "document": "application/pdf",
}
