"""The result of a tool: parts that are text, data (such as images) or a rendered tree. The legacy form is a
string.

The JSON is `{"content": [{"type": "text", "value": "…"}]}`, as in language-model hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from openresponses_bridge.text import repair_surrogates

_CUT: Final = "\n… (cut: the result is longer than its token budget)"


class ToolResultTextPart(Struct, frozen=True, tag="text", tag_field="type"):
    """Text for the model."""

    value: str


class ToolResultDataPart(Struct, frozen=True, tag="data", tag_field="type", rename="camel"):
    """Bytes of a media type, such as an image; base64 in JSON."""

    data: bytes
    mime_type: str


class ToolResultPromptTsxPart(Struct, frozen=True, tag="prompt-tsx", tag_field="type"):
    """A rendered tree of a prompt component, passed on unchanged."""

    value: Any


ToolResultPart = ToolResultTextPart | ToolResultDataPart | ToolResultPromptTsxPart
_PARTS: Final = (ToolResultTextPart, ToolResultDataPart, ToolResultPromptTsxPart)


class LanguageModelToolResult(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The parts in order; `is_error` is True if they report a failure."""

    content: list[ToolResultPart]
    is_error: bool = False

    @classmethod
    def of(cls, value: Any) -> LanguageModelToolResult:
        """Return the result for a handler's return value: a result is returned unchanged; None gives an empty
        result, a string text, bytes data; a part or a list of parts are the content; anything else becomes
        its JSON. The legacy `{"content": "…"}` is accepted too. Raises TypeError for a value that JSON can't
        represent."""
        if isinstance(value, LanguageModelToolResult):
            return value
        if value is None:
            return cls([])
        if isinstance(value, dict) and value.keys() == {"content"}:
            value = value["content"]
        if isinstance(value, list) and value and all(isinstance(each, _PARTS) for each in value):
            return cls(list(value))
        return cls([_part(value)])

    @classmethod
    def failure(cls, text: str) -> LanguageModelToolResult:
        """Return a result that reports a failure, with a text for the model."""
        return cls([ToolResultTextPart(text)], is_error=True)

    @property
    def text(self) -> str:
        """The legacy string: all text parts with blank lines between them; a rendered tree as its JSON, data
        as its type and size."""
        return "\n\n".join(filter(None, map(_text, self.content)))

    def fitted(self, most_tokens: int, count_tokens: Callable[[str], int]) -> LanguageModelToolResult:
        """Return the result with at most `most_tokens` tokens of text, as `count_tokens` counts them. A text
        that exceeds the limit is cut and ends with a note. Data is not counted. A limit below the note's
        length leaves only the note."""
        left, content = most_tokens, list[ToolResultPart]()
        for part in self.content:
            if isinstance(part, ToolResultTextPart):
                used = count_tokens(part.value)
                if used > left:
                    content.append(ToolResultTextPart(_beginning(part.value, left, count_tokens) + _CUT))
                    content += [each for each in self.content if isinstance(each, ToolResultDataPart)]
                    return LanguageModelToolResult(content, self.is_error)
                left -= used
            content.append(part)
        return self


def _part(value: Any) -> ToolResultPart:
    if isinstance(value, _PARTS):
        return value
    if isinstance(value, str):
        return ToolResultTextPart(repair_surrogates(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return ToolResultDataPart(bytes(value), "application/octet-stream")
    return ToolResultTextPart(msgspec.json.encode(value).decode())


def _text(part: ToolResultPart) -> str:
    if isinstance(part, ToolResultDataPart):
        return f"[{part.mime_type}, {len(part.data)} bytes]"
    return part.value if isinstance(part, ToolResultTextPart) else msgspec.json.encode(part.value).decode()


def _beginning(text: str, most_tokens: int, count_tokens: Callable[[str], int]) -> str:
    """Return the longest beginning of the text that leaves room for the note, exact to one character."""
    room = most_tokens - count_tokens(_CUT)
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(text[:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low]
