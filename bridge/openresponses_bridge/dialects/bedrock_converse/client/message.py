"""Encodes a finished response as a whole answer, by folding its stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.json_text import WRAPPED, is_wrapped, tool_input
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.bedrock_converse.client.outbound import Outbound
from openresponses_bridge.dialects.bedrock_converse.types import REASONING, REASONING_TEXT, REDACTED
from openresponses_bridge.emitter.finished import events_of, is_cut_call
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer

Json = dict[str, Any]


def answer(
    response: Response,
    sealer: Sealer | None = None,
    tool_identities: ToolIdentityMap | None = None,
    diagnostics: Diagnostics | None = None,
) -> Json | None:
    """Return the body that answers `converse`; None for a response that failed or was cancelled.

    A call that was cut off is left out, with a loss: clients run every call of a message. Raises KeyError for
    a response that has not ended.
    """
    losses = diagnostics if diagnostics is not None else Diagnostics()
    outbound = Outbound(sealer, tool_identities)
    folding = Folding(losses)
    for event in events_of(response):
        folding.feed(outbound.feed(event))
    losses.extend(outbound.diagnostics)
    for item in filter(is_cut_call, response.output):
        losses.loss(f"item.{item.type}", "cut off, left out")
    return folding.answer if folding.is_whole else None


class Folding:
    """Folds the events of a stream into a whole answer. `is_whole` is True if it has a stop reason."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._blocks: dict[int, _Block] = {}
        self._rest: Json = {}
        self.is_whole = False

    def feed(self, events: Iterable[Json]) -> None:
        """Feed the next events."""
        for event in events:
            ((kind, fields),) = event.items()
            if kind == "contentBlockStart":
                self._block(fields).begin(fields["start"])
            elif kind == "contentBlockDelta":
                self._block(fields).add(fields["delta"])
            elif kind in ("messageStop", "metadata"):
                self._rest |= fields
                self.is_whole = self.is_whole or kind == "messageStop"

    def _block(self, fields: Json) -> _Block:
        return self._blocks.setdefault(fields["contentBlockIndex"], _Block())

    @property
    def answer(self) -> Json:
        """The answer so far."""
        content = [each.whole(self._diagnostics) for each in self._blocks.values()]
        return {"output": {"message": {"role": "assistant", "content": content}}, **self._rest}


class _Block:
    def __init__(self) -> None:
        self._kind = ""
        self._fields: Json = {}
        self._texts: list[str] = []
        self._citations: list[Json] = []

    def begin(self, start: Json) -> None:
        """Begin the block with its start."""
        ((self._kind, fields),) = start.items()
        self._fields = dict(fields)

    def add(self, delta: Json) -> None:
        """Add the next delta."""
        ((kind, value),) = delta.items()
        if kind == "citation":
            self._citations.append(value)
            return
        self._kind = kind
        if isinstance(value, str):
            self._texts.append(value)
        elif isinstance(value, list):
            self._fields.setdefault("content", []).extend(value)
        elif kind == "toolUse":
            self._texts.append(value["input"])
        elif "text" in value:
            self._texts.append(value["text"])
        else:
            self._fields |= value

    def whole(self, diagnostics: Diagnostics) -> Json:
        """Return the block with everything that was added."""
        kind, text, fields = self._kind, "".join(self._texts), self._fields
        if kind == "text" and self._citations:
            return {"citationsContent": {"content": [{"text": text}], "citations": self._citations}}
        if kind == "text":
            return {"text": text}
        if kind == REASONING and REDACTED not in fields:
            return {REASONING: {REASONING_TEXT: {"text": text, **fields}}}
        if kind == "toolUse":
            arguments = tool_input(text)
            if is_wrapped(arguments, text):
                diagnostics.repair("toolUse.input", WRAPPED)
            return {"toolUse": {**fields, "input": arguments}}
        return {kind: fields}
