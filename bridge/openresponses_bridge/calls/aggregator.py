"""`ToolCallAggregator`: assembles tool calls from the fragments in a stream.

A fragment names its call by any of three aliases: the output index, the item id, the call id. The index takes
precedence, since some servers make a new id for every event; an id takes precedence over the index only if
another open call has it, which happens with servers that leave the index out or repeat it.

`ingest_delta` reads the notifications of a stream; the other methods are for readers that know what their
fragments mean. Buffers are limited and finished calls are removed, so memory depends on the open calls and
not on the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from openresponses_bridge.calls.json_text import JsonState, json_state
from openresponses_bridge.calls.notifications import NotificationKind, ToolCallNotification, read_notification
from openresponses_bridge.errors import ToolError


class AggregatedCall:
    """One call so far. `index` is its number in order of first appearance and never changes; a name or id
    that is not known yet is ""; `custom` is True if its arguments are free text, not JSON; `size` is the
    length of the arguments in UTF-8 bytes."""

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
        """The arguments so far. The cost is that of their length."""
        return self._buffer.getvalue()

    def has_alias(self, item_id: str, call_id: str) -> bool:
        """Return True if one of these ids is this call's own."""
        return bool((item_id and item_id == self.item_id) or (call_id and call_id == self.call_id))

    def append(self, delta: str) -> int:
        """Append a delta. Returns the length of all arguments in UTF-8 bytes."""
        if self._given:
            # arguments that were whole in the announcement are streamed once more
            self._given = False
            if json_state(self.arguments) is JsonState.COMPLETE:
                self._clear()
        self._write(delta)
        self.size += utf8_size(delta)
        return self.size

    def replace(self, arguments: str) -> int:
        """Replace all arguments so far. Returns their length in UTF-8 bytes."""
        self._clear()
        return self.append(arguments)

    def set_announced(self, arguments: str) -> int:
        """Set arguments that came with the announcement; the stream may repeat them as deltas."""
        self.append(arguments)
        self._given = True
        return self.size

    def _clear(self) -> None:
        self._buffer = StringIO()
        self._write = self._buffer.write
        self.size = 0
        self._given = False


class ToolCallDelta(NamedTuple):
    """What a notification adds to a call. `arguments` is the new text. `differs` is True if the whole
    arguments are not the sum of their deltas, which are kept."""

    call: AggregatedCall
    arguments: str = ""
    differs: bool = False


def utf8_size(text: str) -> int:
    """Return the length of a text in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


Value = TypeVar("Value")

MOST_RECENT: Final = 1_024


class BoundedDict(dict[str, Value]):
    """A dict of at most `most` keys: one key more evicts the oldest."""

    __slots__ = ("_most",)

    def __init__(self, most: int = MOST_RECENT) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: str, value: Value) -> None:
        super().__setitem__(key, value)
        if len(self) > self._most:
            del self[next(iter(self))]


MAX_ARGUMENT_BYTES: Final = 1_000_000
"""The most bytes of one call's arguments, in UTF-8."""


class ToolCallAggregator:
    """The open calls of one response.

    Every method that takes arguments raises ToolError (`bridge.tools.arguments_too_large`) once those of one
    call exceed `max_argument_bytes`; that call is then removed.
    """

    __slots__ = ("_by_id", "_by_output", "_calls", "_completed", "_drained", "_limit", "_next")

    def __init__(self, max_argument_bytes: int = MAX_ARGUMENT_BYTES) -> None:
        self._limit = max_argument_bytes
        self._calls: dict[int, AggregatedCall] = {}
        self._by_output: dict[int, AggregatedCall] = {}
        self._by_id: dict[str, AggregatedCall] = {}
        self._completed: dict[int, AggregatedCall] = {}
        self._drained: BoundedDict[None] = BoundedDict()
        self._next = 0

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[AggregatedCall]:
        """Iterate over the open calls, in order of first appearance."""
        return iter(list(self._calls.values()))

    @property
    def next_index(self) -> int:
        """The index that the next call will get, which is the number of calls so far."""
        return self._next

    def get(self, index: int) -> AggregatedCall | None:
        """Return the open call with this index; None if there is none."""
        return self._calls.get(index)

    def ingest_delta(self, notification: Mapping[str, Any]) -> ToolCallDelta | None:
        """Read one notification, a JSON object: `response.output_item.added` and `.done`,
        `response.function_call_arguments.delta` and `.done`, and the same of `custom_tool_call_input`, named
        by `type` or by `method` with `params`. It names a call by `call_id`, `item_id`, `id` or
        `output_index`.

        Returns None if it adds nothing: it is about something else or about a call that was drained, or comes
        after the arguments were done. Arguments that come with an announcement wait until they are streamed
        or the call is done. Streamed pieces are kept, even if the whole arguments differ afterwards.
        """
        update = read_notification(notification)
        if update is None or update.item_id in self._drained or update.call_id in self._drained:
            return None
        if update.kind is NotificationKind.ADDED:
            return ToolCallDelta(self._announced(update))
        if update.kind is NotificationKind.DONE:
            call = self._announced(update)
            change = self._reconcile(call, update.text)
            self._complete(call)
            return change
        known = self.find(update.output_index, update.item_id, update.call_id)
        if update.kind is NotificationKind.ARGUMENTS_DONE:
            return None if known is None else self._reconcile(known, update.text)
        if not update.text or (known is not None and known.arguments_done):
            return None
        return ToolCallDelta(
            self.append(update.text, update.output_index, update.item_id, update.call_id), update.text
        )

    def find(
        self, output_index: int | None = None, item_id: str = "", call_id: str = ""
    ) -> AggregatedCall | None:
        """Return the open call with these aliases; None if there is none."""
        call = None if output_index is None else self._by_output.get(output_index)
        if call is not None and call.item_id == item_id:
            return call
        named = self._by_id.get(item_id) or self._by_id.get(call_id)
        if named is None or (call is not None and call.has_alias(item_id, call_id)):
            return call
        return named

    def begin(
        self,
        output_index: int | None = None,
        item_id: str = "",
        call_id: str = "",
        name: str = "",
        arguments: str = "",
        custom: bool = False,
    ) -> AggregatedCall:
        """Announce a call. If it is open under the same identity (a fragment came first, or it is announced
        twice), fill it in; at an index that another call uses, begin a call of its own (field case 2)."""
        call = self.find(output_index, item_id, call_id)
        if call is None or not _is_same(call, output_index, item_id, call_id):
            call = self._open(output_index, item_id, call_id)
        self._identify(call, item_id, call_id, name)
        call.custom = custom
        if arguments and not call.size and call.set_announced(arguments) > self._limit:
            self._refuse(call)
        return call

    def append(
        self, delta: str, output_index: int | None = None, item_id: str = "", call_id: str = ""
    ) -> AggregatedCall:
        """Append to a call's arguments; a call that was not announced begins without a name. A delta after
        the arguments were done is ignored."""
        call = None if output_index is None else self._by_output.get(output_index)
        if call is None or call.item_id != item_id:
            call = self.find(output_index, item_id, call_id) or self._open(output_index, item_id, call_id)
        if not call.arguments_done and call.append(delta) > self._limit:
            self._refuse(call)
        return call

    def finish_arguments(
        self, arguments: str = "", output_index: int | None = None, item_id: str = "", call_id: str = ""
    ) -> AggregatedCall:
        """Finish a call's arguments. `arguments` replaces the deltas unless it is empty (field case 7)."""
        call = self.find(output_index, item_id, call_id) or self._open(output_index, item_id, call_id)
        call.arguments_done = True
        if arguments and call.replace(arguments) > self._limit:
            self._refuse(call)
        return call

    def complete(
        self,
        output_index: int | None = None,
        item_id: str = "",
        call_id: str = "",
        name: str = "",
        arguments: str = "",
        custom: bool = False,
    ) -> AggregatedCall:
        """Complete a call, so that it can be drained. Facts given here replace earlier ones."""
        call = self.finish_arguments(arguments, output_index, item_id, call_id)
        self._identify(call, item_id, call_id, name)
        call.call_id = call_id or call.call_id
        call.name = name or call.name
        call.custom = custom
        self._complete(call)
        return call

    def drain_completed_calls(self) -> list[AggregatedCall]:
        """Remove and return the completed calls in order of their index. `ingest_delta` ignores later
        notifications about the calls that were drained last."""
        drained = [self._completed[index] for index in sorted(self._completed)]
        for call in drained:
            self.evict(call)
            for alias in (call.item_id, call.call_id):
                if alias:
                    self._drained[alias] = None
        return drained

    def evict(self, call: AggregatedCall) -> None:
        """Remove a call and all its aliases."""
        self._calls.pop(call.index, None)
        self._completed.pop(call.index, None)
        for key in (call.item_id, call.call_id):
            if self._by_id.get(key) is call:
                del self._by_id[key]
        if call.output_index is not None and self._by_output.get(call.output_index) is call:
            del self._by_output[call.output_index]

    def clear(self) -> None:
        """Remove all calls. Later indexes continue from here."""
        self._calls.clear()
        self._completed.clear()
        self._by_id.clear()
        self._by_output.clear()

    def _announced(self, notification: ToolCallNotification) -> AggregatedCall:
        call = self.begin(
            notification.output_index,
            notification.item_id,
            notification.call_id,
            notification.name,
            custom=notification.custom,
        )
        call.namespace = notification.namespace or call.namespace
        return call

    def _reconcile(self, call: AggregatedCall, whole: str) -> ToolCallDelta:
        """Compare the whole arguments with their deltas and add the missing rest (field case 7). Reads the
        deltas only if the whole is as long, so that repeating the whole costs no more than its own length."""
        rest, differs = "", False
        if whole:
            differs = utf8_size(whole) < call.size or (call.arguments_done and utf8_size(whole) > call.size)
            sent = whole if differs else call.arguments
            differs = differs or not whole.startswith(sent)
            rest = "" if differs else whole[len(sent) :]
        if rest and call.append(rest) > self._limit:
            self._refuse(call)
        call.arguments_done = call.size > 0
        return ToolCallDelta(call, rest, differs)

    def _complete(self, call: AggregatedCall) -> None:
        call.completed = True
        self._completed[call.index] = call

    def _open(self, output_index: int | None, item_id: str, call_id: str) -> AggregatedCall:
        call = AggregatedCall(self._next, output_index, "", "")
        self._next += 1
        self._calls[call.index] = call
        if output_index is not None:
            self._by_output[output_index] = call
        self._identify(call, item_id, call_id, "")
        return call

    def _identify(self, call: AggregatedCall, item_id: str, call_id: str, name: str) -> None:
        """Fill in what is not known yet. An id that another open call has stays that call's alias."""
        call.name = call.name or name
        if item_id and not call.item_id:
            call.item_id = item_id
            self._by_id.setdefault(item_id, call)
        if call_id and not call.call_id:
            call.call_id = call_id
            self._by_id.setdefault(call_id, call)

    def _refuse(self, call: AggregatedCall) -> NoReturn:
        self.evict(call)
        raise ToolError(
            ToolError.ARGUMENTS_TOO_LARGE,
            f"the arguments of tool call {call.name or call.call_id or call.item_id or call.index!r} exceed "
            f"{self._limit:,} bytes",
            index=call.index,
            limit=self._limit,
        )


def _is_same(call: AggregatedCall, output_index: int | None, item_id: str, call_id: str) -> bool:
    """Return True if an announcement that was routed to this open call is about it."""
    here = output_index is None or call.output_index is None or output_index == call.output_index
    if not call.name or not (item_id or call_id):
        return True
    if item_id and item_id == call.item_id:
        return not call_id or not call.call_id or call_id == call.call_id
    # one call_id at two indexes may be two calls: only their arguments can show it
    return here and call.has_alias("", call_id)
