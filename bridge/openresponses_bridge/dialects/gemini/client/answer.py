"""Encodes finished responses as one answer, by folding their streams; and the stream of several
candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.gemini import types as t
from openresponses_bridge.dialects.gemini.client.ending import failed_body
from openresponses_bridge.dialects.gemini.client.outbound import Outbound
from openresponses_bridge.emitter.finished import events_of, is_cut_call
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer

_EMPTY: Final = {"text": ""}
_JOINED: Final = (frozenset({"text"}), frozenset({"text", "thought"}))


def answer(
    responses: Sequence[Response],
    sealer: Sealer | None = None,
    tool_identities: ToolIdentityMap | None = None,
    *,
    thoughts: bool = True,
    diagnostics: Diagnostics | None = None,
) -> t.GenerateContentResponse:
    """Return the answer with these responses as its candidates; only an `error` if all of them failed or were
    cancelled. A call that was cut off is left out, with a loss: clients run every call of an answer. Raises
    KeyError for a response that has not ended."""
    folding = Folding()
    outbounds = []
    for number, response in enumerate(responses):
        outbound = Outbound(
            sealer,
            tool_identities,
            thoughts=thoughts,
            candidate=number,
            alone=False,
            id=responses[0].id,
        )
        outbounds.append(outbound)
        for event in events_of(response):
            folding.feed(outbound.feed(event))
        if diagnostics is not None:
            diagnostics.extend(outbound.diagnostics)
            for item in filter(is_cut_call, response.output):
                diagnostics.loss(f"item.{item.type}", "cut off, left out")
    return failure_of(outbounds) or folding.whole


class Folding:
    """Folds chunks into one answer: adjacent texts are one part, and so are adjacent thoughts."""

    def __init__(self) -> None:
        self._head = t.GenerateContentResponse()
        self._candidates: dict[int, t.Candidate] = {}
        self._parts: dict[int, list[tuple[dict[str, Any], list[str]]]] = {}
        self._tokens: dict[int, dict[str, Any]] = {}

    def feed(self, chunks: Iterable[t.GenerateContentResponse]) -> None:
        """Feed the next chunks."""
        for chunk in chunks:
            head = self._head
            usage = summed(head.usage_metadata, chunk.usage_metadata)
            feedback = chunk.prompt_feedback or head.prompt_feedback
            self._head = replace(chunk, usage_metadata=usage, prompt_feedback=feedback)
            for candidate in chunk.candidates or ():
                self._candidate(candidate.index or 0, candidate)

    @property
    def whole(self) -> t.GenerateContentResponse:
        """The answer so far."""
        candidates = [self._whole(number) for number in sorted(self._candidates)]
        return replace(self._head, candidates=candidates or None)

    def _candidate(self, number: int, candidate: t.Candidate) -> None:
        self._candidates[number] = candidate
        parts = self._parts.setdefault(number, [])
        for part in (candidate.content.parts if candidate.content else None) or ():
            kind = frozenset(part)
            if part == _EMPTY:
                continue
            text = part.get("text")
            pieces = [text] if isinstance(text, str) else []  # any other type is passed unchanged
            before, joined = parts[-1] if parts else ({}, [])
            if kind in _JOINED and pieces and joined and frozenset(before) - {"thoughtSignature"} == kind:
                joined += pieces
            else:
                parts.append((part, pieces))
        logprobs = self._tokens.setdefault(number, {})
        for name, tokens in (candidate.logprobs_result or {}).items():
            if isinstance(tokens, list):
                logprobs.setdefault(name, []).extend(tokens)
            else:
                logprobs[name] = tokens

    def _whole(self, number: int) -> t.Candidate:
        parts = [
            {**part, "text": "".join(pieces)} if pieces else part for part, pieces in self._parts[number]
        ]
        return replace(
            self._candidates[number],
            content=t.Content(parts or None, "model"),
            logprobs_result=self._tokens.get(number) or None,
        )


class Candidates:
    """The stream of several candidates: `feed(number, event)` is called with the events of all machines, in
    any mixture. A candidate that fails ends with the reason `OTHER`, while the others continue; if all have
    failed, so has the answer. Usage is sent once, as the sum of what is known."""

    def __init__(self, n: int, sealer: Sealer | None = None, *, id: str = "", thoughts: bool = True) -> None:
        self._outbounds = [
            Outbound(sealer, thoughts=thoughts, candidate=number, alone=False, id=id) for number in range(n)
        ]
        self._usage: dict[str, Any] | None = None
        self._last: t.GenerateContentResponse | None = None

    @property
    def diagnostics(self) -> Diagnostics:
        """All losses, of every candidate."""
        losses = Diagnostics()
        for outbound in self._outbounds:
            losses.extend(outbound.diagnostics)
        return losses

    def feed(self, number: int, event: Event) -> list[t.GenerateContentResponse]:
        """Return the chunks of one event of one candidate."""
        return self._forward(self._outbounds[number].feed(event))

    def close(self) -> list[t.GenerateContentResponse]:
        """Return ends for candidates that have none, the usage, and an error if no candidate has an
        answer."""
        chunks = [chunk for outbound in self._outbounds for chunk in self._forward(outbound.close())]
        if self._usage is not None and self._last is not None:
            chunks.append(replace(self._last, candidates=None, usage_metadata=self._usage))
        error = failure_of(self._outbounds)
        return chunks if error is None else [*chunks, error]

    def _forward(self, chunks: list[t.GenerateContentResponse]) -> list[t.GenerateContentResponse]:
        passed = []
        for chunk in chunks:
            self._usage = summed(self._usage, chunk.usage_metadata)
            self._last = replace(chunk, usage_metadata=None, prompt_feedback=None, others=None)
            passed.append(replace(chunk, usage_metadata=None))
        return passed


def failure_of(outbounds: Sequence[Outbound]) -> t.GenerateContentResponse | None:
    """Return the first error, if all have failed."""
    failures = [each.failure for each in outbounds if each.failure is not None]
    if len(failures) < len(outbounds):
        return None
    return t.GenerateContentResponse(error=failed_body(*failures[0])["error"])


def summed(one: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the usage of several candidates: the prompt was paid for each. Further fields of one candidate's
    counts are not true of the sum."""
    if one is None or other is None:
        return one or other
    sums = {name: one.get(name, 0) + other.get(name, 0) for name in t.COUNTS}
    return {name: count for name, count in sums.items() if count}
