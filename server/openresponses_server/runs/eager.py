"""A coroutine begun where there is no task: in a callback of the event loop.

Most of what a read brings can be passed on without waiting for anything. That is done in the callback in
which it arrived, and no task is woken for it; what does have to wait is waited for by the run's task.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class Rest:
    """What is left of a coroutine that was begun. It is awaited once, or closed."""

    __slots__ = ("_coroutine", "_error", "_waits_for")

    def __init__(
        self, coroutine: Coroutine[Any, Any, object], waits_for: Any, error: BaseException | None = None
    ) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for
        self._error = error

    def __await__(self) -> Generator[Any, Any, None]:
        if self._error is not None:
            raise self._error
        waits_for = self._waits_for
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:
                # cancelled while it waits
                thrown: BaseException | None = error
            else:
                thrown = None
            try:
                waits_for = self._coroutine.send(sent) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration:
                return

    def close(self) -> None:
        """Break it off where it waits."""
        self._coroutine.close()


def begin(coroutine: Coroutine[Any, Any, object]) -> Rest | None:
    """Run it until it waits or ends; None when it has ended. What it raises is raised by the rest."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None
    except BaseException as error:
        return Rest(coroutine, None, error)
    return Rest(coroutine, waits_for)
