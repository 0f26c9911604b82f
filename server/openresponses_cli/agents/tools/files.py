"""The tools that read and write files, and patches in the two formats that models write.

`*** Begin Patch` locates changes by the lines around them. A unified diff also has line numbers, which models
get wrong: the lines decide, and the numbers are only where the search begins.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

import anyio.to_thread

from openresponses_agent.tools.errors import ToolInvocationError
from openresponses_agent.tools.registry import Tool, ToolInvocationContext
from openresponses_agent.tools.results import LanguageModelToolResult, ToolResultDataPart
from openresponses_cli.agents.tools.changes import FileChange, apply, question, read_existing
from openresponses_cli.agents.tools.folder import Folder

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
    """Replaces the consecutive lines `old` by `new`. If given, they come after the line `heading` and near
    the line number `near` (from 0)."""

    heading: str = ""
    near: int | None = None
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    def add_line(self, line: str) -> bool:
        """Add a line of the patch. Returns False if it does not belong to a hunk."""
        mark, text = line[:1], line[1:]
        if mark not in ("", " ", "+", "-"):
            return False
        if mark != "+":
            self.old.append(text)
        if mark != "-":
            self.new.append(text)
        return True


@dataclass
class FilePatch:
    """The change to one file."""

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


def read_patch(text: str) -> list[FilePatch]:
    """Return the changes of a patch. Raises ToolInvocationError that names the line."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    read = _parse_begin_patch if lines[0].strip() == "*** Begin Patch" else _parse_unified
    changes = list(read(lines))
    if not changes:
        raise ToolInvocationError("the patch changes nothing; begin it with `*** Begin Patch`")
    if sum(len(change.hunks) for change in changes) > _MOST_HUNKS:
        raise ToolInvocationError(f"the patch has more than {_MOST_HUNKS} hunks")
    return changes


def patched(changes: list[FilePatch], texts: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return path → new text, None for a file that is deleted. `texts` has the current texts, None for files
    that do not exist. Raises ToolInvocationError that names what does not match."""
    after: dict[str, str | None] = {}
    for change in changes:
        text = texts[change.path]
        if (text is None) != (change.kind == "add"):
            raise ToolInvocationError(f"{change.path!r} " + ("already exists" if text else "does not exist"))
        if change.moved_to is not None and texts[change.moved_to] is not None:
            raise ToolInvocationError(f"{change.moved_to!r} already exists")
        if change.kind == "delete":
            after[change.path] = None
            continue
        if change.moved_to is not None:
            after[change.path] = None
        after[change.moved_to or change.path] = _changed(text or "", change)
    return after


def _parse_begin_patch(lines: list[str]) -> Iterator[FilePatch]:
    change: FilePatch | None = None
    for number, line in enumerate(lines[1:], 2):
        if line.strip() == "*** End Patch":
            break
        kind = next((kind for kind in _KINDS if line.startswith(kind)), None)
        if kind is not None:
            if change is not None:
                yield change
            change = FilePatch(_KINDS[kind], line[len(kind) :].strip())
            if change.kind == "add":
                change.hunks.append(Hunk())
        elif change is None:
            raise _syntax_error(number, line, "a file has to be named first")
        elif line.startswith(_MOVE) and change.kind == "update":
            change.moved_to = line[len(_MOVE) :].strip()
        elif line.startswith("@@"):
            change.hunks.append(Hunk(heading=line[2:].strip()))
        elif line != "*** End of File":
            if not change.hunks:
                change.hunks.append(Hunk())
            wrong = change.kind == "delete" or (change.kind == "add" and line[:1] != "+")
            if wrong or not change.hunks[-1].add_line(line):
                raise _syntax_error(number, line, "lines begin with a space, + or -")
    else:
        raise ToolInvocationError("the patch is incomplete: it must end with `*** End Patch`")
    if change is not None:
        yield change


def _parse_unified(lines: list[str]) -> Iterator[FilePatch]:
    change: FilePatch | None = None
    hunk: Hunk | None = None
    left = ""
    for number, line in enumerate(lines, 1):
        match = _RANGE.match(line)
        if line.startswith("--- ") and number < len(lines) and lines[number].startswith("+++ "):
            left, hunk = _file(line, "a/"), None
        elif line.startswith("+++ ") and left:
            if change is not None:
                yield change
            right = _file(line, "b/")
            if left == "/dev/null":
                change = FilePatch("add", right)
            elif right == "/dev/null":
                change = FilePatch("delete", left)
            else:
                change = FilePatch("update", left, None if right == left else right)
            left = ""
        elif match is not None and change is not None:
            first, count = int(match[1]), match[2]
            hunk = Hunk(near=max(0, first - (count != "0")))
            change.hunks.append(hunk)
        elif line.startswith("diff --git "):
            hunk = None
        elif hunk is not None and not line.startswith("\\") and not hunk.add_line(line):
            raise _syntax_error(number, line, "lines begin with a space, + or -")
    if change is not None:
        yield change


def _file(line: str, prefix: str) -> str:
    return line[4:].split("\t")[0].strip().removeprefix(prefix)


def _changed(text: str, change: FilePatch) -> str:
    """Return the text after all hunks; each is searched for after the previous one, in time linear in the
    text."""
    crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
    plain = text.replace("\r\n", "\n") if crlf else text
    ended = plain.endswith("\n") or not plain
    # with a line end on both sides, so that only whole lines are found
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
    result = ("".join(done) + rest)[1:]
    if not ended:
        result = result.removesuffix("\n")
    return result.replace("\n", "\r\n") if crlf else result


def _position(rest: str, hunk: Hunk, passed: int) -> int | None:
    """Return the position in `rest` of the line end before the hunk's lines."""
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
    """Return the position of the line end before the line with this number."""
    at = 0
    for _ in range(count):
        line_end = rest.find("\n", at + 1)
        if line_end < 0:
            break
        at = line_end
    return at


def _framed(lines: list[str]) -> str:
    return "\n" + "".join(f"{line}\n" for line in lines)


def _syntax_error(number: int, line: str, what: str) -> ToolInvocationError:
    return ToolInvocationError(f"line {number} of the patch is wrong ({what}): {line[:80]!r}")


# Tools that read and write the files of one folder.

_MOST_CHARACTERS: Final = 100_000  # of a file in one result
_MOST_ENTRIES: Final = 1_000
_ANSWERED_WITHIN: Final = 24 * 3600.0  # seconds for the user to answer a question
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_WRITES: Final = frozenset({"edit"})
_READS: Final = frozenset({"read"})

Planned = tuple[list[FileChange], str]
"""The changes that a call makes, and its result for the model."""


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


_PATH: Final = _text("Path in the folder")
_LINE: Final = {"type": "integer", "minimum": 1}


def _asking(
    folder: Folder, plan: Callable[[Folder, dict[str, Any]], Planned]
) -> Callable[[dict[str, Any], ToolInvocationContext], Awaitable[str]]:
    """Return a handler that plans changes, asks the user if necessary, and makes them."""

    async def handler(arguments: dict[str, Any], context: ToolInvocationContext) -> str:
        changes, result = await anyio.to_thread.run_sync(plan, folder, arguments)
        prompt = await anyio.to_thread.run_sync(question, folder, changes)
        if prompt is not None:
            await context.confirm(prompt)
        await anyio.to_thread.run_sync(apply, folder, changes)
        return result

    return handler


def file_tools(folder: Folder) -> list[Tool]:
    """Return read_file, list_dir, create_file, edit_file and apply_patch for this folder. The user is asked
    before existing files are changed and before files are created that a tool might run or obey by itself."""
    return [
        Tool(
            "read_file",
            "Read a file from the workspace",
            _object(["path"], path=_PATH, startLine=_LINE, endLine=_LINE),
            partial(_read_file, folder),
            _READS,
            parallel=True,
        ),
        Tool(
            "list_dir",
            "List what is in a folder of the workspace; the names of folders end with /",
            _object([], path=_PATH),
            partial(_list_dir, folder),
            _READS,
            parallel=True,
        ),
        Tool(
            "create_file",
            "Create a new file with the given content",
            _object(["path", "content"], path=_PATH, content=_text("Content of the file")),
            _asking(folder, _create_file),
            _WRITES,
            timeout=_ANSWERED_WITHIN,
        ),
        Tool(
            "edit_file",
            "Edit a file in the workspace",
            _object(
                ["filePath", "code"],
                filePath=_text("Path to the file to edit"),
                code=_text("The new code content"),
                oldCode=_text("The text that the code replaces, once in the file; without it the whole file"),
                explanation=_text("Brief explanation of the changes"),
            ),
            _asking(folder, _edit_file),
            _WRITES,
            timeout=_ANSWERED_WITHIN,
        ),
        Tool(
            "apply_patch",
            "Change files by a patch, between `*** Begin Patch` and `*** End Patch` or as a unified diff; "
            "all of it is applied, or nothing",
            _object(["input"], input=_text("The patch"), explanation=_text("What it is for")),
            _asking(folder, _apply_patch),
            _WRITES,
            timeout=_ANSWERED_WITHIN,
        ),
    ]


def _read_file(folder: Folder, arguments: dict[str, Any]) -> Any:
    data = folder.read(arguments["path"])
    media_type = image_type(data)
    if media_type is not None:
        return LanguageModelToolResult([ToolResultDataPart(data, media_type)])
    text = decoded(data, arguments["path"])
    first, last = int(arguments.get("startLine", 1)), arguments.get("endLine")
    if first == 1 and last is None and len(text) <= _MOST_CHARACTERS:
        return text
    lines = [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []
    if first > max(1, len(lines)):
        raise ToolInvocationError(f"{arguments['path']!r} has {len(lines)} lines")
    shown, size = list[str](), 0
    for line in lines[first - 1 : None if last is None else int(last)]:
        size += len(line)
        if size > _MOST_CHARACTERS:
            break
        shown.append(line)
    if not shown and lines:
        raise ToolInvocationError(f"line {first} is longer than {_MOST_CHARACTERS} characters")
    return f"{''.join(shown)}\n(lines {first} to {first - 1 + len(shown)} of {len(lines)})"


def _list_dir(folder: Folder, arguments: dict[str, Any]) -> str:
    entries = folder.entries(arguments.get("path", ""))
    marks = {"folder": "/", "link": " (a link)", "other": " (not a regular file)"}
    lines = [name + marks.get(kind, "") for name, kind in entries[:_MOST_ENTRIES]]
    if len(entries) > _MOST_ENTRIES:
        lines.append(f"… and {len(entries) - _MOST_ENTRIES} more")
    return "\n".join(lines) or "(empty)"


def _create_file(folder: Folder, arguments: dict[str, Any]) -> Planned:
    path = arguments["path"]
    if read_existing(folder, path) is not None:
        raise ToolInvocationError(f"{path!r} already exists")
    return [FileChange(path, None, arguments["content"].encode())], f"Created {path}"


def _edit_file(folder: Folder, arguments: dict[str, Any]) -> Planned:
    path, code, old = arguments["filePath"], arguments["code"], arguments.get("oldCode")
    before = read_existing(folder, path)
    after = str(code)
    if old is not None:
        text = "" if before is None else decoded(before, path)
        times = text.count(old) if old else 0
        if times != 1:
            raise ToolInvocationError(f"oldCode is in {path!r} {times} times; it must be there exactly once")
        after = text.replace(old, code)
    explanation = arguments.get("explanation")
    result = f"Successfully edited {path}" + (f" - {explanation}" if explanation else "")
    return [FileChange(path, before, after.encode())], result


def _apply_patch(folder: Folder, arguments: dict[str, Any]) -> Planned:
    changes = read_patch(arguments["input"])
    files = [tuple(folder.steps(path)) for each in changes for path in each.paths]
    if len(set(files)) < len(files):
        raise ToolInvocationError("the patch names a file twice")
    before = {path: read_existing(folder, path) for each in changes for path in each.paths}
    after = patched(
        changes, {path: None if data is None else decoded(data, path) for path, data in before.items()}
    )
    contents = {path: None if text is None else text.encode() for path, text in after.items()}
    planned = [FileChange(path, before[path], data) for path, data in contents.items()]
    return planned, "\n".join(each.summary for each in changes)


def image_type(data: bytes) -> str | None:
    """Return the media type of an image that models accept; None for anything else."""
    return next((media_type for magic, media_type in _MAGIC if data.startswith(magic)), None)


def decoded(data: bytes, path: str) -> str:
    """Return a file's text. Raises ToolInvocationError if it is not UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ToolInvocationError(f"{path!r} is not a text file") from None
    if "\0" in text:
        raise ToolInvocationError(f"{path!r} is not a text file")
    return text
