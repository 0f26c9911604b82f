"""Converts events to chunks of `generateContent`.

In this API, one answer is one content with consecutive parts, to which a chunk adds. Calls are sent whole, in
the order in which they began; texts and thoughts as they come. Reasoning that another upstream wants back is
in the signature of the next part; Google's own signatures are where Google put them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.json_text import WRAPPED, is_wrapped, tool_input
from openresponses_bridge.calls.presentation import call_view
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    CANCELLED,
    CUT,
    RUN_CALL,
    RUN_OUTPUTS,
    SEARCH_CALL,
    TIER,
    RunCode,
    ShownThoughts,
    code_run,
    native_of,
    object_in,
    other_fields,
    report_native,
    seal_reasoning,
    searched,
    tier_for,
)
from openresponses_bridge.dialects.gemini import types as t
from openresponses_bridge.dialects.gemini.carried import DIALECT
from openresponses_bridge.dialects.gemini.client import ending
from openresponses_bridge.dialects.gemini.signatures import Signed, open_signatures
from openresponses_bridge.emitter.finished import is_cut_call
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.content import LogProb, UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import ErrorPayload, Response
from openresponses_bridge.protocol.unknown import UnknownEvent, UnknownItem
from openresponses_bridge.seal import Sealer

_Chunk = t.GenerateContentResponse
_Part = dict[str, Any]
_MODEL: Final = "model"
_EMPTY: Final = {"text": ""}
_GROUNDING: Final = "groundingMetadata"
_SIGNATURE: Final = "thoughtSignature"
_IMAGE: Final = "image_generation_call"
_CALL: Final = "functionCall"
_INLINE: Final = "inlineData"
_OF_ANSWER: Final = ("usageMetadata", "promptFeedback")
_OF_CANDIDATE: Final = (
    *(t.ANSWER, t.PARTS, TIER, "finishReason", "finishMessage"),
    *(_GROUNDING, "logprobsResult"),
)


class Outbound:
    """One candidate of one answer.

    `sealer` opens and seals signatures, `tool_identities` has the names of namespaced tools. `thoughts` is
    True if the client wants the text of the model's thoughts. `candidate` is its number; `alone` is True if
    there is no other, so that a failure ends the answer. `id` is shared by all candidates, and by default the
    response's.
    """

    def __init__(
        self,
        sealer: Sealer | None = None,
        tool_identities: ToolIdentityMap | None = None,
        *,
        thoughts: bool = True,
        candidate: int = 0,
        alone: bool = True,
        id: str = "",
    ) -> None:
        self.diagnostics = Diagnostics()
        self._sealer = sealer or Sealer()
        self._identities = tool_identities or ToolIdentityMap()
        self._thoughts = thoughts
        self._candidate = candidate
        self._alone = alone
        self._answer_id = id
        self._id = self._model = ""
        self._ended = False
        self._error: ErrorPayload | None = None
        self.failure: tuple[str | None, str, Mapping[str, Any]] | None = None
        """The code and the message of the failure, if there was one, and Google's further fields."""
        self._sent = False  # a part was sent
        self._cited = False  # or searches were run
        self._refusal: list[str] = []
        self._calls: dict[int, _Part | None] = {}  # index of the item → its part, once that is whole
        self._shown = ShownThoughts(self.diagnostics)
        self._foreign: list[dict[str, Any]] = []  # other upstreams' reasoning that no part has yet
        self._next: list[Signed] = []  # Google's signatures of what follows
        self._carried: dict[str, Any] = {}  # index of an item → the further fields of its part

    def feed(self, event: Event) -> list[_Chunk]:
        """Return the chunks of this event."""
        handler = _HANDLERS.get(type(event))
        return [] if handler is None or self._ended else handler(self, event)

    def close(self) -> list[_Chunk]:
        """Handle the end of the events, which is an error without a terminal event before."""
        if self._ended:
            return []
        error = self._error
        return self._fail(CUT if error is None else error.code, error.message if error else "ended early")

    def _identify(self, event: Any) -> list[_Chunk]:
        response: Response = event.response
        self._id = self._answer_id or response.id
        self._model = response.upstream_model or response.model
        self._carried |= object_in(native_of(response, DIALECT), t.PARTS)
        return []

    def _chunk(self, candidate: t.Candidate | None, **fields: Any) -> _Chunk:
        candidates = None if candidate is None else [candidate]
        return _Chunk(candidates, model_version=self._model, response_id=self._id, **fields)

    def _parts(self, *parts: _Part, logprobs: list[LogProb] | None = None) -> list[_Chunk]:
        """Return a chunk with these parts."""
        self._sent = True
        candidate = t.Candidate(t.Content(list(parts), _MODEL), index=self._candidate)
        if logprobs:
            candidate.logprobs_result = _logprobs(logprobs)
        return [self._chunk(candidate)]

    def _signed(self, part: _Part, call_id: str = "") -> _Part:
        """Return the part after reasoning, with the signature that waits for it."""
        if self._next:
            first = next((each for each in self._next if each.call_id == call_id), self._next[0])
            self._next = []
            return {**part, _SIGNATURE: first.signature}
        if self._foreign:
            foreign, self._foreign = self._foreign, []
            return {**part, _SIGNATURE: seal_reasoning(self._sealer, foreign)}
        return part

    def _text(self, event: ev.OutputTextDelta) -> list[_Chunk]:
        if not event.delta and not event.logprobs:
            return []
        part = {"text": event.delta}
        if self._foreign:
            part = self._signed(part)
        return self._parts(part, logprobs=event.logprobs or None)

    def _annotation(self, event: ev.OutputTextAnnotationAdded) -> list[_Chunk]:
        if isinstance(event.annotation, UrlCitation):
            self._cited = True
        else:
            self.diagnostics.loss("annotation", "not a web address")
        return []

    def _refused(self, event: ev.RefusalDelta) -> list[_Chunk]:
        self._refusal.append(event.delta)
        return []

    def _reasoning(self, event: Any) -> list[_Chunk]:
        return self._think(event.output_index, self._shown.content(event)) if self._thoughts else []

    def _summarised(self, event: ev.ReasoningSummaryTextDelta) -> list[_Chunk]:
        return self._think(event.output_index, self._shown.summary(event)) if self._thoughts else []

    def _think(self, output_index: int, delta: str) -> list[_Chunk]:
        if not delta:
            return []
        return self._parts({"text": delta, "thought": True})

    def _added(self, event: ev.OutputItemAdded) -> list[_Chunk]:
        if isinstance(event.item, it.FunctionCall | it.CustomToolCall):
            self._calls[event.output_index] = None
        return []

    def _finished(self, event: ev.OutputItemDone) -> list[_Chunk]:
        item, carried = event.item, object_in(self._carried, str(event.output_index))
        if isinstance(item, it.ReasoningItem):
            thought = {"text": "", "thought": True, **carried}
            return [*(self._parts(thought) if carried else ()), *self._sealed(item)]
        if item is None or isinstance(item, it.Message):
            return self._parts({"text": "", **carried}) if carried else []
        if is_cut_call(item):
            self._calls.pop(event.output_index, None)
            self.diagnostics.loss(f"item.{item.type}", "cut off, left out")
            return self._whole_calls()
        if isinstance(item, UnknownItem):
            return self._unknown(item)
        part = self._call(item)
        if part is None:
            self.diagnostics.loss(f"item.{item.type}", "Gemini has no such part")
            return []
        call = object_in(carried, _CALL)
        self._calls[event.output_index] = {**part, **carried, _CALL: {**call, **part[_CALL]}}
        return self._whole_calls()

    def _call(self, item: it.Item) -> _Part | None:
        view = call_view(item, self._identities)
        if view is None:
            return None
        arguments = tool_input(view.arguments)
        if is_wrapped(arguments, view.arguments):
            self.diagnostics.repair("functionCall.args", WRAPPED)
        call = {"id": view.call_id, "name": view.name, "args": arguments}
        return self._signed({"functionCall": call}, view.call_id)

    def _whole_calls(self) -> list[_Chunk]:
        """Return the whole calls, up to the first that is not whole."""
        parts: list[_Part] = []
        for index, part in list(self._calls.items()):
            if part is None:
                break
            parts.append(self._calls.pop(index) or part)
        return self._parts(*parts) if parts else []

    def _sealed(self, item: it.ReasoningItem) -> list[_Chunk]:
        """Return the chunks of reasoning that an upstream wants back."""
        if not item.encrypted_content:
            return []
        signed = open_signatures(self._sealer, item.encrypted_content)
        if signed is None:
            summary = [text for part in item.summary if (text := getattr(part, "text", ""))]
            reasoning = {"id": item.id, "summary": summary, "encrypted_content": item.encrypted_content}
            self._foreign.append(reasoning)
            return []
        self._next += [each for each in signed if each.on == "next"]
        return [chunk for each in signed if each.on != "next" for chunk in self._behind(each)]

    def _behind(self, signed: Signed) -> list[_Chunk]:
        """Return a signature of text or thoughts that were sent: an empty part, as Google's last one is."""
        part: _Part = {"text": "", _SIGNATURE: signed.signature}
        return self._parts(part | {"thought": True} if signed.on == "thought" else part)

    def _unknown(self, item: UnknownItem) -> list[_Chunk]:
        search = searched(item)
        if search is not None and search.kind == "search":
            self._cited = True
            return []
        if (ran := code_run(item)) is not None:
            return self._run(ran)
        kind, part = item.type.removeprefix("openai:"), item.raw.get("part")
        if kind.startswith(t.SLUG) and isinstance(part, dict):
            return self._parts(part)
        result, form = item.raw.get("result"), item.raw.get("output_format") or "png"
        if kind == _IMAGE and isinstance(result, str) and result:
            image = {"mimeType": f"image/{form}", "data": result}
            own = object_in(item.raw, t.PART)
            blob = {**object_in(own, _INLINE), **image}
            return self._parts(self._signed({**own, _INLINE: blob}))
        self.diagnostics.loss(f"item.{item.type[:64]}", "Gemini has no such part")
        return []

    def _run(self, ran: RunCode) -> list[_Chunk]:
        """Return code that another API ran, and what it printed."""
        if ran.others:
            self.diagnostics.loss(f"item.{RUN_OUTPUTS}", "only text of the output of code can be expressed")
        if ran.container:
            self.diagnostics.loss(f"item.{RUN_CALL}.container_id", "Gemini names no container")
        outcome = "OUTCOME_FAILED" if ran.failed else "OUTCOME_OK"
        return self._parts(
            {"executableCode": {"language": "PYTHON", "code": ran.code}},
            {"codeExecutionResult": {"outcome": outcome, "output": ran.output}},
        )

    def _extension(self, event: UnknownEvent) -> list[_Chunk]:
        if SEARCH_CALL in event.type or RUN_CALL in event.type:
            return []  # of the call's progress
        if event.type == t.PART and (parts := object_in(event.raw, t.PARTS)):
            self._carried |= parts
        else:
            self.diagnostics.ignored(event.type or "event", "not Gemini's")
        return []

    def _keep_error(self, event: ev.ErrorEvent) -> list[_Chunk]:
        """Record the error: `response.failed` follows and ends the answer."""
        self._error = event.payload
        return []

    def _end(self, event: Any) -> list[_Chunk]:
        response: Response = event.response
        self._identify(event)
        report_native(response, DIALECT, self.diagnostics)
        for index in [index for index, part in self._calls.items() if part is None]:
            del self._calls[index]
        chunks = self._whole_calls()
        native = native_of(response, DIALECT)
        answer = object_in(native, t.ANSWER)
        counted = object_in(answer, "usageMetadata")
        usage = counted or None
        if response.usage is not None:
            usage = ending.usage_metadata(response.usage, counted, self.diagnostics)
        tier = tier_for(response, DIALECT, self.diagnostics, t.TIERS)
        if tier is not None:
            usage = {**(usage or {}), t.USED_TIER: tier}
        if response.stop_sequence:
            self.diagnostics.loss("stop_sequence", "can't be expressed")
        reason = ending.finish_reason(response, self.diagnostics)
        error = response.error
        if reason is None:
            code, message = (error.code, error.message) if error else (CANCELLED.code, CANCELLED.message)
            native_error = native_of(error, DIALECT) if error else {}
            return [*chunks, *self._fail(code, message, usage, native_error)]
        self._ended = True
        explained = "".join(self._refusal)
        feedback = object_in(answer, "promptFeedback") or None
        others = other_fields(answer, _OF_ANSWER) or None
        if feedback and feedback.get("blockReason") and not (self._sent or chunks):
            return [self._chunk(None, prompt_feedback=feedback, usage_metadata=usage, others=others)]
        chunks += self._last_parts(explained if reason != ending.SAFETY else "")
        grounding = object_in(native, _GROUNDING)
        if not grounding and self._cited:
            grounding = ending.grounding_metadata(response) or {}
        reason, said_why = ending.native_end(reason, native)
        if error or (explained and reason in t.FILTERED):
            said_why = error.message if error else explained
        # Google ends with an empty text, and google-genai considers a content without parts a broken answer
        last = t.Candidate(
            t.Content([dict(_EMPTY)] if self._sent else None, _MODEL),
            reason,
            said_why or None,
            self._candidate,
            grounding_metadata=grounding or None,
            logprobs_result=object_in(native, "logprobsResult") or None,
            others=other_fields(native, _OF_CANDIDATE) or None,
        )
        return [
            *chunks,
            self._chunk(last, usage_metadata=usage, prompt_feedback=feedback, others=others),
        ]

    def _last_parts(self, refusal: str) -> list[_Chunk]:
        """Return a refusal in the model's own words, and the signatures without a part after them."""
        chunks: list[_Chunk] = []
        if refusal:
            self.diagnostics.loss("refusal", "sent as text")
            chunks = self._parts(self._signed({"text": refusal}))
        if self._foreign or self._next:
            chunks += self._parts(self._signed({"text": ""}))
        return chunks

    def _fail(
        self,
        code: str | None,
        message: str,
        usage: dict[str, Any] | None = None,
        native: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[_Chunk]:
        self._ended = True
        self.failure = (code, message, native)
        if self._alone:
            paid = [] if usage is None else [self._chunk(None, usage_metadata=usage)]
            return [*paid, _Chunk(error=ending.failed_body(code, message, native)["error"])]
        candidate = t.Candidate(t.Content(None, _MODEL), ending.OTHER, message, self._candidate)
        return [self._chunk(candidate, usage_metadata=usage)]


_HANDLERS: Final[dict[type, Callable[[Outbound, Any], list[_Chunk]]]] = {
    ev.ResponseCreated: Outbound._identify,
    ev.ResponseQueued: Outbound._identify,
    ev.ResponseInProgress: Outbound._identify,
    ev.OutputTextDelta: Outbound._text,
    ev.OutputTextAnnotationAdded: Outbound._annotation,
    ev.RefusalDelta: Outbound._refused,
    ev.ReasoningDelta: Outbound._reasoning,
    ev.ReasoningTextDelta: Outbound._reasoning,
    ev.ReasoningSummaryTextDelta: Outbound._summarised,
    ev.OutputItemAdded: Outbound._added,
    ev.OutputItemDone: Outbound._finished,
    ev.ErrorEvent: Outbound._keep_error,
    ev.ResponseCompleted: Outbound._end,
    ev.ResponseIncomplete: Outbound._end,
    ev.ResponseFailed: Outbound._end,
    UnknownEvent: Outbound._extension,
}


def _logprobs(tokens: list[LogProb]) -> dict[str, Any]:
    return {
        "chosenCandidates": [{"token": each.token, "logProbability": each.logprob} for each in tokens],
        "topCandidates": [
            {
                "candidates": [
                    {"token": other.token, "logProbability": other.logprob} for other in each.top_logprobs
                ]
            }
            for each in tokens
        ],
    }


def encode_sse(chunks: Iterable[_Chunk]) -> bytes:
    """Encode chunks as SSE frames, which have only data in this API. So have errors, though Google sends them
    without a frame, which not all of its clients read."""
    return b"".join([b"data: %b\n\n" % t.encode_chunk(chunk) for chunk in chunks])
