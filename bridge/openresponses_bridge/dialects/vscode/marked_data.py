"""Data parts whose media type says that they are not content: Copilot's own bookkeeping in a message."""

from __future__ import annotations

from typing import Any, get_args

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.input_items import CompactionParam
from openresponses_bridge.protocol.items import MessagePhase

_PHASES: dict[Any, MessagePhase] = {phase: phase for phase in get_args(MessagePhase)}


def json_of(data: bytes) -> Any:
    """The JSON in a part's bytes; its text where it is not JSON."""
    try:
        return decode_json(data)
    except WireError:
        return data.decode("utf-8", "replace")


def _inner(data: bytes, name: str) -> Any:
    """What the part holds, taken out of the container that names its kind again."""
    value = json_of(data)
    return value[name] if isinstance(value, dict) and name in value else value


def marker_of(data: bytes) -> tuple[str, str] | None:
    r"""(model, marker) of `model\marker`; None where one of them is missing."""
    model, _, marker = data.decode("utf-8", "replace").partition("\\")
    return (model, marker) if model and marker else None


def compaction_of(data: bytes) -> CompactionParam | None:
    """A condensed history; None for other context management (reports of what was cleared)."""
    value = _inner(data, "compaction")
    encrypted = value.get("encrypted_content") if isinstance(value, dict) else None
    return CompactionParam(encrypted, value.get("id") or None) if isinstance(encrypted, str) else None


def phase_of(data: bytes) -> MessagePhase | None:
    """The phase of a message; None for one that the protocol does not know."""
    value = _inner(data, "phase")
    return _PHASES.get(value) if isinstance(value, str) else None


def thinking_of(data: bytes) -> tuple[str, str, str]:
    """(id, text, encrypted) of a round's reasoning, each empty where it is not given."""
    value = _inner(data, "thinking")
    if not isinstance(value, dict):
        return "", value if isinstance(value, str) else "", ""
    text = value.get("text", value.get("thinking"))
    joined = "".join(each for each in text if isinstance(each, str)) if isinstance(text, list) else text
    facts = value.get("id"), joined, value.get("encrypted", value.get("encrypted_content"))
    block, text, encrypted = (fact if isinstance(fact, str) else "" for fact in facts)
    return block, text, encrypted
