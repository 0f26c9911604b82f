"""What a capture may hold, as a table: how to tell it, and how it becomes our events."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2s
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from bridge.diagnostics import Diagnostics
from bridge.dialects import chat_completions
from bridge.emitter.machine import ResponseStreamStateMachine
from bridge.protocol.codec import event_from
from bridge.protocol.events import Event
from bridge.protocol.lenient import Repair
from server.captures.reader import Payload, Unreadable


class Source(Protocol):
    """Payloads in, events out."""

    diagnostics: Diagnostics

    def feed(self, payload: Payload) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class _ChatSource:
    """Chat Completions chunks through the machine, on the wire that was asked for.

    Ids and times come from the capture, so that it is translated to the same bytes each time.
    """

    def __init__(self, first: Payload, wire: str) -> None:
        head = first.value or {}
        model, created = head.get("model"), head.get("created")
        machine = ResponseStreamStateMachine(
            model if isinstance(model, str) else "",
            ids=_ids_from(first.data),
            clock=lambda: created if isinstance(created, int) else 0,
            wire=wire,
        )
        self._inbound = chat_completions.Inbound(machine)
        self.diagnostics = machine.diagnostics

    def feed(self, payload: Payload) -> list[Event]:
        return self._inbound.feed(payload.data)

    def close(self) -> list[Event]:
        return self._inbound.close()


class _ResponsesSource:
    """Responses events as they are, repaired where they do not follow the schema."""

    def __init__(self, _first: Payload, _wire: str) -> None:
        self.diagnostics = Diagnostics()

    def feed(self, payload: Payload) -> list[Event]:
        if payload.value is None:
            return []
        repairs: list[Repair] = []
        event = event_from(payload.value, repairs)
        for repair in repairs:
            self.diagnostics.repair(f"{event.type} {repair.path}", repair.what)
        return [event]

    def close(self) -> list[Event]:
        return []


def _ids_from(seed: bytes) -> Callable[[str], str]:
    digest = blake2s(seed, digest_size=8).hexdigest()
    number = count()
    return lambda prefix: f"{prefix}_{digest}{next(number):08x}"


class _Dialect(NamedTuple):
    build: Callable[[Payload, str], Source]
    says: Callable[[dict[str, Any]], bool]


def _is_responses(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    return isinstance(kind, str) and (kind.startswith("response.") or kind == "error" or ":" in kind)


def _is_chat(value: dict[str, Any]) -> bool:
    return "choices" in value or "error" in value or str(value.get("object")).startswith("chat.completion")


# in the order in which they are tried
DIALECTS: Final[dict[str, _Dialect]] = {
    "responses": _Dialect(_ResponsesSource, _is_responses),
    "chat": _Dialect(_ChatSource, _is_chat),
}
AUTO: Final = "auto"


def open_source(name: str, first: Payload, wire: str) -> Source:
    """The source for a capture that begins with this payload; `auto` looks at what it says.

    Raises Unreadable when no dialect knows it.
    """
    return DIALECTS[_detect(first) if name == AUTO else name].build(first, wire)


def _detect(first: Payload) -> str:
    for name, dialect in DIALECTS.items():
        if first.value is not None and dialect.says(first.value):
            return name
    raise Unreadable(first.line, f"this is none of: {', '.join(DIALECTS)}")
