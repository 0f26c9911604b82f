"""A log of tool calls: lines of JSON with the time, the input and the result of each."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from openresponses_agent.tools.errors import ToolFailureEncountered
from openresponses_agent.tools.registry import DidInvokeTool, WillInvokeTool
from openresponses_agent.tools.service import ToolsService
from openresponses_bridge.errors import BridgeError

_LONGEST: Final = 10_000  # characters of an input's JSON and of an error


class CallLog:
    """A context manager that opens the file and appends to it. A new file is readable by its user alone.
    Raises OSError if the file can't be used.

    Each call has a line `{"event": "begun", "time", "tool", "call", "input"}` before it is made, then one
    with `ended`, `seconds` and `error` (null if there is none). A call that was refused or did not end has
    one with `failed` and its `code`.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._started_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self._file = -1

    def __enter__(self) -> CallLog:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def fileno(self) -> int:
        """Return the descriptor of the open file."""
        return self._file

    def subscribe(self, tools: ToolsService) -> None:
        """Log all calls of this service."""
        tools.on_will_invoke_tool(self._on_will_invoke)
        tools.on_did_invoke_tool(self._on_did_invoke)
        tools.on_tool_failure(self._on_failure)

    def _on_will_invoke(self, event: WillInvokeTool) -> None:
        call = event.options.call_id
        self._started_at[call] = self._clock()
        self._write("begun", event.tool_name, call=call, input=_shortened(event.options.input))

    def _on_did_invoke(self, event: DidInvokeTool) -> None:
        call = event.options.call_id
        seconds = round(self._clock() - self._started_at.pop(call, self._clock()), 3)
        error = None if event.error is None else _error_text(event.error)
        if error is None and event.result is not None and event.result.is_error:
            error = event.result.text[:_LONGEST]
        self._write("ended", event.tool_name, call=call, seconds=seconds, error=error)

    def _on_failure(self, event: ToolFailureEncountered) -> None:
        self._write("failed", event.tool_name, code=event.error.code, error=_error_text(event.error))

    def _write(self, event: str, tool: str, **fields: Any) -> None:
        line = {"event": event, "time": datetime.now(UTC), "tool": tool, **fields}
        with self._lock:
            os.write(self._file, msgspec.json.encode(line) + b"\n")


def _shortened(tool_input: dict[str, Any]) -> Any:
    """Return the input, or the beginning of its JSON if that is long."""
    text = msgspec.json.encode(tool_input).decode()
    return tool_input if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _error_text(error: BaseException) -> str:
    words = error.message if isinstance(error, BridgeError) else str(error) or type(error).__name__
    return words[:_LONGEST]
