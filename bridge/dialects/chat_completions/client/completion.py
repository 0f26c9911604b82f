"""One answer out of more than its chunks: n choices side by side in one stream, and the answer that is not
streamed, which is the stream it would have been, folded."""

from __future__ import annotations

from typing import Any, Unpack

import msgspec
from msgspec import UNSET

from bridge.diagnostics import Diagnostics
from bridge.dialects.chat_completions.client.chunks import (
    COMPLETION,
    DONE,
    AnswerChoice,
    AnswerMessage,
    ChatCompletion,
    Chunk,
    ErrorBody,
    StreamChunk,
)
from bridge.dialects.chat_completions.client.ending import summed
from bridge.dialects.chat_completions.client.outbound import ChoicesOptions, CompletionOptions, Outbound
from bridge.dialects.chat_completions.types import (
    ChatCustom,
    ChatDelta,
    ChatFunction,
    ChatLogProb,
    ChatLogProbs,
    ChatToolCall,
    ChatUsage,
)
from bridge.emitter.finished import events_of, is_cut_call
from bridge.protocol.events import Event
from bridge.protocol.response import Response

_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")


def completion(
    response: Response, *, diagnostics: Diagnostics | None = None, **options: Unpack[CompletionOptions]
) -> ChatCompletion | ErrorBody:
    """The body that answers a request without `stream`; an error body for a failed or cancelled
    response. Options are those of `Outbound`. A call that was cut is left out, with a loss: whole
    messages are run as they are. Raises KeyError for a response that has not ended."""
    outbound = Outbound(**options, include_usage=True)
    folding = Folding()
    for event in events_of(response):
        for chunk in outbound.feed(event):
            if isinstance(chunk, ErrorBody):
                return chunk
            assert isinstance(chunk, StreamChunk)
            folding.feed(chunk)
    if diagnostics is not None:
        diagnostics.extend(outbound.diagnostics)
        if any(map(is_cut_call, response.output)):
            diagnostics.loss("tool_calls", "a call that was cut is left out")
    return folding.completion


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

    def feed(self, chunk: StreamChunk) -> None:
        self._first = self._first or chunk
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            self._finish = choice.finish_reason or self._finish
            if choice.logprobs:
                self._logprobs += choice.logprobs.content or ()
            self._delta(choice.delta)

    def _delta(self, delta: ChatDelta) -> None:
        for name in _TEXTS:
            if text := getattr(delta, name):
                self._texts.setdefault(name, []).append(text)
        self._annotations += delta.annotations or ()
        for call in delta.tool_calls or ():
            known = self._calls.setdefault(call.index or 0, (call, []))
            fragment = call.custom.input if call.custom else call.function and call.function.arguments
            known[1].append(str(fragment or ""))

    @property
    def completion(self) -> ChatCompletion:
        """The answer so far. Raises ValueError before the first chunk."""
        first = self._first
        if first is None:
            raise ValueError("there is no chunk to make an answer of")
        texts: dict[str, Any] = {name: "".join(pieces) for name, pieces in self._texts.items()}
        message = AnswerMessage(
            role="assistant",
            **({"content": None, "refusal": None} | texts),
            annotations=self._annotations or UNSET,
            tool_calls=[_call(*known) for known in self._calls.values()] or UNSET,
        )
        logprobs = ChatLogProbs(self._logprobs) if self._logprobs else None
        choice = AnswerChoice(first.choices[0].index, message, self._finish, logprobs)
        return ChatCompletion(first.id, COMPLETION, first.created, first.model, [choice], self._usage)


def _call(begun: ChatToolCall, fragments: list[str]) -> ChatToolCall:
    text = "".join(fragments)
    if begun.custom is not None:
        return ChatToolCall(None, begun.id, "custom", None, ChatCustom(begun.custom.name, text))
    name = begun.function.name if begun.function else None
    return ChatToolCall(None, begun.id, "function", ChatFunction(name, text))


class Choices:
    """`feed(choice, event)` for the events of each machine, in any mixture.

    Options are those of `Outbound`, but for `choice`. An error of one ends the stream, since a client
    can't tell whose it was; usage is sent once, as the sum.
    """

    def __init__(self, n: int, *, id: str, created: int, **options: Unpack[ChoicesOptions]) -> None:
        self._outbounds = [Outbound(choice=choice, id=id, created=created, **options) for choice in range(n)]
        self._usage: list[ChatUsage] = []
        self._last: StreamChunk | None = None
        self._failed = False

    @property
    def diagnostics(self) -> Diagnostics:
        """All that was lost, of every choice."""
        found = Diagnostics()
        for outbound in self._outbounds:
            found.extend(outbound.diagnostics)
        return found

    def feed(self, choice: int, event: Event) -> list[Chunk]:
        return [] if self._failed else self._passed(self._outbounds[choice].feed(event))

    def close(self) -> list[Chunk]:
        """The summed usage if it was asked for, then `[DONE]`."""
        chunks: list[Chunk] = []
        for outbound in self._outbounds:
            if not self._failed:
                chunks += self._passed(outbound.close()[:-1])
        if self._last is not None and not self._failed:
            chunks.append(msgspec.structs.replace(self._last, usage=summed(self._usage)))
        return [*chunks, DONE]

    def _passed(self, chunks: list[Chunk]) -> list[Chunk]:
        passed: list[Chunk] = []
        for chunk in chunks:
            if isinstance(chunk, StreamChunk) and isinstance(chunk.usage, ChatUsage):
                self._usage.append(chunk.usage)
                self._last = chunk
            else:
                passed.append(chunk)
                self._failed = self._failed or isinstance(chunk, ErrorBody)
        return passed
