"""Where outputs come from: iterators of an author's own, opened and closed whatever they do."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from inspect import iscoroutine
from typing import Any, Final

from bridge.backend.outputs import Output
from bridge.errors import LocalError
from bridge.protocol.request import CreateResponse

Generate = Callable[[CreateResponse], Iterable[Output]] | Iterable[Output]
"""A model: what is called with each request, or what it has to say to one."""
AsyncGenerate = Callable[[CreateResponse], AsyncIterable[Output]] | AsyncIterable[Output]

_log = logging.getLogger("bridge.backend")
_NOT_CLOSED: Final = "a backend's iterator failed when it was closed"


def opened(generate: Generate, request: CreateResponse) -> Iterator[Output]:
    """The outputs for this request. Raises LocalError for what can't be iterated over, and what the call
    raises."""
    outputs: Any = generate(request) if callable(generate) else generate
    if not isinstance(outputs, Iterable) or isinstance(outputs, Mapping):
        raise _not_iterable(outputs, "an iterator")
    return iter(outputs)


def async_opened(generate: AsyncGenerate, request: CreateResponse) -> AsyncIterator[Output]:
    """The same for one that is read with `async for`."""
    outputs: Any = generate(request) if callable(generate) else generate
    if iscoroutine(outputs):
        outputs.close()  # never awaited, and so without a warning
    if not isinstance(outputs, AsyncIterable):
        raise _not_iterable(outputs, "an async iterator: an `async def` with `yield` in it, say")
    return aiter(outputs)


def close(outputs: object) -> None:
    """End an iterator that is not read further, if it can be ended. What it raises is logged."""
    try:
        if (end := getattr(outputs, "close", None)) is not None:
            end()
    except Exception:
        _log.exception(_NOT_CLOSED)


async def async_close(outputs: object) -> None:
    """The same for an async one."""
    try:
        if (end := getattr(outputs, "aclose", None)) is not None:
            await end()
    except Exception:
        _log.exception(_NOT_CLOSED)


def _not_iterable(found: object, expected: str) -> LocalError:
    what = f"a backend gave {type(found).__name__}, expected {expected}"
    return LocalError("bridge.backend.not_iterable", what)
