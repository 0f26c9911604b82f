"""Encodes a finished response as a message, by folding its stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.json_text import tool_input
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.dialects.anthropic_messages.client.outbound import Outbound
from openresponses_bridge.emitter.finished import events_of, is_cut_call
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer


def message(
    response: Response,
    sealer: Sealer | None = None,
    tool_identities: ToolIdentityMap | None = None,
    diagnostics: Diagnostics | None = None,
) -> dict[str, Any]:
    """Return the body that answers a request without `stream`; an error body for a failed response.

    A call that was cut off is left out, with a loss: clients run every call of a message. Raises KeyError for
    a response that has not ended.
    """
    outbound = Outbound(sealer, tool_identities)
    folder = _Folder()
    for event in events_of(response):
        for chunk in outbound.feed(event):
            _STEPS[type(chunk)](folder, chunk)
    if diagnostics is not None:
        diagnostics.extend(outbound.diagnostics)
        for item in filter(is_cut_call, response.output):
            diagnostics.loss(f"item.{item.type}", "cut off, left out")
    return folder.whole


class _Folder:
    """Folds chunks into a message; `whole` is the message or the error body so far."""

    def __init__(self) -> None:
        self.whole: dict[str, Any] = {}
        self._json: dict[int, list[str]] = {}

    def _start(self, chunk: t.MessageStart) -> None:
        self.whole = {**(chunk.message or {}), "content": []}

    def _block(self, chunk: t.ContentBlockStart) -> None:
        self.whole["content"].append(dict(chunk.content_block or {}))

    def _grow(self, chunk: t.ContentBlockDelta) -> None:
        block, delta = self.whole["content"][chunk.index], chunk.delta
        if isinstance(delta, t.InputJsonDelta):
            self._json.setdefault(chunk.index, []).append(delta.partial_json or "")
        elif isinstance(delta, t.TextDelta):
            block["text"] += delta.text or ""
        elif isinstance(delta, t.ThinkingDelta):
            block["thinking"] += delta.thinking or ""
        elif isinstance(delta, t.SignatureDelta):
            block["signature"] = delta.signature
        elif isinstance(delta, t.CitationsDelta):
            block.setdefault("citations", []).append(delta.citation)
        else:
            assert isinstance(delta, t.CompactionDelta)
            block["content"] = delta.content
            block |= {"encrypted_content": delta.encrypted_content} if delta.encrypted_content else {}

    def _stop(self, chunk: t.ContentBlockStop) -> None:
        text = "".join(self._json.pop(chunk.index, ()))
        if text:
            self.whole["content"][chunk.index]["input"] = tool_input(text)

    def _end(self, chunk: t.MessageDelta) -> None:
        self.whole |= {**(chunk.extra or {}), **(chunk.delta or {})}
        self.whole["usage"] = chunk.usage

    def _fail(self, chunk: t.ErrorFrame) -> None:
        self.whole = {"type": "error", "error": chunk.error}


_STEPS: Final[dict[type, Callable[[_Folder, Any], None]]] = {
    t.MessageStart: _Folder._start,
    t.ContentBlockStart: _Folder._block,
    t.ContentBlockDelta: _Folder._grow,
    t.ContentBlockStop: _Folder._stop,
    t.MessageDelta: _Folder._end,
    t.MessageStop: lambda _folder, _chunk: None,
    t.ErrorFrame: _Folder._fail,
}
