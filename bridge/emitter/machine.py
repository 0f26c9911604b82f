"""`ResponseStreamStateMachine`: calls in, OpenResponses events out, a live snapshot beside them.

The machine decides what opens, what closes and in which order (laws E4–E9); the blocks know how
they are spelled. Sans-IO: ids and clock are injected, nothing waits.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from bridge.diagnostics import Diagnostics
from bridge.emitter.arguments import annotation_of, logprobs_of, text_of, usage_of, wrong_argument
from bridge.emitter.blocks import MessageBlock, ReasoningBlock
from bridge.emitter.calls import ToolCalls
from bridge.emitter.echo import initial_response
from bridge.emitter.failures import Failure, payload_of, response_error
from bridge.emitter.finish_reasons import CANCELLED, MAX_OUTPUT_TOKENS, outcome
from bridge.emitter.output import IdFactory, Output
from bridge.emitter.parts import REFUSAL, TEXT, OpenPart, PartKind
from bridge.emitter.whole_items import ItemEmitter
from bridge.errors import StreamStateError
from bridge.protocol import events as ev
from bridge.protocol.codec import item_from
from bridge.protocol.content import Annotation, LogProb, UrlCitation
from bridge.protocol.events import Event
from bridge.protocol.items import Item
from bridge.protocol.request import CreateResponse
from bridge.protocol.response import IncompleteDetails, Response, replace
from bridge.protocol.unknown import UnknownEvent
from bridge.protocol.usage import Usage
from bridge.state import (
    CALLS,
    OUTPUT_CALLS,
    PHASE_OF_STATUS,
    TERMINAL_EVENT,
    WIRES,
    BlockState,
    ResponseStreamPhase,
)
from bridge.tools.identity import ToolIdentityMap

_IN_PROGRESS = ResponseStreamPhase.IN_PROGRESS
_NO_LOGPROBS: list[LogProb] = []
_SLUG = re.compile(r"[A-Za-z0-9_-]+:[A-Za-z0-9_.:-]+")


def _random_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


class ResponseStreamStateMachine:
    """Turns calls into the events of one response.

    `model` is what the response names; `request` is echoed; `ids` makes an id from a prefix (`resp`,
    `msg`, `rs`, `fc`, `call`); `clock` gives Unix seconds; `tool_identities` restores the tools the
    client declared; `wire` is the spelling, `openresponses` or `openai` (law E10).

    Every method returns the events it caused, in order. A call in the wrong phase raises
    StreamStateError and changes nothing (law E9). After each call, folding all events so far gives
    exactly `snapshot` (law E1).
    """

    def __init__(
        self,
        model: str,
        request: CreateResponse | None = None,
        response_id: str | None = None,
        ids: IdFactory | None = None,
        clock: Callable[[], float] | None = None,
        tool_identities: ToolIdentityMap | None = None,
        wire: str = "openresponses",
    ) -> None:
        if wire not in WIRES:
            raise wrong_argument("wire", f"expected one of {', '.join(WIRES)}, got {wire!r}")
        self._wire = WIRES[wire]
        self._clock = clock or time.time
        self._number = count().__next__
        ids = ids or _random_id
        self._output = Output(ids, self._number)
        self.diagnostics = Diagnostics()
        self._calls = ToolCalls(
            self._output, self._wire, tool_identities or ToolIdentityMap(), self.diagnostics
        )
        self._items = ItemEmitter(self._output, self._wire)
        self._phase = ResponseStreamPhase.IDLE
        self._open: MessageBlock | ReasoningBlock | None = None
        self._text_part: OpenPart | None = None
        self._usage: Usage | None = None
        self._deferred: str | None = None
        self._cut = False
        self._base = initial_response(
            model, request, response_id or ids("resp"), int(self._clock()), self._wire
        )

    # ── what it is ─────────────────────────────────────────────────────────────────────────────────
    @property
    def phase(self) -> ResponseStreamPhase:
        return self._phase

    @property
    def wire(self) -> str:
        return self._wire.name

    @property
    def response_id(self) -> str:
        return self._base.id

    @property
    def snapshot(self) -> Response:
        """The response as it stands, open blocks with their partial text. Costs its own size."""
        if self._phase is not _IN_PROGRESS:
            return self._base
        return replace(self._base, output=self._output.live())

    # ── the beginning ──────────────────────────────────────────────────────────────────────────────
    def start(self) -> list[Event]:
        """`response.created` and `response.in_progress`."""
        self._require("start")
        self._phase = _IN_PROGRESS
        self._base = replace(self._base, status="in_progress")
        created = ev.ResponseCreated(self._number(), self._base)
        return [created, ev.ResponseInProgress(self._number(), self._base)]

    # ── text, refusal, reasoning: one open block at a time (law E5) ────────────────────────────────
    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        """The next piece of visible text, with the log probabilities of its tokens if known."""
        if self._phase is not _IN_PROGRESS:
            raise self._refusal("text")
        part = self._text_part
        if part is None or logprobs or type(delta) is not str or not delta.isascii() or not delta:
            return self._say("text", TEXT, delta, logprobs)
        # the common delta: a text part is open and nothing is held back, so it goes out as it is
        part.write(delta)
        return [
            ev.OutputTextDelta(
                self._number(), part.item_id, part.output_index, part.index, delta, _NO_LOGPROBS
            )
        ]

    def refusal(self, delta: str) -> list[Event]:
        """The next piece of a refusal: a part of the same message as the text around it."""
        self._require("refusal")
        return self._say("refusal", REFUSAL, delta, None)

    def annotation(self, annotation: Annotation | Mapping[str, Any]) -> list[Event]:
        """A citation on the open text; a text part is opened when there is none.

        Citations other than `url_citation` are unknown to the `openresponses` wire: there they are
        left out, with a diagnostic.
        """
        self._require("annotation")
        cited = annotation_of(annotation)
        if not self._wire.openai_items and not isinstance(cited, UrlCitation):
            self.diagnostics.loss(f"annotation.{cited.type}", "not published, left out")
            return []
        events, part = self._message_part(TEXT)
        events.append(part.annotate(cited))
        return events

    def reasoning(self, delta: str) -> list[Event]:
        """The next piece of raw reasoning."""
        self._require("reasoning")
        delta = text_of("reasoning", delta)
        if not delta:
            return []
        events, block = self._reasoning_block()
        opened, part = block.open_raw()
        return events + opened + part.delta(delta)

    def reasoning_summary(self, delta: str, part: int = 0) -> list[Event]:
        """The next piece of a summary; `part` is the upstream's number of the summary part."""
        self._require("reasoning_summary")
        delta = text_of("reasoning_summary", delta)
        if not delta:
            return []
        events, block = self._reasoning_block()
        opened, summary = block.open_summary(part)
        return events + opened + summary.delta(delta)

    def reasoning_encrypted(self, content: str) -> list[Event]:
        """The opaque form of the open reasoning item (one is begun when none is open). It shows when
        the item is done. A second one belongs to another item."""
        self._require("reasoning_encrypted")
        content = text_of("reasoning_encrypted", content)
        if not content:
            return []
        events: list[Event] = []
        if isinstance(self._open, ReasoningBlock) and self._open.encrypted is not None:
            events = self._close_open(stopped=True)
        opened, block = self._reasoning_block()
        block.encrypted = content
        return events + opened

    def block_done(self) -> list[Event]:
        """Close the open message or reasoning item: the next delta begins another."""
        self._require("block_done")
        return self._close_open(stopped=True)

    # ── tool calls, side by side by index ──────────────────────────────────────────────────────────
    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
    ) -> list[Event]:
        """One fragment of the call at the upstream's `index`. It is announced once its name is known.

        `type` is `function` (arguments are JSON) or `custom` (arguments are free text).
        """
        if self._phase is not _IN_PROGRESS:
            raise self._refusal("tool_call")
        block = self._calls.by_index.get(index)
        if block is not None and block.state is BlockState.OPEN and not id and arguments and not name:
            return block.delta(text_of("tool_call", arguments))
        facts = (("id", id), ("name", name), ("arguments", arguments))
        for field, value in facts:
            if value is not None and not isinstance(value, str):
                raise wrong_argument("tool_call", f"{field} is no string but {value.__class__.__name__}")
        if type not in ("function", "custom"):
            raise wrong_argument("tool_call", f"type is function or custom, not {type!r}")
        return self._calls.apply(
            index, id or "", name or "", arguments or "", type == "custom", lambda: self._close_open(True)
        )

    def tool_call_done(self, index: int) -> list[Event]:
        """The call at `index` is whole. Arguments that end before their JSON does are cut (law E7)."""
        self._require("tool_call_done")
        block = self._calls.by_index.get(index)
        if block is None:
            raise wrong_argument("tool_call_done", f"there is no tool call at index {index}")
        if not block.upstream_name:
            raise StreamStateError(
                StreamStateError.INCOMPLETE_TOOL_CALL,
                f"tool_call_done: the tool call at index {index} never got a name",
                call="tool_call_done",
                index=index,
            )
        return self._calls.end(index)

    # ── whole items and extensions ─────────────────────────────────────────────────────────────────
    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        """A whole item at once: the same events as if it had been streamed."""
        self._require("item")
        whole: Item = item_from(dict(item)) if isinstance(item, Mapping) else item
        self._items.check(whole)
        events = self._close_open(stopped=True) + self._calls.release(lambda block: block.is_whole())
        emitted, cut = self._items.emit(whole)
        self._cut = self._cut or cut
        return events + emitted

    def extension_event(self, type: str, fields: Mapping[str, Any]) -> list[Event]:
        """An event of an extension, `slug:name` (specification, "Extensions")."""
        self._require("extension_event")
        if not _SLUG.fullmatch(type):
            raise wrong_argument("extension_event", f"an extension's type is slug:name, not {type!r}")
        head = {"type": type, "sequence_number": self._number()}
        return [UnknownEvent(head | {name: value for name, value in fields.items() if name not in head})]

    # ── the end ────────────────────────────────────────────────────────────────────────────────────
    def usage(self, usage: Usage | Mapping[str, Any]) -> list[Event]:
        """Token counts. No event carries them before the terminal one, so they show there."""
        self._require("usage")
        self._usage = usage_of(usage)
        return []

    def defer_finish(self, reason: str | None) -> list[Event]:
        """Remember why upstream stopped, for a `finish()` that comes later."""
        self._require("defer_finish")
        self._deferred = reason
        return []

    def finish(self, reason: str | None = None) -> list[Event]:
        """Close what is open, then say how it ended (law E7)."""
        self._require("finish")
        self._calls.check_named()
        reason = reason if reason is not None else self._deferred
        incomplete, known = outcome(reason)
        if not known:
            self.diagnostics.warning("finish_reason", f"unknown reason {str(reason)[:64]!r}")
        events = self._close_all(stopped=incomplete is None, abandoned=incomplete == CANCELLED)
        if incomplete is None and (self._cut or self._calls.cut):
            incomplete = MAX_OUTPUT_TOKENS
        return events + self._end_with(incomplete)

    def cancel(self) -> list[Event]:
        """End because the client asked for it: whatever is open is incomplete (law E8)."""
        self._require("cancel")
        return self._close_all(stopped=False, abandoned=True) + self._end_with(CANCELLED)

    def fail(self, error: Failure) -> list[Event]:
        """End in error: `error`, then `response.failed` with the partial output (law E8).

        Open items are incomplete and get no done events, so that no client runs half a call.
        """
        self._require("fail")
        payload = payload_of(error)
        if self._wire.nested_error:
            told = ev.ErrorEvent(self._number(), payload)
        else:
            told = ev.ErrorEvent(
                self._number(), code=payload.code, message=payload.message, param=payload.param
            )
        self._base = replace(
            self._base, output=self._output.live("incomplete"), error=response_error(payload)
        )
        return [told, self._terminal("failed")]

    # ── within ─────────────────────────────────────────────────────────────────────────────────────
    def _require(self, call: str) -> None:
        if call not in CALLS[self._phase]:
            raise self._refusal(call)

    def _refusal(self, call: str) -> StreamStateError:
        code = StreamStateError.INVALID_TRANSITION
        if call in OUTPUT_CALLS:
            idle = self._phase is ResponseStreamPhase.IDLE
            code = StreamStateError.OUTPUT_BEFORE_START if idle else StreamStateError.DELTA_AFTER_TERMINAL
        message = f"{call} can't be called while the stream is {self._phase}"
        return StreamStateError(code, message, call=call, phase=str(self._phase))

    def _say(
        self,
        call: str,
        kind: PartKind,
        delta: str,
        logprobs: Sequence[LogProb | Mapping[str, Any]] | None,
    ) -> list[Event]:
        delta = text_of(call, delta)
        probabilities = logprobs_of(logprobs)
        if not delta and not probabilities:
            return []
        events, part = self._message_part(kind)
        events += part.delta(delta, probabilities)
        # what is held back must be joined with the next delta, which the short way does not do
        self._text_part = part if kind is TEXT and not part.buffer.held else None
        return events

    def _message_part(self, kind: PartKind) -> tuple[list[Event], OpenPart]:
        events: list[Event] = []
        block = self._open
        if not isinstance(block, MessageBlock):
            events = self._close_open(stopped=True) + self._settle_held_calls()
            block = MessageBlock(self._number, self._output.unique("msg"), self._output.next_index())
            self._begin(block, events)
        if block.part is None or block.part.kind is not kind:
            self._text_part = None
            events += block.open_part(kind)
        assert block.part is not None
        return events, block.part

    def _reasoning_block(self) -> tuple[list[Event], ReasoningBlock]:
        if isinstance(self._open, ReasoningBlock):
            return [], self._open
        events = self._close_open(stopped=True) + self._settle_held_calls()
        item_id = self._output.unique("rs")
        block = ReasoningBlock(self._number, item_id, self._output.next_index(), self._wire.name)
        self._begin(block, events)
        return events, block

    def _begin(self, block: MessageBlock | ReasoningBlock, events: list[Event]) -> None:
        self._output.begin(block)
        self._open = block
        events.append(block.added())

    def _settle_held_calls(self) -> list[Event]:
        """A call that waits to be whole keeps its place before what comes after it."""
        return self._calls.release(lambda block: block.held and block.is_whole())

    def _close_open(self, stopped: bool) -> list[Event]:
        block, self._open, self._text_part = self._open, None, None
        return [] if block is None else self._output.close(block, stopped)[0]

    def _close_all(self, stopped: bool, abandoned: bool) -> list[Event]:
        events: list[Event] = []
        for _, block in sorted(self._output.blocks.items()):
            closed, cut = self._output.close(block, stopped, abandoned)
            self._cut = self._cut or cut
            events += closed
        self._open = self._text_part = None
        return events + self._calls.finish_waiting(stopped, abandoned)

    def _end_with(self, incomplete: str | None) -> list[Event]:
        if incomplete is None:
            return [self._terminal("completed", completed_at=int(self._clock()))]
        if incomplete == CANCELLED and self._wire.cancelled_status == CANCELLED:
            return [self._terminal(CANCELLED)]
        return [self._terminal("incomplete", incomplete_details=IncompleteDetails(incomplete))]

    def _terminal(self, status: str, **facts: Any) -> Event:
        self._phase = PHASE_OF_STATUS[status]
        if status != "failed":
            facts["output"] = self._output.live()
        self._base = replace(self._base, status=status, usage=self._usage, **facts)
        event: Event = TERMINAL_EVENT[self._phase](self._number(), self._base)
        return event
