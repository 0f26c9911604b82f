"""Invalid bytes, and frames: each has one outcome."""

import json
from collections.abc import Callable
from sys import float_info, maxsize
from typing import Any

import pytest

from openresponses_bridge.errors import InvalidRequestError, WireError
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.codec import (
    check_event,
    decode_compact_request,
    decode_create_message,
    decode_event,
    decode_frame,
    decode_item,
    decode_json,
    decode_request,
    decode_response,
    encode,
    encode_sse,
    event_from,
    item_from,
)
from openresponses_bridge.protocol.events import OutputTextDelta
from openresponses_bridge.protocol.lenient import Repair, SchemaError
from openresponses_bridge.protocol.unknown import UnknownEvent, UnknownItem
from openresponses_bridge.sse import SSEDecoder

DELTA = {
    "type": "response.output_text.delta", "sequence_number": 4, "item_id": "m", "output_index": 0,
    "content_index": 0, "delta": "a",
}  # fmt: skip
DEEP = 100_000
HIGH, LOW = "\ud83d", "\ude00"

READERS: list[Callable[[Any], Any]] = [decode_json, decode_event, check_event, decode_item, decode_response]
REQUESTS: list[Callable[[Any], Any]] = [decode_request, decode_compact_request, decode_create_message]


def name_of(function: Callable[..., Any]) -> str:
    return function.__name__


# ── what is not JSON ─────────────────────────────────────────────────────────────────────────────────
NOT_JSON: list[tuple[str, bytes | str, str]] = [
    ("empty", b"", "truncated"),
    ("blank", b"  ", "truncated"),
    ("text", b"hello", "malformed"),
    ("done marker", b"[DONE]", "malformed"),
    ("cut", b'{"type": "resp', "truncated"),
    ("trailing", b"{} {}", "malformed"),
    ("NaN", b'{"a": NaN}', "malformed"),
    ("Infinity", b'{"a": Infinity}', "malformed"),
    ("minus Infinity", b'{"a": -Infinity}', "malformed"),
    ("NaN beside a surrogate", b'{"a": NaN, "b": "\\ud83d"}', "malformed"),
    ("Infinity beside a surrogate", b'{"b": "\\ud83d", "a": -Infinity}', "surrogate"),
    ("float out of range", b'{"temperature": 1e400}', "out of range"),
    ("float out of range beside a surrogate", b'{"b": "\\ud83d", "a": -1e400}', "surrogate"),
    ("invalid UTF-8", b'{"instructions": "\xff"}', "not UTF-8"),
    ("UTF-8 surrogate", b'{"instructions": "\xed\xa0\xbd"}', "not UTF-8"),
    ("UTF-16", '{"a": 1}'.encode("utf-16"), ""),
    ("deep arrays", b"[" * DEEP, "nested too deeply"),
    ("deep objects", b'{"a":' * DEEP + b"1" + b"}" * DEEP, "nested too deeply"),
    ("deep and a surrogate", b'{"b": "\\ud83d", "a": ' + b"[" * DEEP + b"]" * DEEP + b"}", ""),
    ("an integer of 5000 digits beside a surrogate", b'["\\ud83d", ' + b"9" * 5000 + b"]", ""),
    ("control character", b'{"a": "\n"}', "malformed"),
]


@pytest.mark.parametrize("read", READERS, ids=name_of)
@pytest.mark.parametrize(
    ("data", "says"), [case[1:] for case in NOT_JSON], ids=[case[0] for case in NOT_JSON]
)
def test_what_is_no_json_is_an_error_that_says_so(read: Callable[[Any], Any], data: bytes, says: str) -> None:
    with pytest.raises(WireError) as caught:
        read(data)
    assert caught.value.code == "bridge.wire.invalid_json"
    assert says in caught.value.message


@pytest.mark.parametrize("read", REQUESTS, ids=name_of)
@pytest.mark.parametrize("data", [case[1] for case in NOT_JSON], ids=[case[0] for case in NOT_JSON])
def test_a_request_that_is_no_json_is_an_invalid_request(read: Callable[[Any], Any], data: bytes) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(data)
    assert (caught.value.code, caught.value.http_status, caught.value.param) == ("invalid_json", 400, None)


@pytest.mark.parametrize("value", ["[]", "null", "5", '"text"', "true", "1.5"])
def test_what_is_no_object_is_an_error_that_says_what_it_is(value: str) -> None:
    for read in READERS[1:]:
        with pytest.raises(WireError, match="expected a JSON object") as caught:
            read(value)
        assert caught.value.code == "bridge.wire.invalid_shape"
    for read in REQUESTS:
        with pytest.raises(InvalidRequestError, match="expected a JSON object"):
            read(value)


# ── what is JSON, though odd ─────────────────────────────────────────────────────────────────────────
def test_duplicate_keys_the_last_one_counts() -> None:
    assert decode_json(b'{"a": 1, "a": 2}') == {"a": 2}
    assert decode_json(b'{"a": 1, "s": "\\ud83d", "a": 2}')["a"] == 2
    twice = json.dumps(DELTA)[:-1] + ', "delta": "b"}'
    assert decode_event(twice).delta == "b"


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**30, 10**300])
def test_integers_of_any_size_are_kept(number: int) -> None:
    assert decode_json(str(number)) == number
    event = decode_event(json.dumps(DELTA | {"sequence_number": number}))
    assert event.sequence_number == number
    assert json.loads(encode(event))["sequence_number"] == number


def test_depth_within_reason_is_kept() -> None:
    raw = b'{"type": "acme:deep", "sequence_number": 1, "a": ' + b"[" * 200 + b"]" * 200 + b"}"
    assert decode_json(encode(decode_event(raw))) == decode_json(raw)


@pytest.mark.parametrize(
    "data", [json.dumps(DELTA), json.dumps(DELTA).encode(), bytearray(json.dumps(DELTA), "utf-8")]
)
def test_text_and_bytes_are_read_alike(data: bytes | str) -> None:
    assert decode_event(data) == OutputTextDelta(4, "m", 0, 0, "a")


# ── surrogates ───────────────────────────────────────────────────────────────────────────────────────
def test_a_pair_of_surrogate_escapes_is_one_character() -> None:
    assert decode_event(json.dumps(DELTA | {"delta": "😀"})).delta == "😀"


@pytest.mark.parametrize("half", [HIGH, LOW, f"a{HIGH}", f"{LOW}b"])
def test_half_a_pair_is_kept_for_who_joins_it(half: str) -> None:
    repairs: list[Repair] = []
    event = decode_event(json.dumps(DELTA | {"delta": half}), repairs)
    assert event.delta == half
    assert repairs == [Repair("$.delta", "half a surrogate pair")]


def test_half_a_pair_leaves_as_the_escape_it_came_as() -> None:
    for raw in (DELTA | {"delta": HIGH}, {"type": "acme:x", "sequence_number": 1, "deep": [{"a": LOW}]}):
        data = encode(decode_event(json.dumps(raw)))
        assert data.isascii()
        assert json.loads(data) == raw


def test_half_a_pair_in_a_str_is_read_like_an_escape() -> None:
    assert decode_json(f'"{HIGH}"') == HIGH
    assert decode_event(json.dumps(DELTA | {"delta": HIGH}, ensure_ascii=False)).delta == HIGH
    with pytest.raises(WireError):
        decode_json(f'"{HIGH}')


def test_half_a_pair_is_a_deviation_for_who_is_strict() -> None:
    with pytest.raises(SchemaError, match="half a surrogate pair") as caught:
        check_event(json.dumps(DELTA | {"delta": HIGH}))
    assert caught.value.param == "delta"
    with pytest.raises(InvalidRequestError) as refused:
        decode_request(json.dumps({"input": [{"role": "user", "content": HIGH}]}))
    assert refused.value.param == "input[0].content"


def test_half_a_pair_where_no_text_belongs_is_dropped() -> None:
    repairs: list[Repair] = []
    event = decode_event(json.dumps(DELTA | {"sequence_number": HIGH}), repairs)
    assert event.sequence_number == -1
    assert [repair.path for repair in repairs] == ["$.sequence_number"]


# ── strict events ────────────────────────────────────────────────────────────────────────────────────
BROKEN: list[tuple[dict[str, Any], str, str]] = [
    ({}, "type", "missing"),
    ({"type": 5}, "type", "missing"),
    ({name: value for name, value in DELTA.items() if name != "delta"}, "delta", "missing"),
    (DELTA | {"delta": None}, "delta", "Expected `str`, got `null`"),
    (DELTA | {"output_index": "0"}, "output_index", "Expected `int`, got `str`"),
    (DELTA | {"output_index": 0.5}, "output_index", "Expected `int`, got `float`"),
    (DELTA | {"logprobs": {}}, "logprobs", "Expected `array`"),
    (DELTA | {"logprobs": [{"token": "a", "logprob": 0, "bytes": []}]}, "logprobs[0].top_logprobs",
     "missing"),
    (DELTA | {"logprobs": [5]}, "logprobs[0]", "Expected `object`, got `int`"),
    ({"type": "response.created", "sequence_number": 0, "response": {}}, "response.id", "missing"),
    ({"type": "response.created", "sequence_number": 0, "response": []}, "response", "Expected `object`"),
    ({"type": "response.output_item.done", "sequence_number": 0, "output_index": 0,
      "item": {"type": "message", "id": "m", "role": "assistant", "content": [], "status": "done"}},
     "item.status", "Invalid enum value 'done'"),
    ({"type": "response.output_item.done", "sequence_number": 0, "output_index": 0, "item": []},
     "item", "Expected `object | null`, got `array`"),
    ({"type": "response.output_item.done", "sequence_number": 0, "output_index": 0,
      "item": {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [
          {"type": "acme:part"}, {"type": "output_text", "text": "a", "annotations": [
              {"type": "acme:cite"}, {"type": "url_citation"}]}]}},
     "item.content[1].annotations[1].url", "missing"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "param", "says"), BROKEN, ids=[f"{i}_{case[1]}" for i, case in enumerate(BROKEN)]
)
def test_a_strict_event_names_the_first_deviation(raw: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check_event(json.dumps(raw))
    assert caught.value.param == param
    assert says in caught.value.message
    assert (caught.value.http_status, caught.value.error_type) == (400, "invalid_request_error")
    # the lenient way reads it all the same, and notes what it did there
    repairs: list[Repair] = []
    decode_event(json.dumps(raw), repairs)
    assert f"$.{param}" in [repair.path for repair in repairs]


def test_a_strict_event_may_be_an_extension_or_hold_one() -> None:
    assert isinstance(check_event('{"type": "acme:x", "sequence_number": 1}'), UnknownEvent)
    raw = {
        "type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
        "item": {"type": "acme:thing", "id": "x"},
    }  # fmt: skip
    event = check_event(json.dumps(raw))
    assert isinstance(event.item, UnknownItem)
    assert json.loads(encode(event)) == raw


def test_a_value_already_parsed_is_read_like_its_text() -> None:
    repairs: list[Repair] = []
    assert event_from(DELTA | {"delta": 5}, repairs) == OutputTextDelta(4, "m", 0, 0, "")
    assert repairs == [Repair("$.delta", "Expected `str`, got `int`")]
    assert event_from(DELTA) == OutputTextDelta(4, "m", 0, 0, "a")
    assert item_from({"type": "acme:x"}, repairs) == UnknownItem({"type": "acme:x"})


# ── frames ───────────────────────────────────────────────────────────────────────────────────────────
def test_frames_are_named_by_type_and_hold_the_json() -> None:
    events: list[Any] = [
        decode_event(json.dumps(DELTA)),
        UnknownEvent({"type": "acme:x", "sequence_number": 5, "a": "é\n"}),
    ]
    assert encode_sse(events) == (
        b"event: response.output_text.delta\ndata: " + encode(events[0]) + b"\n\n"
        b'event: acme:x\ndata: {"type":"acme:x","sequence_number":5,"a":"\xc3\xa9\\n"}\n\n'
    )
    assert encode_sse([]) == b""
    assert encode_sse(iter(events)) == encode_sse(events)


def test_events_that_leave_together_are_the_bytes_of_each() -> None:
    half = OutputTextDelta(4, "m", 0, 0, f"a{HIGH}", [])
    events: list[Any] = [decode_event(json.dumps(DELTA)), half, UnknownEvent({"type": "acme:x"}), half]
    assert encode_sse(events) == b"".join(encode_sse([event]) for event in events)
    assert b'"delta":"a\\ud83d"' in encode_sse([half])


@pytest.mark.parametrize("kind", ["a:b\ndata: forged", "a:b\r\n\r\nevent: x", "a:b\r", f"a:{HIGH}", ""])
def test_a_type_can_not_forge_frames(kind: str) -> None:
    data = encode_sse([UnknownEvent({"type": kind, "sequence_number": 1})])
    (frame,) = SSEDecoder().feed(data)
    assert decode_json(frame.data) == {"type": kind, "sequence_number": 1}
    assert "\n" not in frame.event


def test_every_published_event_has_its_frame_name_ready() -> None:
    assert {struct.type for struct in codec._PREFIXES} == {
        prefix.decode().removeprefix("event: ").partition("\n")[0] for prefix in codec._PREFIXES.values()
    }


def test_what_is_no_protocol_value_can_not_be_encoded() -> None:
    with pytest.raises(NotImplementedError, match="object"):
        encode({"a": object()})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e400", float_info.max),
        ("-1e400", -float_info.max),
        ("9" * 5000, maxsize),
        ("-" + "9" * 5000, -maxsize),
        ("1" + "0" * 390, 10**390),
        ("5", 5),
    ],
)
def test_a_number_out_of_range_is_the_largest_in_a_frame_and_an_error_elsewhere(
    text: str, value: object
) -> None:
    assert decode_frame(f'{{"a":[{text},1e400]}}') == {"a": [value, float_info.max]}
    with pytest.raises(WireError):
        decode_json(f'{{"a":[{text},1e400]}}')


@pytest.mark.parametrize(
    "text", ["", "{", "nan", "[1e400,infinity]", "[" * 100_000, b"\xff1e400", "{'a':1e400}"]
)
def test_a_frame_that_is_no_json_stays_an_error(text: str | bytes) -> None:
    with pytest.raises(WireError):
        decode_frame(text)


def test_numbers_of_a_frame_that_json_does_not_have_are_read() -> None:
    assert decode_frame(b'{"a":NaN,"b":[Infinity,-Infinity]}') == {
        "a": None,
        "b": [float_info.max, -float_info.max],
    }
