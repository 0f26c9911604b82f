"""Items of earlier turns and of the request itself → the `input` of an upstream that speaks Responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.pairing import pair
from openresponses_bridge.calls.presentation import CallView, OutputView, call_view, output_view
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import Entry
from openresponses_bridge.dialects.responses.options import ResponsesOptions
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.unknown import UnknownItem, enc_hook
from openresponses_bridge.seal import is_envelope

_SLUG = "openai:"
# the items that every server knows, and their fields which every server knows
PUBLISHED = frozenset(
    {"message", "function_call", "function_call_output", "reasoning", "compaction", "item_reference"}
)
_NULLS = frozenset({"arguments", "output"})  # where null is a value
_Plain = dict[str, Any]


def plain(value: Any) -> Any:
    """A protocol value as JSON has it, OpenAI's types under their own names."""
    found = msgspec.to_builtins(value, enc_hook=enc_hook)
    if isinstance(found, dict) and str(found.get("type")).startswith(_SLUG):
        return {**found, "type": found["type"].removeprefix(_SLUG)}
    return found


class InputItems:
    """Builds the input: `build(entries, joined)`."""

    def __init__(
        self, identities: ToolIdentityMap, options: ResponsesOptions, diagnostics: Diagnostics
    ) -> None:
        self._identities = identities
        self._options = options
        self._diagnostics = diagnostics

    def build(self, entries: Sequence[Entry], joined: bool) -> list[_Plain]:
        """`joined`: the upstream holds the turns before, so that calls may be answered which are not
        here. Raises InvalidRequestError with the item's place."""
        views: list[Any] = [
            call_view(entry.item, self._identities) or output_view(entry.item, self._identities)
            for entry in entries
        ]
        cut = frozenset[int]()
        if not joined:
            answers = pair(views, lambda index: entries[index].param)
            cut = frozenset(index for index, answer in answers.items() if answer is None)
            for call, answer in answers.items():
                if answer is not None:  # it may have named the call by its item
                    views[answer] = views[answer]._replace(call_id=views[call].call_id)
        found = []
        for index, entry in enumerate(entries):
            if index in cut:
                self._diagnostics.loss(entry.param, "a call that was cut and never answered")
            elif (made := self._item(entry.item, views[index], entry.param)) is not None:
                found.append(made)
        return found

    def _item(self, item: Any, view: CallView | OutputView | None, where: str) -> _Plain | None:
        if item.type == "item_reference" and not self._options.stateful:
            raise InvalidRequestError(
                InvalidRequestError.INVALID_VALUE, f"item {item.id[:64]!r} is not known here", param=where
            )
        if not self._options.supersets:
            if item.type == "additional_tools":
                return None  # they stand with the request's tools
            if view is not None:
                return self._function(item, view, where)
            if item.type not in PUBLISHED and not (isinstance(item, UnknownItem) and ":" in item.type):
                self._diagnostics.loss(where, f"an item of type {item.type[:64]!r} is not known there")
                return None
        made: _Plain = plain(item)
        if view is not None and made.get("call_id"):
            made["call_id"] = view.call_id
        return self._as_it_is(made, where)

    def _function(self, item: Any, view: CallView | OutputView, where: str) -> _Plain | None:
        """A call or an answer of any kind as a function's."""
        made: _Plain = {"call_id": view.call_id}
        if isinstance(view, CallView):
            made = {"type": "function_call", **made, "name": view.name, "arguments": view.arguments}
        else:
            made = {"type": "function_call_output", **made, "output": plain(view.output)}
        if item.type in PUBLISHED:
            made |= {name: getattr(item, name) for name in ("id", "status") if getattr(item, name, None)}
        return self._as_it_is(made, where)

    def _as_it_is(self, item: _Plain, where: str) -> _Plain | None:
        if not self._options.item_ids and item.get("type") != "item_reference":
            item.pop("id", None)
        if not self._options.item_statuses:
            item.pop("status", None)
        if item.get("type") == "message" and isinstance(item.get("content"), list):
            for part in item["content"]:
                part.pop("logprobs", None)  # nothing that a request can say
        if item.get("type") == "reasoning" and not self._reasoning(item, where):
            return None
        return {name: value for name, value in item.items() if value is not None or name in _NULLS}

    def _reasoning(self, item: _Plain, where: str) -> bool:
        """Keep what the upstream takes of it; False when nothing is left."""
        if not self._options.reasoning_content and item.pop("content", None):
            self._diagnostics.loss(where, "raw reasoning of earlier turns")
        if is_envelope(item.get("encrypted_content") or ""):
            # sealed here for another kind of upstream, unreadable to this one
            del item["encrypted_content"]
            self._diagnostics.loss(where, "reasoning sealed for another upstream")
        return bool(item.get("encrypted_content") or item.get("content") or item.get("summary"))
