"""Law S8: a signal stops the taking of requests; what runs may finish, and is cut off after the grace."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, Final

import structlog

from server.gate import Gate

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LOOK_SECONDS: Final = 0.05
_LAST_WORDS_SECONDS: Final = 1.0  # to send the ends of what was cut off
_log = structlog.get_logger(__name__)


@asynccontextmanager
async def draining(gate: Gate, grace: float) -> AsyncIterator[None]:
    """While this lasts, the first signal closes the gate, and the previous signal handler is called when
    nothing runs any more or `grace` seconds are over. A second signal is passed on at once.

    Signals are the main thread's matter; on another nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    drains: list[asyncio.Task[None]] = []

    def begin(number: int) -> None:
        drains.append(loop.create_task(_drain(gate, grace, lambda: _pass_on(before[number], number))))

    def heard(number: int, frame: FrameType | None) -> None:
        if gate.closing:
            _pass_on(before[number], number)
        else:
            gate.close()
            loop.call_soon_threadsafe(begin, number)

    for number in _SIGNALS:
        signal.signal(number, heard)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
        for drain in drains:
            drain.cancel()


async def _drain(gate: Gate, grace: float, done: Any) -> None:
    _log.info("shutdown.draining", running=gate.running, grace=grace)
    if not await _is_idle(gate, grace):
        _log.warning("shutdown.cut_off", running=gate.running)
        gate.cut_off()
        await _is_idle(gate, _LAST_WORDS_SECONDS)
    done()


async def _is_idle(gate: Gate, seconds: float) -> bool:
    """Whether nothing runs any more, within that time."""
    end = asyncio.get_running_loop().time() + seconds
    while gate.running and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(_LOOK_SECONDS)
    return not gate.running


def _pass_on(handler: Any, number: int) -> None:
    if callable(handler):
        handler(number, None)
