"""Blocks of an Anthropic request → input items and content parts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET

from bridge.diagnostics import Diagnostics
from bridge.dialects.anthropic_messages import envelopes
from bridge.dialects.anthropic_messages.client.reading import maybe, need, objects
from bridge.dialects.anthropic_messages.upstream.hosted import SLUG
from bridge.dialects.base import invalid
from bridge.protocol import content as ct
from bridge.protocol import input_items as it
from bridge.protocol.codec import encode
from bridge.protocol.unknown import UnknownItem
from bridge.seal import Sealer, SealError

_PDF: Final = "application/pdf"
_SYSTEM_ROLES: Final = ("system", "developer")
CARRIER: Final = "cache_control"  # stands on any block, and has no counterpart


class Reader:
    """Turns messages into items, in order. Raises InvalidRequestError with the place of what is wrong."""

    def __init__(self, sealer: Sealer, diagnostics: Diagnostics) -> None:
        self._sealer = sealer
        self._diagnostics = diagnostics
        self.items: list[Any] = []
        self._parts: list[Any] = []
        self._role: Any = "user"
        self._blocks: dict[str, Callable[[dict[str, Any], str], None]] = {
            "tool_use": self._tool_use,
            "tool_result": self._tool_result,
            "thinking": self._thinking,
            "redacted_thinking": self._redacted,
            "compaction": self._compaction,
        }
        self._contents: dict[str, Callable[[dict[str, Any], str], Any]] = {
            "text": self._text,
            "image": self._image,
            "document": self._document,
        }

    def message(self, message: dict[str, Any], param: str) -> None:
        """One message of the request."""
        self._role = need(message, "role", str, param)
        if self._role not in ("user", "assistant", *_SYSTEM_ROLES):
            raise invalid(f"{param}.role", "expected user or assistant")
        content = message.get("content")
        if isinstance(content, str):
            self._parts = [self._said(content)]
        elif isinstance(content, list):
            for block, where in objects(content, f"{param}.content"):
                self._block(block, where)
        else:
            raise invalid(f"{param}.content", "expected a string or an array")
        self._flush()

    def parts(self, content: Any, param: str) -> list[Any]:
        """The parts of a tool's result."""
        found = []
        for block, where in objects(content, param):
            kind = need(block, "type", str, where)
            read = self._contents.get(kind)
            if read is None:
                self._diagnostics.loss(f"tool_result.{kind[:64]}", "no such part")
            else:
                part = read(block, where)
                found.append(ct.InputTextContent(part.text) if kind == "text" else part)
        return found

    def _block(self, block: dict[str, Any], param: str) -> None:
        kind = need(block, "type", str, param)
        if CARRIER in block:
            self._diagnostics.loss(CARRIER, "can't be expressed")
        read = self._contents.get(kind)
        if read is not None:
            self._parts.append(read(block, param))
            return
        self._flush()
        self._blocks.get(kind, self._hosted)(block, param)

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self.items.append(it.MessageParam(self._role, parts))

    def _said(self, text: str) -> Any:
        return ct.OutputTextParam(text) if self._role == "assistant" else ct.InputTextContent(text)

    # ── content ────────────────────────────────────────────────────────────────────────────────────
    def _text(self, block: dict[str, Any], param: str) -> Any:
        if block.get("citations"):
            self._diagnostics.loss("text.citations", "can't be expressed")
        return self._said(need(block, "text", str, param))

    def _image(self, block: dict[str, Any], param: str) -> Any:
        source = need(block, "source", dict, param)
        return ct.InputImageParam(self._url(source, f"{param}.source"), "auto")

    def _document(self, block: dict[str, Any], param: str) -> Any:
        source = need(block, "source", dict, param)
        where = f"{param}.source"
        title = maybe(block, "title", str, param) or UNSET
        for name in ("context", "citations"):
            if block.get(name):
                self._diagnostics.loss(f"document.{name}", "can't be expressed")
        kind = need(source, "type", str, where)
        if kind == "url":
            return ct.InputFileContent(title, file_url=need(source, "url", str, where))
        if kind == "text":
            data = b64encode(need(source, "data", str, where).encode("utf-8", "replace")).decode()
            return ct.InputFileContent(title or "document.txt", f"data:text/plain;base64,{data}")
        return ct.InputFileContent(title or "document.pdf", self._url(source, where))

    def _url(self, source: dict[str, Any], param: str) -> str:
        kind = need(source, "type", str, param)
        if kind == "url":
            return need(source, "url", str, param)
        if kind == "base64":
            media = maybe(source, "media_type", str, param) or _PDF
            return f"data:{media};base64,{need(source, 'data', str, param)}"
        raise invalid(f"{param}.type", f"a source of type {kind[:64]!r} can't be expressed")

    # ── calls ──────────────────────────────────────────────────────────────────────────────────────
    def _tool_use(self, block: dict[str, Any], param: str) -> None:
        arguments = encode(need(block, "input", dict, param)).decode()
        call_id, name = need(block, "id", str, param), need(block, "name", str, param)
        self.items.append(it.FunctionCallParam(call_id, name, arguments))

    def _tool_result(self, block: dict[str, Any], param: str) -> None:
        content = block.get("content")
        output: Any = content or ""
        if not isinstance(output, str):
            output = self.parts(need(block, "content", list, param), f"{param}.content")
        status: Any = "incomplete" if block.get("is_error") else UNSET  # so `to_messages` reads it
        call_id = need(block, "tool_use_id", str, param)
        self.items.append(it.FunctionCallOutputParam(call_id, output, status=status))

    # ── opaque blocks ──────────────────────────────────────────────────────────────────────────────
    def _thinking(self, block: dict[str, Any], param: str) -> None:
        text = need(block, "thinking", str, param)
        signature = maybe(block, "signature", str, param) or ""
        if self._foreign(signature):
            return
        content = [ct.ReasoningTextContent(text)] if text else UNSET
        encrypted = envelopes.seal_block(self._sealer, _bare(block)) if signature else UNSET
        self.items.append(it.ReasoningParam([], content=content, encrypted_content=encrypted))

    def _redacted(self, block: dict[str, Any], param: str) -> None:
        if not self._foreign(need(block, "data", str, param)):
            sealed = envelopes.seal_block(self._sealer, _bare(block))
            self.items.append(it.ReasoningParam([], encrypted_content=sealed))

    def _foreign(self, opaque: str) -> bool:
        """Another upstream's reasoning, which we sealed into Anthropic's place: taken out again."""
        try:
            kind, fields = envelopes.open_sealed(self._sealer, opaque)
        except SealError:
            return False  # Anthropic's own
        if kind != envelopes.REASONING:
            return False
        summary = [ct.SummaryTextContent(text) for text in fields["summary"]]
        encrypted = fields["encrypted_content"]
        self.items.append(it.ReasoningParam(summary, fields["id"], encrypted_content=encrypted))
        return True

    def _compaction(self, block: dict[str, Any], param: str) -> None:
        self.items.append(it.CompactionParam(envelopes.seal_block(self._sealer, _bare(block))))

    def _hosted(self, block: dict[str, Any], param: str) -> None:
        kind = block["type"]
        own = block.get("id") or block.get("tool_use_id") or ""
        self.items.append(
            UnknownItem({"type": SLUG + kind, "id": own, "status": "completed", "block": _bare(block)})
        )


def _bare(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != CARRIER}
