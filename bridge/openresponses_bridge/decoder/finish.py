"""How a response ended, in VS Code's terms: finish reasons, the message for the user, the closing data parts.
Incomplete, failed, cut off and cancelled are four different endings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from openresponses_bridge.decoder.parts import LanguageModelDataPart
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.response import ErrorPayload, ResponseError
from openresponses_bridge.protocol.usage import Usage

Terminal = ev.ResponseCompleted | ev.ResponseIncomplete | ev.ResponseFailed
FinishReason = Literal["stop", "tool-calls", "length", "content-filter", "cancelled", "error", "other"]

USAGE_MIME = "usage"
STATEFUL_MARKER_MIME = "stateful_marker"
PREMATURE_END = "bridge.stream.premature_end"


@dataclass(slots=True)
class PartResult:
    """The facts that a stream reported in addition to its parts, filled in while it is read.

    `finish_reason` is None until the stream has ended. `error` is the failure's code and message, also when
    the parts do not show them. `stateful_marker` lets the next request continue from this one: the id of a
    stored response.
    """

    response_id: str | None = None
    model: str | None = None
    usage: Usage | None = None
    finish_reason: FinishReason | None = None
    error: ResponseError | None = None
    stateful_marker: str | None = None
    diagnostics: Diagnostics = field(default_factory=Diagnostics)


class Ending(NamedTuple):
    """A decoded terminal event: the finish reason, and a note for the user or an error."""

    finish_reason: FinishReason
    note: str | None = None
    error: ResponseError | None = None


_LENGTH = Ending("length", "The response was cut off because it reached the limit of its length.")
_FILTERED = Ending("content-filter", "The response was stopped by a content filter.")
_CANCELLED = Ending("cancelled", "The response was cancelled before it was complete.")
_CUT_CALL = Ending("other", "The response stopped in the middle of a tool call, which was not run.")
_CUT_ITEM = Ending("other", "The response ended before all of it was complete.")
_UNKNOWN = Ending("other", "The response is incomplete, and its server did not say why.")

# incomplete reason, in lower case with underscores → the ending. Codes of failures are not read like this: an
# upstream that reports `aborted` has failed, and only the user's own cancellation (`PartDecoder.cancel`) is
# silent.
_BY_REASON: dict[str, Ending] = {
    **dict.fromkeys(("max_output_tokens", "max_tokens", "max_completion_tokens", "length"), _LENGTH),
    **dict.fromkeys(("content_filter", "safety"), _FILTERED),
    "incomplete_tool_call": _CUT_CALL,
    "incomplete_item": _CUT_ITEM,
    **dict.fromkeys(("unknown", ""), _UNKNOWN),
    **dict.fromkeys(
        ("cancelled", "canceled", "aborted", "abort", "request_cancelled", "response_cancelled"), _CANCELLED
    ),
}
_STATUS_OF_EVENT: dict[type, str] = {
    ev.ResponseCompleted: "completed",
    ev.ResponseIncomplete: "incomplete",
    ev.ResponseFailed: "failed",
}
_WORSE = frozenset({"incomplete", "failed", "cancelled"})


def ending_of(event: Terminal) -> Ending:
    """Return the ending that a terminal event reports; tool calls count as "stop" here. If event and status
    differ, the worse of them counts."""
    response = event.response
    status = _STATUS_OF_EVENT[type(event)]
    if response.status in _WORSE and status != "failed":
        status = response.status
    if status == "completed":
        return Ending("stop")
    if status == "failed":
        return Ending("error", error=response.error or ResponseError("server_error", ""))
    if status == "cancelled":
        return _CANCELLED
    reason = response.incomplete_details.reason if response.incomplete_details else ""
    return _by_reason(reason) or Ending("other", f"The response is incomplete ({reason}).")


def _by_reason(reason: str) -> Ending | None:
    return _BY_REASON.get(reason.strip().lower().replace("-", "_"))


def error_of(payload: ErrorPayload) -> ResponseError:
    """Return the error of an `error` event."""
    return ResponseError(payload.code or payload.type or "server_error", payload.message)


def usage_part(usage: Usage) -> LanguageModelDataPart:
    """Return token counts under the names that VS Code's Copilot reads; without them its context indicator
    shows 0."""
    counts = {
        "prompt_tokens": max(0, usage.input_tokens),
        "completion_tokens": max(0, usage.output_tokens),
        "total_tokens": max(0, usage.total_tokens or usage.input_tokens + usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.input_tokens_details.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.output_tokens_details.reasoning_tokens},
        **({"estimated": True} if usage.estimated is True else {}),
    }
    return LanguageModelDataPart(msgspec.json.encode(counts), USAGE_MIME)


def marker_part(model: str, marker: str) -> LanguageModelDataPart:
    r"""Return `model\marker`, by which the next request can name this response. Neither may have a
    backslash."""
    return LanguageModelDataPart.text(f"{model}\\{marker}", STATEFUL_MARKER_MIME)
