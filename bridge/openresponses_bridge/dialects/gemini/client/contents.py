"""Converts contents to input items.

A call and its answer are joined by id, else by the function's name in order: Gemini 2.5 sends no ids. What
can't be joined is refused here, where its place in the client's own request is known.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    data_of,
    data_url,
    envelope_in,
    extension,
    invalid,
    open_reasoning,
    place,
    standard_base64,
)
from openresponses_bridge.dialects.gemini.carried import CarriedFields, CarriedPart
from openresponses_bridge.dialects.gemini.client.fields import GoogleFields
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
_SHOWN: Final = 100  # characters of a client's text in a message
_OUTPUTS: Final = ("output", "result", "error")
_OF_A_BLOB: Final = ("mimeType", "displayName")
_OF_A_FILE: Final = (*_OF_A_BLOB, "fileUri")


class ContentReader:
    """Reads contents in order; `items` is the input. Consecutive contents of one role are one turn, since
    clients keep each chunk of a stream as one. Fields without a counterpart are carried. Raises
    InvalidRequestError with the place of the error."""

    def __init__(self, sealer: Sealer, diagnostics: Diagnostics, carried: CarriedFields) -> None:
        self._sealer = sealer
        self._diagnostics = diagnostics
        self._carried = carried
        self.items: list[Any] = []
        self._role: MessageRole = "user"
        self._parts: list[Any] = []  # of the open message
        self._carries: dict[int, CarriedPart] = {}  # of those parts
        self._said: list[str] = []  # the model's text after them
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
        """Read one content of the request."""
        role = content.get("role", str) or "user"
        if role not in _ROLES:
            raise invalid(content.at("role"), f"{role[:_SHOWN]!r} is neither user nor model")
        if _ROLES[role] != self._role:
            self._flush()
            self._role = _ROLES[role]
        for part in content.each("parts"):
            self._part(part)
        for where in content.unread:
            self._diagnostics.loss(where, "can't be expressed")

    def close(self) -> None:
        """Handle the end of the contents."""
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
                self._carried.needed.setdefault(part.param, f"has none of {', '.join(DATA)}")
                self._hosted(part, next(iter(unknown)), "")
            else:
                self._diagnostics.ignored("part", "is empty")
            return
        if signature and (envelope := envelope_in(signature)) is not None:
            self._foreign(envelope)
            signature = ""
        if kind == "text":
            self._words(part, thought is True, signature)
        elif kind in _READERS:
            _READERS[kind](self, part, signature)
        else:
            part.need(kind, dict)
            self._hosted(part, kind, signature)

    def _words(self, part: GoogleFields, thought: bool, signature: str) -> None:
        text, around = part.get("text", str) or "", part.rest()
        if self._role == "user":  # it has no signatures and no thoughts
            around, signature = around | _signed(signature), ""
            if thought:
                self._hosted(part, "text", "")
                return
        if around and (thought or not text):
            self._hosted(part, "text", signature)
        elif thought:
            self._think(text, signature)
        elif around and self._role == "assistant":
            self._flush()  # signatures of other texts are by their places in these
            self._add(ct.OutputTextParam(text), "", "text", {}, around | _signed(signature))
            self._flush()
        else:
            self._text(text, signature)
            if around:
                self._carry(len(self._parts) - 1, "text", {}, around)

    def _carry(
        self, part: int, kind: str, within: dict[str, Any], around: dict[str, Any], *known: str
    ) -> None:
        """Keep what the protocol can't express of a part of the open message, except the `known` names."""
        self._carries[part] = CarriedPart(kind, within, around)
        self._report(kind, within, around, *known)

    def _report(self, kind: str, within: dict[str, Any], around: dict[str, Any], *known: str) -> None:
        names = [
            *(name for name in within if name not in known),
            *(name for name in around if name != _SIGNATURE),
        ]
        self._carried.report(f"{kind}.{name[:64]}" for name in names)

    def _foreign(self, envelope: str) -> None:
        """Open another upstream's reasoning, which includes earlier thoughts."""
        self._end_message()
        try:
            items = open_reasoning(self._sealer, envelope)
        except SealError as error:
            self._diagnostics.loss("thoughtSignature", f"can't be opened here ({error.code})")
            return
        self._thoughts, self._thought, self._signed = [], 0, []
        self.items += items

    def _think(self, text: str, signature: str) -> None:
        if self._parts or self._said or self._behind:
            self._end_message()
        if signature:
            self._signed.append(Signed(signature, "thought", self._thought, len(text)))
        self._thoughts.append(text)
        self._thought += len(text)

    def _text(self, text: str, signature: str) -> None:
        self._end_reasoning()
        if signature:
            self._behind.append(Signed(signature, "text", self._length, len(text)))
        self._length += len(text)
        if self._role == "assistant":
            self._said.append(text)
        else:
            self._parts.append(ct.InputTextContent(text))

    def _add(
        self,
        part: Any,
        signature: str,
        kind: str,
        within: dict[str, Any],
        around: dict[str, Any],
        *known: str,
    ) -> None:
        """Append a part to the open message, which is neither text nor a thought."""
        self._end_reasoning()
        self._end_text()
        if self._role == "user":
            around, signature = around | _signed(signature), ""
        if signature:
            self._behind.append(Signed(signature, "text", self._length))
        self._carry(len(self._parts), kind, within, around, *known)
        self._parts.append(part)

    def _inline_data(self, part: GoogleFields, signature: str) -> None:
        blob = part.inner("inlineData")
        within = {name: value for name, value in blob.whole().items() if name != "data"}
        self._add(_inline(blob), signature, "inlineData", within, part.rest(), *_OF_A_BLOB)

    def _file_data(self, part: GoogleFields, signature: str) -> None:
        file = part.inner("fileData")
        content = _file(file, self._carried)
        self._add(content, signature, "fileData", file.whole(), part.rest(), *_OF_A_FILE)

    def _call(self, part: GoogleFields, signature: str) -> None:
        call = part.inner("functionCall")
        name = _named(call)
        call_id = call.get("id", str) or self._new_id()
        self._given.add(call_id)
        self._open[call_id] = name
        self._by_name.setdefault(name, deque()).append(call_id)
        arguments = encode(call.get("args", dict) or {}).decode()
        self._before_item(signature, call_id)
        self._carry_item("functionCall", call.rest(), part.rest())
        self.items.append(it.FunctionCallParam(call_id, name, arguments))

    def _carry_item(self, kind: str, within: dict[str, Any], around: dict[str, Any], *known: str) -> None:
        """Keep what the protocol can't express of the next item."""
        if within or around:
            self._carried.parts[place(len(self.items))] = CarriedPart(kind, within, around)
            self._report(kind, within, around, *known)

    def _new_id(self) -> str:
        while True:
            self._made += 1
            call_id = f"call_{self._made}"
            if call_id not in self._given:
                return call_id

    def _response(self, part: GoogleFields, signature: str) -> None:
        response = part.inner("functionResponse")
        call_id = self._answered(response)
        result = response.get("response", dict) or {}
        text, failed = _output(result)
        output: Any = text
        files = [self._data_of(each) for each in response.each("parts")]
        if files:
            output = [ct.InputTextContent(text), *files] if result else files
        self._before_item(signature, call_id)
        sent = {"response": result} | ({"parts": response.raw("parts")} if files else {})
        self._carry_item("functionResponse", sent | response.rest(), part.rest(), *sent)
        status: Any = "incomplete" if failed else UNSET  # the mark of an answer whose call has failed
        self.items.append(it.FunctionCallOutputParam(call_id, output, status=status))

    def _data_of(self, part: GoogleFields) -> Any:
        """Return a part of a function's response."""
        if "inlineData" in part:
            content = _inline(part.inner("inlineData"))
        elif "fileData" in part:
            content = _file(part.inner("fileData"), self._carried)
        else:
            raise invalid(part.param, "has neither inlineData nor fileData")
        self._carried.report(f"functionResponse.parts.{name[:64]}" for name in part.rest())
        return content

    def _answered(self, response: GoogleFields) -> str:
        """Return the id of the call that this answers: the one that it names, else the oldest with its
        name."""
        name, call_id = _named(response), response.get("id", str)
        if call_id and call_id in self._open:
            del self._open[call_id]
            return call_id
        waiting = self._by_name.get(name, deque())
        while waiting:
            oldest = waiting.popleft()
            if oldest in self._open:
                del self._open[oldest]
                return oldest
        what = f"{response.at('name')}: no call of {name[:_SHOWN]!r} before it waits for an answer"
        raise InvalidRequestError(InvalidRequestError.UNPAIRED_CALL, what, param=response.at("name"))

    def _hosted(self, part: GoogleFields, kind: str, signature: str) -> None:
        """Add a part that no item of the protocol can express, such as one of Google's own tools, as an item
        that has it unchanged."""
        self._before_item("", "")
        google_part = spelled_part(part.whole())
        google_part.pop(_SIGNATURE, None)
        google_part |= _signed(signature)
        fields = {"type": extension(SLUG, kind), "id": "", "status": "completed", "part": google_part}
        self.items.append(UnknownItem(fields | ({"role": "user"} if self._role == "user" else {})))

    def _before_item(self, signature: str, call_id: str) -> None:
        """End what is open before an item. The item's signature is kept with the thoughts before it."""
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
        if not signed:
            self._carried.parts[place(len(self.items))] = CarriedPart("thought")
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
        parts, signed, carries = self._parts, self._behind, self._carries
        self._parts, self._behind, self._carries, self._length = [], [], {}, 0
        if parts:
            self._carried.parts |= {
                place(len(self.items), index): carried for index, carried in carries.items()
            }
            self.items.append(it.MessageParam(self._role, parts))
        if signed:
            encrypted = seal_signatures(self._sealer, signed)
            self.items.append(it.ReasoningParam([], encrypted_content=encrypted))


_READERS: Final[dict[str, Callable[[ContentReader, GoogleFields, str], None]]] = {
    "inlineData": ContentReader._inline_data,
    "fileData": ContentReader._file_data,
    "functionCall": ContentReader._call,
    "functionResponse": ContentReader._response,
}


def text_of(content: GoogleFields, carried: CarriedFields) -> str:
    """Return the text of a system instruction, which can have nothing else elsewhere."""
    texts = []
    for part in content.each("parts"):
        text = part.get("text", str)
        texts += [] if text is None else [text]
        for name in part.rest():
            carried.needed.setdefault(part.at(name[:64]), "an instruction takes text only")
    content.skip("role")
    carried.report(content.at(name[:64]) for name in content.rest())
    return "\n\n".join(texts)


def _signed(signature: str) -> dict[str, Any]:
    return {_SIGNATURE: signature} if signature else {}


def _named(call: GoogleFields) -> str:
    name = call.need("name", str)
    if not name:
        raise invalid(call.at("name"), "is empty")
    return name


def _output(response: dict[str, Any]) -> tuple[str, bool]:
    """Return return (text, whether it is an error) of a function's response: the text under one of the names
    that Google's clients use, or all of it as JSON."""
    if len(response) == 1:
        ((name, value),) = response.items()
        if name in _OUTPUTS and isinstance(value, str):
            return value, name == "error"
    return encode(response).decode(), "error" in response


def _inline(blob: GoogleFields) -> Any:
    """Return a part with these bytes: an image, a video, a sound or a file."""
    media = (blob.get("mimeType", str) or _BINARY).lower()
    data = standard_base64(blob.need("data", str))
    try:
        b64decode(data, validate=True)
    except ValueError:
        raise invalid(blob.at("data"), "is not base64") from None
    kind, _, subtype = media.partition(";")[0].partition("/")
    name = blob.get("displayName", str)
    url = data_url(media, data, blob.at("mimeType"), blob.at("data"))
    if kind == "image":
        return ct.InputImageParam(url, "auto")
    if kind == "video":
        return ct.InputVideoContent(url)
    if kind == "audio":
        sound = {"data": data, "format": subtype.removeprefix("x-")}
        return UnknownPart({"type": "input_audio", "input_audio": sound})
    ending = _EXTENSIONS.get(f"{kind}/{subtype}", subtype if subtype.isalnum() else "bin")
    return ct.InputFileContent(name or f"document.{ending}", url)


def _file(file: GoogleFields, carried: CarriedFields) -> Any:
    """Return a part with the file at this address. Files that Google keeps are for Google only."""
    url = file.need("fileUri", str)
    if _GOOGLES.match(url):
        where = file.at("fileUri")
        why = "a file that is kept by Google can't be read by this model: send inlineData"
        carried.needed.setdefault(where, why)
        return ct.InputFileContent(file.get("displayName", str) or UNSET, file_id=url)
    if not url.startswith(("https://", "http://", "data:")):
        raise invalid(file.at("fileUri"), "expected an address of http, https or data")
    if url.startswith("data:"):
        data_of(url, file.at("fileUri"))
    kind = (file.get("mimeType", str) or "").lower().partition("/")[0]
    name = file.get("displayName", str)
    if kind == "image":
        return ct.InputImageParam(url, "auto")
    if kind == "video" or _VIDEO.match(url):
        return ct.InputVideoContent(url)
    if url.startswith("data:"):
        return ct.InputFileContent(name or "document", url)
    return ct.InputFileContent(name or UNSET, file_url=url)
