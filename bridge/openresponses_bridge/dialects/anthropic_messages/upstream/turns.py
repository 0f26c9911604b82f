"""The turns of an outgoing conversation, held to the Messages API's rules: a user begins, roles
alternate, tool results lead their turn, no thinking ends one."""

from __future__ import annotations

import re
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics

Block = dict[str, Any]

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_OPENING: Final = "(earlier conversation)"
THINKING_BLOCKS: Final = frozenset({"thinking", "redacted_thinking"})


class Turns:
    """Blocks are added by role; adjacent ones of one role are one turn."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._turns: list[dict[str, Any]] = []
        self._tool_ids: set[str] = set()

    def add(self, role: str, blocks: list[Block]) -> None:
        """Append to the turn of this role, begun when the last one is the other's."""
        if not self._turns or self._turns[-1]["role"] != role:
            self._turns.append({"role": role, "content": []})
        self._turns[-1]["content"].extend(blocks)

    def tool_id(self, call_id: str) -> str:
        """A legal id for a call, used once in the conversation."""
        legal = candidate = _ILLEGAL.sub("_", call_id) or "call"
        turn = 1
        while candidate in self._tool_ids:
            turn += 1
            candidate = f"{legal}_{turn}"
        self._tool_ids.add(candidate)
        return candidate

    def finished(self) -> list[dict[str, Any]]:
        """The messages. Empty when nobody said anything."""
        turns = [turn for turn in map(self._trimmed, self._turns) if turn["content"]]
        merged: list[dict[str, Any]] = []
        for turn in turns:
            if merged and merged[-1]["role"] == turn["role"]:
                merged[-1]["content"].extend(turn["content"])
            else:
                merged.append(turn)
        if merged and merged[0]["role"] != "user":
            self._diagnostics.repair("messages", "a user's turn put before the assistant's first")
            merged.insert(0, {"role": "user", "content": [{"type": "text", "text": _OPENING}]})
        if merged and merged[-1]["role"] == "assistant":
            self._trim_prefill(merged[-1]["content"][-1])
        return merged

    def _trimmed(self, turn: dict[str, Any]) -> dict[str, Any]:
        content: list[Block] = turn["content"]
        while turn["role"] == "assistant" and content and content[-1]["type"] in THINKING_BLOCKS:
            content.pop()
            self._diagnostics.loss("reasoning", "nothing follows it in its turn, left out")
        return turn

    def _trim_prefill(self, last: Block) -> None:
        if last["type"] == "text" and last["text"] != last["text"].rstrip():
            last["text"] = last["text"].rstrip()
            self._diagnostics.repair("messages", "white space cut from the end of the assistant's last text")


def lacks_thinking(messages: list[dict[str, Any]]) -> bool:
    """Whether the tool calls that are being answered came without thinking: then it can't be asked for
    with a budget (an error of the API's)."""
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return False
    return messages[-2]["content"][0]["type"] not in THINKING_BLOCKS
