"""The tools of the `ToolRegistry` in a Python module of the operator."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from openresponses_agent.tools.errors import CancellationToken, ToolFailureEncountered
from openresponses_agent.tools.registry import Tool, ToolRegistry
from openresponses_agent.tools.results import LanguageModelToolResult
from openresponses_agent.tools.service import ToolsService
from openresponses_bridge.protocol.hosted import kind_of
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.hosted.base import (
    HostedCall,
    HostedContext,
    HostedFunction,
    HostedResult,
    HostedTool,
    Recalled,
)
from openresponses_server.settings import FunctionSettings, SettingsError
from openresponses_server.tasks import WaitingThreads, run_contained

REPEATABLE: Final = "read-only"
"""The tag of a tool whose calls may run twice."""
_THREADS: Final = 64  # of all functions of a module that are not async
_THREADS_PER_KEY: Final = 4
_FAILED: Final = "The function failed."
_log = structlog.get_logger(__name__)


class ModuleFunctions:
    """The functions of one module, offered to all requests for its models."""

    def __init__(self, settings: FunctionSettings) -> None:
        """Raises SettingsError for a module that can't be imported or has no registry."""
        self._settings = settings
        self._tool = FunctionTool(settings.label, _registry(settings))

    def takes(self, tool: Any, *, upstream_has: bool) -> bool:
        return False

    async def open(self, tool: Any, context: HostedContext) -> HostedTool:
        return self._tool

    def offered(self, request: CreateResponse, context: HostedContext) -> HostedTool | None:
        models, name = self._settings.models, request.model or ""
        if models and not any(fnmatch.fnmatchcase(name, each) for each in models):
            return None
        return self._tool

    def recall(self, item: Any, *, upstream_has: bool) -> Recalled | None:
        if kind_of(item) != "mcp_call" or item.raw.get("server_label") != self._settings.label:
            return None
        name, arguments = item.raw.get("name"), item.raw.get("arguments")
        output = item.raw.get("output") or item.raw.get("error")
        if not isinstance(name, str) or not name or not isinstance(arguments, str):
            return None
        return Recalled(name, arguments, output if isinstance(output, str) else "It was not run.")

    async def close(self) -> None:
        return None


class FunctionTool:
    """The functions for the model. Their calls are shown as those of an MCP server, for which clients have a
    view."""

    kind = "function"
    preface: Sequence[dict[str, Any]] = ()

    def __init__(self, label: str, registry: ToolRegistry) -> None:
        self._label = label
        self._registry = registry
        self._threads = WaitingThreads(_THREADS, _THREADS_PER_KEY, "functions")
        self._service = ToolsService(registry, call=self._call, timeout=None, describe=lambda _error: _FAILED)
        self._service.on_tool_failure(_log_failure)
        self.functions = [
            HostedFunction(each.name, each.description, each.input_schema) for each in registry.get_tools()
        ]

    def announce(self, call: HostedCall) -> dict[str, Any]:
        return {
            "type": "mcp_call",
            "status": "in_progress",
            "server_label": self._label,
            "name": call.name,
            "arguments": "",
            "output": None,
            "error": None,
        }

    def progress(self, call: HostedCall) -> Sequence[tuple[str, dict[str, Any]]]:
        return [
            ("response.mcp_call.in_progress", {}),
            ("response.mcp_call_arguments.delta", {"delta": call.arguments or "{}"}),
            ("response.mcp_call_arguments.done", {"arguments": call.arguments or "{}"}),
        ]

    def ending(self, result: HostedResult) -> str | None:
        return "response.mcp_call.failed" if result.failed else "response.mcp_call.completed"

    def is_repeatable(self, call: HostedCall) -> bool:
        tool = self._registry.get(call.name)
        return tool is not None and REPEATABLE in tool.tags

    def approval(self, call: HostedCall) -> dict[str, Any] | None:
        return None

    def released(self, items: Sequence[Any]) -> Sequence[HostedCall]:
        return ()

    async def _call(
        self, tool: Tool, run: Callable[[], Any], timeout: float | None, token: CancellationToken
    ) -> Any:
        """Call a tool; sync handlers run in threads. The caller limits the time."""
        if tool.is_async:
            return await run()

        def in_thread() -> Any:
            value = run()
            return value if inspect.isawaitable(value) else LanguageModelToolResult.of(value)

        result = await self._threads.run(in_thread)
        return await result if inspect.isawaitable(result) else result

    async def run(self, call: HostedCall) -> HostedResult:
        running = self._service.run_call(call.name, call.arguments or "{}", call_id=call.call_id)
        item = {"arguments": call.arguments or "{}"}
        try:
            outcome = await run_contained(running)
        except Exception as error:
            _log.error("functions.failed", tool=call.name, exc_info=error)
            fields = {**item, "status": "failed", "error": _FAILED}
            return HostedResult(_FAILED, fields, failed=True, error_type=type(error).__name__)
        text = outcome.result.text
        if outcome.failure is not None or outcome.result.is_error:
            return HostedResult(text, {**item, "status": "failed", "error": text}, failed=True)
        return HostedResult(text, {**item, "status": "completed", "output": text})


def _log_failure(failure: ToolFailureEncountered) -> None:
    """Log a failure. The model and the client see nothing of an exception, which may contain anything."""
    if failure.error.__cause__ is not None:
        _log.error("functions.failed", tool=failure.tool_name, exc_info=failure.error.__cause__)


def _registry(settings: FunctionSettings) -> ToolRegistry:
    try:
        module = _module(settings.module)
    except (Exception, SystemExit) as error:
        raise SettingsError(
            f"the module {settings.module!r} can't be imported: {type(error).__name__}: {error}",
            "$.functions",
        ) from error
    registry = getattr(module, settings.registry, None)
    if not isinstance(registry, ToolRegistry):
        what = f"the module {settings.module!r} has no ToolRegistry named {settings.registry!r}"
        raise SettingsError(what, "$.functions")
    return registry


def _module(name: str) -> Any:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"functions_{Path(name).stem}", name)
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
