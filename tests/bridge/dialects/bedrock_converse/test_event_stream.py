"""Amazon's event stream: decoding and encoding of messages, whatever the bytes are."""

import json
import random
import struct
import tracemalloc
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.dialects.bedrock_converse import (
    EventStreamDecoder,
    Message,
    encode_event,
    encode_message,
)
from openresponses_bridge.dialects.bedrock_converse.event_stream import MAX_MESSAGE_BYTES, FramesOfMessages
from openresponses_bridge.errors import WireError
from openresponses_bridge.sse import SSEDecoder
from tests.support import converse

# the vectors of Amazon's own implementations, by their names there
VECTORS: dict[str, tuple[str, Message]] = {
    "empty_message": ("00000010 00000000 05c248eb 7d98c8ff", Message({}, b"")),
    "payload_no_headers": (
        "0000001d 00000000 fd528c5a 7b27666f6f273a27626172277d c3653936",
        Message({}, b"{'foo':'bar'}"),
    ),
    "payload_one_str_header": (
        "0000003d 00000020 07fd8396 0c636f6e74656e742d74797065 07 0010 6170706c69636174696f6e2f6a736f6e"
        "7b27666f6f273a27626172277d 8d9c08b1",
        Message({"content-type": "application/json"}, b"{'foo':'bar'}"),
    ),
    "int32_header": (
        "0000002d 00000010 41c424b8 0a6576656e742d74797065 04 0000a00c 7b27666f6f273a27626172277d 36f480a0",
        Message({}, b"{'foo':'bar'}"),
    ),
}
ONE = encode_event("contentBlockDelta", b'{"delta":{"text":"Hi"}}')
TWO = ONE + encode_event("messageStop", b'{"stopReason":"end_turn"}')


def decoded(*pieces: bytes) -> list[Message]:
    decoder = EventStreamDecoder()
    messages = [message for piece in pieces for message in decoder.feed(piece)]
    decoder.close()
    return messages


def sealed(data: bytes) -> bytes:
    """A message of these lengths, headers and payload with the right checksums."""
    lengths, rest = data[:8], data[12:-4]
    begun = lengths + struct.pack(">I", crc32(lengths)) + rest
    return begun + struct.pack(">I", crc32(begun))


@pytest.mark.parametrize("name", VECTORS)
def test_a_published_vector_is_read(name: str) -> None:
    data, message = VECTORS[name]
    assert decoded(bytes.fromhex(data.replace(" ", ""))) == [message]


def test_a_published_vector_is_written() -> None:
    data, message = VECTORS["payload_one_str_header"]
    assert encode_message(*message) == bytes.fromhex(data.replace(" ", ""))


def test_messages_are_read_however_they_are_cut() -> None:
    whole = decoded(TWO)
    assert [message.headers[":event-type"] for message in whole] == ["contentBlockDelta", "messageStop"]
    for at in range(len(TWO) + 1):
        assert decoded(TWO[:at], TWO[at:]) == whole
    assert decoded(*(TWO[at : at + 1] for at in range(len(TWO)))) == whole


@pytest.mark.parametrize("at", range(1, len(ONE)))
def test_a_stream_that_is_cut_within_a_message_is_no_whole_one(at: int) -> None:
    decoder = EventStreamDecoder()
    assert decoder.feed(ONE[:at]) == []
    with pytest.raises(WireError, match="cut within a message"):
        decoder.close()
    with pytest.raises(WireError):
        decoder.feed(b"")


@pytest.mark.parametrize("at", range(len(ONE)))
def test_a_byte_that_is_another_is_found(at: int) -> None:
    spoiled = ONE[:at] + bytes([ONE[at] ^ 0x10]) + ONE[at + 1 :]
    decoder = EventStreamDecoder()
    with pytest.raises(WireError, match="checksum"):
        decoder.feed(spoiled)


@pytest.mark.parametrize("length", [0, 1, 15, MAX_MESSAGE_BYTES + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_length_that_no_message_has_is_refused_by_its_prelude(length: int) -> None:
    lengths = struct.pack(">II", length, 0)
    prelude = lengths + struct.pack(">I", crc32(lengths))
    tracemalloc.start()
    try:
        decoder = EventStreamDecoder()
        with pytest.raises(WireError) as caught:
            decoder.feed(prelude)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    too_large = length > MAX_MESSAGE_BYTES
    assert caught.value.code == (WireError.FRAME_TOO_LARGE if too_large else WireError.INVALID_SHAPE)
    assert peak < 64 * 1024
    with pytest.raises(WireError):
        decoder.feed(ONE)


@pytest.mark.parametrize("headers", [1, 129 * 1024, 2**32 - 1])
def test_headers_that_are_longer_than_their_message_are_refused(headers: int) -> None:
    lengths = struct.pack(">II", 16 if headers == 1 else 200_000, headers)
    with pytest.raises(WireError, match="headers"):
        EventStreamDecoder().feed(lengths + struct.pack(">I", crc32(lengths)))


def test_headers_that_are_none_are_refused() -> None:
    given = encode_message({"a": "b", "c": "d"}, b"{}")
    for headers in (
        b"\x00\x07\x00\x01b\x01c\x07\x00\x01d",  # a name without a letter
        b"\x01a\x0a\x00\x01b\x01c\x07\x00\x01",  # a type that is not known
        b"\x01a\x07\x00\xffb\x01c\x07\x00\x01d",  # a value that is longer than all of them
        b"\x01a\x07\x00\x01b\x09c\x07\x00\x01d",  # a name that is
        b"\x01a\x07\x00\x01b\x01a\x07\x00\x01d",  # twice the same
        b"\x01a\x07\x00\x01\xff\x01c\x07\x00\x01d",  # not UTF-8
    ):
        data = given[:12] + headers + given[12 + len(headers) : -4] + b"\0" * 4
        with pytest.raises(WireError, match="headers"):
            EventStreamDecoder().feed(sealed(data))


def test_what_was_whole_before_an_error_is_given_first() -> None:
    decoder = EventStreamDecoder()
    assert len(decoder.feed(TWO + b"\0" * 16)) == 2
    with pytest.raises(WireError):
        decoder.feed(b"")


@given(
    st.lists(st.tuples(st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9)), st.binary())),
    st.randoms(use_true_random=False),
)
def test_what_is_written_is_read(
    messages: list[tuple[dict[str, str], bytes]], random_: random.Random
) -> None:
    data = b"".join(encode_message(headers, payload) for headers, payload in messages)
    cuts = sorted(random_.randrange(len(data) + 1) for _ in range(5))
    pieces = [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert decoded(*pieces) == [Message(*each) for each in messages]


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_raise_a_wire_error(data: bytes) -> None:
    decoder = EventStreamDecoder()
    for piece in (ONE, data, data[::-1], ONE):
        try:
            decoder.feed(piece)
        except WireError:
            return


@given(
    st.lists(st.dictionaries(st.sampled_from(["a", ":b", "content-type"]), st.text(max_size=9)), max_size=4)
)
def test_botocore_reads_what_is_written(headers: list[dict[str, str]]) -> None:
    eventstream: Any = pytest.importorskip("botocore.eventstream")
    buffer = eventstream.EventStreamBuffer()
    buffer.add_data(b"".join(encode_message(each, json.dumps(each).encode()) for each in headers))
    assert [(event.headers, json.loads(event.payload)) for event in buffer] == [
        (each, each) for each in headers
    ]


def test_messages_become_server_sent_events() -> None:
    events = [converse.start(), *converse.text(0, "Hi"), {"throttlingException": {"message": "Slow down."}}]
    data = b"".join(converse.messages(events))
    framed, decoder = FramesOfMessages(), SSEDecoder()
    frames = [frame for piece in (data[:50], data[50:]) for frame in decoder.feed(framed.feed(piece))]
    framed.close()
    assert [frame.event for frame in frames] == [
        "messageStart",
        "contentBlockDelta",
        "contentBlockStop",
        "error",
    ]
    assert json.loads(frames[1].data)["contentBlockDelta"]["delta"] == {"text": "Hi"}
    error = json.loads(frames[3].data)["error"]
    assert (error["type"], error["error"]["message"]) == ("throttlingException", "Slow down.")


def test_errors_and_exceptions_that_are_no_json_are_told_as_they_are() -> None:
    lost = {":message-type": "error", ":error-code": "InternalError", ":error-message": "Lost."}
    frames = SSEDecoder().feed(
        FramesOfMessages().feed(
            encode_message(lost, b"")
            + encode_event("modelStreamErrorException", b"<html>", message="exception")
            + encode_message({":message-type": "of-tomorrow"}, b"{}")
            + encode_event('x": 1, "y', b"{}")
        )
    )
    assert [json.loads(frame.data)["error"] for frame in frames] == [
        {"type": "InternalError", "message": "Lost."},
        {"type": "modelStreamErrorException", "error": {"message": "<html>"}},
    ]


def test_a_payload_of_several_lines_is_one_frame() -> None:
    data = encode_event("metadata", b'{\r\n"usage":\n{}}')
    (frame,) = SSEDecoder().feed(FramesOfMessages().feed(data))
    assert json.loads(frame.data) == {"metadata": {"usage": {}}}
