"""The blocks of an incoming message, from start to stop, with a class for each kind.

A block converts its deltas to calls of the machine. Adjacent text blocks are one text, since Anthropic splits
a text into blocks only to attach citations; a message for each block would be too many.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET

from openresponses_bridge.calls.argument_names import name_of_arguments, without_function
from openresponses_bridge.calls.json_text import JsonState, json_state
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import search
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.dialects.anthropic_messages.thinking import seal_block, seal_citation, seal_search
from openresponses_bridge.dialects.anthropic_messages.types import SLUG
from openresponses_bridge.dialects.base import SEARCH_CALL, Source, extension, other_fields, search_call
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.beyond import bounded_fields
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.content import Annotation, UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import CompactionItem
from openresponses_bridge.protocol.response import NATIVE
from openresponses_bridge.protocol.unknown import UnknownAnnotation, UnknownItem
from openresponses_bridge.seal import Sealer


class MessageContext:
    """The state that the blocks of one message share: the machine, the sealer, and what one block needs to
    know of another."""

    __slots__ = (
        "calls",
        "diagnostics",
        "has_output",
        "machine",
        "position",
        "sealer",
        "searches",
        "undecided",
        "unsigned",
    )

    def __init__(self, machine: ResponseStream, sealer: Sealer) -> None:
        self.machine = machine
        self.sealer = sealer
        self.diagnostics: Diagnostics = machine.diagnostics
        self.position = 0  # length of the text so far, in code points
        self.calls = 0
        self.has_output = False  # True if a block with some content has ended, or one that always has some
        self.searches: dict[str, dict[str, Any]] = {}  # id → the call of a search that has no results yet
        # the call that ended without arguments: the next block shows whether it had none or was cut off (law
        # E6)
        self.undecided: int | None = None
        self.unsigned = False  # whether thinking ended without its signature, so that its item is still open

    def close_open(self) -> list[Event]:
        """Close a block that is still open: another block begins, so it is whole."""
        events: list[Event] = []
        if self.unsigned:
            self.unsigned = False
            events += self.machine.block_done()
        if self.undecided is not None:
            index, self.undecided = self.undecided, None
            events += self.machine.tool_call_done(index)
        return events

    def end_searches(self) -> list[Event]:
        """End the searches whose results did not come, as in a paused turn: they have failed."""
        return [event for own in list(self.searches) for event in self.end_search(own, [], "failed")]

    def end_search(
        self, own: str, sources: list[Source], status: str, result: dict[str, Any] | None = None
    ) -> list[Event]:
        """End the search that was called with this id."""
        call = self.searches.pop(own)
        item_id, events = search.item_id(own), []
        sealed = seal_search(self.sealer, [call] if result is None else [call, result])
        if status == "completed":
            events = self.machine.item_event(item_id, f"response.{SEARCH_CALL}.completed", {})
        item = search_call(item_id, search.query_of(call), sources, status=status, sealed=sealed)
        return events + self.machine.item(item)

    def text_of(self, block: dict[str, Any], field: str) -> str:
        """Return a text of a block; "" if it has none. A value of another type is a loss."""
        value = block.get(field)
        if isinstance(value, str):
            return value
        if value is not None:
            self.diagnostics.loss(f"{block['type']}.{field}", f"can't be read: {type(value).__name__}")
        return ""

    def misplaced(self, delta: t.Delta, kind: str) -> list[Event]:
        """Handle a delta in a block of another kind: text and thinking are sent nevertheless."""
        if type(delta) is t.TextDelta and delta.text:
            self.diagnostics.repair(f"{kind}.TextDelta", "does not belong there, sent as text")
            self.has_output = True
            self.position += len(delta.text)
            return self.machine.text(delta.text)
        if type(delta) is t.ThinkingDelta and delta.thinking:
            self.diagnostics.repair(f"{kind}.ThinkingDelta", "does not belong there, sent as thinking")
            self.position = 0
            return self.machine.reasoning(delta.thinking)
        self.diagnostics.loss(f"{kind}.{type(delta).__name__}", "does not belong there")
        return []


class CompactionBlock:
    """A compacted history, which replaces all earlier messages."""

    __slots__ = ("_block", "_content", "_context")

    def __init__(self, context: MessageContext, block: dict[str, Any]) -> None:
        self._context = context
        self._block = dict(block)
        self._content: list[str] = []

    def begin(self) -> list[Event]:
        return []

    def feed(self, delta: t.Delta) -> list[Event]:
        if type(delta) is not t.CompactionDelta:
            return self._context.misplaced(delta, "compaction")
        self._content += [delta.content] if delta.content else []
        if delta.encrypted_content:
            self._block["encrypted_content"] = delta.encrypted_content
        return []

    def stop(self) -> list[Event]:
        if self._content:
            self._block["content"] = "".join(self._content)
        self._context.position = 0
        return self._context.machine.item(CompactionItem("", seal_block(self._context.sealer, self._block)))


class HostedBlock:
    """A block of one of Anthropic's own tools (server tools, MCP, containers), or of an unknown kind. It
    becomes an extension item that has the block unchanged."""

    __slots__ = ("_block", "_context", "_json")

    def __init__(self, context: MessageContext, block: dict[str, Any]) -> None:
        self._context = context
        self._block = dict(block)
        self._json: list[str] = []

    def begin(self) -> list[Event]:
        return []

    def feed(self, delta: t.Delta) -> list[Event]:
        if type(delta) is not t.InputJsonDelta:
            return self._context.misplaced(delta, str(self._block.get("type")))
        self._json += [delta.partial_json] if delta.partial_json else []
        return []

    def _read(self) -> str:
        """Put the input into the block. Returns the resulting status."""
        status = "completed"
        text = "".join(self._json)
        if text.strip():
            try:
                self._block["input"] = decode_json(text)
            except WireError:
                cut = json_state(text) is JsonState.TRUNCATED
                status = "incomplete" if cut else status
                what = "cut" if cut else "malformed, left out"
                self._context.diagnostics.loss(f"{self._block['type']}.input", what)
        self._context.position = 0
        return status

    def stop(self) -> list[Event]:
        status = self._read()
        fields = {"type": extension(SLUG, self._block["type"]), "id": self._id(), "status": status}
        return self._context.machine.item(UnknownItem({**fields, "block": self._block}))

    def _id(self) -> str:
        own, answered = self._block.get("id"), self._block.get("tool_use_id")
        return str(own) if own else f"{answered}_result" if answered else ""


class SearchBlock(HostedBlock):
    """The call of a search of the web. It becomes an item that ends with the block of its results."""

    __slots__ = ("_id_of_call",)

    def __init__(self, context: MessageContext, block: dict[str, Any]) -> None:
        super().__init__(context, block)
        self._id_of_call = search.own_id(block, "id")
        context.searches[self._id_of_call] = self._block

    def begin(self) -> list[Event]:
        item = search.item_id(self._id_of_call)
        machine = self._context.machine
        begun = machine.item_added({"type": SEARCH_CALL, "id": item, "status": "in_progress"})
        return begun + machine.item_event(item, f"response.{SEARCH_CALL}.in_progress", {})

    def stop(self) -> list[Event]:
        if self._id_of_call not in self._context.searches:
            return []  # its results came before its end
        if self._read() == "incomplete":
            return self._context.end_search(self._id_of_call, [], "incomplete")
        item = search.item_id(self._id_of_call)
        return self._context.machine.item_event(item, f"response.{SEARCH_CALL}.searching", {})


class FoundBlock(HostedBlock):
    """A block with the results of a search."""

    __slots__ = ()

    def stop(self) -> list[Event]:
        if self._block["tool_use_id"] not in self._context.searches:
            return super().stop()  # another block has answered it meanwhile
        self._read()
        sources, status = search.found_in(self._block)
        return self._context.end_search(self._block["tool_use_id"], sources, status, self._block)


_COMMON = t.TextDelta


class BlockReader(Protocol):
    """Translates one open block."""

    def begin(self) -> list[Event]:
        """Translate the content at the beginning of the block; in a whole message that is all of it."""
        ...

    def feed(self, delta: t.Delta) -> list[Event]:
        """Translate a delta."""
        ...

    def stop(self) -> list[Event]:
        """Handle the end of the block."""
        ...


class TextBlock:
    """Visible text. Its citations are sent at its end, when their range is known."""

    __slots__ = ("_citations", "_context", "_send", "_start", "_text")
    field: Final = "text"

    def __init__(self, context: MessageContext, block: dict[str, Any]) -> None:
        self._context = context
        self._send = context.machine.text
        self._text = context.text_of(block, "text")
        citations = block.get("citations")
        self._citations: list[Any] = list(citations) if isinstance(citations, list) else []
        self._start = context.position

    def begin(self) -> list[Event]:
        return self.feed(t.TextDelta(self._text))

    def feed(self, delta: t.Delta) -> list[Event]:
        if type(delta) is _COMMON:
            return self.append(delta.text) if delta.text else []
        if type(delta) is t.CitationsDelta:
            self._citations.append(delta.citation)
            return []
        return self._context.misplaced(delta, "text")

    def append(self, text: str) -> list[Event]:
        self._context.position += len(text)
        return self._send(text)

    def stop(self) -> list[Event]:
        self._context.has_output = self._context.has_output or self._context.position > self._start
        if not self._citations:
            return []
        events: list[Event] = []
        for raw in self._citations:
            if (citation := self._citation(raw)) is not None:
                events += self._context.machine.annotation(citation)
        return events

    def _citation(self, citation: Any) -> Annotation | None:
        """Return a citation of a web page in the protocol's terms; any other unchanged, for clients that know
        it."""
        kind = citation.get("type") if isinstance(citation, dict) else None
        if self._context.position == self._start or not isinstance(kind, str):
            why = "without text" if isinstance(kind, str) else "without a type"
            self._context.diagnostics.loss(f"citation.{kind}", why)
            return None
        field = _URL_OF_CITATION.get(kind)
        url = citation.get(field) if field is not None else None
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            place = {"start_index": self._start, "end_index": self._context.position}
            return UnknownAnnotation({"type": extension(SLUG, kind), **place, "citation": citation})
        says_more = any(citation[name] for name in citation if name not in _SHOWN)
        sealed = seal_citation(self._context.sealer, citation) if says_more else UNSET
        title = str(citation.get("title") or "")
        return UrlCitation(url, self._start, self._context.position, title, sealed)


_SHOWN = frozenset({"type", "url", "source", "title"})
_URL_OF_CITATION = {"web_search_result_location": "url", "search_result_location": "source"}


class ThinkingBlock:
    """Thinking, and the signature without which it can't be sent back."""

    __slots__ = ("_block", "_context", "_signature", "_text")
    field: Final = "thinking"

    def __init__(self, context: MessageContext, block: dict[str, Any]) -> None:
        self._context = context
        self._block = block
        self._text: list[str] = []
        self._signature: list[str] = []

    def begin(self) -> list[Event]:
        self._signature.append(self._context.text_of(self._block, "signature"))
        text = self._context.text_of(self._block, "thinking")
        return self.append(text) if text else []

    def feed(self, delta: t.Delta) -> list[Event]:
        if type(delta) is t.ThinkingDelta:
            return self.append(delta.thinking) if delta.thinking else []
        if type(delta) is t.SignatureDelta:
            self._signature.append(delta.signature or "")
            return []
        return self._context.misplaced(delta, "thinking")

    def append(self, text: str) -> list[Event]:
        self._text.append(text)
        self._context.position = 0
        return self._context.machine.reasoning(text)

    def stop(self) -> list[Event]:
        signature = "".join(self._signature)
        self._context.has_output = self._context.has_output or bool(signature or self._text)
        if not signature:
            self._context.unsigned = bool(self._text)
            return []
        self._context.position = 0
        block = {**self._block, "thinking": "".join(self._text), "signature": signature}
        machine = self._context.machine
        return machine.reasoning_encrypted(seal_block(self._context.sealer, block)) + machine.block_done()


class RedactedBlock:
    """Encrypted thinking, which only Anthropic can read."""

    __slots__ = ("_block", "_context")

    def __init__(self, context: MessageContext, block: dict[str, Any]) -> None:
        self._context = context
        self._block = block

    def begin(self) -> list[Event]:
        return []

    def feed(self, delta: t.Delta) -> list[Event]:
        return self._context.misplaced(delta, "redacted_thinking")

    def stop(self) -> list[Event]:
        self._context.position = 0
        machine = self._context.machine
        sealed = seal_block(self._context.sealer, self._block)
        return machine.reasoning_encrypted(sealed) + machine.block_done()


_OF_A_CALL = frozenset({"type", "id", "name", "input"})


class ToolUseBlock:
    """A call of one of the client's tools. Its input comes in deltas; some servers send all of it at the
    start."""

    __slots__ = ("_block", "_context", "_fragments", "_index", "_input", "_named")
    field: Final = "partial_json"

    def __init__(self, context: MessageContext, block: dict[str, Any]) -> None:
        self._context = context
        self._block = block = without_function(block, context.diagnostics)
        self._index = context.calls
        self._fragments = False
        self._input = "input"
        self._named = bool(context.text_of(block, "name"))
        context.calls += 1
        context.position = 0

    def begin(self) -> list[Event]:
        if not self._named:
            machine = self._context.machine
            return machine.tool_call(self._index) + machine.tool_call_done(self._index, cut=True)
        self._input = name_of_arguments(self._block, self._input, self._context.diagnostics)
        own, _ = bounded_fields(other_fields(self._block, {*_OF_A_CALL, self._input}))
        if own:
            self._context.machine.expect_item("", extra={NATIVE: {t.DIALECT: own}})
        call_id = self._context.text_of(self._block, "id")
        return self._context.machine.tool_call(self._index, call_id or None, self._block["name"])

    def feed(self, delta: t.Delta) -> list[Event]:
        if type(delta) is not t.InputJsonDelta:
            return self._context.misplaced(delta, "tool_use")
        return self.append(delta.partial_json) if delta.partial_json else []

    def append(self, text: str) -> list[Event]:
        if not self._named:
            return []
        self._fragments = self._fragments or not text.isspace()
        return self._context.machine.tool_call(self._index, None, None, text)

    def stop(self) -> list[Event]:
        machine = self._context.machine
        if not self._named:
            return []
        if self._fragments:
            return machine.tool_call_done(self._index)
        arguments = self._block.get(self._input)
        if arguments:
            whole = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            return machine.tool_call(self._index, arguments=whole) + machine.tool_call_done(self._index)
        self._context.undecided = self._index
        return []


AppendingBlock = TextBlock | ThinkingBlock | ToolUseBlock
"""Blocks that `append` the string in a delta's `field`, if the delta has nothing else."""

BLOCKS: dict[str, type[BlockReader]] = {
    "text": TextBlock,
    "thinking": ThinkingBlock,
    "redacted_thinking": RedactedBlock,
    "tool_use": ToolUseBlock,
    "compaction": CompactionBlock,
}


def open_block(context: MessageContext, block: dict[str, Any]) -> BlockReader:
    """Return the block of the class for this kind."""
    make: Any = BLOCKS.get(block["type"], HostedBlock)
    if search.is_use(block) and block["id"] not in context.searches:
        make = SearchBlock
    elif block["type"] == search.FOUND and search.own_id(block, "tool_use_id") in context.searches:
        make = FoundBlock
    context.has_output = context.has_output or make not in (TextBlock, ThinkingBlock)
    opened: BlockReader = make(context, block)
    return opened
