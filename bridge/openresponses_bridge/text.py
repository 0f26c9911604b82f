"""Texts that others wrote, as a terminal may have them: nothing in them moves its cursor, hides or reorders
what stands beside them, or fills the screen."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.printing import printable

_STAYS: Final = "\n\t"


def shown(text: str) -> str:
    """The text with escapes for what does not print (control sequences, signs that turn the direction of
    writing, halves of pairs), line ends and tabs aside."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in _STAYS else sign.encode("unicode_escape").decode("ascii")
        for sign in text
    )


def on_one_line(text: str, most: int) -> str:
    """The text on one line, at most so many characters of it."""
    line = printable(text[: most + 1])
    return line if len(line) <= most else f"{line[:most]}…"


def cut(text: str, lines: int, columns: int) -> str:
    """The first lines of a text, each cut at so many characters, with a note of what is left out."""
    kept: list[str] = []
    at = 0
    while len(kept) < lines and at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = shown(text[at : min(end, at + columns)])
        kept.append(line if end - at <= columns else f"{line}… ({end - at - columns} more characters)")
        at = end + 1
    more = text.count("\n", at) + (not text.endswith("\n")) if at < len(text) else 0
    return "\n".join([*kept, f"… {more} more {'line' if more == 1 else 'lines'}"] if more else kept)


def latest(text: str, lines: int, columns: int) -> str:
    """The last lines of a text that still grows, as many as fit into a field of this size."""
    field = lines * columns
    end = shown(text[-field:]).split("\n")[-lines:]
    return "\n".join(end) if len(text) <= field else f"…{chr(10).join(end)}"
