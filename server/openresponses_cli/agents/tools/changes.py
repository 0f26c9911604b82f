"""Changes to files: shown to the user before they are made, and made exactly as shown or not at all."""

from __future__ import annotations

import re
from collections import Counter
from difflib import unified_diff
from typing import Final, NamedTuple

from openresponses_agent.tools.errors import ToolInvocationError
from openresponses_bridge.text import counted, cut, printable
from openresponses_cli.agents.tools.folder import Folder, FolderError

_MOST_LINES: Final = 300  # of the diffs in a question
_MOST_COLUMNS: Final = 500
_MOST_FILES: Final = 50  # each is named in the question
_COMPARED: Final = (
    300  # lines for which a diff is computed; of longer files the first old and new lines are shown
)
_SHOWN: Final = 100
_NO_END: Final = "\n\\ No newline at end of file"
_CONTEXT: Final = 3
_GUTTER: Final = "| "  # before each line of a file, so that it can't be mistaken for one of the question
# New files that no tool runs, reads as configuration or takes for instructions: tables and logs, and prose
# with the usual names of documents, in the folder itself or in one for documents.
_TABLE: Final = re.compile(r"[^.][^.]*\.(csv|tsv|log)", re.IGNORECASE)
_DOCUMENT: Final = re.compile(
    r"(readme|summary|notes?|changelog|report|results?|output|findings|analysis|review|draft|letter|story"
    r"|hello|answers?|glossary|minutes)"
    r"([-_ ][\w -]*)?\.(md|txt|rst|adoc)",
    re.IGNORECASE,
)
_DOCUMENT_FOLDERS: Final = frozenset(
    {"data", "doc", "docs", "documents", "logs", "notes", "output", "reports", "results"}
)


class FileChange(NamedTuple):
    """A file's content before and after; None if the file does not exist."""

    path: str
    before: bytes | None
    after: bytes | None


class _ShownChange(NamedTuple):
    """A change as the question shows it."""

    path: str
    what: str
    diff: list[str]
    added: int
    removed: int


def question(folder: Folder, changes: list[FileChange]) -> str | None:
    """Return the question before the changes are made: every file with its counts and changes, and the sums
    at the end. None if nothing need be asked: every file is new and of a kind that no tool runs or follows by
    itself. Raises ToolInvocationError for more files than a question can name."""
    if all(each.before is None and _is_harmless(folder.steps(each.path)) for each in changes):
        return None
    if len(changes) > _MOST_FILES:
        raise ToolInvocationError(f"a patch may change {_MOST_FILES} files, not {len(changes)}: split it")
    every = [_shown_change(each) for each in changes]
    lines = ["Change this file?" if len(every) == 1 else f"Change these {len(every)} files?"]
    lines += [f"  {each.path}: {each.what}, {_counts(each.added, each.removed)}" for each in every]
    for each, most in zip(every, _shares([len(each.diff) for each in every], _MOST_LINES), strict=True):
        lines.append(f"{each.path}: {each.what}")
        lines += [f"{_GUTTER}{cut(line, 1, _MOST_COLUMNS)}" for line in each.diff[:most]]
        if len(each.diff) > most:
            lines.append(f"({counted(len(each.diff) - most, 'more line')} of {each.path} not shown)")
    added, removed = sum(each.added for each in every), sum(each.removed for each in every)
    whats = [f"{count} {what}" for what, count in Counter(each.what for each in every).items()]
    lines.append(f"Change {counted(len(every), 'file')} ({', '.join(whats)}), {_counts(added, removed)}?")
    return "\n".join(lines)


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
    """Return a file's content; None if it does not exist. Raises ToolInvocationError if it can't be read."""
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
    raise FolderError(f"{path!r} was changed meanwhile by another program: read it again")


def _is_harmless(steps: list[str]) -> bool:
    """Return True if no tool runs or follows a new file at this path by itself."""
    *folders, name = steps
    if any(folder.casefold() not in _DOCUMENT_FOLDERS for folder in folders):
        return False
    return (_TABLE.fullmatch(name) or _DOCUMENT.fullmatch(name)) is not None


def _counts(added: int, removed: int) -> str:
    return f"+{added} -{removed}"


def _shares(sizes: list[int], most: int) -> list[int]:
    """Return the share of `most` for each: small requests are met, and the others get equal shares of the
    rest."""
    shares, left = [0] * len(sizes), most
    for rank, at in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        shares[at] = min(sizes[at], left // (len(sizes) - rank))
        left -= shares[at]
    return shares


def _shown_change(change: FileChange) -> _ShownChange:
    what = "new" if change.before is None else "deleted" if change.after is None else "changed"
    old, new = _lines(change.before), _lines(change.after)
    if old is None or new is None:
        sizes = f"{len(change.before or b'')} bytes become {len(change.after or b'')}"
        return _ShownChange(printable(change.path), what, [f"(not a text: {sizes})"], 0, 0)
    diff, added, removed = _diff(old, new)
    return _ShownChange(printable(change.path), what, "\n".join(diff).split("\n"), added, removed)


def _diff(old: list[str], new: list[str]) -> tuple[list[str], int, int]:
    """Return the change in the format of `diff -u`, computed in linear time, and the numbers of added and
    removed lines."""
    first = _common_prefix(old, new)
    last = _common_prefix(old[first:][::-1], new[first:][::-1])
    start = max(0, first - _CONTEXT)
    end = max(0, last - _CONTEXT)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(old), len(new)) <= _COMPARED:
        hunks = list(unified_diff(old, new, n=_CONTEXT, lineterm=""))[2:]
        lines = [line for line in hunks if not line.startswith("@@")]
        return lines, sum(line[0] == "+" for line in lines), sum(line[0] == "-" for line in lines)
    lines = [f" {line}" for line in old[: first - start]]
    counts = []
    for sign, side, ends in (("-", old, "go"), ("+", new, "come")):
        changed = side[first - start : len(side) - (last - end)]
        lines += (f"{sign}{line}" for line in changed[:_SHOWN])
        if len(changed) > _SHOWN:
            lines.append(f"{sign}… {len(changed) - _SHOWN} more {ends}")
        counts.append(len(changed))
    lines += (f" {line}" for line in old[len(old) - (last - end) :])
    return lines, counts[1], counts[0]


def _lines(data: bytes | None) -> list[str] | None:
    """Return the lines of a text; None for binary data."""
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
    """Return the number of equal lines at the beginning."""
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count
