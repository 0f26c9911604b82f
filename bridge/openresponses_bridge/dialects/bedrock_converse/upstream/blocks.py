"""The content blocks of an incoming message, from start to stop, with a class for each kind."""

from __future__ import annotations

import base64
from typing import Any, Final, Protocol

from openresponses_bridge.calls.argument_names import name_of_arguments
from openresponses_bridge.diagnostics import LONGEST_SHOWN
from openresponses_bridge.dialects.base import extension
from openresponses_bridge.dialects.bedrock_converse.reasoning import seal_citation, seal_reasoning
from openresponses_bridge.dialects.bedrock_converse.types import REASONING, REASONING_TEXT, REDACTED, SLUG
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.content import Annotation, UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.unknown import UnknownAnnotation, UnknownItem
from openresponses_bridge.seal import Sealer

_TOOL_USE, _TEXT, _CITATION, _SIGNATURE, _INPUT = "toolUse", "text", "citation", "signature", "input"
_KNOWN: Final = frozenset(
    {
        *(_TOOL_USE, _TEXT, _CITATION, _SIGNATURE, _INPUT, REASONING, REASONING_TEXT, REDACTED),
        *("toolResult", "image", "document", "video", "audio", "citationsContent", "searchResult"),
    }
)
"""The names of blocks and of what is in them that Converse has."""


class MessageContext:
    """The state that the blocks of one message share."""

    __slots__ = ("calls", "has_output", "machine", "position", "sealer", "undecided", "unsigned")

    def __init__(self, machine: ResponseStream, sealer: Sealer) -> None:
        self.machine = machine
        self.sealer = sealer
        self.position = 0  # length of the text so far, in code points
        self.calls = 0
        self.has_output = False
        # the call that ended without arguments: the next block shows whether it had none or was cut off (law
        # E6)
        self.undecided: int | None = None
        self.unsigned = False  # True if reasoning ended without its signature, so that its item is still open

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

    def lost(self, value: Any, *path: str) -> list[Event]:
        """Report a value that can't be read, or is in the wrong place."""
        self.lose(f"can't be read: {type(value).__name__}", *path)
        return []

    def lose(self, what: str, *path: str) -> None:
        """Report a loss. The number of those with an unknown name in their path is limited."""
        diagnostics, where = self.machine.diagnostics, ".".join(name[:LONGEST_SHOWN] for name in path)
        diagnostics.loss(where, what) if _KNOWN.issuperset(path) else diagnostics.unknown("loss", where, what)


class Block(Protocol):
    """Translates one open block."""

    def feed(self, kind: str, value: Any) -> list[Event]:
        """Translate a delta of this kind."""
        ...

    def stop(self) -> list[Event]:
        """Handle the end of the block."""
        ...


class TextBlock:
    """Visible text. Its citations are sent at its end, when their range is known."""

    __slots__ = ("_citations", "_context", "_start")

    def __init__(self, context: MessageContext) -> None:
        self._context = context
        self._citations: list[Any] = []
        self._start = context.position

    def feed(self, kind: str, value: Any) -> list[Event]:
        if kind == _TEXT and isinstance(value, str):
            if not value:
                return []
            self._context.has_output = True
            self._context.position += len(value)
            return self._context.machine.text(value)
        if kind == _CITATION and isinstance(value, dict):
            self._citations.append(value)
            return []
        return self._context.lost(value, _TEXT, kind)

    def stop(self) -> list[Event]:
        context = self._context
        if self._citations and context.position == self._start:
            context.machine.diagnostics.loss("citation", "without text")
            return []
        return [
            event
            for citation in self._citations
            for event in context.machine.annotation(self._annotation(citation))
        ]

    def _annotation(self, citation: dict[str, Any]) -> Annotation:
        """Return a citation of a web page in the protocol's terms; any other unchanged."""
        location = citation.get("location")
        web = location.get("web") if isinstance(location, dict) else None
        url = web.get("url") if isinstance(web, dict) else None
        start, end = self._start, self._context.position
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            place = {"start_index": start, "end_index": end}
            return UnknownAnnotation({"type": f"{SLUG}citation", **place, "citation": citation})
        sealed = seal_citation(self._context.sealer, citation)
        return UrlCitation(url, start, end, str(citation.get("title") or ""), sealed)


class ReasoningBlock:
    """Reasoning with its signature, or redacted content, without which it can't be sent back."""

    __slots__ = ("_context", "_redacted", "_signature", "_text")

    def __init__(self, context: MessageContext) -> None:
        self._context = context
        self._text: list[str] = []
        self._signature: list[str] = []
        self._redacted: list[str] = []

    def feed(self, kind: str, value: Any) -> list[Event]:
        if kind != REASONING or not isinstance(value, dict):
            return self._context.lost(value, REASONING, kind)
        events: list[Event] = []
        inner = value.get(REASONING_TEXT)
        for name, fragment in (inner if isinstance(inner, dict) else value).items():
            if fragment is None or name == REASONING_TEXT:
                continue
            if not isinstance(fragment, str):
                self._context.lost(fragment, REASONING, name)
            elif name == _TEXT and fragment:
                self._text.append(fragment)
                self._context.position = 0
                events += self._context.machine.reasoning(fragment)
            elif name in (_SIGNATURE, REDACTED):
                (self._signature if name == _SIGNATURE else self._redacted).append(fragment)
            elif fragment and name != _TEXT:
                self._context.lost(fragment, REASONING, name)
        if isinstance(inner, dict) and isinstance(value.get(REDACTED), str):
            self._redacted.append(value[REDACTED])
        return events

    def stop(self) -> list[Event]:
        context, machine = self._context, self._context.machine
        signature = "".join(self._signature)
        if self._redacted and not self._text:
            sealed = seal_reasoning(context.sealer, {REDACTED: joined(self._redacted)})
        elif signature:
            content = {"text": "".join(self._text), "signature": signature}
            sealed = seal_reasoning(context.sealer, {REASONING_TEXT: content})
        else:
            context.has_output = context.has_output or bool(self._text)
            context.unsigned = bool(self._text)
            return []
        context.has_output = True
        context.position = 0
        return machine.reasoning_encrypted(sealed) + machine.block_done()


def joined(pieces: list[str]) -> str:
    """Return bytes that came in several pieces, each in base64, as one text. Pieces that are not base64 are
    joined unchanged."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        whole = b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except ValueError:
        return "".join(pieces)
    return base64.b64encode(whole).decode()


class CallBlock:
    """A call of one of the client's tools."""

    __slots__ = ("_context", "_fragments", "_given", "_index", "_named")

    def __init__(self, context: MessageContext) -> None:
        self._context = context
        self._index = context.calls
        self._fragments = False
        self._named = False
        self._given: Any = None
        context.calls += 1
        context.position = 0
        context.has_output = True

    def begin(self, start: dict[str, Any]) -> list[Event]:
        """Begin with the fields of the call; in a whole answer they include its input."""
        name, call_id = start.get("name"), start.get("toolUseId")
        if not isinstance(name, str) or not name:
            machine = self._context.machine
            return machine.tool_call(self._index) + machine.tool_call_done(self._index, cut=True)
        self._named = True
        self._given = self._input_of(start)
        own = call_id if isinstance(call_id, str) and call_id else None
        return self._context.machine.tool_call(self._index, own, name)

    def _input_of(self, fields: dict[str, Any]) -> Any:
        return fields.get(name_of_arguments(fields, "input", self._context.machine.diagnostics))

    def feed(self, kind: str, value: Any) -> list[Event]:
        fragment = self._input_of(value) if kind == _TOOL_USE and isinstance(value, dict) else None
        if fragment is not None and not isinstance(fragment, str):
            fragment = encode(fragment).decode()  # other servers send it as an object
        if fragment is None:
            return self._context.lost(value, _TOOL_USE, kind)
        if not self._named or not fragment:
            return []
        self._fragments = self._fragments or not fragment.isspace()
        return self._context.machine.tool_call(self._index, None, None, fragment)

    def stop(self) -> list[Event]:
        if not self._named:
            return []
        if not self._fragments and self._given is not None:
            return self.feed(_TOOL_USE, {"input": self._given or "{}"}) + self.stop()
        if not self._fragments:
            self._context.undecided = self._index
            return []
        return self._context.machine.tool_call_done(self._index)


class RawBlock:
    """A block of the server's own: a tool that it ran, a result, an image. It becomes an extension item that
    has the block in the form of a whole answer."""

    __slots__ = ("_block", "_context", "_input", "_kind", "_pieces")

    def __init__(self, context: MessageContext, kind: str) -> None:
        self._context = context
        self._kind = kind
        self._block: Any = None
        self._input: list[str] = []
        self._pieces: list[Any] = []
        context.has_output = True
        context.position = 0

    def begin(self, value: Any) -> list[Event]:
        """Begin with this value, which in a whole answer is everything."""
        self._block = dict(value) if isinstance(value, dict) else value
        return []

    def feed(self, kind: str, value: Any) -> list[Event]:
        if kind != self._kind:
            return self._context.lost(value, self._kind, kind)
        if isinstance(value, list):
            self._pieces += value
        elif isinstance(value, dict) and isinstance(value.get("input"), str):
            self._input.append(value["input"])
        elif isinstance(value, dict):
            self._block = {**(self._block if isinstance(self._block, dict) else {}), **value}
        else:
            return self._context.lost(value, self._kind)
        return []

    def stop(self) -> list[Event]:
        status = "completed"
        if isinstance(self._block, dict) and self._pieces:
            self._block.setdefault("content", self._pieces)
        if isinstance(self._block, dict) and self._input:
            try:
                self._block["input"] = decode_json("".join(self._input))
            except WireError:
                status = "incomplete"
                self._context.lose("cut off or malformed, left out", self._kind, _INPUT)
        own = self._block.get("toolUseId") if isinstance(self._block, dict) else None
        named = f"{own}_result" if self._kind == "toolResult" else own
        item_id = str(named) if isinstance(own, str) else ""
        fields = {"type": extension(SLUG, self._kind), "id": item_id, "status": status}
        return self._context.machine.item(UnknownItem({**fields, "block": {self._kind: self._block}}))
