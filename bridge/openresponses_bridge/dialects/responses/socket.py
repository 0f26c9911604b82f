"""Responses over a WebSocket: a request continues the last answer of its connection if its input begins with
that answer's input and output, and only the items after them are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from openresponses_bridge.dialects.base import Meaning, SocketFraming, SocketRefusal, SocketRequest
from openresponses_bridge.protocol.codec import REFUSED, encode

_NOT_SENT: Final = ("stream", "stream_options", "background")
_KEPT_ELSEWHERE: Final = ("previous_response_id", "conversation")
_SAME: Final = ("model", "store")  # what a request must have in common with the one that it continues
_OF_SERVER: Final = frozenset(
    {"id", "status", "created_by", "logprobs"}
)  # fields that mean nothing to a model
_NULL: Final = b"null"
_MOST_ITEMS: Final = 20_000
_LONGEST_ID: Final = 512
_LONGEST_HEADER: Final = 1024
_MOST_HEADERS: Final = 64
_OF_CONNECTION: Final = "codex."  # the types of messages that are headers over HTTP
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_NOT_FOUND: Final = "previous_response_not_found"
_EXPIRED: Final = "websocket_connection_limit_reached"


class _Body(Struct):
    input: str | list[Raw] = []


def _read(body: bytes) -> SocketRequest | None:
    try:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
        content = msgspec.json.decode(body, type=_Body).input
        if _text(fields, "stream") != b"true" or _text(fields, "background") == b"true":
            return None
        items = content if isinstance(content, list) else [Raw(encode({"role": "user", "content": content}))]
        digests = [_digest(item) for item in items]
    except REFUSED:
        return None
    sent = {name: value for name, value in fields.items() if name not in _NOT_SENT and name != "input"}
    is_kept = any(_text(sent, name) != _NULL for name in _KEPT_ELSEWHERE)
    named = msgspec.json.decode(_text(sent, "prompt_cache_key"))
    return SocketRequest(
        sent,
        items,
        None if is_kept or len(items) > _MOST_ITEMS else digests,
        named if isinstance(named, str) else "",
    )


def _text(fields: Mapping[str, Any], name: str) -> bytes:
    """Return a copy of a field's JSON, since the field as it was received keeps the whole body in memory."""
    return bytes(fields.get(name, _NULL))


def _digest(item: Raw | bytes) -> bytes:
    """Return the digest of an item's meaning, which is the same for a received item and for one that is sent
    back."""
    value = msgspec.json.decode(item)
    if isinstance(value, dict):
        value.setdefault("type", "message")
        if value["type"] == "message" and isinstance(value.get("content"), str):
            kind = "output_text" if value.get("role") == "assistant" else "input_text"
            value["content"] = [{"type": kind, "text": value["content"]}]
    return blake2b(msgspec.json.encode(_said(value), order="sorted"), digest_size=16).digest()


def _said(value: Any) -> Any:
    """Return a value without empty fields and without the server's own."""
    if isinstance(value, dict):
        fields = {key: _said(each) for key, each in value.items() if key not in _OF_SERVER}
        return {key: each for key, each in fields.items() if each is not None and each != []}
    if isinstance(value, list):
        return [_said(each) for each in value]
    return value


class _Response(Struct):
    id: Any = None
    output: list[Raw] = []


class _Error(Struct):
    code: Any = None


class _Message(Struct):
    type: Any = None
    status: Any = None
    status_code: Any = None
    response: _Response | None = None
    item: Raw = Raw()
    error: _Error | None = None
    headers: dict[str, Any] | None = None


class _Kind(Struct):
    type: Any = None


class _RawError(Struct):
    error: Raw = Raw()


_MESSAGES: Final = msgspec.json.Decoder(_Message)
_KINDS: Final = msgspec.json.Decoder(_Kind)


class _Continued(Struct, frozen=True):
    """An answer that the next request may continue."""

    id: str
    said: Sequence[bytes]
    """The digests of the items in its input and its output."""
    same: Sequence[Any]


class _Session:
    """A `SocketSession`. An answer is continued only if it was the last one of the connection and was
    completed under the id with which it began."""

    def __init__(self) -> None:
        self.refusal: SocketRefusal | None = None
        self._last: _Continued | None = None
        self._said: Sequence[bytes] | None = None  # the digests of the last request's input
        self._same: Sequence[Any] = ()
        self._id: Any = None
        self._output: list[bytes] = []
        self._begun = False
        self._continues = False

    def known(self, request: SocketRequest) -> int:
        last, digests = self._last, request.digests
        if last is None or digests is None or len(digests) <= len(last.said):
            return 0
        if _same(request.fields) != last.same or digests[: len(last.said)] != last.said:
            return 0
        return len(last.said)

    def message(self, request: SocketRequest, known: int) -> bytes:
        last, self._last = self._last, None
        self._said, self._same = request.digests, _same(request.fields)
        self.refusal, self._id = None, None
        self._output, self._begun, self._continues = [], False, known > 0
        fields = {"type": "response.create", **request.fields}
        if known:
            assert last is not None
            fields["previous_response_id"] = last.id
        return encode({**fields, "input": request.input[known:]})

    def read(self, message: bytes) -> Meaning:
        try:
            read = _MESSAGES.decode(message)
        except REFUSED:
            return self._read_kind(message)
        kind = read.type
        if isinstance(kind, str) and kind.startswith(_OF_CONNECTION):
            return Meaning.SKIPPED
        if kind == "error" and not self._begun:
            return self._read_error(read, message)
        self._begun = True
        if kind == "response.created":
            self._id = read.response.id if read.response is not None and self._id is None else ()
        elif kind == "response.output_item.done":
            self._add(read.item)
        elif kind == "response.completed":
            self._end(read.response)
        return Meaning.LAST if kind in _ENDS else Meaning.EVENT

    def _add(self, item: Raw) -> None:
        try:
            self._output.append(_digest(item))
        except REFUSED:
            self._id = ()
        if len(self._output) > _MOST_ITEMS:
            self._output, self._id = [], ()

    def _read_kind(self, message: bytes) -> Meaning:
        """Return the meaning of a message of another form; the reader of the answer will report what is
        wrong."""
        self._begun, self._id = True, ()
        try:
            kind = _KINDS.decode(message).type
        except REFUSED:
            return Meaning.EVENT
        return Meaning.LAST if isinstance(kind, str) and kind in _ENDS else Meaning.EVENT

    def _read_error(self, read: _Message, message: bytes) -> Meaning:
        code = None if read.error is None else read.error.code
        if code == _NOT_FOUND and self._continues:
            return Meaning.NOT_CONTINUED
        if code == _EXPIRED:
            return Meaning.EXPIRED
        status = read.status if read.status is not None else read.status_code
        if type(status) is not int or not 400 <= status < 600 or read.error is None:
            return Meaning.LAST
        body = b'{"error":' + bytes(msgspec.json.decode(message, type=_RawError).error) + b"}"
        self.refusal = SocketRefusal(status, _headers(read.headers), body)
        return Meaning.REFUSED

    def _end(self, response: _Response | None) -> None:
        sent, output = self._said, self._output
        if response is None or sent is None:
            return
        named = response.id
        if not isinstance(named, str) or named != self._id or not 0 < len(named) <= _LONGEST_ID:
            return
        # some servers leave the output out of the last event; nothing may add to what came before it
        if response.output and len(response.output) != len(output):
            return
        digests = [*sent, *output]
        if len(digests) <= _MOST_ITEMS:
            self._last = _Continued(named, digests, self._same)


def _same(fields: Mapping[str, Any]) -> Sequence[Any]:
    return [_text(fields, name) for name in _SAME]


def _headers(raw: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the headers in a field of a message."""
    headers: dict[str, str] = {}
    for name, value in (raw or {}).items():
        text = str(value) if isinstance(value, str | int | float) else ""
        if text and len(name) + len(text) <= _LONGEST_HEADER and (name + text).isprintable():
            headers[name.lower()] = text
        if len(headers) == _MOST_HEADERS:
            break
    return headers


FRAMING: Final = SocketFraming(
    read=_read, session=_Session, headers={"openai-beta": "responses_websockets=2026-02-06"}
)
