"""Frames that differ in only one string: the short way of reading gives what decoding them gives."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from openresponses_bridge.dialects.base import FrameString, FrameTemplate
from openresponses_bridge.dialects.base.inbound import _ENCODED, _WASTED
from openresponses_bridge.errors import BridgeError


class Delta(Struct):
    content: str


class Frame(Struct):
    delta: Delta
    end: None = None


def read(data: bytes) -> str:
    return msgspec.json.decode(data, type=Frame).delta.content


def said(text: str) -> list[Any]:
    """The text in the place of its events."""
    return [text]


def learnt(data: bytes) -> FrameTemplate | None:
    """What was learnt from a frame, if it can be."""
    template = FrameTemplate()
    template.learn(data, "", 100, FrameString(read(data), read, said))
    return template if template.learned else None


def extracted(template: FrameTemplate, data: bytes) -> str | None:
    events = template.payload.feed(data)
    return None if events is None else str(events[0])


TEXT = st.sampled_from(["", "a", "content", "end", "é", '"', "\\", "\n", "😀", '"a"', '"content":"a"'])
JSON = st.recursive(TEXT | st.none() | st.integers(), lambda inner: st.dictionaries(TEXT, inner, max_size=3))
WRITTEN: list[Callable[[Any], bytes]] = [
    msgspec.json.encode,
    lambda value: json.dumps(value).encode(),
    lambda value: json.dumps(value, indent=1, ensure_ascii=False).encode(),
]


def frame(text: str, before: dict[str, Any], beside: dict[str, Any], write: Callable[[Any], bytes]) -> bytes:
    before = {name: value for name, value in before.items() if name not in ("delta", "end")}
    return write(before | {"delta": {"role": "a", **beside, "content": text}, "end": None})


@given(TEXT, TEXT, st.dictionaries(TEXT, JSON), st.dictionaries(TEXT, JSON), st.sampled_from(WRITTEN))
def test_any_other_string_is_read_as_it_would_be(
    one: str, other: str, before: dict[str, Any], beside: dict[str, Any], write: Callable[[Any], bytes]
) -> None:
    alike = learnt(frame(one, before, beside, write))
    if alike is not None and other:
        assert extracted(alike, frame(other, before, beside, write)) == other


PIECE = [b'"a"', b'"b"', b'"content":', b'"content":"a"', b'"delta":', b'{"delta":{"content":"a"}}', _ENCODED]
MARKS = [b"{", b"}", b",", b":", b"\\", b'"', b" ", b"[", b"]", b"null", b'"end":', b'"\\ud83d"', b"\xff"]
PIECES = st.lists(st.sampled_from([*PIECE, *MARKS]), max_size=8).map(b"".join)


@given(PIECES, PIECES, PIECES)
def test_nothing_is_read_that_is_not_there(head: bytes, tail: bytes, string: bytes) -> None:
    """Whatever a frame is made of."""
    for data in (b'{"delta":{"content":"a"' + tail, b'{"delta":{' + head + b'"content":"a"}' + tail):
        try:
            alike = learnt(data)
        except (msgspec.MsgspecError, UnicodeError):
            continue
        for place in (b'"a"', b'"content"'):
            other = data.replace(place, string, 1)
            result = None if alike is None else extracted(alike, other)
            if result is not None:
                assert result == read(other)


@pytest.mark.parametrize(
    "data",
    [
        b'{"delta":{"content":"a"},"end":"x"}',
        b'{"delta":{"content":"a"}',
        b'{"delta":{"content":"\\ud83d"}}',
        b'{"delta":{"content":"\xff"}}',
        b'{"delta":{"content":1}}',
        b'{"delta":{"content":"a","content":"b"}}',
        b'{"delta":{"content":}}',
        b'{"delta":{"refusal":"a"}}',
        b'{"delta":{"content":"a"}]',
        b'{"delta":{"content":"}}',
        b"",
    ],
)
def test_other_frames_are_not_alike(data: bytes) -> None:
    alike = learnt(b'{"delta":{"content":"a"}}')
    assert alike is not None
    assert extracted(alike, data) is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"x":"a","delta":{"content":"a"}}',
        b'{"delta":{"content":"x","content":"a"},"a":"a"}'.replace(b'"x"', b'"a"'),
        b'{"delta":{"content":"\\u0061"}}',
        b'{"x":%b,"delta":{"content":%b}}' % (_ENCODED, _ENCODED),
    ],
    ids=["another one first", "twice", "written in another way", "what it is exchanged for"],
)
def test_a_string_that_can_not_be_told_from_others_is_not_learnt(data: bytes) -> None:
    assert learnt(data) is None


def test_frames_that_are_never_alike_are_learnt_from_a_few_times_only() -> None:
    alike, tries = FrameTemplate(), 0
    for number in range(1000):
        data = b'{"number":%d,"delta":{"content":"a"}}' % number
        if alike.enabled:
            alike.learn(data, "", number, FrameString("a", read, said))
            tries += 1
    assert tries == _WASTED


def test_frames_that_are_alike_for_some_time_are_learnt_from_each_time() -> None:
    alike = FrameTemplate()
    for number in range(0, 10_000, 50):
        data = b'{"number":%d,"delta":{"content":"a"}}' % number
        alike.learn(data, "", number, FrameString("a", read, said))
        assert alike.learned
    assert alike.enabled


def test_what_matches_is_counted_and_what_does_not_is_left_to_others() -> None:
    template = FrameTemplate()
    assert template.payload.feed(b'{"delta":{"content":"a"}}') is None
    answers = iter([["x"], None, BridgeError("x", "refused"), ["y"]])

    def apply(text: str) -> list[Any] | None:
        answer = next(answers)
        if isinstance(answer, BridgeError):
            raise answer
        return answer

    template.learn(b'{"delta":{"content":"a"}}', "", 100, FrameString("a", read, apply))
    fed = [template.payload.feed(b'{"delta":{"content":"b"}}') for _ in range(3)]
    assert fed == [["x"], None, None]
    assert template.payload.feed(b'{"delta":{"content":""}}') is None
    assert template.sse.feed(b'data: {"delta":{"content":"c"}}\n\n') == ["y"]
    assert template.fed == 2
    template.reset()
    assert (template.fed, template.learned) == (2, False)
    assert template.sse.feed(b'data: {"delta":{"content":"c"}}\n\n') is None
