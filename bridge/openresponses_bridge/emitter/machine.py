"""`ResponseStreamStateMachine`: calls in, OpenResponses events out, and a live snapshot.

The machine decides which blocks open and close, and in which order (laws E4–E9); the blocks make their
events. Sans-IO: ids and clock are injected, nothing waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, get_args

from msgspec import UNSET

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.streamed_arguments import BRACKETS, may_begin_again, may_go_on_behind
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.arguments import (
    EXTENSION,
    annotation_of,
    extension_type,
    fields_of,
    index_of,
    kept_annotations,
    logprobs_of,
    reason_of,
    text_of,
    usage_of,
    wrong_argument,
)
from openresponses_bridge.emitter.blocks import REFUSAL, TEXT, PartKind
from openresponses_bridge.emitter.failures import (
    CANCELLED,
    UNKNOWN,
    Failure,
    Redact,
    outcome,
    payload_of,
    redacted,
    upstream_reason,
)
from openresponses_bridge.emitter.finished import in_one_form
from openresponses_bridge.emitter.live_response import LiveResponse, SettleUsage
from openresponses_bridge.emitter.open_blocks import OpenBlocks
from openresponses_bridge.emitter.output import IdFactory, Output
from openresponses_bridge.emitter.tool_call import nameless
from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol.codec import item_from
from openresponses_bridge.protocol.content import Annotation, LogProb
from openresponses_bridge.protocol.events import Event, FunctionCallArgumentsDelta, OutputTextDelta
from openresponses_bridge.protocol.hosted import PROGRESS_EVENTS
from openresponses_bridge.protocol.items import Item, MessagePhase
from openresponses_bridge.protocol.lenient import Repair
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import Extra, UnknownEvent
from openresponses_bridge.protocol.usage import Usage, latest
from openresponses_bridge.protocol.vocabulary import EVENTS
from openresponses_bridge.random_ids import random_id
from openresponses_bridge.state import METHODS, OUTPUT_METHODS, WIRES, BlockState, ResponseStreamPhase
from openresponses_bridge.text import is_whole, repair_surrogates

# constants, since Python 3.11 runs code at each access to a member of an enum
_IN_PROGRESS = ResponseStreamPhase.IN_PROGRESS
_OPEN = BlockState.OPEN
_NO_LOGPROBS: list[LogProb] = []


class ResponseStreamStateMachine:
    """Turns method calls into the events of one response.

    `model` is the model that the response names; `request` is echoed in it; `ids` makes an id from a prefix
    (`resp`, `call`, those of `protocol.ids`); `clock` gives Unix seconds; `tool_identities` restores the
    tools that the client declared; `wire` is the spelling, `openresponses` or `openai` (law E10); `redact`
    removes from an error what no client may see; `settle_usage` is called at the end and gives the final
    usage.
    With `unknown_fields=False`, for a client of another dialect, the unknown fields that the wire `openai`
    would carry are losses.

    Each method returns the events it caused, in order. `state.METHODS` says which may be called in which
    phase; any other call raises StreamStateError and changes nothing (law E9). Folding all events so far
    gives `snapshot` (law E1).
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
        redact: Redact | None = None,
        settle_usage: SettleUsage | None = None,
        unknown_fields: bool = True,
    ) -> None:
        if wire not in WIRES:
            raise wrong_argument("wire", f"expected one of {', '.join(WIRES)}, got {wire!r}")
        if not isinstance(model, str):
            raise wrong_argument("model", f"expected a string, got {type(model).__name__}")
        self._wire = WIRES[wire]
        if not unknown_fields:
            self._wire = self._wire._replace(unknown_fields=False, foreign=True)
        self._redact = redact
        self._number = count().__next__
        ids = ids or random_id
        output = Output(ids, self._number)
        self.diagnostics = Diagnostics()
        self._summarised = output.summarised
        self._items = output.items
        identities = ToolIdentityMap() if tool_identities is None else tool_identities
        self._blocks = OpenBlocks(output, self._wire, identities, self.diagnostics)
        self._deferred: str | None = None
        self._live = LiveResponse(
            model,
            request,
            response_id or ids("resp"),
            clock or time.time,
            self._wire,
            output,
            self.diagnostics,
        )
        self._live.settle_usage = settle_usage

    @property
    def phase(self) -> ResponseStreamPhase:
        return self._live.phase

    @property
    def wire(self) -> str:
        return self._wire.name

    @property
    def response_id(self) -> str:
        return self._live.fields.id

    @property
    def snapshot(self) -> Response:
        """The response so far, with the partial text of open blocks. Takes time linear in its size."""
        live = self._live
        return live.snapshot if live.phase is _IN_PROGRESS else live.fields

    @property
    def in_one_form(self) -> Response:
        """The response so far, for clients that have one place for reasoning. An item with both a summary and
        raw reasoning keeps the form that came first, which such a client also gets in a stream."""
        return in_one_form(self._live.snapshot, self._summarised)

    @property
    def usage_at_start(self) -> Usage | None:
        """The usage that was reported before `start()`; only the terminal event carries it."""
        return self._live.usage_at_start

    def adopt(self, response: Response) -> None:
        """Take over an upstream's response: its id, model, times and echoed fields before `start()`; before
        `finish()`, what its terminal event adds."""
        self.require("adopt")
        self._live.adopt(response)

    def report(self, response: Response) -> None:
        """Take over what an upstream's response reports of itself: its service tier, the settings of its
        reasoning, its name for the model, and on the wire `openai` the fields that the protocol does not
        have; on `openresponses` these are losses. If this is called before `start()`, all events have these
        values, otherwise only the terminal event."""
        self.require("report")
        self._live.report(response)

    def report_names(self, model: object = None, service_tier: object = None) -> None:
        """Take over the names that an upstream of another API has for its model and the service tier; a value
        that is not a string is ignored. If this is called before `start()`, all events have the names,
        otherwise only the terminal event."""
        self.require("report_names")
        self._live.report_names(model, service_tier)

    def native(self, dialect: str, fields: Mapping[str, Any]) -> list[Event]:
        """Keep fields of the upstream's answer that only clients of its API understand, in the form of that
        API. Objects are merged with those of earlier calls. If this is called before `start()`, all events
        have the fields, otherwise only the terminal event."""
        self.require("native")
        self._live.keep_native(text_of("native", dialect), fields_of("native", fields))
        return []

    def start(self) -> list[Event]:
        """Start the response. Returns `response.created` and `response.in_progress`."""
        self.require("start")
        return self._live.begin()

    # Text, refusal and reasoning: one kind is open at a time (law E5).
    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        """Append the next piece of visible text, with the log probabilities of its tokens if known."""
        part = self._blocks.text_part
        if part is None or logprobs or type(delta) is not str or not delta:
            if self._live.phase is not _IN_PROGRESS:
                raise self._refusal("text")
            return self._emit_text("text", TEXT, delta, logprobs)
        if not delta.isascii() and not is_whole(delta):
            return self._emit_text("text", TEXT, delta, None)
        # the common delta: a text part is open and nothing is held back, so it is sent unchanged
        part.write(delta)
        return [
            OutputTextDelta(self._number(), part.item_id, part.output_index, part.index, delta, _NO_LOGPROBS)
        ]

    def refusal(self, delta: str) -> list[Event]:
        """Append the next piece of a refusal, which is a part of the same message as the text around it."""
        self.require("refusal")
        return self._emit_text("refusal", REFUSAL, delta, None)

    def annotation(self, annotation: Annotation | Mapping[str, Any]) -> list[Event]:
        """Add a citation to the open text; a text part is opened if there is none.

        The wire `openresponses` has only `url_citation`: any other citation is left out there, which is a
        loss.
        """
        self.require("annotation")
        cited = kept_annotations(self._wire, [annotation_of(annotation)], self.diagnostics)
        if not cited:
            return []
        events, part = self._blocks.open_message_part(TEXT)
        return events + [part.annotate(each) for each in cited]

    def reasoning(self, delta: str) -> list[Event]:
        """Append the next piece of raw reasoning."""
        if self._live.phase is not _IN_PROGRESS:
            raise self._refusal("reasoning")
        part = self._blocks.raw_part
        if part is None or type(delta) is not str or not (delta.isascii() or is_whole(delta)) or not delta:
            delta = text_of("reasoning", delta)
            return self._blocks.append_reasoning(delta) if delta else []
        part.write(delta)
        return [part.kind.delta(self._number(), part.item_id, part.output_index, part.index, delta)]

    def reasoning_summary(self, delta: str, part: int = 0) -> list[Event]:
        """Append the next piece of a summary; `part` is the upstream's number of the summary part."""
        self.require("reasoning_summary")
        delta = text_of("reasoning_summary", delta)
        if not delta:
            return []
        events, block = self._blocks.reasoning()
        opened, summary = block.open_summary(part)
        return events + opened + summary.delta(delta)

    def reasoning_encrypted(self, content: str) -> list[Event]:
        """Set the encrypted content of the open reasoning item; an item is begun if none is open. The content
        appears in the item's done event. A second one begins another item."""
        self.require("reasoning_encrypted")
        content = repair_surrogates(text_of("reasoning_encrypted", content))
        if not content:
            return []
        return self._blocks.encrypt(content)

    def part_done(self) -> list[Event]:
        """Close the open part: the next delta begins another in the same item."""
        self.require("part_done")
        return self._blocks.close_part()

    def item_extra(self, extra: Extra, index: int | None = None) -> list[Event]:
        """Keep the unknown fields of the open message or reasoning item, or of the call at the upstream's
        `index`. They appear in the item's done event; on the wire `openresponses` they are losses."""
        self.require("item_extra")
        self._blocks.extend(extra, index)
        return []

    def part_extra(self, extra: Extra, *, summary: bool = False) -> list[Event]:
        """Keep the unknown fields of the open part, of the `summary` or of the content. They appear in the
        part's done event; on the wire `openresponses` they are losses."""
        self.require("part_extra")
        self._blocks.extend_part(extra, summary)
        return []

    def block_done(self, *, cut: bool = False) -> list[Event]:
        """Close the open message or reasoning item: the next delta begins another. `cut`: the upstream says
        that it is incomplete; its parts end now, and the item ends with the response."""
        self.require("block_done")
        return self._blocks.close_open(cut)

    # Tool calls: several may be open at once, each under the upstream's index.
    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
        namespace: str | None = None,
    ) -> list[Event]:
        """Append a fragment of the call at the upstream's `index`. The call is announced when its name is
        known.

        `type` is `function` (arguments are JSON) or `custom` (arguments are free text); `namespace`
        is for an upstream that has namespaces itself.
        """
        if self._live.phase is not _IN_PROGRESS:
            raise self._refusal("tool_call")
        if arguments and not id and not name and arguments.__class__ is str and index.__class__ is int:
            block = self._blocks.calls.get(index)
            if block is not None and block.arguments is _OPEN:
                if not block.plain or not arguments.isascii() or block.joiner.pending:
                    return block.delta(arguments)
                if (arguments[0] in BRACKETS and may_begin_again(arguments)) or (
                    "}" in arguments and may_go_on_behind(arguments)
                ):
                    return block.delta(arguments)
                # the common fragment: JSON of an open call, nothing held back, so it is sent unchanged
                block.write(arguments)
                item_id, output_index = block.item_id, block.output_index
                return [FunctionCallArgumentsDelta(self._number(), item_id, output_index, arguments)]
        if index.__class__ is not int:
            index = index_of("tool_call", index)
        facts = (("id", id), ("name", name), ("arguments", arguments), ("namespace", namespace))
        for field, value in facts:
            if value is not None and not isinstance(value, str):
                raise wrong_argument("tool_call", f"{field} is not a string but {value.__class__.__name__}")
        if type not in ("function", "custom"):
            raise wrong_argument("tool_call", f"type must be function or custom, not {type!r}")
        return self._blocks.call(index, id or "", name or "", arguments or "", type == "custom", namespace)

    def tool_call_done(self, index: int, *, cut: bool = False) -> list[Event]:
        """End the call at `index`. It is incomplete if its arguments end before their JSON does (law E7), and
        with `cut`, if the upstream says so. An incomplete call without a name is left out, with a loss, and
        the response is incomplete."""
        self.require("tool_call_done")
        block = self._blocks.calls.get(index_of("tool_call_done", index))
        if block is None:
            raise wrong_argument("tool_call_done", f"there is no tool call at index {index}")
        if not (block.upstream_name or cut):
            raise nameless("tool_call_done", index)
        return self._blocks.end_call(index, cut)

    def end_nameless(self) -> list[Event]:
        """End the calls that have no name yet: each is left out, with a loss, and the response is incomplete.
        Call this before `finish`, which refuses calls without names, for an upstream that may leave names
        out."""
        self.require("end_nameless")
        if self._blocks.waiting:
            self._blocks.end_nameless()
        return []

    def expect_item(
        self,
        item_id: str,
        phase: MessagePhase | None = None,
        *,
        explicit_end: bool = False,
        extra: Extra = UNSET,
    ) -> list[Event]:
        """Give this id, if it is free, to the next item that opens; a message also gets this phase.
        `explicit_end`: the upstream says when the item ends, so a tool call stays open until `tool_call_done`
        or the end of the response, even if its arguments are whole JSON. `extra`: the unknown fields with
        which the item is announced, see `item_extra`."""
        self.require("expect_item")
        if phase not in (None, *get_args(MessagePhase)):
            raise wrong_argument("expect_item", f"phase must be commentary or final_answer, not {phase!r}")
        self._blocks.expect(text_of("expect_item", item_id), phase or UNSET, explicit_end, extra)
        return []

    def item_added(self, item: Item | Mapping[str, Any]) -> list[Event]:
        """Announce an item that a server completes itself; `item()` with its id completes it here. A
        reasoning item is opened at once, since upstreams may announce one long before its first text, or
        without any text."""
        self.require("item_added")
        return self._blocks.announce(self._item("item_added", item))

    def item_event(self, item_id: str, type: str, fields: Mapping[str, Any]) -> list[Event]:
        """Report progress of an announced item, for instance `response.web_search_call.searching`. A type
        that the wire does not have gets a slug (law E10)."""
        self.require("item_event")
        block = self._blocks.items.announced(item_id)
        if block is None:
            raise wrong_argument("item_event", f"no item {item_id!r} is announced and open")
        kind = text_of("item_event", type)
        if not kind or kind in EVENTS.structs:
            raise wrong_argument("item_event", f"{type!r} does not report progress of an item")
        where = {"item_id": block.item_id, "output_index": block.output_index}
        return [self._extension(self._known_type(kind), {**fields_of("item_event", fields), **where})]

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        """Add a whole item at once. Returns the same events as if it had been streamed."""
        self.require("item")
        return self._blocks.item(self._item("item", item))

    def extension_event(self, type: str, fields: Mapping[str, Any]) -> list[Event]:
        """Emit an event of an extension, `slug:name` (specification, "Extensions"), or an event of OpenAI's
        that belongs to no item, such as `response.audio.delta`; it gets a slug on a wire that does not have
        it (law E10)."""
        self.require("extension_event")
        if type in PROGRESS_EVENTS:
            type = self._known_type(type)
        elif not EXTENSION.fullmatch(text_of("extension_event", type)):
            raise wrong_argument("extension_event", f"an extension's type is slug:name, not {type!r}")
        return [self._extension(type, fields_of("extension_event", fields))]

    def _known_type(self, type: str) -> str:
        return type if type in self._wire.progress else extension_type(type)

    def usage(self, usage: Usage | Mapping[str, Any]) -> list[Event]:
        """Report token counts, which only the terminal event carries. A later report replaces an earlier one;
        counts that it leaves out or has as 0 keep their earlier value."""
        self.require("usage")
        self._live.usage = latest(self._live.usage, usage_of(usage, self.diagnostics))
        return []

    def stop_sequence(self, sequence: str) -> list[Event]:
        """Report the stop sequence of the request at which the output ended. It appears in the terminal event
        of a completed response."""
        self.require("stop_sequence")
        self._live.stop_sequence = repair_surrogates(text_of("stop_sequence", sequence)) or None
        return []

    def defer_finish(self, reason: str | None) -> list[Event]:
        """Remember why the upstream stopped, for a later `finish()`."""
        self.require("defer_finish")
        self._deferred = reason_of("defer_finish", reason)
        return []

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        """Close everything that is open, then emit the terminal event (law E7). `reason` is why the upstream
        stopped; by default it ended by itself. `incomplete`: the upstream itself calls the response
        incomplete, and `reason` is kept unchanged. If the upstream ended by itself but something was cut off,
        the response is incomplete, and its reason names what was cut off. An empty reason, and a response
        that completes without any output, give a diagnostic."""
        self.require("finish")
        if self._blocks.waiting:
            self._blocks.check_named()
        if reason.__class__ is not str or not reason.isascii():
            reason = reason_of("finish", reason)
        original, reason = reason, reason or self._deferred
        why, known = outcome(reason)
        if incomplete and why is None:
            why = upstream_reason(reason) or UNKNOWN
        elif not known and not incomplete:
            self.diagnostics.warning("finish_reason", f"unknown reason {str(reason)[:64]!r}")
        events = self._blocks.close_all(stopped=why is None, abandoned=why == CANCELLED)
        cut = self._blocks.cut
        if why is None and cut is not None:
            if known and reason:
                self.diagnostics.warning("finish_reason", f"{reason[:64]!r}, ended as {cut}")
            why = cut
        if why is None:
            if not reason and original is not None:
                self.diagnostics.repair("finish_reason", "empty, taken as stop")
            if not self._items:
                self.diagnostics.warning("output", "completed without any")
        return [*events, self._live.end("finish", why)]

    def cancel(self) -> list[Event]:
        """End the response because the client cancelled it: everything that is open is incomplete (law
        E8)."""
        self.require("cancel")
        closed = self._blocks.close_all(stopped=False, abandoned=True)
        return [*closed, self._live.end("cancel", CANCELLED)]

    def fail(self, error: Failure) -> list[Event]:
        """End the response with an error: `error`, then `response.failed` with the partial output (law E8).

        Open items are incomplete and get no done events, so that no client runs half a call.
        """
        self.require("fail")
        payload = redacted(payload_of(error), repair_surrogates)
        payload = payload if self._redact is None else self._redact(payload)
        self._blocks.text_part = None  # it accepts deltas without a check of the phase
        return self._live.fail(payload)

    def require(self, method: str) -> None:
        """Raises StreamStateError when this method can't be called now (law E9)."""
        if method not in METHODS[self._live.phase]:
            raise self._refusal(method)

    def _refusal(self, method: str) -> StreamStateError:
        phase = self._live.phase
        code = StreamStateError.INVALID_TRANSITION
        if method in OUTPUT_METHODS:
            idle = phase is ResponseStreamPhase.IDLE
            code = StreamStateError.OUTPUT_BEFORE_START if idle else StreamStateError.DELTA_AFTER_TERMINAL
        message = f"{method} can't be called while the stream is {phase}"
        return StreamStateError(code, message, call=method, phase=str(phase))

    def _emit_text(
        self,
        method: str,
        kind: PartKind,
        delta: str,
        logprobs: Sequence[LogProb | Mapping[str, Any]] | None,
    ) -> list[Event]:
        if delta.__class__ is not str:
            delta = text_of(method, delta)
        probabilities = logprobs_of(logprobs) if logprobs else []
        if not delta and not probabilities:
            return []
        return self._blocks.append_text(kind, delta, probabilities)

    def _item(self, method: str, item: Item | Mapping[str, Any]) -> Item:
        if not isinstance(item, Mapping):
            return item
        repairs: list[Repair] = []
        built = item_from(dict(item), repairs)
        self._blocks.items.check(method, built)
        for path, what in repairs:
            self.diagnostics.repair(f"{method}.{built.type}{path.removeprefix('$')}", what)
        return built

    def _extension(self, type: str, fields: dict[str, Any]) -> Event:
        head = {"type": type, "sequence_number": self._number()}
        return UnknownEvent(head | {name: value for name, value in fields.items() if name not in head})
