"""Frames from bytes and back, against a reference decoder that reads whole streams line by line."""

import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.errors import LocalError, WireError
from openresponses_bridge.sse import (
    DONE,
    Frame,
    SSEDecoder,
    encode_comment,
    encode_data,
    encode_frame,
    is_done,
)


def reference_frames(stream: bytes) -> tuple[list[Frame], str, int | None]:
    """The standard's algorithm over a whole stream: frames, last event id, reconnection time. A block without
    data that begins with a brace is data, and one whose lines of data are objects is a frame for each."""
    frames: list[Frame] = []
    last_id, last_retry = "", None
    event, id_, retry = "", None, None
    lines: list[bytes] = []
    block: list[bytes] = []
    for line in [*re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf")), b""]:
        if line == b"":
            if not lines and block and block[0][:1] == b"{":
                lines = block
            if all(line == b"[DONE]" or re.fullmatch(rb"\{\s*\".*\}\s*", line) for line in lines):
                frames += [Frame(event, line, id_, retry) for line in lines]
            elif lines:
                frames.append(Frame(event, b"\n".join(lines), id_, retry))
            last_id = last_id if id_ is None else id_
            last_retry = last_retry if retry is None else retry
            event, id_, retry, lines, block = "", None, None, [], []
            continue
        block.append(line)
        if not line.startswith(b":"):
            match = re.fullmatch(rb"([^:]*)(?:: ?(.*))?", line, re.DOTALL)
            assert match is not None
            name, value = match[1], match[2] or b""
            if name == b"data":
                lines.append(value)
            elif name == b"event":
                event = value.decode("utf-8", "replace")
            elif name == b"id" and b"\0" not in value:
                id_ = value.decode("utf-8", "replace")
            elif name == b"retry" and re.fullmatch(rb"[0-9]{1,18}", value):
                retry = int(value)
    return frames, last_id, last_retry


def decode(chunks: list[bytes]) -> tuple[list[Frame], str, int | None]:
    decoder = SSEDecoder()
    frames = [frame for chunk in chunks for frame in decoder.feed(chunk)]
    frames += decoder.close()
    return frames, decoder.last_event_id, decoder.retry


def cut(stream: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(stream) + 1) for position in at), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


LINE = st.one_of(
    st.sampled_from(
        [
            b"", b"", b"", b"data", b"data:", b"data: ", b"data:  x", b'data: {"a": 1}', b"data:tight",
            b": comment", b":", b"event: delta", b"event:", b"event", b"id: 7", b"id", b"id: a\0b", b"id:",
            b"retry: 1500", b"retry: +5", b"retry: " + b"9" * 40, b"retry:", b"other: x", b" data: x",
            b'{"error":', b'  "data": 1}', b"{", b"}",
            b"data : x", b"\xef\xbb\xbfdata: late", "data: é🙂".encode(), b"event: \xff", b"id: \xff",
        ]
    ),
    st.text("dataev:i \0\u00e9", max_size=12).map(str.encode),
)  # fmt: skip
LINE_END = st.sampled_from([b"\n", b"\n", b"\n\n", b"\r\n", b"\r\n\r\n", b"\r", b"\r\r"])
STREAM = st.builds(
    lambda bom, pairs, tail: bom + b"".join(line + end for line, end in pairs) + tail,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\xef\xbb"]),
    st.lists(st.tuples(LINE, LINE_END), max_size=20),
    LINE,
)


@given(stream=STREAM, at=st.lists(st.integers(0, 10_000), max_size=12))
def test_any_stream_cut_anywhere_equals_the_reference(stream: bytes, at: list[int]) -> None:
    expected = reference_frames(stream)
    assert decode([stream]) == expected
    assert decode(cut(stream, at)) == expected
    assert decode([stream[i : i + 1] for i in range(len(stream))]) == expected


@given(
    stream=st.lists(st.sampled_from(b"\r\n:da t\xef\xbb\xbf"), max_size=40).map(bytes), at=st.integers(0, 40)
)
def test_byte_soup_equals_the_reference(stream: bytes, at: int) -> None:
    expected = reference_frames(stream)
    assert decode([stream]) == expected
    assert decode(cut(stream, [at])) == expected


OBJECTS = (b'{"a":1}', b'{"b":2}', b"[DONE]")
FRAME_CASES: list[tuple[str, bytes, list[Frame]]] = [
    ("one", b"data: a\n\n", [Frame("", b"a")]),
    ("named", b"event: x\ndata: a\n\n", [Frame("x", b"a")]),
    ("name after data", b"data: a\nevent: x\n\n", [Frame("x", b"a")]),
    ("two in a chunk", b"data: a\n\ndata: b\n\n", [Frame("", b"a"), Frame("", b"b")]),
    ("crlf", b"event: x\r\ndata: a\r\n\r\n", [Frame("x", b"a")]),
    ("lone cr", b"event: x\rdata: a\r\r", [Frame("x", b"a")]),
    ("byte order mark", b"\xef\xbb\xbfdata: a\n\n", [Frame("", b"a")]),
    ("a second mark is text", b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
    ("comment between", b": hi\n\ndata: a\n: there\ndata: b\n\n", [Frame("", b"a\nb")]),
    ("no space after the colon", b"event:x\ndata:a\n\n", [Frame("x", b"a")]),
    ("one space only is dropped", b"data:  a\n\n", [Frame("", b" a")]),
    ("field without colon is empty data", b"data\n\n", [Frame("", b"")]),
    ("two empty data lines", b"data\ndata\n\n", [Frame("", b"\n")]),
    ("no data, no frame", b"event: x\nid: 1\n\n", []),
    ("the name is not kept for the next", b"event: x\n\ndata: a\n\n", [Frame("", b"a")]),
    ("id and retry", b"id: 4\nretry: 20\ndata: a\n\n", [Frame("", b"a", "4", 20)]),
    ("id with NUL", b"id: 4\0\ndata: a\n\n", [Frame("", b"a")]),
    ("retry with a sign", b"retry: -2\ndata: a\n\n", [Frame("", b"a")]),
    ("retry too long for a clock", b"retry: " + b"1" * 5000 + b"\ndata: a\n\n", [Frame("", b"a")]),
    ("blank lines before", b"\n\n\ndata: a\n\n", [Frame("", b"a")]),
    ("unterminated line", b"data: a", [Frame("", b"a")]),
    ("unterminated frame", b"event: x\ndata: a\n", [Frame("x", b"a")]),
    ("name that is not UTF-8", b"event: \xff\ndata: \xff\n\n", [Frame("\ufffd", b"\xff")]),
    ("colons in the value", b"data: a: b\n\n", [Frame("", b"a: b")]),
    ("objects", b'data: {"a":1}\ndata: {"b":2}\ndata: [DONE]\n', [*map(Frame, [""] * 3, OBJECTS)]),
    ("an object in two lines", b'data: {"a":\ndata: 1}\n\n', [Frame("", b'{"a":\n1}')]),
    ("empty", b"", []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("stream", "expected"), [case[1:] for case in FRAME_CASES], ids=[c[0] for c in FRAME_CASES]
)
def test_frames_whole_by_byte_and_in_two(stream: bytes, expected: list[Frame]) -> None:
    assert decode([stream])[0] == expected
    assert decode([stream[i : i + 1] for i in range(len(stream))])[0] == expected
    for at in range(len(stream) + 1) if len(stream) < 100 else (1, 50, 90):
        assert decode([stream[:at], stream[at:]])[0] == expected


def test_a_frame_is_delivered_with_the_byte_that_ends_it() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\ndata: b") == [Frame("", b"a")]
    assert decoder.feed(b"\r") == []
    assert decoder.feed(b"\n\r") == [Frame("", b"b")]
    assert decoder.feed(b"\ndata: c\n\n") == [Frame("", b"c")]
    assert decoder.close() == []


def test_an_empty_line_that_is_cut_in_two_holds_back_no_frame() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"\n") == []
    assert [frame.data for frame in decoder.feed(b"\ndata: x\n\n")] == [b"x"]


def test_the_name_of_a_frame_without_one_is_message() -> None:
    assert Frame("", b"").name == "message"
    assert Frame("ping", b"").name == "ping"


def test_last_event_id_outlives_frames_and_streams_and_is_set_without_data() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"id: 1\n\ndata: a\n\n") == [Frame("", b"a")]
    assert decoder.last_event_id == "1"
    decoder.feed(b"id: 2")
    assert decoder.last_event_id == "1"
    assert decoder.close() == []
    assert decoder.last_event_id == "2"
    assert decoder.feed(b"\xef\xbb\xbfid\nretry: 9\ndata: b\n\n") == [Frame("", b"b", "", 9)]
    assert (decoder.last_event_id, decoder.retry) == ("", 9)


LIMIT = 10
LIMIT_CASES = [
    ("just fits", b"data: abcd\n\n", [Frame("", b"abcd")], False),
    ("just fits, unterminated", b"data: abcd", [Frame("", b"abcd")], False),
    ("just fits, line ended", b"data: abcd\n", [Frame("", b"abcd")], False),
    ("just fits, CRLF", b"data: abcd\r\n\r\n", [Frame("", b"abcd")], False),
    ("many that fit", b"data: a\n\n" * 9, [Frame("", b"a")] * 9, False),
    ("one over", b"data: abcde\n\n", [], True),
    ("one over, unterminated", b"data: abcde", [], True),
    ("one over, then one that fits", b"data: abcde\n\ndata: a\n\n", [], True),
    ("one over that ends the chunk with a line end", b"data: abcde\n\n\n", [], True),
    ("over by a comment", b": 345678901\n\n", [], True),
    ("after one that fits", b"data: a\n\ndata: abcdefg\n\ndata: b\n\n", [Frame("", b"a")], True),
    ("tail after one that fits", b"data: a\n\ndata: abcdefg", [Frame("", b"a")], True),
]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("stream", "expected", "refused"), [case[1:] for case in LIMIT_CASES], ids=[c[0] for c in LIMIT_CASES]
)
def test_the_size_limit_is_exact_for_any_cut(
    stream: bytes, expected: list[Frame], refused: bool, size: int
) -> None:
    decoder = SSEDecoder(max_frame_bytes=LIMIT)
    frames: list[Frame] = []

    def run() -> None:
        for start in range(0, len(stream), size):
            frames.extend(decoder.feed(stream[start : start + size]))
        frames.extend(decoder.close())

    if not refused:
        run()
    else:
        with pytest.raises(WireError, match="limit of 10 bytes") as caught:
            run()
        assert caught.value.code == "bridge.sse.frame_too_large"
        assert caught.value.context == {"limit": LIMIT}
        with pytest.raises(WireError):
            decoder.feed(b"data: a\n\n")
        with pytest.raises(WireError):
            decoder.close()
    assert frames == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: encode_frame("x", b"{}"), b"event: x\ndata: {}\n\n"),
        (lambda: encode_frame(b"x", b""), b"event: x\ndata: \n\n"),
        (lambda: encode_frame("x", b"a\nb\r\nc\rd"), b"event: x\ndata: a\ndata: b\ndata: c\ndata: d\n\n"),
        (lambda: encode_data(b"{}"), b"data: {}\n\n"),
        (lambda: encode_data(b"a\n"), b"data: a\ndata: \n\n"),
        (lambda: encode_comment("keep-alive"), b": keep-alive\n\n"),
        (lambda: encode_comment("a\nb"), b": a\n: b\n\n"),
        (lambda: DONE, b"data: [DONE]\n\n"),
    ],
)
def test_encoded_bytes(call: Callable[[], bytes], expected: bytes) -> None:
    assert call() == expected


@pytest.mark.parametrize("name", ["a\nb", "a\r", b"a\nid: 1"])
def test_a_name_with_a_line_end_is_refused(name: str | bytes) -> None:
    with pytest.raises(LocalError, match="line end") as caught:
        encode_frame(name, b"")
    assert caught.value.code == "bridge.sse.invalid_event_name"


@given(st.lists(st.tuples(st.text("abc.:_ é", max_size=6).map(str.strip), st.binary(max_size=20))))
def test_what_is_encoded_decodes_to_itself(frames: list[tuple[str, bytes]]) -> None:
    stream = b"".join(
        encode_comment("x\ny") + encode_frame(name, data) + encode_data(data) for name, data in frames
    )
    expected: list[Frame] = []
    for name, data in frames:
        text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        expected += [Frame(name, text), Frame("", text)]
    assert decode([stream])[0] == expected


@pytest.mark.parametrize(
    ("data", "done"), [(b"[DONE]", True), (b" [DONE] ", True), (b"DONE", False), (b"{}", False)]
)
def test_done_is_recognised(data: bytes, done: bool) -> None:
    assert is_done(Frame("", data)) is done


@pytest.mark.untraced
def test_recorded_streams_decode_like_the_reference(shared: Path) -> None:
    paths = sorted((shared / "fixtures").rglob("*.sse"))
    assert paths
    for path in paths:
        stream = path.read_bytes()
        expected = reference_frames(stream)
        assert decode([stream]) == expected, path.name
        assert decode([stream[i : i + 7] for i in range(0, len(stream), 7)]) == expected, path.name


@pytest.mark.bench
@pytest.mark.parametrize("size", [1, 1024])
def test_cost_of_a_chunk_does_not_grow_with_the_frame_it_continues(size: int) -> None:
    chunk = b"x" * size

    def seconds(before: int) -> float:
        decoder = SSEDecoder()
        decoder.feed(b"data: " + b"x" * before)
        start = time.process_time()
        for _ in range(1_000):
            decoder.feed(chunk)
        spent = time.process_time() - start
        (frame,) = decoder.feed(b"\n\n")
        assert len(frame.data) == before + 1_000 * size
        return spent

    # Reading or copying 8 MB again for each chunk would cost some hundred times as much. What a
    # buffer costs that moves as it grows is in the room above 1.
    assert min(seconds(8_000_000) for _ in range(3)) < 10 * min(seconds(1_000) for _ in range(3)) + 0.01
