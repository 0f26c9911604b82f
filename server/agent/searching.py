"""grep_search: a text or a regular expression in the files of a folder.

A model's regular expression may backtrack for ever, and nothing within a process can stop it: it runs in a
process of its own, which is killed when the time is over.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_process

from bridge.tools.errors import ToolInvocationError, ToolTimeoutError
from bridge.tools.registry import Tool
from server.agent.folder import Folder

_SECONDS: Final = 10.0
_MOST_FILES: Final = 20_000
_MOST_BYTES: Final = 1_000_000  # of a file
_MOST_MATCHES: Final = 200
_LONGEST_LINE: Final = 300
_SKIPPED: Final = frozenset({".git", "node_modules", "__pycache__", ".venv"})
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 1_000, "description": "Text to search for"},
        "isRegexp": {"type": "boolean", "description": "Whether the query is a regular expression"},
        "includePattern": {
            "type": "string",
            "maxLength": 200,
            "description": "Glob pattern for the paths of files to include",
        },
        "maxResults": {"type": "integer", "minimum": 1, "maximum": _MOST_MATCHES},
    },
    "required": ["query"],
}


def search_tool(folder: Folder) -> Tool:
    """grep_search over this folder."""

    async def grep_search(given: dict[str, Any]) -> str:
        return await _searched(folder, given)

    description = (
        "Search for text patterns across the files of the workspace; lines are given as path:number: line"
    )
    return Tool("grep_search", description, _SCHEMA, grep_search, frozenset({"read"}), parallel=True)


async def _searched(folder: Folder, given: dict[str, Any]) -> str:
    query = str(given["query"])
    most = int(given.get("maxResults", _MOST_MATCHES))
    pattern = query if given.get("isRegexp") else re.escape(query)
    search = partial(matches, folder.path, folder.identity, pattern, given.get("includePattern"), most)
    try:
        with anyio.fail_after(_SECONDS):
            found = await anyio.to_process.run_sync(search, cancellable=True)
    except TimeoutError:
        raise ToolTimeoutError(_SECONDS) from None
    except anyio.BrokenWorkerProcess:
        raise ToolInvocationError("the search took too much memory") from None
    more = "\n(there may be more)" if len(found) >= most else ""
    return "\n".join(found) + more if found else "No matches."


def matches(path: str, identity: tuple[int, int], pattern: str, include: str | None, most: int) -> list[str]:
    """What the process does: lines that match, `path:number: line`, in the files of the folder at `path`,
    which is to be the same one still."""
    try:
        searched = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolInvocationError(f"the query is not a regular expression: {error}") from None
    folder, found = Folder(path), list[str]()
    try:
        if folder.identity != tuple(identity):
            raise ToolInvocationError("the folder was replaced by another one")
        wanted = re.compile(translate(include)) if include else None
        for name in folder.files("", skipped=_SKIPPED, most=_MOST_FILES):
            if wanted is not None and not (wanted.match(name) or wanted.match(name.rpartition("/")[2])):
                continue
            try:
                data = folder.read(name, _MOST_BYTES)
            except ToolInvocationError:
                continue
            if b"\0" in data:
                continue
            for number, line in enumerate(data.decode(errors="replace").split("\n"), 1):
                if searched.search(line):
                    found.append(f"{name}:{number}: {line.strip()[:_LONGEST_LINE]}")
                    if len(found) >= most:
                        return found
        return found
    finally:
        folder.close()
