"""The phase every call is held to: a wrong call is refused and changes nothing (law E9)."""

from __future__ import annotations

from bridge.diagnostics import Diagnostics
from bridge.emitter.live_response import LiveResponse
from bridge.emitter.open_blocks import OpenBlocks
from bridge.emitter.parts import Number
from bridge.errors import StreamStateError
from bridge.state import CALLS, OUTPUT_CALLS, ResponseStreamPhase, Wire


class GuardedStream:
    """What all calls share: the response, its open blocks, its numbers, and the guard."""

    _wire: Wire
    _number: Number
    _live: LiveResponse
    _blocks: OpenBlocks
    diagnostics: Diagnostics

    def _require(self, call: str) -> None:
        if call not in CALLS[self._live.phase]:
            raise self._refusal(call)

    def _refusal(self, call: str) -> StreamStateError:
        phase = self._live.phase
        code = StreamStateError.INVALID_TRANSITION
        if call in OUTPUT_CALLS:
            idle = phase is ResponseStreamPhase.IDLE
            code = StreamStateError.OUTPUT_BEFORE_START if idle else StreamStateError.DELTA_AFTER_TERMINAL
        message = f"{call} can't be called while the stream is {phase}"
        return StreamStateError(code, message, call=call, phase=str(phase))
