"""How a response ended → Copilot's completion, and its errors."""

from __future__ import annotations

from typing import Any

from bridge.dialects.copilot.types import Completion, CopilotError, RequestId, Solution
from bridge.protocol.errors import ErrorPayload, ResponseError
from bridge.protocol.response import Response
from bridge.protocol.usage import Usage

AGENT = "openai"
ITERATION_DONE = "Iteration Done"
CLIENT_TRIMMED = "client-trimmed"
SERVER_ERROR = "error"

# why a response is incomplete → Copilot's reason; any other is an error to it, and drops the text
_INCOMPLETE = {
    "max_output_tokens": "length",
    "incomplete_tool_call": "length",
    "incomplete_item": "length",
    "content_filter": "content_filter",
    "cancelled": CLIENT_TRIMMED,
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


def reason_of(response: Response, finished: str) -> str:
    """`finished` for a completed response, else the reason it is not."""
    if response.status == "completed":
        return finished
    if response.status == "cancelled":
        return CLIENT_TRIMMED
    details = response.incomplete_details
    return _INCOMPLETE.get(details.reason, SERVER_ERROR) if details is not None else SERVER_ERROR


def completion_of(response: Response, pieces: list[str], index: int, finished: str) -> Completion:
    """The completion of a response that ended."""
    error = response.error
    return Completion(
        Solution(list(pieces), []),
        reason_of(response, finished),
        RequestId(response.id, response.created_at),
        index,
        usage_of(response.usage),
        None if error is None else {"code": error.code, "message": error.message},
    )


def interrupted(pieces: list[str], response: Response | None, index: int) -> Completion:
    """The completion of a stream that was cut."""
    origin = RequestId("", 0) if response is None else RequestId(response.id, response.created_at)
    return Completion(Solution(list(pieces), []), ITERATION_DONE, origin, index)
