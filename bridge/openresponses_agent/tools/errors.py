"""The errors of a tool call: not found, invalid input, cancelled, declined, failed, timed out; and the token
that cancels a call.

`ToolsService.run_call` converts each to a text for the model, except a cancellation, which ends the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from openresponses_bridge.errors import BridgeError, LocalError, RemoteError

_MOST_SHOWN = 10  # errors in one message


class ToolInputError(NamedTuple):
    """One violation of the input schema, in JSON Schema's terms. `instance_path` and `schema_path` are JSON
    pointers, the latter with a leading `#`; `params` are the values of the keyword; `message` is for the
    model."""

    instance_path: str
    schema_path: str
    keyword: str
    params: dict[str, Any]
    message: str

    def as_json(self) -> dict[str, Any]:
        """Return the error with the names that JavaScript's validators use (`instancePath` …)."""
        return {
            "instancePath": self.instance_path,
            "schemaPath": self.schema_path,
            "keyword": self.keyword,
            "params": self.params,
            "message": self.message,
        }


class ToolValidationError(RemoteError):
    """A model called a tool with input that is not JSON or does not fit its schema.

    `received_input` is the input that was validated last: parsed, or the text if it is not JSON.
    """

    INVALID_INPUT = "bridge.tools.invalid_input"

    def __init__(self, tool_name: str, errors: Sequence[ToolInputError], received_input: Any) -> None:
        shown = [f"{each.instance_path or 'the input'} {each.message}" for each in errors[:_MOST_SHOWN]]
        super().__init__(self.INVALID_INPUT, "; ".join(shown), tool_name=tool_name)
        self.tool_name = tool_name
        self.errors = list(errors)
        self.received_input = received_input

    def as_json(self) -> dict[str, Any]:
        """Return `{"toolName", "errors", "receivedInput"}`."""
        errors = [each.as_json() for each in self.errors]
        return {"toolName": self.tool_name, "errors": errors, "receivedInput": self.received_input}


class ToolNotFoundError(RemoteError):
    """A model called a tool that the request did not offer. `offered` are the names of the tools that it
    offered."""

    NOT_FOUND = "bridge.tools.not_found"

    def __init__(self, tool_name: str, offered: Sequence[str] = ()) -> None:
        names = f"; the tools are {', '.join(offered)}" if offered else ""
        super().__init__(self.NOT_FOUND, f"no tool is named {tool_name!r}{names}", tool_name=tool_name)
        self.tool_name = tool_name
        self.offered = list(offered)


class ToolCallCancelledError(LocalError):
    """The user ended the run before a tool was called or while it was running."""

    CANCELLED = "bridge.tools.cancelled"

    def __init__(self, message: str = "User cancelled tool invocation") -> None:
        super().__init__(self.CANCELLED, message)


class ToolDeclinedError(LocalError):
    """The user was asked about a call and did not allow it, or nobody could be asked."""

    DECLINED = "bridge.tools.declined"

    def __init__(self, message: str) -> None:
        super().__init__(self.DECLINED, message)


class ToolInvocationError(LocalError):
    """A tool failed: its handler raised an exception (`__cause__`), or raised this one with a message for the
    model."""

    FAILED = "bridge.tools.failed"

    def __init__(self, message: str, *, code: str = FAILED) -> None:
        super().__init__(code, message)


class ToolTimeoutError(ToolInvocationError):
    """A tool ran longer than its timeout."""

    TIMEOUT = "bridge.tools.timeout"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it was stopped after {seconds:g} seconds", code=self.TIMEOUT)
        self.seconds = seconds


class ToolFailureEncountered(NamedTuple):
    """A call that did not run to its end; `retry_attempt` is what `run_call` received, 0 for a first
    attempt."""

    tool_name: str
    error: BridgeError
    retry_attempt: int


class CancellationToken:
    """Can be cancelled once and stays cancelled. Not thread-safe, except for reading
    `is_cancellation_requested`."""

    __slots__ = ("_callbacks", "is_cancellation_requested")

    def __init__(self) -> None:
        self.is_cancellation_requested = False
        self._callbacks: list[Callable[[], object]] = []

    def cancel(self) -> None:
        """Call every callback once, in the order in which they were added."""
        self.is_cancellation_requested = True
        while self._callbacks:
            self._callbacks.pop(0)()

    def on_cancellation_requested(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Add a callback for cancellation; it is called at once if the token is already cancelled. Returns a
        function that removes it."""
        if self.is_cancellation_requested:
            callback()
        else:
            self._callbacks.append(callback)

        def dispose() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return dispose

    def check(self) -> None:
        """Raises ToolCallCancelledError if the token is cancelled."""
        if self.is_cancellation_requested:
            raise ToolCallCancelledError
