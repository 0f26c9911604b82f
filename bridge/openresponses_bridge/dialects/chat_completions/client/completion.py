"""The answer that is not streamed: its chunks, folded."""

from __future__ import annotations

from typing import Any, Unpack

from msgspec import UNSET

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.chat_completions.carried import KeptAudio
from openresponses_bridge.dialects.chat_completions.client.chunks import (
    COMPLETION,
    AnswerChoice,
    AnswerMessage,
    ChatCompletion,
    ChatError,
    CompletionOptions,
    ErrorBody,
    StreamChunk,
)
from openresponses_bridge.dialects.chat_completions.client.outbound import FAILED_CHOICE, Outbound
from openresponses_bridge.dialects.chat_completions.types import (
    ChatCustom,
    ChatDelta,
    ChatFunction,
    ChatLogProb,
    ChatLogProbs,
    ChatToolCall,
)
from openresponses_bridge.emitter.finished import events_of, is_cut_call
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import Extra

_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")


def completion(
    response: Response, *, diagnostics: Diagnostics | None = None, **options: Unpack[CompletionOptions]
) -> ChatCompletion | ErrorBody:
    """Return the body that answers a request without `stream`; an error body for a failed or cancelled
    response. Options are those of `Outbound`. A call that was cut off is left out, with a loss, since clients
    run the calls of whole messages without checking them. Raises KeyError for a response that has not
    ended."""
    outbound = Outbound(**options, include_usage=True)
    folding, error = folded(response, outbound)
    if error is not None:
        return ErrorBody(error)
    if diagnostics is not None:
        diagnostics.extend(outbound.diagnostics)
    return folding.completion


def folded(response: Response, outbound: Outbound) -> tuple[Folding, ChatError | None]:
    """Return the chunks of a finished response, folded into one choice, and the error that ended it."""
    folding = Folding()
    if any(map(is_cut_call, response.output)):
        outbound.diagnostics.loss("tool_calls", "a call that was cut off is left out")
    for event in events_of(response):
        for chunk in outbound.feed(event):
            if isinstance(chunk, ErrorBody):
                return folding, chunk.error
            assert isinstance(chunk, StreamChunk)
            folding.feed(chunk)
    return folding, None


class Folding:
    """The chunks of one choice, folded."""

    def __init__(self) -> None:
        self._first: StreamChunk | None = None
        self._finish: str | None = None
        self._usage: Any = UNSET
        self._texts: dict[str, list[str]] = {}
        self._annotations: list[object] = []
        self._logprobs: list[ChatLogProb] = []
        self._calls: dict[int, tuple[ChatToolCall, list[str]]] = {}
        self._function: tuple[str, list[str]] | None = None
        self._details: list[dict[str, Any]] = []
        self._thinking: list[dict[str, Any]] = []
        self._extra: dict[str, Any] = {}
        self._images: list[Any] = []
        self._audio = KeptAudio()
        self._refused: list[ChatLogProb] = []
        self._said: dict[str, Any] = {}  # what only clients of this API know
        self._said_of_choice: dict[str, Any] = {}
        self._said_of_message: dict[str, Any] = {}

    def feed(self, chunk: StreamChunk) -> None:
        self._first = self._first or chunk
        self._usage = chunk.usage or self._usage
        self._said |= chunk.extra or {}
        for choice in chunk.choices:
            self._finish = choice.finish_reason or self._finish
            if choice.logprobs:
                self._logprobs += choice.logprobs.content or ()
                self._refused += choice.logprobs.refusal or ()
            self._said_of_choice |= choice.extra or {}
            if isinstance(choice.delta, dict):
                self._said_of_message |= choice.delta
            else:
                self._delta(choice.delta)

    def _delta(self, delta: ChatDelta) -> None:
        for name in _TEXTS:
            if text := getattr(delta, name):
                self._texts.setdefault(name, []).append(text)
        self._annotations += delta.annotations or ()
        self._details += delta.reasoning_details or ()
        self._thinking += delta.thinking_blocks or ()
        self._extra |= delta.extra_content or {}
        self._images += delta.images or ()
        self._audio.add(delta.audio or {})
        for call in delta.tool_calls or ():
            known = self._calls.setdefault(call.index or 0, (call, []))
            fragment = call.custom.input if call.custom else call.function and call.function.arguments
            known[1].append(str(fragment or ""))
        if (function := delta.function_call) is not None:
            self._function = self._function or (function.name or "", [])
            self._function[1].append(str(function.arguments or ""))

    @property
    def completion(self) -> ChatCompletion:
        """The answer so far. Raises ValueError before the first chunk."""
        first = self._first
        if first is None:
            raise ValueError("there is no chunk to make an answer of")
        choice = self.choice(first.choices[0].index)
        return ChatCompletion(
            first.id, COMPLETION, first.created, first.model, [choice], self._usage, extra=self.said
        )

    @property
    def said(self) -> Extra:
        """Return the fields of the upstream's answer that only clients of this API know."""
        return self._said or UNSET

    def choice(self, index: int, error: ChatError | None = None) -> AnswerChoice:
        """Return the choice so far, which failed if there is an error."""
        texts: dict[str, Any] = {name: "".join(pieces) for name, pieces in self._texts.items()}
        message = AnswerMessage(
            role="assistant",
            **({"content": None, "refusal": None} | texts),
            annotations=self._annotations or UNSET,
            tool_calls=[_call(*known) for known in self._calls.values()] or UNSET,
            function_call=UNSET if self._function is None else _function(*self._function),
            reasoning_details=self._details or UNSET,
            thinking_blocks=self._thinking or UNSET,
            extra_content=self._extra or UNSET,
            images=self._images or UNSET,
            audio=self._audio.whole() or UNSET,
            extra=self._said_of_message or UNSET,
        )
        tokens = (self._logprobs or None, self._refused or None)
        logprobs = ChatLogProbs(*tokens) if any(tokens) else None
        extra = self._said_of_choice or UNSET
        if error is not None:
            return AnswerChoice(index, message, FAILED_CHOICE, logprobs, error, extra=extra)
        return AnswerChoice(index, message, self._finish, logprobs, extra=extra)


def _function(name: str, fragments: list[str]) -> ChatFunction:
    return ChatFunction(name, "".join(fragments))


def _call(begun: ChatToolCall, fragments: list[str]) -> ChatToolCall:
    text = "".join(fragments)
    if begun.custom is not None:
        return ChatToolCall(None, begun.id, "custom", None, ChatCustom(begun.custom.name, text))
    name = begun.function.name if begun.function else None
    extra = begun.extra_content
    return ChatToolCall(None, begun.id, "function", ChatFunction(name, text), extra_content=extra)
