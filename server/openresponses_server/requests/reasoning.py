"""Raw reasoning: converted to the form that the client wants, and sealed for an upstream that wants it back.

A client that keeps its own history (`include: ["reasoning.encrypted_content"]`, thinking of the Messages API)
sends sealed reasoning back. It is opened only for the upstream that produced it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.dialects.anthropic_messages import is_native
from openresponses_bridge.emitter.stream import ResponseStream, StreamFilter
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.content import LogProb, ReasoningTextContent
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.input_items import ReasoningParam
from openresponses_bridge.protocol.items import Item, ReasoningItem
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import SealError
from openresponses_server.requests.abilities import Loss
from openresponses_server.upstreams.targets import Target

RAW: Final = "raw"
BOTH: Final = "both"
FORMS: Final = (RAW, "summary", BOTH)
KIND: Final = "raw-reasoning"
"""The kind of envelope that raw reasoning is sealed in."""
_ENCRYPTED: Final = "reasoning.encrypted_content"
REASONING_ITEMS: Final[frozenset[Any]] = frozenset({ReasoningParam, ReasoningItem})
_ORIGIN_LENGTH: Final = 16  # characters of a hash: enough to distinguish upstreams


def sends_reasoning_back(request: CreateResponse) -> bool:
    """Return True if the client of this request keeps sealed reasoning and sends it back."""
    return _ENCRYPTED in (request.include or ()) or is_native(request)


def reasoning_seal(target: Target) -> Callable[[str], str]:
    """A function that seals text so that it can be opened for this upstream only."""
    origin = _origin(target)
    return lambda text: target.sealer.seal(encode({"by": origin, "text": text}), KIND)


def open_reasoning(items: Sequence[Any], target: Target, losses: dict[Loss, None]) -> list[Any]:
    """The items with this upstream's sealed reasoning opened. Another upstream's is left out, and so is what
    can't be opened here, because another server or another key sealed it: each is a loss."""
    if REASONING_ITEMS.isdisjoint(map(type, items)):
        return list(items)
    result = []
    for item in items:
        if isinstance(item, ReasoningParam | ReasoningItem) and _is_ours(item.encrypted_content):
            try:
                text = _opened(str(item.encrypted_content), target)
            except (SealError, WireError):
                losses["reasoning", "can't be opened here: another server or another key sealed it"] = None
                continue
            if text is None:
                losses["reasoning", "another upstream's"] = None
                continue
            item = replace(item, content=[ReasoningTextContent(text)], encrypted_content=UNSET)
        result.append(item)
    return result


def has_encrypted(items: Iterable[Any]) -> bool:
    """Return True if any of the items is encrypted reasoning."""
    return any(isinstance(item, ReasoningParam | ReasoningItem) and item.encrypted_content for item in items)


def without_encrypted(items: Iterable[Any]) -> list[Any]:
    """The items but encrypted reasoning."""
    return [item for item in items if not has_encrypted([item])]


def _is_ours(encrypted: Any) -> bool:
    return isinstance(encrypted, str) and encrypted.split(".", 3)[2:3] == [KIND]


def _opened(encrypted: str, target: Target) -> str | None:
    value = decode_json(target.sealer.open(encrypted).payload)
    return value["text"] if value["by"] == _origin(target) else None


def _origin(target: Target) -> str:
    upstream = target.upstream
    return hashlib.sha256(f"{upstream.name} {upstream.address}".encode()).hexdigest()[:_ORIGIN_LENGTH]


class SealedReasoning(StreamFilter):
    """Adds sealed `encrypted_content` to each reasoning item that has none from its upstream."""

    def __init__(self, stream: ResponseStream, seal: Callable[[str], str]) -> None:
        super().__init__(stream)
        self._seal = seal
        self._raw_text: list[str] = []

    def reasoning(self, delta: str) -> list[Event]:
        events = super().reasoning(delta)
        self._raw_text.append(delta)
        return events

    def reasoning_encrypted(self, content: str) -> list[Event]:
        self._raw_text.clear()
        return super().reasoning_encrypted(content)

    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        if not self._raw_text or not delta:
            return super().text(delta, logprobs)
        return [*self._close(), *super().text(delta, logprobs)]

    def refusal(self, delta: str) -> list[Event]:
        return [*(self._close() if delta else ()), *super().refusal(delta)]

    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
        namespace: str | None = None,
    ) -> list[Event]:
        closed = self._close() if self._raw_text else []
        return [*closed, *super().tool_call(index, id, name, arguments, type, namespace)]

    def item_added(self, item: Item | Mapping[str, Any]) -> list[Event]:
        return [*self._close(), *super().item_added(item)]

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        return [*self._close(), *super().item(item)]

    def block_done(self, *, cut: bool = False) -> list[Event]:
        return [*self._seal_text(), *super().block_done(cut=cut)]

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        return [*self._seal_text(), *super().finish(reason, incomplete=incomplete)]

    def _close(self) -> list[Event]:
        return [*self._seal_text(), *super().block_done()] if self._raw_text else []

    def _seal_text(self) -> list[Event]:
        text = "".join(self._raw_text)
        self._raw_text.clear()
        return super().reasoning_encrypted(self._seal(text)) if text else []


class ReasoningAsSummary(StreamFilter):
    """Converts raw reasoning to the first part of the summary, or to both; the upstream's own summary parts
    follow."""

    def __init__(self, stream: ResponseStream, form: str) -> None:
        super().__init__(stream)
        self._keeps_raw = form == BOTH

    def reasoning(self, delta: str) -> list[Event]:
        events = super().reasoning(delta) if self._keeps_raw else []
        return events + super().reasoning_summary(delta, 0)

    def reasoning_summary(self, delta: str, part: int = 0) -> list[Event]:
        return super().reasoning_summary(delta, part + 1)
