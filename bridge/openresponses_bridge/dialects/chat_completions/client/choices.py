"""An answer of n choices. Each choice has its own machine and outbound; they share the head of their chunks
and the sum of their usage.

A choice that fails ends with `finish_reason: "error"` and its error, while the others continue. When all
choices have failed, the answer has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.chat_completions.client.chunks import (
    COMPLETION,
    DONE,
    AnswerChoice,
    ChatCompletion,
    ChatError,
    ChoicesOptions,
    Chunk,
    ErrorBody,
    OutboundOptions,
    StreamChunk,
)
from openresponses_bridge.dialects.chat_completions.client.completion import folded
from openresponses_bridge.dialects.chat_completions.client.outbound import (
    Outbound,
    said_of_usage,
    summed,
    usage_out,
    with_said,
)
from openresponses_bridge.dialects.chat_completions.types import ChatUsage
from openresponses_bridge.protocol.events import Event, ResponseCompleted, ResponseFailed, ResponseIncomplete
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import Extra

_TERMINAL = (ResponseCompleted, ResponseIncomplete, ResponseFailed)


class Choices:
    """One stream: `feed(choice, event)` is called with the events of all machines, in any mixture.

    Options are those of `Outbound`, except `choice`. Usage is sent once, as the sum of what is known.
    """

    def __init__(self, n: int, *, id: str, created: int, **options: Unpack[ChoicesOptions]) -> None:
        self._outbounds = [Outbound(choice=choice, id=id, created=created, **options) for choice in range(n)]
        # all choices begin, in order, before the first one continues, because OpenAI's SDK relies on it
        self._heads = [outbound.open() for outbound in self._outbounds]
        self._wants_usage = options.get("include_usage", False)
        self._usage: list[ChatUsage] = []
        self._said: list[dict[str, Any]] = []  # the upstream's further fields of the usage
        self._errors: dict[int, ChatError] = {}

    @property
    def diagnostics(self) -> Diagnostics:
        """All losses, of every choice."""
        losses = Diagnostics()
        for outbound in self._outbounds:
            losses.extend(outbound.diagnostics)
        return losses

    def feed(self, choice: int, event: Event) -> list[Chunk]:
        """Return the chunks of one event of one choice."""
        if isinstance(event, _TERMINAL) and event.response.usage is not None:
            self._usage.append(usage_out(event.response.usage))
            self._said.append(said_of_usage(event.response))
        return self._forward(choice, self._outbounds[choice].feed(event))

    def close(self) -> list[Chunk]:
        """Return the ends of choices that have none, the usage if it was asked for, an error if no choice has
        an answer, and `[DONE]`."""
        chunks: list[Chunk] = []
        for choice, outbound in enumerate(self._outbounds):
            chunks += self._forward(choice, outbound.close()[:-1])
        if self._wants_usage and self._usage:
            usage = with_said(summed(self._usage), *self._said)
            chunks.append(self._outbounds[0].usage_chunk(usage))
        if len(self._errors) == len(self._outbounds):
            chunks.append(ErrorBody(self._errors[min(self._errors)]))
        return [*chunks, DONE]

    def _forward(self, choice: int, chunks: list[Chunk]) -> list[Chunk]:
        passed: list[Chunk] = []
        for chunk in chunks:
            if isinstance(chunk, ErrorBody):
                self._errors[choice] = chunk.error
                passed.append(self._outbounds[choice].fail_alone(chunk.error))
            elif not (isinstance(chunk, StreamChunk) and chunk.usage):
                passed.append(chunk)
        if passed and self._heads:
            model = next(chunk.model for chunk in passed if isinstance(chunk, StreamChunk))
            passed = [*(replace(head, model=model) for head in self._heads), *passed]
            self._heads = []
        return passed


def completions(
    responses: Sequence[Response],
    *,
    id: str,
    created: int,
    diagnostics: Diagnostics | None = None,
    **options: Unpack[OutboundOptions],
) -> ChatCompletion | ErrorBody:
    """Return the body that answers a request for several choices without `stream`; an error body if all of
    them failed or were cancelled. Arguments are those of `Choices`. Raises KeyError for a response that has
    not ended."""
    choices: list[AnswerChoice] = []
    extra: Extra = UNSET
    errors: list[ChatError] = []
    for number, response in enumerate(responses):
        outbound = Outbound(choice=number, id=id, created=created, **options)
        folding, error = folded(response, outbound)
        if error is not None:
            errors.append(error)
        choices.append(folding.choice(number, error))
        extra = extra or folding.said
        if diagnostics is not None:
            diagnostics.extend(outbound.diagnostics)
    if len(errors) == len(choices):
        return ErrorBody(errors[0])
    paid = [response for response in responses if response.usage is not None]
    usages = [usage_out(response.usage) for response in paid if response.usage is not None]
    model = options.get("model") or responses[0].model
    usage = with_said(summed(usages), *map(said_of_usage, paid)) if usages else UNSET
    return ChatCompletion(id, COMPLETION, created, model, choices, usage, extra=extra)
