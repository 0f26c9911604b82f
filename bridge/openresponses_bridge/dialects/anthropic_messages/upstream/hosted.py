"""The incoming blocks that are neither text nor calls of the client's tools: whole items at their end."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.calls.json_text import JsonState, json_state
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.dialects.anthropic_messages.envelopes import seal_block
from openresponses_bridge.dialects.anthropic_messages.types import SLUG
from openresponses_bridge.dialects.anthropic_messages.upstream.context import MessageContext
from openresponses_bridge.dialects.base import extension
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import CompactionItem
from openresponses_bridge.protocol.unknown import UnknownItem


class CompactionBlock:
    """A condensed history; it stands for all that was said before it."""

    __slots__ = ("_block", "_content", "_context")

    def __init__(self, context: MessageContext, block: dict[str, Any]) -> None:
        self._context = context
        self._block = dict(block)
        self._content: list[str] = []

    def begin(self) -> list[Event]:
        return []

    def feed(self, delta: t.Delta) -> list[Event]:
        if type(delta) is not t.CompactionDelta:
            return self._context.misplaced(delta, "compaction")
        self._content += [delta.content] if delta.content else []
        if delta.encrypted_content:
            self._block["encrypted_content"] = delta.encrypted_content
        return []

    def stop(self) -> list[Event]:
        if self._content:
            self._block["content"] = "".join(self._content)
        self._context.position = 0
        return self._context.machine.item(CompactionItem("", seal_block(self._context.sealer, self._block)))


class HostedBlock:
    """What Anthropic's own tools did (server tools, MCP, containers), and any kind we do not know: an
    extension item that holds the block as it came."""

    __slots__ = ("_block", "_context", "_json")

    def __init__(self, context: MessageContext, block: dict[str, Any]) -> None:
        self._context = context
        self._block = dict(block)
        self._json: list[str] = []

    def begin(self) -> list[Event]:
        return []

    def feed(self, delta: t.Delta) -> list[Event]:
        if type(delta) is not t.InputJsonDelta:
            return self._context.misplaced(delta, str(self._block.get("type")))
        self._json += [delta.partial_json] if delta.partial_json else []
        return []

    def stop(self) -> list[Event]:
        status = "completed"
        text = "".join(self._json)
        if text.strip():
            try:
                self._block["input"] = decode_json(text)
            except WireError:
                cut = json_state(text) is JsonState.TRUNCATED
                status = "incomplete" if cut else status
                what = "cut" if cut else "malformed, left out"
                self._context.diagnostics.loss(f"{self._block['type']}.input", what)
        self._context.position = 0
        fields = {"type": extension(SLUG, self._block["type"]), "id": self._id(), "status": status}
        return self._context.machine.item(UnknownItem({**fields, "block": self._block}))

    def _id(self) -> str:
        own, answered = self._block.get("id"), self._block.get("tool_use_id")
        return str(own) if own else f"{answered}_result" if answered else ""
