"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.dialects.base import Dialect, Recording
from bridge.dialects.codex.inbound import Inbound
from bridge.errors import WireError
from bridge.protocol.codec import decode_json, encode
from bridge.protocol.events import Event


class _RecordedInbound(Inbound):
    """Also takes records of both directions, of which what the app-server sent counts."""

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        record = _record_of(data)
        if record is None:
            return super().feed(data, event)
        return super().feed(encode(record["msg"])) if record["dir"] == "in" else []


def _record_of(data: bytes) -> dict[str, Any] | None:
    if b'"dir"' not in data:
        return None
    try:
        value = decode_json(data)
    except WireError:
        return None
    return value if isinstance(value, dict) and _is_record(value) else None


def _is_record(value: Mapping[str, Any]) -> bool:
    return "dir" in value and "msg" in value


DIALECT: Final = Dialect(
    name="codex",
    recording=Recording(
        recognises=lambda value: "method" in value or _is_record(value), inbound=_RecordedInbound
    ),
)
"""Without sides: Codex's notifications are only read."""
