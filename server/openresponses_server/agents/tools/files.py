"""Patches in the two forms that models write, applied to texts.

`*** Begin Patch` names files and changes by their lines; a unified diff names line numbers as well, which
models get wrong, so that the lines decide and the numbers only say where to look first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from openresponses_bridge.tools.errors import ToolInvocationError

_MOST_HUNKS: Final = 500
_RANGE: Final = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+[0-9]{1,9}(?:,[0-9]{1,9})? @@")
_KINDS: Final[dict[str, Literal["add", "update", "delete"]]] = {
    "*** Add File: ": "add",
    "*** Update File: ": "update",
    "*** Delete File: ": "delete",
}
_MOVE: Final = "*** Move to: "
_DONE: Final = {"add": "Created", "update": "Updated", "delete": "Deleted"}


@dataclass
class Hunk:
    """Lines `old` in a row become `new`. They are after the line `heading`, and near the line number `near`
    (from 0), where those are given."""

    heading: str = ""
    near: int | None = None
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    def take(self, line: str) -> bool:
        """Add a line of the patch; False when it is not one of a hunk."""
        mark, text = line[:1], line[1:]
        if mark not in ("", " ", "+", "-"):
            return False
        if mark != "+":
            self.old.append(text)
        if mark != "-":
            self.new.append(text)
        return True


@dataclass
class FileChange:
    """What is done to one file."""

    kind: Literal["add", "update", "delete"]
    path: str
    moved_to: str | None = None
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [self.path] if self.moved_to is None else [self.path, self.moved_to]

    @property
    def summary(self) -> str:
        moved = f" as {self.moved_to}" if self.moved_to else ""
        return f"{_DONE[self.kind]} {self.path}{moved}"


def read_patch(text: str) -> list[FileChange]:
    """The changes of a patch. Raises ToolInvocationError that names the line."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    read = _begun if lines[0].strip() == "*** Begin Patch" else _unified
    changes = list(read(lines))
    if not changes:
        raise ToolInvocationError("the patch changes nothing; begin it with `*** Begin Patch`")
    if sum(len(change.hunks) for change in changes) > _MOST_HUNKS:
        raise ToolInvocationError(f"the patch has more than {_MOST_HUNKS} hunks")
    return changes


def patched(changes: list[FileChange], texts: Mapping[str, str | None]) -> dict[str, str | None]:
    """path → its new text, None for a file that goes. `texts` has the present ones, None where there is not
    such a file. Raises ToolInvocationError that says what does not fit."""
    after: dict[str, str | None] = {}
    for change in changes:
        text = texts[change.path]
        if (text is None) != (change.kind == "add"):
            raise ToolInvocationError(f"{change.path!r} " + ("exists already" if text else "does not exist"))
        if change.moved_to is not None and texts[change.moved_to] is not None:
            raise ToolInvocationError(f"{change.moved_to!r} exists already")
        if change.kind == "delete":
            after[change.path] = None
            continue
        if change.moved_to is not None:
            after[change.path] = None
        after[change.moved_to or change.path] = _changed(text or "", change)
    return after


def _begun(lines: list[str]) -> Iterator[FileChange]:
    change: FileChange | None = None
    for number, line in enumerate(lines[1:], 2):
        if line.strip() == "*** End Patch":
            break
        kind = next((kind for kind in _KINDS if line.startswith(kind)), None)
        if kind is not None:
            if change is not None:
                yield change
            change = FileChange(_KINDS[kind], line[len(kind) :].strip())
            if change.kind == "add":
                change.hunks.append(Hunk())
        elif change is None:
            raise _wrong(number, line, "a file has to be named first")
        elif line.startswith(_MOVE) and change.kind == "update":
            change.moved_to = line[len(_MOVE) :].strip()
        elif line.startswith("@@"):
            change.hunks.append(Hunk(heading=line[2:].strip()))
        elif line != "*** End of File":
            if not change.hunks:
                change.hunks.append(Hunk())
            wrong = change.kind == "delete" or (change.kind == "add" and line[:1] != "+")
            if wrong or not change.hunks[-1].take(line):
                raise _wrong(number, line, "lines begin with a space, + or -")
    else:
        raise ToolInvocationError("the patch is cut: it has to end with `*** End Patch`")
    if change is not None:
        yield change


def _unified(lines: list[str]) -> Iterator[FileChange]:
    change: FileChange | None = None
    hunk: Hunk | None = None
    left = ""
    for number, line in enumerate(lines, 1):
        found = _RANGE.match(line)
        if line.startswith("--- ") and number < len(lines) and lines[number].startswith("+++ "):
            left, hunk = _file(line, "a/"), None
        elif line.startswith("+++ ") and left:
            if change is not None:
                yield change
            right = _file(line, "b/")
            if left == "/dev/null":
                change = FileChange("add", right)
            elif right == "/dev/null":
                change = FileChange("delete", left)
            else:
                change = FileChange("update", left, None if right == left else right)
            left = ""
        elif found is not None and change is not None:
            first, count = int(found[1]), found[2]
            hunk = Hunk(near=max(0, first - (count != "0")))
            change.hunks.append(hunk)
        elif line.startswith("diff --git "):
            hunk = None
        elif hunk is not None and not line.startswith("\\") and not hunk.take(line):
            raise _wrong(number, line, "lines begin with a space, + or -")
    if change is not None:
        yield change


def _file(line: str, prefix: str) -> str:
    return line[4:].split("\t")[0].strip().removeprefix(prefix)


def _changed(text: str, change: FileChange) -> str:
    """Each hunk is looked for behind the one before. Takes time linear in the text for each hunk."""
    crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
    plain = text.replace("\r\n", "\n") if crlf else text
    ended = plain.endswith("\n") or not plain
    # framed by line ends, so that whole lines are found as one text
    rest = f"\n{plain}" if ended else f"\n{plain}\n"
    done: list[str] = []
    passed = 0  # lines of the text before `rest`
    for number, hunk in enumerate(change.hunks, 1):
        at = _position(rest, hunk, passed)
        if at is None:
            raise ToolInvocationError(f"hunk {number} does not fit {change.path!r}: its lines are not there")
        old, new = _framed(hunk.old), _framed(hunk.new)
        done.append(rest[:at] + new[:-1])
        passed += rest.count("\n", 0, at + len(old) - 1)
        rest = rest[at + len(old) - 1 :]
    made = ("".join(done) + rest)[1:]
    if not ended:
        made = made.removesuffix("\n")
    return made.replace("\n", "\r\n") if crlf else made


def _position(rest: str, hunk: Hunk, passed: int) -> int | None:
    """Where the hunk's lines begin in `rest`, at the line end before them."""
    start = 0
    if hunk.heading:
        start = rest.find(f"\n{hunk.heading}\n")
        if start < 0:
            start = rest.find(hunk.heading)
        if start < 0:
            return None
        start = max(0, rest.find("\n", start + 1))
    near = None if hunk.near is None else _line(rest, max(0, hunk.near - passed))
    if not hunk.old:
        return near if near is not None else start if hunk.heading else len(rest) - 1
    if near is not None and rest.startswith(_framed(hunk.old), near):
        return near
    at = rest.find(_framed(hunk.old), start)
    return None if at < 0 else at


def _line(rest: str, count: int) -> int:
    """The line end before the line of this number."""
    at = 0
    for _ in range(count):
        found = rest.find("\n", at + 1)
        if found < 0:
            break
        at = found
    return at


def _framed(lines: list[str]) -> str:
    return "\n" + "".join(f"{line}\n" for line in lines)


def _wrong(number: int, line: str, what: str) -> ToolInvocationError:
    return ToolInvocationError(f"line {number} of the patch is wrong ({what}): {line[:80]!r}")
