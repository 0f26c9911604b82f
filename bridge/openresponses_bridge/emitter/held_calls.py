"""Filters that decide about a call by its name, and hold its fragments until that has come."""

from __future__ import annotations

from msgspec import Struct, field

from openresponses_bridge.emitter.stream import CallFragment, ResponseStream, StreamFilter
from openresponses_bridge.emitter.tool_call import is_another
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.unknown import Extra


class HeldCall(Struct, eq=False):
    """The newest call at an upstream's index, with its id and name, "" until they have come. `is_kept` is
    True if the filter keeps the call from the stream, None until its name has come; until then `waiting` has
    its fragments."""

    id: str = ""
    name: str = ""
    has_ended: bool = False
    is_kept: bool | None = None
    waiting: list[CallFragment] = field(default_factory=list)


class CallHoldingFilter(StreamFilter):
    """Passes calls on or keeps them from the stream, as `_keeps` says when the name of a call has come. A
    call that ends without a name is passed on, since the machine reports it."""

    def __init__(self, stream: ResponseStream) -> None:
        super().__init__(stream)
        self._calls: dict[int, HeldCall] = {}

    def _keeps(self, call: HeldCall, type: str, namespace: str | None) -> bool:
        """Return True if this call, whose name has come, is kept."""
        raise NotImplementedError

    def _keep(self, call: HeldCall, fragment: CallFragment) -> list[Event]:
        """A fragment of a kept call."""
        return []

    def _pass(self, index: int, fragment: CallFragment) -> list[Event]:
        """A fragment of a call with a name that is passed on."""
        return super().tool_call(index, *fragment)

    def _pass_waiting(self, call: HeldCall | None, index: int) -> list[Event]:
        """Pass on what waits of a call that has no name."""
        events: list[Event] = []
        if call is not None:
            waiting, call.waiting = call.waiting, []
            for each in waiting:
                events += super().tool_call(index, *each)
        return events

    def _pass_nameless(self) -> list[Event]:
        """Pass on what waits of all calls that have no name; they have ended."""
        events: list[Event] = []
        for index, call in self._calls.items():
            if call.waiting:
                call.has_ended = True
                events += self._pass_waiting(call, index)
        return events

    def next_answer(self) -> None:
        super().next_answer()
        self._calls.clear()

    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
        namespace: str | None = None,
    ) -> list[Event]:
        self.require("tool_call")
        events: list[Event] = []
        call = self._calls.get(index)
        if call is None or is_another(call.id, call.name, call.has_ended, id or "", name or ""):
            events += self._pass_waiting(call, index)
            call = self._calls[index] = HeldCall()
        call.id, call.name = call.id or id or "", call.name or name or ""
        call.waiting.append(CallFragment(id, name, arguments, type, namespace))
        if call.is_kept is None:
            if not call.name:
                return events
            call.is_kept = self._keeps(call, type, namespace)
        waiting, call.waiting = call.waiting, []
        for each in waiting:
            events += self._keep(call, each) if call.is_kept else self._pass(index, each)
        return events

    def tool_call_done(self, index: int, *, cut: bool = False) -> list[Event]:
        self.require("tool_call_done")
        call = self._calls.get(index)
        if call is not None:
            call.has_ended = True
            if call.is_kept:
                return []
        return self._pass_waiting(call, index) + super().tool_call_done(index, cut=cut)

    def end_nameless(self) -> list[Event]:
        return self._pass_nameless() + super().end_nameless()

    def item_extra(self, extra: Extra, index: int | None = None) -> list[Event]:
        call = None if index is None else self._calls.get(index)
        return [] if call is not None and call.is_kept else super().item_extra(extra, index)
