"""Inputs that fuzzing found: each broke its target's invariant before the fix."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fuzz.core import all_targets, check
from tests.fuzz.targets.edge import frame
from tests.support import anthropic, damaged_responses
from tests.support import codex as notes


def sse(*frames: Any) -> bytes:
    """Frames as server-sent events."""
    return b"".join(b"data: " + encoded(frame) + b"\n\n" for frame in frames)


def lines(*frames: Any) -> bytes:
    return b"\n".join(map(encoded, frames))


def encoded(frame: Any) -> bytes:
    return frame if isinstance(frame, bytes) else json.dumps(frame).encode()


PONG = frame(10, b"x" * 60)  # so long that the rest arrives in one piece
HOSTED = [anthropic.start(), anthropic.opened(0, "/odd kind", id="s"), anthropic.closed(0), *anthropic.stop()]
CUSTOM = {"type": "custom", "name": "c"}
CUSTOM_ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [CUSTOM]}
TWICE = damaged_responses.call(type="new_call"), damaged_responses.call("{}", id="fc_v")  # under one call_id
ITEMLESS = {"type": "response.output_item.done", "output_index": 0}
NEW_TOOL = {"type": "new_tool", "id": "n", "status": "in_progress"}
ITS_PROGRESS = {"type": "response.new_tool.going", "output_index": 0, "item_id": "n"}
ODD_ITEM = (
    damaged_responses.added({"type": "me&sage", "id": "x"}),
    damaged_responses.done({"type": "me&sage", "id": "x"}),
)
HALVES = (
    {"type": "response.created", "response": {"id": "\ud83d", "model": "m", "status": "in_progress"}},
    damaged_responses.added(damaged_responses.message()),
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a\ud83d"},
)
HALF = {"method": "error", "params": {"error": {"message": "\ud83d"}}}
UNKNOWN_FIELD = {"role": "user", "content": "Hi", "cle": "user"}
SAID = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
COMPACTED = {"model": "m", "input": [{"role": "user", "none": "a", "content": "Hi"}]}
FOUND = [
    ("responses", "an item's type that no extension can have", sse(damaged_responses.created(), *ODD_ITEM)),
    (
        "responses",
        "an unknown kind of call under the call_id of a function's",
        sse(
            damaged_responses.created(), *(damaged_responses.done(call, at) for at, call in enumerate(TWICE))
        ),
    ),
    (
        "responses",
        "progress of a tool that no wire has",
        sse(
            damaged_responses.created(),
            damaged_responses.added(NEW_TOOL),
            ITS_PROGRESS,
            damaged_responses.done(NEW_TOOL),
        ),
    ),
    (
        "responses",
        "progress of a tool that no wire has, with the tool",
        sse(
            damaged_responses.created(), damaged_responses.added(NEW_TOOL), {**ITS_PROGRESS, "item": NEW_TOOL}
        ),
    ),
    (
        "events",
        "the end of an item without the item",
        sse(
            damaged_responses.created(),
            damaged_responses.added(damaged_responses.message()),
            ITEMLESS,
            damaged_responses.ended(),
        ),
    ),
    ("events", "half a character in an id and in a text", sse(*HALVES)),
    ("codex", "half a character in an error", lines(notes.started(), HALF, notes.ended("failed"))),
    ("anthropic", "a block's type that no item's type can hold", sse(*HOSTED)),
    (
        "anthropic",
        "a block's type that is empty",
        sse(anthropic.start(), anthropic.opened(0, ""), anthropic.closed(0)),
    ),
    (
        "codex",
        "an item's type that none of ours can hold",
        lines(notes.started(), notes.item("started", "a b", "x")),
    ),
    ("frames", "a ping behind what ended the connection", PONG + frame(1, b"\xff") + frame(9, b"ping")),
    ("http", "a query that is not UTF-8, where an error is answered", b"GET /v1/responses/x?\x80a=1\n\n"),
    ("request-compact", "a field that items do not have", encoded({"input": [UNKNOWN_FIELD]})),
    ("request-responses", "the same in a request", encoded({"input": [UNKNOWN_FIELD]})),
    ("request-responses", "a field whose name is empty", encoded({"": "Hi"})),
    ("request-chat", "the same in a request of Chat Completions", encoded({**ASKED, "": "u"})),
    (
        "request-responses",
        "a part whose type is empty",
        encoded({"input": [{"role": "user", "content": [{"type": "", "text": "a"}]}]}),
    ),
    (
        "request-responses",
        "two kinds of tools of one name, for VS Code",
        encoded({"input": "Hi", "tools": [CUSTOM, {**CUSTOM, "type": "function"}]}),
    ),
    ("request-compact", "a field of an item with a role and no type", encoded(COMPACTED)),
    (
        "request-responses",
        "a choice among tools that are not functions, for VS Code",
        encoded({"input": "Hi", "tool_choice": CUSTOM_ALLOWED}),
    ),
    (
        "request-messages",
        "a tool of the upstream's own whose name is a list",
        encoded({**SAID, "tools": [{"type": "new_tool", "name": [], "cache_control": {}}]}),
    ),
    (
        "request-responses",
        "the same in a request of ours",
        encoded({"input": "Hi", "tools": [{"type": "anthropic:new_tool", "name": {}}]}),
    ),
]


@pytest.mark.parametrize(
    ("target", "data"), [(row[0], row[2]) for row in FOUND], ids=[row[1] for row in FOUND]
)
def test_found(target: str, data: bytes) -> None:
    check(all_targets()[target], data)
