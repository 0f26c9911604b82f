"""The interface of the machine, and filters in front of it.

Every inbound calls a `ResponseStream`, which is the machine or a filter. A `StreamFilter` wraps the machine
or another filter, and may hold back or change the calls of its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from msgspec import UNSET

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.failures import Failure
from openresponses_bridge.protocol.content import Annotation, LogProb
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item, MessagePhase
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import Extra
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.state import ResponseStreamPhase


class CallFragment(NamedTuple):
    """The arguments of one call of `tool_call`, without the index."""

    id: str | None
    name: str | None
    arguments: str | None
    type: str
    namespace: str | None


class ResponseStream(Protocol):
    """The methods of `ResponseStreamStateMachine`, which says what each does and raises."""

    @property
    def diagnostics(self) -> Diagnostics: ...
    @property
    def phase(self) -> ResponseStreamPhase: ...
    @property
    def wire(self) -> str: ...
    @property
    def response_id(self) -> str: ...
    @property
    def snapshot(self) -> Response: ...
    @property
    def in_one_form(self) -> Response: ...
    @property
    def usage_at_start(self) -> Usage | None: ...

    def require(self, method: str) -> None: ...
    def adopt(self, response: Response) -> None: ...
    def report(self, response: Response) -> None: ...
    def report_names(self, model: object = None, service_tier: object = None) -> None: ...
    def native(self, dialect: str, fields: Mapping[str, Any]) -> list[Event]: ...
    def start(self) -> list[Event]: ...
    def text(
        self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None
    ) -> list[Event]: ...
    def refusal(self, delta: str) -> list[Event]: ...
    def annotation(self, annotation: Annotation | Mapping[str, Any]) -> list[Event]: ...
    def reasoning(self, delta: str) -> list[Event]: ...
    def reasoning_summary(self, delta: str, part: int = 0) -> list[Event]: ...
    def reasoning_encrypted(self, content: str) -> list[Event]: ...
    def part_done(self) -> list[Event]: ...
    def item_extra(self, extra: Extra, index: int | None = None) -> list[Event]: ...
    def part_extra(self, extra: Extra, *, summary: bool = False) -> list[Event]: ...
    def block_done(self, *, cut: bool = False) -> list[Event]: ...
    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
        namespace: str | None = None,
    ) -> list[Event]: ...
    def tool_call_done(self, index: int, *, cut: bool = False) -> list[Event]: ...
    def end_nameless(self) -> list[Event]: ...
    def expect_item(
        self,
        item_id: str,
        phase: MessagePhase | None = None,
        *,
        explicit_end: bool = False,
        extra: Extra = UNSET,
    ) -> list[Event]: ...
    def item_added(self, item: Item | Mapping[str, Any]) -> list[Event]: ...
    def item_event(self, item_id: str, type: str, fields: Mapping[str, Any]) -> list[Event]: ...
    def item(self, item: Item | Mapping[str, Any]) -> list[Event]: ...
    def extension_event(self, type: str, fields: Mapping[str, Any]) -> list[Event]: ...
    def usage(self, usage: Usage | Mapping[str, Any]) -> list[Event]: ...
    def stop_sequence(self, sequence: str) -> list[Event]: ...
    def defer_finish(self, reason: str | None) -> list[Event]: ...
    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]: ...
    def cancel(self) -> list[Event]: ...
    def fail(self, error: Failure) -> list[Event]: ...


class StreamFilter:
    """Passes every call on to `stream`. A subclass overrides the methods whose calls it holds back or
    changes."""

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream

    @property
    def diagnostics(self) -> Diagnostics:
        return self._stream.diagnostics

    @property
    def phase(self) -> ResponseStreamPhase:
        return self._stream.phase

    @property
    def wire(self) -> str:
        return self._stream.wire

    @property
    def response_id(self) -> str:
        return self._stream.response_id

    @property
    def snapshot(self) -> Response:
        return self._stream.snapshot

    @property
    def in_one_form(self) -> Response:
        return self._stream.in_one_form

    def next_answer(self) -> None:
        """Begin another answer of the same response: a filter begins again whatever it counts per answer."""
        if isinstance(self._stream, StreamFilter):
            self._stream.next_answer()

    @property
    def usage_at_start(self) -> Usage | None:
        return self._stream.usage_at_start

    def require(self, method: str) -> None:
        self._stream.require(method)

    def adopt(self, response: Response) -> None:
        self._stream.adopt(response)

    def report(self, response: Response) -> None:
        self._stream.report(response)

    def report_names(self, model: object = None, service_tier: object = None) -> None:
        self._stream.report_names(model, service_tier)

    def native(self, dialect: str, fields: Mapping[str, Any]) -> list[Event]:
        return self._stream.native(dialect, fields)

    def start(self) -> list[Event]:
        return self._stream.start()

    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        return self._stream.text(delta, logprobs)

    def refusal(self, delta: str) -> list[Event]:
        return self._stream.refusal(delta)

    def annotation(self, annotation: Annotation | Mapping[str, Any]) -> list[Event]:
        return self._stream.annotation(annotation)

    def reasoning(self, delta: str) -> list[Event]:
        return self._stream.reasoning(delta)

    def reasoning_summary(self, delta: str, part: int = 0) -> list[Event]:
        return self._stream.reasoning_summary(delta, part)

    def reasoning_encrypted(self, content: str) -> list[Event]:
        return self._stream.reasoning_encrypted(content)

    def part_done(self) -> list[Event]:
        return self._stream.part_done()

    def item_extra(self, extra: Extra, index: int | None = None) -> list[Event]:
        return self._stream.item_extra(extra, index)

    def part_extra(self, extra: Extra, *, summary: bool = False) -> list[Event]:
        return self._stream.part_extra(extra, summary=summary)

    def block_done(self, *, cut: bool = False) -> list[Event]:
        return self._stream.block_done(cut=cut)

    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
        namespace: str | None = None,
    ) -> list[Event]:
        return self._stream.tool_call(index, id, name, arguments, type, namespace)

    def tool_call_done(self, index: int, *, cut: bool = False) -> list[Event]:
        return self._stream.tool_call_done(index, cut=cut)

    def end_nameless(self) -> list[Event]:
        return self._stream.end_nameless()

    def expect_item(
        self,
        item_id: str,
        phase: MessagePhase | None = None,
        *,
        explicit_end: bool = False,
        extra: Extra = UNSET,
    ) -> list[Event]:
        return self._stream.expect_item(item_id, phase, explicit_end=explicit_end, extra=extra)

    def item_added(self, item: Item | Mapping[str, Any]) -> list[Event]:
        return self._stream.item_added(item)

    def item_event(self, item_id: str, type: str, fields: Mapping[str, Any]) -> list[Event]:
        return self._stream.item_event(item_id, type, fields)

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        return self._stream.item(item)

    def extension_event(self, type: str, fields: Mapping[str, Any]) -> list[Event]:
        return self._stream.extension_event(type, fields)

    def usage(self, usage: Usage | Mapping[str, Any]) -> list[Event]:
        return self._stream.usage(usage)

    def stop_sequence(self, sequence: str) -> list[Event]:
        return self._stream.stop_sequence(sequence)

    def defer_finish(self, reason: str | None) -> list[Event]:
        return self._stream.defer_finish(reason)

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        return self._stream.finish(reason, incomplete=incomplete)

    def cancel(self) -> list[Event]:
        return self._stream.cancel()

    def fail(self, error: Failure) -> list[Event]:
        return self._stream.fail(error)


class HoldingFilter(StreamFilter):
    """May hold something back until other output comes: `_flush` passes it on before a refusal, reasoning or
    an announced item."""

    def _flush(self) -> list[Event]:
        raise NotImplementedError

    def refusal(self, delta: str) -> list[Event]:
        return self._flush() + super().refusal(delta)

    def reasoning(self, delta: str) -> list[Event]:
        return self._flush() + super().reasoning(delta)

    def reasoning_summary(self, delta: str, part: int = 0) -> list[Event]:
        return self._flush() + super().reasoning_summary(delta, part)

    def reasoning_encrypted(self, content: str) -> list[Event]:
        return self._flush() + super().reasoning_encrypted(content)

    def item_added(self, item: Item | Mapping[str, Any]) -> list[Event]:
        return self._flush() + super().item_added(item)


class TextHoldingFilter(HoldingFilter):
    """May hold back the end of a text: `_flush` passes it on also before any other call that ends the
    text."""

    def part_done(self) -> list[Event]:
        return self._flush() + super().part_done()

    def block_done(self, *, cut: bool = False) -> list[Event]:
        return self._flush() + super().block_done(cut=cut)

    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
        namespace: str | None = None,
    ) -> list[Event]:
        return self._flush() + super().tool_call(index, id, name, arguments, type, namespace)

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        return self._flush() + super().finish(reason, incomplete=incomplete)


class ItemHoldingFilter(HoldingFilter):
    """Holds back the id of an expected item until the item begins, since the filter may leave that item
    out."""

    def __init__(self, stream: ResponseStream) -> None:
        super().__init__(stream)
        self._expected: Callable[[], list[Event]] | None = None

    @property
    def _holds_items(self) -> bool:
        return True

    def expect_item(
        self,
        item_id: str,
        phase: MessagePhase | None = None,
        *,
        explicit_end: bool = False,
        extra: Extra = UNSET,
    ) -> list[Event]:
        expect = partial(super().expect_item, item_id, phase, explicit_end=explicit_end, extra=extra)
        if not self._holds_items:
            return expect()
        self.require("expect_item")
        events = self._flush()
        self._expected = expect
        return events

    def _begin_expected(self) -> list[Event]:
        expected, self._expected = self._expected, None
        return [] if expected is None else expected()

    def _flush(self) -> list[Event]:
        return self._begin_expected()
