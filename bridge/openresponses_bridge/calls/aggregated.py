"""One tool call as far as it is known, and what one notification adds to it."""

from __future__ import annotations

from io import StringIO
from typing import NamedTuple

from openresponses_bridge.calls.json_text import JsonState, json_state


class AggregatedCall:
    """One call as far as it is known. `index` is its place among the calls, in order of first appearance,
    and never changes; a name or id that did not come yet is ""; `custom` says that the arguments are free
    text and not JSON. `size` counts the UTF-8 bytes of the arguments."""

    __slots__ = (
        "_buffer",
        "_given",
        "_write",
        "arguments_done",
        "call_id",
        "completed",
        "custom",
        "index",
        "item_id",
        "name",
        "namespace",
        "output_index",
        "size",
    )

    def __init__(self, index: int, output_index: int | None, item_id: str, call_id: str) -> None:
        self.index = index
        self.output_index = output_index
        self.item_id = item_id
        self.call_id = call_id
        self.name = ""
        self.namespace = ""
        self.custom = False
        self.arguments_done = False
        self.completed = False
        self._given = False
        self._clear()

    @property
    def arguments(self) -> str:
        """The arguments so far. Costs their length."""
        return self._buffer.getvalue()

    def answers_to(self, item_id: str, call_id: str) -> bool:
        """Whether one of these ids is this call's own."""
        return bool((item_id and item_id == self.item_id) or (call_id and call_id == self.call_id))

    def take(self, delta: str) -> int:
        """Take the next piece. The UTF-8 bytes of all of them."""
        if self._given:
            # arguments that were whole when the call was announced are streamed once more
            self._given = False
            if json_state(self.arguments) is JsonState.COMPLETE:
                self._clear()
        self._write(delta)
        self.size += size_of(delta)
        return self.size

    def replace(self, arguments: str) -> int:
        """Take these in the place of all that came before."""
        self._clear()
        return self.take(arguments)

    def announced_with(self, arguments: str) -> int:
        """Take arguments that came with the announcement: these may yet be streamed once more."""
        self.take(arguments)
        self._given = True
        return self.size

    def _clear(self) -> None:
        self._buffer = StringIO()
        self._write = self._buffer.write
        self.size = 0
        self._given = False


class ToolCallDelta(NamedTuple):
    """What a notification added to a call. `arguments` is what is new of them; `differs` says that whole
    arguments came which are others than the pieces before, and that the pieces stand."""

    call: AggregatedCall
    arguments: str = ""
    differs: bool = False


def size_of(text: str) -> int:
    """Its length in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
