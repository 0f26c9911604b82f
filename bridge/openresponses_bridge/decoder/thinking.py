"""Reasoning: raw text and summaries, in every spelling, as thinking parts, as text, or not at all.

Encrypted reasoning is metadata on a thinking part and never text.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Literal

from msgspec import UNSET

from openresponses_bridge.decoder.parts import (
    LanguageModelDataPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    Part,
)
from openresponses_bridge.decoder.prose import BREAK, Mode, ModeSwitch
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.content import (
    ContentPart,
    ReasoningTextContent,
    SummaryTextContent,
    TextContent,
)
from openresponses_bridge.protocol.hosted import ImageGenerationCall, view
from openresponses_bridge.protocol.items import ReasoningItem
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.text import repair_surrogates

ThinkingPolicy = Literal["part", "text", "drop"]
Section = tuple[int, str, int]
"""(output_index, content or summary, index): a section of thinking, separated by blank lines."""

CONTENT = "content"
SUMMARY = "summary"


class ThinkingDecoder:
    """Decodes the reasoning items of one response. A block keeps its first id, since servers may change ids
    from event to event and VS Code groups by id."""

    __slots__ = (
        "_diagnostics",
        "_encrypted",
        "_finished",
        "_flow",
        "_ids",
        "_last",
        "_mode",
        "_policy",
        "_seen",
        "_streamed",
    )

    def __init__(
        self,
        flow: ModeSwitch,
        diagnostics: Diagnostics,
        policy: ThinkingPolicy = "part",
        encrypted: bool = False,
    ) -> None:
        self._flow = flow
        self._diagnostics = diagnostics
        self._policy = policy
        self._mode = Mode.THINKING if policy == "part" else Mode.THOUGHT
        self._encrypted = encrypted and policy == "part"
        self._ids: dict[int, str] = {}
        self._seen: set[Section] = set()
        self._streamed: set[int] = set()
        self._last: Section | None = None
        self._finished = False

    @property
    def is_empty(self) -> bool:
        """True if no reasoning was seen yet."""
        return not (self._seen or self._finished)

    def added(self, output_index: int, item: ReasoningItem) -> None:
        """Handle `output_item.added`, which has the block's id."""
        if item.id:
            self._ids.setdefault(output_index, repair_surrogates(item.id))

    def delta(self, section: Section, item_id: str, delta: str) -> list[Part]:
        """Return the parts of the next piece of a section; none for an empty one."""
        if not delta:
            return []
        if section == self._last and self._flow.mode is self._mode:
            delta = self._flow.feed(delta)
            return [self._part(delta, self._ids[section[0]])] if delta else []
        self._seen.add(section)
        self._streamed.add(section[0])
        if self._policy == "drop":
            return []
        last, self._last = self._last, section
        block_id = self._ids.setdefault(section[0], repair_surrogates(item_id))
        parts = self._flow.enter(self._mode, section[0], block_id)
        delta = self._flow.feed(delta)
        if last is not None and last != section and last[0] == section[0]:
            delta = BREAK + delta
        if delta:
            parts.append(self._part(delta, block_id))
        return parts

    def done(self, section: Section, item_id: str, text: str) -> list[Part]:
        """Return the parts of a whole section, if it had no deltas."""
        return [] if section in self._seen else self.delta(section, item_id, text)

    def summary_part_done(self, section: Section, item_id: str, text: str) -> list[Part]:
        """End a summary part, which VS Code gets as metadata."""
        parts = self.done(section, item_id, text)
        if self._policy == "part" and section in self._seen:
            block_id = self._ids.get(section[0]) or UNSET
            metadata = {"vscode_reasoning_summary_part_done": True}
            parts.append(LanguageModelThinkingPart("", block_id, metadata))
        return parts

    def item_done(self, output_index: int, item: ReasoningItem) -> list[Part]:
        """Handle `output_item.done`: what was not streamed, and the encrypted form if it is wanted."""
        parts: list[Part] = []
        self._finished = True
        if output_index not in self._streamed:
            for kind, contents in ((CONTENT, item.content or []), (SUMMARY, item.summary)):
                for index, part in enumerate(contents):
                    parts += self.done((output_index, kind, index), item.id, _reasoning_text(part))
        if item.encrypted_content and not self._encrypted:
            self._diagnostics.loss("reasoning.encrypted_content", "left out by option")
        elif item.encrypted_content:
            block_id = self._ids.get(output_index) or repair_surrogates(item.id) or UNSET
            metadata = {"encrypted_content": repair_surrogates(item.encrypted_content)}
            parts.append(LanguageModelThinkingPart("", block_id, metadata))
        return parts

    def _part(self, value: str, block_id: str) -> Part:
        if self._policy == "text":
            return LanguageModelTextPart(value)
        return LanguageModelThinkingPart(value, block_id or UNSET)


def _reasoning_text(part: ContentPart) -> str:
    return part.text if isinstance(part, ReasoningTextContent | SummaryTextContent | TextContent) else ""


DEFAULT_MIME = "image/png"
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
    (b"BM", "image/bmp"),
)


class ImageDecoder:
    """Decodes the images of one response, each once: an item comes when it is done and again at the end."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._seen: set[str | int] = set()

    @property
    def any_shown(self) -> bool:
        """True if there was an image."""
        return bool(self._seen)

    def item_done(self, output_index: int, item: UnknownItem) -> list[Part]:
        """Return a data part for an `image_generation_call` with a result; none for other hosted tools."""
        call = view(item)
        key = item.id or output_index
        if not isinstance(call, ImageGenerationCall) or not call.result or key in self._seen:
            return []
        self._seen.add(key)
        try:
            data = b64decode(call.result, validate=True)
        except ValueError:
            self._diagnostics.loss("image_generation_call.result", "not base64, not shown")
            return []
        return [LanguageModelDataPart.image(data, _mime(data, call.output_format or ""))]


def _mime(data: bytes, named: str) -> str:
    """Return the media type of the bytes, or else of the item."""
    for magic, mime in _MAGIC:
        if data.startswith(magic):
            return mime
    return repair_surrogates(f"image/{named}") if named else DEFAULT_MIME
