"""Converts an Anthropic message, streamed or whole, to calls of the machine, and so to events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.dialects.anthropic_messages.upstream.blocks import (
    AppendingBlock,
    BlockReader,
    MessageContext,
    open_block,
)
from openresponses_bridge.dialects.anthropic_messages.upstream.ending import (
    END_TURN,
    StopState,
    UsageCounter,
    counts_at_start,
    said_at_end,
    said_at_start,
    said_first,
    said_whole,
)
from openresponses_bridge.dialects.base import (
    EMPTY,
    TIER,
    FrameString,
    FrameTemplate,
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
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import decode_frame, encode, with_whole_characters
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.seal import Sealer
from openresponses_bridge.state import TERMINAL_PHASES
from openresponses_bridge.text import repair_surrogates

# A strict decoder reads well-formed frames. What it refuses is read field by field: a missing `type` comes
# from the SSE event's name, a delta's from its field, numbers may be strings, and lone surrogates (of an
# emoji split over two deltas) are kept.

_frames: msgspec.json.Decoder[t.KnownFrame] = msgspec.json.Decoder(t.KnownFrame)
strict = _frames.decode
"""Decodes a well-formed payload. Raises one of NOT_STRICT for any other payload."""
NOT_STRICT = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def _by_tag(union: Any) -> dict[str, type[Struct]]:
    return {str(member.__struct_config__.tag): member for member in get_args(union)}


_FRAMES = _by_tag(t.KnownFrame)
_DELTAS = _by_tag(t.Delta)
_DELTA_OF_FIELD = {"text": "text_delta", "partial_json": "input_json_delta", "thinking": "thinking_delta"} | {
    "signature": "signature_delta",
    "citation": "citations_delta",
}
# a name has one type in all structs
_TYPES: dict[str, type] = {
    "index": int,
    **dict.fromkeys(("content_block", "usage", "error", "citation", "stop_details"), dict),
    **dict.fromkeys(("text", "partial_json", "thinking", "signature", "encrypted_content"), str),
    **dict.fromkeys(("id", "model", "stop_reason", "stop_sequence"), str),
}


def lenient(data: bytes, event: str, diagnostics: Diagnostics) -> t.Frame:
    """Decode a payload that `strict` refused. Raises WireError if it is not a JSON object."""
    value = decode_frame(data)
    if isinstance(value, list) and value:
        value = value[0]  # gateways put other servers' errors into an array
    if not isinstance(value, dict):
        raise WireError(WireError.INVALID_SHAPE, f"expected a JSON object, got {type(value).__name__}")
    return _read(value, event, diagnostics)


def _read(value: dict[str, Any], event: str, diagnostics: Diagnostics) -> t.Frame:
    kind = value.get("type")
    if not isinstance(kind, str):
        kind = event or _guess(value)
        diagnostics.repair("frame.type", "missing, taken from the event's name or the fields")
    struct = _FRAMES.get(kind)
    if struct is None:
        return t.UnknownFrame(kind, value) if error_in_frame(value, event) is None else t.ErrorFrame(value)
    if struct is t.ContentBlockDelta:
        delta = _delta(value.get("delta"), diagnostics)
        return t.ContentBlockDelta(_index(value.get("index")), delta)
    if struct is t.ErrorFrame:
        return t.ErrorFrame(value)  # in any form
    frame: t.Frame = _build(struct, value, diagnostics, kind, whole=True)
    return frame


def _guess(value: dict[str, Any]) -> str:
    if error_in_frame(value) is not None:
        return "error"
    return "message" if "content" in value and "role" in value else ""


def _delta(value: Any, diagnostics: Diagnostics) -> t.Delta | None:
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    if not isinstance(kind, str):
        kind = next((name for field, name in _DELTA_OF_FIELD.items() if field in value), "")
    struct = _DELTAS.get(kind)
    if struct is None:
        report_unknown_type(f"delta.{kind}" if kind else "delta", value, diagnostics, "unknown delta")
        return None
    delta: t.Delta = _build(struct, value, diagnostics, kind, whole=struct is t.CitationsDelta)
    return delta


def _build(
    struct: type[Struct], value: dict[str, Any], diagnostics: Diagnostics, where: str, whole: bool
) -> Any:
    """Build a struct. `whole` is True if no delta follows, so that lone surrogates are replaced."""
    known: dict[str, Any] = {}
    for name in struct.__struct_fields__:
        raw = value.get(name)
        if raw is None:
            continue
        if name == "index":
            known[name] = _index(raw)
        elif name == "partial_json" and isinstance(raw, dict):
            diagnostics.repair(f"{where}.{name}", "JSON that was parsed already, written as text again")
            known[name] = encode(with_whole_characters(raw)).decode()
        elif name == "content" and struct is t.WholeMessage and isinstance(raw, str):
            diagnostics.repair(f"{where}.{name}", "a string, taken as a text block")
            known[name] = [{"type": "text", "text": repair_surrogates(raw)}]
        elif _fits(struct, name, raw):
            known[name] = with_whole_characters(raw) if whole else raw
        else:
            diagnostics.loss(f"{where}.{name}", f"can't be read: {type(raw).__name__}")
    return struct(**known)


def _fits(struct: type[Struct], name: str, raw: Any) -> bool:
    if name == "content" and struct is t.WholeMessage:
        return isinstance(raw, list) and all(isinstance(block, dict) for block in raw)
    if name == "delta" or (name == "message" and struct is t.MessageStart):
        return isinstance(raw, dict)
    return isinstance(raw, _TYPES.get(name, str))


def _index(raw: Any) -> int:
    try:
        return int(raw)
    except (TypeError, ValueError, OverflowError):
        return t.NO_INDEX


_COMMON = t.ContentBlockDelta
_TIERS: Final = {theirs: ours for ours, theirs in t.TIERS.items()}
_DONE: Final = b"[DONE]"
# delta without a block → the type of its block
_IMPLIED: dict[type, str] = {t.TextDelta: "text", t.ThinkingDelta: "thinking"}


class Inbound(OnceBegun):
    """Converts one upstream message to calls of the machine. `sealer` seals thinking."""

    __slots__ = (
        "_blocks",
        "_context",
        "_frames",
        "_id",
        "_next",
        "_stop_state",
        "_usage",
        "template",
    )

    def __init__(self, machine: ResponseStream, sealer: Sealer | None = None) -> None:
        super().__init__(machine)
        self.template = FrameTemplate()
        self._context = MessageContext(machine, sealer or Sealer())
        self._usage = UsageCounter(machine.diagnostics)
        self._blocks: dict[int, BlockReader] = {}  # that are open, in the order of opening
        self._next = 0  # index of a block that has none
        self._id: str | None = None  # of the message, None before its start
        self._stop_state = StopState(machine.diagnostics)
        self._frames = 0

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one frame's payload. `event` is the SSE event's name, for servers that leave `type` out."""
        template = self.template
        if template.learned:
            if (alike := template.payload.feed(data)) is not None:
                return alike
            template.reset()
        if not self._live:
            return self._outside(data, event)
        self._frames += 1
        try:
            try:
                frame: t.Frame = strict(data)
            except NOT_STRICT:
                if (instead := self._instead_of_frame(data.strip())) is not None:
                    return instead
                frame = lenient(data, event, self.diagnostics)
            if type(frame) is _COMMON:  # the common case first
                block, delta = self._blocks.get(frame.index), frame.delta
                if block is not None and delta is not None:
                    events = block.feed(delta)
                    learns = len(events) == 1 and template.enabled
                    if learns and isinstance(block, AppendingBlock) and hasattr(delta, block.field):
                        template.learn(data, event, self._position, _string_of(delta, block))
                    return events
            reader = _SAYS.get(type(frame))
            if reader is not None:
                self._keep_said(reader(decode_frame(data)))
            return _HANDLERS[type(frame)](self, frame)
        except WireError as error:
            failed = unread(self._position, error, data, event, self.diagnostics)
            return [] if failed is None else self._fail(failed)
        except BridgeError as error:
            # the machine refused what the frames contain: the upstream's failure
            return self._fail(error)

    def _instead_of_frame(self, data: bytes) -> list[Event] | None:
        """Return the events of what some servers send instead of frames: the end mark of Chat Completions, or
        nothing. None for anything else."""
        if data == _DONE:
            self.diagnostics.repair("message_stop", "missing, [DONE] came in its place")
            return self._message_stop(t.MessageStop())
        if not data:
            self.diagnostics.ignored("frame", "empty")
            return []
        return None

    def close(self) -> list[Event]:
        """Handle the end of the upstream. Without an earlier `message_stop` or stop reason, the message was
        cut off."""
        if self._ended:
            return []
        events = self._begin()
        if self._stop_state.reason is not None:
            self.diagnostics.repair("message_stop", "missing, ended by the stop reason before it")
            return events + self._finish()
        return events + self._fail(cut_after(self._position))

    def _read_first(self, data: bytes) -> None:
        with suppress(WireError):
            first = decode_frame(data)
            if isinstance(first, dict):
                self._keep_said(said_first(first), (object_in(first, "message") or first).get("model"))
                if (usage := counts_at_start(first)) is not None:
                    self._report(usage)

    def _keep_said(self, fields: dict[str, Any], model: Any = None) -> None:
        """Keep the further fields of a frame."""
        tier = fields.get(TIER)
        self._machine.native(t.DIALECT, fields)
        self._machine.report_names(model, _TIERS.get(str(tier), tier))

    @property
    def _position(self) -> int:
        """The number of the newest frame."""
        return self._frames + self.template.fed

    def _unannounced(self, frame: t.ContentBlockDelta) -> list[Event]:
        index = frame.index
        if (delta := frame.delta) is None:
            return []
        if index == t.NO_INDEX and self._blocks:
            self.diagnostics.repair("content_block_delta.index", "missing, taken as the open block's")
            return self._blocks[self._newest()].feed(delta)
        kind = _IMPLIED.get(type(delta))
        if kind is None:
            self.diagnostics.loss(
                f"content_block_delta.{type(delta).__name__}", "of a block that is not open"
            )
            return []
        self.diagnostics.repair("content_block_start", "missing, made from the delta")
        return self._open(index, {"type": kind}) + self._blocks[index].feed(delta)

    def _block_start(self, frame: t.ContentBlockStart) -> list[Event]:
        block = frame.content_block or {}
        if not isinstance(block.get("type"), str):
            self.diagnostics.loss("content_block_start", "a block without a type")
            return []
        return self._open(frame.index if frame.index != t.NO_INDEX else self._next, block)

    def _open(self, index: int, block: dict[str, Any]) -> list[Event]:
        if self._id is None:
            self._id = ""
            self.diagnostics.repair("message_start", "missing")
        events = self._stop(index) + self._context.close_open()
        self._next = max(self._next, index + 1)
        opened = self._blocks[index] = open_block(self._context, block)
        return events + opened.begin()

    def _block_stop(self, frame: t.ContentBlockStop) -> list[Event]:
        index = frame.index
        if index == t.NO_INDEX and self._blocks:
            index = self._newest()
        return self._stop(index)

    def _newest(self) -> int:
        """Return the index of the open block that was opened last."""
        return next(reversed(self._blocks))

    def _stop(self, index: int) -> list[Event]:
        block = self._blocks.pop(index, None)
        return [] if block is None else block.stop()

    def _stop_all(self) -> list[Event]:
        return [event for index in sorted(self._blocks) for event in self._stop(index)]

    def _message_start(self, frame: t.MessageStart) -> list[Event]:
        message = frame.message or {}
        events: list[Event] = []
        if self._id is not None and self._id == message.get("id"):
            self.diagnostics.repair("message_start", "sent twice")
        elif self._id is not None:
            self.diagnostics.repair("message_start", "another message spliced in, its blocks follow on")
            events = self._stop_all() + self._context.close_open()
            self._next = 0
            self._usage.splice()
            self._stop_state.reset()
        self._id = str(message.get("id") or "")
        if isinstance(usage := message.get("usage"), dict):
            self._report(self._usage.begin(usage))
        content = message.get("content")
        if content is not None and not isinstance(content, list):
            self.diagnostics.loss("message_start.content", f"can't be read: {type(content).__name__}")
            content = []
        for block in content or ():
            events += self._whole_block(block)
        return events

    def _message_delta(self, frame: t.MessageDelta) -> list[Event]:
        delta = frame.delta or {}
        self._count(frame.usage)
        self._stop_state.update(
            delta.get("stop_reason"), delta.get("stop_sequence"), delta.get("stop_details")
        )
        return []

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._report(self._usage.update(usage))

    def _report(self, usage: Usage) -> None:
        self._machine.usage(counted(usage, self.diagnostics))

    def _message_stop(self, _frame: t.MessageStop) -> list[Event]:
        if self._stop_state.reason is None:
            if not (self._blocks or self._context.has_output):
                return self._fail(failure(EMPTY, "the upstream ended without content or stop reason"))
            self.diagnostics.repair("stop_reason", "missing, taken as end_turn")
            self._stop_state.reason = END_TURN
        return self._finish()

    def _whole(self, frame: t.WholeMessage) -> list[Event]:
        self._id = frame.id or ""
        self._count(frame.usage)
        events: list[Event] = []
        for block in frame.content or ():
            events += self._whole_block(block)
        self._stop_state.update(frame.stop_reason, frame.stop_sequence, frame.stop_details)
        return events + self._message_stop(t.MessageStop())

    def _whole_block(self, block: Any) -> list[Event]:
        index = self._next
        content_block = block if isinstance(block, dict) else None
        return self._block_start(t.ContentBlockStart(index, content_block)) + self._stop(index)

    def _ping(self, _frame: t.Ping) -> list[Event]:
        return []

    def _unknown(self, frame: t.UnknownFrame) -> list[Event]:
        report_unknown_type(frame.kind, frame.fields, self.diagnostics)
        return []

    def _error(self, frame: t.ErrorFrame) -> list[Event]:
        error = frame.error or {"code": frame.code, "message": frame.message}
        return self._fail(payload_of(error, t.DIALECT))

    def _finish(self) -> list[Event]:
        events: list[Event] = []
        try:
            if self._stop_state.whole:
                # the end does not cut off the message: open items are whole
                events += self._stop_all() + self._context.close_open() + self._context.end_searches()
            if self._stop_state.explanation:
                events += self._machine.refusal(self._stop_state.explanation)
            if self._stop_state.sequence:
                events += self._machine.stop_sequence(self._stop_state.sequence)
            if (usage := self._usage.end()) is not None:
                self._report(usage)
            events += self._machine.finish(self._stop_state.reason)
        except BridgeError as error:
            return events + self._fail(error)
        self._mark_ended()
        return events

    def _fail(self, error: ErrorPayload | BridgeError) -> list[Event]:
        self._mark_ended()
        if self._machine.phase in TERMINAL_PHASES:
            self.diagnostics.ignored("frame", "came after the response had ended")
            return []
        if self._blocks:
            self.diagnostics.warning("frame", f"{len(self._blocks)} open at the failure")
        return self._machine.fail(error)


_HANDLERS: Final[dict[type, Callable[[Inbound, Any], list[Event]]]] = {
    t.ContentBlockDelta: Inbound._unannounced,
    t.ContentBlockStart: Inbound._block_start,
    t.ContentBlockStop: Inbound._block_stop,
    t.MessageStart: Inbound._message_start,
    t.MessageDelta: Inbound._message_delta,
    t.MessageStop: Inbound._message_stop,
    t.Ping: Inbound._ping,
    t.ErrorFrame: Inbound._error,
    t.WholeMessage: Inbound._whole,
    t.UnknownFrame: Inbound._unknown,
}


_SAYS: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    t.MessageStart: said_at_start,
    t.MessageDelta: said_at_end,
    t.WholeMessage: said_whole,
}
"""Returns what a frame says that only clients of the API know."""


def _string_of(delta: t.Delta, block: AppendingBlock) -> FrameString:
    """Return the string of a delta that its block has appended."""
    field = block.field
    return FrameString(
        getattr(delta, field),
        lambda data: getattr(getattr(strict(data), "delta", None), field, None),
        block.append,
    )
