"""Runs the calls of hosted tools in the answers of one response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import structlog
from msgspec import Struct, field
from msgspec.structs import replace

from openresponses_bridge.emitter.citing import FoundPages
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.hosted import OUTPUT
from openresponses_server.hosted.base import (
    TIMEOUT,
    TOOL_ERROR,
    HostedCall,
    HostedResult,
    HostedTool,
    HostedToolError,
    bounded,
)
from openresponses_server.observation.contents import Content
from openresponses_server.observation.tracing import ResponseSpans
from openresponses_server.runs.hosted_stream import HostedNames, HostedStream
from openresponses_server.settings import HostedLimits
from openresponses_server.store.endings import lost
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.tasks import contained

_BEYOND: Final = "The limit of tool calls is reached: this call was not run. Answer with what is known."
_SPENT: Final = "The day's budget of tool calls is used up: this call was not run. Answer with what is known."
_log = structlog.get_logger(__name__)


class CalledTools(Struct):
    """The calls of one answer, as far as they have been answered."""

    outputs: list[tuple[HostedCall, str]] = field(default_factory=list)
    """Each call, by the name that the model was shown, with its output."""
    waits_for_user: bool = False
    """True if one of the calls must be approved first."""


class CallSpans(NamedTuple):
    """The spans of the calls of one response."""

    spans: ResponseSpans
    content: Content | None
    """The content that the spans show; None if they show none."""


class _PlannedCall(NamedTuple):
    shown: HostedCall
    """As the model made it."""
    tool: HostedTool
    call: HostedCall
    """By the tool's own name."""


class CallRunner:
    """Runs the calls of one response, those of an answer side by side.

    `most_calls` is the request's `max_tool_calls`; `spend` counts a call against the budget of its key and
    returns False if that is used up; the pages that calls find are added to `pages`. Before a call that must
    not run twice, `persistence` makes the events so far durable, and from then on stores each event when it
    is made, so that no worker makes the response again.
    """

    def __init__(
        self,
        stream: HostedStream,
        names: HostedNames,
        limits: HostedLimits,
        pages: FoundPages | None,
        most_calls: int | None,
        spend: Callable[[], Awaitable[bool]],
        persistence: ResponseSessionPersistenceTransformer | None,
        spans: CallSpans | None,
    ) -> None:
        self._stream = stream
        self._spans = spans
        self._names = names
        self.limits = limits
        self._pages = pages
        self.left = limits.calls if most_calls is None else min(limits.calls, most_calls)
        """The calls that may still run."""
        self._spend = spend
        self._persistence = persistence

    async def run(
        self, calls: Sequence[HostedCall], called: CalledTools, *, may_run: bool
    ) -> AsyncGenerator[list[Event], None]:
        """Answer these calls in `called`; without `may_run` none of them is run. Yields the events of each
        step, which are stored and sent before the next step."""
        planned: list[_PlannedCall] = []
        for each in calls:
            tool, name = self._names.tools[each.name]
            call = HostedCall(each.call_id, name, each.arguments, each.approval_id)
            question = None if call.approval_id else tool.approval(call)
            if question is not None:
                called.waits_for_user = True
                yield self._stream.run_item(question)[0]
            elif (refused := await self._refusal(may_run=may_run)) is not None:
                called.outputs.append((each, refused))
            else:
                planned.append(_PlannedCall(each, tool, call))
        # an approval is used up by its first call, whatever that call does
        persistence = self._persistence
        if not any(each.call.approval_id or not each.tool.is_repeatable(each.call) for each in planned):
            persistence = None
        if persistence is not None:
            persistence.show()
        items: list[dict[str, Any]] = []
        for _, tool, call in planned:
            announced = tool.announce(call)
            events, item_id = self._stream.announce_item(announced)
            for kind, fields in tool.progress(call):
                events += self._stream.item_event(item_id, kind, fields)
            yield events
            items.append({**announced, "id": item_id})
        if persistence is not None and not await persistence.make_durable():
            raise lost()
        run = self._result if self._spans is None else partial(self._spanned_result, self._spans)
        running = [asyncio.create_task(run(each.tool, each.call)) for each in planned]
        try:
            for (shown, tool, _), item, task in zip(planned, items, running, strict=True):
                result = await task
                called.outputs.append((shown, result.output))
                yield self._complete(tool, item, result)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _complete(self, tool: HostedTool, item: dict[str, Any], result: HostedResult) -> list[Event]:
        if self._pages is not None:
            self._pages.add(result.pages)
        events: list[Event] = []
        if (ending := tool.ending(result)) is not None:
            events += self._stream.item_event(item["id"], ending, {})
        return events + self._stream.complete_item({**item, **result.item})

    async def _refusal(self, *, may_run: bool) -> str | None:
        """Return why another call may not run; None if it may, which counts it."""
        if not may_run or self.left <= 0:
            return _BEYOND
        self.left -= 1
        return None if await self._spend() else _SPENT

    async def _spanned_result(self, traced: CallSpans, tool: HostedTool, call: HostedCall) -> HostedResult:
        """Run a call in a span of its own."""
        content = traced.content
        with traced.spans.tool(call.name, call.call_id, tool.kind) as span:
            if content is not None:
                span.add(content.called(call.arguments))
            result = await self._result(tool, call)
            if content is not None:
                span.add(content.gave(result.output))
            if result.failed:
                span.fail(result.error_type)
            return result

    async def _result(self, tool: HostedTool, call: HostedCall) -> HostedResult:
        """Run a call and return its result, whatever happens; its output is bounded."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                with contained():
                    result = await tool.run(call)
        except HostedToolError as error:
            result = failure(error.message)
        except TimeoutError:
            result = failure(f"The tool did not answer within {self.limits.seconds:g} seconds.", TIMEOUT)
        except Exception as error:
            _log.exception("hosted.failed", tool=call.name)
            result = failure("The tool failed.", type(error).__name__)
        most = self.limits.result_bytes
        output = bounded(result.output, most)
        fields: dict[str, Any] = {}
        for name in ("output", "error"):
            if name in result.item:
                value = result.item[name]
                fields[name] = bounded(value, most) if isinstance(value, str) else value
        return replace(result, output=output, item={**result.item, **(fields or {OUTPUT: output})})


def failure(message: str, error_type: str = TOOL_ERROR) -> HostedResult:
    """Return the result of a call that failed."""
    return HostedResult(message, {"status": "failed"}, failed=True, error_type=error_type)
