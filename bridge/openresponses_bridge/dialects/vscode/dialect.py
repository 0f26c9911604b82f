"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openresponses_bridge.decoder.finish import STATEFUL_MARKER_MIME, USAGE_MIME
from openresponses_bridge.dialects.base import CaptureFormat, ClientSide, Dialect, type_of
from openresponses_bridge.dialects.vscode.inbound import Inbound
from openresponses_bridge.dialects.vscode.outbound import Outbound
from openresponses_bridge.dialects.vscode.surface import SURFACE


def _is_closing(value: Mapping[str, Any]) -> bool:
    """Return True if a part comes after everything else in an answer: its usage, or the marker for the next
    request."""
    return value.get("mimeType") in (USAGE_MIME, STATEFUL_MARKER_MIME)


DIALECT: Final = Dialect(
    name="vscode",
    title="VS Code",
    client=ClientSide(outbound=Outbound, encode=b"".join),
    surface=SURFACE,
    capture=CaptureFormat(
        recognises=lambda value: type_of(value).startswith("LanguageModel"),
        inbound=lambda machine: Inbound(machine, expects_marker=False),
        concludes=_is_closing,
        begins=lambda value, _before: not _is_closing(value),
    ),
)
"""The entry; its answers are always streamed."""
