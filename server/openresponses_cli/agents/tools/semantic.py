"""semantic_search: parts of files about a subject, ranked by BM25 over their words, without a model.

The index is SQLite's full-text search (FTS5), in memory while the agent runs. Names are split into words
(`readFile`, `read_file`), and words are stemmed as English. Nothing is written to disk.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from openresponses_agent.tools.errors import ToolTimeoutError
from openresponses_agent.tools.registry import Tool, ToolInvocationContext
from openresponses_cli.agents.tools.folder import Folder
from openresponses_cli.agents.tools.texts import Text, Texts

_MOST_BYTES: Final = 16_000_000  # of files that are indexed
_MOST_FILE_BYTES: Final = 300_000  # of one file: larger ones were not written by hand
_LINES: Final = 40  # of a part
_CHARACTERS: Final = 3_000  # of a part
_SHOWN: Final = 1_200  # characters of a part in a result
_MOST_RESULTS: Final = 20
_RESULTS: Final = 8
_MOST_WORDS: Final = 32  # of a query
_SEARCH_SECONDS: Final = 5.0
_STEPS: Final = 10_000  # SQLite instructions between two checks of the clock
_PATH_WEIGHT: Final = 4.0  # of a word in the path; a word in the text has 1
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD: Final = re.compile(r"[^\W_]+")
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1_000,
            "description": "What to look for, in words: a subject, what code does, names that may be in it",
        },
        "maxResults": {"type": "integer", "minimum": 1, "maximum": _MOST_RESULTS},
    },
    "required": ["query"],
}


def semantic_tool(folder: Folder) -> Tool:
    """Return semantic_search over this folder."""
    index = WordIndex()

    def semantic_search(arguments: dict[str, Any], context: ToolInvocationContext) -> str:
        texts = Texts(folder, context.token, most_bytes=_MOST_BYTES, most_file_bytes=_MOST_FILE_BYTES)
        parts = index.search(arguments["query"], texts, int(arguments.get("maxResults", _RESULTS)))
        return ("\n\n".join(map(_shown, parts)) or "Nothing was found.") + texts.omission()

    description = (
        "Search the workspace for parts of files about a subject, best first, by the words in them and in "
        "their paths; for an exact text use grep_search"
    )
    return Tool("semantic_search", description, _SCHEMA, semantic_search, frozenset({"read"}), parallel=True)


class Part(NamedTuple):
    """Lines of a file, counted from 1."""

    path: str
    first: int
    text: str


class WordIndex:
    """An index of parts of texts. Threads may use it one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[bytes, range]] = {}  # path → digest of its text, rows of its parts
        self._next = 1
        self._base = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._base.close)
        self._base.execute("CREATE VIRTUAL TABLE parts USING fts5(path, words, tokenize='porter unicode61')")
        self._parts: dict[int, Part] = {}

    def search(self, query: str, texts: Texts, most: int) -> list[Part]:
        """Return the best parts of these texts, best first. Texts that have changed since the last search are
        indexed again. Raises ToolTimeoutError if ranking takes too long."""
        with self._lock:
            self._update(texts)
            return self._ranked(query, most)

    def _update(self, texts: Texts) -> None:
        seen = set[str]()
        for each in texts.read():
            seen.add(each.path)
            digest = blake2b(each.text.encode(), digest_size=16).digest()
            if self._rows.get(each.path, (b"",))[0] != digest:
                self._remove(each.path)
                self._add(each, digest)
        if not texts.cut_short:  # else texts that were not read may still exist
            for path in self._rows.keys() - seen:
                self._remove(path)

    def _add(self, text: Text, digest: bytes) -> None:
        first, path = self._next, " ".join(_words(text.path))
        for part in _parts(text):
            self._parts[self._next] = part
            row = (self._next, path, _HUMP.sub(" ", part.text))
            self._base.execute("INSERT INTO parts (rowid, path, words) VALUES (?, ?, ?)", row)
            self._next += 1
        self._rows[text.path] = (digest, range(first, self._next))

    def _remove(self, path: str) -> None:
        for row in self._rows.pop(path, (b"", range(0)))[1]:
            self._base.execute("DELETE FROM parts WHERE rowid = ?", (row,))
            del self._parts[row]

    def _ranked(self, query: str, most: int) -> list[Part]:
        words = list(dict.fromkeys(word.lower() for word in _words(query)))[:_MOST_WORDS]
        if not words:
            return []
        until = time.monotonic() + _SEARCH_SECONDS
        self._base.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
        try:
            expression = " OR ".join(f'"{word}"' for word in words)
            ranked = "SELECT rowid FROM parts WHERE parts MATCH ? ORDER BY bm25(parts, ?, 1.0) LIMIT ?"
            with closing(self._base.execute(ranked, (expression, _PATH_WEIGHT, most))) as rows:
                return [self._parts[row] for (row,) in rows]
        except sqlite3.OperationalError as error:
            raise ToolTimeoutError(_SEARCH_SECONDS) from error
        finally:
            self._base.set_progress_handler(None, 0)


def _words(text: str) -> list[str]:
    """Return the words of a query or a path, with names split into words."""
    plain = text.encode(errors="replace").decode()  # surrogates in a file's name
    return _WORD.findall(_HUMP.sub(" ", plain))


def _parts(text: Text) -> Iterator[Part]:
    lines, size, first = list[str](), 0, 1
    for number, line in _cut(text.text.split("\n")):
        if lines and (len(lines) == _LINES or size + len(line) > _CHARACTERS):
            yield Part(text.path, first, "\n".join(lines))
            lines, size = [], 0
        if not lines:
            first = number
        lines.append(line)
        size += len(line)
    yield Part(text.path, first, "\n".join(lines))


def _cut(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield (number, line); a line longer than a part is cut into several."""
    for number, line in enumerate(lines, 1):
        for begin in range(0, max(len(line), 1), _CHARACTERS):
            yield number, line[begin : begin + _CHARACTERS]


def _shown(part: Part) -> str:
    text = part.text.rstrip("\n") if len(part.text) <= _SHOWN else f"{part.text[:_SHOWN]}…"
    return f"{part.path}:{part.first}\n{text}"
