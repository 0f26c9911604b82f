"""Structs ↔ bytes: decoders and encoders, each built once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import isfinite
from sys import float_info, maxsize
from typing import Any, Final, TypeVar

import msgspec

from openresponses_bridge.errors import InvalidRequestError, WireError
from openresponses_bridge.protocol import vocabulary
from openresponses_bridge.protocol.beyond import decode_exact, fields_beyond, with_beyond
from openresponses_bridge.protocol.events import Event, KnownEvent
from openresponses_bridge.protocol.items import Item, KnownItem
from openresponses_bridge.protocol.lenient import (
    Repair,
    Repairing,
    SchemaError,
    Strict,
    build,
    build_struct,
    path_as_sent,
    with_flat_tools,
    with_types,
)
from openresponses_bridge.protocol.request import CompactRequest, CreateResponse, ResponseCreateMessage
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.tools import FunctionToolChoice
from openresponses_bridge.protocol.unknown import Unknown, UnknownEvent, enc_hook
from openresponses_bridge.text import repair_surrogates

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")
_TOO_DEEP: Final = "JSON is nested too deeply"
REFUSED: Final = (msgspec.MsgspecError, RecursionError, UnicodeError)
"""What a strict decoder raises. The lenient decoder then reports the error, or repairs the value."""

EVENT_STRUCTS: Final = frozenset({*vocabulary.EVENTS.structs.values(), UnknownEvent})
"""The types of events."""
_LARGEST_FLOAT: Final = float_info.max
_KINDS: Final = {
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}
_UNNAMED: Final = FunctionToolChoice()
_MOST_DIGITS: Final = 400  # no meaningful number has more; Python accepts ten times as many


class _Tagged(msgspec.Struct):
    type: Any = None


_encoder = msgspec.json.Encoder(enc_hook=enc_hook)
decode_known_event: Final[Callable[[bytes | str], Any]] = msgspec.json.Decoder(KnownEvent).decode
"""Decodes an event of a published type that is valid. Raises one of REFUSED for any other data."""
_items: msgspec.json.Decoder[Any] = msgspec.json.Decoder(KnownItem)
_response: msgspec.json.Decoder[Response] = msgspec.json.Decoder(Response)
_create: msgspec.json.Decoder[CreateResponse] = msgspec.json.Decoder(CreateResponse)
_compact: msgspec.json.Decoder[CompactRequest] = msgspec.json.Decoder(CompactRequest)
_message: msgspec.json.Decoder[ResponseCreateMessage] = msgspec.json.Decoder(ResponseCreateMessage)
_tagged: msgspec.json.Decoder[_Tagged] = msgspec.json.Decoder(_Tagged)
_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def encode(value: Any) -> bytes:
    """Encode any protocol value as JSON. A lone surrogate is encoded as an escape, as it came."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, enc_hook=enc_hook), separators=(",", ":")).encode()


def decode_json(data: bytes | str) -> Any:
    """Decode JSON to plain values. Accepts lone surrogates in escapes (an upstream may split an emoji over
    two chunks) and refuses NaN and Infinity. Of duplicate keys the last one counts.

    Raises WireError (`bridge.wire.invalid_json`) with the reason and the byte.
    """
    try:
        return _anything.decode(data)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        return _decode_surrogates(data, error)
    except RecursionError as error:
        raise WireError(WireError.INVALID_JSON, _TOO_DEEP) from error
    except UnicodeDecodeError as error:
        raise WireError(WireError.INVALID_JSON, f"not UTF-8: {error.reason} (byte {error.start})") from error


def decode_frame(data: bytes | str) -> Any:
    """Like `decode_json`, for data from an upstream: a number out of range becomes the largest that can be
    represented, so that one wrong count does not lose an answer."""
    try:
        return decode_json(data)
    except WireError:
        try:
            return json.loads(data, parse_constant=_refuse, parse_float=_nearest, parse_int=_held)
        except (ValueError, RecursionError):
            pass
        raise


def _nearest(number: str) -> float:
    return max(-_LARGEST_FLOAT, min(_LARGEST_FLOAT, float(number)))


def _held(number: str) -> int:
    if len(number) <= _MOST_DIGITS:
        return int(number)
    return -maxsize if number.startswith("-") else maxsize


def _decode_surrogates(data: bytes | str, first: Exception) -> Any:
    if isinstance(data, str) or b"\\u" in data:
        try:
            text = data if isinstance(data, str) else data.decode()  # of bytes json guesses the encoding
            return json.loads(text, parse_constant=_refuse, parse_float=_finite)
        except (ValueError, RecursionError):
            pass
    raise WireError(WireError.INVALID_JSON, str(first)) from first


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(number: str) -> float:
    return value if isfinite(value := float(number)) else _refuse(number)


def decode_event(data: bytes | str, repairs: list[Repair] | None = None) -> Event:
    """Decode one event. Missing and wrong fields are repaired as far as possible, and each repair is appended
    to `repairs`. An event of an unknown type becomes an `UnknownEvent`.

    Raises WireError when the data is not a JSON object.
    """
    try:
        return decode_known_event(data)  # type: ignore[no-any-return]
    except REFUSED:
        return event_from(json_object(decode_json(data) if repairs is None else decode_frame(data)), repairs)


def event_from(value: dict[str, Any], repairs: list[Repair] | None = None) -> Event:
    """`decode_event` for a value already parsed."""
    mode = Repairing()
    event: Event = build(vocabulary.EVENTS, value, mode)
    if repairs is not None:
        repairs.extend(mode.repairs)
    return event


def event_of(value: Event | Mapping[str, Any]) -> Event:
    """An event for an event (itself) or for its JSON object, which is read as `decode_event` reads it.

    Raises TypeError for anything else, naming its type.
    """
    if type(value) in EVENT_STRUCTS:
        return value  # type: ignore[return-value]
    if isinstance(value, Mapping):
        try:
            return decode_event(encode(dict(value)))
        except NotImplementedError as error:
            raise TypeError(str(error)) from error
        except WireError:  # a number that JSON does not have, and a lone surrogate
            return event_from(dict(value))
    hint = " (decode_event reads JSON text)" if isinstance(value, bytes | bytearray | str) else ""
    raise TypeError(f"expected an event or its JSON object, got {type(value).__name__}{hint}")


def check_event(data: bytes | str) -> Event:
    """Decode one event and hold it to the published schema. Extensions and unknown types are allowed.

    Raises SchemaError with the path of the first deviation, WireError when the data is not a JSON object.
    """
    try:
        return decode_known_event(data)  # type: ignore[no-any-return]
    except REFUSED:
        return build(vocabulary.EVENTS, json_object(decode_json(data)), Strict())  # type: ignore[no-any-return]


def decode_item(data: bytes | str, repairs: list[Repair] | None = None) -> Item:
    """One output item, repaired like an event."""
    try:
        return _items.decode(data)  # type: ignore[no-any-return]
    except REFUSED:
        return item_from(json_object(decode_json(data)), repairs)


def item_from(value: dict[str, Any], repairs: list[Repair] | None = None) -> Item:
    """`decode_item` for a value already parsed."""
    mode = Repairing()
    item: Item = build(vocabulary.ITEMS, value, mode)
    if repairs is not None:
        repairs.extend(mode.repairs)
    return item


def decode_response(data: bytes | str, repairs: list[Repair] | None = None) -> Response:
    """A response resource, repaired like an event."""
    try:
        return _response.decode(data)
    except REFUSED:
        mode = Repairing()
        response: Response = build_struct(Response, json_object(decode_json(data)), mode)
        if repairs is not None:
            repairs.extend(mode.repairs)
        return response


def decode_request(data: bytes | str) -> CreateResponse:
    """The body of a create request. Raises InvalidRequestError with `param`."""
    return _request(_create, CreateResponse, data)


def decode_compact_request(data: bytes | str) -> CompactRequest:
    """The body of a compact request. Raises InvalidRequestError with `param`."""
    return _request(_compact, CompactRequest, data)


def decode_create_message(data: bytes | str) -> ResponseCreateMessage:
    """A client's WebSocket frame. Raises InvalidRequestError with `param`."""
    tag = ResponseCreateMessage.type
    if not _is_tagged(data, tag) and request_object(data).get("type") != tag:
        what = f"Expected `{tag}` - at `$.type`"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="type")
    return _request(_message, ResponseCreateMessage, data)


def _is_tagged(data: bytes | str, tag: str) -> bool:
    """The type alone; the other fields are skipped."""
    try:
        return bool(_tagged.decode(data).type == tag)
    except REFUSED:
        return False


def _request(decoder: msgspec.json.Decoder[T], struct: type[T], data: bytes | str) -> T:
    try:
        found = decode_exact(decoder, struct, data, None)
        if getattr(found, "tool_choice", None) != _UNNAMED:  # its name may be in an object within
            return found
    except REFUSED:
        pass
    value, paths = with_flat_tools(request_object(data))
    typed = with_types(struct, value)
    if typed is not None:
        with suppress(*REFUSED):
            return decode_exact(decoder, struct, _encoder.encode(typed), value)
    try:
        request: T = build_struct(struct, value, Strict())
    except SchemaError as error:
        message, param = path_as_sent(error.message, paths), error.param and path_as_sent(error.param, paths)
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, message, param=param) from error
    return with_beyond(request, fields_beyond(struct, value))


def request_object(data: bytes | str) -> dict[str, Any]:
    """The JSON object that a request is. Raises InvalidRequestError (`invalid_json`)."""
    try:
        value = decode_json(data)
    except WireError as error:
        what = f"not JSON: {error.message}"
        raise InvalidRequestError(InvalidRequestError.INVALID_JSON, what) from error
    if isinstance(value, dict):
        return value
    what = f"expected a JSON object, got {_KINDS[type(value)]}"
    raise InvalidRequestError(InvalidRequestError.INVALID_JSON, what)


def json_object(value: Any) -> dict[str, Any]:
    """A value that is an object, as it is. Raises WireError for any other."""
    if isinstance(value, dict):
        return value
    raise WireError(WireError.INVALID_SHAPE, f"expected a JSON object, got {type(value).__name__}")


def _prefix(kind: str) -> bytes:
    # a line end in a foreign event's type could forge frames
    return b"event: %b\ndata: " % " ".join(kind.splitlines()).encode("utf-8", "replace")


_PREFIXES = {struct: _prefix(tag) for tag, struct in vocabulary.EVENTS.structs.items()}


def encode_sse(events: Iterable[Event]) -> bytes:
    """Events → SSE frames, `event:` equal to `type`, LF line ends (specification, "Streaming")."""
    each = events if type(events) is list else list(events)
    try:
        if len(each) == 1:  # a single token: three pieces and no buffer
            return b"".join((_PREFIXES[type(each[0])], _encoder.encode(each[0]), b"\n\n"))
        buffer, encode_into = bytearray(), _encoder.encode_into
        for event in each:
            buffer += _PREFIXES[type(event)]
            encode_into(event, buffer, -1)
            buffer += b"\n\n"
        return bytes(buffer)
    except (KeyError, UnicodeEncodeError):  # an unknown type, or a lone surrogate
        return b"".join([b"%b%b\n\n" % (_prefix(event.type), encode(event)) for event in each])


def with_whole_characters(value: V) -> V:
    """The value, or a copy of it with U+FFFD for each lone surrogate: strict decoders refuse those, even
    escaped. Raises WireError for one that is nested too deeply to be encoded."""
    try:
        try:
            _encoder.encode(value)
        except UnicodeEncodeError:
            return _repaired(value)  # type: ignore[no-any-return]
    except RecursionError as error:
        raise WireError(WireError.INVALID_JSON, _TOO_DEEP) from error
    return value


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return repair_surrogates(value)
    if isinstance(value, list):
        return [_repaired(element) for element in value]
    if isinstance(value, dict):
        return {_repaired(name): _repaired(element) for name, element in value.items()}
    if isinstance(value, Unknown):
        return type(value)(_repaired(value.raw))
    if isinstance(value, msgspec.Struct):
        fields = {name: _repaired(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    return value


# Other names of published events: RFC 00022 and older servers say `reasoning_summary` without `_text`;
# proxies of Codex say `response.done` and `response.error`.

CANONICAL: dict[str, str] = {
    "response.reasoning_summary.delta": "response.reasoning_summary_text.delta",
    "response.reasoning_summary.done": "response.reasoning_summary_text.done",
    "response.done": "response.completed",
    "response.error": "error",
}


def normalized(event: UnknownEvent) -> Event | None:
    """The event under its published name, or None when its type is unknown."""
    name = CANONICAL.get(event.type)
    if name is None:
        return None
    return event_from({**{key: _text(value) for key, value in event.raw.items()}, "type": name})


def _text(value: Any) -> Any:
    """The text of an older summary event, which wraps it: `{"text": "…"}`."""
    return (
        value["text"]
        if isinstance(value, dict) and value.keys() <= {"type", "text"} and "text" in value
        else value
    )
