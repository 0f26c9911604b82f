"""Chat Completions chunks, or one whole completion → machine calls → events.

What a stream says is taken at its word where it is well formed, repaired where the meaning is plain,
and ended as a failure where it is not: an upstream that lies or is cut never ends as completed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bridge.dialects.chat_completions import failures
from bridge.dialects.chat_completions.content import parts_of, url_citation
from bridge.dialects.chat_completions.lenient import read
from bridge.dialects.chat_completions.resolver import Fragment, ToolCallResolver
from bridge.dialects.chat_completions.think_tags import ThinkTags
from bridge.dialects.chat_completions.types import (
    ChatChoice,
    ChatDelta,
    ChatLogProbs,
    ChatOutput,
    ChatToolCall,
    ChatUsage,
    ReasoningDetail,
)
from bridge.dialects.chat_completions.usage import logprobs_of, usage_of
from bridge.emitter.machine import ResponseStreamStateMachine
from bridge.errors import BridgeError, WireError
from bridge.protocol.codec import decode_json
from bridge.protocol.content import LogProb
from bridge.protocol.errors import ErrorPayload
from bridge.protocol.events import Event
from bridge.state import TERMINAL_PHASES, ResponseStreamPhase

_decode = msgspec.json.Decoder(ChatOutput).decode
_DONE = b"[DONE]"
_NO_REASON = frozenset({"", "null", "none"})

Route = Callable[[ChatToolCall], Fragment | None]


class Inbound:
    """One upstream stream into one machine. `think_tags`: a `<think>` that opens the text is reasoning.

    The terminal event waits for `[DONE]` or `close()`, because usage may follow the finish reason.
    """

    __slots__ = (
        "_decided_text",
        "_ended",
        "_failure",
        "_frames",
        "_live",
        "_machine",
        "_probabilities",
        "_reason",
        "_resolver",
        "_text",
        "_think",
        "_usage",
        "_whole",
        "diagnostics",
    )

    def __init__(self, machine: ResponseStreamStateMachine, *, think_tags: bool = True) -> None:
        self._machine = machine
        self.diagnostics = machine.diagnostics
        self._resolver = ToolCallResolver(self.diagnostics)
        self._think = ThinkTags()
        self._text: Callable[[str], list[Event]] = self._first_text if think_tags else machine.text
        self._probabilities: list[LogProb] = []
        self._usage: ChatUsage | None = None
        self._reason: str | None = None
        self._failure: ErrorPayload | None = None
        self._frames = 0
        self._whole = False
        self._live = False
        self._ended = False

    # ── frames ─────────────────────────────────────────────────────────────────────────────────────
    def feed(self, data: bytes) -> list[Event]:
        """One frame's payload: a chunk, a whole completion, an error, or `[DONE]`."""
        self._frames += 1
        if not self._live:
            return self._outside(data)
        try:
            output = _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._odd_frame(data)
        # The common chunk holds text and nothing else; every other one takes the long way.
        choices = output.choices
        if choices is not None and len(choices) == 1 and output.usage is None and output.error is None:
            choice = choices[0]
            delta = choice.delta
            if delta is not None and isinstance(content := delta.content, str) and not (
                choice.finish_reason
                or choice.index
                or choice.logprobs
                or choice.error
                or delta.tool_calls
                or delta.reasoning_content
                or delta.reasoning
                or delta.reasoning_text
                or delta.reasoning_opaque
                or delta.reasoning_details
                or delta.refusal
                or delta.function_call
                or delta.annotations
                or delta.audio
                or delta.images
                or output.citations
                or output.x_groq
                or self._probabilities
            ):
                try:
                    return self._text(content)
                except BridgeError as error:
                    return self._lie(error)
        return self._take(output, data)

    def close(self) -> list[Event]:
        """The upstream has ended. Without `[DONE]` or a finish reason before, it was cut."""
        if self._ended:
            return []
        return [*self._begin(), *self._end(said_done=self._whole)]

    def _outside(self, data: bytes) -> list[Event]:
        if self._ended:
            self.diagnostics.ignored("frame", "came after the end")
            return []
        return [*self._begin(), *self.feed_again(data)]
