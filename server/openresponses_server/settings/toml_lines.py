"""Where in a TOML file each of its keys stands: tomllib does not say."""

from __future__ import annotations

import tomllib
from typing import Any


def lines_of(text: str) -> dict[str, int]:
    """Path (`$.upstreams[0].url`) → number of the line on which the statement that gives it begins. The text
    has to be valid TOML.

    A statement is the fewest lines that are TOML by themselves: inside a list or a long string they are not.
    """
    found: dict[str, int] = {}
    tables: dict[str, int] = {}  # lists of tables, and how many have begun
    table = "$"
    statement: list[str] = []
    begins = 1
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not statement:
            begins = number
        statement.append(line)
        if line.rstrip().endswith(",") and "#" not in line:
            continue  # more of a list follows: a long one would be parsed again at each of its lines
        fields = _parsed("\n".join(statement))
        if fields is None:
            continue
        if statement[0].lstrip().startswith("["):
            table = _opened(fields, tables)
            found.setdefault(table, begins)
        else:
            _note_all(fields, table, begins, found)
        statement = []
    return found


def line_of(path: str, lines: dict[str, int]) -> int | None:
    """The line of this path, or of the nearest thing around it; None when none is there. `[...]` is any key
    of a table, as msgspec has it."""
    table, anything, rest = path.partition("[...]")
    if anything:
        fitting = [each for each in lines if each.startswith(f"{table}.") and each.endswith(rest)]
        path = fitting[0] if rest and len(fitting) == 1 else table
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _opened(header: dict[str, Any], tables: dict[str, int]) -> str:
    """The path of the table that this header opens: it holds one key in another, in a list at last if it is
    one of many."""
    path, inner = "$", header
    while inner:
        ((key, value),) = inner.items()
        path = f"{path}.{key}"
        if isinstance(value, list):
            tables[path] = tables.get(path, 0) + 1
            return f"{path}[{tables[path] - 1}]"
        if path in tables:
            path = f"{path}[{tables[path] - 1}]"
        inner = value
    return path


def _note_all(value: Any, path: str, line: int, found: dict[str, int]) -> None:
    inner: dict[str, Any] = {}
    if isinstance(value, dict):
        inner = {f"{path}.{key}": each for key, each in value.items()}
    elif isinstance(value, list):
        inner = {f"{path}[{at}]": each for at, each in enumerate(value)}
    for where, each in inner.items():
        found.setdefault(where, line)
        _note_all(each, where, line, found)
