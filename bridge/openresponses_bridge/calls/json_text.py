"""Judges the text of a tool call's arguments: whether it is whole JSON, the beginning of JSON, or no JSON,
and which object the tool gets.

Law E7 depends on the difference: arguments that end before their JSON does were cut off and must not be run;
malformed ones are the model's own words and are passed unchanged.

msgspec decides about whole texts, which is the common case. What it refuses is read again by a small
automaton over RFC 8259's tokens, because a decoder also refuses whole JSON for other reasons (a lone
surrogate, a number out of range, deep nesting) and does not always distinguish a truncated text from a
malformed one.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

import msgspec

from openresponses_bridge.errors import LocalError, WireError
from openresponses_bridge.protocol.codec import decode_json


class JsonState(Enum):
    """The state of a text as JSON."""

    EMPTY = "empty"
    """Nothing but white space."""
    COMPLETE = "complete"
    """One whole JSON value."""
    TRUNCATED = "truncated"
    """More text could make it one whole value."""
    MALFORMED = "malformed"
    """No further text could make it valid."""


_WHITESPACE: Final = " \t\n\r"
_PLAIN: Final = r'[^"\\\x00-\x1f]*+'
# an atomic group: Python before 3.11.5 may take a group that is repeated possessively for absent
_CHARACTERS: Final = rf'{_PLAIN}(?>(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN})*)'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![0-9.eE])"

# Whole tokens. A scalar at the end of the text is whole too: `12` may be all of it.
_TOKEN: Final = re.compile(
    rf'[ \t\n\r]*+(?:(?P<string>"{_CHARACTERS}")|(?P<scalar>{_NUMBER}|true|false|null)'
    r"|(?P<mark>[][{},:])|(?P<end>\Z))"
)
# The beginnings of tokens, which reach to the end of the text.
_CUT: Final = (
    ("string", re.compile(rf'[ \t\n\r]*+"{_CHARACTERS}(?:\\(?:u[0-9a-fA-F]{{0,3}})?)?\Z')),
    (
        "scalar",
        re.compile(
            r"[ \t\n\r]*+(?:-|-?(?:0|[1-9][0-9]*+)(?:\.|(?:\.[0-9]++)?[eE][+-]?)"
            r"|t(?:ru?)?|f(?:a(?:ls?)?)?|n(?:ul?)?)\Z"
        ),
    ),
)

# What may come next, and the state after it; `None` leaves the open container.
_VALUE: Final = {"string": "after", "scalar": "after", "[": "first item", "{": "first key"}
_GRAMMAR: Final[dict[str, dict[str, str | None]]] = {
    "value": {**_VALUE},
    "first item": {**_VALUE, "]": None},
    "first key": {"string": "colon", "}": None},
    "key": {"string": "colon"},
    "colon": {":": "value"},
    "after [": {",": "value", "]": None},
    "after {": {",": "key", "}": None},
    "after": {},
}

_decode: Final = msgspec.json.Decoder().decode


def json_state(text: str) -> JsonState:
    """Return the state of `text` as JSON. Never raises. Takes time and memory linear in the text, at any
    depth."""
    try:
        _decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return JsonState.EMPTY if not text.strip(_WHITESPACE) else _read(text)
    return JsonState.COMPLETE


def decodes(text: str) -> bool:
    """Return whether the text may be whole JSON: it is, or is nested too deeply for a decoder."""
    try:
        _decode(text)
    except RecursionError:
        return True
    except (msgspec.MsgspecError, UnicodeError):
        return False
    return True


def _read(text: str) -> JsonState:
    state = "value"
    opened: list[str] = []
    position = 0
    while (match := _TOKEN.match(text, position)) is not None:
        token = match.lastgroup
        position = match.end()
        if token == "end":
            return JsonState.COMPLETE if state == "after" else JsonState.TRUNCATED
        if token == "mark":
            token = text[position - 1]
        if token not in _GRAMMAR[state]:
            return JsonState.MALFORMED
        following = _GRAMMAR[state][token]
        if following is None:
            opened.pop()
        elif token in "[{":
            opened.append(token)
        state = following or "after"
        if state == "after" and opened:
            state = f"after {opened[-1]}"
    return _tail_state(text, position, _GRAMMAR[state])


def _tail_state(text: str, position: int, allowed: dict[str, str | None]) -> JsonState:
    """Return the state for a rest that does not begin with a whole token."""
    for token, cut in _CUT:
        if token in allowed and cut.match(text, position):
            return JsonState.TRUNCATED
    return JsonState.MALFORMED


_MARK: Final = re.compile(r'[\\"{}\[\]]')
_QUOTES: Final = re.compile(r'[\\"]')


class Nesting:
    """Counts the brackets of a text that need not be valid JSON; those in strings don't count."""

    _depth = 0
    _closings = 0  # how often the outermost bracket was closed
    _in_string = False
    _skip = 0  # characters at the beginning of the next piece that belong to an escape
    _last = ""  # the last character that is not white space, outside strings
    _opened: list[str] | None = None  # the open brackets

    @property
    def closed_once(self) -> bool:
        """True if every bracket is closed, and the outermost was closed once: otherwise the text is not one
        whole array or object."""
        return self._closings == 1 and self._depth == 0 and not self._in_string

    @property
    def in_string(self) -> bool:
        """True if the next character belongs to a string."""
        return self._in_string

    @property
    def takes_object(self) -> bool:
        """True if an object may begin here, if the text is valid JSON so far."""
        if self._in_string:
            return False
        last = self._last
        return last in ("", ":", "[") or (last == "," and (self._opened or ())[-1:] == ["["])

    def feed(self, text: str, *, to_end: bool = False) -> int:
        """Feed the next piece, with `to_end` up to the bracket that closes the outermost one. Returns the
        number of characters that were read. Takes time linear in them."""
        position, self._skip = self._skip, 0
        while (match := (_QUOTES if self._in_string else _MARK).search(text, position)) is not None:
            mark, position = match[0], match.end()
            if mark == '"':
                self._in_string = not self._in_string
                self._last = mark
            elif mark == "\\":
                position += self._in_string
            else:
                self._count(mark)
                if to_end and self.closed_once:
                    return position
        self._skip = max(0, position - len(text))
        if not self._in_string:
            self._last = text[position:].rstrip()[-1:] or self._last
        return len(text)

    def _count(self, bracket: str) -> None:
        if bracket in "{[":
            self._depth += 1
            self._opened = self._opened or []
            self._opened.append(bracket)
        else:
            self._depth -= 1
            if self._opened:
                self._opened.pop()
        self._closings += self._depth <= 0
        self._last = bracket


def same_json(one: str, other: str) -> bool:
    """Return whether both texts are JSON of the same value, or the same text."""
    if one == other:
        return True
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


INVALID_JSON: Final = "INVALID_JSON"
"""The key under which Anthropic's documentation puts a tool's input that is not a JSON object."""
WRAPPED: Final = f"not a JSON object, put under {INVALID_JSON}"
"""The description of such a repair, for diagnostics."""


def tool_input(arguments: str) -> dict[str, Any]:
    """Return the object in these arguments; anything else is put under INVALID_JSON."""
    try:
        value = decode_json(arguments) if arguments.strip() else {}
    except WireError:
        return {INVALID_JSON: arguments}
    return value if isinstance(value, dict) else {INVALID_JSON: arguments}


def is_wrapped(value: dict[str, Any], arguments: str) -> bool:
    """Return True if `tool_input` has put these arguments under INVALID_JSON."""
    return value == {INVALID_JSON: arguments}


# json-repair takes microseconds per character, and at each mark reads the rest of the text once more
_MOST_REPAIRED: Final = 20_000  # characters
_MOST_LOOKED_AT: Final = 5_000_000  # characters, again from each mark: a tenth of a second
_MARKS: Final = ",:('\"\u201c\u201d"
_MOST_BRACKETS: Final = 1_000


def repaired_json(text: str | bytes, *, needed: bool = True) -> dict[str, Any] | None:
    """Return the object that the text was meant to be, with quotes, commas, brackets, Python's literals and
    Markdown fences repaired by json-repair. None if the result is not an object, if the text is longer than
    20,000 characters (with many marks, than a few thousand), if it is JSON, and if it does not end with a
    bracket, since a truncated text may have half a path or half a file. Without json-repair, returns None, or
    with `needed` raises LocalError."""
    try:
        from json_repair import repair_json
    except ImportError:
        if not needed:
            return None
        raise LocalError(
            "openresponses_bridge.tools.validation",
            "repairs need json-repair: pip install 'openresponses-bridge[repair]'",
        ) from None
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    if _is_costly(plain) or not _closed(plain) or json_state(plain) is JsonState.COMPLETE:
        return None
    try:
        value = repair_json(plain, return_objects=True)
    except (RecursionError, ValueError):
        return None
    return value if isinstance(value, dict) and value else None


def _is_costly(text: str) -> bool:
    """Return True if a repair of the text would take too long for an event loop."""
    size = len(text)
    return size > _MOST_REPAIRED or size * sum(map(text.count, _MARKS)) > _MOST_LOOKED_AT


def _closed(text: str) -> bool:
    """Return whether the text ends with an object's bracket; a fence may follow."""
    brackets = text.count("{") + text.count("[")
    return text.rstrip().rstrip("`").rstrip().endswith("}") and brackets <= _MOST_BRACKETS
