"""Reads TOML files, where `${VARIABLE}` is an environment variable, `$${` a literal `${`; writes values."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec


def lines_of(text: str) -> dict[str, int]:
    """Path (`$.upstreams[0].url`) → the number of the first line of its statement, which tomllib does not
    report. The text must be valid TOML.

    A statement is the smallest number of lines that are TOML by themselves.
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
            continue  # the list goes on; a long one would be parsed again at each of its lines
        fields = _parsed("\n".join(statement))
        if fields is None:
            continue
        if statement[0].lstrip().startswith("["):
            table = _table_path(fields, tables)
            found.setdefault(table, begins)
        else:
            _collect_lines(fields, table, begins, found)
        statement = []
    return found


def line_of(path: str, lines: dict[str, int]) -> int | None:
    """The line of this path, or of the nearest path around it; None if there is none. `[...]` is any key of a
    table, as in msgspec's messages."""
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


def _table_path(header: dict[str, Any], tables: dict[str, int]) -> str:
    """The path of the table that this parsed header opens: nested tables of one key each, the last in a list
    if the header is `[[…]]`."""
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


def _collect_lines(value: Any, path: str, line: int, found: dict[str, int]) -> None:
    inner: dict[str, Any] = {}
    if isinstance(value, dict):
        inner = {f"{path}.{key}": each for key, each in value.items()}
    elif isinstance(value, list):
        inner = {f"{path}[{at}]": each for at, each in enumerate(value)}
    for where, each in inner.items():
        found.setdefault(where, line)
        _collect_lines(each, where, line, found)


_LONGEST: Final = 60  # characters that are compared


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The end of a message: ` (did you mean 'port'?)` if a known name is similar, else ""."""
    found = get_close_matches(given[:_LONGEST].lower(), list(known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


_VARIABLE: Final = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_UNKNOWN: Final = "Object contains unknown field `"
_DEEPEST: Final = 32
_PATTERN: Final = "Expected `str` matching regex "  # only settings of durations have a pattern
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


class ConfigError(ValueError):
    """A configuration that can't be used."""

    def __init__(self, message: str, at: str = "", place: str = "", key: str = "") -> None:
        """`at`: the path of the wrong field (`$.upstreams[0].url`), if known. `place`: the file and line
        (`bridge.toml:3`), if known. `key`: an unknown name in the table at `at`."""
        super().__init__(message)
        self.message = message
        self.at = at
        self.place = place
        self.key = key

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        return f"{place}{self.message}" + (f" - at `{self.at}`" if self.at else "")


@contextmanager
def about(at: str) -> Iterator[None]:
    """Prefix the paths of ConfigErrors with this path."""
    try:
        yield
    except ConfigError as error:
        error.at = at + error.at
        raise


@contextmanager
def located(config: Path | None, overridden: Collection[str] = ()) -> Iterator[None]:
    """Add the file and line to ConfigErrors about fields that were not `overridden`."""
    try:
        yield
    except ConfigError as error:
        path = f"{error.at or '$'}.{error.key}" if error.key else error.at
        if config is not None and path and not error.place and _first_name(path) not in overridden:
            error.place = place_in(config, path)
        raise


def place_in(config: Path, path: str) -> str:
    """The file and line of this path, or the file alone if the line is not known."""
    line = line_of(path, lines_of(config.read_text("utf-8")))
    return f"{config}:{line}" if line else str(config)


def _first_name(path: str) -> str:
    return path.removeprefix("$.").partition(".")[0].partition("[")[0]


def read_config(path: Path) -> dict[str, Any]:
    """The file's fields. Raises ConfigError with the file and the line."""
    try:
        read = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(str(error), place=str(path)) from error
    except RecursionError:
        read = None  # for nested lists and tables; dotted keys nest without recursion
    if read is None or _is_deep(read):
        raise ConfigError(f"tables and lists are nested more than {_DEEPEST} deep", place=str(path))
    return read


def _is_deep(fields: dict[str, Any]) -> bool:
    """Whether tables and lists are nested deeper than settings are: functions that read them recurse."""
    level: list[Any] = [fields]
    for _ in range(_DEEPEST):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return bool(level)


def wrong_fields(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> ConfigError:
    """msgspec's error about fields that are not a `kind`, with a suggestion for an unknown name."""
    message, _, at = str(error).partition(" - at `")
    at = at.removesuffix("`")
    if message.startswith(_PATTERN):
        endless = ", or forever" if "forever" in message else ""
        return ConfigError(f"it is not a time such as 30s, 10m, 12h, 30d or 4w{endless}", at)
    if not message.startswith(_UNKNOWN):
        return ConfigError(message, at)
    unknown = message.removeprefix(_UNKNOWN).removesuffix("`")
    known = _names_at(at, msgspec.inspect.type_info(kind))
    return ConfigError(f"{unknown!r} is not a setting{did_you_mean(unknown, known)}", at, key=unknown)


def deprecated_in(given: Any, kind: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """The path of each deprecated field in these fields of a file, and what replaces it, as the field's
    `Meta(extra={"deprecated": …})` says. `kind` is their type from `msgspec.inspect`; what has another shape
    is skipped."""
    kind = _struct_or_list(kind)
    inner: Iterable[tuple[str, Any, Any]] = ()
    if isinstance(kind, msgspec.inspect.StructType) and isinstance(given, dict):
        fields = [field for field in kind.fields if field.encode_name in given]
        inner = [(f"{path}.{each.encode_name}", given[each.encode_name], each.type) for each in fields]
    elif isinstance(kind, msgspec.inspect.DictType) and isinstance(given, dict):
        inner = ((f"{path}.{key}", value, kind.value_type) for key, value in given.items())
    elif isinstance(kind, msgspec.inspect.CollectionType) and isinstance(given, list):
        inner = ((f"{path}[{at}]", value, kind.item_type) for at, value in enumerate(given))
    for where, value, of in inner:
        if replacement := deprecation(of):
            yield where, replacement
        yield from deprecated_in(value, of, where)


def deprecation(kind: Any) -> str:
    """What replaces a field of this type, if it is deprecated; else ""."""
    extra = kind.extra if isinstance(kind, msgspec.inspect.Metadata) else None
    return str((extra or {}).get("deprecated", ""))


def _names_at(path: str, kind: Any) -> list[str]:
    """The fields of the struct at this path below a type."""
    for step in path.replace("[...]", "[*]").replace("[", ".[").split(".")[1:]:
        kind = _struct_or_list(kind)
        if step.startswith("["):
            kind = kind.value_type if isinstance(kind, msgspec.inspect.DictType) else kind.item_type
        else:
            kind = next(field.type for field in kind.fields if field.encode_name == step)
    return [field.encode_name for field in _struct_or_list(kind).fields]


def _struct_or_list(kind: Any) -> Any:
    """The type of a field without its metadata and without None."""
    if isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    given = kind.types if isinstance(kind, msgspec.inspect.UnionType) else [kind]
    return next(each for each in given if not isinstance(each, msgspec.inspect.NoneType))


def substituted(value: Any, kept: Set[str] = frozenset(), where: str = "$") -> Any:
    """The same value with all variables in its strings replaced. Fields named in `kept` stay unchanged, but
    their variables must exist too. Raises ConfigError with the field and the variable."""
    if isinstance(value, str):
        return expanded(value, where)
    if isinstance(value, list):
        return [substituted(each, kept, f"{where}[{at}]") for at, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    found = {name: substituted(each, kept, f"{where}.{name}") for name, each in value.items()}
    return {name: value[name] if name in kept else each for name, each in found.items()}


def expanded(text: str, where: str = "") -> str:
    """The text with its variables replaced; `${NAME:-default}` has a default. Raises ConfigError."""

    def value(found: re.Match[str]) -> str:
        escaped, name, otherwise = found.groups()
        if escaped:
            return str(escaped)
        given = os.environ.get(name) or otherwise
        if given is None:
            raise ConfigError(f"the environment variable {name} is not set", where)
        return given

    return _VARIABLE.sub(value, text)


def as_toml(value: Any) -> str:
    """A value on one line: a table is an inline one, and what does not print is escaped."""
    if isinstance(value, dict):
        fields = ", ".join(f"{toml_key(name)} = {as_toml(each)}" for name, each in value.items())
        return f"{{ {fields} }}" if fields else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if text.isprintable() else "".join(map(_escaped, text))
    return repr(value) if isinstance(value, float) else json.dumps(value)


def toml_key(name: str) -> str:
    """The name of a field, quoted if need be."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else as_toml(name)


def _escaped(sign: str) -> str:
    if sign.isprintable():
        return sign
    return f"\\u{ord(sign):04x}" if sign <= "\uffff" else f"\\U{ord(sign):08x}"


def masked(text: str) -> str:
    """`***` and the variables of a text that may contain a secret; a variable alone stays unchanged."""
    variables = [f"${{{name}}}" for _, name, _ in _VARIABLE.findall(text) if name]
    return text if [text] == variables else " ".join(["***", *variables])


def hashed(key: str) -> str:
    """A key as it is kept: `sha256:` and its hash in hex; such a hash stays unchanged."""
    return key if _HASH.fullmatch(key) else f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def is_among(key: str, hashes: Sequence[str]) -> bool:
    """Whether one of these is the key's hash. All are compared, so that the time reveals nothing. A hash is
    not accepted as a key."""
    shown = hashed(key)
    known = [hmac.compare_digest(shown, each) for each in hashes]
    return any(known) and not key.startswith("sha256:")
