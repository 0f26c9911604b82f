"""Reads TOML files in which `${VARIABLE}` is an environment variable and `$${` a literal `${`, and writes
values."""

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
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from openresponses_bridge.text import escaped, printable

_Kind = TypeVar("_Kind")


def lines_of(text: str) -> dict[str, int]:
    """Path (`$.upstreams[0].url`) → the number of the first line of its statement, which tomllib does not
    report. The text must be valid TOML.

    A statement is the smallest number of lines that are TOML by themselves.
    """
    lines: dict[str, int] = {}
    tables: dict[str, int] = {}  # lists of tables → how many of their tables have begun
    table = "$"
    statement: list[str] = []
    begins = 1
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not statement:
            begins = number
        statement.append(line)
        if line.rstrip().endswith(",") and "#" not in line:
            continue  # the list continues; a long one would be parsed again at each of its lines
        fields = _parsed("\n".join(statement))
        if fields is None:
            continue
        if statement[0].lstrip().startswith("["):
            table = _table_path(fields, tables)
            lines.setdefault(table, begins)
        else:
            _collect_lines(fields, table, begins, lines)
        statement = []
    return lines


def line_of(path: str, lines: dict[str, int]) -> int | None:
    """Return the line of this path, or of the nearest path around it; None if there is none. `[...]` is any
    key of a table, as in msgspec's messages."""
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
    """Return the path of the table that this parsed header opens: nested tables of one key each, the last one
    in a list if the header is `[[…]]`."""
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


def _collect_lines(value: Any, path: str, line: int, lines: dict[str, int]) -> None:
    inner: dict[str, Any] = {}
    if isinstance(value, dict):
        inner = {f"{path}.{key}": each for key, each in value.items()}
    elif isinstance(value, list):
        inner = {f"{path}[{at}]": each for at, each in enumerate(value)}
    for where, each in inner.items():
        lines.setdefault(where, line)
        _collect_lines(each, where, line, lines)


_LONGEST: Final = 60  # compared characters


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message: ` (did you mean 'port'?)` if a known name is similar, else ""."""
    matches = get_close_matches(name[:_LONGEST].lower(), list(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


_VARIABLE: Final = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_ENUM: Final = "Invalid enum value "
_DEEPEST: Final = 32
_PATTERN: Final = "Expected `str` matching regex "
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


class ConfigError(ValueError):
    """A configuration that can't be used."""

    def __init__(self, message: str, at: str = "", place: str = "", key: str = "") -> None:
        """`at` is the path of the wrong field (`$.upstreams[0].url`), if known. `place` is the file and line
        (`bridge.toml:3`), if known. `key` is an unknown name in the table at `at`."""
        super().__init__(message)
        self.message = message
        self.others: list[ConfigError] = []
        """The other mistakes in the same configuration."""
        self.usable: Any = None
        """The configuration without what is wrong in it, if that can be used."""
        self.at = at
        self.place = place
        self.key = key

    def __str__(self) -> str:
        """Return all mistakes, one per line."""
        return "\n".join(each.line for each in self.all)

    @property
    def all(self) -> list[ConfigError]:
        """This mistake and the others."""
        return [self, *self.others]

    @property
    def path(self) -> str:
        """The path of the mistake, even if it is a wrong name; "" if it is not known."""
        return f"{self.at or '$'}.{self.key}" if self.key else self.at

    @property
    def line(self) -> str:
        """This mistake only, with its place."""
        place = f"{self.place}: " if self.place else ""
        at = self.at.removeprefix("$").removeprefix(".")
        return printable(f"{place}{at and f'{at}: '}{self.message}")


class Mistakes:
    """Collects mistakes, so that a user sees all of them at once."""

    def __init__(self) -> None:
        self._found: list[ConfigError] = []

    @property
    def count(self) -> int:
        """The number of mistakes that were added so far."""
        return len(self._found)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Collect the ConfigErrors of a step, so that the next step runs despite them. A mistake inside or
        around the place of an earlier one is left out, since it follows from that."""
        try:
            yield
        except ConfigError as error:
            self.extend(error)

    def extend(self, error: ConfigError) -> None:
        """Add a mistake and the others that it has."""
        for each in error.all:
            self.add(each)

    def add(self, error: ConfigError) -> None:
        """Add a mistake, unless there is one at its place."""
        error.others = []
        if not any(
            _is_within(error.path, each.path) or _is_within(each.path, error.path) for each in self._found
        ):
            self._found.append(error)

    def check(self, usable: Any = None) -> None:
        """Raise the first mistake, with the others and with what is `usable`, if there are mistakes."""
        if self._found:
            first, *others = self._found
            first.others, first.usable = others, usable
            raise first


def _is_within(path: str, around: str) -> bool:
    return bool(around) and path.startswith(around) and path[len(around) :][:1] in ("", ".", "[")


@contextmanager
def about(at: str) -> Iterator[None]:
    """Prefix the paths of ConfigErrors with this path."""
    try:
        yield
    except ConfigError as error:
        for each in error.all:
            each.at = at + each.at
        raise


@contextmanager
def located(config: Path | None, overridden: Collection[str] = ()) -> Iterator[None]:
    """Add the file and line to ConfigErrors about fields that were not `overridden`."""
    try:
        yield
    except ConfigError as error:
        for each in error.all:
            if config is None or not each.path or each.place or _first_name(each.path) in overridden:
                continue
            each.place = place_in(config, each.path)
        raise


def place_in(config: Path, path: str) -> str:
    """Return the file and line of this path; the file only if the line is not known."""
    line = line_of(path, lines_of(text_of(config)))
    return f"{config}:{line}" if line else str(config)


def _first_name(path: str) -> str:
    return path.removeprefix("$.").partition(".")[0].partition("[")[0]


def text_of(path: Path) -> str:
    """Return the text of a TOML file, without the byte order mark of editors on Windows. Raises OSError and
    UnicodeDecodeError."""
    return path.read_text("utf-8-sig")


def read_config(path: Path) -> dict[str, Any]:
    """Return the file's fields. Raises ConfigError with the file and the line."""
    try:
        read = tomllib.loads(text_of(path))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        what = f"the file is not UTF-8: byte 0x{error.object[error.start]:02x}"
        raise ConfigError(what, place=f"{path}:{line}") from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(str(error), place=str(path)) from error
    except RecursionError:
        read = None  # for nested lists and tables; dotted keys nest without recursion
    if read is None or _is_deep(read):
        raise ConfigError(f"tables and lists are nested more than {_DEEPEST} deep", place=str(path))
    return read


def _is_deep(fields: dict[str, Any]) -> bool:
    """Return True if tables and lists are nested more deeply than those of settings: functions that read them
    recurse."""
    level: list[Any] = [fields]
    for _ in range(_DEEPEST):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return bool(level)


def converted(fields: Any, kind: type[_Kind], at: str = "$") -> _Kind:
    """Return the fields, which are at this path, as a `kind`. Raises ConfigError with everything that is
    wrong in them; its `usable` is the result without that."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError:
        mistakes = Mistakes()
        usable = _usable(fields, kind, at, mistakes)
        mistakes.check(None if usable is _DROPPED else msgspec.convert(usable, kind))
        raise


_DROPPED: Final = object()


def _usable(value: Any, kind: Any, at: str, mistakes: Mistakes) -> Any:
    """Return a value without its parts that are wrong for a `kind`, each of which is added to `mistakes`;
    `_DROPPED` if nothing is left. msgspec itself names only the first mistake."""
    try:
        msgspec.convert(value, kind)
        return value
    except msgspec.ValidationError as error:
        wrong = error
    before = mistakes.count
    for of in _alternatives(kind):
        left = value
        if isinstance(value, dict) and isinstance(of, type) and issubclass(of, msgspec.Struct):
            fields = _types_of(of)
            for name in value:
                if name not in fields:
                    meant = did_you_mean(name, fields)
                    mistakes.add(ConfigError(f"{name!r} is not a setting{meant}", at, key=name))
            known = {name: each for name, each in value.items() if name in fields}
            left = _without_dropped(known, fields, at, mistakes)
        elif isinstance(value, dict) and get_origin(of) is dict:
            left = _without_dropped(value, dict.fromkeys(value, get_args(of)[1]), at, mistakes)
        elif isinstance(value, list) and get_origin(of) is list:
            left = [
                _usable(each, get_args(of)[0], f"{at}[{number}]", mistakes)
                for number, each in enumerate(value)
            ]
            left = _DROPPED if _DROPPED in left else left
        else:
            continue
        if mistakes.count == before:
            mistakes.add(_wrong_value(wrong, value, kind, at))
        return left if _is_usable(left, kind) else _DROPPED
    mistakes.add(_wrong_value(wrong, value, kind, at))
    return _DROPPED


@cache
def _types_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of a struct's fields, by their names in files. Cached, since msgspec evaluates each
    annotation anew."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def _without_dropped(
    fields: dict[str, Any], kinds: dict[str, Any], at: str, mistakes: Mistakes
) -> dict[str, Any]:
    left = {name: _usable(each, kinds[name], f"{at}.{name}", mistakes) for name, each in fields.items()}
    return {name: each for name, each in left.items() if each is not _DROPPED}


def _is_usable(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _alternatives(kind: Any) -> Iterator[Any]:
    """Yield the types that a value may have, without metadata."""
    if get_origin(kind) is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for each in get_args(kind):
            yield from _alternatives(each)
    else:
        yield kind


def _wrong_value(error: msgspec.ValidationError, value: Any, kind: Any, at: str) -> ConfigError:
    """Return msgspec's error about a value at this path, with the allowed values if they are few."""
    message, _, inside = str(error).partition(" - at `")
    at += inside.removesuffix("`").removeprefix("$")
    if message.startswith(_PATTERN):
        if "smhdw" not in message:
            return ConfigError("it is not a name of 1 to 64 letters, digits, - and _", at)
        endless = ", or forever" if "forever" in message else ""
        return ConfigError(f"it is not a time such as 30s, 10m, 12h, 30d or 4w{endless}", at)
    known = [each for of in _alternatives(kind) if get_origin(of) is Literal for each in get_args(of)]
    if message.startswith(_ENUM) and known and not inside:
        message += f", not one of: {', '.join(known)}{did_you_mean(str(value), known)}"
    return ConfigError(message, at)


def deprecated_in(data: Any, kind: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Yield the path of each deprecated field in these fields of a file, and what replaces it, from the
    field's `Meta(extra={"deprecated": …})`. `kind` is their type from `msgspec.inspect`; fields of another
    shape are skipped."""
    kind = _struct_or_list(kind)
    inner: Iterable[tuple[str, Any, Any]] = ()
    if isinstance(kind, msgspec.inspect.StructType) and isinstance(data, dict):
        fields = [field for field in kind.fields if field.encode_name in data]
        inner = [(f"{path}.{each.encode_name}", data[each.encode_name], each.type) for each in fields]
    elif isinstance(kind, msgspec.inspect.DictType) and isinstance(data, dict):
        inner = ((f"{path}.{key}", value, kind.value_type) for key, value in data.items())
    elif isinstance(kind, msgspec.inspect.CollectionType) and isinstance(data, list):
        inner = ((f"{path}[{at}]", value, kind.item_type) for at, value in enumerate(data))
    for where, value, of in inner:
        if replacement := deprecation(of):
            yield where, replacement
        yield from deprecated_in(value, of, where)


def deprecation(kind: Any) -> str:
    """Return what replaces a field of this type, if it is deprecated; else ""."""
    extra = kind.extra if isinstance(kind, msgspec.inspect.Metadata) else None
    return str((extra or {}).get("deprecated", ""))


def _struct_or_list(kind: Any) -> Any:
    """Return the type of a field without its metadata and without None."""
    if isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else [kind]
    return next(each for each in kinds if not isinstance(each, msgspec.inspect.NoneType))


def substituted(value: Any, kept: Set[str] = frozenset(), where: str = "$") -> Any:
    """Return the value with all variables in its strings replaced. Fields named in `kept` stay unchanged, but
    their variables must exist too. Raises ConfigError with the fields and their variables."""
    mistakes = Mistakes()
    replaced = _substituted(value, kept, where, mistakes)
    mistakes.check()
    return replaced


def _substituted(value: Any, unexpanded: Set[str], where: str, mistakes: Mistakes) -> Any:
    if isinstance(value, str):
        try:
            return expanded(value, where)
        except ConfigError as error:
            mistakes.add(error)
            return value
    if isinstance(value, list):
        return [_substituted(each, unexpanded, f"{where}[{at}]", mistakes) for at, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    fields = {
        name: _substituted(each, unexpanded, f"{where}.{name}", mistakes) for name, each in value.items()
    }
    return {name: value[name] if name in unexpanded else each for name, each in fields.items()}


def expanded(text: str, where: str = "") -> str:
    """Return the text with its variables replaced; `${NAME:-default}` has a default. Raises ConfigError."""

    def value(match: re.Match[str]) -> str:
        escaped, name, otherwise = match.groups()
        if escaped:
            return str(escaped)
        replacement = os.environ.get(name) or otherwise
        if replacement is None:
            raise ConfigError(f"the environment variable {name} is not set", where)
        return replacement

    return _VARIABLE.sub(value, text)


def as_toml(value: Any) -> str:
    """Return a value on one line: a table becomes an inline table, and characters that do not print are
    escaped."""
    if isinstance(value, dict):
        fields = ", ".join(f"{toml_key(name)} = {as_toml(each)}" for name, each in value.items())
        return f"{{ {fields} }}" if fields else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, str):
        return escaped(json.dumps(value, ensure_ascii=False), _toml_escape)
    return repr(value) if isinstance(value, float) else json.dumps(value)


def toml_key(name: str) -> str:
    """Return the name of a field, quoted if need be."""
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else as_toml(name)


def _toml_escape(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if sign <= "\uffff" else f"\\U{ord(sign):08x}"


def masked(text: str) -> str:
    """Return `***` and the variables of a text that may contain a secret. A text that is only a variable is
    returned unchanged."""
    variables = [f"${{{name}}}" for _, name, _ in _VARIABLE.findall(text) if name]
    return text if [text] == variables else " ".join(["***", *variables])


def hashed(key: str) -> str:
    """Return a key as it is stored: `sha256:` and its hash in hex. Such a hash is returned unchanged."""
    return key if _HASH.fullmatch(key) else f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def is_among(key: str, hashes: Sequence[str]) -> bool:
    """Return True if the key's hash is one of these. All are compared, so that the time reveals nothing. A
    hash is not accepted as a key."""
    shown = hashed(key)
    known = [hmac.compare_digest(shown, each) for each in hashes]
    return any(known) and not key.startswith("sha256:")
