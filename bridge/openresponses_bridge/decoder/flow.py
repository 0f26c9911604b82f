"""What is open in the stream of parts: text, a refusal or thinking. Whatever begins closes the other.

A refusal is italic, opened once and closed once; thinking ends with one marker before the first text,
tool call or end.
"""

from __future__ import annotations

from enum import Enum

from msgspec import UNSET

from openresponses_bridge.decoder.parts import LanguageModelTextPart, LanguageModelThinkingPart, Part
from openresponses_bridge.surrogates import SurrogateJoiner

BREAK = "\n\n"
ITALIC = "*"


class Mode(Enum):
    """What the last part belonged to."""

    NOTHING = "nothing"
    TEXT = "text"
    REFUSAL = "refusal"
    THINKING = "thinking"
    THOUGHT = "thought"
    """Thinking that is shown as text."""


class Flow:
    """`mode` and what it takes to leave it. With `paragraph_breaks`, text of another output item begins a
    paragraph; thinking that is shown as text is always a paragraph of its own.

    (`output_index`, `content_index`) is where text was written last, (-1, -1) when the next text can't go
    out just as it is.
    """

    __slots__ = (
        "_breaks",
        "_joiner",
        "_last",
        "block_id",
        "content_index",
        "mode",
        "output_index",
        "text_written",
    )

    def __init__(self, paragraph_breaks: bool = False) -> None:
        self.mode = Mode.NOTHING
        self.output_index = -1
        self.content_index = -1
        self.block_id = ""
        self.text_written = False
        self._breaks = paragraph_breaks
        self._joiner = SurrogateJoiner()
        self._last: tuple[bool, int] | None = None

    def settle_at(self, output_index: int, content_index: int) -> None:
        """Text was written here: more of it may follow, unless half a character waits for the rest."""
        self.output_index = -1 if self._joiner.held else output_index
        self.content_index = content_index

    def admit(self, delta: str) -> str:
        """What of a delta can go out now."""
        return self._joiner.admit(delta)

    def enter(self, mode: Mode, output_index: int, block_id: str = "") -> list[Part]:
        """The parts that go before the first one of `mode`."""
        parts = self.leave() if mode is not self.mode else []
        self.mode = mode
        self.block_id = block_id
        if mode is not Mode.THINKING:
            parts += self._separate((mode is Mode.THOUGHT, output_index))
        return parts

    def leave(self) -> list[Part]:
        """The parts that close what is open."""
        mode, self.mode = self.mode, Mode.NOTHING
        self.output_index = self.content_index = -1
        rest = self._joiner.settle()
        if mode is Mode.THINKING:
            ended = LanguageModelThinkingPart("", self.block_id or UNSET, {"vscode_reasoning_done": True})
            return [LanguageModelThinkingPart(rest, self.block_id or UNSET), ended] if rest else [ended]
        if mode is Mode.REFUSAL:
            rest += ITALIC
        return [LanguageModelTextPart(rest)] if rest else []

    def _separate(self, place: tuple[bool, int]) -> list[Part]:
        last, self._last = self._last, place
        self.text_written = True
        if last is None or last == place:
            return []
        is_break = self._breaks or last[0] or place[0]
        return [LanguageModelTextPart(BREAK)] if is_break else []
