"""Converts input items to a system prompt and messages."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, Final

from openresponses_bridge.calls.call_ids import sent_call_id
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import CallView, OutputView
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import thinking
from openresponses_bridge.dialects.anthropic_messages.carried import JOINT, NOTHING, CarriedFields
from openresponses_bridge.dialects.anthropic_messages.models import MessagesOptions
from openresponses_bridge.dialects.anthropic_messages.types import SLUG
from openresponses_bridge.dialects.base import (
    BREAKPOINT,
    CONTINUE,
    CONTINUED,
    TOOL_CHANGES,
    BaseBuilder,
    Entry,
    Searched,
    data_of,
    is_breakpoint,
    place,
    searched,
)
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.ids import free_id
from openresponses_bridge.protocol.unknown import UnknownPart
from openresponses_bridge.seal import Sealer, SealError

Block = dict[str, Any]

_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"


_CITATIONS: Final = "citations"
MARK: Final = {"cache_control": {"type": "ephemeral"}}
_MOST_BREAKPOINTS: Final = 4


class BlockEncoder:
    """Encodes content parts as blocks. A part that Anthropic does not accept is a loss, a malformed one an
    error."""

    def __init__(self, diagnostics: Diagnostics, sealer: Sealer) -> None:
        self._diagnostics = diagnostics
        self._sealer = sealer
        self.marked: list[Block] = []  # the blocks after which the client wants a cache breakpoint

    def blocks(
        self, content: str | Sequence[Any], param: str, marks: Callable[[int], Block] = lambda _index: {}
    ) -> list[Block]:
        """Return the blocks of a message or of a tool's output. Blank texts are left out, since Anthropic
        refuses them. `marks` returns further fields for the block of a part."""
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if content.strip() else []
        result: list[Block] = []
        for index, part in enumerate(content):
            block = self._block(part, f"{param}[{index}]")
            breaks = is_breakpoint(getattr(part, "extra", None))
            if block is not None:
                block |= {**MARK, **marks(index)} if breaks else marks(index)
                if getattr(part, "annotations", None) and _CITATIONS not in block:
                    self._annotate(block, part.annotations)
                result.append(block)
                self.marked += result[-1:] if breaks else ()
            elif breaks:
                self._diagnostics.loss(BREAKPOINT, "its part is left out")
        return result

    def _block(self, part: Any, param: str) -> Block | None:
        if isinstance(part, UnknownPart) and isinstance(own := part.raw.get("block"), dict):
            return dict(own) if part.type.startswith(SLUG) and "type" in own else None
        make = None if isinstance(part, UnknownPart) else _MAKERS.get(part.type)
        if make is None:
            self._diagnostics.loss(f"content.{part.type[:64]}", "Anthropic has no such content")
            return None
        return make(self, part, param)

    def _annotate(self, block: Block, annotations: Sequence[Any]) -> None:
        """Put the citations that the API made into the block with their text."""
        sealed = [getattr(each, "encrypted_content", None) for each in annotations]
        opened = [thinking.open_citation(self._sealer, each) for each in sealed if each]
        citations = [each for each in opened if each is not None]
        if citations:
            block[_CITATIONS] = citations
        if len(citations) < len(annotations):
            self._diagnostics.loss("content.annotations", "citations that are not Anthropic's")

    def _text(self, part: Any, param: str) -> Block | None:
        return {"type": "text", "text": part.text} if part.text.strip() else None

    def _refusal(self, part: Any, param: str) -> Block | None:
        return {"type": "text", "text": part.refusal} if part.refusal.strip() else None

    def _image(self, part: Any, param: str) -> Block | None:
        if getattr(part, "detail", None) in ("low", "high"):
            self._diagnostics.loss("content.input_image.detail", "Anthropic chooses the detail itself")
        url = part.image_url
        if not url:
            self._diagnostics.loss("content.input_image.file_id", "a file of another server")
            return None
        if not url.startswith("data:"):
            return {"type": "image", "source": {"type": "url", "url": url}}
        media, data = data_of(url, f"{param}.image_url")
        if media not in _IMAGES:
            self._diagnostics.loss(f"content.input_image.{media[:64]}", "not JPEG, PNG, GIF or WebP")
            return None
        return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}

    def _file(self, part: Any, param: str) -> Block | None:
        source = self._source(part, param)
        if source is None:
            return None
        return {"type": "document", "source": source} | ({"title": part.filename} if part.filename else {})

    def _source(self, part: Any, param: str) -> Block | None:
        if part.file_url:
            return {"type": "url", "url": part.file_url}
        if not part.file_data:
            self._diagnostics.loss("content.input_file.file_id", "a file of another server")
            return None
        media, data = "", part.file_data
        if data.startswith("data:"):
            media, data = data_of(data, f"{param}.file_data")
        if media == _PDF or (not media and (part.filename or ".pdf").lower().endswith(".pdf")):
            return {"type": "base64", "media_type": _PDF, "data": data}
        text = _as_text(data, f"{param}.file_data")
        if text is None:
            self._diagnostics.loss(f"content.input_file.{media[:64]}", "neither PDF nor plain text")
            return None
        return {"type": "text", "media_type": "text/plain", "data": text}


_MAKERS: Final[dict[str, Callable[[BlockEncoder, Any, str], Block | None]]] = {
    **dict.fromkeys(
        ("input_text", "output_text", "text", "summary_text", "reasoning_text"), BlockEncoder._text
    ),
    "refusal": BlockEncoder._refusal,
    "input_image": BlockEncoder._image,
    "input_file": BlockEncoder._file,
}


def _as_text(data: str, param: str) -> str | None:
    """Return the text in base64 data; None if they are not text."""
    try:
        raw = b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE, "the file's data is not base64", param=param
        ) from error
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or not text.strip() else text


_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_OPENING: Final = "(earlier conversation)"
THINKING_BLOCKS: Final = frozenset({"thinking", "redacted_thinking"})


class AlternatingMessages:
    """The messages of a conversation, by the rules of the Messages API: the first is the user's, roles
    alternate, tool results come first in their message, no message ends with thinking. Adjacent blocks of one
    role are one message."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._turns: list[dict[str, Any]] = []
        self._tool_ids: dict[str, int] = {}  # id → number of calls that have it

    def begin(self, role: str, fields: dict[str, Any]) -> None:
        """Begin a message with fields of its own; the next blocks of its role belong to it."""
        self._turns.append({**fields, "role": role, "content": []})

    def add(self, role: str, blocks: list[Block]) -> None:
        """Append to the last message, or to a new one if its role is another."""
        if not self._turns or self._turns[-1]["role"] != role:
            self._turns.append({"role": role, "content": []})
        self._turns[-1]["content"].extend(blocks)

    def tool_id(self, call_id: str) -> str:
        """Return a valid id for a call, unique in the conversation."""
        unique = free_id(self._tool_ids, _ILLEGAL.sub("_", call_id) or "call")
        self._tool_ids[unique] = 1
        return unique

    def finished(self, *, prefill: bool = True) -> list[dict[str, Any]]:
        """Return the messages; empty if there are no blocks. Without `prefill` the model refuses to continue
        a text of its own, so a message asks it to."""
        turns = [turn for turn in map(self._trimmed, self._turns) if turn["content"] or _has_fields(turn)]
        merged: list[dict[str, Any]] = []
        for turn in turns:
            if merged and merged[-1]["role"] == turn["role"] and not _has_fields(turn):
                merged[-1]["content"].extend(turn["content"])
            else:
                merged.append(turn)
        if merged and merged[0]["role"] != "user" and merged[0]["content"]:
            self._diagnostics.repair("messages", "a user message put before the assistant's first")
            merged.insert(0, {"role": "user", "content": [{"type": "text", "text": _OPENING}]})
        if merged and merged[-1]["role"] == "assistant" and merged[-1]["content"][-1]["type"] == "text":
            if prefill:
                self._trim_prefill(merged[-1]["content"][-1])
            else:
                self._diagnostics.repair("messages", CONTINUED)
                merged.append({"role": "user", "content": [{"type": "text", "text": CONTINUE}]})
        return merged

    def _trimmed(self, turn: dict[str, Any]) -> dict[str, Any]:
        content: list[Block] = turn["content"]
        while turn["role"] == "assistant" and content and content[-1]["type"] in THINKING_BLOCKS:
            content.pop()
            self._diagnostics.loss("reasoning", "nothing follows it in its turn, left out")
        return turn

    def _trim_prefill(self, last: Block) -> None:
        if last["text"] != last["text"].rstrip():
            last["text"] = last["text"].rstrip()
            self._diagnostics.repair("messages", "white space cut from the end of the assistant's last text")


def _has_fields(turn: dict[str, Any]) -> bool:
    return len(turn) > len(("role", "content"))


def lacks_thinking(messages: list[dict[str, Any]]) -> bool:
    """Return True if the calls that are being answered came without thinking: the API then refuses thinking
    with a budget."""
    messages = [message for message in messages if message["role"] != "system"]
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return False
    return messages[-2]["content"][0]["type"] not in THINKING_BLOCKS


class MessagesBuilder(BaseBuilder[CarriedFields]):
    """Builds the system prompt and the messages from the entries of a request.

    A call's output comes directly after the message of the call, wherever it was in the input. Leading system
    and developer messages are the system prompt; later ones become reminders in the user's messages. Those of
    a client of the API are kept if the model accepts them: with `system_turns`, and after another message.
    """

    server = "a Messages server"

    def __init__(
        self,
        entries: Sequence[Entry],
        identities: ToolIdentityMap,
        sealer: Sealer,
        options: MessagesOptions,
        diagnostics: Diagnostics,
        carried: CarriedFields = NOTHING,
        *,
        prefill: bool = True,
        system_turns: bool = False,
    ) -> None:
        super().__init__(entries, identities, sealer, carried, diagnostics)
        self._prefill = prefill
        self._system_turns = system_turns
        if self._before is None and carried.blocks:
            diagnostics.loss("cache_control", "its blocks are of another conversation, left out")
        self._options = options
        self._content = BlockEncoder(diagnostics, sealer)
        self._turns = AlternatingMessages(diagnostics)
        self._open: list[tuple[str, int]] = []  # open calls: (tool_use id, index of the output)
        self.breaks = False  # True if the client has set cache breakpoints on its parts
        self.system: list[Block] = []

    def build(self, instructions: str | None) -> list[dict[str, Any]]:
        """Return the messages, after which `system` is complete too. Raises InvalidRequestError."""
        blocks = [block for block in self._carried.system if block["text"].strip()]
        if blocks and JOINT.join(block["text"] for block in self._carried.system) == instructions:
            self.system += blocks
        else:
            self.system += self._content.blocks(instructions or "", "instructions")
        self._walk()
        self.breaks = self._limit_breakpoints()
        return self._turns.finished(prefill=self._prefill)

    def _limit_breakpoints(self) -> bool:
        """Keep the last of the breakpoints on parts. Returns True if the client has set any."""
        marked = self._content.marked
        for block in marked[:-_MOST_BREAKPOINTS]:
            del block["cache_control"]
            self._diagnostics.loss(BREAKPOINT, f"the upstream takes {_MOST_BREAKPOINTS}, the last are sent")
        return bool(marked)

    def _marks(self, index: int, part: int | None = None) -> Block:
        """Return the fields of the client's own block that its content part can't have."""
        return {} if self._before is None else self._carried.blocks.get(place(index - self._before, part), {})

    def _message(self, item: Any, index: int) -> None:
        at = self._entries[index].at("content")
        blocks = self._content.blocks(item.content, at, lambda part: self._marks(index, part))
        if not blocks:
            self._diagnostics.ignored("message", "blank, left out")
        elif item.role == "assistant":
            if getattr(item, "phase", None):
                self._diagnostics.loss("message.phase", "Anthropic knows no phases")
            self._begun = True
            self._turns.add("assistant", blocks)
        elif item.role == "user":
            self._begun = True
            self._answer(index)
            self._turns.add("user", blocks)
        elif self._system_turns and self._begun and self._is_inline(index):
            self._answer(index)
            self._turns.add("system", blocks)
        else:
            self._instructions(blocks, index)

    def _is_inline(self, index: int) -> bool:
        return self._before is not None and index - self._before in self._carried.inline

    def _instructions(self, blocks: list[Block], index: int) -> None:
        texts = [block for block in blocks if block["type"] == "text"]
        if len(texts) < len(blocks):
            self._diagnostics.loss("message.system", "only its text is an instruction")
        if not self._begun or not texts:
            self.system += texts
            return
        where = self._entries[index].where
        self._diagnostics.repair(where, "a later system message, sent as a reminder of the user's")
        self._answer(index)
        texts[0]["text"] = f"<system-reminder>\n{texts[0]['text']}"
        texts[-1]["text"] = f"{texts[-1]['text']}\n</system-reminder>"
        self._turns.add("user", texts)

    def _add_call(self, call: CallView, arguments: Block, index: int, answer: int) -> None:
        where = self._entries[index].where
        tool_id = self._turns.tool_id(sent_call_id(call.call_id, None, self._diagnostics, where))
        block = {"type": "tool_use", "id": tool_id, "name": call.name, "input": arguments}
        block |= self._marks(index)
        self._turns.add("assistant", [block])
        self._open.append((tool_id, answer))

    def _answer(self, index: int) -> None:
        for tool_id, answer in self._open:
            if self._is_moved_up(answer, index):
                where = self._entries[answer].where
                self._diagnostics.repair(where, "a tool output was moved up to its call")
            self._turns.add("user", [self._result(tool_id, answer)])
        self._open = []

    def _result(self, tool_id: str, index: int) -> Block:
        output = self._views[index]
        assert isinstance(output, OutputView)
        block: Block = {"type": "tool_result", "tool_use_id": tool_id}
        at = self._entries[index].at("output")
        content = self._content.blocks(output.output, at, lambda part: self._marks(index, part))
        if content:
            block["content"] = content
        if output.failed:
            block["is_error"] = True
        return block | self._marks(index)

    def _reasoning(self, item: Any, index: int) -> None:
        encrypted = item.encrypted_content
        if encrypted:
            block = self._opened(encrypted, self._entries[index].at("encrypted_content"))
            if block is not None:
                self._turns.add("assistant", [block])
            return
        text = "\n\n".join(part.text for part in item.content or item.summary if part.text)
        if not text.strip():
            return
        if self._options.unsigned_thinking:
            self._turns.add("assistant", [{"type": "thinking", "thinking": text, "signature": ""}])
            if item.content and any(part.text for part in item.summary):
                self._diagnostics.loss("reasoning.summary", "left out beside the reasoning itself")
        else:
            self._diagnostics.loss("reasoning", "has no signature, can't be sent back")

    def _opened(self, encrypted: str, param: str) -> Block | None:
        try:
            kind, block = thinking.open_sealed(self._sealer, encrypted)
        except SealError as error:
            if self._options.foreign_reasoning == "drop":
                self._diagnostics.loss("reasoning", f"can't be opened here ({error.code})")
                return None
            raise InvalidRequestError(error.code, error.message, param=param) from error
        if kind in (thinking.THINKING, thinking.REDACTED):
            return block
        self._diagnostics.loss("reasoning", "another upstream's")
        return None

    def _compaction(self, item: Any, index: int) -> None:
        param = self._entries[index].at("encrypted_content")
        try:
            kind, block = thinking.open_sealed(self._sealer, item.encrypted_content)
        except SealError as error:
            raise InvalidRequestError(error.code, error.message, param=param) from error
        if kind != thinking.COMPACTION:
            raise InvalidRequestError(
                InvalidRequestError.UNSUPPORTED, "a history compacted by another upstream", param=param
            )
        self._turns.add("assistant", [block | self._marks(index)])

    def _searched(self, web_search: Searched, index: int) -> None:
        """Add a search of the web: the blocks if the API ran it, or another upstream's results as text."""
        blocks = thinking.open_search(self._sealer, web_search.sealed) if web_search.sealed else None
        if blocks is None:
            self._diagnostics.loss(self._entries[index].where, "a search of another upstream, sent as text")
            blocks = [{"type": "text", "text": web_search.text()}]
        self._begun = True
        self._turns.add("assistant", [block | self._marks(index, part) for part, block in enumerate(blocks)])

    def _other(self, item: Any, index: int) -> None:
        if (search := searched(item)) is not None:
            self._searched(search, index)
            return
        raw = getattr(item, "raw", {}) if item.type.startswith(SLUG) else {}
        block, role, fields = raw.get("block"), raw.get("role"), raw.get("fields")
        if isinstance(block, dict) and "type" in block and (role != "system" or self._system_turns):
            if role in ("user", "system"):
                self._answer(index)
            self._turns.add(role if role in ("user", "system") else "assistant", [block | self._marks(index)])
        elif isinstance(fields, dict) and role == "system" and self._system_turns:
            self._answer(index)
            self._turns.begin(role, fields)
        elif item.type not in TOOL_CHANGES:  # the request's tools follow them
            self._diagnostics.loss(f"item.{item.type[:64]}", "Anthropic has no such block")
