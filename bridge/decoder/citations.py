"""Citations as inline links, the only form in which VS Code's text can carry them (RFC 00022, gap 2)."""

from __future__ import annotations

import re
from typing import Any

from bridge.decoder.parts import LanguageModelTextPart, Part
from bridge.diagnostics import Diagnostics
from bridge.protocol.content import UrlCitation

_IN_TITLE = re.compile(r"([\\\[\]])")
_IN_URL = re.compile(r"[\s()<>\\]")


def link(title: str, url: str) -> str:
    """` [title](url)` with what would end either of them early escaped. A citation without a title shows
    its address."""
    shown = " ".join((title or url).split())
    return f" [{_IN_TITLE.sub(_BACKSLASHED, shown)}]({_IN_URL.sub(_percent, url)})"


class Citations:
    """Each citation of a text once, whether it comes by its own event, in the finished part or in the
    finished item."""

    def __init__(self, diagnostics: Diagnostics, shown: bool = True) -> None:
        self._diagnostics = diagnostics
        self._shown = shown
        self._seen: set[tuple[int, str, int, int]] = set()

    def links(self, output_index: int, annotations: list[Any]) -> list[Part]:
        """Links for those of the annotations that have an address and were not there before."""
        parts: list[Part] = []
        for annotation in annotations:
            if not isinstance(annotation, UrlCitation):
                self._diagnostics.loss(f"annotation.{annotation.type}"[:80], "has no address, not shown")
                continue
            key = (output_index, annotation.url, annotation.start_index, annotation.end_index)
            if not self._shown or not annotation.url or key in self._seen:
                continue
            self._seen.add(key)
            parts.append(LanguageModelTextPart(link(annotation.title, annotation.url)))
        return parts


_BACKSLASHED = r"\\\1"


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode())
