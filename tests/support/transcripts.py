"""Input and output of a test, line by line, for people to read.

`<` marks received data, `>` an event that resulted from it, `#` a note of the diagnostics; a line without a
mark is an action. The response in an event is shown with its id, its status and its output; of its other
fields, only those that differ from an empty response of the same machine are shown: `streams/` has all of
them.
"""

import json
from collections.abc import Iterable
from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import Event
from tests.support.machines import machine, plain

_ALWAYS = ("id", "status", "output")
_EMPTY = plain(machine().snapshot)


def line(value: Any) -> str:
    """A value as one line of JSON; bytes as the text that they contain."""
    if isinstance(value, bytes):
        return value.decode().rstrip("\n")
    return json.dumps(json.loads(encode(value)), ensure_ascii=False, separators=(",", ":"))


def short(event: Event) -> str:
    """An event as one line; fields of its response without information are left out."""
    shown = plain(event)
    if shown.get("response"):
        shown["response"] = {
            name: value
            for name, value in shown["response"].items()
            if name in _ALWAYS or _EMPTY.get(name, ...) != value
        }
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


class Transcript:
    """Collects the lines of a transcript."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def did(self, what: str) -> None:
        """Add an action that is not a frame."""
        self._lines.append(what)

    def received(self, value: Any) -> None:
        self._lines.append(f"< {line(value)}")

    def sent(self, events: Iterable[Event]) -> None:
        self._lines += [f"> {short(event)}" for event in events]

    def notes(self, diagnostics: Diagnostics) -> None:
        self._lines += [f"# {case.kind}: {case.where}: {case.what}" for case in diagnostics]

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"
