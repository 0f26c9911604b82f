"""Scripts of models' answers: steps that the machine plays and that each dialect encodes as frames.

A step is a verb and its arguments: `text`, `reasoning`, `summary`, `encrypted`, `refusal` (a delta),
`cite` (url, title, start, end), `call` and `custom` (index, id, name), `arguments` (index, delta), `call_end`
(index). The last one is how it ends: `end` (reason), `fail` (code, message), `cancel` or `cut`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from openresponses_bridge.protocol.response import ErrorPayload
from tests.support.machines import Run

Step = tuple[Any, ...]
USAGE = {"input_tokens": 12, "output_tokens": 7}

_LOOK = [
    ("call", 0, "call_a", "get_weather"),
    ("arguments", 0, '{"city":'),
    ("arguments", 0, '"Paris"}'),
    ("call_end", 0),
]
_EDIT_TEST = [
    ("call", 0, "call_test", "edit_file"),
    ("arguments", 0, "{"),
    ("arguments", 0, '"path":"src/area.js",'),
    ("arguments", 0, '"code":"export const area = (w, h) => w * h;\\n"'),
    ("arguments", 0, "}"),
    ("call_end", 0),
]
_EDIT_SERVER = [
    ("call", 1, "call_server", "edit_file"),
    ("arguments", 1, "{"),
    ("arguments", 1, '"path":"src/server.js",'),
    ("arguments", 1, '"code":"app.get(\'/\', (_, res) => res.send(\\"Bon jour\\"));\\n"'),
    ("arguments", 1, "}"),
    ("call_end", 1),
]

SCRIPTS: dict[str, list[Step]] = {
    "text": [("text", "Hello"), ("text", " there"), ("text", ". é🙂"), ("end", "stop")],
    "reasoning": [
        ("reasoning", "Two and two"),
        ("reasoning", " make four."),
        ("summary", "Adding"),
        ("summary", " up."),
        ("encrypted", "b3BhcXVl"),
        ("text", "4"),
        ("end", "stop"),
    ],
    "one_tool": [*_LOOK, ("end", "tool_calls")],
    "two_tools_interleaved": [
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
    "text_then_tool": [("text", "Let me "), ("text", "look."), *_LOOK, ("end", "tool_calls")],
    "refusal": [("refusal", "I can't"), ("refusal", " help with that."), ("end", "stop")],
    "citation": [
        ("text", "Paris is the capital."),
        ("cite", "https://atlas.example/paris", "Paris", 0, 5),
        ("end", "stop"),
    ],
    "incomplete": [("text", "Once upon"), ("text", " a"), ("end", "length")],
    "filter": [("text", "Well,"), ("end", "content_filter")],
    "fail": [("text", "Hel"), ("fail", "server_error", "the model is down")],
    "cancel": [("text", "Hel"), ("cancel",)],
    "cut": [("text", "Let me look."), *_LOOK[:2], ("cut",)],
    # an agent's turn: some words, then two files to edit, each call in pieces
    "edit_two_files": [
        ("text", "I'll make both changes:"),
        ("text", "\n1. an area function in area.js"),
        ("text", "\n2. a greeting in server.js"),
        *_EDIT_TEST,
        *_EDIT_SERVER,
        ("end", "tool_calls"),
    ],
}

# only the machine's own wires have tools with free text
CUSTOM_TOOL: list[Step] = [
    ("text", "Let me ask."),
    ("custom", 0, "call_a", "sql"),
    ("arguments", 0, "select name"),
    ("arguments", 0, " from cities"),
    ("call_end", 0),
    ("end", "tool_calls"),
]


def _end(run: Run, reason: str) -> None:
    run("usage", USAGE)
    run("finish", reason)


def _cite(run: Run, url: str, title: str, start: int, end: int) -> None:
    citation = {"type": "url_citation", "url": url, "title": title, "start_index": start, "end_index": end}
    run("annotation", citation)


_PLAY: dict[str, Callable[..., Any]] = {
    "text": lambda run, delta: run("text", delta),
    "reasoning": lambda run, delta: run("reasoning", delta),
    "summary": lambda run, delta: run("reasoning_summary", delta),
    "encrypted": lambda run, content: run("reasoning_encrypted", content),
    "refusal": lambda run, delta: run("refusal", delta),
    "cite": _cite,
    "call": lambda run, index, id, name: run("tool_call", index, id, name),
    "custom": lambda run, index, id, name: run("tool_call", index, id, name, type="custom"),
    "arguments": lambda run, index, delta: run("tool_call", index, arguments=delta),
    "call_end": lambda run, index: run("tool_call_done", index),
    "end": _end,
    "fail": lambda run, code, message: run("fail", ErrorPayload("server_error", code, message, None)),
    "cancel": lambda run: run("cancel"),
    "cut": lambda run: None,
}


def played(steps: Iterable[Step], wire: str = "openresponses") -> Run:
    """A machine that was called as the script says, held to the laws after each call. After `cut` the
    stream is left as it is."""
    run = Run(wire)
    for verb, *facts in steps:
        _PLAY[verb](run, *facts)
    return run
