"""Calls that carry items: tool calls side by side by index, whole items, extensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from bridge.emitter.arguments import text_of, wrong_argument
from bridge.emitter.guarded import GuardedStream
from bridge.errors import StreamStateError
from bridge.protocol.codec import item_from
from bridge.protocol.events import Event
from bridge.protocol.items import Item, MessagePhase
from bridge.protocol.unknown import UnknownEvent
from bridge.state import BlockState, ResponseStreamPhase

_IN_PROGRESS = ResponseStreamPhase.IN_PROGRESS
_SLUG = re.compile(r"[A-Za-z0-9_-]+:[A-Za-z0-9_.:-]+")


class ItemCalls(GuardedStream):
    """The items of a response that are not words."""

    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
        namespace: str | None = None,
    ) -> list[Event]:
        """One fragment of the call at the upstream's `index`. It is announced once its name is known.

        `type` is `function` (arguments are JSON) or `custom` (arguments are free text); `namespace`
        is for an upstream that has namespaces itself.
        """
        if self._live.phase is not _IN_PROGRESS:
            raise self._refusal("tool_call")
        block = self._blocks.calls.by_index.get(index)
        if block is not None and block.state is BlockState.OPEN and not id and not name and arguments:
            return block.delta(text_of("tool_call", arguments))
        facts = (("id", id), ("name", name), ("arguments", arguments))
        for field, value in facts:
            if value is not None and not isinstance(value, str):
                raise wrong_argument("tool_call", f"{field} is no string but {value.__class__.__name__}")
        if type not in ("function", "custom"):
            raise wrong_argument("tool_call", f"type is function or custom, not {type!r}")
        return self._blocks.call(index, id or "", name or "", arguments or "", type == "custom", namespace)

    def tool_call_done(self, index: int) -> list[Event]:
        """The call at `index` is whole. Arguments that end before their JSON does are cut (law E7)."""
        self._require("tool_call_done")
        block = self._blocks.calls.by_index.get(index)
        if block is None:
            raise wrong_argument("tool_call_done", f"there is no tool call at index {index}")
        if not block.upstream_name:
            raise StreamStateError(
                StreamStateError.INCOMPLETE_TOOL_CALL,
                f"tool_call_done: the tool call at index {index} never got a name",
                call="tool_call_done",
                index=index,
            )
        return self._blocks.calls.end(index)

    # ── whole items and extensions ─────────────────────────────────────────────────────────────────
    def expect_item(self, item_id: str, phase: MessagePhase | None = None) -> list[Event]:
        """The next item to open has this id at its upstream (kept if it is free); a message has this
        phase."""
        self._require("expect_item")
        self._blocks.expect(item_id, phase or UNSET)
        return []

    def item_added(self, item: Item | Mapping[str, Any]) -> list[Event]:
        """Announce an item that a server fills by itself; `item()` with its id tells it whole."""
        self._require("item_added")
        return self._blocks.announce(item_from(dict(item)) if isinstance(item, Mapping) else item)

    def item_event(self, item_id: str, type: str, fields: Mapping[str, Any]) -> list[Event]:
        """Progress of an announced item, `response.web_search_call.searching` say. Types that are not
        published get a slug where only published ones are known (law E10)."""
        self._require("item_event")
        block = self._blocks.items.announced(item_id)
        if block is None:
            raise wrong_argument("item_event", f"no item {item_id!r} is announced and open")
        where = {"item_id": block.item_id, "output_index": block.output_index}
        spelled = type if ":" in type else self._wire.slug + type
        return [self._extension(spelled, {**fields, **where})]

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        """A whole item at once: the same events as if it had been streamed."""
        self._require("item")
        whole: Item = item_from(dict(item)) if isinstance(item, Mapping) else item
        return self._blocks.item(whole)

    def extension_event(self, type: str, fields: Mapping[str, Any]) -> list[Event]:
        """An event of an extension, `slug:name` (specification, "Extensions")."""
        self._require("extension_event")
        if not _SLUG.fullmatch(type):
            raise wrong_argument("extension_event", f"an extension's type is slug:name, not {type!r}")
        return [self._extension(type, fields)]

    def _extension(self, type: str, fields: Mapping[str, Any]) -> Event:
        head = {"type": type, "sequence_number": self._number()}
        return UnknownEvent(head | {name: value for name, value in fields.items() if name not in head})
