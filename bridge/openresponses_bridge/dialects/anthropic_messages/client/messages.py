"""Blocks of an Anthropic request → input items and content parts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import envelopes
from openresponses_bridge.dialects.anthropic_messages.carried import CACHE, Carried, place
from openresponses_bridge.dialects.anthropic_messages.types import SLUG
from openresponses_bridge.dialects.base import Fields, invalid
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as it
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.seal import Sealer, SealError

_PDF: Final = "application/pdf"
_SYSTEM_ROLES: Final = ("system", "developer")


class MessageReader:
    """Turns messages into items, in order; what has no counterpart is carried. Raises InvalidRequestError
    with the place of what is wrong."""

    def __init__(self, sealer: Sealer, diagnostics: Diagnostics, carried: Carried) -> None:
        self._sealer = sealer
        self._diagnostics = diagnostics
        self._carried = carried
        self.items: list[Any] = []
        self._parts: list[Any] = []
        self._role: Any = "user"
        self._blocks: dict[str, Callable[[Fields], None]] = {
            "tool_use": self._tool_use,
            "tool_result": self._tool_result,
            "thinking": self._thinking,
            "redacted_thinking": self._redacted,
            "compaction": self._compaction,
        }
        self._contents: dict[str, Callable[[Fields], Any]] = {
            "text": self._text,
            "image": self._image,
            "document": self._document,
        }

    def message(self, message: Fields) -> None:
        """One message of the request."""
        self._role = message.need("role", str)
        if self._role not in ("user", "assistant", *_SYSTEM_ROLES):
            raise invalid(message.at("role"), "expected user or assistant")
        if self._role in _SYSTEM_ROLES:
            self._carried.inline.add(len(self.items))
        content = message.raw("content")
        if isinstance(content, str):
            self._parts = [self._said(content)]
        elif isinstance(content, list):
            for block in message.each("content"):
                self._block(block)
        else:
            raise invalid(message.at("content"), "expected a string or an array")
        self._flush()

    def _result(self, message: Fields) -> list[Any]:
        """The parts of a tool's result, which belong to the item that comes next."""
        found: list[Any] = []
        for block in message.each("content"):
            kind = block.need("type", str)
            read = self._contents.get(kind)
            if read is None:
                self._carried.blocks[place(len(self.items))] = {"content": message.raw("content")}
                self._carried.report([f"tool_result.{kind[:64]}"])
                block.whole()
                continue
            part = read(block)
            self._carried.keep(place(len(self.items), len(found)), block.rest(), f"tool_result.{kind}")
            found.append(ct.InputTextContent(part.text) if kind == "text" else part)
        return found

    def _block(self, block: Fields) -> None:
        kind = block.need("type", str)
        read = self._contents.get(kind)
        if read is not None:
            part = read(block)
            self._carried.keep(place(len(self.items), len(self._parts)), block.rest(), kind)
            self._parts.append(part)
            return
        self._flush()
        where = place(len(self.items))
        self._blocks.get(kind, self._hosted)(block)
        fields = {CACHE: block.raw(CACHE)} if block.raw(CACHE) else {}
        self._carried.keep(where, block.rest() | fields, kind)

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self.items.append(it.MessageParam(self._role, parts))

    def _said(self, text: str) -> Any:
        return ct.OutputTextParam(text) if self._role == "assistant" else ct.InputTextContent(text)

    # ── content ────────────────────────────────────────────────────────────────────────────────────
    def _text(self, block: Fields) -> Any:
        return self._said(block.need("text", str))

    def _image(self, block: Fields) -> Any:
        source = block.inner("source")
        return ct.InputImageParam(self._url(source), "auto")

    def _document(self, block: Fields) -> Any:
        source = block.inner("source")
        title = block.get("title", str) or UNSET
        kind = source.need("type", str)
        if kind == "url":
            return ct.InputFileContent(title, file_url=source.need("url", str))
        if kind == "text":
            data = b64encode(source.need("data", str).encode("utf-8", "replace")).decode()
            return ct.InputFileContent(title or "document.txt", f"data:text/plain;base64,{data}")
        return ct.InputFileContent(title or "document.pdf", self._url(source))

    def _url(self, source: Fields) -> str:
        kind = source.need("type", str)
        if kind == "url":
            return source.need("url", str)
        if kind == "base64":
            media = source.get("media_type", str) or _PDF
            return f"data:{media};base64,{source.need('data', str)}"
        raise invalid(source.at("type"), f"a source of type {kind[:64]!r} can't be expressed")

    # ── calls ──────────────────────────────────────────────────────────────────────────────────────
    def _tool_use(self, block: Fields) -> None:
        arguments = encode(block.need("input", dict)).decode()
        call_id, name = block.need("id", str), block.need("name", str)
        self.items.append(it.FunctionCallParam(call_id, name, arguments))

    def _tool_result(self, block: Fields) -> None:
        content = block.raw("content")
        output: Any = content or ""
        if not isinstance(output, str):
            output = self._result(block)
        status: Any = "incomplete" if block.raw("is_error") else UNSET  # so `to_messages` reads it
        call_id = block.need("tool_use_id", str)
        self.items.append(it.FunctionCallOutputParam(call_id, output, status=status))

    # ── opaque blocks ──────────────────────────────────────────────────────────────────────────────
    def _thinking(self, block: Fields) -> None:
        text = block.need("thinking", str)
        signature = block.get("signature", str) or ""
        if self._foreign(signature):
            return
        content = [ct.ReasoningTextContent(text)] if text else UNSET
        encrypted = envelopes.seal_block(self._sealer, _bare(block)) if signature else UNSET
        self.items.append(it.ReasoningParam([], content=content, encrypted_content=encrypted))

    def _redacted(self, block: Fields) -> None:
        if not self._foreign(block.need("data", str)):
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

    def _compaction(self, block: Fields) -> None:
        self.items.append(it.CompactionParam(envelopes.seal_block(self._sealer, _bare(block))))

    def _hosted(self, block: Fields) -> None:
        kind = block.raw("type")
        own = block.raw("id") or block.raw("tool_use_id") or ""
        self.items.append(
            UnknownItem(
                {
                    "type": SLUG + kind,
                    "id": own,
                    "status": "completed",
                    "role": self._role,
                    "block": _bare(block),
                }
            )
        )


def _bare(block: Fields) -> dict[str, Any]:
    return {name: value for name, value in block.whole().items() if name != CACHE}
