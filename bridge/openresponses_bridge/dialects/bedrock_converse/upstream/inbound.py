"""Converts answers of `converse` and `converse-stream` to calls of the machine, and so to events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from openresponses_bridge.dialects.base import (
    EMPTY,
    PLACES,
    OnceBegun,
    counted,
    cut_after,
    error_in_frame,
    failure,
    object_in,
    payload_of,
    report_unknown_type,
    unread,
)
from openresponses_bridge.dialects.bedrock_converse.types import DIALECT, EVENTS, TIERS, kind_of
from openresponses_bridge.dialects.bedrock_converse.upstream.blocks import (
    Block,
    CallBlock,
    MessageContext,
    RawBlock,
    ReasoningBlock,
    TextBlock,
)
from openresponses_bridge.dialects.bedrock_converse.upstream.ending import Ending, usage_of
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import decode_frame, with_whole_characters
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.seal import Sealer
from openresponses_bridge.state import TERMINAL_PHASES

_END_TURN: Final = "end_turn"
_TOOL_USE: Final = "toolUse"
_EXCEPTION: Final = "Exception"


class Inbound(OnceBegun):
    """Reads one answer into one machine. `sealer` seals reasoning. The end of a stream waits for its
    metadata, which have the usage."""

    __slots__ = ("_blocks", "_context", "_ending", "_frames", "_stopped")

    def __init__(self, machine: ResponseStream, sealer: Sealer | None = None) -> None:
        super().__init__(machine)
        self._context = MessageContext(machine, sealer or Sealer())
        self._ending = Ending()
        self._blocks: dict[int, Block] = {}  # that are open, in the order of opening
        self._stopped = False
        self._frames = 0

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one frame's payload: an object with one field, the event; or the event, with its name; or a
        whole answer, or an error."""
        if not self._live:
            return self._outside(data, event)
        self._frames += 1
        try:
            value = decode_frame(data)
            if isinstance(value, list) and value:
                value = value[0]  # gateways put other servers' errors into an array
            if not isinstance(value, dict):
                message = f"expected a JSON object, got {type(value).__name__}"
                raise WireError(WireError.INVALID_SHAPE, message)
            return self._read(with_whole_characters(value), event)
        except WireError as error:
            failed = unread(self._frames, error, data, event, self.diagnostics)
            return [] if failed is None else self._fail(failed)
        except BridgeError as error:
            # the machine refused what the frames contain: the upstream's failure
            return self._fail(error)

    def close(self) -> list[Event]:
        """Handle the end of the upstream. Without an earlier stop reason, the answer was cut off."""
        if self._ended:
            return []
        if not self._stopped:
            return self._begin() + self._fail(cut_after(self._frames))
        return self._finish()

    def _read(self, value: dict[str, Any], event: str) -> list[Event]:
        kind = next((name for name in EVENTS if name in value), "")
        if kind:
            inner = value[kind]
        elif event in EVENTS:
            kind, inner = event, value
        elif isinstance(value.get("output"), dict):
            return self._whole(value)
        else:
            return self._other(value, event)
        return _HANDLERS[kind](self, inner if isinstance(inner, dict) else {})

    def _other(self, value: dict[str, Any], event: str) -> list[Event]:
        named = next((name for name in value if name.endswith(_EXCEPTION)), "")
        if named:
            return self._fail(payload_of({"type": named, "error": value[named]}, DIALECT))
        if error_in_frame(value, event) is not None:
            return self._fail(payload_of(value, DIALECT))
        named = event or next((name for name in value if name not in PLACES), "")
        report_unknown_type(named, value, self.diagnostics)
        return []

    def _message_start(self, _said: dict[str, Any]) -> list[Event]:
        return []

    def _block_start(self, payload: dict[str, Any]) -> list[Event]:
        index, start = self._index(payload), object_in(payload, "start")
        kind = kind_of(start)
        if not kind:
            return []  # its deltas show its kind
        return self._stop(index) + self._open(index, kind, start[kind])

    def _block_delta(self, payload: dict[str, Any]) -> list[Event]:
        index, delta = self._index(payload), object_in(payload, "delta")
        kind = kind_of(delta)
        if not kind:
            return []
        begun: list[Event] = []
        if index not in self._blocks:
            if kind == _TOOL_USE:
                self.diagnostics.loss("contentBlockDelta.toolUse", "of a call that is not open")
                return []
            begun = self._open(index, kind, None)
        return begun + self._blocks[index].feed(kind, delta[kind])

    def _block_stop(self, payload: dict[str, Any]) -> list[Event]:
        return self._stop(self._index(payload))

    def _index(self, payload: dict[str, Any]) -> int:
        index = payload.get("contentBlockIndex")
        return index if type(index) is int else next(reversed(self._blocks), 0)

    def _open(self, index: int, kind: str, value: Any) -> list[Event]:
        events = self._context.close_open()
        fields = value if isinstance(value, dict) else {}
        if kind == _TOOL_USE and fields.get("type") is None:
            call = CallBlock(self._context)
            self._blocks[index] = call
            return events + call.begin(fields)
        if kind in ("text", "citation"):
            self._blocks[index] = TextBlock(self._context)
        elif kind == "reasoningContent":
            self._blocks[index] = ReasoningBlock(self._context)
        else:
            raw = RawBlock(self._context, kind)
            self._blocks[index] = raw
            raw.begin(value)
        return events

    def _stop(self, index: int) -> list[Event]:
        block = self._blocks.pop(index, None)
        return [] if block is None else block.stop()

    def _message_stop(self, payload: dict[str, Any]) -> list[Event]:
        self._stopped = True
        self._ending.stop(payload)
        return []

    def _metadata(self, payload: dict[str, Any]) -> list[Event]:
        usage = usage_of(object_in(payload, "usage"), self.diagnostics)
        if usage is not None:
            self._machine.usage(counted(usage, self.diagnostics))
        tier = self._ending.about(payload)
        names = {theirs: ours for ours, theirs in TIERS.items()}
        self._machine.report_names(service_tier=names.get(str(tier), tier))
        return self._finish() if self._stopped else []

    def _whole(self, answer: dict[str, Any]) -> list[Event]:
        """Read a whole answer like its stream."""
        content = object_in(object_in(answer, "output"), "message").get("content")
        events: list[Event] = []
        for index, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, dict) and (kind := kind_of(block)):
                events += self._whole_block(index, kind, block[kind])
            else:
                self.diagnostics.loss("content", "a block that can't be read")
        return events + self._message_stop(answer) + self._metadata(answer)

    def _whole_block(self, index: int, kind: str, value: Any) -> list[Event]:
        if kind == "citationsContent" and isinstance(value, dict):
            texts = [each.get("text") for each in value.get("content") or () if isinstance(each, dict)]
            events = self._open(index, "text", None)
            for text in texts:
                events += self._blocks[index].feed("text", text)
            for citation in value.get("citations") or ():
                events += self._blocks[index].feed("citation", citation)
            return events + self._stop(index)
        events = self._open(index, kind, value)
        if kind in ("text", "reasoningContent"):
            events += self._blocks[index].feed(kind, value)
        return events + self._stop(index)

    def _finish(self) -> list[Event]:
        ending, context = self._ending, self._context
        events: list[Event] = []
        try:
            if ending.failure is not None:
                return self._fail(ending.failure)
            if ending.is_whole:
                events += [event for index in sorted(self._blocks) for event in self._stop(index)]
                events += context.close_open()
            if ending.reason is None:
                if not context.has_output:
                    return events + self._fail(
                        failure(EMPTY, "the upstream ended without content or stop reason")
                    )
                self.diagnostics.repair("stopReason", "missing, taken as end_turn")
            if ending.sequence:
                events += self._machine.stop_sequence(ending.sequence)
            self._report()
            events += self._machine.finish(ending.reason or _END_TURN)
        except BridgeError as error:
            return events + self._fail(error)
        self._mark_ended()
        return events

    def _report(self) -> None:
        if native := self._ending.native():
            self._machine.native(DIALECT, native)

    def _fail(self, error: ErrorPayload | BridgeError) -> list[Event]:
        self._mark_ended()
        if self._machine.phase in TERMINAL_PHASES:
            self.diagnostics.ignored("frame", "came after the response had ended")
            return []
        self._report()
        return self._machine.fail(error)


_HANDLERS: Final[dict[str, Callable[[Inbound, dict[str, Any]], list[Event]]]] = {
    "contentBlockDelta": Inbound._block_delta,
    "contentBlockStart": Inbound._block_start,
    "contentBlockStop": Inbound._block_stop,
    "messageStart": Inbound._message_start,
    "messageStop": Inbound._message_stop,
    "metadata": Inbound._metadata,
}
