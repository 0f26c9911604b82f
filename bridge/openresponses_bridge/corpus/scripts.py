"""Scripts of models' answers: steps that become calls of the machine, or frames of other dialects' upstreams.

A step is a verb and its arguments. `text`, `reasoning`, `summary`, `encrypted`, `refusal` (a delta; text may
have log probabilities, a summary the number of its part), `cite` (url, title, start, end), `call` and
`custom` (index, id, name), `name` (index, name), `arguments` (index, delta), `call_end` (index). Only the
protocol has `expect` (id and phase of the next item), `part_end`, `item_end`, `item`, `announce` (an item),
`progress` (id, type, fields), `extension` (type, fields), `defer` (a reason to end), `machine` (another
method of the machine, its arguments) and `start`, before which other steps may stand. The last step is the
end: `end` (reason, usage), `fail` (code, message), `cancel`, or `cut`, for which the upstream breaks off and
open calls are incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from openresponses_bridge.protocol.response import ErrorPayload

Step = tuple[Any, ...]
MachineCall = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method of the machine, with its arguments by position and by name."""

USAGE: Final = {"input_tokens": 12, "output_tokens": 7}
_DETAILED: Final = {
    "input_tokens": 120,
    "output_tokens": 70,
    "input_tokens_details": {"cached_tokens": 64},
    "output_tokens_details": {"reasoning_tokens": 32},
}


class Script(NamedTuple):
    """A model's answer. `asks` says what a reader has to do to decode it, beyond what the scripts that it
    `builds_on` ask."""

    asks: str
    steps: list[Step]
    builds_on: tuple[str, ...] = ()


_LOOK: Final[list[Step]] = [
    ("call", 0, "call_a", "get_weather"),
    ("arguments", 0, '{"city":'),
    ("arguments", 0, '"Paris"}'),
    ("call_end", 0),
]
_EDIT_TEST: Final[list[Step]] = [
    ("call", 0, "call_test", "edit_file"),
    ("arguments", 0, "{"),
    ("arguments", 0, '"path":"src/area.js",'),
    ("arguments", 0, '"code":"export const area = (w, h) => w * h;\\n"'),
    ("arguments", 0, "}"),
    ("call_end", 0),
]
_EDIT_SERVER: Final[list[Step]] = [
    ("call", 1, "call_server", "edit_file"),
    ("arguments", 1, "{"),
    ("arguments", 1, '"path":"src/server.js",'),
    ("arguments", 1, '"code":"app.get(\'/\', (_, res) => res.send(\\"Bon jour\\"));\\n"'),
    ("arguments", 1, "}"),
    ("call_end", 1),
]
_LOGPROB: Final = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}

COMMON: Final[dict[str, Script]] = {
    "text": Script(
        "The deltas of a text are joined as they are, characters beyond the basic plane too.",
        [("text", "Hello"), ("text", " there"), ("text", ". é🙂"), ("end", "stop")],
    ),
    "reasoning": Script(
        "Raw reasoning, its summary and the text of the answer are kept apart.",
        [
            ("reasoning", "Two and two"),
            ("reasoning", " make four."),
            ("summary", "Adding"),
            ("summary", " up."),
            ("encrypted", "b3BhcXVl"),
            ("text", "4"),
            ("end", "stop"),
        ],
        ("text",),
    ),
    "one_tool": Script(
        "The deltas of a call's arguments are joined; name and call_id come with the item.",
        [*_LOOK, ("end", "tool_calls")],
    ),
    "two_tools_interleaved": Script(
        "Calls may take turns: each delta belongs to the call at its output_index.",
        [
            ("call", 0, "call_a", "get_weather"),
            ("call", 1, "call_b", "get_time"),
            ("arguments", 0, '{"city":'),
            ("arguments", 1, '{"zone":'),
            ("arguments", 0, '"Paris"}'),
            ("arguments", 1, '"CET"}'),
            ("call_end", 0),
            ("call_end", 1),
            ("end", "tool_calls"),
        ],
        ("one_tool",),
    ),
    "text_then_tool": Script(
        "A message and a call may be in one response.",
        [("text", "Let me "), ("text", "look."), *_LOOK, ("end", "tool_calls")],
        ("text", "one_tool"),
    ),
    "refusal": Script(
        "A refusal is a part of its own, not text.",
        [("refusal", "I can't"), ("refusal", " help with that."), ("end", "stop")],
    ),
    "citation": Script(
        "Citations come in events of their own and belong to the text before them.",
        [
            ("text", "Paris is the capital."),
            ("cite", "https://atlas.example/paris", "Paris", 0, 5),
            ("end", "stop"),
        ],
        ("text",),
    ),
    "incomplete": Script(
        "A response that reached its limit ends as response.incomplete, with its text.",
        [("text", "Once upon"), ("text", " a"), ("end", "length")],
        ("text",),
    ),
    "filter": Script(
        "A response that was filtered is incomplete, for another reason.",
        [("text", "Well,"), ("end", "content_filter")],
        ("incomplete",),
    ),
    "fail": Script(
        "A response may fail after its first words: they are kept, and the error is reported.",
        [("text", "Hel"), ("fail", "server_error", "the model is down")],
        ("text",),
    ),
    "cancel": Script(
        "A cancelled response has ended, and is neither completed nor failed.",
        [("text", "Hel"), ("cancel",)],
        ("incomplete",),
    ),
    "cut": Script(
        "A call whose arguments were cut off is not run, and its response is incomplete.",
        [("text", "Let me look."), *_LOOK[:2], ("cut",)],
        ("text_then_tool", "incomplete"),
    ),
    # an agent's turn: some words, then two files to edit, each call in pieces
    "edit_two_files": Script(
        "Arguments are JSON as the model wrote it: its escapes are left for the parser of the arguments.",
        [
            ("text", "I'll make both changes:"),
            ("text", "\n1. an area function in area.js"),
            ("text", "\n2. a greeting in server.js"),
            *_EDIT_TEST,
            *_EDIT_SERVER,
            ("end", "tool_calls"),
        ],
        ("text_then_tool",),
    ),
}
"""The scripts that an upstream of any dialect can send."""

_SEARCH: Final = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
_FOUND: Final = {**_SEARCH, "status": "completed", "action": {"type": "search", "query": "Paris"}}

OWN: Final[dict[str, Script]] = {
    "custom_tool": Script(
        "A custom tool's input is free text; where only functions exist, it is their argument `input`.",
        [
            ("text", "Let me ask."),
            ("custom", 0, "call_a", "sql"),
            ("arguments", 0, "select name"),
            ("arguments", 0, " from cities"),
            ("call_end", 0),
            ("end", "tool_calls"),
        ],
        ("text_then_tool",),
    ),
    "whitespace": Script(
        "Spaces and line ends at the edges of deltas are text.",
        [("text", "  one\n"), ("text", "\n"), ("text", " "), ("text", "two \r\n"), ("end", "stop")],
        ("text",),
    ),
    "line_separators": Script(
        "Only LF, CR and CRLF end a line of the stream: U+2028, U+0085, U+000B and U+001C are text.",
        [("text", "a\u2028b\u2029c"), ("text", "d\u0085e\u000bf\u001cg"), ("end", "stop")],
        ("text",),
    ),
    "looks_like_sse": Script(
        "Text that looks like a field of server-sent events, or like [DONE], is text.",
        [("text", "data: [DONE]"), ("text", "\n\nevent: error\n"), ("text", ": comment"), ("end", "stop")],
        ("text",),
    ),
    "logprobs": Script(
        "Log probabilities come with the deltas, and change no text.",
        [("text", "Hi", [_LOGPROB]), ("text", "!"), ("end", "stop")],
        ("text",),
    ),
    "two_parts": Script(
        "A message may have several parts, distinguished by content_index.",
        [("text", "One."), ("part_end",), ("text", " Two."), ("end", "stop")],
        ("text",),
    ),
    "two_messages": Script(
        "A response may have several messages, each with a phase.",
        [
            ("expect", "msg_commentary", "commentary"),
            ("text", "I look it up."),
            ("item_end",),
            ("expect", "msg_final", "final_answer"),
            ("text", "It is Paris."),
            ("end", "stop"),
        ],
        ("text",),
    ),
    "text_after_tool": Script(
        "Text may follow a call, in a message of its own.",
        [("text", "Before."), *_LOOK, ("text", "After."), ("end", "tool_calls")],
        ("text_then_tool",),
    ),
    "refusal_after_text": Script(
        "Text and refusal may be parts of one message.",
        [("text", "Well, "), ("refusal", "no."), ("end", "stop")],
        ("text", "refusal"),
    ),
    "whole_message": Script(
        "An item may be in the output at once, without a delay between its events.",
        [
            (
                "item",
                {
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "At once.", "annotations": []}],
                },
            ),
            ("end", "stop"),
        ],
        ("text",),
    ),
    "raw_reasoning": Script(
        "Raw reasoning may come without a summary.",
        [("reasoning", "Hm"), ("reasoning", "m."), ("text", "So."), ("end", "stop")],
        ("reasoning",),
    ),
    "summary_parts": Script(
        "A summary may have several parts, distinguished by summary_index.",
        [
            ("summary", "First."),
            ("summary", "Sec", 1),
            ("summary", "ond.", 1),
            ("text", "So."),
            ("end", "stop"),
        ],
        ("reasoning",),
    ),
    "encrypted_reasoning": Script(
        "A reasoning item may have only encrypted content.",
        [("encrypted", "b3BhcXVl"), ("text", "So."), ("end", "stop")],
        ("reasoning",),
    ),
    "reasoning_between": Script(
        "Reasoning may come again after text and calls.",
        [
            ("reasoning", "First I look."),
            ("text", "Looking."),
            ("reasoning", "Then I call."),
            *_LOOK,
            ("end", "tool_calls"),
        ],
        ("reasoning", "text_then_tool"),
    ),
    "no_arguments": Script(
        "A call without arguments has the arguments {}.",
        [("call", 0, "call_a", "list_files"), ("call_end", 0), ("end", "tool_calls")],
        ("one_tool",),
    ),
    "late_name": Script(
        "A call is announced when its name is known, with all arguments after that.",
        [
            ("call", 0, "call_a", None),
            ("arguments", 0, '{"city":'),
            ("name", 0, "get_weather"),
            ("arguments", 0, '"Oslo"}'),
            ("call_end", 0),
            ("end", "tool_calls"),
        ],
        ("one_tool",),
    ),
    "malformed_arguments": Script(
        "Arguments that are not JSON are what the model wrote, not an error of the stream.",
        [("call", 0, "call_a", "find"), ("arguments", 0, '{"q":}'), ("call_end", 0), ("end", "tool_calls")],
        ("one_tool",),
    ),
    "many_tools": Script(
        "Output is ordered by output_index as a number: 10 comes after 9.",
        [
            step
            for index in range(12)
            for step in (
                ("call", index, f"call_{index}", "step"),
                ("arguments", index, f'{{"n":{index}}}'),
                ("call_end", index),
            )
        ]
        + [("end", "tool_calls")],
        ("one_tool",),
    ),
    "cut_at_length": Script(
        "A call that the limit cut off is not run; complete items before it are kept.",
        [*_LOOK, ("call", 1, "call_b", "get_time"), ("arguments", 1, '{"zone":"C'), ("end", "length")],
        ("one_tool", "incomplete"),
    ),
    "fail_at_once": Script(
        "A response may fail without any output.",
        [("fail", "rate_limit_exceeded", "Slow down.")],
    ),
    "fail_in_call": Script(
        "A call that was open when the response failed is not run.",
        [("text", "Let me look."), *_LOOK[:2], ("fail", "server_error", "the model is down")],
        ("fail", "cut"),
    ),
    "cancel_at_once": Script("A response may be cancelled without any output.", [("cancel",)], ("cancel",)),
    "nothing": Script("A completed response may have no output.", [("end", "stop")]),
    "usage": Script(
        "Usage comes with the terminal event, in all its counts.",
        [("text", "Yes."), ("end", "stop", _DETAILED)],
        ("text",),
    ),
    "no_usage": Script(
        "Usage may be null.",
        [("text", "Yes."), ("end", "stop", None)],
        ("text",),
    ),
    "hosted_tool": Script(
        "A tool that the server runs itself is an item with events of its own, and no call for the client.",
        [
            ("announce", _SEARCH),
            ("progress", "ws_1", "response.web_search_call.in_progress", {}),
            ("progress", "ws_1", "response.web_search_call.searching", {}),
            ("progress", "ws_1", "response.web_search_call.completed", {}),
            ("item", _FOUND),
            ("text", "Paris."),
            ("end", "stop"),
        ],
        ("text",),
    ),
    "open_hosted_tool": Script(
        "An item that was not done makes its response incomplete.",
        [("announce", _SEARCH), ("text", "Paris."), ("end", "stop")],
        ("hosted_tool", "incomplete"),
    ),
    "tool_output": Script(
        "The output of a tool that the server ran itself may stand beside its call.",
        [
            *_LOOK,
            ("item", {"type": "function_call_output", "call_id": "call_a", "output": "12 degrees"}),
            ("text", "It is cool."),
            ("end", "stop"),
        ],
        ("one_tool", "text"),
    ),
    "compaction": Script(
        "A compaction item is opaque, and kept for the next request.",
        [("item", {"type": "compaction", "id": "cmp_1", "encrypted_content": "b3BhcXVl"}), ("end", "stop")],
    ),
    "extension": Script(
        "Items and events of an extension (`slug:name`) are kept or ignored, never an error.",
        [
            ("extension", "acme:beat", {"value": 1}),
            ("item", {"type": "acme:note", "text": "hello"}),
            ("text", "Hi."),
            ("end", "stop"),
        ],
        ("text",),
    ),
}
"""The scripts that only the protocol itself can express."""

SCRIPTS: Final = COMMON | OWN


def machine_calls(steps: Iterable[Step]) -> Iterator[MachineCall]:
    """Yield the calls of the machine for these steps; `start` comes first unless it is one of the steps."""
    steps = list(steps)
    if ("start",) not in steps:
        yield "start", (), {}
    for verb, *facts in steps:
        yield from _PLAYED[verb](*facts)


def _call(name: str) -> Callable[..., list[MachineCall]]:
    return lambda *facts: [(name, facts, {})]


def _annotate(url: str, title: str, start: int, end: int) -> list[MachineCall]:
    citation = {"type": "url_citation", "url": url, "title": title, "start_index": start, "end_index": end}
    return [("annotation", (citation,), {})]


def _end(reason: str | None, usage: dict[str, Any] | None = USAGE) -> list[MachineCall]:
    reported: list[MachineCall] = [] if usage is None else [("usage", (usage,), {})]
    return [*reported, ("finish", (reason,), {})]


def _fail(code: str, message: str) -> list[MachineCall]:
    return [("fail", (ErrorPayload("server_error", code, message, None),), {})]


_PLAYED: Final[dict[str, Callable[..., list[MachineCall]]]] = {
    "text": _call("text"),
    "reasoning": _call("reasoning"),
    "summary": _call("reasoning_summary"),
    "encrypted": _call("reasoning_encrypted"),
    "refusal": _call("refusal"),
    "cite": _annotate,
    "call": _call("tool_call"),
    "custom": lambda index, id, name: [("tool_call", (index, id, name), {"type": "custom"})],
    "name": lambda index, name: [("tool_call", (index, None, name), {})],
    "arguments": lambda index, delta: [("tool_call", (index,), {"arguments": delta})],
    "call_end": _call("tool_call_done"),
    "expect": _call("expect_item"),
    "part_end": _call("part_done"),
    "item_end": _call("block_done"),
    "item": _call("item"),
    "announce": _call("item_added"),
    "progress": _call("item_event"),
    "extension": _call("extension_event"),
    "defer": _call("defer_finish"),
    "machine": lambda method, *facts: [(method, facts, {})],
    "start": _call("start"),
    "end": _end,
    "fail": _fail,
    "cancel": _call("cancel"),
    "cut": lambda: [("finish", ("stop",), {})],
}
