"""The tool calls of one response, by the upstream's index: which fragment is whose, and when a call
ends (laws E4, E5). Dialects resolve odd fragments first; here an index is taken at its word, except
that another id on a busy index is another call (field case 1)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from bridge.diagnostics import Diagnostics
from bridge.emitter.output import Output
from bridge.emitter.tool_calls import ToolCallBlock
from bridge.errors import StreamStateError
from bridge.protocol.events import Event, OutputItemAdded, OutputItemDone
from bridge.protocol.items import Item, with_status
from bridge.state import BlockState, Wire
from bridge.tools.identity import ToolIdentity, ToolIdentityMap, ToolKind

MAX_CALL_ID = 64  # schema FunctionCallItemParam: clients must be able to send it back


class ToolCalls:
    """Blocks by index. `cut` tells whether any call ended before its arguments did."""

    __slots__ = ("_call_ids", "_diagnostics", "_identities", "_output", "_wire", "by_index", "cut", "waiting")

    def __init__(
        self, output: Output, wire: Wire, identities: ToolIdentityMap, diagnostics: Diagnostics
    ) -> None:
        self._output = output
        self._wire = wire
        self._identities = identities
        self._diagnostics = diagnostics
        self._call_ids: set[str] = set()
        self.by_index: dict[int, ToolCallBlock] = {}
        self.waiting: dict[int, ToolCallBlock] = {}
        self.cut = False

    def apply(
        self,
        index: int,
        call_id: str,
        name: str,
        arguments: str,
        free_text: bool,
        namespace: str | None,
        before: Callable[[], list[Event]],
    ) -> list[Event]:
        """One fragment. `before` closes what must not stay open beside a call that is announced."""
        block = self.by_index.get(index)
        events: list[Event] = []
        if block is None or self._is_another(block, call_id, name):
            events += self._make_room(block)
            block = self.by_index[index] = self.waiting[index] = ToolCallBlock(self._output.number, index)
        if block.state is BlockState.CLOSED:
            self._late(arguments)
            return events
        block.free_text = block.free_text or free_text
        block.namespace = namespace or block.namespace
        announce = self._identify(block, call_id, name)
        if arguments:
            events += block.delta(arguments)
        if announce:
            events += before() + self._announce(block)
        return events

    def _is_another(self, block: ToolCallBlock, call_id: str, name: str) -> bool:
        if call_id and block.upstream_id:
            return call_id != block.upstream_id
        return block.state is BlockState.CLOSED and bool(call_id or name)

    def _make_room(self, busy: ToolCallBlock | None) -> list[Event]:
        """Another call starts: what is complete ends, and so does the one on the same index."""
        events = self.release(lambda block: block.is_whole())
        if busy is not None and busy.state is not BlockState.CLOSED:
            self._diagnostics.repair("tool_call.index", "another id on a busy index opened another call")
            events += self._end(busy, stopped=True)
        return events

    def _identify(self, block: ToolCallBlock, call_id: str, name: str) -> bool:
        if call_id and not block.upstream_id:
            block.upstream_id = call_id
            if block.state is BlockState.OPEN:
                self._diagnostics.ignored("tool_call.id", "came after the call was announced")
        if not name or block.upstream_name:
            return False
        identity = self._identities.resolve(name)
        if identity is None and block.namespace:
            identity = ToolIdentity(ToolKind.FUNCTION, name, block.namespace, name)
        return block.identify(name, identity, self._wire)

    def _late(self, arguments: str) -> None:
        if arguments.strip():
            self._diagnostics.loss("tool_call.arguments", "came after the call had ended")

    def _announce(self, block: ToolCallBlock) -> list[Event]:
        del self.waiting[block.index]
        block.call_id = block.call_id or self._call_id(block.upstream_id)
        events = block.open(self._output.expected("fc"), self._output.next_index())
        self._output.begin(block)
        return events

    def _call_id(self, upstream_id: str) -> str:
        wanted = upstream_id
        if len(upstream_id) > MAX_CALL_ID:
            wanted = "call_" + hashlib.sha256(upstream_id.encode()).hexdigest()[:32]
            self._diagnostics.repair("tool_call.id", f"longer than {MAX_CALL_ID} characters, shortened")
        unique = self._output.unique("call", wanted)
        if wanted and unique != wanted:
            self._diagnostics.repair("tool_call.id", "given to two calls, made unique")
        return unique

    def end(self, index: int) -> list[Event]:
        """The upstream says this call is whole."""
        block = self.by_index[index]
        return [] if block.state is BlockState.CLOSED else self._end(block, stopped=True)

    def release(self, ready: Callable[[ToolCallBlock], bool]) -> list[Event]:
        """End every call that is ready, in order."""
        candidates = [
            *sorted(self.open(), key=lambda block: block.output_index),
            *(block for block in self.waiting.values() if block.held),
        ]
        events: list[Event] = []
        for block in candidates:
            if ready(block):
                events += self._end(block, stopped=True)
        return events

    def open(self) -> list[ToolCallBlock]:
        return [block for block in self.by_index.values() if block.state is BlockState.OPEN]

    def finish_waiting(self, stopped: bool, abandoned: bool) -> list[Event]:
        """End the calls that were never announced; nameless ones can't be shown at all."""
        events: list[Event] = []
        for block in list(self.waiting.values()):
            if block.held:
                events += self._end(block, stopped, abandoned)
            else:
                del self.waiting[block.index]
                self._diagnostics.loss("tool_call", "never got a name")
        return events

    def check_named(self) -> None:
        """Raises `bridge.stream.incomplete_tool_call` when a call never got a name (law E7)."""
        nameless = [block.index for block in self.waiting.values() if not block.held]
        if nameless:
            raise StreamStateError(
                StreamStateError.INCOMPLETE_TOOL_CALL,
                f"finish: the tool call at index {nameless[0]} never got a name",
                call="finish",
                index=nameless[0],
            )

    def _end(self, block: ToolCallBlock, stopped: bool, abandoned: bool = False) -> list[Event]:
        events: list[Event] = []
        if block.state is BlockState.ABSENT:
            block.call_id = self._call_id(block.upstream_id)
            item = block.restored(self._output.expected("fc"), stopped and not abandoned)
            if item is not None:
                return self._whole(block, item)
            self._diagnostics.repair(f"tool_call.{block.name}", "not restorable, left as function_call")
            events = self._announce(block)
        closed, cut = self._output.close(block, stopped, abandoned)
        self.cut = self.cut or cut
        return events + closed

    def _whole(self, block: ToolCallBlock, item: Item) -> list[Event]:
        del self.waiting[block.index]
        block.state = BlockState.CLOSED
        index, number = self._output.next_index(), self._output.number
        self._output.whole(item)
        opening = with_status(item, "in_progress")
        return [OutputItemAdded(number(), index, opening), OutputItemDone(number(), index, item)]
