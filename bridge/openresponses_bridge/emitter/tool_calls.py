"""The tool calls of one response, by the upstream's index: which call a fragment belongs to, and when a call
ends (laws E4, E5). Dialects resolve odd fragments first; here the index decides, except that another id on a
busy index is another call (field case 1)."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from openresponses_bridge.calls.identity import ToolIdentity, ToolIdentityMap, ToolKind
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.output import Output
from openresponses_bridge.emitter.tool_call import ToolCallBlock, nameless
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.state import BlockState, Wire
from openresponses_bridge.text import repair_surrogates


def is_another(known_id: str, ended: bool, call_id: str, name: str) -> bool:
    """Whether a fragment with this id and name begins another call than the one at its index, whose id is
    `known_id` (empty while it has none). Filters that check calls before the machine must use the same
    rule."""
    if call_id and known_id:
        return call_id != known_id
    return ended and bool(call_id or name)


class ToolCalls:
    """Blocks by index."""

    __slots__ = (
        "_begun",
        "_diagnostics",
        "_grown_open",
        "_grown_waiting",
        "_identities",
        "_output",
        "_wire",
        "by_index",
        "waiting",
    )

    def __init__(
        self, output: Output, wire: Wire, identities: ToolIdentityMap, diagnostics: Diagnostics
    ) -> None:
        self._output = output
        self._wire = wire
        self._identities = identities
        self._diagnostics = diagnostics
        self.by_index: dict[int, ToolCallBlock] = {}
        self.waiting: dict[int, ToolCallBlock] = {}
        self._begun = 0
        # those that got something since they were last asked if they are whole: `release` asks no others
        self._grown_open: dict[ToolCallBlock, None] = {}
        self._grown_waiting: dict[ToolCallBlock, None] = {}

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
        if block is None or is_another(block.upstream_id, block.ended, call_id, name):
            if block is not None and not block.upstream_name:
                raise nameless("tool_call", index)
            events += self._end_finished(block)
            block = self.by_index[index] = self.waiting[index] = self._new(index)
            block.explicit_end, self._output.explicit_end = self._output.explicit_end, False
        if block.ended:
            self._report_late(arguments)
            return events
        block.free_text = block.free_text or free_text
        if namespace:
            block.namespace = repair_surrogates(namespace)
        if self._identify(block, call_id, name):
            events += before()
        if arguments:
            events += block.delta(arguments)
        if block.announceable:
            events += self._announce(block, self._output.expected("fc"))
        return events

    def _new(self, index: int) -> ToolCallBlock:
        self._begun += 1
        return ToolCallBlock(self._output.number, index, self._begun, self._mark_grown)

    def _mark_grown(self, block: ToolCallBlock) -> None:
        grown = self._grown_waiting if block.state is BlockState.ABSENT else self._grown_open
        grown[block] = None

    def _end_finished(self, busy: ToolCallBlock | None) -> list[Event]:
        """Another call starts: end the calls that are complete and the one on the same index."""
        events = self.release()
        if busy is not None and not busy.ended:
            self._diagnostics.repair("tool_call.index", "another id on a busy index opened another call")
            events += self._end(busy, stopped=True)
        return events

    def _identify(self, block: ToolCallBlock, call_id: str, name: str) -> bool:
        """Take the id and the name that are new. True when the call has got its name now."""
        if call_id and not block.upstream_id:
            block.upstream_id = call_id
            if block.state is BlockState.OPEN:
                self._diagnostics.ignored("tool_call.id", "came after the call was announced")
        if not name or block.upstream_name:
            return False
        name = repair_surrogates(name)
        identity = self._identities.resolve(name)
        if identity is None and block.namespace:
            identity = ToolIdentity(ToolKind.FUNCTION, name, block.namespace, name)
        block.identify(name, identity, self._wire)
        block.mark_grown()
        return True

    def _report_late(self, arguments: str) -> None:
        if arguments.strip():
            self._diagnostics.loss("tool_call.arguments", "came after the call had ended")

    def _announce(self, block: ToolCallBlock, item_id: str) -> list[Event]:
        del self.waiting[block.index]
        block.call_id = block.call_id or self._call_id(block)
        self._grown_waiting.pop(block, None)
        events = block.open(item_id, self._output.next_index())
        self._output.begin(block)
        return events

    def _call_id(self, block: ToolCallBlock) -> str:
        return self._output.unique_call_id(block.upstream_id, self._diagnostics)

    def end(self, index: int, cut: bool) -> list[Event]:
        """The upstream says that this call is whole, or cut."""
        block = self.by_index[index]
        return [] if block.ended else self._end(block, stopped=not cut, abandoned=cut)

    def release(self, *, waiting_only: bool = False) -> list[Event]:
        """End the calls that are whole, in order; with `waiting_only`, only those that are not announced yet.
        Calls with an explicit end stay open, since arguments that look whole may be cut."""
        if not self._grown_open and not self._grown_waiting:
            return []
        ready = [] if waiting_only else self._whole_ones(self._grown_open)
        ready.sort(key=attrgetter("output_index"))
        waiting = [block for block in self._whole_ones(self._grown_waiting) if block.waits]
        ready += sorted(waiting, key=attrgetter("number_begun"))
        return [event for block in ready for event in self._end(block, stopped=True)]

    def _whole_ones(self, grown: dict[ToolCallBlock, None]) -> list[ToolCallBlock]:
        asked = [block for block in grown if not (block.ended or block.explicit_end)]
        grown.clear()
        return [block for block in asked if block.is_whole()]

    def end_waiting(self, stopped: bool, abandoned: bool, before: Callable[[], list[Event]]) -> list[Event]:
        """End the calls that were never announced, those that are cut behind the others; nameless ones can't
        be shown at all. `before` closes the text that one of them follows."""
        if not self.waiting:
            return []
        held = sorted((each for each in self.waiting.values() if each.waits), key=attrgetter("number_begun"))
        if len(held) < len(self.waiting):
            self._diagnostics.loss("tool_call", "never got a name")
        whole = [block for block in held if not block.ends_cut(stopped, abandoned)]
        cut = [block for block in held if block.ends_cut(stopped, abandoned)]
        events = before() if whole or (held and stopped) else []
        for block in whole + cut:
            events += self._end(block, stopped, abandoned)
        self.waiting.clear()
        return events

    def check_named(self) -> None:
        """Raises `bridge.stream.incomplete_tool_call` when a call never got a name (law E7)."""
        for block in self.waiting.values():
            if not block.waits:
                raise nameless("finish", block.index)

    def _end(self, block: ToolCallBlock, stopped: bool, abandoned: bool = False) -> list[Event]:
        events: list[Event] = []
        if block.state is BlockState.ABSENT:
            block.call_id, item_id = self._call_id(block), self._output.expected("fc")
            item = None if block.ends_cut(stopped, abandoned) else block.restored(item_id)
            if item is not None:
                return self._whole(block, item)
            self._diagnostics.repair(f"tool_call.{block.name}", "not restorable, left as function_call")
            events = self._announce(block, item_id)
        events += block.seal(stopped, abandoned)
        if block.cut:
            return events  # nothing may be added after an incomplete item: it ends with the response
        return events + self._output.close(block, stopped, abandoned)[0]

    def _whole(self, block: ToolCallBlock, item: Item) -> list[Event]:
        del self.waiting[block.index]
        index = self._output.next_index()
        self._output.whole(item)
        return block.whole(item, index)
