"""Cancellation token, passed to tool handlers."""

from __future__ import annotations

from collections.abc import Callable

from openresponses_bridge.tools.errors import ToolCallCancelledError


class CancellationToken:
    """Can be cancelled once and stays cancelled. Not thread-safe, except for reading
    `is_cancellation_requested`."""

    __slots__ = ("_callbacks", "is_cancellation_requested")

    def __init__(self) -> None:
        self.is_cancellation_requested = False
        self._callbacks: list[Callable[[], object]] = []

    def cancel(self) -> None:
        """Call every callback once, in the order in which they came."""
        self.is_cancellation_requested = True
        while self._callbacks:
            self._callbacks.pop(0)()

    def on_cancellation_requested(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Add a callback for cancellation; it is called at once when the token is cancelled already. Returns
        a function that removes it."""
        if self.is_cancellation_requested:
            callback()
        else:
            self._callbacks.append(callback)

        def dispose() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return dispose

    def check(self) -> None:
        """Raises ToolCallCancelledError when cancelled."""
        if self.is_cancellation_requested:
            raise ToolCallCancelledError
