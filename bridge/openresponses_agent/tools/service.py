"""Tool calls, from validation to result. Sans-IO: a `ToolCaller` runs the handlers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from openresponses_agent.tools.errors import (
    CancellationToken,
    ToolCallCancelledError,
    ToolDeclinedError,
    ToolFailureEncountered,
    ToolInvocationError,
    ToolNotFoundError,
    ToolTimeoutError,
    ToolValidationError,
)
from openresponses_agent.tools.registry import (
    ConfirmCall,
    DidInvokeTool,
    TokenizationOptions,
    Tool,
    ToolCaller,
    ToolCallOutcome,
    ToolInvocationContext,
    ToolInvocationOptions,
    ToolRegistry,
    WillInvokeTool,
)
from openresponses_agent.tools.results import LanguageModelToolResult
from openresponses_agent.tools.validation import NOT_AN_OBJECT, parsed_arguments, validate_tool_input
from openresponses_bridge.errors import BridgeError

_LONGEST: Final = 2_000  # characters of a failure for the model
# error → the beginning of its text for the model; the first match counts
_BEGINNINGS: Final[tuple[tuple[type[BridgeError], str], ...]] = (
    (ToolValidationError, "Error: Invalid input - "),
    (ToolNotFoundError, "Error: Tool not found - "),
    (ToolDeclinedError, "Error: Not allowed - "),
    (ToolTimeoutError, "Error: Tool timed out - "),
    (BridgeError, "Error: Tool failed - "),
)
# these are passed unchanged if a handler or hook raises them
_REPORTED: Final = (ToolCallCancelledError, ToolDeclinedError, ToolInvocationError, ToolValidationError)
T = TypeVar("T")


async def call_directly(
    tool: Tool, run: Callable[[], Any], timeout: float | None, token: CancellationToken
) -> Any:
    """Run a handler: a ToolCaller for programs without an event loop. It can't end a handler: a timeout or a
    cancellation ends only a handler that checks its token."""
    value = run()
    return await value if inspect.isawaitable(value) else value


class ToolsService:
    """Validates and invokes the tools of a registry.

    `call` runs handlers. `confirm` asks the user; without it a call that needs confirmation is declined.
    `timeout` (seconds) is for tools without a timeout of their own. `repair` says whether malformed arguments
    are repaired; by default they are if json-repair is installed. `describe` returns the text for the model
    about an exception of a handler or hook that is not one of `tools.errors`; by default that is its type and
    its message.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        call: ToolCaller = call_directly,
        confirm: ConfirmCall | None = None,
        timeout: float | None = 60.0,
        repair: bool | None = None,
        on_progress: Callable[[str, str, str], object] | None = None,
        describe: Callable[[Exception], str] | None = None,
    ) -> None:
        self.registry = registry
        self._call = call
        self._confirm = confirm
        self._timeout = timeout
        self._repair = repair
        self._on_progress = on_progress  # (tool name, call id, text)
        self._describe = describe or _description
        self._will = _Listeners[WillInvokeTool]()
        self._did = _Listeners[DidInvokeTool]()
        self._failures = _Listeners[ToolFailureEncountered]()

    def on_will_invoke_tool(self, listener: Callable[[WillInvokeTool], object]) -> Callable[[], None]:
        """Add a listener that is called before each call, with the validated input; an exception that it
        raises ends the call before it is made. Returns a function that removes the listener."""
        return self._will.add(listener)

    def on_did_invoke_tool(self, listener: Callable[[DidInvokeTool], object]) -> Callable[[], None]:
        """Add a listener that is called after each call that was made, also one that failed or was cancelled.
        Returns a function that removes it."""
        return self._did.add(listener)

    def on_tool_failure(self, listener: Callable[[ToolFailureEncountered], object]) -> Callable[[], None]:
        """Add a listener that is called for each call of `run_call` that did not run to its end. Returns a
        function that removes it."""
        return self._failures.add(listener)

    def validate_tool_input(
        self, name: str, arguments: str | bytes | dict[str, Any], notes: list[str] | None = None
    ) -> dict[str, Any]:
        """Validate input as `tools.validation.validate_tool_input` does, with the schema of the tool of this
        name. Also raises ToolNotFoundError."""
        tool = self._tool(name)
        return validate_tool_input(name, arguments, tool.judge, repair=self._repair, notes=notes)

    async def invoke_tool(
        self, name: str, options: ToolInvocationOptions, token: CancellationToken | None = None
    ) -> LanguageModelToolResult:
        """Resolve, validate, confirm, call and filter. Raises ToolNotFoundError, ToolValidationError,
        ToolDeclinedError, ToolCallCancelledError, ToolTimeoutError, and ToolInvocationError for an exception
        of the handler."""
        return await self._invoke(self._tool(name), options.input, options, token or CancellationToken(), [])

    async def run_call(
        self,
        name: str,
        arguments: str | bytes,
        *,
        call_id: str = "",
        token: CancellationToken | None = None,
        tool_invocation_token: str | None = None,
        tokenization_options: TokenizationOptions | None = None,
        retry_attempt: int = 0,
    ) -> ToolCallOutcome:
        """Run a model's call and return the outcome for the model. A call that does not run to its end has a
        text with the reason, and a ToolFailureEncountered. Raises ToolCallCancelledError, and BridgeError for
        errors that a model can't correct: a schema that can't be used, a missing extra."""
        notes: list[str] = []
        options = ToolInvocationOptions({}, tool_invocation_token, tokenization_options, call_id)
        try:
            tool = self._tool(name)
            result = await self._invoke(tool, arguments, options, token or CancellationToken(), notes)
        except (ToolNotFoundError, ToolValidationError, ToolDeclinedError, ToolInvocationError) as error:
            return self._failed(name, error, retry_attempt, notes)
        return ToolCallOutcome(result, None, tuple(notes))

    def _tool(self, name: str) -> Tool:
        tool = self.registry.get(name)
        if tool is None:
            raise ToolNotFoundError(name, [each.name for each in self.registry])
        return tool

    async def _invoke(
        self,
        tool: Tool,
        arguments: str | bytes | dict[str, Any],
        options: ToolInvocationOptions,
        token: CancellationToken,
        notes: list[str],
    ) -> LanguageModelToolResult:
        token.check()
        context = self._context(tool, options, token)
        tool_input = await self._input(tool, arguments, context, notes)
        question = await self._hooked(tool.confirm, tool_input) if tool.confirm else None
        if question is not None:
            await context.confirm(question)
        token.check()
        options = replace(options, input=tool_input)
        self._will.fire(WillInvokeTool(tool.name, options))
        try:
            result = await self._called(tool, tool_input, context)
        except BaseException as error:
            self._did.fire(DidInvokeTool(tool.name, options, None, error))
            raise
        self._did.fire(DidInvokeTool(tool.name, options, result, None))
        return result

    async def _input(
        self,
        tool: Tool,
        arguments: str | bytes | dict[str, Any],
        context: ToolInvocationContext,
        notes: list[str],
    ) -> dict[str, Any]:
        """Return the validated input, after the hooks `resolve_input` and `provide_input`."""
        if tool.resolve_input is not None:
            if not isinstance(arguments, dict):
                arguments = _object(tool.name, parsed_arguments(tool.name, arguments, self._repair, notes))
            arguments = _object(tool.name, await self._hooked(tool.resolve_input, arguments, context))
        try:
            return validate_tool_input(tool.name, arguments, tool.judge, repair=self._repair, notes=notes)
        except ToolValidationError as error:
            missing = [
                each.params["missingProperty"]
                for each in error.errors
                if each.keyword == "required" and not each.instance_path
            ]
            if tool.provide_input is None or not missing or not isinstance(error.received_input, dict):
                raise
            provided = await self._hooked(tool.provide_input, missing, error.received_input, context)
            notes.append(f"{', '.join(missing)} came from the user")
            return validate_tool_input(tool.name, error.received_input | provided, tool.judge, notes=notes)

    async def _called(
        self, tool: Tool, given: dict[str, Any], context: ToolInvocationContext
    ) -> LanguageModelToolResult:
        def run() -> Any:
            return tool.handler(given, context) if tool.takes_context else tool.handler(given)

        try:
            value = await self._call(tool, run, tool.timeout or self._timeout, context.token)
            result = LanguageModelToolResult.of(value)
            if tool.filter_edits is not None:
                result = await self._hooked(tool.filter_edits, result, context)
        except _REPORTED:
            raise
        except Exception as error:
            raise ToolInvocationError(self._describe(error)) from error
        budget = context.tokenization_options
        return result if budget is None else result.fitted(budget.token_budget, budget.count_tokens)

    async def _hooked(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a tool's hook returns; an exception in it is a failure of the tool."""
        try:
            value = hook(*arguments)
            return await value if inspect.isawaitable(value) else value
        except _REPORTED:
            raise
        except Exception as error:
            raise ToolInvocationError(self._describe(error)) from error

    def _context(
        self, tool: Tool, options: ToolInvocationOptions, token: CancellationToken
    ) -> ToolInvocationContext:
        def progress(text: str) -> None:
            if self._on_progress is not None:
                self._on_progress(tool.name, options.call_id, text)

        return ToolInvocationContext(
            tool.name,
            token,
            options.call_id,
            options.tool_invocation_token,
            options.tokenization_options,
            progress,
            self._confirm,
        )

    def _failed(
        self, name: str, error: BridgeError, retry_attempt: int, notes: Iterable[str]
    ) -> ToolCallOutcome:
        failure = ToolFailureEncountered(name, error, retry_attempt)
        self._failures.fire(failure)
        return ToolCallOutcome(LanguageModelToolResult.failure(failure_text(error)), failure, tuple(notes))


def failure_text(error: BridgeError) -> str:
    """Return the text for the model about a call that did not run to its end, at most 2,000 characters."""
    beginning = next(words for kind, words in _BEGINNINGS if isinstance(error, kind))
    return beginning + error.message[:_LONGEST]


class _Listeners(Generic[T]):
    def __init__(self) -> None:
        self._listeners: list[Callable[[T], object]] = []

    def add(self, listener: Callable[[T], object]) -> Callable[[], None]:
        self._listeners.append(listener)

        def dispose() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return dispose

    def fire(self, event: T) -> None:
        for listener in list(self._listeners):
            listener(event)


def _object(tool_name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ToolValidationError(tool_name, [NOT_AN_OBJECT], value)
    return value


def _description(error: Exception) -> str:
    return error.message if isinstance(error, BridgeError) else f"{type(error).__name__}: {error}"
