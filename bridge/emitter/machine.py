"""`ResponseStreamStateMachine`: calls in, OpenResponses events out, a live snapshot beside them.

The machine decides what opens, what closes and in which order (laws E4–E9); the blocks know how
they are spelled. Sans-IO: ids and clock are injected, nothing waits.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from bridge.diagnostics import Diagnostics
from bridge.emitter.arguments import reason_of, usage_of, wrong_argument
from bridge.emitter.content_calls import ContentCalls
from bridge.emitter.failures import Failure, payload_of
from bridge.emitter.finish_reasons import CANCELLED, MAX_OUTPUT_TOKENS, outcome
from bridge.emitter.item_calls import ItemCalls
from bridge.emitter.live_response import LiveResponse
from bridge.emitter.open_blocks import OpenBlocks
from bridge.emitter.output import IdFactory, Output
from bridge.protocol.events import Event
from bridge.protocol.request import CreateResponse
from bridge.protocol.response import Response
from bridge.protocol.usage import Usage
from bridge.state import WIRES, ResponseStreamPhase
from bridge.tools.identity import ToolIdentityMap


def _random_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


class ResponseStreamStateMachine(ContentCalls, ItemCalls):
    """Turns calls into the events of one response.

    `model` is what the response names; `request` is echoed; `ids` makes an id from a prefix (`resp`,
    `msg`, `rs`, `fc`, `call`); `clock` gives Unix seconds; `tool_identities` restores the tools the
    client declared; `wire` is the spelling, `openresponses` or `openai` (law E10).

    Each method returns the events it caused, in order. One called in the wrong phase raises
    StreamStateError and changes nothing (law E9). Folding all events so far gives `snapshot` (law E1).
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
        self._number = count().__next__
        ids = ids or _random_id
        output = Output(ids, self._number)
        self.diagnostics = Diagnostics()
        self._blocks = OpenBlocks(output, self._wire, tool_identities or ToolIdentityMap(), self.diagnostics)
        self._deferred: str | None = None
        self._live = LiveResponse(
            model, request, response_id or ids("resp"), clock or time.time, self._wire, output
        )

    # ── what it is ─────────────────────────────────────────────────────────────────────────────────
    @property
    def phase(self) -> ResponseStreamPhase:
        return self._live.phase

    @property
    def wire(self) -> str:
        return self._wire.name

    @property
    def response_id(self) -> str:
        return self._live.id

    @property
    def snapshot(self) -> Response:
        """The response as it stands, open blocks with their partial text. Costs its own size."""
        return self._live.snapshot

    # ── the beginning ──────────────────────────────────────────────────────────────────────────────
    def adopt(self, response: Response) -> None:
        """Be an upstream's response: take its id, model, times and echoed fields before `start()`,
        and what its terminal event adds before `finish()`."""
        self._require("adopt")
        self._live.adopt(response)

    def start(self) -> list[Event]:
        """`response.created` and `response.in_progress`."""
        self._require("start")
        return self._live.begin()

    # ── the end ────────────────────────────────────────────────────────────────────────────────────
    def usage(self, usage: Usage | Mapping[str, Any]) -> list[Event]:
        """Token counts. No event carries them before the terminal one, so they show there."""
        self._require("usage")
        self._live.usage = usage_of(usage)
        return []

    def defer_finish(self, reason: str | None) -> list[Event]:
        """Remember why upstream stopped, for a `finish()` that comes later."""
        self._require("defer_finish")
        self._deferred = reason_of("defer_finish", reason)
        return []

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        """Close what is open, then say how it ended (law E7). `incomplete`: upstream itself calls the
        response that, and the reason stands as it gave it."""
        self._require("finish")
        self._blocks.calls.check_named()
        reason = reason_of("finish", reason) or self._deferred
        why, known = outcome(reason)
        if not known:
            self.diagnostics.warning("finish_reason", f"unknown reason {str(reason)[:64]!r}")
        if incomplete and why is None:
            why = reason or MAX_OUTPUT_TOKENS
        events = self._blocks.close_all(stopped=why is None, abandoned=why == CANCELLED)
        if why is None and self._blocks.cut:
            why = MAX_OUTPUT_TOKENS
        return [*events, self._live.end(why)]

    def cancel(self) -> list[Event]:
        """End because the client asked for it: whatever is open is incomplete (law E8)."""
        self._require("cancel")
        return [*self._blocks.close_all(stopped=False, abandoned=True), self._live.end(CANCELLED)]

    def fail(self, error: Failure) -> list[Event]:
        """End in error: `error`, then `response.failed` with the partial output (law E8).

        Open items are incomplete and get no done events, so that no client runs half a call.
        """
        self._require("fail")
        return self._live.fail(payload_of(error))
