"""Changes to files: shown to the user before they are made, and made exactly as shown or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import unified_diff
from typing import Final, NamedTuple

from openresponses_bridge.text import cut, printable
from openresponses_bridge.tools.errors import ToolInvocationError
from openresponses_server.agents.tools.folder import Folder, FolderError

_MOST_LINES: Final = 300  # of the diff in a question
_MOST_COLUMNS: Final = 500
_COMPARED: Final = (
    300  # lines for which a diff is computed; of more lines the first old and new ones are shown
)
_SHOWN: Final = 100
_NO_END: Final = "\n\\ No newline at end of file"
_CONTEXT: Final = 3
# files that are not hidden and that tools read as instructions or configuration
_READ_UNASKED: Final = re.compile(
    r"(agents?(\.override)?|claude(\.local)?|crush|gemini|qwen|warp)\.md|(crush|opencode)\.jsonc?"
    r"|lefthook(-local)?\.(ya?ml|toml|jsonc?)|mise(\.[\w-]+)*\.toml",
    re.IGNORECASE,
)


class FileChange(NamedTuple):
    """A file's content before and after; None if the file does not exist."""

    path: str
    before: bytes | None
    after: bytes | None


def question(folder: Folder, changes: list[FileChange]) -> str | None:
    """The question before the changes are made. None if there is nothing to ask: every file is new, and none
    is one that other tools read unasked, as hidden files and folders (`.envrc`, `.vscode`, `.husky`) and a
    few others are."""
    if all(each.before is None and not _is_read_unasked(folder.steps(each.path)) for each in changes):
        return None
    many = "these files" if len(changes) > 1 else "this file"
    diff = "\n".join(line for each in changes for line in _diff(each))
    return f"Change {many}?\n{cut(diff, _MOST_LINES, _MOST_COLUMNS)}\n"


def apply(folder: Folder, changes: list[FileChange]) -> None:
    """Make all changes or none: if one fails, those before it are undone. Raises ToolInvocationError, also
    for a file that has changed since the changes were planned."""
    done: list[FileChange] = []
    try:
        for each in changes:
            _apply_one(folder, each)
            done.append(each)
    except ToolInvocationError:
        for path, before, after in reversed(done):
            _apply_one(folder, FileChange(path, after, before))
        raise


def read_existing(folder: Folder, path: str) -> bytes | None:
    """A file's content; None if it does not exist. Raises ToolInvocationError if it can't be read."""
    try:
        return folder.read(path)
    except ToolInvocationError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _apply_one(folder: Folder, change: FileChange) -> None:
    path, before, after = change
    if before is None and after is not None:
        folder.create(path, after)
    elif after is not None:
        folder.change(path, lambda now: after if now == before else _changed(path))
    elif before is not None:
        if read_existing(folder, path) != before:
            _changed(path)
        folder.remove(path)


def _changed(path: str) -> bytes:
    raise FolderError(f"{path!r} was changed by somebody else meanwhile; look at it again")


def _is_read_unasked(steps: list[str]) -> bool:
    return any(step.startswith(".") or _READ_UNASKED.fullmatch(step) for step in steps)


def _diff(change: FileChange) -> Iterator[str]:
    """The change in the format of `diff -u`, computed in linear time."""
    path = printable(change.path)
    yield f"--- {'(no file)' if change.before is None else path}"
    yield f"+++ {'(deleted)' if change.after is None else path}"
    old, new = _lines(change.before), _lines(change.after)
    if old is None or new is None:
        yield f"(not a text: {len(change.before or b'')} bytes become {len(change.after or b'')})"
        return
    first = _common_prefix(old, new)
    last = _common_prefix(old[first:][::-1], new[first:][::-1])
    start = max(0, first - _CONTEXT)
    end = max(0, last - _CONTEXT)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(old), len(new)) <= _COMPARED:
        hunks = unified_diff(old, new, n=_CONTEXT, lineterm="")
        yield from (line for line in list(hunks)[2:] if not line.startswith("@@"))
        return
    yield from (f" {line}" for line in old[: first - start])
    for sign, lines, ends in (("-", old, "go"), ("+", new, "come")):
        changed = lines[first - start : len(lines) - (last - end)]
        yield from (f"{sign}{line}" for line in changed[:_SHOWN])
        if len(changed) > _SHOWN:
            yield f"{sign}… {len(changed) - _SHOWN} more {ends}"
    yield from (f" {line}" for line in old[len(old) - (last - end) :])


def _lines(data: bytes | None) -> list[str] | None:
    """The lines of a text; None for binary data."""
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    lines = text.split("\n")
    if not lines[-1]:
        return lines[:-1]
    lines[-1] += _NO_END
    return lines


def _common_prefix(old: list[str], new: list[str]) -> int:
    """How many of the first lines are the same."""
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count
