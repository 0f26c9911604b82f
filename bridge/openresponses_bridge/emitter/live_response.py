"""The response resource through its life: begun, growing, ended. What `snapshot` and the lifecycle
events show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from openresponses_bridge.emitter.echo import initial_response, respelled
from openresponses_bridge.emitter.failures import error_event, response_error
from openresponses_bridge.emitter.finish_reasons import CANCELLED
from openresponses_bridge.emitter.output import Output
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.characters import with_whole_characters
from openresponses_bridge.protocol.errors import ErrorPayload
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import IncompleteDetails, Response, replace
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.state import METHODS, TERMINAL_EVENT, ResponseStreamPhase, Wire
from openresponses_bridge.surrogates import mended

SettleUsage = Callable[[Usage | None, Sequence[Item]], Usage | None]
"""From what the upstream has reported and the output, the usage that a response ends with."""


class LiveResponse:
    """The fields around the output, and the phase. `usage` is held back until the end, since no event
    carries it before (law E1); `settle_usage` then makes it what it ends with. A total that nobody divides
    counts as input."""

    __slots__ = (
        "_at_end",
        "_clock",
        "_fields",
        "_output",
        "_wire",
        "phase",
        "settle_usage",
        "stop_sequence",
        "usage",
    )

    def __init__(
        self,
        model: str,
        request: CreateResponse | None,
        response_id: str,
        clock: Callable[[], float],
        wire: Wire,
        output: Output,
    ) -> None:
        self._clock = clock
        self._wire = wire
        self._output = output
        self._fields = initial_response(mended(model), request, response_id, int(clock()), wire)
        self.phase = ResponseStreamPhase.IDLE
        self.usage: Usage | None = None
        self.settle_usage: SettleUsage | None = None
        self.stop_sequence: str | None = None
        self._at_end: dict[str, Any] = {}

    @property
    def id(self) -> str:
        return self._fields.id

    @property
    def snapshot(self) -> Response:
        """The response as it stands, open blocks with their partial text. Costs its own size."""
        if self.phase is not ResponseStreamPhase.IN_PROGRESS:
            return self._fields
        return replace(self._fields, output=self._output.live())

    def adopt(self, response: Response) -> None:
        """Be the response that an upstream sends: all its fields before the start; after it, what only the
        terminal event may carry."""
        response = with_whole_characters(response)
        if self.phase is ResponseStreamPhase.IDLE:
            self._fields = replace(
                respelled(response, self._wire),
                status="queued",
                output=[],
                usage=None,
                error=None,
                completed_at=None,
                incomplete_details=None,
                stop_sequence=UNSET,
            )
            return
        self._at_end = {"service_tier": response.service_tier}
        if response.completed_at is not None:
            self._at_end["completed_at"] = response.completed_at

    def begin(self) -> list[Event]:
        """`response.created` and `response.in_progress`."""
        self._enter("start", "in_progress")
        self._fields = replace(self._fields, status="in_progress")
        created = ev.ResponseCreated(self._output.number(), self._fields)
        return [created, ev.ResponseInProgress(self._output.number(), self._fields)]

    def end(self, method: str, incomplete: str | None) -> Event:
        """The terminal event that this method causes; `incomplete` is why it is not completed, if so."""
        if incomplete is None:
            return self._terminal(method, "completed", completed_at=int(self._clock()))
        if incomplete == CANCELLED and self._wire.cancelled_status == CANCELLED:
            return self._terminal(method, CANCELLED)
        return self._terminal(method, "incomplete", incomplete_details=IncompleteDetails(incomplete))

    def fail(self, payload: ErrorPayload) -> list[Event]:
        """`error`, then `response.failed` with the partial output, open items incomplete (law E8)."""
        error = error_event(self._output.number(), payload, self._wire)
        return [error, self._terminal("fail", "failed", error=response_error(payload))]

    def _terminal(self, method: str, status: str, **facts: Any) -> Event:
        output = self._output.live("incomplete")
        self._enter(method, status)
        facts |= self._at_end
        if status == "completed":
            # clocks go back, and an upstream's may differ from ours
            facts["completed_at"] = max(facts["completed_at"], self._fields.created_at)
            facts["stop_sequence"] = self.stop_sequence or UNSET
        else:
            facts.pop("completed_at", None)
        if self.settle_usage is not None:
            self.usage = self.settle_usage(self.usage, output)
        if self.usage is not None and self.usage.is_undivided:
            self.usage = Usage.of(self.usage.total_tokens, 0, estimated=self.usage.estimated is True)
        self._fields = replace(self._fields, status=status, usage=self.usage, output=output, **facts)
        event: Event = TERMINAL_EVENT[status](self._output.number(), self._fields)
        return event

    def _enter(self, method: str, status: str) -> None:
        self.phase = METHODS[self.phase][method][status]
