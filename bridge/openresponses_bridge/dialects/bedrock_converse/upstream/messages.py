"""Converts input items to a system prompt and messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import CallView, OutputView
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    BREAKPOINT,
    CONTINUE,
    CONTINUED,
    BaseBuilder,
    Entry,
    is_breakpoint,
    place,
    searched,
)
from openresponses_bridge.dialects.bedrock_converse.carried import CarriedFields, system_text
from openresponses_bridge.dialects.bedrock_converse.options import ConverseOptions
from openresponses_bridge.dialects.bedrock_converse.reasoning import KIND, open_reasoning
from openresponses_bridge.dialects.bedrock_converse.types import CACHE_POINT, REASONING, SLUG, kind_of
from openresponses_bridge.dialects.bedrock_converse.upstream.content import Block, BlockEncoder
from openresponses_bridge.protocol.ids import free_id
from openresponses_bridge.seal import Sealer

_USER, _ASSISTANT = "user", "assistant"
_SYSTEM: Final = ("system", "developer")
_OPENING: Final = "(earlier conversation)"
_ATTACHED: Final = "(attached)"
_NO_OUTPUT: Final = "(no output)"
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_.:-]")
_LONGEST_ID: Final = 64
_MOST_POINTS: Final = 4
_IN_RESULTS: Final = frozenset({"json", "text", "image", "document", "video", "searchResult"})
POINT: Final[Block] = {CACHE_POINT: {"type": "default"}}


class _Turns:
    """Messages by the rules of the API: the first is the user's, roles alternate, results come first in their
    message, the last is not the assistant's."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._turns: list[dict[str, Any]] = []
        self._ids: dict[str, int] = {}

    def add(self, role: str, blocks: list[Block]) -> None:
        """Append to the last message, or to a new one if its role is another."""
        if not self._turns or self._turns[-1]["role"] != role:
            self._turns.append({"role": role, "content": []})
        self._turns[-1]["content"] += blocks

    def tool_id(self, call_id: str) -> str:
        """Return a valid id for a call, unique in the conversation."""
        unique = free_id(self._ids, _ILLEGAL.sub("_", call_id)[:_LONGEST_ID] or "call")
        self._ids[unique] = 1
        return unique

    def finished(self) -> list[dict[str, Any]]:
        """Return the messages; empty if there are no blocks."""
        messages: list[dict[str, Any]] = []
        for turn in map(self._trimmed, self._turns):
            if messages and messages[-1]["role"] == turn["role"]:
                messages[-1]["content"] += turn["content"]
            elif turn["content"]:
                messages.append(turn)
        if messages and messages[0]["role"] == _ASSISTANT:
            self._diagnostics.repair("messages", "a user message put before the assistant's first")
            messages.insert(0, {"role": _USER, "content": [{"text": _OPENING}]})
        if messages and messages[-1]["role"] == _ASSISTANT:
            self._diagnostics.repair("messages", CONTINUED)
            messages.append({"role": _USER, "content": [{"text": CONTINUE}]})
        for turn in messages:
            self._add_text(turn)
        return messages

    def _trimmed(self, turn: dict[str, Any]) -> dict[str, Any]:
        content: list[Block] = turn["content"]
        while turn["role"] == _ASSISTANT and content and REASONING in content[-1]:
            content.pop()
            self._diagnostics.loss("reasoning", "nothing follows it in its turn, left out")
        if content and all(CACHE_POINT in block for block in content):
            content.clear()
        return turn

    def _add_text(self, turn: dict[str, Any]) -> None:
        """Add a text to a message with a document and no text, which the API refuses."""
        kinds = {kind_of(block) for block in turn["content"]}
        if "document" in kinds and "text" not in kinds and turn["role"] == _USER:
            turn["content"].append({"text": _ATTACHED})
            self._diagnostics.repair("messages", "a text was added, since a document needs one")


class MessagesBuilder(BaseBuilder[CarriedFields]):
    """Builds the system prompt and the messages from the entries of a request. A call's output comes directly
    after the message of the call, wherever it was in the input; later system messages become reminders in the
    user's messages."""

    server = "a Converse server"

    def __init__(
        self,
        entries: Sequence[Entry],
        identities: ToolIdentityMap,
        sealer: Sealer,
        options: ConverseOptions,
        carried: CarriedFields,
        diagnostics: Diagnostics,
    ) -> None:
        super().__init__(entries, identities, sealer, carried, diagnostics)
        if self._before is None and (carried.blocks or carried.points or carried.wholes):
            diagnostics.loss("messages", "the client's own fields are of another conversation, left out")
        self._content = BlockEncoder(options, sealer, diagnostics)
        self._turns = _Turns(diagnostics)
        self._open: list[tuple[str, int, int]] = []  # open calls: (id, index of the call, of the output)
        self.system: list[Block] = []
        self.points = 0
        """The number of the client's cache points."""

    def build(self, instructions: str | None) -> list[dict[str, Any]]:
        """Return the messages, after which `system` is complete too. Raises InvalidRequestError."""
        carried = self._carried
        if carried.system and system_text(carried.system) == (instructions or ""):
            self.system += [self._content.own(each, "system") for each in carried.system]
        elif instructions and instructions.strip():
            self.system.append({"text": instructions})
        self._walk()
        messages = self._turns.finished()
        self._limit_points(messages)
        return messages

    def _limit_points(self, messages: list[dict[str, Any]]) -> None:
        """Keep the last cache points of the messages, as many as the API accepts."""
        left = _MOST_POINTS - sum(CACHE_POINT in block for block in self.system)
        self.points = _MOST_POINTS - left
        for turn in reversed(messages):
            blocks: list[Block] = []
            for block in reversed(turn["content"]):
                if CACHE_POINT in block:
                    self.points += 1
                    left -= 1
                    if left < 0:
                        self._diagnostics.loss(
                            BREAKPOINT, f"the upstream takes {_MOST_POINTS}, the last are sent"
                        )
                        continue
                blocks.append(block)
            turn["content"][:] = reversed(blocks)

    def _own(self, block: Block, index: int, number: int | None = None) -> list[Block]:
        """Return the block with the client's own fields, and the cache point after it."""
        if self._before is None:
            return [block]
        at, kind = place(index - self._before, number), kind_of(block)
        fields = self._carried.blocks.get(at)
        if fields is not None and isinstance(block[kind], dict):
            block = {kind: {**block[kind], **self._content.own(fields, self._entries[index].param)}}
        point = self._carried.points.get(at)
        return [block] if point is None else [block, point]

    def _whole(self, index: int, number: int | None = None) -> Block | None:
        """Return the block as the client sent it; None if the item has all of it."""
        own = None
        if self._before is not None:
            own = self._carried.wholes.get(place(index - self._before, number))
        return None if own is None else self._content.own(own, self._entries[index].param)

    def _blocks(self, content: Any, index: int, field: str) -> list[Block]:
        """Return the blocks of a message or an output."""
        if isinstance(content, str):
            return [{"text": content}] if content.strip() else []
        at = self._entries[index].at(field)
        blocks: list[Block] = []
        for number, part in enumerate(content):
            breaks = is_breakpoint(getattr(part, "extra", None))
            block = self._whole(index, number) or self._content.block(part, f"{at}[{number}]")
            if block is None:
                if breaks:
                    self._diagnostics.loss(BREAKPOINT, "its part is left out")
                continue
            blocks += self._own(block, index, number)
            if breaks and CACHE_POINT not in blocks[-1]:
                blocks.append(POINT)
        return blocks

    def _message(self, item: Any, index: int) -> None:
        blocks = self._blocks(item.content, index, "content")
        if not blocks:
            self._diagnostics.ignored("message", "blank, left out")
        elif item.role in _SYSTEM and self._is_inline(index):
            self._answer(index)
            self._turns.add("system", blocks)
        elif item.role in _SYSTEM:
            self._instruct(blocks, index)
        elif item.role == _ASSISTANT:
            if getattr(item, "phase", None):
                self._diagnostics.loss("message.phase", "Converse knows no phases")
            self._begun = True
            self._turns.add(_ASSISTANT, blocks)
        else:
            self._begun = True
            self._answer(index)
            self._turns.add(_USER, blocks)

    def _is_inline(self, index: int) -> bool:
        return self._before is not None and self._begun and index - self._before in self._carried.inline

    def _instruct(self, blocks: list[Block], index: int) -> None:
        """Add a message of the system: at the beginning to the system prompt, later as a reminder in the
        user's."""
        texts = [block for block in blocks if "text" in block or CACHE_POINT in block]
        if len(texts) < len(blocks):
            self._diagnostics.loss("message.system", "only its text is an instruction")
        if not self._begun:
            self.system += texts
            return
        self._diagnostics.repair(
            self._entries[index].where, "a later system message, sent as a reminder of the user's"
        )
        self._answer(index)
        text = "\n\n".join(block["text"] for block in texts if "text" in block)
        points = [block for block in texts if CACHE_POINT in block][-1:]
        self._turns.add(_USER, [{"text": f"<system-reminder>\n{text}\n</system-reminder>"}, *points])

    def _add_call(self, call: CallView, arguments: dict[str, Any], index: int, answer: int) -> None:
        tool_id = self._turns.tool_id(call.call_id)
        if tool_id != call.call_id:
            where = self._entries[index].where
            self._diagnostics.repair(f"{where}.call_id", "changed to what the upstream accepts")
        block: Block = {"toolUse": {"toolUseId": tool_id, "name": call.name, "input": arguments}}
        self._turns.add(_ASSISTANT, self._own(block, index))
        self._open.append((tool_id, index, answer))

    def _answer(self, index: int) -> None:
        """Answer all open calls, since the entry at `index` is not the assistant's."""
        for tool_id, _, answer in self._open:
            if self._is_moved_up(answer, index):
                where = self._entries[answer].where
                self._diagnostics.repair(where, "a tool output was moved up to its call")
            self._turns.add(_USER, self._result(tool_id, answer))
        self._open = []

    def _result(self, tool_id: str, index: int) -> list[Block]:
        output = self._views[index]
        assert isinstance(output, OutputView)
        blocks = self._blocks(output.output, index, "output")
        points = [block for block in blocks if CACHE_POINT in block]
        content = [block for block in blocks if kind_of(block) in _IN_RESULTS]
        for block in blocks:
            if block not in points and block not in content:
                self._diagnostics.loss(
                    f"{self._entries[index].where}.output", f"a result has no {kind_of(block)}"
                )
        result: Block = {"toolUseId": tool_id, "content": content or [{"text": _NO_OUTPUT}]}
        if output.failed:
            result["status"] = "error"
        result_blocks = self._own({"toolResult": result}, index)
        return result_blocks if CACHE_POINT in result_blocks[-1] else result_blocks + points[-1:]

    def _reasoning(self, item: Any, index: int) -> None:
        encrypted, where = item.encrypted_content, self._entries[index].where
        if encrypted:
            reasoning = open_reasoning(self._sealer, encrypted)
            if reasoning is None:
                why = "can't be opened here" if f".{KIND}." in encrypted else "another upstream's"
                self._diagnostics.loss(where, f"reasoning that is sealed: {why}")
                return
            self._begun = True
            self._turns.add(_ASSISTANT, self._own({REASONING: reasoning}, index))
        elif (own := self._whole(index)) is not None:
            self._begun = True
            self._turns.add(_ASSISTANT, self._own(own, index))
        elif any(part.text.strip() for part in item.content or item.summary):
            self._diagnostics.loss(where, "reasoning without a signature can't be sent back")

    def _other(self, item: Any, index: int) -> None:
        if (search := searched(item)) is not None:
            self._diagnostics.loss(self._entries[index].where, "a search, sent as text")
            self._begun = True
            self._turns.add(_ASSISTANT, [{"text": search.text()}])
            return
        raw = getattr(item, "raw", {}) if item.type.startswith(SLUG) else {}
        block, role = raw.get("block"), raw.get("role", _ASSISTANT)
        if not isinstance(block, dict) or not block or role not in (_USER, _ASSISTANT, "system"):
            self._diagnostics.loss(f"item.{item.type[:64]}", "Converse has no such block")
            return
        if role != _ASSISTANT:
            self._answer(index)
        self._begun = True
        self._turns.add(role, self._own(self._content.own(block, self._entries[index].param), index))
