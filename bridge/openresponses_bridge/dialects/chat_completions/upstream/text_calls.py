"""Tool calls that a model has written as text, and that no parser of its server has read.

A format has the marks around its calls and a reader of the text between them. Text is passed on at once; from
an opening mark on it is held until the closing one. It is a call only if all of it can be read and every tool
in it was declared; otherwise it is passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from openresponses_bridge.calls.argument_names import ARGUMENT_NAMES
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.chat_completions.options import TextCallFormat
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.text import overlap


class TextCall(NamedTuple):
    """A call in a text; `arguments` is JSON."""

    name: str
    arguments: str


class _Format(NamedTuple):
    open: str
    close: str
    read: Callable[[str], list[TextCall] | None]


class TextCalls:
    """Splits fragments of text into text and calls of these tools, in order."""

    __slots__ = ("_close", "_formats", "_held", "_identities", "_open", "_opening", "_opens", "_tail")

    def __init__(self, formats: Collection[TextCallFormat], identities: ToolIdentityMap) -> None:
        self._formats = [each for name, variants in _FORMATS.items() if name in formats for each in variants]
        self._opens = tuple(dict.fromkeys(each.open for each in self._formats))
        self._opening = re.compile("|".join(map(re.escape, self._opens)))
        self._identities = identities
        self._open = self._close = ""  # the marks around the held text
        self._held: list[str] = []
        self._tail = ""  # the end of the held text, in which a mark may begin

    @property
    def is_flushed(self) -> bool:
        """True if nothing is held back."""
        return not (self._held or self._tail)

    def feed(self, text: str) -> list[str | TextCall]:
        """Feed the next fragment. Returns what is known by now."""
        text, self._tail = self._tail + text, ""
        pieces: list[str | TextCall] = []
        position = 0
        while position < len(text):
            position = (self._within if self._close else self._outside)(text, position, pieces)
        return pieces

    def close(self) -> list[str | TextCall]:
        """End the text, since something else follows. A call without its closing mark counts as a call,
        anything else as text."""
        rest, self._tail = self._tail, ""
        if not self._close:
            return [rest] if rest else []
        self._held.append(rest)
        return self._end("")

    def _outside(self, text: str, position: int, pieces: list[str | TextCall]) -> int:
        mark = self._opening.search(text, position)
        if mark is None:
            at = len(text) - max(overlap(text, position, each) for each in self._opens)
            if at > position:
                pieces.append(text[position:at])
            self._tail = text[at:]
            return len(text)
        if mark.start() > position:
            pieces.append(text[position : mark.start()])
        self._open = mark[0]
        self._close = next(each.close for each in self._formats if each.open == mark[0])
        return mark.end()

    def _within(self, text: str, position: int, pieces: list[str | TextCall]) -> int:
        at = text.find(self._close, position)
        if at >= 0:
            self._held.append(text[position:at])
            close = self._close
            pieces += self._end(close)
            return at + len(close)
        at = len(text) - overlap(text, position, self._close)
        self._held.append(text[position:at])
        self._tail = text[at:]
        return len(text)

    def _end(self, close: str) -> list[str | TextCall]:
        """Return the held text, or its calls, at its closing mark or at the end."""
        body = "".join(self._held)
        opened = self._open
        self._held.clear()
        self._open = self._close = ""
        for each in self._formats:
            calls = each.read(body) if each.open == opened else None
            if calls and all(self._identities.resolve(call.name) is not None for call in calls):
                return list(calls)
        return [opened + body + close]


def _hermes(body: str) -> list[TextCall] | None:
    value = _json(body)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments: Any = next((value[name] for name in ARGUMENT_NAMES if name in value), {})
    if isinstance(arguments, str):
        arguments = _json(arguments)
    return None if not isinstance(arguments, dict) else [_call(value["name"], arguments)]


def _glm(body: str) -> list[TextCall] | None:
    name, mark, rest = body.partition("<arg_key>")
    pairs = _elements(mark + rest, "<arg_key>", "</arg_key>")
    arguments: dict[str, Any] = {}
    for key, behind in pairs or ():
        inner = _elements(behind, "<arg_value>", "</arg_value>")
        if inner is None or len(inner) != 1:
            return None
        arguments[key.strip()] = _value(inner[0][0])
    return None if pairs is None or not _is_name(name.strip()) else [_call(name.strip(), arguments)]


def _invoke(body: str, prefix: str = "") -> list[TextCall] | None:
    calls = []
    for head, inner in _tags(body, f"{prefix}invoke") or ():
        parameters = _tags(inner, f"{prefix}parameter")
        name = _attribute(head, "name")
        if parameters is None or name is None:
            return None
        arguments: dict[str, Any] = {}
        for about, text in parameters:
            key = _attribute(about, "name")
            if key is None:
                return None
            arguments[key] = text if _attribute(about, "string") == "true" else _value(text)
        calls.append(_call(name, arguments))
    return calls or None


def _dsml(body: str) -> list[TextCall] | None:
    return _invoke(body, _DSML)


def _kimi(body: str) -> list[TextCall] | None:
    calls = []
    for inner, behind in _elements(body, "<|tool_call_begin|>", "<|tool_call_end|>") or ():
        name, mark, text = inner.partition("<|tool_call_argument_begin|>")
        arguments = _json(text)
        if behind.strip() or not mark or not isinstance(arguments, dict):
            return None
        calls.append(_call(name.strip().removeprefix("functions.").partition(":")[0], arguments))
    return calls or None


def _tags(body: str, name: str) -> list[tuple[str, str]] | None:
    """Return the attributes and the content of each element of this name; None if there is anything else."""
    elements = []
    for inner, behind in _elements(body, f"<{name}", f"</{name}>") or ():
        head, mark, content = inner.partition(">")
        if behind.strip() or not mark:
            return None
        elements.append((head, content))
    return elements if elements or not body.strip() else None


def _elements(body: str, open: str, close: str) -> list[tuple[str, str]] | None:
    """Return the text within each pair of marks, and the text after it up to the next pair; None if the body
    does not begin with such a pair, or one does not end."""
    first, *parts = body.split(open)
    split = [part.partition(close) for part in parts]
    if first.strip() or not all(mark for _, mark, _ in split):
        return None
    return [(inner, behind) for inner, _, behind in split]


def _attribute(head: str, name: str) -> str | None:
    _, mark, rest = head.partition(f'{name}="')
    value, end, _ = rest.partition('"')
    return value if mark and end else None


def _value(text: str) -> Any:
    """Return a value, decoded as JSON if it looks like more than text."""
    bare = text.strip()
    if bare[:1] in ("{", "[") or bare in ("true", "false", "null") or bare.lstrip("-")[:1].isdigit():
        value = _json(bare)
        return text if value is _NOTHING else value
    return text


_NOTHING: Final = object()


def _json(text: str) -> Any:
    try:
        return decode_json(text.strip())
    except WireError:
        return _NOTHING


def _is_name(name: str) -> bool:
    return bool(name) and not any(each.isspace() or each in "<>{}" for each in name)


def _call(name: str, arguments: dict[str, Any]) -> TextCall:
    return TextCall(name, encode(arguments).decode())


_DSML: Final = "｜DSML｜"
_FORMATS: Final[dict[TextCallFormat, Sequence[_Format]]] = {
    "hermes": [_Format("<tool_call>", "</tool_call>", _hermes)],
    "glm": [_Format("<tool_call>", "</tool_call>", _glm)],
    "invoke": [
        _Format("<function_calls>", "</function_calls>", _invoke),
        _Format("<minimax:tool_call>", "</minimax:tool_call>", _invoke),
    ],
    "dsml": [_Format(f"<{_DSML}function_calls>", f"</{_DSML}function_calls>", _dsml)],
    "kimi": [_Format("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", _kimi)],
}
