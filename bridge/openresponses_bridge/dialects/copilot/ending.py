"""How a response ended → Copilot's completion, and its errors."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.dialects.copilot.types import (
    CopilotError,
    FinishedCompletion,
    FinishedCompletionReason,
    FunctionCall,
    RequestId,
    Solution,
    ToolCall,
)
from openresponses_bridge.protocol.errors import ErrorPayload, ResponseError
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.usage import Usage

AGENT = "openai"

# why a response is incomplete → Copilot's reason; any other is an error to it, and drops the text
_INCOMPLETE = {
    "max_output_tokens": FinishedCompletionReason.LENGTH,
    "incomplete_tool_call": FinishedCompletionReason.LENGTH,
    "incomplete_item": FinishedCompletionReason.LENGTH,
    "content_filter": FinishedCompletionReason.CONTENT_FILTER,
    "cancelled": FinishedCompletionReason.CLIENT_TRIMMED,
}


def error_of(error: ErrorPayload | ResponseError) -> CopilotError:
    """An error as Copilot shows it; one without a code is `unknown`."""
    param = error.param if isinstance(error, ErrorPayload) else None
    return CopilotError("error", error.code or "unknown", error.message, AGENT, param)


def usage_of(usage: Usage | None) -> dict[str, Any] | None:
    """APIUsage: the three totals, and the details that say something."""
    if usage is None:
        return None
    counts: dict[str, Any] = {
        "completion_tokens": usage.output_tokens,
        "prompt_tokens": usage.input_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.input_tokens_details.cached_tokens:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.input_tokens_details.cached_tokens}
    if usage.output_tokens_details.reasoning_tokens:
        reasoning = usage.output_tokens_details.reasoning_tokens
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return counts


def reason_of(response: Response, called: FinishedCompletionReason | None) -> FinishedCompletionReason:
    """`called` or stop for a completed response, else the reason it is not."""
    if response.status == "completed":
        return called or FinishedCompletionReason.STOP
    if response.status == "cancelled":
        return FinishedCompletionReason.CLIENT_TRIMMED
    details = response.incomplete_details
    reason = details.reason if details is not None else ""
    return _INCOMPLETE.get(reason, FinishedCompletionReason.SERVER_ERROR)


def completion_of(
    response: Response, pieces: list[str], index: int, calls: list[ToolCall], legacy: bool
) -> FinishedCompletion:
    """The completion of a response that ended, with its whole calls; with `legacy` the first one as
    `function_call`."""
    error = response.error
    given = calls if response.status == "completed" else []
    function = FunctionCall(given[0].name, given[0].arguments) if given and legacy else None
    called = FinishedCompletionReason.FUNCTION_CALL if legacy else FinishedCompletionReason.TOOL_CALLS
    return FinishedCompletion(
        Solution(list(pieces), []),
        reason_of(response, called if given else None),
        RequestId(response.id, response.created_at),
        index,
        usage_of(response.usage),
        None if error is None else {"code": error.code, "message": error.message},
        None if legacy else given or None,
        function,
    )


def interrupted(pieces: list[str], response: Response | None, index: int) -> FinishedCompletion:
    """The completion of a stream that was cut."""
    origin = RequestId("", 0) if response is None else RequestId(response.id, response.created_at)
    reason = FinishedCompletionReason.CLIENT_ITERATION_DONE
    return FinishedCompletion(Solution(list(pieces), []), reason, origin, index)
