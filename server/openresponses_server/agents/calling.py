"""Handlers run on the event loop or in threads, for so long, until the run is cancelled."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread

from openresponses_bridge.tools.cancellation import CancellationToken
from openresponses_bridge.tools.errors import ToolCallCancelledError, ToolTimeoutError
from openresponses_bridge.tools.registry import Tool


async def call_with_anyio(
    tool: Tool, run: Callable[[], Any], timeout: float | None, token: CancellationToken
) -> Any:
    """The ToolCaller over anyio. An async handler is cancelled where it waits. One that is not async runs in
    a thread, which can't be stopped: its call ends at once and the thread is left to itself, so what is slow
    looks at `context.token`. The token is to be cancelled on the event loop's thread."""
    with anyio.CancelScope() as cancelled:
        dispose = token.on_cancellation_requested(cancelled.cancel)
        try:
            with anyio.move_on_after(timeout) as limit:
                value = (
                    run() if tool.is_async else await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
                )
                return await value if inspect.isawaitable(value) else value
        finally:
            dispose()
        assert limit.cancelled_caught, timeout
        raise ToolTimeoutError(timeout or 0)
    raise ToolCallCancelledError
