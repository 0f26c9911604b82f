"""Input items → system prompt and messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.pairing import pair
from openresponses_bridge.calls.presentation import CallView, OutputView, call_view, output_view
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import envelopes
from openresponses_bridge.dialects.anthropic_messages.carried import JOINT, NOTHING, Carried, place
from openresponses_bridge.dialects.anthropic_messages.models import MessagesOptions
from openresponses_bridge.dialects.anthropic_messages.types import SLUG, tool_input
from openresponses_bridge.dialects.anthropic_messages.upstream.content import Content
from openresponses_bridge.dialects.anthropic_messages.upstream.turns import Turns
from openresponses_bridge.dialects.base import HISTORY, Entry
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.seal import Sealer, SealError

Block = dict[str, Any]


class MessagesBuilder:
    """Builds both from the entries of a request.

    A call's output stands right behind its turn, wherever it stood in the input. System and developer
    messages all go to the system prompt: Anthropic has no other place for them.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        identities: ToolIdentityMap,
        sealer: Sealer,
        options: MessagesOptions,
        diagnostics: Diagnostics,
        carried: Carried = NOTHING,
    ) -> None:
        self._entries = entries
        self._carried = carried
        # places count the items of the client's own request
        own = sum(entry.param != HISTORY for entry in entries)
        self._before: int | None = len(entries) - own if carried.items == own else None
        if self._before is None and carried.blocks:
            diagnostics.loss("cache_control", "what was said of the blocks of another conversation, left out")
        self._sealer = sealer
        self._options = options
        self._diagnostics = diagnostics
        self._content = Content(diagnostics)
        self._turns = Turns(diagnostics)
        self._views: list[CallView | OutputView | None] = [
            call_view(entry.item, identities) or output_view(entry.item, identities) for entry in entries
        ]
        self._answers = pair(self._views, lambda index: entries[index].param)
        self._open: list[tuple[str, int]] = []  # (tool_use id, index of its output), not yet answered
        self._begun = False  # whether anyone but the system has spoken
        self.system: list[Block] = []
        self._handlers: dict[str, Callable[[Any, int], None]] = {
            "message": self._message,
            "reasoning": self._reasoning,
            "compaction": self._compaction,
            "item_reference": self._reference,
            "additional_tools": self._nothing,
            "tool_search_output": self._nothing,
        }

    def build(self, instructions: str | None) -> list[dict[str, Any]]:
        """The messages; `system` is then complete too. Raises InvalidRequestError."""
        blocks = [block for block in self._carried.system if block["text"].strip()]
        if blocks and JOINT.join(block["text"] for block in self._carried.system) == instructions:
            self.system += blocks
        else:
            self.system += self._content.blocks(instructions or "", "instructions")
        for index, entry in enumerate(self._entries):
            view = self._views[index]
            if isinstance(view, CallView):
                self._call(view, index)
            elif isinstance(view, OutputView):
                self._answer(index)
            else:
                self._handlers.get(entry.item.type, self._other)(entry.item, index)
        self._answer(len(self._entries))
        return self._turns.finished()

    def _marks(self, index: int, part: int | None = None) -> Block:
        """What the client's own block has beyond its counterpart."""
        return {} if self._before is None else self._carried.blocks.get(place(index - self._before, part), {})

    # ── messages ───────────────────────────────────────────────────────────────────────────────────
    def _message(self, item: Any, index: int) -> None:
        at = self._entries[index].at("content")
        blocks = self._content.blocks(item.content, at, lambda part: self._marks(index, part))
        if not blocks:
            self._diagnostics.ignored("message", "blank, left out")
        elif item.role == "assistant":
            if getattr(item, "phase", None):
                self._diagnostics.loss("message.phase", "Anthropic knows no phases")
            self._begun = True
            self._turns.add("assistant", blocks)
        elif item.role == "user":
            self._begun = True
            self._answer(index)
            self._turns.add("user", blocks)
        elif self._before is not None and index - self._before in self._carried.inline:
            self._answer(index)
            self._turns.add("system", blocks)
        else:
            self._instruct(blocks)

    def _instruct(self, blocks: list[Block]) -> None:
        texts = [block for block in blocks if block["type"] == "text"]
        if len(texts) < len(blocks):
            self._diagnostics.loss("message.system", "only its text has a place in the system prompt")
        if self._begun:
            self._diagnostics.loss("message.system", "moved from within the conversation to its head")
        self.system += texts

    # ── calls and outputs ──────────────────────────────────────────────────────────────────────────
    def _call(self, call: CallView, index: int) -> None:
        answer = self._answers[index]
        if answer is None:
            self._diagnostics.loss("function_call", "was cut and never run, left out")
            return
        tool_id = self._turns.tool_id(call.call_id)
        block = {"type": "tool_use", "id": tool_id, "name": call.name, "input": tool_input(call.arguments)}
        block |= self._marks(index)
        self._turns.add("assistant", [block])
        self._open.append((tool_id, answer))

    def _answer(self, index: int) -> None:
        """Someone else than the assistant speaks at `index`: first all open calls are answered."""
        for tool_id, answer in self._open:
            if any(view is None for view in self._views[index:answer]):
                self._diagnostics.repair("function_call_output", "moved up to its call")
            self._turns.add("user", [self._result(tool_id, answer)])
        self._open = []

    def _result(self, tool_id: str, index: int) -> Block:
        output = self._views[index]
        assert isinstance(output, OutputView)
        block: Block = {"type": "tool_result", "tool_use_id": tool_id}
        at = self._entries[index].at("output")
        content = self._content.blocks(output.output, at, lambda part: self._marks(index, part))
        if content:
            block["content"] = content
        if output.failed:
            block["is_error"] = True
        return block | self._marks(index)

    # ── opaque items ───────────────────────────────────────────────────────────────────────────────
    def _reasoning(self, item: Any, index: int) -> None:
        encrypted = item.encrypted_content
        if encrypted:
            block = self._opened(encrypted, self._entries[index].at("encrypted_content"))
            if block is not None:
                self._turns.add("assistant", [block])
            return
        text = "\n\n".join(part.text for part in item.content or item.summary if part.text)
        if not text.strip():
            return
        if self._options.unsigned_thinking:
            self._turns.add("assistant", [{"type": "thinking", "thinking": text, "signature": ""}])
            if item.content and any(part.text for part in item.summary):
                self._diagnostics.loss("reasoning.summary", "left out beside the reasoning itself")
        else:
            self._diagnostics.loss("reasoning", "has no signature, can't be sent back")

    def _opened(self, encrypted: str, param: str) -> Block | None:
        try:
            kind, block = envelopes.open_sealed(self._sealer, encrypted)
        except SealError as error:
            if self._options.foreign_reasoning == "drop":
                self._diagnostics.loss("reasoning", f"can't be opened here ({error.code})")
                return None
            raise InvalidRequestError(error.code, error.message, param=param) from error
        if kind in (envelopes.THINKING, envelopes.REDACTED):
            return block
        self._diagnostics.loss("reasoning", "another upstream's")
        return None

    def _compaction(self, item: Any, index: int) -> None:
        param = self._entries[index].at("encrypted_content")
        try:
            kind, block = envelopes.open_sealed(self._sealer, item.encrypted_content)
        except SealError as error:
            raise InvalidRequestError(error.code, error.message, param=param) from error
        if kind != envelopes.COMPACTION:
            raise InvalidRequestError(
                InvalidRequestError.UNSUPPORTED, "a history condensed by another upstream", param=param
            )
        self._turns.add("assistant", [block | self._marks(index)])

    def _reference(self, item: Any, index: int) -> None:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE,
            f"the item {item.id!r} is not known here",
            param=self._entries[index].param,
        )

    def _nothing(self, _item: Any, _index: int) -> None:
        """Tools declared within the input: the request's tools hold them."""

    def _other(self, item: Any, index: int) -> None:
        raw = getattr(item, "raw", {})
        block, role = raw.get("block"), raw.get("role")
        if item.type.startswith(SLUG) and isinstance(block, dict) and "type" in block:
            if role == "user":
                self._answer(index)
            self._turns.add("user" if role == "user" else "assistant", [block | self._marks(index)])
        else:
            self._diagnostics.loss(f"item.{item.type[:64]}", "Anthropic has no such block")
