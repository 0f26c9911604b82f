"""Fields of an answer that only clients of this API know, for them (law N1).

In `Response.native`, fields of the candidate have their own names, those of the answer are under `ANSWER`,
and those of parts under `PARTS`, by the index of their item in the output.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Raw

from openresponses_bridge.dialects.base import other_fields
from openresponses_bridge.dialects.gemini.types import ANSWER, PARTS, spelled
from openresponses_bridge.dialects.gemini.upstream.citations import MOST
from openresponses_bridge.dialects.gemini.upstream.decoding import unwrapped
from openresponses_bridge.dialects.gemini.upstream.ending import FinishState
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame

_READ_OF_ANSWER: Final = frozenset(
    {"candidates", "usageMetadata", "modelVersion", "responseId", "error", "promptFeedback"}
)
_READ_OF_CANDIDATE: Final = frozenset(
    {"content", "index", "finishReason", "finishMessage", "logprobsResult", "citationMetadata"}
)
_TOKENS: Final = ("chosenCandidates", "topCandidates")
_RATINGS: Final = "safetyRatings"
_TIME: Final = "createTime"
_FEEDBACK: Final = "promptFeedback"
_CITED: Final = "citationMetadata"


class NativeFields:
    """The fields of one candidate and of its answer. If several chunks have a field, the last one counts."""

    __slots__ = ("_answer", "_candidate", "_ratings", "_time")

    def __init__(self) -> None:
        self._answer: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._ratings: Raw | None = None  # of a chunk that was decoded strictly
        self._time: str | None = None

    def keep_strict(self, ratings: Raw | None, time: str | None) -> None:
        """Keep the fields that a chunk from the middle of a stream may have."""
        self._ratings = self._ratings if ratings is None else ratings
        self._time = self._time if time is None else time

    def keep_answer(self, chunk: dict[str, Any]) -> None:
        """Keep the fields of a chunk."""
        self._answer |= other_fields(chunk, _READ_OF_ANSWER)
        if chunk.get(_FEEDBACK):
            self._answer[_FEEDBACK] = chunk[_FEEDBACK]

    def keep_candidate(self, candidate: dict[str, Any], finish: FinishState) -> None:
        """Keep the fields of a candidate; those of its end unless `finish` has them."""
        fields = other_fields(candidate, ())
        self._candidate |= other_fields(fields, _READ_OF_CANDIDATE) | finish.native(fields)
        self._ratings = None if _RATINGS in fields else self._ratings
        tokens = fields.get("logprobsResult")
        if isinstance(tokens, dict):
            rest = {name: value for name, value in spelled(tokens).items() if name not in _TOKENS}
            self._candidate |= {"logprobsResult": rest} if rest else {}
        cited = fields.get(_CITED)
        if isinstance(cited, dict):
            self._annotate(spelled(cited))

    def _annotate(self, cited: dict[str, Any]) -> None:
        """Annotate the text of each chunk with its own sources."""
        known = self._candidate.setdefault(_CITED, {})
        for name, value in cited.items():
            before = known.get(name)
            if isinstance(value, list) and isinstance(before, list):
                before += value[: max(MOST - len(before), 0)]
            else:
                known[name] = value

    def said(self, usage: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
        """Return all fields, with those of the usage besides its counts, and the fields of parts."""
        candidate, answer = dict(self._candidate), dict(self._answer)
        if self._ratings is not None:
            candidate.setdefault(_RATINGS, decode_frame(bytes(self._ratings)))
        if self._time is not None:
            answer.setdefault(_TIME, self._time)
        answer |= {"usageMetadata": usage} if usage else {}
        return candidate | ({ANSWER: answer} if answer else {}) | ({PARTS: parts} if parts else {})


def model_in(data: bytes) -> str:
    """Return the name of the model in a payload; "" if it has none or can't be read."""
    try:
        first = next(iter(unwrapped(decode_frame(data))), None)
    except WireError:
        return ""
    name = spelled(first).get("modelVersion") if isinstance(first, dict) else None
    return name if isinstance(name, str) else ""
