"""Contents → input items.

A call and its answer are joined by id, else by the function's name in order: Gemini 2.5 gives no ids. What
is not joined is refused here, where its place in the client's own request is known.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import extension, invalid
from openresponses_bridge.dialects.gemini.carried import CarriedFields, place
from openresponses_bridge.dialects.gemini.client.fields import GoogleFields
from openresponses_bridge.dialects.gemini.client.reasoning import (
    envelope_in,
    open_reasoning,
    standard_base64,
)
from openresponses_bridge.dialects.gemini.signatures import Signed, seal_signatures
from openresponses_bridge.dialects.gemini.types import DATA, SLUG, spelled_part
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as it
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.items import MessageRole
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownPart
from openresponses_bridge.seal import Sealer, SealError

_ROLES: Final[dict[str, MessageRole]] = {"user": "user", "function": "user", "model": "assistant"}
_SIGNATURE: Final = "thoughtSignature"
_BINARY: Final = "application/octet-stream"
_GOOGLES: Final = re.compile(r"gs://|files/|https://[^/]{1,100}\.googleapis\.com/")
_VIDEO: Final = re.compile(r"https://(?:www\.youtube\.com|youtube\.com|youtu\.be)/")
_EXTENSIONS: Final = {"text/plain": "txt", "application/json": "json"}
_SHOWN: Final = 100  # characters of a client's words in a message
_OUTPUTS: Final = ("output", "result", "error")


class ContentReader:
    """Takes contents in order; `items` is the input. Contents of one role that follow one another are one
    turn, since clients keep each chunk of a stream as one. Fields without a counterpart are carried. Raises
    InvalidRequestError with the place of the error."""

    def __init__(self, sealer: Sealer, diagnostics: Diagnostics, carried: CarriedFields) -> None:
        self._sealer = sealer
        self._diagnostics = diagnostics
        self._carried = carried
        self.items: list[Any] = []
        self._role: MessageRole = "user"
        self._parts: list[Any] = []  # of the open message
        self._rests: dict[int, tuple[dict[str, Any], str]] = {}  # the carried fields of those parts
        self._said: list[str] = []  # the model's text behind them
        self._length = 0  # of the open message's text
        self._behind: list[Signed] = []  # the signatures of the open message
        self._thoughts: list[str] = []
        self._thought = 0  # their length
        self._signed: list[Signed] = []  # the signatures of those thoughts
        self._open: dict[str, str] = {}  # id of a call without an answer → name
        self._by_name: dict[str, deque[str]] = {}
        self._given: set[str] = set()
        self._made = 0

    def content(self, content: GoogleFields) -> None:
        """One content of the request."""
        given = content.get("role", str) or "user"
        if given not in _ROLES:
            raise invalid(content.at("role"), f"{given[:_SHOWN]!r} is neither user nor model")
        if _ROLES[given] != self._role:
            self._flush()
            self._role = _ROLES[given]
        for part in content.each("parts"):
            self._part(part)
        for where in content.unread:
            self._diagnostics.loss(where, "can't be expressed")

    def close(self) -> None:
        """There is no other content."""
        self._flush()
        self._carried.items = len(self.items)

    def _part(self, part: GoogleFields) -> None:
        kinds = [name for name in DATA if name in part]
        if len(kinds) > 1:
            raise invalid(part.param, f"has both {kinds[0]} and {kinds[1]}")
        signature = part.get(_SIGNATURE, str) or ""
        thought = part.get("thought", bool)
        kind = kinds[0] if kinds else "text"
        if not kinds and not signature:
            unknown = part.rest()
            if unknown:
                raise invalid(part.param, f"has none of {', '.join(DATA)}")
            self._diagnostics.ignored("part", "is empty")
            return
        if signature and (envelope := envelope_in(signature)) is not None:
            self._foreign(envelope)
            signature = ""
        if thought and kind == "text":
            self._think(part.get("text", str) or "", signature)
        else:
            _READERS.get(kind, ContentReader._hosted)(self, part, signature)
        if kind == "functionCall":
            self._carried.add(place(len(self.items) - 1), part.rest(), kind)
        elif kind != "functionResponse" and self._parts and not self._said and not self._thoughts:
            self._rests[len(self._parts) - 1] = (part.rest(), kind)

    def _foreign(self, envelope: str) -> None:
        """Another upstream's reasoning, in which the thoughts before it are too."""
        self._end_message()
        try:
            items = open_reasoning(self._sealer, envelope)
        except SealError as error:
            self._diagnostics.loss("thoughtSignature", f"can't be opened here ({error.code})")
            return
        self._thoughts, self._thought, self._signed = [], 0, []
        for item in items:
            summary = [ct.SummaryTextContent(text) for text in item["summary"]]
            self.items.append(
                it.ReasoningParam(summary, item["id"], encrypted_content=item["encrypted_content"])
            )

    def _think(self, text: str, signature: str) -> None:
        if self._parts or self._said or self._behind:
            self._end_message()
        if signature:
            self._signed.append(Signed(signature, "thought", self._thought, len(text)))
        self._thoughts.append(text)
        self._thought += len(text)

    def _text(self, part: GoogleFields, signature: str) -> None:
        text = part.get("text", str) or ""
        self._end_reasoning()
        if signature:
            self._behind.append(Signed(signature, "text", self._length, len(text)))
        self._length += len(text)
        if self._role == "assistant":
            self._said.append(text)
        else:
            self._parts.append(ct.InputTextContent(text))

    def _add(self, made: Any, signature: str) -> None:
        """A part of the open message that is not text."""
        self._end_reasoning()
        self._end_text()
        if signature:
            self._behind.append(Signed(signature, "text", self._length))
        self._parts.append(made)

    def _inline_data(self, part: GoogleFields, signature: str) -> None:
        self._add(_inline(part.inner("inlineData")), signature)

    def _file_data(self, part: GoogleFields, signature: str) -> None:
        self._add(_file(part.inner("fileData")), signature)

    def _call(self, part: GoogleFields, signature: str) -> None:
        call = part.inner("functionCall")
        name = _named(call)
        call_id = call.get("id", str) or self._new_id()
        self._given.add(call_id)
        self._open[call_id] = name
        self._by_name.setdefault(name, deque()).append(call_id)
        arguments = encode(call.get("args", dict) or {}).decode()
        self._before_item(signature, call_id)
        self.items.append(it.FunctionCallParam(call_id, name, arguments))

    def _new_id(self) -> str:
        while True:
            self._made += 1
            made = f"call_{self._made}"
            if made not in self._given:
                return made

    def _response(self, part: GoogleFields, signature: str) -> None:
        response = part.inner("functionResponse")
        call_id = self._answered(response)
        given = response.get("response", dict) or {}
        text, failed = _output(given)
        output: Any = text
        files = [_data_of(each) for each in response.each("parts")]
        if files:
            output = [ct.InputTextContent(text), *files] if given else files
        self._before_item(signature, call_id)
        where = place(len(self.items))
        status: Any = "incomplete" if failed else UNSET  # how an answer says that its call has failed
        self.items.append(it.FunctionCallOutputParam(call_id, output, status=status))
        self._carried.parts[where] = {"response": given}
        self._carried.add(where, response.rest(), "functionResponse")

    def _answered(self, response: GoogleFields) -> str:
        """The id of the call that this answers: the one that it names, else the oldest of its name."""
        name, given = _named(response), response.get("id", str)
        if given and given in self._open:
            del self._open[given]
            return given
        waiting = self._by_name.get(name, deque())
        while waiting:
            oldest = waiting.popleft()
            if oldest in self._open:
                del self._open[oldest]
                return oldest
        what = f"{response.at('name')}: no call of {name[:_SHOWN]!r} before it waits for an answer"
        raise InvalidRequestError(InvalidRequestError.UNPAIRED_CALL, what, param=response.at("name"))

    def _hosted(self, part: GoogleFields, signature: str) -> None:
        """A part of one of Google's own tools."""
        kind = next(name for name in DATA if name in part)
        part.need(kind, dict)
        self._before_item("", "")
        held = spelled_part(part.whole()) | ({_SIGNATURE: signature} if signature else {})
        fields = {"type": extension(SLUG, kind), "id": "", "status": "completed", "part": held}
        self.items.append(UnknownItem(fields | ({"role": "user"} if self._role == "user" else {})))

    def _before_item(self, signature: str, call_id: str) -> None:
        """End what is open before an item, whose signature is kept with the thoughts before it."""
        self._end_message()
        if signature:
            self._signed.append(Signed(signature, "next", call_id=call_id))
        self._end_reasoning()

    def _flush(self) -> None:
        self._end_message()
        self._end_reasoning()

    def _end_reasoning(self) -> None:
        text, signed = "".join(self._thoughts), self._signed
        self._thoughts, self._thought, self._signed = [], 0, []
        if not text and not signed:
            return
        summary = [ct.SummaryTextContent(text)] if text else []
        encrypted = seal_signatures(self._sealer, signed) if signed else UNSET
        self.items.append(it.ReasoningParam(summary, encrypted_content=encrypted))

    def _end_text(self) -> None:
        """Join the pieces of the model's text."""
        text, self._said = "".join(self._said), []
        if text:
            self._parts.append(ct.OutputTextParam(text))

    def _end_message(self) -> None:
        self._end_text()
        parts, signed, rests = self._parts, self._behind, self._rests
        self._parts, self._behind, self._rests, self._length = [], [], {}, 0
        if parts:
            for index, (rest, kind) in rests.items():
                self._carried.add(place(len(self.items), index), rest, kind)
            self.items.append(it.MessageParam(self._role, parts))
        if signed:
            encrypted = seal_signatures(self._sealer, signed)
            self.items.append(it.ReasoningParam([], encrypted_content=encrypted))


_READERS: Final[dict[str, Callable[[ContentReader, GoogleFields, str], None]]] = {
    "text": ContentReader._text,
    "inlineData": ContentReader._inline_data,
    "fileData": ContentReader._file_data,
    "functionCall": ContentReader._call,
    "functionResponse": ContentReader._response,
}


def text_of(content: GoogleFields) -> str:
    """The text of a system instruction, which is all that it may have."""
    texts = []
    for part in content.each("parts"):
        texts.append(part.need("text", str))
        for where in part.unread_here:
            raise invalid(where, "an instruction takes text only")
    content.skip("role")
    return "\n\n".join(texts)


def _named(call: GoogleFields) -> str:
    name = call.need("name", str)
    if not name:
        raise invalid(call.at("name"), "is empty")
    return name


def _output(response: dict[str, Any]) -> tuple[str, bool]:
    """(text, whether it is an error) of a function's response: the text under one of the names that Google's
    clients use, or all of it as JSON."""
    if len(response) == 1:
        ((name, value),) = response.items()
        if name in _OUTPUTS and isinstance(value, str):
            return value, name == "error"
    return encode(response).decode(), "error" in response


def _data_of(part: GoogleFields) -> Any:
    if "inlineData" in part:
        return _inline(part.inner("inlineData"))
    if "fileData" in part:
        return _file(part.inner("fileData"))
    raise invalid(part.param, "has neither inlineData nor fileData")


def _inline(blob: GoogleFields) -> Any:
    """A part with these bytes: image, video, sound or file."""
    media = (blob.get("mimeType", str) or _BINARY).lower()
    data = standard_base64(blob.need("data", str))
    try:
        b64decode(data, validate=True)
    except ValueError:
        raise invalid(blob.at("data"), "is not base64") from None
    kind, _, subtype = media.partition(";")[0].partition("/")
    name = blob.get("displayName", str)
    url = f"data:{media};base64,{data}"
    if kind == "image":
        return ct.InputImageParam(url, "auto")
    if kind == "video":
        return ct.InputVideoContent(url)
    if kind == "audio":
        sound = {"data": data, "format": subtype.removeprefix("x-")}
        return UnknownPart({"type": "input_audio", "input_audio": sound})
    ending = _EXTENSIONS.get(f"{kind}/{subtype}", subtype if subtype.isalnum() else "bin")
    return ct.InputFileContent(name or f"document.{ending}", url)


def _file(file: GoogleFields) -> Any:
    """A part with the file at this address. What was uploaded to Google is refused: no other server has it,
    and Google has it under the account of its client."""
    url = file.need("fileUri", str)
    if _GOOGLES.match(url):
        raise invalid(file.at("fileUri"), "a file that is kept by Google can't be read here: send inlineData")
    if not url.startswith(("https://", "http://", "data:")):
        raise invalid(file.at("fileUri"), "expected an address of http, https or data")
    kind = (file.get("mimeType", str) or "").lower().partition("/")[0]
    name = file.get("displayName", str)
    if kind == "image":
        return ct.InputImageParam(url, "auto")
    if kind == "video" or _VIDEO.match(url):
        return ct.InputVideoContent(url)
    if url.startswith("data:"):
        return ct.InputFileContent(name or "document", url)
    return ct.InputFileContent(name or UNSET, file_url=url)
