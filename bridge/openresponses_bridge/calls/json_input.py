"""Extracts the only text in a function call's arguments while they stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_SPECIAL: Final = re.compile(r'["\\]')
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[^u])", re.DOTALL)
_ESCAPE_BEGUN: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_LONGEST_ESCAPE: Final = len("\\uffff")
_MEANING: Final = {
    '\\"': '"', "\\\\": "\\", "\\/": "/", "\\b": "\b", "\\f": "\f", "\\n": "\n", "\\r": "\r", "\\t": "\t",
}  # fmt: skip


class JsonStringReader:
    """Decodes one JSON string, from after its opening quote to its closing one.

    Surrogate escapes become single surrogates, which a `openresponses_bridge.text.SurrogateJoiner` joins.
    What JSON does not allow but models write (raw control characters, unknown escapes) is kept unchanged;
    `repaired` is True if there were such escapes.
    """

    __slots__ = ("_escape", "closed", "repaired")

    def __init__(self) -> None:
        self.closed = False
        self.repaired = False
        self._escape = ""

    def read(self, text: str, position: int, out: list[str]) -> int:
        """Append the part of the string in `text` from `position` on to `out`. Returns where it ends."""
        if self._escape:
            position = self._read_escape(text, position, out)
        while position < len(text):
            special = _SPECIAL.search(text, position)
            if special is None:
                out.append(text[position:])
                return len(text)
            at = special.start()
            if at > position:
                out.append(text[position:at])
            if text[at] == '"':
                self.closed = True
                return at + 1
            meaning = _MEANING.get(text[at : at + 2])
            if meaning is None:
                position = self._read_escape(text, at, out)
            else:
                out.append(meaning)
                position = at + 2
        return position

    def _read_escape(self, text: str, position: int, out: list[str]) -> int:
        buffered = len(self._escape)
        window = self._escape + text[position : position + _LONGEST_ESCAPE - buffered]
        self._escape = ""
        match = _ESCAPE.match(window)
        if match is None:
            match = _ESCAPE_BEGUN.match(window)
            if match is not None and match.end() == len(window):
                self._escape = window
                return len(text)
        assert match is not None, "a window begins with a backslash"
        written = match[0]
        if match.lastindex:
            out.append(chr(int(match[1], 16)))
        else:
            self.repaired |= written not in _MEANING
            out.append(_MEANING.get(written, written))
        return position + len(written) - buffered


INPUT_KEY: Final = "input"

# Keys whose text is certainly the input, so that it is streamed at once.
_STREAMED: Final = frozenset({INPUT_KEY, "patch", "content", "code"})
# Keys whose text may also describe the input: used, in this order, if there is no better one.
_FALLBACKS: Final = ("text", "command")
# The beginnings of texts that are the input under any key.
_PATCH: Final = "*** Begin Patch"

_NESTED: Final = "nested_object"

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BETWEEN_MEMBERS: Final = re.compile(r"[ \t\r\n,]*")
_STRUCTURE: Final = re.compile(r'["{}\[\],]')
_DEPTH_STEP: Final = {"{": 1, "[": 1, "}": -1, "]": -1, ",": 0}
_LONGEST_KEY_SHOWN: Final = 40


class JsonInputReader:
    """Finds the input in fragments of arguments, as soon as it is certain which text it is.

    `notes` lists, in order and once each, how the arguments differ from ``{"input": "…"}``. Time and memory
    are linear in the arguments; once the input is found, nothing is buffered.
    """

    __slots__ = (
        "_depth",
        "_found",
        "_held",
        "_key",
        "_key_parts",
        "_members",
        "_out",
        "_outer",
        "_raw",
        "_reader",
        "_step",
        "notes",
    )

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}
        self._step: Callable[[JsonInputReader, str, int], int] = JsonInputReader._begin
        self._found = False
        # All fragments so far, as long as they may have to be passed unchanged.
        self._raw: list[str] = []
        self._out: list[str] = []
        # Texts under keys that are not certain to be the input.
        self._held: dict[str, list[str]] = {}
        # The texts of the outer object, if an object is read in place of the input.
        self._outer: dict[str, list[str]] | None = None
        self._key = ""
        self._key_parts: list[str] = []
        self._members = 0
        self._depth = 0
        self._reader = JsonStringReader()

    @property
    def cut(self) -> bool:
        """True if the JSON that was begun has not ended."""
        return self._step not in _MAY_END

    def feed(self, fragment: str) -> str:
        """Feed the next fragment. Returns the input text in it, with surrogates not joined."""
        if not self._found:
            self._raw.append(fragment)
        position, end = 0, len(fragment)
        while position < end:
            position = self._step(self, fragment, position)
        return self._drain()

    def close(self) -> str:
        """End the arguments. Returns the best buffered text, if none was used yet."""
        if self.cut and not self._found:
            self._close_inner()
            self._use_best_buffered()
        return self._drain()

    def _drain(self) -> str:
        if not self._out:
            return ""
        text = "".join(self._out)
        self._out.clear()
        return text

    def _begin(self, text: str, position: int) -> int:
        position = _end_of(_SPACE, text, position)
        mark = text[position : position + 1]
        if mark == "{":
            self._step = JsonInputReader._next_member
        elif mark == '"':
            self._record_repair("json_string")
            self._stream()
        elif mark:
            return self._emit_raw(text, "raw_text")
        return position + 1

    def _emit_raw(self, text: str, note: str) -> int:
        """Return all arguments unchanged, now and later, since they are not a wrapper."""
        self._record_repair(note)
        self._out += self._raw
        self._decide()
        self._step = JsonInputReader._copy
        return len(text)

    def _copy(self, text: str, position: int) -> int:
        self._out.append(text[position:])
        return len(text)

    def _ignore(self, text: str, position: int) -> int:
        return len(text)

    def _finished(self, text: str, position: int) -> int:
        if _end_of(_SPACE, text, position) < len(text):
            self._record_repair("trailing_text")
        return len(text)

    def _next_member(self, text: str, position: int) -> int:
        position = _end_of(_BETWEEN_MEMBERS, text, position)
        mark = text[position : position + 1]
        if mark == '"':
            self._members += 1
            self._key_parts.clear()
            self._reader = JsonStringReader()
            self._step = JsonInputReader._read_key
        elif mark == "}" and self._outer is not None:
            self._close_inner()
        elif mark == "}":
            return self._end_object(text, position + 1)
        elif mark:
            return self._malformed(text)
        return position + 1

    def _close_inner(self) -> None:
        """Leave the inner object, if one is read, and its texts: only a certain one counts there."""
        if self._outer is not None:
            self._held, self._outer = self._outer, None

    def _read_key(self, text: str, position: int) -> int:
        position = self._reader.read(text, position, self._key_parts)
        if self._reader.closed:
            self._key = "".join(self._key_parts)
            self._step = JsonInputReader._read_colon
        return position

    def _read_colon(self, text: str, position: int) -> int:
        position = _end_of(_SPACE, text, position)
        mark = text[position : position + 1]
        if mark == ":":
            self._step = JsonInputReader._begin_value
        elif mark:
            return self._malformed(text)
        return position + 1

    def _begin_value(self, text: str, position: int) -> int:
        position = _end_of(_SPACE, text, position)
        mark = text[position : position + 1]
        if mark == "{" and self._key in _STREAMED and self._outer is None and not self._found:
            self._outer, self._held = self._held, {}
            self._step = JsonInputReader._next_member
            return position + 1
        if mark == "[" and not self._found:
            self._step = JsonInputReader._next_element
            return position + 1
        if mark and (mark != '"' or self._found):
            self._step = JsonInputReader._skip_value
            return position
        if mark:
            if self._key in _STREAMED:
                self._use(self._key)
                self._stream()
            else:
                self._held[self._key] = []
                self._reader = JsonStringReader()
                self._step = JsonInputReader._probe_value
        return position + 1

    def _read_value(self, text: str, position: int) -> int:
        position = self._reader.read(text, position, self._out)
        self._end_string_if_closed()
        return position

    def _buffer_value(self, text: str, position: int) -> int:
        position = self._reader.read(text, position, self._held[self._key])
        self._end_string_if_closed()
        return position

    def _probe_value(self, text: str, position: int) -> int:
        """Hold a text until enough of it has come to see whether it is a patch."""
        texts = self._held[self._key]
        position = self._reader.read(text, position, texts)
        begun = "".join(texts)
        if begun.startswith(_PATCH):
            self._use(self._key)
            self._out.append(begun)
            self._decide()
            self._step = JsonInputReader._read_value
        elif not _PATCH.startswith(begun):
            self._step = JsonInputReader._buffer_value
        self._end_string_if_closed()
        return position

    def _next_element(self, text: str, position: int) -> int:
        """Read up to the next word of a command, which may be a patch that is the input. Returns the
        position."""
        position = _end_of(_BETWEEN_MEMBERS, text, position)
        mark = text[position : position + 1]
        if mark == '"':
            self._reader = JsonStringReader()
            self._key_parts.clear()
            self._step = JsonInputReader._probe_element
        elif mark == "]":
            self._step = JsonInputReader._next_member
        elif mark:
            self._skip_list()
            return position
        return position + 1

    def _probe_element(self, text: str, position: int) -> int:
        """Hold a word until enough of it has come to see whether it is a patch."""
        position = self._reader.read(text, position, self._key_parts)
        begun = "".join(self._key_parts)
        if begun.startswith(_PATCH):
            self._use(self._key)
            self._record_repair("list")
            self._out.append(begun)
            self._decide()
            self._step = JsonInputReader._read_element
            self._end_element_if_closed()
        elif self._reader.closed:
            self._step = JsonInputReader._next_element
        elif not _PATCH.startswith(begun):
            self._step = JsonInputReader._skip_element
        return position

    def _read_element(self, text: str, position: int) -> int:
        position = self._reader.read(text, position, self._out)
        self._end_element_if_closed()
        return position

    def _end_element_if_closed(self) -> None:
        if self._reader.repaired:
            self._record_repair("invalid_escape")
        if self._reader.closed:
            self._skip_list()

    def _skip_element(self, text: str, position: int) -> int:
        position = self._reader.read(text, position, [])
        if self._reader.closed:
            self._step = JsonInputReader._next_element
        return position

    def _skip_list(self) -> None:
        """Skip to the end of the list that is read."""
        self._depth = 1
        self._step = JsonInputReader._skip_value

    def _skip_value(self, text: str, position: int) -> int:
        """Skip to the end of a value that is not the input."""
        match = _STRUCTURE.search(text, position)
        if match is None:
            return len(text)
        mark = match[0]
        if mark == '"':
            self._reader = JsonStringReader()
            self._step = JsonInputReader._skip_string
        elif self._depth == 0 and mark in ",}]":
            self._step = JsonInputReader._next_member
            return match.start()
        else:
            self._depth += _DEPTH_STEP[mark]
        return match.end()

    def _skip_string(self, text: str, position: int) -> int:
        position = self._reader.read(text, position, [])
        if self._reader.closed:
            self._step = JsonInputReader._skip_value
        return position

    def _stream(self) -> None:
        self._decide()
        self._reader = JsonStringReader()
        self._step = JsonInputReader._read_value

    def _decide(self) -> None:
        self._found = True
        self._raw.clear()
        self._held.clear()

    def _end_string_if_closed(self) -> None:
        if self._reader.repaired:
            self._record_repair("invalid_escape")
        if self._reader.closed:
            # A string at top level is not inside an object.
            self._step = JsonInputReader._next_member if self._members else JsonInputReader._finished

    def _end_object(self, text: str, position: int) -> int:
        self._step = JsonInputReader._finished
        if self._found or not self._members or self._use_best_buffered():
            if self._members > (2 if _NESTED in self.notes else 1):
                self._record_repair("other_members")
            return position
        return self._emit_raw(text, "no_wrapper")

    def _use_best_buffered(self) -> bool:
        """Use the best of the buffered texts, if one is better than the others."""
        single = tuple(self._held) if len(self._held) == 1 else ()
        for key in (*_FALLBACKS, *single):
            if key in self._held:
                self._use(key)
                self._out += self._held[key]
                self._decide()
                return True
        return False

    def _use(self, key: str) -> None:
        if self._outer is not None:
            self._record_repair(_NESTED)
        if key != INPUT_KEY:
            self._record_repair(f"wrapper_key:{key[:_LONGEST_KEY_SHOWN]}")

    def _malformed(self, text: str) -> int:
        if not self._found:
            return self._emit_raw(text, "malformed_json")
        self._record_repair("malformed_json")
        self._step = JsonInputReader._ignore
        return len(text)

    def _record_repair(self, repair: str) -> None:
        self.notes[repair] = None


_MAY_END: Final = frozenset(
    {JsonInputReader._begin, JsonInputReader._copy, JsonInputReader._ignore, JsonInputReader._finished}
)


def _end_of(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return position if match is None else match.end()
