"""Texts from peers: joining or replacing half surrogate pairs, finding marks that may begin at the end of a
fragment, and escaping what could move a terminal's cursor, hide or reorder the text around it, or fill the
screen."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

# Surrogates: an upstream may split an emoji between two deltas, with half of its surrogate pair in each.
#
# Half a pair can't be encoded as UTF-8. `repair_surrogates` repairs a whole text, `SurrogateJoiner` a stream.

REPLACEMENT: Final = "\ufffd"
_HALF: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_search = _HALF.search


def is_whole(text: str) -> bool:
    """Return True if the text has no surrogates."""
    return _search(text) is None


def repair_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined; a lone surrogate becomes U+FFFD."""
    if text.isascii() or _search(text) is None:
        return text
    return _HALF.sub(REPLACEMENT, joined(text))


def joined(text: str) -> str:
    """Return the text with surrogate pairs joined; a lone surrogate is left unchanged."""
    return _PAIR.sub(_join, text)


def overlap(text: str, position: int, mark: str) -> int:
    """Return the number of characters at the end of the text, from this position on, that may be the
    beginning of the mark."""
    for size in range(min(len(mark) - 1, len(text) - position), 0, -1):
        if text.endswith(mark[:size]):
            return size
    return 0


def repair_surrogates_json(value: Any) -> Any:
    """Return a JSON value with `repair_surrogates` applied to every text and name in it."""
    return each_text(value, repair_surrogates)


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with `change` applied to every text and name in it."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [each_text(element, change) for element in value]
    if isinstance(value, dict):
        return {change(name): each_text(element, change) for name, element in value.items()}
    return value


class SurrogateJoiner:
    """Joins surrogate pairs that are split between deltas: a high surrogate at the end of a delta stays in
    `pending` until the next one. `repaired` is True if a lone surrogate was replaced."""

    pending = ""
    repaired = False

    def feed(self, delta: str) -> str:
        """Accept a delta; returns what can be sent now, including what was pending."""
        if not self.pending and (delta.isascii() or _search(delta) is None):
            return delta
        delta = joined(self.pending + delta)
        self.pending = delta[-1] if "\ud800" <= delta[-1:] <= "\udbff" else ""
        whole, replaced = _HALF.subn(REPLACEMENT, delta[:-1] if self.pending else delta)
        self.repaired = self.repaired or bool(replaced)
        return whole

    def flush(self) -> str:
        """End the text; returns the replacement of a surrogate that is still pending."""
        rest, self.pending = (REPLACEMENT if self.pending else ""), ""
        self.repaired = self.repaired or bool(rest)
        return rest


def _join(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")


# Characters that Python calls printable but a terminal does not show: fillers, joiners, variation selectors.
# U+FE0F is kept after a character that it turns into an emoji, since its effect is visible there.
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0e\uffa0]"
    "|[\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
    "|(?<![#*0-9\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u27bf\u2934-\u2bff\u3030\u303d\u3297\u3299])"
    "(?<![\U0001f000-\U0001faff])\ufe0f"
)
_STAYS: Final = "\n\t"


def is_printable(text: str) -> bool:
    """Return True if every character of the text is visible when it is printed, and all are on one line."""
    return text.isprintable() and (text.isascii() or _UNSEEN.search(text) is None)


def escaped(text: str, escape: Callable[[str], str], stays: str = "") -> str:
    """Return the text with `escape` applied to each character that is not printable or not visible, such as
    line ends, control characters, marks that change the direction of writing, lone surrogates and fillers.
    Characters in `stays` are left unchanged."""
    if is_printable(text):
        return text
    seen = _UNSEEN.sub(lambda found: escape(found.group()), text)
    return "".join(sign if sign.isprintable() or sign in stays else escape(sign) for sign in seen)


def printable(text: str) -> str:
    """Return the text with Python's escapes for every character that is not printable or not visible, line
    ends included. Without them a text could end a line, move the cursor of its reader's terminal, or look
    like another text."""
    return escaped(text, _python_escape)


def shown(text: str) -> str:
    """Return the text as `printable` does, with line ends and tabs unchanged."""
    return escaped(text, _python_escape, _STAYS)


def shown_json(text: str) -> str:
    """Return JSON, or lines that contain JSON, with JSON's escapes for every character that is not printable
    or not visible, except line ends and tabs. The JSON's values stay the same."""
    return escaped(text, _json_escape, _STAYS)


def _python_escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def _json_escape(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def on_one_line(text: str, most: int) -> str:
    """Return the text as `printable` does; what exceeds `most` characters is replaced by `…`."""
    line = printable(text[: most + 1])
    return line if len(line) <= most else f"{line[:most]}…"


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 response`, `2 responses`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def cut(text: str, lines: int, columns: int) -> str:
    """Return the first `lines` lines of a text, each cut off at `columns` characters, with notes of what is
    left out."""
    rows: list[str] = []
    at = 0
    while len(rows) < lines and at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = shown(text[at : min(end, at + columns)])
        rows.append(line if end - at <= columns else f"{line}… ({end - at - columns} more characters)")
        at = end + 1
    more = text.count("\n", at) + (not text.endswith("\n")) if at < len(text) else 0
    return "\n".join([*rows, f"… {counted(more, 'more line')}"] if more else rows)


def latest(text: str, lines: int, columns: int) -> str:
    """Return the end of a growing text: at most `lines` lines and `lines * columns` characters, after `…` if
    the text has more characters."""
    field = lines * columns
    end = shown(text[-field:]).split("\n")[-lines:]
    return "\n".join(end) if len(text) <= field else f"…{chr(10).join(end)}"


def allows_colours(environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Return True if these environment variables allow colours: never with `NO_COLOR` (https://no-color.org)
    or on a terminal without colours (`TERM=dumb`), otherwise on a terminal, and with `FORCE_COLOR` anywhere.
    An empty variable counts as absent."""
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return is_terminal or bool(environ.get("FORCE_COLOR"))
