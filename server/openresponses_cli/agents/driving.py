"""Drives a `ToolCallingLoop` with anyio: asks the model, runs tools concurrently, asks the user."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import anyio
import anyio.to_thread

from openresponses_agent.loop import (
    Action,
    ApprovalRequest,
    AskApproval,
    AskModel,
    AskUser,
    LoopResult,
    ModelAnswer,
    ModelFailure,
    ToolCall,
    ToolCallingLoop,
)
from openresponses_agent.tools.errors import CancellationToken, ToolCallCancelledError, ToolTimeoutError
from openresponses_agent.tools.registry import TokenizationOptions, Tool
from openresponses_agent.tools.service import ToolsService
from openresponses_server.tasks import contained

AskYesNo = Callable[[str], Awaitable[bool]]
Approve = Callable[[ApprovalRequest], Awaitable[bool]]


class LoopModel(Protocol):
    """The model that a loop sends its requests to."""

    async def ask(self, action: AskModel, token: CancellationToken) -> ModelAnswer | ModelFailure:
        """Wait for `action.delay` seconds, send the prompt and feed a reader. Returns soon after the token is
        cancelled."""
        ...


class LoopDriver:
    """Performs the actions of a loop. `ask_user` answers its questions, `approve` decides on calls for which
    the model's server needs approval; without them all are declined. At most `max_concurrency` calls run at
    once. Cancelling the loop's token, or the task, ends the current request or tools; the loop can be resumed
    from its entries."""

    def __init__(
        self,
        loop: ToolCallingLoop,
        model: LoopModel,
        tools: ToolsService,
        *,
        ask_user: AskYesNo | None = None,
        approve: Approve | None = None,
        max_concurrency: int = 8,
    ) -> None:
        self._loop = loop
        self._model = model
        self._tools = tools
        self._ask_user = ask_user
        self._approve = approve
        self._slots = anyio.CapacityLimiter(max_concurrency)

    async def run(self) -> LoopResult:
        """Run the loop to its end. Raises what recording an entry raises, and BridgeError for a tool whose
        schema can't be used."""
        steps, outcome = self._loop.run(), None
        while True:
            try:
                action = steps.send(outcome)
            except StopIteration as end:
                result: LoopResult = end.value
                return result
            outcome = await self._perform(action)

    async def _perform(self, action: Action) -> Any:
        if isinstance(action, AskModel):
            return await self._model.ask(action, self._loop.token)
        if isinstance(action, AskUser):
            return await self._ask(action.question)
        if isinstance(action, AskApproval):
            return self._approve is not None and await self._approve(action.request)
        if len(action.calls) == 1:
            return await self._call(action.calls[0], action.tokenization_options)
        try:
            async with anyio.create_task_group() as running:
                for call in action.calls:
                    running.start_soon(self._call, call, action.tokenization_options)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise
        return None

    async def _ask(self, question: str) -> bool:
        return self._ask_user is not None and await self._ask_user(question)

    async def _call(self, call: ToolCall, options: TokenizationOptions | None) -> None:
        async with self._slots:
            try:
                outcome = await self._tools.run_call(
                    call.name,
                    call.arguments,
                    call_id=call.id,
                    token=self._loop.token,
                    tokenization_options=options,
                    retry_attempt=self._loop.retry_attempt(call),
                )
            except ToolCallCancelledError:
                return  # the loop counts calls that are not reported as cancelled
        self._loop.call_ended(call.id, outcome)


# Handlers run on the event loop or in threads, until their timeout or until the run is cancelled.


async def call_with_anyio(
    tool: Tool, run: Callable[[], Any], timeout: float | None, token: CancellationToken
) -> Any:
    """Run a tool's handler with anyio (a ToolCaller). An async handler is cancelled where it awaits. A sync
    handler runs in a thread, which can't be stopped: its call ends at once while the thread continues, so a
    slow handler should check `context.token`. Cancel the token on the event loop's thread only."""
    with anyio.CancelScope() as cancelled:
        dispose = token.on_cancellation_requested(cancelled.cancel)
        try:
            with anyio.move_on_after(timeout) as limit:
                with contained():
                    value = (
                        run()
                        if tool.is_async
                        else await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
                    )
                    return await value if inspect.isawaitable(value) else value
        finally:
            dispose()
        assert limit.cancelled_caught, timeout
        raise ToolTimeoutError(timeout or 0)
    raise ToolCallCancelledError
