"""What a capture may hold, as a table: how to tell it, which inbound reads it, what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import blake2s
from itertools import count
from typing import Any, Final, NamedTuple

from bridge.diagnostics import Diagnostics
from bridge.dialects import anthropic_messages, chat_completions, codex, copilot, responses, vscode
from bridge.emitter.machine import ResponseStreamStateMachine
from bridge.protocol.codec import encode
from bridge.protocol.events import Event
from bridge.state import TERMINAL_PHASES
from server.captures.reader import Payload, Unreadable, begins_response

Value = dict[str, Any]
Feed = Callable[[Payload], list[Event]]


class _Dialect(NamedTuple):
    """One row. `says` knows a capture by its first payload; `read` begins to read one into a machine and
    gives what to feed and what to close; `head` finds the model and the time (Unix seconds)."""

    says: Callable[[Value], bool]
    read: Callable[[ResponseStreamStateMachine], tuple[Feed, Callable[[], list[Event]]]]
    head: Callable[[Value], tuple[Any, Any]] = lambda _value: (None, None)
    begins_again: Callable[[Payload], bool] = lambda _payload: False  # after the end: another response


class Source:
    """Payloads in, events out, through the machine on the wire that was asked for.

    Ids and times come from the capture, so that it is translated to the same bytes each time.
    """

    def __init__(self, dialect: _Dialect, first: Payload, wire: str) -> None:
        self.diagnostics = Diagnostics()
        self._dialect = dialect
        self._wire = wire
        self._begin(first)

    def _begin(self, first: Payload) -> None:
        model, created = self._dialect.head(first.value or {})
        self._machine = ResponseStreamStateMachine(
            model if isinstance(model, str) else "",
            ids=_ids_from(first.data),
            clock=lambda: created if isinstance(created, int) else 0,
            wire=self._wire,
        )
        self._feed, self._close = self._dialect.read(self._machine)

    def feed(self, payload: Payload) -> list[Event]:
        if self._machine.phase in TERMINAL_PHASES and self._dialect.begins_again(payload):
            self.diagnostics.extend(self._machine.diagnostics)
            self._begin(payload)
        return self._feed(payload)

    def close(self) -> list[Event]:
        events = self._close()
        self.diagnostics.extend(self._machine.diagnostics)
        return events


def _ids_from(seed: bytes) -> Callable[[str], str]:
    digest = blake2s(seed, digest_size=8).hexdigest()
    number = count()
    return lambda prefix: f"{prefix}_{digest}{next(number):08x}"


# ── how each is read ───────────────────────────────────────────────────────────────────────────────
def _plain(inbound_of: Callable[[ResponseStreamStateMachine], Any]) -> Callable[..., Any]:
    """Payloads by their data alone."""

    def read(machine: ResponseStreamStateMachine) -> tuple[Feed, Callable[[], list[Event]]]:
        inbound = inbound_of(machine)
        return (lambda payload: inbound.feed(payload.data)), inbound.close

    return read


def _named(inbound_of: Callable[[ResponseStreamStateMachine], Any]) -> Callable[..., Any]:
    """Payloads with the name of their frame, for servers that leave `type` out."""

    def read(machine: ResponseStreamStateMachine) -> tuple[Feed, Callable[[], list[Event]]]:
        inbound = inbound_of(machine)
        return (lambda payload: inbound.feed(payload.data, payload.event or "")), inbound.close

    return read


def _read_codex(machine: ResponseStreamStateMachine) -> tuple[Feed, Callable[[], list[Event]]]:
    inbound = codex.Inbound(machine)

    def feed(payload: Payload) -> list[Event]:
        value = payload.value or {}
        if "msg" not in value or "dir" not in value:
            return inbound.feed(payload.data)
        # a record of both directions: what the app-server said is what counts
        return inbound.feed(encode(value["msg"])) if value["dir"] == "in" else []

    return feed, inbound.close


# ── how each is told ───────────────────────────────────────────────────────────────────────────────
def _type_of(value: Value) -> str:
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""


_ANTHROPIC_TYPES = ("message_", "content_block_", "ping")


def _is_anthropic(value: Value) -> bool:
    kind = _type_of(value)
    return kind.startswith(_ANTHROPIC_TYPES) or (kind == "message" and "stop_reason" in value)


def _is_responses(value: Value) -> bool:
    kind = _type_of(value)
    return kind.startswith("response.") or kind == "error" or ":" in kind


def _is_chat(value: Value) -> bool:
    return "choices" in value or "error" in value or str(value.get("object")).startswith("chat.completion")


def _is_copilot(value: Value) -> bool:
    return (isinstance(value.get("delta"), dict) and "text" in value) or "solution" in value


# in the order in which they are tried
DIALECTS: Final[dict[str, _Dialect]] = {
    "codex": _Dialect(lambda value: "method" in value or ("dir" in value and "msg" in value), _read_codex),
    "vscode": _Dialect(
        lambda value: _type_of(value).startswith("LanguageModel"),
        _plain(partial(vscode.Inbound, expects_marker=False)),
    ),
    "anthropic": _Dialect(
        _is_anthropic,
        _named(anthropic_messages.Inbound),
        lambda value: ((value.get("message") or value).get("model"), None),
    ),
    "responses": _Dialect(
        _is_responses, _named(partial(responses.Inbound, adopt=True)), begins_again=begins_response
    ),
    "copilot": _Dialect(_is_copilot, _plain(partial(copilot.Inbound, implied_end=True))),
    "chat": _Dialect(
        _is_chat,
        _plain(chat_completions.Inbound),
        lambda value: (value.get("model"), value.get("created")),
    ),
}
AUTO: Final = "auto"


def open_source(name: str, first: Payload, wire: str) -> Source:
    """The source for a capture that begins with this payload; `auto` looks at what it says.

    Raises Unreadable when no dialect knows it.
    """
    return Source(DIALECTS[_detect(first) if name == AUTO else name], first, wire)


def _detect(first: Payload) -> str:
    for name, dialect in DIALECTS.items():
        if first.value is not None and dialect.says(first.value):
            return name
    raise Unreadable(first.line, f"this is none of: {', '.join(DIALECTS)}")
