"""Reads the model's answer to one request: events → deltas for a callback, and the whole answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from openresponses_agent.prompt.context import Citation, ThinkingDataItem
from openresponses_agent.prompt.raw import ThinkingPart
from openresponses_agent.prompt.thinking import part_of_item
from openresponses_bridge.decoder.accumulator import ResponseAccumulator
from openresponses_bridge.dialects.copilot import CallbackChunk, Outbound, ResponseDelta
from openresponses_bridge.dialects.copilot.types import TextPrefix
from openresponses_bridge.dialects.copilot.types import ToolCall as CopilotToolCall
from openresponses_bridge.errors import BridgeError, HttpError
from openresponses_bridge.protocol.content import OutputTextContent, UrlCitation
from openresponses_bridge.protocol.events import Event, OutputItemAdded, OutputItemDone
from openresponses_bridge.protocol.hosted import asks_approval, is_hosted, kind_of
from openresponses_bridge.protocol.items import Message, ReasoningItem
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.protocol.usage import Usage

FinishedCallback = Callable[[TextPrefix, int, ResponseDelta], int | None]
"""`finished_cb(text, index, delta)`: the whole text so far (`str()` builds it), the choice, and what is new.
An int as its result stops the reading and keeps that many characters of the text; no calls are made then."""

HostedCallback = Callable[[UnknownItem, bool], object]
"""`hosted_cb(item, is_done)`: an item of a tool that the server runs has begun, or is done."""

_MOST_CITATIONS: Final = 1000
CUT: Final = "bridge.loop.stream_interrupted"
# codes of failures that a retry can't fix
_LASTING: Final = frozenset(
    {
        "context_length_exceeded",
        "content_filter",
        "content_policy_violation",
        "insufficient_quota",
        "invalid_api_key",
        "invalid_prompt",
        "invalid_request",
        "invalid_request_error",
        "model_not_found",
        "permission_denied",
    }
)
_PASSING: Final = frozenset({408, 409, 425, 429})
_CUT_SHORT: Final = frozenset({"incomplete_tool_call", "incomplete_item"})


class ModelAnswer(NamedTuple):
    """A whole answer."""

    text: str
    tool_calls: list[CopilotToolCall]
    thinking: list[ThinkingPart]
    """The blocks, unchanged."""
    stateful_marker: str | None = None
    usage: Usage | None = None
    incomplete: str = ""
    """Why the answer was cut off; "" if it was not."""
    trimmed: bool = False
    """True if the callback stopped the reading, so that there are no calls."""
    items: Sequence[dict[str, Any]] = ()
    """The items of tools that the server ran, and its requests for approval, in order."""
    citations: Sequence[Citation] = ()
    """The pages that the text cites, each once."""
    max_tool_calls: int | None = None
    """The limit of the response, if the calls that the server ran reached it."""

    @property
    def is_empty(self) -> bool:
        """True if there is neither text nor a call or a request for approval, and neither a limit nor the
        callback is the reason."""
        content = (
            self.text.strip() or self.tool_calls or any(map(asks_approval, map(UnknownItem, self.items)))
        )
        return not (content or self.incomplete or self.trimmed)

    def thinking_of_round(self, index: int) -> ThinkingDataItem | None:
        """Return the model's thinking, for the round with this index; None if there is none."""
        if not self.thinking:
            return None
        texts = [text for part in self.thinking for text in (part.thinking, *(part.summary or ())) if text]
        tokens = self.usage.output_tokens_details.reasoning_tokens if self.usage is not None else 0
        return ThinkingDataItem("\n\n".join(texts), tokens or None, index, self.thinking)


class ModelFailure(NamedTuple):
    """No answer, or only a part of one. `retryable` is True if a retry may succeed. `usage` has the tokens of
    this attempt."""

    error: BridgeError
    retryable: bool
    usage: Usage | None = None


class AnswerReader:
    """Reads the events of one answer. With `marker`, the response's id is the stateful marker if the stream
    has no other."""

    def __init__(
        self,
        finished_cb: FinishedCallback | None = None,
        *,
        hosted_cb: HostedCallback | None = None,
        marker: bool = False,
    ) -> None:
        self._finished_cb = finished_cb
        self._hosted_cb = hosted_cb
        self._outbound = Outbound(stateful_marker=marker)
        self._whole = ResponseAccumulator()
        self._calls: list[CopilotToolCall] = []
        self._marker: str | None = None
        self._kept: int | None = None

    @property
    def stopped(self) -> bool:
        """True if the callback has stopped the reading."""
        return self._kept is not None

    def feed(self, event: Event) -> bool:
        """Accept an event. Returns whether to continue reading."""
        if not self.stopped:
            self._whole.feed(event)
            self._feed_hosted(event)
            for chunk in self._outbound.feed(event):
                if isinstance(chunk, CallbackChunk) and not self.stopped:
                    self._feed_chunk(chunk)
        return not self.stopped

    def _feed_hosted(self, event: Event) -> None:
        if self._hosted_cb is None or not isinstance(event, OutputItemAdded | OutputItemDone):
            return
        if isinstance(event.item, UnknownItem) and is_hosted(event.item):
            self._hosted_cb(event.item, isinstance(event, OutputItemDone))

    def _feed_chunk(self, chunk: CallbackChunk) -> None:
        delta = chunk.delta
        self._calls += delta.copilot_tool_calls or ()
        self._marker = delta.stateful_marker or self._marker
        if self._finished_cb is not None:
            self._kept = self._finished_cb(chunk.text, chunk.index, delta)

    def close(self) -> ModelAnswer | ModelFailure:
        """Return the answer or the failure, after the events have ended or reading was stopped."""
        response = self._whole.response
        if self._kept is not None:
            text = "" if response is None else response.output_text
            return ModelAnswer(text[: max(0, self._kept)], [], _thinking(response), trimmed=True)
        if response is None or response.status in ("in_progress", "queued"):
            return self.fail(_cut())
        if response.status == "failed":
            return self.fail(_error_of(response))
        details = response.incomplete_details
        incomplete = "" if response.status == "completed" else (details and details.reason) or response.status
        if incomplete in _CUT_SHORT:
            return self.fail(_cut())
        return ModelAnswer(
            response.output_text,
            self._calls if not incomplete else [],
            _thinking(response),
            self._marker,
            response.usage,
            incomplete,
            items=[each.raw for each in _hosted(response) if not (incomplete and asks_approval(each))],
            citations=_citations(response),
            max_tool_calls=_limit_reached(response),
        )

    def fail(self, error: BridgeError) -> ModelFailure:
        """Return the failure of a request or of its reading with this error."""
        response = self._whole.response
        return ModelFailure(error, is_retryable(error), None if response is None else response.usage)


def is_retryable(error: BridgeError) -> bool:
    """Return True if the same request may succeed when it is sent again."""
    if isinstance(error, HttpError) and error.headers.get("x-should-retry") == "false":
        return False
    return (error.http_status >= 500 or error.http_status in _PASSING) and error.code not in _LASTING


def _cut() -> BridgeError:
    return HttpError(502, "the model's answer ended before it was whole", code=CUT)


def _error_of(response: Response) -> BridgeError:
    error = response.error
    if error is None:
        return HttpError(502, "the model's answer failed without saying why", code=CUT)
    return HttpError(502, error.message, code=error.code or CUT)


def _limit_reached(response: Response) -> int | None:
    most = response.max_tool_calls
    count = sum(kind_of(each).endswith("_call") for each in _hosted(response))
    return most if isinstance(most, int) and count >= most else None


def _hosted(response: Response) -> list[UnknownItem]:
    return [each for each in response.output if isinstance(each, UnknownItem) and is_hosted(each)]


def _citations(response: Response) -> list[Citation]:
    """Return the cited pages, each once and up to a limit; an address has its first title."""
    citations: dict[str, Citation] = {}
    for item in response.output:
        for part in item.content if isinstance(item, Message) else ():
            for cited in part.annotations if isinstance(part, OutputTextContent) else ():
                if isinstance(cited, UrlCitation) and len(citations) < _MOST_CITATIONS:
                    citations.setdefault(cited.url, Citation(cited.url, cited.title))
    return list(citations.values())


def _thinking(response: Response | None) -> list[ThinkingPart]:
    items = [] if response is None else response.output
    return [part_of_item(item) for item in items if isinstance(item, ReasoningItem)]
