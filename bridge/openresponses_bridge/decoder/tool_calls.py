"""Emits each tool call exactly once and complete, from the first event that confirms it.

Three events can: `arguments.done`, `output_item.done`, the completed response (RFC 00022). An incomplete call
is never emitted, and arguments that are not whole JSON wait for the item's status, so that no client runs
half a call (field case 25). A call whose arguments are not JSON is never emitted, since the client would run
it with other arguments.

Open calls are emitted in the order in which they began: a call that is whole waits for those before it, at
most until the end of the stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import msgspec

from openresponses_bridge.calls.aggregator import MAX_ARGUMENT_BYTES, AggregatedCall, ToolCallAggregator
from openresponses_bridge.calls.coercion import coerced_input
from openresponses_bridge.calls.json_text import JsonState, json_state, repaired_json
from openresponses_bridge.decoder.parts import LanguageModelToolCallPart, Part
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall, ToolSearchCall
from openresponses_bridge.protocol.tools import FunctionTool
from openresponses_bridge.text import repair_surrogates, repair_surrogates_json

# VS Code accepts objects only, and has no way to report that arguments were bad. JSON of another type is
# wrapped, with a note in the diagnostics; text that is not JSON gives no call, since a host would run the
# tool with it.

_canonical = msgspec.json.Encoder(order="deterministic")


class ToolInput(NamedTuple):
    """The object, None for arguments that are not JSON; and the repair that was needed, None for none."""

    value: dict[str, Any] | None
    repair: str | None = None


def tool_input(arguments: str) -> ToolInput:
    """Parse the arguments of a function call. Never raises."""
    if not arguments.strip():
        return ToolInput({})
    value = _parsed(repair_surrogates(arguments))
    if isinstance(value, str):
        # some models encode their arguments twice
        inner = _parsed(value)
        if isinstance(inner, dict):
            return ToolInput(inner, "arguments were JSON within a JSON string")
    if isinstance(value, dict):
        return ToolInput(value)
    if value is _BROKEN:
        return ToolInput(None)
    if value is None:
        return ToolInput({}, "arguments are null, replaced by {}")
    return ToolInput({"input": value}, f"arguments are not an object but {type(value).__name__}, wrapped")


def signature(name: str, value: dict[str, Any] | None) -> bytes:
    """Return 16 bytes that are equal for equal calls, however their JSON is written."""
    return hashlib.blake2b(_canonical.encode([name, value]), digest_size=16).digest()


_BROKEN = object()
_REPAIRED = "arguments were not JSON and were repaired"


def _parsed(text: str) -> Any:
    try:
        value = decode_json(text)
    except WireError:
        return _BROKEN
    # only escapes can have halves of surrogate pairs
    return repair_surrogates_json(value) if "\\u" in text else value


# Tool-call ids in a client that talks to several providers: ours carry a prefix, so that they never equal
# another's (RFC 00022, "CallId namespacing").

CALL_ID_PREFIX = "gw-"
_MAX_LENGTH = 64


def namespace_call_id(call_id: str, prefix: str = CALL_ID_PREFIX) -> str:
    """Return the id that the client sees. The prefix is always added, so that removing it restores the id,
    whatever that began with."""
    return prefix + call_id


def strip_call_id(call_id: str, prefix: str = CALL_ID_PREFIX) -> str:
    """Return the id without the prefix; one without it (another provider's call) is unchanged."""
    return call_id.removeprefix(prefix)


def unique_call_id(call_id: str, taken: set[str]) -> str:
    """`call_id`, or with the first unused suffix `_2`, `_3` … when it is in use. At most 64 characters, if
    the id was; the call and its output are then sent back under this id together."""
    candidate, turn = call_id, 1
    while candidate in taken:
        turn += 1
        suffix = f"_{turn}"
        candidate = call_id[: max(_MAX_LENGTH, len(call_id)) - len(suffix)] + suffix
    return candidate


CallIdSource = Literal["call_id", "item_id"]


_WHOLE = frozenset({JsonState.COMPLETE, JsonState.EMPTY})


class CallFacts(NamedTuple):
    """The facts about a call in its item."""

    item_id: str
    call_id: str
    name: str
    arguments: str
    custom: bool
    status: Any


def _function(item: FunctionCall) -> CallFacts:
    return CallFacts(item.id, item.call_id, item.name, item.arguments, False, item.status)


def _custom(item: CustomToolCall) -> CallFacts:
    return CallFacts(item.id, item.call_id, item.name, item.input, True, item.status)


def _client_search(item: ToolSearchCall) -> CallFacts | None:
    """Return the facts of a search over deferred tools, which the client answers only if the item says so."""
    if item.execution != "client":
        return None
    arguments = item.arguments if isinstance(item.arguments, str) else encode(item.arguments).decode()
    return CallFacts(item.id, item.call_id or "", "tool_search", arguments, False, item.status)


_FACTS: dict[type[Any], Callable[[Any], CallFacts | None]] = {
    FunctionCall: _function,
    CustomToolCall: _custom,
    ToolSearchCall: _client_search,
}


class ToolCallDecoder:
    """Decodes the calls of one response into `LanguageModelToolCallPart`s.

    Any method that receives arguments above the limit raises ToolError (`bridge.tools.arguments_too_large`).
    """

    def __init__(
        self,
        diagnostics: Diagnostics,
        *,
        prefix: str = CALL_ID_PREFIX,
        id_source: CallIdSource = "call_id",
        custom: bool = True,
        max_argument_bytes: int = MAX_ARGUMENT_BYTES,
        repair: bool = False,
    ) -> None:
        self.tools: Sequence[Any] = ()
        """The tools in the response, by whose schemas the input of calls is read."""
        self._repair = repair
        self._open = ToolCallAggregator(max_argument_bytes)
        self._diagnostics = diagnostics
        self._prefix = prefix
        self._by_item_id = id_source == "item_id"
        self._custom = custom
        self._emitted: set[int] = set()
        self._waiting: list[tuple[int, Part]] = []  # a heap by index
        self._first_pending = 0
        self._taken: set[str] = set()
        self.any_unreadable = False
        """Whether a call was left out because its arguments are not JSON."""
        self._ids: set[tuple[str, str]] = set()
        self._at: dict[int | None, bytes] = {}
        self._signatures: dict[str, set[bytes]] = {}

    @property
    def any_emitted(self) -> bool:
        return bool(self._taken)

    def added(self, output_index: int, item: Any) -> list[Part]:
        """Handle `output_item.added`: a call begins; nothing can be emitted yet."""
        facts = self._facts(item)
        if facts is not None:
            self._open.begin(output_index, *facts[:5])
        return []

    def delta(self, output_index: int, item_id: str, delta: str) -> list[Part]:
        """Handle `function_call_arguments.delta` or `custom_tool_call_input.delta`: nothing can be emitted
        yet."""
        self._open.append(delta, output_index, item_id)
        return []

    def arguments_done(self, output_index: int, item_id: str, arguments: str) -> list[Part]:
        """Handle `function_call_arguments.done` or `custom_tool_call_input.done`, the first event that can
        confirm a call."""
        call = self._open.finish_arguments(arguments, output_index, item_id)
        if not call.name:
            self._diagnostics.warning(
                "arguments.done", "for a call that was not announced, waits for its item"
            )
            return []
        if not call.custom and json_state(call.arguments) not in _WHOLE:
            return []
        self._emit(call)
        return self._next_ones()

    def item_done(self, output_index: int, item: Any) -> list[Part]:
        """Handle `output_item.done`, the second event that can confirm a call."""
        facts = self._facts(item)
        if facts is None:
            return []
        is_open = self._open.find(output_index, facts.item_id, facts.call_id) is not None
        if not is_open and any(facts[:2]) and facts[:2] in self._ids:
            return []
        self._open.complete(output_index, *facts[:5])
        for call in self._open.drain_completed_calls():
            if facts.status == "incomplete":
                self._diagnostics.loss("tool_call", "incomplete, not emitted")
            else:
                self._emit(call)
        return self._next_ones()

    def final(self, position: int, item: Any) -> list[Part]:
        """Decode an item of the completed response, the last event that can confirm a call. Its position is
        its output index, unless the server left out other items; its ids may be new."""
        facts = self._facts(item)
        if facts is None or self._at.get(position) == signature(
            repair_surrogates(facts.name), _input(facts).value
        ):
            return []
        return self.item_done(position, item)

    def flush(self) -> list[Part]:
        """Return the open calls that are whole: the response is completed without naming its output."""
        for call in self._open:
            if call.name and (call.custom or call.arguments_done or json_state(call.arguments) in _WHOLE):
                self._emit(call)
        return self.drain_waiting()

    def drain_waiting(self) -> list[Part]:
        """Return the calls that still wait for an earlier one, which will not be completed any more."""
        rest = [part for _, part in sorted(self._waiting, key=itemgetter(0))]
        self._waiting.clear()
        return rest

    def clear(self) -> None:
        """Drop the calls that no event has confirmed, since the stream has ended."""
        for call in self._open:
            if call.index not in self._emitted:
                self._diagnostics.loss("tool_call", "the stream ended before the call was whole, not emitted")
        self._open.clear()

    def _facts(self, item: Any) -> CallFacts | None:
        read = _FACTS.get(type(item))
        facts = None if read is None else read(item)
        if facts is not None and facts.custom and not self._custom:
            self._diagnostics.loss("custom_tool_call", "left out by option")
            return None
        return facts

    def _next_ones(self) -> list[Part]:
        """Return the whole calls before which no named call is open."""
        while self._first_pending < self._open.next_index and not self._pending(self._first_pending):
            self._first_pending += 1
        parts = []
        while self._waiting and self._waiting[0][0] < self._first_pending:
            parts.append(heappop(self._waiting)[1])
        return parts

    def _pending(self, index: int) -> bool:
        call = self._open.get(index)
        return call is not None and bool(call.name) and index not in self._emitted

    def _emit(self, call: AggregatedCall) -> None:
        if call.index in self._emitted:
            return
        self._emitted.add(call.index)
        if not call.name:
            self._diagnostics.loss("tool_call", "has no name, not emitted")
            return
        name = repair_surrogates(call.name)
        parsed_input = _input(call)
        if parsed_input.value is None and self._repair:
            parsed_input = ToolInput(repaired_json(call.arguments, needed=False), _REPAIRED)
        if parsed_input.value is None:
            self._diagnostics.loss("tool_call.arguments", "are not JSON, the call is not emitted")
            self._ids.add((call.item_id, call.call_id))
            self.any_unreadable = True
            return
        if parsed_input.repair is not None:
            self._diagnostics.repair("tool_call.arguments", parsed_input.repair)
        signed = signature(name, parsed_input.value)
        # two calls can't share an empty id
        same_id = self._signatures.setdefault(call.call_id or call.item_id or f"#{call.index}", set())
        if signed in same_id:
            self._diagnostics.repair("tool_call", "announced again, dropped")
            return
        same_id.add(signed)
        self._ids.add((call.item_id, call.call_id))
        self._at[call.output_index] = signed
        call_id = namespace_call_id(self._call_id(call), self._prefix)
        value = parsed_input.value if call.custom else self._as_declared(name, parsed_input.value)
        heappush(self._waiting, (call.index, LanguageModelToolCallPart(call_id, name, value)))

    def _as_declared(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """Return the input with texts read as the tool's schema requires."""
        declared = (each for each in self.tools if isinstance(each, FunctionTool) and each.name == name)
        schema = next((each.parameters for each in declared), None)
        coerced: dict[str, Any]
        coerced, notes = coerced_input(value, schema)
        for note in notes:
            self._diagnostics.repair("tool_call.arguments", note)
        return coerced

    def _call_id(self, call: AggregatedCall) -> str:
        ids = (call.item_id, call.call_id) if self._by_item_id else (call.call_id, call.item_id)
        original = repair_surrogates(ids[0] or ids[1]) or f"call_{call.index}"
        call_id = unique_call_id(original, self._taken)
        if call_id != original:
            self._diagnostics.repair("tool_call.call_id", "used for two calls, made unique")
        self._taken.add(call_id)
        return call_id


def _input(call: AggregatedCall | CallFacts) -> ToolInput:
    return (
        ToolInput({"input": repair_surrogates(call.arguments)}) if call.custom else tool_input(call.arguments)
    )
