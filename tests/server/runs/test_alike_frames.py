"""Frames that differ in only one string give what decoding each of them gives, with any frames between them
and any cuts of the stream."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.dialects import anthropic_messages, chat_completions
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.sse import SSEDecoder
from openresponses_server.runs.exchange import Translation
from tests.support.cases import case
from tests.support.machines import machine


class Sse(NamedTuple):
    """A frame as it is sent: `payload` is bytes that need not be JSON, or a value."""

    payload: Any
    event: str = ""

    def sent(self) -> bytes:
        data = self.payload if isinstance(self.payload, bytes) else encoded(self.payload)
        return (f"event: {self.event}\n".encode() if self.event else b"") + b"data: " + data + b"\n\n"


class Spoken(NamedTuple):
    """A dialect's streams: how its inbound is made, what may come before the alike frames, how one of these
    is made of its string, and what may come between them."""

    inbound: Callable[[Any], Any]
    openings: dict[str, list[Sse]]
    alike: dict[str, Callable[[str], Sse]]
    between: list[Sse]


def encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def chat(**fields: Any) -> Sse:
    return Sse({"id": "c", "object": "chat.completion.chunk", "model": "m"} | fields)


def chunk(finish: str | None = None, **delta: Any) -> Sse:
    return chat(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


def fragment(index: int, arguments: str, **more: Any) -> Sse:
    function = (
        {"name": more.pop("name"), "arguments": arguments} if "name" in more else {"arguments": arguments}
    )
    return chunk(tool_calls=[{"index": index, **more, "function": function}])


_CHAT: Final = Spoken(
    chat_completions.Inbound,
    {
        "text": [chunk(content="one")],
        "arguments": [fragment(0, "", id="call_a", type="function", name="f")],
        "free input": [fragment(0, "", id="call_a", type="function", name="free")],
        "a list of words": [fragment(0, "", id="call_a", type="function", name="shell")],
    },
    {
        "text": lambda text: chunk(content=text),
        "reasoning": lambda text: chunk(reasoning_content=text),
        "arguments": lambda text: fragment(0, text),
        "arguments, all repeated": lambda text: fragment(0, text, id="call_a", type="function", name="f"),
    },
    [
        chunk(),
        chunk(content=None),
        chunk(refusal="No."),
        chunk(reasoning_details=[{"type": "reasoning.text", "text": "hm"}]),
        chunk(reasoning_opaque="x"),
        fragment(0, "x", extra_content={"google": {"thought_signature": "x"}}),
        chunk(content="a", reasoning_content="b"),
        fragment(1, "{", id="call_b", type="function", name="g"),
        fragment(0, "", id="call_c", type="function", name="free"),
        chat(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
        chat(choices=[{"index": 1, "delta": {"content": "x"}}]),
        chat(error={"message": "no", "code": "x"}),
        chunk("stop"),
        Sse(b"[DONE]"),
    ],
)


def event(kind: str, **fields: Any) -> Sse:
    return Sse({"type": kind, **fields}, kind)


def block(index: int, kind: str, **fields: Any) -> Sse:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: int, kind: str, **fields: Any) -> Sse:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def tool(index: int, name: str) -> Sse:
    return block(index, "tool_use", id=f"toolu_{index}", name=name, input={})


_START: Final = event("message_start", message={"id": "msg_a", "usage": {"input_tokens": 1}})
_ANTHROPIC: Final = Spoken(
    anthropic_messages.Inbound,
    {
        "text": [_START, block(0, "text", text="")],
        "thinking": [_START, block(0, "thinking", thinking="", signature="")],
        "input": [_START, tool(0, "f")],
        "free input": [_START, tool(0, "free")],
        "a list of words": [_START, tool(0, "shell")],
        "two blocks": [_START, block(1, "text", text=""), block(0, "thinking", thinking="")],
        "a hosted block": [_START, block(0, "server_tool_use", id="s", name="web_search", input={})],
        "nothing": [],
    },
    {
        "text": lambda text: delta(0, "text_delta", text=text),
        "thinking": lambda text: delta(0, "thinking_delta", thinking=text),
        "input": lambda text: delta(0, "input_json_delta", partial_json=text),
        "no index": lambda text: event("content_block_delta", delta={"type": "text_delta", "text": text}),
    },
    [
        event("content_block_stop", index=0),
        event("content_block_stop", index=1),
        event("content_block_stop"),
        block(0, "text", text="a"),
        block(0, "thinking", thinking="a"),
        block(1, "text", text=""),
        tool(0, "g"),
        tool(1, "free"),
        delta(0, "citations_delta", citation={"type": "web_search_result_location", "url": "https://a.b"}),
        delta(0, "signature_delta", signature="x"),
        delta(1, "text_delta", text="other"),
        event("ping"),
        event("unheard_of"),
        _START,
        event("message_start", message={"id": "msg_b"}),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
        event("message_delta", delta={"stop_reason": "max_tokens"}),
        event("message_stop"),
        event("error", error={"type": "overloaded_error", "message": "no"}),
    ],
)
SPOKEN: Final = {"chat": _CHAT, "anthropic": _ANTHROPIC}


def _more(frame: Sse, place: Callable[[Any], Any], **fields: Any) -> Sse:
    payload = json.loads(json.dumps(frame.payload))
    place(payload).update(fields)
    return frame._replace(payload=payload)


def _innermost(payload: Any) -> Any:
    found = payload["choices"][0]["delta"] if "choices" in payload else payload["delta"]
    return found["tool_calls"][0]["function"] if "tool_calls" in found else found


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _reversed(value[name]) for name in reversed(value)}
    return [_reversed(each) for each in value] if isinstance(value, list) else value


def _pair(frame: Sse) -> tuple[bytes, bytes, bytes]:
    """What is around the frame's string as it is sent, and the string."""
    *_, name = (name for name, value in _innermost(frame.payload).items() if isinstance(value, str))
    before, colon, after = frame.sent().rpartition(b'"%b":' % name.encode())
    string, mark, rest = after.partition(b'"}')
    return before + colon, string + mark[:1], mark[1:] + rest


def _around(change: Callable[[bytes, bytes, bytes], bytes]) -> Callable[[Sse], bytes]:
    return lambda frame: change(*_pair(frame))


# frames like one of the alike frames, in every way in which they may be taken for one
LOOKALIKES: Final[dict[str, Callable[[Sse], bytes]]] = {
    "escaped": lambda frame: frame._replace(payload=json.dumps(frame.payload).encode()).sent(),
    "spaced": lambda frame: frame._replace(payload=json.dumps(frame.payload).encode() + b" ").sent(),
    "in another order": lambda frame: frame._replace(payload=_reversed(frame.payload)).sent(),
    "a field more": lambda frame: _more(frame, lambda payload: payload, more=1).sent(),
    "a field more inside": lambda frame: _more(frame, _innermost, more=None).sent(),
    "another index": lambda frame: _more(frame, lambda payload: payload, index=1).sent(),
    "an index as a string": lambda frame: _more(frame, lambda payload: payload, index="0").sent(),
    "another type": lambda frame: _more(frame, lambda payload: payload, type="content_block_stop").sent(),
    "another type inside": lambda frame: _more(frame, _innermost, type="signature_delta").sent(),
    "an event's name": lambda frame: frame._replace(event="content_block_stop").sent(),
    "an event's name that is none": lambda frame: frame._replace(event="é x").sent(),
    "no event's name": lambda frame: frame._replace(event="").sent(),
    "the name behind": lambda frame: b"data: " + encoded(frame.payload) + b"\nevent: ping\n\n",
    "an id": lambda frame: b"id: 1\n" + frame.sent(),
    "a comment": lambda frame: b": wait\n\n" + frame.sent(),
    "twice": lambda frame: frame.sent() * 2,
    "CRLF": lambda frame: frame.sent().replace(b"\n", b"\r\n"),
    "CR": lambda frame: frame.sent().replace(b"\n", b"\r"),
    "half an end": lambda frame: frame.sent()[:-1],
    "cut": lambda frame: frame.sent()[:-4] + b"\n\n",
    "a byte that is no text": _around(lambda before, string, after: before + b'"\xff"' + after),
    "half a pair": _around(lambda before, string, after: before + b'"\\ud83d"' + after),
    "the other half": _around(lambda before, string, after: before + b'"\\ude42"' + after),
    "a pair": _around(lambda before, string, after: before + b'"\\ud83d\\ude42"' + after),
    "a number": _around(lambda before, string, after: before + b"1" + after),
    "null": _around(lambda before, string, after: before + b"null" + after),
    "a list": _around(lambda before, string, after: before + b"[" + string + b"]" + after),
    "a line end before": _around(lambda before, string, after: before + b"\n" + string + after),
    "a line end behind": _around(lambda before, string, after: before + string + b"\n" + after),
    "a CR before": _around(lambda before, string, after: before + b"\r" + string + after),
    "a line end in it": _around(lambda before, string, after: before + b'"a\nb"' + after),
    "a frame's end in it": _around(lambda before, string, after: before + b'"a\n\nb"' + after),
    "white space before": _around(lambda before, string, after: before + b" \t" + string + after),
    "a string more": _around(lambda before, string, after: before + b'"a","x":' + string + after),
    "its name again": _around(
        lambda before, string, after: (
            before + b'"a",' + before.rpartition(b",")[2].rpartition(b"{")[2] + string + after
        )
    ),
    "closed before": _around(lambda before, string, after: before + string + b'}},"x":{"x":{"x":"a"' + after),
    "nothing": lambda frame: b"data: \n\n",
}

_PIECES = (
    "",
    "a",
    "b",
    " ",
    "\n",
    "{",
    '{"a":',
    '{"input":"',
    '"}',
    "1}",
    "]",
    "é",
    "\U0001f642",
    '"',
    "\\",
    "\x7f",
)
# what stands elsewhere in such a frame, or in the place of its string when one is learnt from
_NAMES = (
    "text",
    "type",
    "text_delta",
    "content",
    "arguments",
    "f",
    "call_a",
    "what stands here is exchanged",
)
TEXT: Final = st.sampled_from([*_PIECES, *_NAMES])


@st.composite
def streams(draw: st.DrawFn, spoken: Spoken) -> list[bytes]:
    """The reads of a stream."""
    frames = [frame.sent() for frame in draw(st.sampled_from(list(spoken.openings.values())))]
    make = draw(st.sampled_from(list(spoken.alike.values())))
    others = st.sampled_from([*LOOKALIKES.values(), *spoken.between])
    for _ in range(draw(st.integers(0, 4))):
        frames += [make(text).sent() for text in draw(st.lists(TEXT, min_size=1, max_size=4))]
        other = draw(others)
        frames.append(other.sent() if isinstance(other, Sse) else other(make(draw(TEXT))))
        make = draw(st.sampled_from([make, make, *spoken.alike.values()]))
    frames += [make(text).sent() for text in draw(st.lists(TEXT, max_size=3))]
    return frames


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes in reads that end at these places."""
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if begin < end]


def left(spoken: Spoken, reads: list[bytes], *, enabled: bool, most: int | None = None) -> list[object]:
    """What left after each read, the snapshot, what was noted, and whether it failed."""
    identities = ToolIdentityMap()
    identities.declare(ToolKind.CUSTOM, "free")
    identities.declare(ToolKind.SHELL, "shell")
    started = machine("openai", identities=identities)
    inbound = spoken.inbound(started)
    inbound.template.enabled = enabled
    translation = Translation(started, inbound, most=most)
    results: list[object] = []
    for data in reads:
        results.append(([encode(each) for each in translation.feed(data)], translation.is_complete))
        if translation.is_complete:
            break
    results.append([encode(each) for each in translation.end()])
    return [
        *results,
        encode(started.snapshot),
        [str(case) for case in inbound.diagnostics],
        str(translation.failure),
    ]


@pytest.mark.parametrize("name", SPOKEN)
@given(data=st.data())
def test_any_stream_is_read_as_each_of_its_frames_is(name: str, data: st.DataObject) -> None:
    spoken = SPOKEN[name]
    reads = data.draw(streams(spoken))
    most = data.draw(st.none() | st.integers(100, 6000))
    assert left(spoken, reads, enabled=True, most=most) == left(spoken, reads, enabled=False, most=most)
    otherwise = cut(b"".join(reads), data.draw(st.lists(st.integers(0, 10_000), max_size=6)))
    assert left(spoken, otherwise, enabled=True) == left(spoken, otherwise, enabled=False)


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, spoken in SPOKEN.items() for kind in spoken.alike]
)
def test_a_frame_that_looks_like_the_last_is_read_as_it_is(name: str, kind: str) -> None:
    spoken = SPOKEN[name]
    make = spoken.alike[kind]
    alike = [make(text).sent() for text in ("one", "two", "three")]
    for (other, look), (begun, opening) in product(
        [*LOOKALIKES.items(), ("none", Sse.sent)], spoken.openings.items()
    ):
        reads = [*(frame.sent() for frame in opening), *alike, look(make("four")), *alike]
        for each in (reads, [b"".join(reads)]):
            with case(other, begun, len(each)):
                assert left(spoken, each, enabled=True) == left(spoken, each, enabled=False)


@pytest.mark.parametrize(
    ("name", "opening", "kind"),
    [
        ("chat", "text", "text"),
        ("chat", "arguments", "arguments"),
        ("chat", "arguments", "arguments, all repeated"),
        ("anthropic", "text", "text"),
        ("anthropic", "thinking", "thinking"),
        ("anthropic", "input", "input"),
    ],
)
def test_frames_that_differ_in_a_string_alone_are_not_decoded(
    name: str, opening: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in a read of their own nor among others. Without this the quick way could die out unseen: what
    it gives is the same."""
    spoken, started = SPOKEN[name], machine()
    inbound = spoken.inbound(started)
    translation = Translation(started, inbound)
    make = spoken.alike[kind]
    for frame in [*spoken.openings[opening], make("a"), make("b")]:
        translation.feed(frame.sent())
    before = inbound.template.fed
    events = translation.feed(make("c").sent() + make("d").sent())
    monkeypatch.setattr(SSEDecoder, "feed", None)
    for text in ("e", "é", '"\\', "{"):
        events += translation.feed(make(text).sent())
    assert [each.delta for each in events] == ["c", "d", "e", "é", '"\\', "{"]  # type: ignore[union-attr]
    assert inbound.template.fed - before == len(events)


@pytest.mark.parametrize(("name", "kind"), [("chat", "arguments"), ("anthropic", "input")])
def test_s8_alike_frames_that_give_no_event_count_as_more_than_their_bytes(name: str, kind: str) -> None:
    """What comes behind the input of a free tool is held back."""
    spoken = SPOKEN[name]
    texts = ['{"input":"', "a", "b", *['"}'] * 200]
    reads = [frame.sent() for frame in [*spoken.openings["free input"], *map(spoken.alike[kind], texts)]]
    quick, slow = (left(spoken, reads, enabled=enabled, most=20_000) for enabled in (True, False))
    assert quick == slow
    assert len(quick) < len(reads), "it never came to an end"
