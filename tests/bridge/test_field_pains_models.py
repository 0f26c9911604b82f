"""Problems that models and their servers cause for users of bridges, each a row with its number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.calls.unwrap import InputUnwrapper
from openresponses_bridge.dialects.anthropic_messages import Outbound as MessagesOutbound
from openresponses_bridge.dialects.anthropic_messages import from_messages, to_messages
from openresponses_bridge.dialects.anthropic_messages import message as messages_body
from openresponses_bridge.dialects.anthropic_messages.types import ContentBlockStart
from openresponses_bridge.dialects.chat_completions import (
    ChatCompletion,
    ChatOptions,
    ThinkingFields,
    from_chat,
    to_chat,
)
from openresponses_bridge.dialects.chat_completions import Inbound as ChatInbound
from openresponses_bridge.dialects.chat_completions import Outbound as ChatOutbound
from openresponses_bridge.dialects.chat_completions import completion as chat_completion
from openresponses_bridge.dialects.chat_completions.client.chunks import StreamChunk
from openresponses_bridge.dialects.chat_completions.options import TextCallFormat
from openresponses_bridge.dialects.chat_completions.upstream.text_calls import TextCall, TextCalls
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import FunctionCall, Item
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.seal import Sealer
from tests.support.chat import DONE, chunk, completion, frame, new_machine, run

USER = {"type": "message", "role": "user", "content": "q"}
DEVELOPER = {"type": "message", "role": "developer", "content": "rule"}
SYSTEM = {"type": "message", "role": "system", "content": "law"}
CALL = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "a"}


class Sent(NamedTuple):
    """A request, the fields of the body that goes out, and what was reported."""

    options: dict[str, Any]
    request: dict[str, Any]
    body: dict[str, Any]
    reported: Sequence[str] = ()


CALLED_LS = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
REMINDER = "<system-reminder>\nrule\n</system-reminder>"
SENT: dict[str, Sent] = {
    "P5, leading ones are joined and later ones are reminders": Sent(
        {"system_messages": "one"},
        {"instructions": "be", "input": [DEVELOPER, SYSTEM, USER, DEVELOPER, USER]},
        {
            "messages": [
                {"role": "system", "content": "be\n\nrule\n\nlaw"},
                {"role": "user", "content": "q"},
                {"role": "user", "content": REMINDER},
                {"role": "user", "content": "q"},
            ]
        },
        [
            "repair: input[0]: joined with the system message before it",
            "repair: input[1]: joined with the system message before it",
            "repair: input[3]: a later system message, sent as a reminder of the user's",
        ],
    ),
    "P5, one that comes late is no system message though it is the first": Sent(
        {"system_messages": "one"},
        {"input": [USER, DEVELOPER]},
        {"messages": [{"role": "user", "content": "q"}, {"role": "user", "content": REMINDER}]},
        ["repair: input[1]: a later system message, sent as a reminder of the user's"],
    ),
    "P5, a user's message behind outputs of calls": Sent(
        {"user_after_outputs": False, "system_messages": "one"},
        {"input": [SYSTEM, USER, CALL, OUTPUT, DEVELOPER, USER]},
        {
            "messages": [
                {"role": "system", "content": "law"},
                {"role": "user", "content": "q"},
                {"role": "assistant", "tool_calls": [CALLED_LS]},
                {"role": "tool", "tool_call_id": "c1", "content": "a"},
                {"role": "assistant", "content": "OK."},
                {"role": "user", "content": REMINDER},
                {"role": "user", "content": "q"},
            ]
        },
        [
            "repair: input[4]: a later system message, sent as a reminder of the user's",
            "repair: messages: a user's message behind outputs of calls, an assistant's 'OK.' put between",
        ],
    ),
    **{
        f"P20, {value or 'empty'}": Sent(
            {"empty_content": value},
            {"input": [USER, CALL, OUTPUT]},
            {
                "messages": [
                    {"role": "user", "content": "q"},
                    {"role": "assistant", **given, "tool_calls": [CALLED_LS]},
                    {"role": "tool", "tool_call_id": "c1", "content": "a"},
                ]
            },
        )
        for value, given in {"absent": {}, "null": {"content": None}, "": {"content": ""}}.items()
    },
    "P6, off is off in the template": Sent(
        {"efforts": ["none", "high"], "thinking_off": {"chat_template_kwargs": {"enable_thinking": False}}},
        {"input": "q", "reasoning": {"effort": "none"}},
        {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": None},
    ),
    "P6, a level turns thinking on": Sent(
        {"thinking_on": {"enable_thinking": True}, "thinking_off": {"enable_thinking": False}},
        {"input": "q", "reasoning": {"effort": "low"}},
        {"enable_thinking": True, "reasoning_effort": "low"},
    ),
    "P6, the nearest level, of two the stronger": Sent(
        {"efforts": ["low", "high", "max"]},
        {"input": "q", "reasoning": {"effort": "medium"}},
        {"reasoning_effort": "high"},
        ["loss: reasoning.effort: 'medium' sent as 'high'"],
    ),
    "P6, a level that has no order": Sent(
        {"efforts": ["none", "default"]},
        {"input": "q", "reasoning": {"effort": "medium"}},
        {"reasoning_effort": "default"},
        ["loss: reasoning.effort: 'medium' sent as 'default'"],
    ),
    "P6, a model that can't but think": Sent(
        {"efforts": ["low", "high"]},
        {"input": "q", "reasoning": {"effort": "none"}},
        {"reasoning_effort": "low"},
        ["loss: reasoning.effort: 'none' sent as 'low'"],
    ),
    "P6, a model without levels": Sent(
        {"efforts": [], "thinking_on": {"thinking": {"type": "enabled"}}},
        {"input": "q", "reasoning": {"effort": "medium"}},
        {"reasoning_effort": None, "thinking": {"type": "enabled"}},
        ["loss: reasoning.effort: 'medium' left out, the model has no levels"],
    ),
    "P21, schemas are rewritten and properties named like keywords stay": Sent(
        {
            "schema_omit": ["$schema", "encrypted", "propertyNames"],
            "schema_forms": ["const_as_enum", "types_as_nullable", "arrays_with_items"],
        },
        {
            "input": "q",
            "tools": [
                {
                    "type": "function",
                    "name": "f",
                    "parameters": {
                        "$schema": "x",
                        "properties": {
                            "a": {"const": "x", "encrypted": True},
                            "b": {"type": ["string", "null"]},
                            "const": {"type": ["string", "integer"]},
                            "d": {"type": "array", "default": {"const": 1}},
                        },
                        "propertyNames": {"pattern": "a"},
                    },
                }
            ],
        },
        {
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "f",
                        "parameters": {
                            "properties": {
                                "a": {"enum": ["x"]},
                                "b": {"type": "string", "nullable": True},
                                "const": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                                "d": {"type": "array", "default": {"const": 1}, "items": {}},
                            },
                            "type": "object",
                        },
                    },
                }
            ]
        },
        [
            "loss: tools.f.parameters: $schema left out",
            "loss: tools.f.parameters: encrypted left out",
            "loss: tools.f.parameters: const written as enum",
            "loss: tools.f.parameters: a list of types written as nullable",
            "loss: tools.f.parameters: an array without items, any given",
            "loss: tools.f.parameters: propertyNames left out",
        ],
    ),
    "P21, null beside other types": Sent(
        {"schema_forms": ["types_as_any_of"]},
        {
            "input": "q",
            "tools": [
                {
                    "type": "function",
                    "name": "f",
                    "parameters": {
                        "type": "object",
                        "properties": {"a": {"type": ["string", "null"], "title": "A", "maxLength": 1}},
                    },
                }
            ],
        },
        {
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "f",
                        "parameters": {
                            "type": "object",
                            "properties": {
                                "a": {
                                    "title": "A",
                                    "anyOf": [{"type": "string", "maxLength": 1}, {"type": "null"}],
                                }
                            },
                        },
                    },
                }
            ]
        },
        ["loss: tools.f.parameters: a list of types written as anyOf"],
    ),
}


@pytest.mark.parametrize("name", SENT)
def test_what_goes_out(name: str) -> None:
    options, request, expected, reported = SENT[name]
    body, diagnostics = to_chat(
        decode_request(json.dumps({"model": "m", **request})), options=msgspec.convert(options, ChatOptions)
    )
    sent = msgspec.json.decode(encode(body))
    assert {field: sent.get(field) for field in expected} == expected
    assert list(map(str, diagnostics)) == list(reported)


MESSAGES = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}]}


@pytest.mark.parametrize("model", ["kimi-k3", "glm-5"])
def test_p6_thinking_is_off_at_servers_like_anthropics(model: str) -> None:
    request = decode_request(json.dumps({"model": model, "input": "q", "reasoning": {"effort": "none"}}))
    body, _ = to_messages(request)
    assert body["thinking"] == {"type": "disabled"}
    claude, _ = to_messages(request, model="claude-sonnet-4-5")
    assert "thinking" not in claude


@pytest.mark.parametrize(
    ("options", "sent"),
    [(ChatOptions(), None), (ChatOptions(thinking_off=ThinkingFields(enable_thinking=False)), False)],
)
def test_p6_a_client_of_anthropics_turns_thinking_off(options: ChatOptions, sent: bool | None) -> None:
    request, _ = from_messages(MESSAGES | {"thinking": {"type": "disabled"}})
    body, _ = to_chat(request, options=options)
    assert (body.enable_thinking, body.reasoning_effort) == (sent, None)


class Read(NamedTuple):
    """Frames of an upstream, and what they amount to."""

    frames: list[bytes]
    status: str
    output: list[Any]
    reported: Sequence[str] = ()
    usage: tuple[int, int, int, int] | None = None
    options: dict[str, Any] | None = None


def _said(item: Item) -> Any:
    fields = item.raw if isinstance(item, UnknownItem) else msgspec.to_builtins(item)
    texts = "".join(part["text"] for part in fields.get("content", ()))
    return (item.type, texts or fields.get("arguments") or fields.get("result"))


def _counted(**usage: Any) -> list[bytes]:
    return [chunk(content="a"), chunk("stop"), frame(choices=[], usage=usage), DONE]


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
TEXT = [("message", "a")]
READ: dict[str, Read] = {
    "P25, a reason that is a failure": Read(
        [chunk(content="a"), chunk("server_error"), DONE], "failed", [("message", "a")]
    ),
    "P25, a reason that nobody knows": Read(
        [chunk(content="a"), chunk("repetition"), DONE],
        "incomplete",
        [("message", "a")],
        ["warning: finish_reason: unknown reason 'repetition'"],
    ),
    "P31, an image": Read(
        [chunk(content="a"), chunk(images=[IMAGE]), chunk("stop"), DONE],
        "completed",
        [("message", "a"), ("openai:image_generation_call", "QUJD")],
    ),
    "P31, an image that is elsewhere": Read(
        [chunk(images=[{"type": "image_url", "image_url": {"url": "https://x"}}]), chunk("stop"), DONE],
        "completed",
        [],
        [
            "loss: delta.images: an image that is not within the answer",
            "warning: output: completed without any",
        ],
    ),
    "P33, the schema's names": Read(
        _counted(input_tokens=10, output_tokens=2, input_tokens_details={"cached_tokens": 4}),
        "completed",
        TEXT,
        usage=(10, 2, 4, 0),
    ),
    "P33, Anthropic's names, cached input beside the rest": Read(
        _counted(input_tokens=10, output_tokens=2, cache_read_input_tokens=5, cache_creation_input_tokens=3),
        "completed",
        TEXT,
        usage=(18, 2, 5, 3),
    ),
    "P33, Anthropic's names beside Chat's": Read(
        _counted(
            prompt_tokens=10,
            completion_tokens=2,
            total_tokens=12,
            cache_read_input_tokens=5,
            cache_creation_input_tokens=3,
        ),
        "completed",
        TEXT,
        usage=(10, 2, 5, 3),
    ),
    "P33, vLLM's name": Read(
        _counted(prompt_tokens=10, completion_tokens=2, total_tokens=12, num_cached_tokens=4),
        "completed",
        TEXT,
        usage=(10, 2, 4, 0),
    ),
    "P33, what is written to the cache": Read(
        _counted(
            prompt_tokens=10,
            completion_tokens=2,
            total_tokens=12,
            prompt_tokens_details={"cache_creation_tokens": 4},
        ),
        "completed",
        TEXT,
        usage=(10, 2, 0, 4),
    ),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read(name: str) -> None:
    frames, status, output, reported, usage, options = READ[name]
    ran = run(*frames, reading=None if options is None else msgspec.convert(options, ChatOptions))
    assert ran.status == status
    assert [_said(item) for item in ran.output] == output
    assert list(map(str, ran.inbound.diagnostics)) == list(reported)
    if usage is not None:
        counted = ran.response.usage
        assert counted is not None
        assert usage == (
            counted.input_tokens,
            counted.output_tokens,
            counted.input_tokens_details.cached_tokens,
            counted.cache_write_tokens,
        )


PATCH = "*** Begin Patch\n*** End Patch"
NESTED = '{"input": {"path": "x"}}'
LISTED = '{"command": ["ls", {}]}'
ARGUMENTS: dict[str, tuple[Any, str, list[str]]] = {
    "P18, an object within the input": (
        {"input": {"patch": PATCH}},
        PATCH,
        ["nested_object", "wrapper_key:patch"],
    ),
    "P18, a command": ({"command": ["apply_patch", PATCH]}, PATCH, ["wrapper_key:command", "list"]),
    "P18, a command with more members": (
        {"command": ["apply_patch", PATCH, "x"], "timeout": 1},
        PATCH,
        ["wrapper_key:command", "list", "other_members"],
    ),
    "P18, an object of something else": (
        {"input": {"path": "x"}},
        '{"input": {"path": "x"}}',
        ["no_wrapper"],
    ),
    "P18, a command of something else": (json.loads(LISTED), LISTED, ["no_wrapper"]),
}


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_how_a_patch_is_wrapped(name: str, size: int) -> None:
    arguments, expected, repairs = ARGUMENTS[name]
    text, unwrapper = json.dumps(arguments), InputUnwrapper()
    pieces = [unwrapper.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(pieces) + unwrapper.close() == expected
    assert not unwrapper.truncated
    assert unwrapper.repairs == repairs


SIGNED = {"google": {"thought_signature": "AbCd=="}}
SECOND = {"google": {"thought_signature": "2"}}
DETAILS = [
    {
        "type": "reasoning.text",
        "text": "hm, so",
        "signature": "sig",
        "format": "anthropic-claude-v1",
        "index": 0,
    },
    {"type": "reasoning.encrypted", "data": "ENC", "id": "rs_1", "format": "google-gemini-v1"},
]


def _part(call_id: str, index: int = 0, **rest: Any) -> dict[str, Any]:
    function = {"name": "ls", "arguments": "{}"}
    return {"index": index, "id": call_id, "type": "function", "function": function, **rest}


def _detail(at: int, **fields: Any) -> bytes:
    return chunk(reasoning_details=[DETAILS[at] | fields])


def _called(*extras: Any) -> list[Any]:
    given = ({"extra_content": extra} if extra else {} for extra in extras)
    function = {"name": "ls", "arguments": "{}"}
    return [
        {"id": f"c{at}", "type": "function", "function": function, **extra}
        for at, extra in enumerate(given, 1)
    ]


# frames of an answer → the assistant's message that goes back
RETURNED: dict[str, tuple[list[bytes], dict[str, Any]]] = {
    "P4, with the call": (
        [chunk(tool_calls=[_part("c1", extra_content=SIGNED)])],
        {"tool_calls": _called(SIGNED)},
    ),
    "P4, with the first of parallel calls": (
        [chunk(tool_calls=[_part("c1", extra_content=SIGNED)]), chunk(tool_calls=[_part("c2", 1)])],
        {"tool_calls": _called(SIGNED, None)},
    ),
    "P4, with each of two calls": (
        [
            chunk(tool_calls=[_part("c1", extra_content=SIGNED)]),
            chunk(tool_calls=[_part("c2", 1, extra_content=SECOND)]),
        ],
        {"tool_calls": _called(SIGNED, SECOND)},
    ),
    "P4, behind the arguments": (
        [chunk(tool_calls=[_part("c1")]), chunk(tool_calls=[{"index": 0, "extra_content": SIGNED}])],
        {"tool_calls": _called(SIGNED)},
    ),
    "P4, with the text": (
        [chunk(content="a"), chunk(content="", extra_content=SIGNED)],
        {"content": "a", "extra_content": SIGNED},
    ),
    "P4, with the message around a call": (
        [completion(None, tool_calls=_called(None), extra_content=SIGNED)],
        {"tool_calls": _called(None), "extra_content": SIGNED},
    ),
    "P4, and what only says that a text is a thought": (
        [
            chunk(content="", extra_content={"google": {"thought": True}}),
            chunk(tool_calls=[_part("c1", extra_content=SIGNED)]),
        ],
        {"tool_calls": _called(SIGNED)},
    ),
    "P17, in order and as they came": (
        [
            _detail(0, text="hm", signature=None),
            _detail(0, text=", so"),
            _detail(1),
            chunk(tool_calls=[_part("c1")]),
        ],
        {"reasoning_details": DETAILS, "tool_calls": _called(None)},
    ),
    "P17, before text": (
        [_detail(0), _detail(1), chunk(content="a")],
        {"reasoning_details": DETAILS, "content": "a"},
    ),
}


def _events(frames: list[bytes], sealer: Sealer) -> tuple[list[Event], Response]:
    machine = new_machine()
    inbound = ChatInbound(machine, sealer=sealer)
    events = [event for data in (*frames, chunk("stop"), DONE) for event in inbound.feed(data)]
    return events, machine.snapshot


@pytest.mark.parametrize("key", [None, b"k" * 32], ids=["plain", "sealed"])
@pytest.mark.parametrize("name", RETURNED)
def test_what_goes_back_to_the_upstream(name: str, key: bytes | None) -> None:
    frames, message = RETURNED[name]
    sealer = Sealer(key)
    _, response = _events(frames, sealer)
    calls = [
        {**OUTPUT, "call_id": item.call_id} for item in response.output if isinstance(item, FunctionCall)
    ]
    output = msgspec.json.decode(encode(response.output))
    request = decode_request(json.dumps({"model": "m", "input": [USER, *output, *calls, USER]}))
    body, _ = to_chat(request, options=ChatOptions(reasoning_field="reasoning"), sealer=sealer)
    assert msgspec.json.decode(encode(body))["messages"][1] == {"role": "assistant", **message}
    stranger, _ = to_chat(request, sealer=Sealer(b"o" * 32))
    assert b"AbCd" not in encode(stranger)
    assert b"ENC" not in encode(stranger)


@pytest.mark.parametrize("name", [name for name in RETURNED if name != "P4, behind the arguments"])
def test_what_goes_through_a_chat_client(name: str) -> None:
    frames, message = RETURNED[name]
    sealer = Sealer(b"k" * 32)
    events, response = _events(frames, sealer)
    answer = chat_completion(response, sealer=sealer)
    assert isinstance(answer, ChatCompletion)
    reply = msgspec.json.decode(encode(answer))["choices"][0]["message"]
    assert {field: reply.get(field) for field in message} == message
    outbound = ChatOutbound(sealer=sealer)
    chunks = [each for event in events for each in outbound.feed(event)]
    streamed = [each.choices[0].delta for each in chunks if isinstance(each, StreamChunk) and each.choices]
    carriers = [each for delta in streamed for each in (delta, *(delta.tool_calls or ()))]
    assert any(each.extra_content for each in carriers) == name.startswith("P4")
    user = {"role": "user", "content": "q"}
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "a"} for call in reply.get("tool_calls", ())
    ]
    request, losses = from_chat({"model": "m", "messages": [user, reply, *results, user]}, sealer)
    assert not losses.of("loss")
    body, _ = to_chat(request, sealer=sealer)
    sent = msgspec.json.decode(encode(body))["messages"][1]
    assert {field: sent.get(field) for field in message} == message


def test_p4_google_gets_its_placeholder() -> None:
    def named(item: dict[str, Any], call_id: str) -> dict[str, Any]:
        return item | {"call_id": call_id}

    first = [CALL, named(CALL, "c3"), OUTPUT, named(OUTPUT, "c3")]
    given = [USER, *first, named(CALL, "c2"), named(OUTPUT, "c2")]
    request = decode_request(json.dumps({"model": "m", "input": given}))
    body, diagnostics = to_chat(request, options=ChatOptions(missing_signature="skip"))
    extras = [call.extra_content for message in body.messages for call in message.tool_calls or ()]
    skip = {"google": {"thought_signature": "skip"}}
    assert extras == [skip, None, skip]
    (repair,) = diagnostics
    assert (repair.where, repair.times) == ("tool_calls", 2)


@pytest.mark.parametrize(
    ("name", "kinds", "lost"),
    [
        ("P4, with the text", ["text"], ["loss: item.reasoning: sealed behind the text, left out"]),
        ("P4, with the message around a call", ["redacted_thinking", "tool_use"], []),
        ("P4, behind the arguments", ["tool_use", "redacted_thinking"], []),
    ],
)
def test_p4_a_messages_client_gets_the_text_last(name: str, kinds: list[str], lost: list[str]) -> None:
    """Claude Code shows the last block as the result."""
    events, response = _events(RETURNED[name][0], Sealer())
    outbound = MessagesOutbound()
    chunks = [each for event in events for each in outbound.feed(event)]
    started = [each.content_block["type"] for each in chunks if isinstance(each, ContentBlockStart)]
    assert (started, list(map(str, outbound.diagnostics))) == (kinds, lost)
    assert [each["type"] for each in messages_body(response)["content"]] == kinds


def test_p4_elsewhere_a_signature_is_a_loss() -> None:
    _, response = _events(RETURNED["P4, with the call"][0], Sealer())
    output = msgspec.json.decode(encode(response.output))
    request = decode_request(json.dumps({"model": "m", "input": [USER, *output, OUTPUT]}))
    body, diagnostics = to_chat(request, options=ChatOptions(returned=frozenset()))
    assert b"extra_content" not in encode(body)
    assert list(map(str, diagnostics)) == ["loss: input[1]: extra content can't be expressed"]


# options, text → reasoning and text in order
THOUGHT: dict[str, tuple[dict[str, Any], str, list[Any]]] = {
    "P13, opened by the template": (
        {"think": "opened"},
        "I think so.\n</think>\n\nHello",
        [("reasoning", "I think so.\n"), ("message", "Hello")],
    ),
    "P13, opened by the template and by the model": (
        {"think": "opened"},
        " <think>so</think>Hello </think>",
        [("reasoning", "so"), ("message", "Hello </think>")],
    ),
    "P13, later ones": (
        {"later_think_tags": True},
        "<think>a</think>Hello <think>b</think>world <thin",
        [("reasoning", "a"), ("message", "Hello "), ("reasoning", "b"), ("message", "world <thin")],
    ),
    "P13, later ones are text": (
        {},
        "<think>a</think>Hello <think>b</think>world",
        [("reasoning", "a"), ("message", "Hello <think>b</think>world")],
    ),
    "P13, other tags": (
        {"think_tags": [["[THINK]", "[/THINK]"], ["<thinking>", "</thinking>"], ["<think>", "</think>"]]},
        "<thinking>a</think></thinking>Hello",
        [("reasoning", "a</think>"), ("message", "Hello")],
    ),
    "P13, tags that are no marks": (
        {"think_tags": [["<|channel>thought", "<channel|>"]]},
        "<|channel>thought\na<channel|>Hello",
        [("reasoning", "a"), ("message", "Hello")],
    ),
}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("name", THOUGHT)
def test_what_is_thought(name: str, size: int) -> None:
    options, text, expected = THOUGHT[name]
    frames = [chunk(content=text[at : at + size]) for at in range(0, len(text), size)]
    ran = run(*frames, chunk("stop"), DONE, reading=msgspec.convert(options, ChatOptions))
    assert [_said(item) for item in ran.output] == expected


def test_p31_an_image_reaches_a_chat_client() -> None:
    _, response = _events([chunk(images=[IMAGE])], Sealer())
    answer = chat_completion(response)
    assert isinstance(answer, ChatCompletion)
    assert answer.choices[0].message.images == [IMAGE]


DSML = "｜DSML｜"
HERMES = '<tool_call>\n{"name":"ls","arguments":{"a":1}}\n</tool_call>'
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>"
    '{"a":1}<|tool_call_end|><|tool_calls_section_end|>'
)
INVOKED = '<invoke name="ls">\n<parameter name="a">1</parameter>\n</invoke>'
DEEPSEEK = (
    f'<{DSML}function_calls>\n<{DSML}invoke name="ls">\n<{DSML}parameter name="a" string="false">1'
    f"</{DSML}parameter>\n</{DSML}invoke>\n</{DSML}function_calls>"
)
CALLED = ("function_call", '{"a":1}')
# format, text → items in order
WRITTEN: dict[str, tuple[str, str, list[Any]]] = {
    "P14, hermes": ("hermes", f"So. {HERMES}", [("message", "So. "), CALLED]),
    "P14, half a character": (
        "hermes",
        HERMES.replace("1", r'"\ud83d"'),
        [("function_call", r'{"a":"\ud83d"}')],
    ),
    "P14, half a character in a value": (
        "glm",
        r'<tool_call>ls<arg_key>a</arg_key><arg_value>["\ud83d"]</arg_value></tool_call>',
        [("function_call", r'{"a":["\ud83d"]}')],
    ),
    "P14, two of hermes": ("hermes", HERMES + HERMES, [CALLED, CALLED]),
    "P14, hermes without an end": ("hermes", HERMES.removesuffix("</tool_call>"), [CALLED]),
    "P14, glm": (
        "glm",
        "<tool_call>ls\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        [CALLED],
    ),
    "P14, kimi": ("kimi", KIMI, [CALLED]),
    "P14, invoke": ("invoke", f"<function_calls>\n{INVOKED}\n</function_calls>", [CALLED]),
    "P14, MiniMax": ("invoke", f"<minimax:tool_call>\n{INVOKED}\n</minimax:tool_call>", [CALLED]),
    "P14, dsml": ("dsml", DEEPSEEK, [CALLED]),
    "P14, dsml, text that looks like a number": (
        "dsml",
        DEEPSEEK.replace('"false"', '"true"'),
        [("function_call", '{"a":"1"}')],
    ),
    "P14, a tool that nobody declared": (
        "hermes",
        HERMES.replace("ls", "rm"),
        [("message", HERMES.replace("ls", "rm"))],
    ),
    "P14, no JSON": ("hermes", "<tool_call>ls</tool_call> a", [("message", "<tool_call>ls</tool_call> a")]),
    "P14, another format": ("kimi", HERMES, [("message", HERMES)]),
    "P14, a beginning": ("hermes", "a <tool", [("message", "a <tool")]),
}


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("name", WRITTEN)
def test_calls_that_were_written_as_text(name: str, size: int) -> None:
    format, text, expected = WRITTEN[name]
    identities = ToolIdentityMap()
    identities.declare(ToolKind.FUNCTION, "ls")
    machine = new_machine(tool_identities=identities)
    options = msgspec.convert({"text_tool_calls": [format]}, ChatOptions)
    inbound = ChatInbound(machine, options=options, identities=identities)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    for data in (*(chunk(content=piece) for piece in pieces), chunk("stop"), DONE):
        inbound.feed(data)
    assert machine.snapshot.status == "completed"
    assert [_said(item) for item in machine.snapshot.output] == expected
    repairs = sum(case.times for case in inbound.diagnostics.of("repair"))
    assert repairs == sum(kind == "function_call" for kind, _ in expected)


def _written(format: str, pieces: list[str]) -> list[str | TextCall]:
    identities = ToolIdentityMap()
    identities.declare(ToolKind.FUNCTION, "ls")
    calls = TextCalls(msgspec.convert([format], frozenset[TextCallFormat]), identities)
    written: list[str | TextCall] = []
    for each in [*(part for piece in pieces for part in calls.feed(piece)), *calls.close()]:
        if written and isinstance(each, str) and isinstance(written[-1], str):
            written[-1] += each
        else:
            written.append(each)
    assert calls.is_flushed
    return written


MARKS = [
    "<tool_call>",
    "</tool_call>",
    HERMES,
    "<tool",
    "ls",
    "{",
    "}",
    "<arg_key>",
    "</arg_key>",
    " ",
    "\n",
    INVOKED,
]


@given(
    format=st.sampled_from(["hermes", "glm", "invoke", "dsml", "kimi"]),
    parts=st.lists(st.sampled_from([*MARKS, KIMI, DEEPSEEK, f"<{DSML}function_calls>"]), max_size=8),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_p14_any_cut_gives_the_same(format: str, parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    places = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert _written(format, pieces) == _written(format, [text]) == _written(format, list(text))
