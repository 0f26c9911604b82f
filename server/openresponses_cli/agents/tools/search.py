"""grep_search: a text or a regular expression in the files of a folder.

Regular expressions are matched in linear time by the engine that checks schemas' patterns, so without
look-around and back-references. The size of a pattern and the length of a line are limited too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from fnmatch import translate
from itertools import islice
from typing import Any, Final

from openresponses_agent.tools.errors import ToolInvocationError, ToolTimeoutError
from openresponses_agent.tools.registry import Tool, ToolInvocationContext
from openresponses_bridge.schemas.checking import linear_pattern
from openresponses_cli.agents.tools.folder import Folder
from openresponses_cli.agents.tools.texts import SKIPPED

_SECONDS: Final = 10.0
_MOST_FILES: Final = 20_000
_MOST_BYTES: Final = 1_000_000  # of a file
_MOST_MATCHES: Final = 200
_LONGEST_LINE: Final = 300  # characters of a line that are shown
_MOST_PATTERN_BYTES: Final = 100_000  # of a regular expression, compiled
_LONGEST_MATCHED: Final = 10_000  # characters of a line that a regular expression is matched with
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
    """Return grep_search over this folder."""

    def grep_search(arguments: dict[str, Any], context: ToolInvocationContext) -> str:
        return _Search(folder, arguments, context).run()

    description = (
        "Search for text patterns across the files of the workspace; lines are given as path:number: line"
    )
    return Tool("grep_search", description, _SCHEMA, grep_search, frozenset({"read"}), parallel=True)


class _Search:
    """One search. It runs in a thread, which can't be stopped, so it checks its token and its time."""

    def __init__(self, folder: Folder, arguments: dict[str, Any], context: ToolInvocationContext) -> None:
        self._folder = folder
        self._query = str(arguments["query"])
        self._pattern = _pattern(self._query) if arguments.get("isRegexp") else None
        include = arguments.get("includePattern")
        self._include = re.compile(translate(include)) if include else None
        self._most = int(arguments.get("maxResults", _MOST_MATCHES))
        self._token = context.token
        self._until = time.monotonic() + _SECONDS
        self._too_long = 0

    def run(self) -> str:
        """Return the lines that were found, as `path:number: line`."""
        matches = list(islice(self._found(), self._most))
        lines = matches or ["No matches."]
        if self._too_long:
            lines.append(f"(lines left out, longer than {_LONGEST_MATCHED} characters: {self._too_long})")
        if len(matches) == self._most:
            lines.append("(there may be more)")
        return "\n".join(lines)

    def _found(self) -> Iterator[str]:
        for name in self._folder.files("", skipped=SKIPPED, most=_MOST_FILES, go_on=self._go_on):
            self._go_on()
            if self._include is None or any(map(self._include.match, (name, name.rpartition("/")[2]))):
                for number, line in enumerate(self._lines(name), 1):
                    self._go_on()
                    if self._matches(line):
                        yield f"{name}:{number}: {line.strip()[:_LONGEST_LINE]}"

    def _lines(self, name: str) -> list[str]:
        """Return the lines of a file; none if it can't be read or is binary."""
        try:
            data = self._folder.read(name, _MOST_BYTES)
        except ToolInvocationError:
            return []
        return [] if b"\0" in data else data.decode(errors="replace").split("\n")

    def _matches(self, line: str) -> bool:
        if self._pattern is None:
            return self._query in line
        if len(line) > _LONGEST_MATCHED:
            self._too_long += 1
            return False
        return self._pattern(line)

    def _go_on(self) -> None:
        self._token.check()
        if time.monotonic() > self._until:
            raise ToolTimeoutError(_SECONDS)


def _pattern(query: str) -> Callable[[str], bool]:
    matches = linear_pattern(query, _MOST_PATTERN_BYTES)
    if matches is None:
        raise ToolInvocationError(
            "the query is not a regular expression that can be searched for: it is malformed, too large, or "
            "looks around or back, which is not supported"
        )
    return matches
