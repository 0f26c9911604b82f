"""Raw reasoning on its way out and back: shown as its client reads it, and sealed for the upstream that made
it where that wants it again.

A client that keeps its own history (`include: ["reasoning.encrypted_content"]`, thinking of the Messages API)
brings sealed reasoning back. It is opened for the upstream that made it and for no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.dialects.anthropic_messages import is_native
from openresponses_bridge.emitter.stream import ResponseStream, StreamFilter
from openresponses_bridge.errors import InvalidRequestError, WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.content import LogProb, ReasoningTextContent
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.input_items import ReasoningParam
from openresponses_bridge.protocol.items import Item, ReasoningItem
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import SealError
from openresponses_server.upstreams.targets import Target

RAW: Final = "raw"
FORMS: Final = (RAW, "summary", "both")
KIND: Final = "raw-reasoning"
"""What raw reasoning is sealed as."""
_ENCRYPTED: Final = "reasoning.encrypted_content"
_INVALID: Final = "invalid_encrypted_content"
REASONING: Final[frozenset[Any]] = frozenset({ReasoningParam, ReasoningItem})
_LENGTH: Final = 16  # characters of a hash: enough to distinguish upstreams

Loss = tuple[str, str]


def seals(target: Target, request: CreateResponse) -> bool:
    """Whether the reasoning of this upstream is to be sealed: it wants it back without a signature of its
    own, and the client can bring it."""
    return target.traits.takes_reasoning and (_ENCRYPTED in (request.include or ()) or is_native(request))


def seal_for(target: Target) -> Callable[[str], str]:
    """What seals a text so that it opens for this upstream."""
    origin = _origin(target)
    return lambda text: target.sealer.seal(encode({"by": origin, "text": text}), KIND)


def open_reasoning(
    items: Sequence[Any], target: Target, place: Callable[[int], str], losses: dict[Loss, None]
) -> list[Any]:
    """The items with sealed reasoning of this upstream in the clear, and without that of others, which is a
    loss. Raises InvalidRequestError `invalid_encrypted_content` with the place of what can't be opened."""
    if REASONING.isdisjoint(map(type, items)):
        return list(items)
    found = []
    for index, item in enumerate(items):
        if isinstance(item, ReasoningParam | ReasoningItem) and _is_ours(item.encrypted_content):
            text = _opened(item.encrypted_content, target, place(index))  # type: ignore[arg-type]
            if text is None:
                losses["reasoning", "another upstream's"] = None
                continue
            item = replace(item, content=[ReasoningTextContent(text)], encrypted_content=UNSET)
        found.append(item)
    return found


def _is_ours(encrypted: Any) -> bool:
    return isinstance(encrypted, str) and encrypted.split(".", 3)[2:3] == [KIND]


def _opened(encrypted: str, target: Target, place: str) -> str | None:
    try:
        value = decode_json(target.sealer.open(encrypted).payload)
    except (SealError, WireError) as error:
        raise InvalidRequestError(
            _INVALID, f"The reasoning can't be opened: {error}.", param=place
        ) from error
    return value["text"] if value["by"] == _origin(target) else None


def _origin(target: Target) -> str:
    upstream = target.upstream
    return hashlib.sha256(f"{upstream.name} {upstream.address}".encode()).hexdigest()[:_LENGTH]


class SealedReasoning(StreamFilter):
    """Gives each reasoning item that has no opaque form of its upstream's one of ours, at its end."""

    def __init__(self, stream: ResponseStream, seal: Callable[[str], str]) -> None:
        super().__init__(stream)
        self._seal = seal
        self._said: list[str] = []

    def reasoning(self, delta: str) -> list[Event]:
        events = super().reasoning(delta)
        self._said.append(delta)
        return events

    def reasoning_encrypted(self, content: str) -> list[Event]:
        self._said.clear()
        return super().reasoning_encrypted(content)

    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        if not self._said or not delta:
            return super().text(delta, logprobs)
        return [*self._closed(), *super().text(delta, logprobs)]

    def refusal(self, delta: str) -> list[Event]:
        return [*(self._closed() if delta else ()), *super().refusal(delta)]

    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
        namespace: str | None = None,
    ) -> list[Event]:
        closed = self._closed() if self._said else []
        return [*closed, *super().tool_call(index, id, name, arguments, type, namespace)]

    def item_added(self, item: Item | Mapping[str, Any]) -> list[Event]:
        return [*self._closed(), *super().item_added(item)]

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        return [*self._closed(), *super().item(item)]

    def block_done(self, *, cut: bool = False) -> list[Event]:
        return [*self._sealed(), *super().block_done(cut=cut)]

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        return [*self._sealed(), *super().finish(reason, incomplete=incomplete)]

    def _closed(self) -> list[Event]:
        return [*self._sealed(), *super().block_done()] if self._said else []

    def _sealed(self) -> list[Event]:
        text = "".join(self._said)
        self._said.clear()
        return super().reasoning_encrypted(self._seal(text)) if text else []


class ReasoningAs(StreamFilter):
    """Raw reasoning as the first part of a summary, or as both; the upstream's own summaries come after."""

    def __init__(self, stream: ResponseStream, form: str) -> None:
        super().__init__(stream)
        self._keeps = form == "both"

    def reasoning(self, delta: str) -> list[Event]:
        events = super().reasoning(delta) if self._keeps else []
        return events + super().reasoning_summary(delta, 0)

    def reasoning_summary(self, delta: str, part: int = 0) -> list[Event]:
        return super().reasoning_summary(delta, part + 1)
