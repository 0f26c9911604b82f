"""Converts VS Code's parts to calls of the machine, so that a VS Code model can be an upstream.

A frame is one part as a JSON line, or `{"error": …}` if the provider threw. No part marks the end: a provider
that has returned is done.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final, get_args

import msgspec

from openresponses_bridge.decoder import (
    CALL_ID_PREFIX,
    LanguageModelDataPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
)
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    CUT,
    EMPTY,
    INVALID_JSON,
    INVALID_SHAPE,
    BaseInbound,
    counts_of,
    failure,
)
from openresponses_bridge.dialects.vscode import types as vs
from openresponses_bridge.dialects.vscode.errors import failure_of
from openresponses_bridge.dialects.vscode.media import image_mime
from openresponses_bridge.dialects.vscode.reading import part_of
from openresponses_bridge.dialects.vscode.types import arguments_of, call_id_of
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import decode_frame, decode_json
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.input_items import CompactionParam
from openresponses_bridge.protocol.items import CompactionItem, MessagePhase
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.state import ResponseStreamPhase

# Data parts whose media type says that they are not content: data that Copilot adds to a message for itself.

_PHASES: dict[Any, MessagePhase] = {phase: phase for phase in get_args(MessagePhase)}


def json_of(data: bytes) -> Any:
    """Return the JSON in a part's bytes; its text if it is not JSON."""
    try:
        return decode_json(data)
    except WireError:
        return data.decode("utf-8", "replace")


def _inner(data: bytes, name: str) -> Any:
    """Return the part's fields, without the container that repeats the name of its kind."""
    value = json_of(data)
    return value[name] if isinstance(value, dict) and name in value else value


def marker_of(data: bytes) -> tuple[str, str] | None:
    r"""Return (model, marker) of `model\marker`; None if one of them is missing."""
    model, _, marker = data.decode("utf-8", "replace").partition("\\")
    return (model, marker) if model and marker else None


def compaction_of(data: bytes) -> CompactionParam | None:
    """Return a condensed history; None for other context management (reports of what was removed)."""
    value = _inner(data, "compaction")
    encrypted = value.get("encrypted_content") if isinstance(value, dict) else None
    return CompactionParam(encrypted, value.get("id") or None) if isinstance(encrypted, str) else None


def phase_of(data: bytes) -> MessagePhase | None:
    """Return the phase of a message; None for one that the protocol does not have."""
    value = _inner(data, "phase")
    return _PHASES.get(value) if isinstance(value, str) else None


def thinking_of(data: bytes) -> tuple[str, str, str]:
    """Return (id, text, encrypted) of a round's reasoning; each is empty if it is not given."""
    value = _inner(data, "thinking")
    if not isinstance(value, dict):
        return "", value if isinstance(value, str) else "", ""
    text = value.get("text", value.get("thinking"))
    joined = "".join(each for each in text if isinstance(each, str)) if isinstance(text, list) else text
    facts = value.get("id"), joined, value.get("encrypted", value.get("encrypted_content"))
    block, text, encrypted = (fact if isinstance(fact, str) else "" for fact in facts)
    return block, text, encrypted


# Copilot's `usage` data, which may have any form.

_TOTALS = ("prompt_tokens", "completion_tokens", "total_tokens")


def usage_of(value: Any, diagnostics: Diagnostics) -> Usage | None:
    """Return usage from APIUsage, whose three totals must be numbers."""
    if not isinstance(value, dict) or not all(_is_number(value.get(name)) for name in _TOTALS):
        return None
    return counts_of(value, diagnostics)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_IDLE, _IN_PROGRESS = ResponseStreamPhase.IDLE, ResponseStreamPhase.IN_PROGRESS
STATEFUL_MARKER_EVENT = "vscode:stateful_marker"
DATA_EVENT = "vscode:data"
# the common frame, read directly
_TEXT_PART = b'{"type":"LanguageModelTextPart"'


class _TextFrame(msgspec.Struct, gc=False):
    value: str
    mid: int = msgspec.field(default=21, name="$mid")
    error: msgspec.UnsetType = msgspec.UNSET  # a frame that has one is an error, whatever else it has


_decode_text = msgspec.json.Decoder(_TextFrame).decode


class Inbound(BaseInbound):
    """Reads one provider's answer into one machine. `close()` means that the provider has returned; if it
    sent no part at all, it failed (VS Code's consumers report "No response").

    With `expects_marker`, only a stateful marker proves that the answer is whole: for streams of our own,
    which may be cut off (field case 26).
    """

    def __init__(
        self,
        machine: ResponseStream,
        call_id_prefix: str = CALL_ID_PREFIX,
        expects_marker: bool = False,
    ) -> None:
        self.diagnostics = machine.diagnostics
        self._machine = machine
        self._prefix = call_id_prefix
        self._expects_marker = expects_marker
        self._marked = False
        self._parts = 0
        self._calls = 0
        self._thinking: str | None = None

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Read one JSON line. A line that can't be read ends the response as failed."""
        phase = self._machine.phase
        if phase is _IN_PROGRESS:
            return self._plain_text(data) if data.startswith(_TEXT_PART) else self._read(data)
        if phase is _IDLE:
            return self._machine.start() + self._read(data)
        self.diagnostics.ignored("frame", "came after the end")
        return []

    def close(self) -> list[Event]:
        """Handle the return of the provider."""
        events = self._machine.start() if self._machine.phase is _IDLE else []
        if self._machine.phase is not _IN_PROGRESS:
            return events
        if self._expects_marker and not self._marked:
            return events + self._broken(CUT, "the parts ended without a stateful marker")
        if not self._parts:
            return events + self._broken(EMPTY, "the provider returned without any part")
        return events + self._machine.finish("tool_calls" if self._calls else "stop")

    def _plain_text(self, data: bytes) -> list[Event]:
        try:
            part = _decode_text(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._read(data)
        self._parts += 1
        return self._text(part)

    def _read(self, data: bytes) -> list[Event]:
        try:
            value = decode_frame(data)
        except BridgeError as error:
            return self._broken(INVALID_JSON, error.message)
        if isinstance(value, dict) and "error" in value:
            return self._machine.fail(failure_of(value["error"]))
        try:
            part = part_of(value, "part")
            self._parts += 1
            taker = _TAKERS.get(type(part))
            if taker is not None:
                return taker(self, part)
        except BridgeError as error:
            return self._broken(INVALID_SHAPE, error.message)
        self.diagnostics.loss(type(part).__name__, "no part of an answer")
        return []

    def _broken(self, code: str, message: str) -> list[Event]:
        return self._machine.fail(failure(code, message))

    def _text(self, part: LanguageModelTextPart | _TextFrame) -> list[Event]:
        self._thinking = None
        return self._machine.text(part.value)

    def _think(self, part: LanguageModelThinkingPart) -> list[Event]:
        text = part.value if isinstance(part.value, str) else "".join(part.value)
        metadata: dict[str, Any] = part.metadata or {}
        encrypted = metadata.get(vs.ENCRYPTED)
        events: list[Event] = []
        block = part.id or self._thinking or ""
        if (text or encrypted) and block != self._thinking:
            events += self._machine.block_done() + self._machine.expect_item(block)
            self._thinking = block
        events += self._machine.reasoning(text)
        if isinstance(encrypted, str):
            events += self._machine.reasoning_encrypted(encrypted)
        if metadata.get(vs.REASONING_DONE) and self._thinking is not None:
            self._thinking = None
            events += self._machine.block_done()
        return events

    def _call(self, part: LanguageModelToolCallPart) -> list[Event]:
        self._thinking = None
        index, self._calls = self._calls, self._calls + 1
        arguments = arguments_of(part)
        call_id = call_id_of(part.call_id, self._prefix)
        events = self._machine.tool_call(index, call_id, part.name, arguments)
        return events + self._machine.tool_call_done(index, cut=not part.name)

    def _data(self, part: LanguageModelDataPart) -> list[Event]:
        mark = _MARKS.get(part.mime_type)
        if mark is not None:
            return mark(self, part)
        self._thinking = None
        if part.mime_type.startswith("image/"):
            return self._image(part)
        fields = {"mime_type": part.mime_type, "data": base64.b64encode(part.data).decode()}
        return self._machine.extension_event(DATA_EVENT, fields)

    def _image(self, part: LanguageModelDataPart) -> list[Event]:
        mime = image_mime(part.data, part.mime_type)
        item = {
            "type": "image_generation_call",
            "id": "",
            "status": "completed",
            "result": base64.b64encode(part.data).decode(),
            "output_format": mime.removeprefix("image/"),
        }
        return self._machine.item(item)

    def _usage(self, part: LanguageModelDataPart) -> list[Event]:
        usage = usage_of(json_of(part.data), self.diagnostics)
        if usage is None:
            self.diagnostics.ignored(vs.USAGE, "no token counts in it")
            return []
        return self._machine.usage(usage)

    def _marker(self, part: LanguageModelDataPart) -> list[Event]:
        self._marked = True
        marker = marker_of(part.data)
        if marker is None:
            return []
        return self._machine.extension_event(STATEFUL_MARKER_EVENT, {"model": marker[0], "marker": marker[1]})

    def _compaction(self, part: LanguageModelDataPart) -> list[Event]:
        compaction = compaction_of(part.data)
        if compaction is None:
            self.diagnostics.loss(vs.CONTEXT_MANAGEMENT, "has no compacted history")
            return []
        return self._machine.item(CompactionItem(compaction.id or "", compaction.encrypted_content))

    def _phase(self, part: LanguageModelDataPart) -> list[Event]:
        phase = phase_of(part.data)
        return [] if phase is None else self._machine.block_done() + self._machine.expect_item("", phase)


_TAKERS: Final[dict[type[Any], Callable[[Inbound, Any], list[Event]]]] = {
    LanguageModelTextPart: Inbound._text,
    LanguageModelThinkingPart: Inbound._think,
    LanguageModelToolCallPart: Inbound._call,
    LanguageModelDataPart: Inbound._data,
}


_MARKS: Final[dict[str, Callable[[Inbound, LanguageModelDataPart], list[Event]]]] = {
    vs.USAGE: Inbound._usage,
    vs.STATEFUL_MARKER: Inbound._marker,
    vs.CONTEXT_MANAGEMENT: Inbound._compaction,
    vs.PHASE_DATA: Inbound._phase,
}
