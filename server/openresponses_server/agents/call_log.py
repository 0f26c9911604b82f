"""Each call of a tool as a line of JSON in a file: when, with what, how it ended."""

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

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.tools.errors import ToolFailureEncountered
from openresponses_bridge.tools.registry import DidInvokeTool, WillInvokeTool
from openresponses_bridge.tools.service import ToolsService

_LONGEST: Final = 10_000  # characters of an input's JSON, and of an error


class CallLog:
    """A context manager: opens the file, made for its user alone if there is none, and appends to it. Raises
    OSError where it can't be used.

    The lines: `{"event": "begun", "time", "tool", "call", "input"}` before a call is made, then `ended` with
    `seconds` and `error` (null when there is none), and `failed` for each call that was not made or not to
    its end, with its `code`."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._begun: dict[str, float] = {}
        self._lock = threading.Lock()
        self._file = -1

    def __enter__(self) -> CallLog:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    @property
    def identity(self) -> tuple[int, int]:
        """The device and number of the file that is open."""
        status = os.fstat(self._file)
        return status.st_dev, status.st_ino

    def listen(self, tools: ToolsService) -> None:
        """To all calls of this service."""
        tools.on_will_invoke_tool(self._will)
        tools.on_did_invoke_tool(self._did)
        tools.on_tool_failure(self._failed)

    def _will(self, event: WillInvokeTool) -> None:
        call = event.options.call_id
        self._begun[call] = self._clock()
        self._write("begun", event.tool_name, call=call, input=_short(event.options.input))

    def _did(self, event: DidInvokeTool) -> None:
        call = event.options.call_id
        seconds = round(self._clock() - self._begun.pop(call, self._clock()), 3)
        error = None if event.error is None else _words(event.error)
        if error is None and event.result is not None and event.result.is_error:
            error = event.result.text[:_LONGEST]
        self._write("ended", event.tool_name, call=call, seconds=seconds, error=error)

    def _failed(self, event: ToolFailureEncountered) -> None:
        self._write("failed", event.tool_name, code=event.error.code, error=_words(event.error))

    def _write(self, event: str, tool: str, **fields: Any) -> None:
        line = {"event": event, "time": datetime.now(UTC), "tool": tool, **fields}
        with self._lock:
            os.write(self._file, msgspec.json.encode(line) + b"\n")


def _short(given: dict[str, Any]) -> Any:
    """The input; the beginning of its JSON where that is long."""
    text = msgspec.json.encode(given).decode()
    return given if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _words(error: BaseException) -> str:
    words = error.message if isinstance(error, BridgeError) else str(error) or type(error).__name__
    return words[:_LONGEST]
