"""Converts between structs and bytes: decoders and encoders, each built once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import isfinite
from sys import float_info, maxsize
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from openresponses_bridge.errors import InvalidRequestError, WireError
from openresponses_bridge.protocol import vocabulary
from openresponses_bridge.protocol.beyond import (
    Kind,
    UnknownFields,
    decode_exact,
    name_of,
    unknown_of,
    with_beyond,
)
from openresponses_bridge.protocol.events import Event, KnownEvent
from openresponses_bridge.protocol.items import Item, KnownItem
from openresponses_bridge.protocol.lenient import (
    Repair,
    Repairing,
    SchemaError,
    Strict,
    build,
    build_struct,
    completed,
    path_as_sent,
    with_flat_tools,
)
from openresponses_bridge.protocol.request import (
    CompactRequest,
    CreateConversation,
    CreateConversationItems,
    CreateResponse,
    ResponseCreateMessage,
    SearchRequest,
    UpdateConversation,
)
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.tools import FunctionToolChoice
from openresponses_bridge.protocol.unknown import EXTRA, Extensible, Unknown, UnknownEvent, enc_hook
from openresponses_bridge.text import repair_surrogates

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")
_TOO_DEEP: Final = "JSON is nested too deeply"
REFUSED: Final = (msgspec.MsgspecError, RecursionError, UnicodeError)
"""The exceptions of a strict decoder, after which the lenient decoder reports the error or repairs the
value."""

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


_OBJECTS: Final = frozenset({"response", "item", "part", "annotation"})
_UNKNOWN: Final = {
    struct: UnknownFields(struct, received=True)
    for struct in vocabulary.EVENTS.structs.values()
    if not _OBJECTS.isdisjoint(struct.__struct_fields__)
}
"""The unknown fields of events that have objects."""
_unknown_of_items: Final = UnknownFields(vocabulary.ITEMS, received=True)
_unknown_of_response: Final = UnknownFields(Response, received=True)
_MARK: Final = EXTRA.encode()
_OVER: Final = "has more unknown fields than are kept, which are left out"

_encoder = msgspec.json.Encoder(enc_hook=enc_hook)
decode_known_event: Final[Callable[[bytes | str], Any]] = msgspec.json.Decoder(KnownEvent).decode
"""Decodes an event of a published type that is valid, without the unknown fields of the objects in it, which
`with_unknown_fields` adds. Raises one of REFUSED for any other data."""
_items: msgspec.json.Decoder[Any] = msgspec.json.Decoder(KnownItem)
_response: msgspec.json.Decoder[Response] = msgspec.json.Decoder(Response)
_create: msgspec.json.Decoder[CreateResponse] = msgspec.json.Decoder(CreateResponse)
_compact: msgspec.json.Decoder[CompactRequest] = msgspec.json.Decoder(CompactRequest)
_search: msgspec.json.Decoder[SearchRequest] = msgspec.json.Decoder(SearchRequest)
_conversation: msgspec.json.Decoder[CreateConversation] = msgspec.json.Decoder(CreateConversation)
_conversation_update: msgspec.json.Decoder[UpdateConversation] = msgspec.json.Decoder(UpdateConversation)
_conversation_items: msgspec.json.Decoder[CreateConversationItems] = msgspec.json.Decoder(
    CreateConversationItems
)
_message: msgspec.json.Decoder[ResponseCreateMessage] = msgspec.json.Decoder(ResponseCreateMessage)
_tagged: msgspec.json.Decoder[_Tagged] = msgspec.json.Decoder(_Tagged)
_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def encode(value: Any) -> bytes:
    """Encode any protocol value as JSON. A lone surrogate is encoded as an escape, as it came."""
    try:
        data = _encoder.encode(value)
        return _encoder.encode(_with_extra(value)) if _MARK in data else data
    except UnicodeEncodeError:
        tree = msgspec.to_builtins(_with_extra(value), enc_hook=enc_hook)
        return json.dumps(tree, separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """Return a protocol value as the JSON value that is sent: objects are dicts."""
    try:
        has_extra = _MARK in _encoder.encode(value)
    except UnicodeEncodeError:
        has_extra = True
    return msgspec.to_builtins(_with_extra(value) if has_extra else value, enc_hook=enc_hook)


def _with_extra(value: Any) -> Any:
    """Return the value with its structs as dicts, which have unknown fields like all others."""
    if isinstance(value, dict):
        return {name: _with_extra(each) for name, each in value.items()}
    return _object_with_extra(value)


def _object_with_extra(value: Any) -> Any:
    """Return a value within a struct as `_with_extra` does; there a dict is JSON, and so is a list of
    anything but structs."""
    if isinstance(value, list):
        return [_object_with_extra(each) if isinstance(each, msgspec.Struct) else each for each in value]
    if not isinstance(value, msgspec.Struct):
        return value
    if value.__struct_config__.omit_defaults:
        built: dict[str, Any] = msgspec.to_builtins(value, enc_hook=enc_hook)
        unknown: dict[str, Any] = built.pop(EXTRA, {})
        return built | {name: each for name, each in unknown.items() if name not in built}
    config = value.__struct_config__
    fields: dict[str, Any] = {} if config.tag_field is None else {config.tag_field: config.tag}
    for name, key in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        each = getattr(value, name)
        if each is not UNSET and key != EXTRA:
            fields[key] = _object_with_extra(each)
    extra = (value.extra or {}) if isinstance(value, Extensible) else {}
    return fields | {name: each for name, each in extra.items() if name not in fields}


def without_extra(value: V, names: list[str]) -> V:
    """Return the value without the unknown fields of its objects, whose names are appended to `names`."""
    return _without_extra(value, names)  # type: ignore[no-any-return]


def _without_extra(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        items = [_without_extra(each, names) if isinstance(each, msgspec.Struct) else each for each in value]
        return value if all(one is other for one, other in zip(items, value, strict=True)) else items
    if not isinstance(value, msgspec.Struct):
        return value
    changed: dict[str, Any] = {}
    if isinstance(value, Extensible) and value.extra:
        names += value.extra
        changed["extra"] = UNSET
    for name in value.__struct_fields__:
        each = getattr(value, name)
        if isinstance(each, msgspec.Struct | list) and (inner := _without_extra(each, names)) is not each:
            changed[name] = inner
    return msgspec.structs.replace(value, **changed) if changed else value


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
    """Decode data from an upstream as `decode_json` does, except that a number out of range, and Infinity,
    becomes the largest that can be represented, and NaN null, so that one wrong count does not lose an
    answer."""
    try:
        return decode_json(data)
    except WireError:
        try:
            return json.loads(data, parse_constant=_CONSTANTS.get, parse_float=_nearest, parse_int=_held)
        except (ValueError, RecursionError):
            pass
        raise


_CONSTANTS: Final = {"Infinity": _LARGEST_FLOAT, "-Infinity": -_LARGEST_FLOAT}


def _nearest(number: str) -> float:
    return max(-_LARGEST_FLOAT, min(_LARGEST_FLOAT, float(number)))


def _held(number: str) -> int:
    if len(number) <= _MOST_DIGITS:
        return int(number)
    return -maxsize if number.startswith("-") else maxsize


def _decode_surrogates(data: bytes | str, first: Exception) -> Any:
    if isinstance(data, str) or b"\\u" in data:
        try:
            text = data if isinstance(data, str) else data.decode()  # json would guess the encoding of bytes
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
    to `repairs`; the event keeps the data as `repaired_from`, which `StreamValidator` judges. An event of an
    unknown type becomes an `UnknownEvent`.

    Raises WireError when the data is not a JSON object.
    """
    try:
        return with_unknown_fields(decode_known_event(data), data, repairs)
    except REFUSED:
        value = json_object(decode_json(data) if repairs is None else decode_frame(data))
        return _event_from(value, data, repairs)


def with_unknown_fields(event: Event, data: bytes | str, repairs: list[Repair] | None = None) -> Event:
    """Return the event that `decode_known_event` decoded from this data, with the unknown fields of its
    objects."""
    unknown = _UNKNOWN.get(type(event))
    if unknown is None:
        return event
    new_repairs: list[Repair] = []
    whole = _decoded_with(unknown, decode_known_event, event, data, new_repairs)
    return _remembering(whole, data, new_repairs, repairs)


def _decoded_with(
    unknown: UnknownFields,
    decode: Callable[[bytes], Any],
    decoded: Any,
    data: bytes | str,
    repairs: list[Repair] | None,
) -> Any:
    try:
        if not unknown.may_be_in(data):
            return decoded
        value = json_object(decode_frame(data))
    except (*REFUSED, WireError):  # in an unknown field
        return decoded
    extended = _kept(unknown, value, repairs)
    return decoded if extended is value else decode(_encoder.encode(extended))


def _kept(unknown: UnknownFields, value: dict[str, Any], repairs: list[Repair] | None) -> dict[str, Any]:
    extended, foreign = unknown.kept(value)
    if repairs is not None:
        repairs += [Repair(f"$.{name_of(each.place)}", _OVER) for each in foreign if not each.carried]
    return extended


def event_from(value: dict[str, Any], repairs: list[Repair] | None = None) -> Event:
    """Return the event for a parsed value, as `decode_event` does."""
    return _event_from(value, value, repairs)


def _event_from(
    value: dict[str, Any], received: bytes | str | dict[str, Any], repairs: list[Repair] | None
) -> Event:
    new_repairs: list[Repair] = []
    built = _built(vocabulary.EVENTS, value, _unknown_of(value), new_repairs)
    return _remembering(built, received, new_repairs, repairs)


def _remembering(
    event: Any,
    received: bytes | str | dict[str, Any],
    new_repairs: list[Repair],
    repairs: list[Repair] | None,
) -> Event:
    """Return the event; if it was repaired, with the JSON that it was decoded from."""
    if new_repairs:
        if isinstance(event, msgspec.Struct):  # an unknown event is as it came
            event.__dict__["repaired_from"] = received
        if repairs is not None:
            repairs += new_repairs
    return event  # type: ignore[no-any-return]


def _unknown_of(event: dict[str, Any]) -> UnknownFields | None:
    kind = event.get("type")
    struct = vocabulary.EVENTS.structs.get(kind) if isinstance(kind, str) else None
    return None if struct is None else _UNKNOWN.get(struct)


def _built(
    kind: Kind, value: dict[str, Any], unknown: UnknownFields | None, repairs: list[Repair] | None
) -> Any:
    mode = Repairing()
    built = build(kind, value if unknown is None else _kept(unknown, value, mode.repairs), mode)
    if repairs is not None:
        repairs.extend(mode.repairs)
    return built


def event_of(value: Event | Mapping[str, Any]) -> Event:
    """Return an event unchanged, or the event for its JSON object, which is read as `decode_event` reads it.

    Raises TypeError for anything else, naming its type.
    """
    if type(value) in EVENT_STRUCTS:
        return value  # type: ignore[return-value]
    if isinstance(value, Mapping):
        try:
            return decode_event(encode(dict(value)))
        except NotImplementedError as error:
            raise TypeError(str(error)) from error
        except WireError:  # a number that JSON does not have, or a lone surrogate
            return event_from(dict(value))
    hint = " (decode_event reads JSON text)" if isinstance(value, bytes | bytearray | str) else ""
    raise TypeError(f"expected an event or its JSON object, got {type(value).__name__}{hint}")


def check_event(data: bytes | str) -> Event:
    """Decode one event and check it against the published schema. Extensions and unknown types are allowed.

    Raises SchemaError with the path of the first deviation, WireError when the data is not a JSON object.
    """
    try:
        return with_unknown_fields(decode_known_event(data), data)
    except REFUSED:
        value = json_object(decode_json(data))
        unknown = _unknown_of(value)
        extended = value if unknown is None else _kept(unknown, value, None)
        return build(vocabulary.EVENTS, extended, Strict())  # type: ignore[no-any-return]


def decode_item(data: bytes | str, repairs: list[Repair] | None = None) -> Item:
    """Decode one output item, repaired like an event."""
    try:
        return _decoded_with(_unknown_of_items, _items.decode, _items.decode(data), data, repairs)  # type: ignore[no-any-return]
    except REFUSED:
        return item_from(json_object(decode_json(data)), repairs)


def item_from(value: dict[str, Any], repairs: list[Repair] | None = None) -> Item:
    """Return the item for a parsed value, as `decode_item` does."""
    return _built(vocabulary.ITEMS, value, _unknown_of_items, repairs)  # type: ignore[no-any-return]


def decode_response(data: bytes | str, repairs: list[Repair] | None = None) -> Response:
    """Decode a response resource, repaired like an event."""
    try:
        response: Response = _decoded_with(
            _unknown_of_response, _response.decode, _response.decode(data), data, repairs
        )
    except REFUSED:
        response = _built(Response, json_object(decode_json(data)), _unknown_of_response, repairs)
    return response


def decode_request(data: bytes | str) -> CreateResponse:
    """Decode the body of a create request. Raises InvalidRequestError with `param`."""
    return _request(_create, CreateResponse, data)


def decode_compact_request(data: bytes | str) -> CompactRequest:
    """Decode the body of a compact request. Raises InvalidRequestError with `param`."""
    return _request(_compact, CompactRequest, data)


def decode_search_request(data: bytes | str) -> SearchRequest:
    """Decode the body of Codex's search. Raises InvalidRequestError with `param`."""
    return _request(_search, SearchRequest, data)


def decode_create_conversation(data: bytes | str) -> CreateConversation:
    """Decode the body that creates a conversation. Raises InvalidRequestError with `param`."""
    return _request(_conversation, CreateConversation, data)


def decode_update_conversation(data: bytes | str) -> UpdateConversation:
    """Decode the body that replaces a conversation's metadata. Raises InvalidRequestError with `param`."""
    return _request(_conversation_update, UpdateConversation, data)


def decode_conversation_items(data: bytes | str) -> CreateConversationItems:
    """Decode the body that adds items to a conversation. Raises InvalidRequestError with `param`."""
    return _request(_conversation_items, CreateConversationItems, data)


def decode_create_message(data: bytes | str) -> ResponseCreateMessage:
    """Decode a client's WebSocket message. Raises InvalidRequestError with `param`."""
    tag = ResponseCreateMessage.type
    if not _is_tagged(data, tag) and request_object(data).get("type") != tag:
        what = f"Expected `{tag}` - at `$.type`"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="type")
    return _request(_message, ResponseCreateMessage, data)


def _is_tagged(data: bytes | str, tag: str) -> bool:
    """Return True if the object has this type; other fields are skipped."""
    try:
        return bool(_tagged.decode(data).type == tag)
    except REFUSED:
        return False


_UNTYPED: Final = re.compile(rb'"type"\s*:\s*""')


def _check_types(value: Any, path: str = "$") -> None:
    """Raises InvalidRequestError for an item, part or tool whose type is empty, since nothing would read
    it."""
    if isinstance(value, list):
        for at, each in enumerate(value):
            _check_types(each, f"{path}[{at}]")
    elif isinstance(value, dict):
        if value.get("type") == "":
            what = f"expected the name of a type, got an empty text - at `{path}.type`"
            raise InvalidRequestError(
                InvalidRequestError.INVALID_VALUE, what, param=f"{path}.type".removeprefix("$.")
            )
        for name in _HOLD_TYPED & value.keys():
            _check_types(value[name], f"{path}.{name}")


_HOLD_TYPED: Final = frozenset({"input", "content", "output", "summary", "tools", "items"})


def _request(decoder: msgspec.json.Decoder[T], struct: type[T], data: bytes | str) -> T:
    text = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    if b'""' in text and _UNTYPED.search(text):
        _check_types(request_object(data))
    try:
        decoded = decode_exact(decoder, struct, data, None)
        if getattr(decoded, "tool_choice", None) != _UNNAMED:  # its name may be in an inner object
            return decoded
    except REFUSED:
        pass
    value, paths = with_flat_tools(request_object(data))
    whole = completed(struct, value)
    if whole is not None:
        value = whole
        with suppress(*REFUSED):
            return decode_exact(decoder, struct, _encoder.encode(whole), whole)
    try:
        extended, beyond = unknown_of(struct).kept(value)
        request: T = build_struct(struct, extended, Strict())
    except SchemaError as error:
        message, param = path_as_sent(error.message, paths), error.param and path_as_sent(error.param, paths)
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, message, param=param) from error
    return with_beyond(request, beyond)


def request_object(data: bytes | str) -> dict[str, Any]:
    """Return the JSON object of a request. Raises InvalidRequestError (`invalid_json`)."""
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
    """Return a value that is an object. Raises WireError for any other."""
    if isinstance(value, dict):
        return value
    raise WireError(WireError.INVALID_SHAPE, f"expected a JSON object, got {type(value).__name__}")


def _prefix(kind: str) -> bytes:
    # a line end in a foreign event's type could forge frames
    return b"event: %b\ndata: " % " ".join(kind.splitlines()).encode("utf-8", "replace")


_PREFIXES = {struct: _prefix(tag) for tag, struct in vocabulary.EVENTS.structs.items()}


def encode_sse(events: Iterable[Event]) -> bytes:
    """Encode events as SSE frames with `event:` equal to `type` and LF line ends (specification,
    "Streaming")."""
    each = events if type(events) is list else list(events)
    try:
        if len(each) == 1:  # a single token: three pieces and no buffer
            kind = type(each[0])
            data = b"".join((_PREFIXES[kind], _encoder.encode(each[0]), b"\n\n"))
            if kind not in _UNKNOWN or _MARK not in data:
                return data
        buffer, encode_into = bytearray(), _encoder.encode_into
        for event in each:
            buffer += _PREFIXES[type(event)]
            encode_into(event, buffer, -1)
            buffer += b"\n\n"
        if _MARK not in buffer:
            return bytes(buffer)
    except (KeyError, UnicodeEncodeError):  # an unknown type, or a lone surrogate
        pass
    return b"".join([b"%b%b\n\n" % (_prefix(event.type), encode(event)) for event in each])


def with_whole_characters(value: V) -> V:
    """Return the value, or a copy of it with U+FFFD for each lone surrogate: strict decoders refuse those,
    even escaped. Raises WireError for a value that is nested too deeply to be encoded."""
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


# Other names of published events: RFC 00022 and older servers use `reasoning_summary` without `_text`;
# proxies of Codex use `response.done` and `response.error`.

CANONICAL: dict[str, str] = {
    "response.reasoning_summary.delta": "response.reasoning_summary_text.delta",
    "response.reasoning_summary.done": "response.reasoning_summary_text.done",
    "response.done": "response.completed",
    "response.error": "error",
}


def normalized(event: UnknownEvent) -> Event | None:
    """Return the event under its published name; None if its type is unknown."""
    name = CANONICAL.get(event.type)
    if name is None:
        return None
    return event_from({**{key: _text(value) for key, value in event.raw.items()}, "type": name})


def _text(value: Any) -> Any:
    """Return the text of an older summary event, which is in an object: `{"text": "…"}`."""
    return (
        value["text"]
        if isinstance(value, dict) and value.keys() <= {"type", "text"} and "text" in value
        else value
    )
