"""Tool calls of the upstream → the machine's calls, by slot."""

from __future__ import annotations

from msgspec import UNSET

from openresponses_bridge.dialects.responses.text import TextFeeder
from openresponses_bridge.dialects.responses.types import Track
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.events import Event

AnyCall = it.FunctionCall | it.CustomToolCall


class CallFeeder:
    """Opens, feeds and ends calls; a call that has a name makes text end (law E5)."""

    def __init__(self, machine: ResponseStream, texts: TextFeeder) -> None:
        self._machine = machine
        self._diagnostics = machine.diagnostics
        self._texts = texts

    def open(self, track: Track, item: AnyCall, out: list[Event]) -> None:
        """The call as its `added` event has it. A payload in there waits: deltas may repeat it."""
        track.pending = _payload(item)
        self._identify(track, item, out)

    def _identify(self, track: Track, item: AnyCall, out: list[Event]) -> None:
        if track.named or not item.name:
            return
        track.named = True
        if not item.call_id:
            self._diagnostics.repair("call_id", "missing, made here")
        self._texts.leave()
        kind = "custom" if isinstance(item, it.CustomToolCall) else "function"
        self._machine.expect_item(track.item_id, explicit_end=True)
        out += self._machine.tool_call(
            track.slot, item.call_id, item.name, None, kind, item.namespace or None
        )

    def say(self, track: Track, delta: str, out: list[Event]) -> None:
        """The next piece of the payload."""
        if not delta:
            return
        if track.pending:
            pending, track.pending = track.pending, ""
            if not pending.startswith(delta):
                delta = pending + delta
        said = track.payload = track.part("call", 0)
        said.add(delta)
        out += self._machine.tool_call(track.slot, None, None, delta)

    def payload_done(self, track: Track, whole: str, out: list[Event]) -> None:
        """The payload's own done event: clients run calls on it, so it seals the call at once."""
        self._missing(track, whole, out)
        if track.named and track.said:
            out += self._machine.tool_call_done(track.slot)

    def given(self, track: Track, item: AnyCall, out: list[Event]) -> None:
        """What the call is and has, as its done event or the terminal response has it."""
        begun = track.item
        if track.named and isinstance(begun, it.FunctionCall | it.CustomToolCall):
            for field in ("name", "call_id", "namespace"):
                if getattr(item, field) not in ("", UNSET, getattr(begun, field)):
                    self._diagnostics.warning(
                        "call done", f"has another {field}, that of its beginning stands"
                    )
        self._identify(track, item, out)
        self._missing(track, _payload(item) or track.pending, out)

    def end(self, track: Track, cut: bool, out: list[Event]) -> None:
        """Upstream has finished the call, or the response ended before it had, whatever its payload looks
        like (`cut`)."""
        if track.named:
            out += self._machine.tool_call_done(track.slot, cut=cut)

    def differs(self, track: Track, item: AnyCall) -> bool:
        """Whether the call is another one than what was sent on of it."""
        if isinstance(track.item, it.FunctionCall | it.CustomToolCall) and item.name != track.item.name:
            return True
        return track.differs("call", [_payload(item)])

    def _missing(self, track: Track, whole: str, out: list[Event]) -> None:
        said = track.said.get(("call", 0))
        rest = whole if said is None else said.rest(whole)
        if rest:
            self._diagnostics.repair("call done", "held more than its deltas, the rest was sent")
            track.pending = ""
            self.say(track, rest, out)
        elif rest is None and whole:
            self._diagnostics.warning("call done", "differs from its deltas, which stand")


def _payload(item: AnyCall) -> str:
    return item.input if isinstance(item, it.CustomToolCall) else item.arguments
