"""Citations as inline links, the only form in which VS Code's text can carry them (RFC 00022, gap 2)."""

from __future__ import annotations

import re

from openresponses_bridge.decoder.parts import LanguageModelTextPart, Part
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.content import Annotation, UrlCitation
from openresponses_bridge.surrogates import mended

_IN_TITLE = re.compile(r"([\\\[\]])")
_IN_URL = re.compile(r"[\s()<>\\]")


def link(title: str, url: str) -> str:
    """` [title](url)` with what would end either of them early escaped. A citation without a title shows
    its address."""
    shown = " ".join((title or url).split())
    return mended(f" [{_IN_TITLE.sub(_BACKSLASHED, shown)}]({_IN_URL.sub(_percent, url)})")


class Citations:
    """Each citation of a text once, whether it comes by its own event, in the finished part or in the
    finished item."""

    def __init__(self, diagnostics: Diagnostics, shown: bool = True) -> None:
        self._diagnostics = diagnostics
        self._shown = shown
        self._seen: set[tuple[int, str]] = set()

    def streamed(self, output_index: int, annotation: Annotation) -> list[Part]:
        """The link of a citation that has an event of its own."""
        return self._links(output_index, [annotation], repeat=True)

    def finished(self, output_index: int, annotations: list[Annotation]) -> list[Part]:
        """The links of a finished text that were not there before. They are known by their address: the
        positions in the finished text may be counted another way."""
        return self._links(output_index, annotations, repeat=False)

    def _links(self, output_index: int, annotations: list[Annotation], repeat: bool) -> list[Part]:
        parts: list[Part] = []
        for annotation in annotations:
            if not isinstance(annotation, UrlCitation):
                self._diagnostics.loss(f"annotation.{annotation.type}"[:80], "has no address, not shown")
            elif self._shown and annotation.url:
                key = (output_index, annotation.url)
                if repeat or key not in self._seen:
                    parts.append(LanguageModelTextPart(link(annotation.title, annotation.url)))
                self._seen.add(key)
        return parts


_BACKSLASHED = r"\\\1"


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode())
