"""A chunk gives the same events whether it is decoded strictly or leniently, whatever chunks surround it."""

import json
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.dialects.chat_completions import Inbound
from openresponses_bridge.dialects.chat_completions.options import DEFAULT_OPTIONS, ChatOptions
from openresponses_bridge.dialects.chat_completions.types import ChatChoice, ChatDelta, ChatOutput
from openresponses_bridge.dialects.chat_completions.upstream import inbound as inbounds
from openresponses_bridge.dialects.chat_completions.upstream.decoding import (
    StrictChoice,
    StrictChunk,
    StrictDelta,
)
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import Event
from tests.support.chat import DONE, calls, chunk, frame, new_machine, part, run
from tests.support.shared import shared_files


def refuse(_data: bytes) -> Any:
    raise msgspec.ValidationError


class Lenient(Inbound):
    """Decodes nothing strictly."""

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        with patch.object(inbounds, "decode_strict", refuse):
            return super().feed(data, event)


class FirstChoice(Inbound):
    """Reads the first of several choices."""

    def __init__(self, machine: ResponseStream, *, options: ChatOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(machine, options=options, choice=0)


class FirstLenient(FirstChoice, Lenient):
    """Of several choices, nothing strictly."""


def sent(
    make: type[Inbound], frames: list[bytes], think_tags: bool, wire: str
) -> tuple[list[bytes], list[str]]:
    """What left after each frame, and what was noted of it."""
    identities = ToolIdentityMap()
    identities.declare(ToolKind.CUSTOM, "free")
    identities.declare(ToolKind.SHELL, "shell")
    options = ChatOptions(think="tagged" if think_tags else "off")
    inbound = make(new_machine(tool_identities=identities, wire=wire), options=options)
    fed = [inbound.feed(data) for data in frames]
    events = [encode(event) for event in chain(*fed, inbound.close())]
    return [str(len(each)).encode() for each in fed] + events, [str(case) for case in inbound.diagnostics]


def alike(frames: list[bytes], think_tags: bool = True, wire: str = "openai") -> None:
    assert sent(Inbound, frames, think_tags, wire) == sent(Lenient, frames, think_tags, wire)
    assert sent(FirstChoice, frames, think_tags, wire) == sent(FirstLenient, frames, think_tags, wire)


TEXT = st.sampled_from(["", "Hi", " ", "<th", "ink>", "<think>", "</think>", "\n", "é", "\ud83d", "\ude42"])
PIECES = st.sampled_from(
    [
        "",
        "{",
        '{"a":1}',
        '{"input":"',
        "x",
        '"}',
        "1}",
        " ",
        "\f{",
        " [",
        "]",
        "é",
        "\\u00e9",
        "\ud83d",
        "\ude42",
    ]
)
ID = st.sampled_from(["", "a", "b"]) | st.none()
NAME = st.sampled_from(["", "f", "g", "free", "shell"]) | st.none()
MORE = st.builds(lambda arguments, index: part(arguments, index=index), PIECES, st.integers(0, 1))
REPEATING = st.builds(
    lambda arguments, index, name, id: {
        "index": index,
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    },
    PIECES | st.none(),
    st.sampled_from([0, 1, None]),
    NAME,
    ID,
)
HEAD = st.builds(
    lambda index, name: calls(part("", name=name, id=f"call_{index}{name}", index=index, type="function")),
    st.integers(0, 1),
    st.sampled_from(["f", "g", "free", "shell"]),
)
FRAGMENT = (MORE | REPEATING).map(calls)
BLANKS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(["content", "reasoning", "reasoning_content"], st.sampled_from(["", None])),
)
SAID = st.one_of(
    FRAGMENT,
    HEAD,
    st.builds(lambda blanks, more: chunk(**blanks, tool_calls=[more]), BLANKS, MORE),
    TEXT.map(lambda text: chunk(content=text)),
    TEXT.map(lambda text: chunk(content=None, reasoning_content=text)),
    st.builds(lambda text, more: chunk(content=text, tool_calls=[more]), TEXT, MORE),
    st.builds(lambda text, raw: chunk(content=text, reasoning=raw), TEXT, TEXT),
    st.lists(MORE | REPEATING, max_size=2).map(lambda both: calls(*both)),
    st.sampled_from(
        [
            chunk(),
            chunk(role="assistant", content=""),
            chunk(refusal="No."),
            chunk(function_call={"name": "f", "arguments": "{}"}),
            chunk(reasoning_opaque="x"),
            chunk(content=7),
            chunk(tool_calls=[{"index": "0", "function": {"arguments": "x"}}]),
            chunk(tool_calls=[{"index": 0, "function": {"arguments": {"a": 1}}}]),
            chunk(tool_calls=[{"index": 0, "type": "custom", "custom": {"name": "c", "input": "x"}}]),
            frame(choices=[]),
            chunk("stop"),
            b"{",
            DONE,
        ]
    ),
)


@given(st.lists(SAID, max_size=12), st.booleans(), st.sampled_from(["openai", "openresponses"]))
def test_any_stream_leaves_as_it_does_leniently(frames: list[bytes], think_tags: bool, wire: str) -> None:
    alike(frames, think_tags, wire)


@given(HEAD, st.lists(FRAGMENT, max_size=12))
def test_any_call_leaves_as_it_does_leniently(head: bytes, fragments: list[bytes]) -> None:
    alike([head, *fragments, chunk("tool_calls"), DONE])


CALL = calls(part("", name="f", id="call_a", index=0, type="function"))
BESIDE: dict[str, dict[str, Any]] = {
    "refusal": {"refusal": "No."},
    "reasoning": {"reasoning": "hm"},
    "reasoning_content": {"reasoning_content": "hm"},
    "reasoning_text": {"reasoning_text": "hm"},
    "reasoning_opaque": {"reasoning_opaque": "x"},
    "reasoning_details": {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
    "function_call": {"function_call": {"name": "g", "arguments": "{}"}},
    "annotations": {"annotations": [{"type": "url_citation", "url": "https://a.example"}]},
    "audio": {"audio": {"id": "x"}},
    "images": {"images": [{"type": "image_url"}]},
    "two calls": {"tool_calls": [part("x", index=0), part("", name="g", id="b", index=1)]},
}


@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize(
    "said", [{"content": "Hi"}, {"tool_calls": [part("x", index=0)]}], ids=["text", "call"]
)
def test_what_stands_beside_is_sent_as_well(said: dict[str, Any], beside: dict[str, Any]) -> None:
    alike([chunk(content="Hello"), CALL, chunk(**{**said, **beside}), chunk("stop"), DONE])
    alike([CALL, chunk(content="Hello"), chunk(**{**said, **beside}), chunk("stop"), DONE])


# every field of a chunk, of a choice and of a delta, with a value that says something
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
CITED = {"type": "url_citation", "url": "https://a.example", "title": "A"}
FAILED = {"code": "overloaded", "message": "The model is overloaded."}
IN_CHUNK: dict[str, Any] = {
    "choices": [{"index": 0, "delta": {"content": "Hi"}}, {"index": 1, "delta": {"content": "Ho"}}],
    "usage": USAGE,
    "error": FAILED,
    "citations": ["https://a.example"],
    "search_results": [{"url": "https://a.example"}],
    "web_search": [{"link": "https://a.example"}],
    "x_groq": {"usage": USAGE},
    "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"},
}
IN_CHOICE: dict[str, Any] = {
    "index": 1,
    "delta": {"content": "Ho"},
    "message": {"content": "Something else."},
    "text": "Something else.",
    "finish_reason": "length",
    "logprobs": {"content": [{"token": "Hi", "logprob": -0.1, "bytes": None, "top_logprobs": []}]},
    "usage": USAGE,
    "error": FAILED,
}
IN_DELTA: dict[str, Any] = {
    "extra_content": {"google": {"thought_signature": "A"}},
    "role": "assistant",
    "content": "Ho",
    "tool_calls": [part("{}", name="g", id="b", index=0)],
    "reasoning": "hm",
    "reasoning_content": "hm",
    "reasoning_text": "hm",
    "reasoning_opaque": "x",
    "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
    "reasoning_details": [{"type": "reasoning.text", "text": "hm"}],
    "refusal": "No.",
    "function_call": {"name": "g", "arguments": "{}"},
    "annotations": [CITED],
    "audio": {"id": "x"},
    "images": [{"type": "image_url"}],
    "executed_tools": [{"type": "search"}],
}
WITHOUT_WORDS = frozenset({"role"})  # says nothing that an answer would not say by itself
FIELDS = {
    **{f"chunk.{name}": ({name: value}, {}, {}) for name, value in IN_CHUNK.items()},
    "chunk.x_groq.error": ({"x_groq": {"error": FAILED}}, {}, {}),
    **{f"choice.{name}": ({}, {name: value}, {}) for name, value in IN_CHOICE.items()},
    **{f"delta.{name}": ({}, {}, {name: value}) for name, value in IN_DELTA.items()},
}


def test_no_field_of_a_chunk_is_left_out_here() -> None:
    for struct, values in ((ChatOutput, IN_CHUNK), (ChatChoice, IN_CHOICE), (ChatDelta, IN_DELTA)):
        assert set(struct.__struct_fields__) == set(values)
    for struct, strict in ((ChatOutput, StrictChunk), (ChatChoice, StrictChoice), (ChatDelta, StrictDelta)):
        assert set(struct.__struct_fields__) == set(strict.__struct_fields__)


@pytest.mark.parametrize("at", [0, 1, 2, 30])
@pytest.mark.parametrize("name", FIELDS)
def test_a_field_beside_text_says_the_same_whichever_way_it_is_read(name: str, at: int) -> None:
    in_chunk, in_choice, in_delta = FIELDS[name]
    words = [f"word {number} " for number in range(40)]
    frames = [chunk(content=word) for word in words]
    choice = {"index": 0, "delta": {"content": words[at], **in_delta}, "finish_reason": None, **in_choice}
    beside = [*frames[:at], frame(**{"choices": [choice], **in_chunk}), *frames[at + 1 :]]
    for think_tags in (True, False):
        alike([*beside, chunk("stop"), DONE], think_tags)
        outcome = sent(Inbound, [*beside, chunk("stop"), DONE], think_tags, "openai")
        plain = sent(Inbound, [*frames, chunk("stop"), DONE], think_tags, "openai")
        if name.rpartition(".")[2] not in WITHOUT_WORDS:
            assert outcome != plain, "it vanished"
        if name.endswith("error"):
            failed = json.loads(outcome[0][-1])
            assert (failed["type"], failed["response"]["error"]["code"]) == ("response.failed", "overloaded")


@given(
    st.lists(
        st.tuples(st.sampled_from(["Hi", "", "é"]), st.sampled_from([*FIELDS, *[""] * len(FIELDS)])),
        max_size=24,
    ),
    st.booleans(),
)
def test_fields_beside_text_in_any_order_say_the_same(said: list[tuple[str, str]], think_tags: bool) -> None:
    frames = []
    for text, name in said:
        in_chunk, in_choice, in_delta = FIELDS.get(name, ({}, {}, {}))
        choice = {"index": 0, "delta": {"content": text, **in_delta}, **in_choice}
        frames.append(frame(**{"choices": [choice], **in_chunk}))
    alike([*frames, chunk("stop"), DONE], think_tags)


@pytest.mark.parametrize("beside_a_delta", [True, False])
@pytest.mark.parametrize(
    ("message", "note"),
    [
        ({"content": "Hello you"}, ["ignored message: repeats the deltas"]),
        ({"content": "Bye"}, ["loss message: differs from the deltas, which are kept"]),
        (
            {"content": "", "tool_calls": [part("{}", name="g", id="b")]},
            ["loss message: differs from the deltas, which are kept"],
        ),
    ],
)
def test_a_message_behind_deltas_is_not_said_again(
    message: dict[str, Any], note: list[str], beside_a_delta: bool
) -> None:
    delta = {"delta": {"content": ""}} if beside_a_delta else {}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **delta}
    frames = [chunk(content="Hello "), chunk(content="you"), frame(choices=[choice]), DONE]
    ran = run(*frames)
    assert ran.response.output_text == "Hello you"
    assert [f"{case.kind} {case.where}: {case.what}" for case in ran.inbound.diagnostics] == note


def test_a_message_beside_deltas_that_say_nothing_is_the_answer() -> None:
    message = {"content": "Hello", "tool_calls": [part("{}", name="g", id="b")]}
    choice = {"index": 0, "delta": {"content": ""}, "message": message, "finish_reason": "tool_calls"}
    ran = run(chunk(role="assistant", content=""), frame(choices=[choice]))
    assert (ran.response.status, ran.response.output_text) == ("completed", "Hello")
    assert ran.calls == [("b", "g", "{}")]


TOKEN_LOGPROB = {"content": [{"token": "Hi", "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
AROUND: dict[str, bytes] = {
    "finish reason": chunk("length", content="Hi"),
    "log probabilities": chunk(content="Hi", logprobs=TOKEN_LOGPROB),
    "another choice": chunk(content="Hi", index=1),
    "usage": frame(usage=USAGE, choices=[{"index": 0, "delta": {"content": "Hi"}}]),
    "error": frame(error={"message": "x"}, choices=[{"index": 0, "delta": {"content": "Hi"}}]),
    "two choices": frame(choices=[{"index": at, "delta": {"content": "Hi"}} for at in (0, 1)]),
}


@pytest.mark.parametrize("data", AROUND.values(), ids=AROUND)
def test_what_stands_around_is_sent_as_well(data: bytes) -> None:
    alike([chunk(content="Hello"), data, chunk("stop"), DONE])


def test_arguments_that_come_again_are_known_from_their_pieces() -> None:
    pieces = ['{"a":', "1}", '{"a":1}']
    alike([CALL, *(calls(part(piece, index=0)) for piece in pieces), chunk("tool_calls"), DONE])


SHAPES: dict[str, dict[str, Any]] = {
    "OpenAI, DeepSeek": {"index": 0, "function": {"arguments": "x"}},
    "Mistral": {"index": 0, "type": "function", "function": {"name": "", "arguments": "x"}},
    "blank id": {"index": 0, "id": "", "function": {"name": None, "arguments": "x"}},
    "all repeated": {
        "index": 0,
        "id": "call_a",
        "type": "function",
        "function": {"name": "f", "arguments": "x"},
    },
}


@pytest.mark.parametrize("fragment", SHAPES.values(), ids=SHAPES)
def test_a_call_that_goes_on_is_decoded_strictly(
    fragment: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this the strict way could die out unseen: what it gives is the same."""
    inbound = Inbound(new_machine())
    inbound.feed(calls(part("", name="f", id="call_a", index=0, type="function")))
    monkeypatch.setattr(inbounds, "decode_output", None)
    [event] = inbound.feed(calls(fragment))
    assert event.delta == "x"  # type: ignore[union-attr]


def test_text_and_reasoning_are_decoded_strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    inbound = Inbound(new_machine())
    inbound.feed(chunk(reasoning_content="hm"))
    monkeypatch.setattr(inbounds, "decode_output", None)
    chunks = [chunk(content=None, reasoning_content="hm"), chunk(content="Hello"), chunk(content="you")]
    events = [inbound.feed(data)[-1] for data in chunks]
    assert [event.delta for event in events] == ["hm", "Hello", "you"]  # type: ignore[union-attr]


@pytest.mark.parametrize("capture", [*shared_files("chat"), *shared_files("chat-irespdelta", "*.sse")])
def test_recorded_streams_leave_as_they_do_leniently(capture: Path) -> None:
    lines = (line.removeprefix(b"data:").strip() for line in capture.read_bytes().splitlines())
    alike([line for line in lines if line])
