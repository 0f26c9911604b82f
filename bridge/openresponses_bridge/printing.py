"""Texts that others wrote, on one line of a log, a report or a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with escapes for what does not print: line ends, control sequences, signs that turn the
    direction of writing, halves of pairs. It could else end a line, or move the cursor of its reader's
    terminal."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text
    )
