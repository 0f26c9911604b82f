"""Tools that read and write the files of one folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio.to_thread

from openresponses_bridge.tools.errors import ToolInvocationError
from openresponses_bridge.tools.registry import Tool, ToolInvocationContext
from openresponses_bridge.tools.results import LanguageModelToolResult, ToolResultDataPart
from openresponses_server.agents.tools.changes import FileChange, existing, make, question
from openresponses_server.agents.tools.files import patched, read_patch
from openresponses_server.agents.tools.folder import Folder

_MOST_CHARACTERS: Final = 100_000  # of a file in one result
_MOST_ENTRIES: Final = 1_000
_ANSWERED_WITHIN: Final = 24 * 3600.0  # seconds that a person may take to answer a question
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_WRITES: Final = frozenset({"edit"})
_READS: Final = frozenset({"read"})

Planned = tuple[list[FileChange], str]
"""What a call would do, and what its model reads when that is done."""


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


_PATH: Final = _text("Path in the folder")
_LINE: Final = {"type": "integer", "minimum": 1}


def file_tools(folder: Folder) -> list[Tool]:
    """read_file, list_dir, create_file, edit_file and apply_patch over this folder. Changes of files that are
    there, and new files that other tools obey, are shown and asked about."""

    def bound(handler: Callable[[Folder, dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
        return lambda given: handler(folder, given)

    def asking(
        plan: Callable[[Folder, dict[str, Any]], Planned],
    ) -> Callable[[dict[str, Any], ToolInvocationContext], Awaitable[str]]:
        async def handler(given: dict[str, Any], context: ToolInvocationContext) -> str:
            changes, said = await anyio.to_thread.run_sync(plan, folder, given)
            asked = await anyio.to_thread.run_sync(question, folder, changes)
            if asked is not None:
                await context.confirm(asked)
            await anyio.to_thread.run_sync(make, folder, changes)
            return said

        return handler

    return [
        Tool(
            "read_file",
            "Read a file from the workspace",
            _object(["path"], path=_PATH, startLine=_LINE, endLine=_LINE),
            bound(_read_file),
            _READS,
            parallel=True,
        ),
        Tool(
            "list_dir",
            "List what is in a folder of the workspace; the names of folders end with /",
            _object([], path=_PATH),
            bound(_list_dir),
            _READS,
            parallel=True,
        ),
        Tool(
            "create_file",
            "Create a new file with the given content",
            _object(["path", "content"], path=_PATH, content=_text("Content of the file")),
            asking(_create_file),
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
            asking(_edit_file),
            _WRITES,
            timeout=_ANSWERED_WITHIN,
        ),
        Tool(
            "apply_patch",
            "Change files by a patch, between `*** Begin Patch` and `*** End Patch` or as a unified diff; "
            "all of it is applied, or nothing",
            _object(["input"], input=_text("The patch"), explanation=_text("What it is for")),
            asking(_apply_patch),
            _WRITES,
            timeout=_ANSWERED_WITHIN,
        ),
    ]


def _read_file(folder: Folder, given: dict[str, Any]) -> Any:
    data = folder.read(given["path"])
    media_type = image_type(data)
    if media_type is not None:
        return LanguageModelToolResult([ToolResultDataPart(data, media_type)])
    text = decoded(data, given["path"])
    first, last = int(given.get("startLine", 1)), given.get("endLine")
    if first == 1 and last is None and len(text) <= _MOST_CHARACTERS:
        return text
    lines = [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []
    if first > max(1, len(lines)):
        raise ToolInvocationError(f"{given['path']!r} has {len(lines)} lines")
    shown, size = list[str](), 0
    for line in lines[first - 1 : None if last is None else int(last)]:
        size += len(line)
        if size > _MOST_CHARACTERS:
            break
        shown.append(line)
    if not shown and lines:
        raise ToolInvocationError(f"line {first} is longer than {_MOST_CHARACTERS} characters")
    return f"{''.join(shown)}\n(lines {first} to {first - 1 + len(shown)} of {len(lines)})"


def _list_dir(folder: Folder, given: dict[str, Any]) -> str:
    entries = folder.entries(given.get("path", ""))
    marks = {"folder": "/", "link": " (a link)", "other": " (not a regular file)"}
    lines = [name + marks.get(kind, "") for name, kind in entries[:_MOST_ENTRIES]]
    if len(entries) > _MOST_ENTRIES:
        lines.append(f"… and {len(entries) - _MOST_ENTRIES} more")
    return "\n".join(lines) or "(empty)"


def _create_file(folder: Folder, given: dict[str, Any]) -> Planned:
    path = given["path"]
    if existing(folder, path) is not None:
        raise ToolInvocationError(f"{path!r} exists already")
    return [FileChange(path, None, given["content"].encode())], f"Created {path}"


def _edit_file(folder: Folder, given: dict[str, Any]) -> Planned:
    path, code, old = given["filePath"], given["code"], given.get("oldCode")
    before = existing(folder, path)
    after = str(code)
    if old is not None:
        text = "" if before is None else decoded(before, path)
        times = text.count(old) if old else 0
        if times != 1:
            raise ToolInvocationError(f"oldCode is {times} times in {path!r}; it has to be there once")
        after = text.replace(old, code)
    explanation = given.get("explanation")
    said = f"Successfully edited {path}" + (f" - {explanation}" if explanation else "")
    return [FileChange(path, before, after.encode())], said


def _apply_patch(folder: Folder, given: dict[str, Any]) -> Planned:
    changes = read_patch(given["input"])
    files = [tuple(folder.steps(path)) for each in changes for path in each.paths]
    if len(set(files)) < len(files):
        raise ToolInvocationError("the patch names a file twice")
    before = {path: existing(folder, path) for each in changes for path in each.paths}
    after = patched(
        changes, {path: None if data is None else decoded(data, path) for path, data in before.items()}
    )
    made = {path: None if text is None else text.encode() for path, text in after.items()}
    planned = [FileChange(path, before[path], data) for path, data in made.items()]
    return planned, "\n".join(each.summary for each in changes)


def image_type(data: bytes) -> str | None:
    """The media type of an image that models take; None for anything else."""
    return next((media_type for magic, media_type in _MAGIC if data.startswith(magic)), None)


def decoded(data: bytes, path: str) -> str:
    """A file's text. Raises ToolInvocationError when it is not UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ToolInvocationError(f"{path!r} is not a text file") from None
    if "\0" in text:
        raise ToolInvocationError(f"{path!r} is not a text file")
    return text
