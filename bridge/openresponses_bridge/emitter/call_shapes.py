"""What a tool call's arguments are on the wire, by what the client declared (laws E10, E11).

A model that knows only functions sends JSON arguments; the client may have declared a custom tool
(free text) or a shell. A shape turns the one into the other as it streams.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import UNSET

from openresponses_bridge.calls.json_text import JsonState, json_state
from openresponses_bridge.calls.unwrap import InputUnwrapper
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall, Item, ItemStatus


class Shape(Protocol):
    """One way to show a call. `feed` and `end` give what goes on the wire; `cut` says, after `end`,
    whether the text stopped before it was whole."""

    delta: type[Any]
    done: type[Any]

    def feed(self, fragment: str) -> str: ...

    def end(self, shown: str, stopped: bool) -> tuple[str, bool]:
        """(rest to show, cut). `stopped`: upstream ended by itself, not by a limit."""
        ...

    def item(
        self, item_id: str, call_id: str, name: str, namespace: str | None, payload: str, status: ItemStatus
    ) -> Item: ...


class JsonShape:
    """A function call: the arguments pass as they come."""

    delta = ev.FunctionCallArgumentsDelta
    done = ev.FunctionCallArgumentsDone

    def feed(self, fragment: str) -> str:
        return fragment

    def end(self, shown: str, stopped: bool) -> tuple[str, bool]:
        state = json_state(shown)
        if state is JsonState.EMPTY:
            # what clients parse must be JSON and deltas must add up (law E6)
            return ("{}", False) if stopped else ("", True)
        return "", state is JsonState.TRUNCATED

    def item(
        self, item_id: str, call_id: str, name: str, namespace: str | None, payload: str, status: ItemStatus
    ) -> Item:
        return FunctionCall(item_id, call_id, name, payload, status, namespace or UNSET)


class WrappingShape(JsonShape):
    """Free text from the model for a client that knows functions: `{"input": "…"}` as it comes."""

    def __init__(self) -> None:
        self._begun = False

    def feed(self, fragment: str) -> str:
        escaped = json.dumps(fragment, ensure_ascii=False)[1:-1]
        head, self._begun = ("" if self._begun else '{"input":"'), True
        return head + escaped

    def end(self, shown: str, stopped: bool) -> tuple[str, bool]:
        if not stopped:
            return "", True
        return ('"}' if self._begun else '{"input":""}'), False


class CustomShape:
    """Free text from the model for a client that declared a custom tool."""

    delta = ev.CustomToolCallInputDelta
    done = ev.CustomToolCallInputDone

    def feed(self, fragment: str) -> str:
        return fragment

    def end(self, shown: str, stopped: bool) -> tuple[str, bool]:
        return "", not stopped

    def item(
        self, item_id: str, call_id: str, name: str, namespace: str | None, payload: str, status: ItemStatus
    ) -> Item:
        return CustomToolCall(item_id, call_id, name, payload, status, namespace or UNSET)


class UnwrappingShape(CustomShape):
    """A function's JSON for a client that declared a custom tool: unwrapped as it streams."""

    def __init__(self) -> None:
        self._unwrapper = InputUnwrapper()
        self._begun = False

    def feed(self, fragment: str) -> str:
        self._begun = self._begun or not fragment.isspace()
        return self._unwrapper.feed(fragment)

    def end(self, shown: str, stopped: bool) -> tuple[str, bool]:
        rest = self._unwrapper.close()
        # what is not JSON does not show whether it is whole
        wrapped = self._begun and "raw_text" not in self._unwrapper.repairs
        return rest, self._unwrapper.truncated or not (stopped or wrapped)


# (the client declared a custom tool, the model sends free text, the wire has custom calls) → shape
SHAPES: dict[tuple[bool, bool, bool], Callable[[], Shape]] = {
    (True, True, True): CustomShape,
    (True, False, True): UnwrappingShape,
    (True, True, False): WrappingShape,
    (True, False, False): JsonShape,
    (False, True, True): CustomShape,
    (False, True, False): WrappingShape,
    (False, False, True): JsonShape,
    (False, False, False): JsonShape,
}
