"""Converts HTML to text, in one pass whose cost is linear in the page whatever it contains, and limited: what
follows the first 200,000 tags and texts, or a million characters of text, is not read.

Building a tree of HTML is not linear: the standard's rules look at all open elements for each new one, so
that a page of a megabyte can take minutes in a parser that follows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Final, NamedTuple

_RAW: Final = frozenset({"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"})
_NAME: Final = re.compile(r"/?[^\W_](?:[^\W_]|[-:]){0,31}|/")
_MOST_TOKENS: Final = 200_000
_MOST_TEXT: Final = 1_000_000  # characters
_LONGEST_TAG: Final = 8192  # characters; a longer tag ends there
_BLOCKS: Final = re.compile(
    r"address|article|aside|blockquote|br|dd|div|dl|dt|figcaption|figure|h[1-6]|hr|li|main|ol|p|pre|section|"
    r"table|td|th|tr|title|ul"
)
_SILENT: Final = re.compile(r"script|style|noscript|template|svg|iframe|textarea|nav|footer|form")


class Tag(NamedTuple):
    """`name` is in lower case, with a / before it if the tag closes an element; `text` is what follows the
    name."""

    name: str
    text: str

    def attribute(self, name: str) -> str:
        """Return the value of an attribute in quotes; "" if it is missing."""
        for quote in "\"'":
            begin = self.text.find(f"{name}={quote}")
            if begin >= 0:
                begin += len(name) + 2
                end = self.text.find(quote, begin)
                return _plain(self.text[begin : end if end >= 0 else len(self.text)])
        return ""


def tokens(page: str) -> Iterator[Tag | str]:
    """Yield the tags of a page, and the texts between them with their entities replaced."""
    # the only character that is longer in lower case
    lowered = page.replace("\u0130", "I").lower()
    at, length = 0, len(page)
    for _ in range(_MOST_TOKENS):
        if at >= length:
            return
        begin = page.find("<", at)
        if begin < 0:
            yield _plain(page[at : at + _MOST_TEXT])
            return
        if begin > at:
            yield _plain(page[at : min(begin, at + _MOST_TEXT)])
        follow = page[begin + 1 : begin + 2]
        if page.startswith("<!--", begin):
            end = page.find("-->", begin + 2)
            at = length if end < 0 else end + 3
        elif follow in ("!", "?"):
            end = page.find(">", begin)
            at = length if end < 0 else end + 1
        elif follow == "/" or follow.isalpha():
            end = page.find(">", begin, begin + _LONGEST_TAG)
            end = min(begin + _LONGEST_TAG, length) if end < 0 else end
            named = _NAME.match(lowered, begin + 1, end)
            name = "" if named is None else named[0]
            tag = Tag(name, page[begin + 1 + len(name) : end])
            yield tag
            at = end + 1
            if tag.name in _RAW:
                end = lowered.find(f"</{tag.name}", at)
                end = length if end < 0 else end
                if tag.name in ("title", "textarea"):
                    yield _plain(page[at : min(end, at + _MOST_TEXT)])
                at = end
        else:
            yield "<"
            at = begin + 1


def _plain(text: str) -> str:
    """Return the text with its entities replaced; unchanged if a number in it has more digits than Python
    reads."""
    try:
        return unescape(text)
    except ValueError:
        return text


class Page(NamedTuple):
    """A page's title and its text, in lines."""

    title: str
    text: str


def page_of(html: str) -> Page:
    """Return the title, text and links of a page, without its menus, forms and scripts."""
    title: list[str] = []
    pieces: list[str] = []
    silent: dict[str, int] = {}  # open elements → their number
    in_title = False
    left = _MOST_TEXT
    for token in tokens(html):
        if isinstance(token, str):
            left -= len(token)
            if left < 0:
                break
            if in_title:
                title.append(token)
            elif not silent:
                pieces.append(token)
            continue
        name = token.name.removeprefix("/")
        closes = name is not token.name and token.name.startswith("/")
        if name == "title":
            in_title = not closes
        elif _SILENT.fullmatch(name) and not token.text.endswith("/"):
            count = silent.get(name, 0) + (-1 if closes else 1)
            if count > 0:
                silent[name] = count
            else:
                silent.pop(name, None)
        if _BLOCKS.fullmatch(name):
            pieces.append("\n")
    return Page(" ".join("".join(title).split()), in_lines("".join(pieces)))


def in_lines(text: str) -> str:
    """Return the lines that have text, with single blanks."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def plain_text(text: str) -> str:
    """Return a text that may have tags and entities as one line of plain text."""
    if "<" in text or "&" in text:
        text = "".join(token if isinstance(token, str) else " " for token in tokens(text))
    return " ".join(text.split())
