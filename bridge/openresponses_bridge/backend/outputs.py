"""The outputs that a backend may yield, and the machine's method for each.

Text is a `str`; any other output is a struct of this module, `Usage` or `UrlCitation`.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from inspect import iscoroutine, iscoroutinefunction, isgeneratorfunction
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.diagnostics import LONGEST_SHOWN
from openresponses_bridge.dialects.base import counted
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import LocalError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.unknown import enc_hook
from openresponses_bridge.protocol.usage import Usage

UNENCODABLE: Final = (TypeError, ValueError, NotImplementedError, RecursionError)
"""Raised for values that JSON can't represent."""


class ToolCall(Struct, frozen=True):
    """One complete call of the client's tool `name`. `arguments`: a mapping, or JSON text. Without a
    `call_id` the call gets one."""

    name: str
    arguments: Mapping[str, Any] | str
    call_id: str | None = None

    def written(self) -> ToolCall:
        """Return the call with its arguments as text. Raises LocalError for values that JSON can't represent,
        NaN and the infinities among them, also in a text."""
        arguments: Any = self.arguments  # the types in a backend may be unchecked
        if not isinstance(arguments, Mapping):
            if isinstance(arguments, str) and ("NaN" in arguments or "Infinity" in arguments):
                _check_text(arguments)
            return self
        try:
            written = encode(dict(arguments)).decode("utf-8")
            if "null" in written:  # which a number may have become that is not finite
                _check_finite(msgspec.to_builtins(dict(arguments), enc_hook=enc_hook), "arguments")
            return replace(self, arguments=written)
        except UNENCODABLE as error:
            raise _wrong("ToolCall", f"arguments: {error}") from error


class ToolCallDelta(Struct, frozen=True):
    """The next piece of a call that the model is writing. `index` (0 or more) identifies the call among those
    that are being written. The first piece has `name` (and `call_id`, if there is one); each piece has the
    next part of the arguments' JSON."""

    index: int
    arguments: str = ""
    name: str | None = None
    call_id: str | None = None


class Reasoning(Struct, frozen=True):
    """The next piece of the model's reasoning, in its own words."""

    text: str


class ReasoningSummary(Struct, frozen=True):
    """The next piece of a summary of the reasoning."""

    text: str


class Refusal(Struct, frozen=True):
    """The next piece of a refusal to answer."""

    text: str


FinishReason = Literal[
    "stop",
    "tool_calls",
    "function_call",
    "length",
    "content_filter",
    "end_turn",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "max_tokens",
    "model_context_window_exceeded",
    "refusal",
]
"""Why a model stopped, in the terms of Chat Completions (`finish_reason`) or of Messages (`stop_reason`)."""
_REASONS: Final = frozenset(get_args(FinishReason))


class Finish(Struct, frozen=True):
    """Why the model stopped. `length`, `content_filter` and similar reasons make the response incomplete.
    Optional if the model stopped by itself. For a failure, raise an exception."""

    reason: FinishReason


Output = (
    str | ToolCall | ToolCallDelta | Reasoning | ReasoningSummary | Refusal | Finish | UrlCitation | Usage
)
"""An output that an iterator may yield."""


class OutputEmitter:
    """Emits outputs into a machine that has started."""

    def __init__(self, machine: ResponseStreamStateMachine) -> None:
        self._machine = machine
        self._whole_calls = 0

    def emit(self, output: Output) -> list[Event]:
        """Return the events for one output. Raises LocalError, without any effect, for a value that is not an
        output or has a field of a wrong type."""
        if type(output) is str:  # the common one first
            return self._machine.text(output)
        method = _METHODS.get(type(output))
        if method is not None:
            return method(self, output)
        if isinstance(output, str):
            return self._machine.text(str(output))
        kind = type(output).__name__
        raise LocalError(
            "bridge.backend.invalid_output",
            f"a backend yielded {kind}, expected str or one of "
            + ", ".join(known.__name__ for known in _METHODS),
        )

    def _usage(self, output: Usage) -> list[Event]:
        return self._machine.usage(counted(output, self._machine.diagnostics))

    def _finish(self, output: Finish) -> list[Event]:
        reason: Any = output.reason
        if not isinstance(reason, str) or reason not in _REASONS:
            raise _wrong(
                "Finish", f"reason is one of {', '.join(get_args(FinishReason))}, not {reason!r:.100}"
            )
        return self._machine.defer_finish(reason)

    def _call(self, call: ToolCall) -> list[Event]:
        # typed as Any: the types in a backend may be unchecked
        name: Any = call.name
        arguments: Any = call.written().arguments
        if not isinstance(arguments, str):
            raise _wrong("ToolCall", f"arguments must be a mapping or a str, not {type(arguments).__name__}")
        if not isinstance(name, str) or not name:
            raise _wrong("ToolCall", f"name must be a non-empty str, not {name!r:.100}")
        # negative, since the indexes of deltas begin at 0
        index = -1 - self._whole_calls
        self._whole_calls += 1
        events = self._machine.tool_call(index, call.call_id, name, arguments)
        return events + self._machine.tool_call_done(index)

    def _call_delta(self, delta: ToolCallDelta) -> list[Event]:
        if type(delta.index) is not int or delta.index < 0:
            raise _wrong("ToolCallDelta", "index must be an int of 0 or more")
        return self._machine.tool_call(delta.index, delta.call_id, delta.name, delta.arguments)


_METHODS: Final[dict[type, Callable[[OutputEmitter, Any], list[Event]]]] = {
    ToolCall: OutputEmitter._call,
    ToolCallDelta: OutputEmitter._call_delta,
    Reasoning: lambda emitter, output: emitter._machine.reasoning(output.text),
    ReasoningSummary: lambda emitter, output: emitter._machine.reasoning_summary(output.text),
    Refusal: lambda emitter, output: emitter._machine.refusal(output.text),
    Finish: OutputEmitter._finish,
    UrlCitation: lambda emitter, output: emitter._machine.annotation(output),
    Usage: OutputEmitter._usage,
}


def _check_text(arguments: str) -> None:
    """Raises LocalError with the place of NaN or an infinity in a text that is JSON otherwise. Any other text
    is the model's own words."""
    try:
        value = json.loads(arguments, parse_float=str, parse_int=str)  # constants alone become numbers
    except (ValueError, RecursionError):
        return
    _check_finite(value, "arguments")


class _Place(NamedTuple):
    """The place of a value: a step in another one. It becomes a path only in an error, since the paths of all
    values can take as much as the square of the text."""

    outer: _Place | None
    step: str

    def path(self) -> str:
        steps, place = [self.step], self.outer
        while place is not None:
            steps.append(place.step)
            place = place.outer
        return "".join(reversed(steps))


def _check_finite(value: Any, where: str) -> None:
    """Raises LocalError with the place of a number that is not finite, the first if there are several."""
    rest = [(value, _Place(None, where))]  # those that are left, the next one last
    while rest:
        value, place = rest.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise _wrong("ToolCall", f"{place.path()} is {value}, which JSON can't represent")
        if isinstance(value, dict):
            inner = [(each, _Place(place, f".{str(name)[:LONGEST_SHOWN]}")) for name, each in value.items()]
            rest += reversed(inner)
        elif isinstance(value, list | tuple):
            rest += reversed([(each, _Place(place, f"[{index}]")) for index, each in enumerate(value)])


def _wrong(kind: str, what: str) -> LocalError:
    return LocalError("bridge.backend.invalid_output", f"{kind}: {what}")


Generate = Callable[[CreateResponse], Iterable[Output]] | Iterable[Output]
"""A model: a function that is called with each request, or an iterable of outputs for one."""
AsyncFunction = Callable[[CreateResponse], AsyncIterable[Output]]
AsyncGenerate = AsyncFunction | AsyncIterable[Output]

_log = logging.getLogger("openresponses_bridge.backend")
_ASYNC: Final = "an async iterator, such as an `async def` function that yields"
_NOT_CLOSED: Final = "a backend's iterator failed when it was closed"


def opened(generate: Generate, request: CreateResponse) -> Iterator[Output]:
    """Return the iterator over the outputs for this request. Raises LocalError for a value that is not
    iterable; an exception of the function is passed on."""
    outputs = _called(generate, request)
    if not isinstance(outputs, Iterable) or isinstance(outputs, Mapping):
        raise _not_iterable(outputs, "an iterator that is not async")
    return iter(outputs)


def async_opened(generate: AsyncGenerate, request: CreateResponse) -> AsyncIterator[Output]:
    """Like `opened`, for an async iterator."""
    outputs = _called(generate, request)
    if not isinstance(outputs, AsyncIterable):
        raise _not_iterable(outputs, _ASYNC)
    return aiter(outputs)


def _called(generate: object, request: CreateResponse) -> Any:
    outputs: Any = generate(request) if callable(generate) else generate
    if iscoroutine(outputs):
        outputs.close()  # it is never awaited: this avoids the warning
    return outputs


def check_function(generate: object) -> None:
    """Raises LocalError for a value that can't answer several requests: an iterator, which gives one answer
    only, or a function that does not return an async iterator."""
    if iscoroutine(generate):
        generate.close()  # it is never awaited: this avoids the warning
    if not callable(generate):
        type_name = type(generate).__name__
        what = f"expected a function that is called with each request, not {type_name}"
        if isinstance(generate, AsyncIterable | Iterable) and not isinstance(generate, str | bytes | Mapping):
            what += ": give the function itself, without calling it"
        raise LocalError("bridge.backend.not_a_function", what)
    for each in (generate, type(generate).__call__):
        if iscoroutinefunction(each):
            raise _not_iterable(each, _ASYNC, "an `async def` without `yield`")
        if isgeneratorfunction(each):
            raise _not_iterable(each, _ASYNC, "a `def` with `yield`")


def place_of(outputs: object) -> str:
    """Return the current line of a generator as a traceback writes it; for any other iterator the name of its
    class."""
    while (inner := getattr(outputs, "gi_yieldfrom", None)) is not None:
        outputs = inner
    frame = getattr(outputs, "gi_frame", None) or getattr(outputs, "ag_frame", None)
    if frame is None:
        return f"  {type(outputs).__module__}.{type(outputs).__qualname__}"
    code = frame.f_code
    return f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}'


def close(outputs: object) -> None:
    """Close an iterator that is not read to its end, if it has `close`. An exception is logged."""
    try:
        if (end := getattr(outputs, "close", None)) is not None:
            end()
    except Exception:
        _log.exception(_NOT_CLOSED)


async def async_close(outputs: object) -> None:
    """Like `close`, for an async iterator."""
    try:
        if (end := getattr(outputs, "aclose", None)) is not None:
            await end()
    except Exception:
        _log.exception(_NOT_CLOSED)


def _not_iterable(value: object, expected: str, kind: str = "") -> LocalError:
    what = f"a backend gave {kind or type(value).__name__}, expected {expected}"
    return LocalError("bridge.backend.not_iterable", what)
