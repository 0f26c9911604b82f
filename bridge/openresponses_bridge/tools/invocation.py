"""What a call is made with: the options of one call, and what its handler may ask for meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from openresponses_bridge.tools.cancellation import CancellationToken
from openresponses_bridge.tools.errors import ToolDeclinedError, ToolFailureEncountered
from openresponses_bridge.tools.registry import Tool
from openresponses_bridge.tools.results import LanguageModelToolResult

ConfirmCall = Callable[[str, str], Awaitable[bool]]
"""`(tool_name, question)` → whether the user allows it."""


@dataclass(frozen=True)
class TokenizationOptions:
    """How much of a result the prompt has room for: `token_budget` tokens as `count_tokens` counts a text."""

    token_budget: int
    count_tokens: Callable[[str], int]


@dataclass(frozen=True)
class ToolInvocationOptions:
    """One call. `tool_invocation_token` says on whose behalf it is made, for the tool and the listeners;
    `call_id` is the internal id of the call."""

    input: dict[str, Any]
    tool_invocation_token: str | None = None
    tokenization_options: TokenizationOptions | None = None
    call_id: str = ""


@dataclass(frozen=True)
class ToolInvocationContext:
    """What a handler that takes a second parameter gets."""

    tool_name: str
    token: CancellationToken
    call_id: str = ""
    tool_invocation_token: str | None = None
    tokenization_options: TokenizationOptions | None = None
    on_progress: Callable[[str], object] = field(default=lambda text: None)
    ask: ConfirmCall | None = None

    def progress(self, text: str) -> None:
        """Show what the tool is doing."""
        self.on_progress(text)

    async def confirm(self, question: str) -> None:
        """Ask the user. Raises ToolDeclinedError when the user declines, or when nobody can be asked."""
        self.token.check()
        if self.ask is None:
            raise ToolDeclinedError("it has to be confirmed, and there is nobody to ask")
        if not await self.ask(self.tool_name, question):
            raise ToolDeclinedError("the user declined it")
        self.token.check()


class WillInvokeTool(NamedTuple):
    """A call is about to be made, with validated input."""

    tool_name: str
    options: ToolInvocationOptions


class DidInvokeTool(NamedTuple):
    """A call has been made: either `result` or `error` is there."""

    tool_name: str
    options: ToolInvocationOptions
    result: LanguageModelToolResult | None
    error: BaseException | None


class ToolCallOutcome(NamedTuple):
    """What goes back to the model; `failure` says that the call did not run to its end, `notes` what was done
    to its arguments."""

    result: LanguageModelToolResult
    failure: ToolFailureEncountered | None = None
    notes: tuple[str, ...] = ()


class ToolCaller(Protocol):
    """Runs a handler: `run()` calls it and gives its value or an awaitable of it. Whoever has an event loop
    puts handlers that are not async into threads, raises ToolTimeoutError after `timeout` seconds and
    ToolCallCancelledError when the token is cancelled."""

    async def __call__(
        self, tool: Tool, run: Callable[[], Any], timeout: float | None, token: CancellationToken
    ) -> Any: ...
