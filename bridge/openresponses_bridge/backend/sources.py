"""Where outputs come from: iterators of an author's own, opened and closed whatever they do."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from inspect import iscoroutine, iscoroutinefunction, isgeneratorfunction
from typing import Any, Final

from openresponses_bridge.backend.outputs import Output
from openresponses_bridge.errors import LocalError
from openresponses_bridge.protocol.request import CreateResponse

Generate = Callable[[CreateResponse], Iterable[Output]] | Iterable[Output]
"""A model: what is called with each request, or what it has to say to one."""
AsyncFunction = Callable[[CreateResponse], AsyncIterable[Output]]
AsyncGenerate = AsyncFunction | AsyncIterable[Output]

_log = logging.getLogger("openresponses_bridge.backend")
_ASYNC: Final = "an async iterator: an `async def` with `yield` in it, say"
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
        raise _not_iterable(outputs, _ASYNC)
    return aiter(outputs)


def check_function(generate: object) -> None:
    """Raises LocalError for what can't answer one request after the other: for an iterator, which has one
    answer, and for a function whose calls give no async iterator."""
    if iscoroutine(generate):
        generate.close()  # never awaited, and so without a warning
    if not callable(generate):
        found = type(generate).__name__
        what = f"expected a function that is called with each request, not {found}"
        if isinstance(generate, AsyncIterable | Iterable) and not isinstance(generate, str | bytes | Mapping):
            what += ": give the function itself, without calling it"
        raise LocalError("bridge.backend.not_a_function", what)
    for each in (generate, type(generate).__call__):
        if iscoroutinefunction(each):
            raise _not_iterable(each, _ASYNC, "an `async def` without `yield`")
        if isgeneratorfunction(each):
            raise _not_iterable(each, _ASYNC, "a `def` with `yield`")


def place_of(outputs: object) -> str:
    """The line at which an iterator stands, as a traceback writes it; the name of its class, where it is not
    a generator."""
    while (inner := getattr(outputs, "gi_yieldfrom", None)) is not None:
        outputs = inner
    frame = getattr(outputs, "gi_frame", None) or getattr(outputs, "ag_frame", None)
    if frame is None:
        return f"  {type(outputs).__module__}.{type(outputs).__qualname__}"
    code = frame.f_code
    return f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}'


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


def _not_iterable(found: object, expected: str, kind: str = "") -> LocalError:
    what = f"a backend gave {kind or type(found).__name__}, expected {expected}"
    return LocalError("bridge.backend.not_iterable", what)
