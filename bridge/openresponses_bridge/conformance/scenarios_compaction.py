"""Compaction: a window that begins a new chain."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.conformance.exchange import Answer, Ask, item_faults
from openresponses_bridge.conformance.scenario import (
    Play,
    Target,
    expect,
    expect_refusal,
    expect_whole,
    items,
    need_route,
    need_support,
    scenario,
    text_of,
)

_PATH = "/responses/compact"
_HISTORY = [
    {"type": "message", "role": "user", "content": "We agreed to launch on Tuesday."},
    {"type": "message", "role": "assistant", "content": "Understood: the launch is on Tuesday."},
]
_FIELDS = ("input_tokens", "output_tokens", "total_tokens")


def _window(answer: Answer, target: Target) -> dict[str, Any]:
    """The compacted window; it must keep schema CompactResource."""
    need_route(answer, "compaction")
    need_support(answer, "compaction")
    expect(answer.status == 200, f"status {answer.status}")
    window = answer.json if isinstance(answer.json, dict) else {}
    expect(window.get("object") == "response.compaction", f"object is {window.get('object')!r}")
    expect(isinstance(window.get("id"), str), "there is no id")
    expect(isinstance(window.get("created_at"), int), "created_at is not an integer")
    usage = window.get("usage") or {}
    expect(all(isinstance(usage.get(name), int) for name in _FIELDS), "usage does not count tokens")
    output = window.get("output")
    for index, item in enumerate(output if isinstance(output, list) else []):
        faults = item_faults(item, target.wire)
        expect(not faults, f"output[{index}] leaves the schema: {'; '.join(map(str, faults[:3]))}")
    expect(items(window, "compaction"), "the output has no compaction item")
    return window


@scenario("Compaction", "full")
def compaction_window(target: Target) -> Play:
    """A conversation is condensed into a window with a compaction item."""
    _window((yield Ask(path=_PATH, body={"model": target.model, "input": _HISTORY})), target)


@scenario("schema CompactResponseMethodPublicBody", "full")
def compaction_without_model(target: Target) -> Play:
    """Without a model it is refused."""
    answer = yield Ask(path=_PATH, body={"input": _HISTORY})
    need_route(answer, "compaction")
    expect_refusal(answer, 400, 422)


@scenario("Compaction", "full")
def compaction_new_chain(target: Target) -> Play:
    """The window and a new message begin a new chain."""
    window = _window((yield Ask(path=_PATH, body={"model": target.model, "input": _HISTORY})), target)
    question = {"type": "message", "role": "user", "content": "When is the launch?"}
    answer = yield target.create(input=[*window["output"], question], store=False)
    text = text_of(expect_whole(answer, target))
    expect("tuesday" in text.lower(), f"what was agreed is not known in the new chain: {text!r:.120}")
