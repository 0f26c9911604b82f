"""Captures are read in steps: whatever is in one, little of it is read between two things that come out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import pytest

from openresponses_server.limits.requests import check_json
from openresponses_server.observation.recordings import captures as reader
from openresponses_server.observation.recordings.captures import UnreadableCapture, read_capture
from openresponses_server.observation.recordings.observing import observed, observed_file
from openresponses_server.observation.recordings.records import (
    Chunk,
    RecordedRequest,
    RecordedStatus,
    RecordingStart,
    encode_record,
)
from openresponses_server.settings import Limits

_CALL = b'{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}'
CHAT = b'{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{%b}}]}'
MOST = 4096
MANY = 3 * MOST


def counted(lines: list[bytes], read: list[int]) -> Iterator[bytes]:
    for line in lines:
        read[0] += 1
        yield line


@pytest.mark.untraced
@pytest.mark.parametrize(
    "lines",
    [
        [b":\n", b"\n"],
        [b"\n"],
        [b"\r\n"],
        [b": a\r\n", b"\r\n"],
        [b"event: a\n", b"\n"],
        [b"id: 1\n", b"\n"],
        [b"data: [DONE]\n", b"\n"],
        [b"HTTP/1.1 200 OK\n", b"\n"],
        [b"data:\n"],
        [b"retry: 1\n"],
    ],
)
@pytest.mark.parametrize("after", [b"", b"data: " + CHAT % b'"content":"a"' + b"\n", b"{}\n"])
def test_lines_without_payloads_are_pauses(lines: list[bytes], after: bytes) -> None:
    read = [0]
    hostile = [*filter(None, [after, after and b"\n"]), *lines * (MANY // len(lines))]
    seen, steps = 0, 0
    try:
        for _ in observed(counted(hostile, read)):
            assert read[0] - seen <= MOST
            seen, steps = read[0], steps + 1
    except UnreadableCapture:
        assert read[0] - seen <= MOST
    assert steps >= MANY // MOST or read[0] < MANY


def test_records_that_complete_no_line_are_pauses() -> None:
    head = [RecordingStart(1), RecordedRequest(1, 0, dialect="chat"), RecordedStatus(1, 0, 200)]
    data = b"".join(map(encode_record, [*head, *[Chunk(1, 0, text="")] * MANY]))
    pauses = sum(not line for line in _until_unreadable(observed_file(data)))
    assert pauses >= 2 * (MANY // MOST)  # they are read twice


def _until_unreadable(lines: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from lines
    except UnreadableCapture:
        return


@pytest.mark.parametrize("said", [b"[", b"}", b"1", b'"', b"", b"[],"])
def test_a_frame_of_many_lines_is_decoded_once(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = [0]
    decode = reader.decode_json

    def counting(data: bytes) -> Any:
        decoded[0] += len(data)
        return decode(data)

    monkeypatch.setattr(reader, "decode_json", counting)
    capture = [b"data: " + CHAT % b"" + b"\n", b"\n", *[b"data: " + said + b"\n"] * 5000]
    with pytest.raises(UnreadableCapture):
        list(read_capture(capture))
    assert decoded[0] <= 3 * len(b"".join(capture))


def test_frames_over_several_lines_and_without_blank_lines_are_read() -> None:
    several = [b"data:\n", b'data: {"a": "}{",\n', b'data: "b\\"[": [\n', b"data: 1]}\n"]
    one = [b'data: {"a": 1}\n']
    for lines in (
        [*several, *one, *several, *one, *one],
        [*several, b"\n", *several, b"\n", *one, *one, *one],
    ):
        values = [payload.value for payload in read_capture(lines)]
        assert [value for value in values if value != {"a": 1}] == [{"a": "}{", 'b"[': [1]}] * 2
        assert len(values) == 5


def test_a_payload_of_too_many_values_is_refused_before_it_is_decoded() -> None:
    check = partial(check_json, limits=Limits(json_values=50_000))
    calls = b'"tool_calls":[' + b",".join([_CALL] * 20_000) + b"]"
    few = b"data: " + CHAT % b'"content":"a"' + b"\n\n"
    assert list(islice(observed_file(few, check=check), 3))
    with pytest.raises(UnreadableCapture, match="line 1: The JSON has more values than the limit of 50000"):
        list(observed_file(b"data: " + CHAT % calls + b"\n\n", check=check))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_an_array_is_its_elements_each_at_its_line(end: bytes) -> None:
    text = b'[{\n "a": "]["\n}\n,\n{"a": 1}, {"a": [\n\n2]}\n]\n{"a": 3}\n[DONE]\n'
    payloads = list(read_capture([line + end for line in text.splitlines()]))
    assert [each.value for each in payloads] == [{"a": "]["}, {"a": 1}, {"a": [2]}, {"a": 3}, None]
    assert [each.line for each in payloads] == [1, 5, 5, 9, 10]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (b'{"a": 1}\n[{"a": 1},\n2]\n', "line 3: expected a JSON object, got int"),
        (b'{"a": 1}\n[{"a": 1},\n{"a"\n', "line 2: Input data was truncated"),
        (b'{"a": 1}\n{\n"a": [\n', "line 2: Input data was truncated"),
        (b'{"a": 1}\n[}\n', "line 2: JSON is "),
    ],
)
def test_what_is_wrong_with_json_over_several_lines_is_said(text: bytes, refused: str) -> None:
    read = read_capture(text.splitlines(keepends=True))
    assert next(read).value == {"a": 1}
    with pytest.raises(UnreadableCapture) as raised:
        list(read)
    assert str(raised.value).startswith(refused)


def test_the_values_of_an_array_are_counted_before_it_is_decoded() -> None:
    check = partial(check_json, limits=Limits(json_values=50_000))
    array = b"[" + b",\n".join([_CALL] * 20_000) + b"]"
    with pytest.raises(UnreadableCapture, match="line 1: The JSON has more values than the limit of 50000"):
        list(observed_file(array, check=check))
