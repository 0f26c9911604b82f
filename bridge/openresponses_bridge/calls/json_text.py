"""The text of a tool call's arguments: is it whole JSON, the beginning of some, or no JSON at all, and which
object does the tool get of it?

Law E7 turns on the difference: arguments that end before their JSON does were cut and must not be
run, malformed ones are the model's own words and pass as they are.

msgspec answers for whole texts, which is the common case. What it refuses is read again by a small
automaton over RFC 8259's tokens, because a decoder also refuses whole JSON for reasons of its own
(a lone surrogate, a number out of range, deep nesting) and does not distinguish each cut text from a
malformed one.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

import msgspec

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json


class JsonState(Enum):
    """What a text is, as JSON."""

    EMPTY = "empty"
    """Nothing but white space."""
    COMPLETE = "complete"
    """One whole JSON value."""
    TRUNCATED = "truncated"
    """More text could make it one whole value."""
    MALFORMED = "malformed"
    """No more text can."""


_WHITESPACE: Final = " \t\n\r"
_PLAIN: Final = r'[^"\\\x00-\x1f]*+'
_CHARACTERS: Final = rf'{_PLAIN}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN})*+'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![0-9.eE])"

# Whole tokens. A scalar that ends where the text ends is whole too: `12` may be all there is.
_TOKEN: Final = re.compile(
    rf'[ \t\n\r]*+(?:(?P<string>"{_CHARACTERS}")|(?P<scalar>{_NUMBER}|true|false|null)'
    r"|(?P<mark>[][{},:])|(?P<end>\Z))"
)
# What is left when the text ends within a token: it reaches to the end.
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

# What may come next, and where it leads. `None` leads out of the container that is open.
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
    """Say what `text` is. Never raises, takes time and memory linear in the text, at any depth."""
    try:
        _decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return JsonState.EMPTY if not text.strip(_WHITESPACE) else _read(text)
    return JsonState.COMPLETE


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
    """Judge what is left where no whole token could be read."""
    for token, cut in _CUT:
        if token in allowed and cut.match(text, position):
            return JsonState.TRUNCATED
    return JsonState.MALFORMED


_MARK: Final = re.compile(r'[\\"{}\[\]]')


class Nesting:
    """Counts the brackets of a text that need not be valid JSON; those in strings don't count."""

    _depth = 0
    _closings = 0  # how often the outermost bracket closed
    _in_string = False
    _skip = 0  # characters of an escape that the next piece begins with

    @property
    def closed_once(self) -> bool:
        """Every bracket is closed, and the outermost was once: a text for which this does not hold is not one
        whole array or object."""
        return self._closings == 1 and self._depth == 0 and not self._in_string

    def feed(self, text: str) -> None:
        """The next piece. Takes time linear in it."""
        position, self._skip = self._skip, 0
        while (match := _MARK.search(text, position)) is not None:
            mark, position = match[0], match.end()
            if mark == '"':
                self._in_string = not self._in_string
            elif mark == "\\":
                position += self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
                self._closings += self._depth <= 0
        self._skip = max(0, position - len(text))


INVALID_JSON: Final = "INVALID_JSON"
"""The key under which Anthropic's documentation puts a tool's input that is not a JSON object."""
WRAPPED: Final = f"not a JSON object, put under {INVALID_JSON}"
"""What is done about such arguments, for diagnostics."""


def tool_input(arguments: str) -> dict[str, Any]:
    """The object that these arguments are; anything else is put under INVALID_JSON."""
    try:
        value = decode_json(arguments) if arguments.strip() else {}
    except WireError:
        return {INVALID_JSON: arguments}
    return value if isinstance(value, dict) else {INVALID_JSON: arguments}


def is_wrapped(value: dict[str, Any], arguments: str) -> bool:
    """Whether `tool_input` has put these arguments under INVALID_JSON."""
    return value == {INVALID_JSON: arguments}
