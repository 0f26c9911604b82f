"""Calls that carry items: tool calls side by side by index, whole items, extensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from msgspec import UNSET

from bridge.emitter.arguments import fields_of, index_of, text_of, wrong_argument
from bridge.emitter.guarded import GuardedStream
from bridge.emitter.tool_calls import nameless
from bridge.protocol.codec import item_from
from bridge.protocol.events import Event, FunctionCallArgumentsDelta
from bridge.protocol.items import Item, MessagePhase
from bridge.protocol.lenient import Repair
from bridge.protocol.unknown import UnknownEvent
from bridge.protocol.vocabulary import EVENTS
from bridge.state import BlockState, ResponseStreamPhase

# by name, since Python 3.11 runs code for each look at an enum's member
_IN_PROGRESS = ResponseStreamPhase.IN_PROGRESS
_OPEN = BlockState.OPEN
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
        if arguments and not id and not name and arguments.__class__ is str and index.__class__ is int:
            block = self._blocks.calls.by_index.get(index)
            if block is not None and block.state is _OPEN:
                if not block.plain or not arguments.isascii() or block.buffer.held:
                    return block.delta(arguments)
                # the common fragment: JSON of an open call, nothing held back, so it goes out as it is
                block.write(arguments)
                item_id, output_index = block.item_id, block.output_index
                return [FunctionCallArgumentsDelta(self._number(), item_id, output_index, arguments)]
        index = index_of("tool_call", index)
        facts = (("id", id), ("name", name), ("arguments", arguments), ("namespace", namespace))
        for field, value in facts:
            if value is not None and not isinstance(value, str):
                raise wrong_argument("tool_call", f"{field} is no string but {value.__class__.__name__}")
        if type not in ("function", "custom"):
            raise wrong_argument("tool_call", f"type is function or custom, not {type!r}")
        return self._blocks.call(index, id or "", name or "", arguments or "", type == "custom", namespace)

    def tool_call_done(self, index: int, *, cut: bool = False) -> list[Event]:
        """The call at `index` is whole. Arguments that end before their JSON does are cut (law E7), and
        `cut` says that upstream knows them to be."""
        self._require("tool_call_done")
        block = self._blocks.calls.by_index.get(index_of("tool_call_done", index))
        if block is None:
            raise wrong_argument("tool_call_done", f"there is no tool call at index {index}")
        if not block.upstream_name:
            raise nameless("tool_call_done", index)
        return self._blocks.calls.end(index, cut)

    # ── whole items and extensions ─────────────────────────────────────────────────────────────────
    def expect_item(self, item_id: str, phase: MessagePhase | None = None) -> list[Event]:
        """The next item to open has this id at its upstream (kept if it is free); a message has this
        phase."""
        self._require("expect_item")
        if phase not in (None, *get_args(MessagePhase)):
            raise wrong_argument("expect_item", f"phase is commentary or final_answer, not {phase!r}")
        self._blocks.expect(text_of("expect_item", item_id), phase or UNSET)
        return []

    def item_added(self, item: Item | Mapping[str, Any]) -> list[Event]:
        """Announce an item that a server fills by itself; `item()` with its id tells it whole. A reasoning
        item is opened: upstreams announce one long before it has words, if it ever gets any."""
        self._require("item_added")
        return self._blocks.announce(self._item("item_added", item))

    def item_event(self, item_id: str, type: str, fields: Mapping[str, Any]) -> list[Event]:
        """Progress of an announced item, `response.web_search_call.searching` say. Types that are not
        published get a slug where only published ones are known (law E10)."""
        self._require("item_event")
        block = self._blocks.items.announced(item_id)
        if block is None:
            raise wrong_argument("item_event", f"no item {item_id!r} is announced and open")
        kind = text_of("item_event", type)
        if not kind or kind in EVENTS.structs:
            raise wrong_argument("item_event", f"{type!r} is no progress of an item")
        where = {"item_id": block.item_id, "output_index": block.output_index}
        spelled = kind if ":" in kind else self._wire.slug + kind
        return [self._extension(spelled, {**fields_of("item_event", fields), **where})]

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        """A whole item at once: the same events as if it had been streamed."""
        self._require("item")
        return self._blocks.item(self._item("item", item))

    def extension_event(self, type: str, fields: Mapping[str, Any]) -> list[Event]:
        """An event of an extension, `slug:name` (specification, "Extensions")."""
        self._require("extension_event")
        if not _SLUG.fullmatch(text_of("extension_event", type)):
            raise wrong_argument("extension_event", f"an extension's type is slug:name, not {type!r}")
        return [self._extension(type, fields_of("extension_event", fields))]

    def _extension(self, type: str, fields: dict[str, Any]) -> Event:
        head = {"type": type, "sequence_number": self._number()}
        return UnknownEvent(head | {name: value for name, value in fields.items() if name not in head})

    def _item(self, call: str, item: Item | Mapping[str, Any]) -> Item:
        if not isinstance(item, Mapping):
            return item
        repairs: list[Repair] = []
        built = item_from(dict(item), repairs)
        self._blocks.items.check(call, built)
        for path, what in repairs:
            self.diagnostics.repair(f"{call}.{built.type}{path.removeprefix('$')}", what)
        return built
