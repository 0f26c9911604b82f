"""What a model may yield, and the call of the machine that each of these is.

Text is a `str`; everything else is one of the structs here, `Usage` or `UrlCitation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.dialects.base import counted
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import LocalError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.usage import Usage

UNENCODABLE: Final = (TypeError, ValueError, NotImplementedError, RecursionError)
"""What is raised for a value that JSON does not have."""


class ToolCall(Struct, frozen=True):
    """One whole call of the client's tool `name`. `arguments`: a mapping, or the JSON as text. Without a
    `call_id` the call gets one."""

    name: str
    arguments: Mapping[str, Any] | str
    call_id: str | None = None

    def written(self) -> ToolCall:
        """The same with its arguments as text. Raises LocalError for values that JSON does not have."""
        if not isinstance(self.arguments, Mapping):
            return self
        try:
            return replace(self, arguments=encode(dict(self.arguments)).decode("utf-8"))
        except UNENCODABLE as error:
            raise _wrong("ToolCall", f"arguments: {error}") from error


class ToolCallDelta(Struct, frozen=True):
    """A piece of a call as the model writes it. `index` (0 or above) says which of the calls in the making;
    the first piece brings `name` (and `call_id`, if there is one), each one the next piece of the JSON."""

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
"""Why a model stopped, in the words of Chat Completions (`finish_reason`) or of Messages (`stop_reason`)."""
_REASONS: Final = frozenset(get_args(FinishReason))


class Finish(Struct, frozen=True):
    """Why the model stopped: `length`, `content_filter` and their kin end the response as incomplete. Not
    needed when it stopped by itself. For a failure, raise an exception."""

    reason: FinishReason


Output = (
    str | ToolCall | ToolCallDelta | Reasoning | ReasoningSummary | Refusal | Finish | UrlCitation | Usage
)
"""What an iterator may yield."""


class Speaker:
    """Turns outputs into calls of a machine that has started."""

    def __init__(self, machine: ResponseStreamStateMachine) -> None:
        self._machine = machine
        self._whole_calls = 0
        self._methods: Final[dict[type, Callable[[Any], list[Event]]]] = {
            str: machine.text,
            ToolCall: self._call,
            ToolCallDelta: self._call_delta,
            Reasoning: lambda output: machine.reasoning(output.text),
            ReasoningSummary: lambda output: machine.reasoning_summary(output.text),
            Refusal: lambda output: machine.refusal(output.text),
            Finish: self._finish,
            UrlCitation: machine.annotation,
            Usage: lambda output: machine.usage(counted(output, machine.diagnostics)),
        }

    def say(self, output: Output) -> list[Event]:
        """The events of one output. Raises LocalError for what is not an output, or has a field of another
        type; nothing has changed then."""
        method = self._methods.get(type(output))
        if method is not None:
            return method(output)
        if isinstance(output, str):
            return self._machine.text(str(output))
        kind = type(output).__name__
        raise LocalError(
            "bridge.backend.invalid_output",
            f"a backend yielded {kind}, expected str or one of "
            + ", ".join(known.__name__ for known in self._methods if known is not str),
        )

    def _finish(self, output: Finish) -> list[Event]:
        reason: Any = output.reason
        if not isinstance(reason, str) or reason not in _REASONS:
            raise _wrong(
                "Finish", f"reason is one of {', '.join(get_args(FinishReason))}, not {reason!r:.100}"
            )
        return self._machine.defer_finish(reason)

    def _call(self, call: ToolCall) -> list[Event]:
        # typed as anything: an author's types need not have been checked
        name: Any = call.name
        arguments: Any = call.written().arguments
        if not isinstance(arguments, str):
            raise _wrong("ToolCall", f"arguments are a mapping or text, not {type(arguments).__name__}")
        if not isinstance(name, str) or not name:
            raise _wrong("ToolCall", f"name is a text that is not empty, not {name.__class__.__name__}")
        # below those that deltas may have
        index = -1 - self._whole_calls
        self._whole_calls += 1
        events = self._machine.tool_call(index, call.call_id, name, arguments)
        return events + self._machine.tool_call_done(index)

    def _call_delta(self, delta: ToolCallDelta) -> list[Event]:
        if type(delta.index) is not int or delta.index < 0:
            raise _wrong("ToolCallDelta", "index is a whole number, 0 or above")
        return self._machine.tool_call(delta.index, delta.call_id, delta.name, delta.arguments)


def _wrong(kind: str, what: str) -> LocalError:
    return LocalError("bridge.backend.invalid_output", f"{kind}: {what}")
