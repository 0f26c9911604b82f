"""Checks whether a client's schema can be used, when it arrives.

The check looks only into keywords that contain schemas: a property with the name `$ref` is not a reference,
nor is a `$ref` inside `const` or `examples`. It follows every reference to its target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import ModuleType
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from openresponses_bridge.errors import InvalidRequestError, LocalError
from openresponses_bridge.protocol.codec import encode

# Validators of all these dialects are built offline: they resolve references only within their schema and the
# published metaschemas. Patterns match in time linear in the text, except those with look-around or
# back-references: these need backtracking, whose steps are limited.

_DEFAULT: Final = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS: Final = {
    _DEFAULT: "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}
_MOST_STEPS: Final = 100_000  # of a pattern that backtracks


@cache
def engine() -> ModuleType:
    """Return the module jsonschema_rs. Raises LocalError with what to install if it is missing."""
    try:
        import jsonschema_rs
    except ImportError:
        raise LocalError(
            "bridge.schemas.engine", "a schema needs jsonschema-rs: pip install 'openresponses-bridge[tools]'"
        ) from None
    return jsonschema_rs


def dialect_of(schema: dict[str, Any]) -> str | None:
    """Return the URI of the schema's dialect: that of 2020-12 without `$schema`, None for an unknown
    dialect."""
    named = schema.get("$schema", _DEFAULT)
    if not isinstance(named, str):
        return None
    address = named.removesuffix("#")
    return address if address in _DIALECTS else None


def validator(
    dialect: str, schema: dict[str, Any], *, formats: bool | None = None, pattern_bytes: int | None = None
) -> Any:
    """Return a validator of values. `formats`: whether `format` is asserted (None: as the dialect requires).
    `pattern_bytes`: the most bytes of a compiled pattern. Raises `jsonschema_rs.ValidationError` for a schema
    that can't be used and ValueError for one that is nested too deeply or isn't Unicode."""
    options = engine().FancyRegexOptions(backtrack_limit=_MOST_STEPS, size_limit=pattern_bytes)
    validator_class = getattr(engine(), _DIALECTS[dialect])
    return validator_class(schema, pattern_options=options, offline=True, validate_formats=formats)


def pattern_fits(pattern: str, compiled_bytes: int, *, backtracks: bool = True) -> bool:
    """Return True if a pattern is a regular expression that compiles to at most `compiled_bytes`; with
    `backtracks=False` it must also match in time linear in the text."""
    module = engine()
    options = (
        module.FancyRegexOptions(backtrack_limit=_MOST_STEPS, size_limit=compiled_bytes)
        if backtracks
        else module.RegexOptions(size_limit=compiled_bytes)
    )
    try:
        module.Draft202012Validator({"pattern": pattern}, pattern_options=options, offline=True)
    except (module.ValidationError, ValueError):
        return False
    return True


def linear_pattern(pattern: str, compiled_bytes: int) -> Callable[[str], bool] | None:
    """Return a function that says whether a text has a match of the pattern, in time linear in the text. None
    if the pattern is not a regular expression, compiles to more than `compiled_bytes`, or has look-around or
    back-references, which need backtracking."""
    options = engine().RegexOptions(size_limit=compiled_bytes)
    try:
        checker = engine().Draft202012Validator({"pattern": pattern}, pattern_options=options, offline=True)
    except (engine().ValidationError, ValueError):
        return None
    matches: Callable[[str], bool] = checker.is_valid
    return matches


@cache
def metaschema(dialect: str) -> Any:
    """Return a validator of schemas of this dialect."""
    validator_class = getattr(engine(), _DIALECTS[dialect])
    return validator_class({"$ref": dialect}, validate_formats=False, offline=True)


# Keywords, of all dialects, that contain schemas or refer to them.

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
ANCHORS: Final = ("$anchor", "$dynamicAnchor")
IDS: Final = ("$id", "id")
# their value is a schema or a list of schemas
SCHEMAS: Final = (
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
# their value maps names to schemas, or to lists of names (`dependencies`)
NAMED_SCHEMAS: Final = (
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
)


_LONGEST_KEY: Final = 40  # characters
_LONGEST_PATH: Final = 200


def json_path(steps: Iterable[str | int]) -> str:
    """Return the path of these keys and indexes, such as `$.properties.city`, cut off at a length that fits
    in a message."""
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() or step.removeprefix("$").isidentifier() or step == "*":
            path += f".{step[:_LONGEST_KEY]}"
        else:
            path += f"[{step[:_LONGEST_KEY]!r}]"
        if len(path) > _LONGEST_PATH:
            return f"{path[:_LONGEST_PATH]}…"
    return path


_PATTERNS: Final = frozenset({"pattern", "patternProperties"})
_INDEX: Final = re.compile(r"[0-9]{1,9}")

MOST_DEPTH: Final = 200
"""The most levels of nested values in a schema, since recursive functions check and rewrite it."""
_TOO_DEEP: Final = "it is nested too deeply, or holds half a surrogate pair"
Position = tuple[Any, ...]  # (the position of the container, key or index); () is the root


def check_schema(schema: dict[str, Any], param: str, *, most_bytes: int, most_nodes: int) -> None:
    """Raises InvalidRequestError with this `param` for a schema that is not JSON Schema of a known dialect,
    has a reference to anything outside itself or to nothing, or is larger than these limits. The message
    names the place and the keyword."""
    _Check(schema, param).run(most_bytes, most_nodes)


def has_patterns(schema: dict[str, Any]) -> bool:
    """Return True if a checked schema may contain regular expressions, that is, if one of their keywords is a
    name anywhere in it."""
    rest: list[Any] = [schema]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            if not _PATTERNS.isdisjoint(value):
                return True
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)
    return False


class _Check:
    def __init__(self, root: dict[str, Any], param: str) -> None:
        self._root = root
        self._param = param
        self._anchors: set[str] = set()
        self._named: list[tuple[str, Position]] = []  # anchors that are referred to

    def run(self, most_bytes: int, most_nodes: int) -> None:
        self._check_size(most_bytes, most_nodes)
        dialect = dialect_of(self._root)
        if dialect is None:
            self._refuse("`$schema` at $ names a dialect that is not known here")
        try:
            metaschema(dialect).validate(self._root)
        except engine().ValidationError as error:
            place, keyword = json_path(error.instance_path), error.kind.name
            self._refuse(f"it is not a JSON Schema at {place}: violates {keyword!r}")
        except ValueError:
            self._refuse(_TOO_DEEP)
        self._walk()
        for anchor, where in self._named:
            if anchor not in self._anchors:
                self._refuse(f"the reference at {_shown(where)} has no target")

    def _check_size(self, most_bytes: int, most_nodes: int) -> None:
        nodes, depth = 0, 0
        level: list[Any] = [self._root]
        while level:
            depth += 1
            if depth > MOST_DEPTH:
                self._refuse(_TOO_DEEP)
            below: list[Any] = []
            for value in level:
                nodes += 1
                if isinstance(value, dict):
                    below.extend(value.values())
                elif isinstance(value, list):
                    below.extend(value)
                if nodes + len(below) > most_nodes:
                    self._refuse(f"it has more values than the limit of {most_nodes}")
            level = below
        if len(encode(self._root)) > most_bytes:
            self._refuse(f"it is larger than the limit of {most_bytes} bytes")

    def _walk(self) -> None:
        rest: list[tuple[Any, Position]] = [(self._root, ())]
        seen: set[int] = set()
        while rest:
            schema, where = rest.pop()
            if not isinstance(schema, dict) or id(schema) in seen:
                continue
            seen.add(id(schema))
            self._check_identity(schema, where)
            rest.extend(self._referred(schema, where))
            rest.extend(within(schema, where))

    def _check_identity(self, schema: dict[str, Any], where: Position) -> None:
        """Collect the anchors. Refuse an `$id` below the root: it would give references another base."""
        self._anchors.update(anchor for name in ANCHORS if isinstance(anchor := schema.get(name), str))
        for name in IDS:
            identity = schema.get(name)
            if isinstance(identity, str) and identity.startswith("#"):
                self._anchors.add(identity[1:])
            elif where and identity is not None:
                self._refuse(f"`{name}` at {_shown(where)} is allowed at the root only")
        if where and schema.get("$schema", self._root.get("$schema")) != self._root.get("$schema"):
            self._refuse(f"`$schema` at {_shown(where)} is allowed at the root only")

    def _referred(self, schema: dict[str, Any], where: Position) -> Iterator[tuple[Any, Position]]:
        for name in REFERENCES:
            reference = schema.get(name)
            if reference is None:
                continue
            place = (where, name)
            if not isinstance(reference, str) or not reference.startswith("#"):
                self._refuse(f"`{name}` at {_shown(place)} is not a reference within it, which begins with #")
            fragment = unquote(reference[1:])
            if fragment and not fragment.startswith("/"):
                self._named.append((fragment, place))
                continue
            yield self._target(fragment, place), place

    def _target(self, pointer: str, place: Position) -> Any:
        value: Any = self._root
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
                value = value[int(key)]
            else:
                self._refuse(f"the reference at {_shown(place)} has no target")
        if not isinstance(value, dict | bool):
            self._refuse(f"the reference at {_shown(place)} does not refer to a schema")
        return value

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE, f"The schema can't be used: {what}.", param=self._param
        )


def within(schema: dict[str, Any], where: Position) -> Iterator[tuple[Any, Position]]:
    """Yield the schemas directly inside this one, with their positions."""
    for keyword in SCHEMAS:
        value = schema.get(keyword)
        if isinstance(value, list):
            place = (where, keyword)
            yield from ((each, (place, index)) for index, each in enumerate(value))
        elif value is not None:
            yield value, (where, keyword)
    for keyword in NAMED_SCHEMAS:
        value = schema.get(keyword)
        if isinstance(value, dict):
            place = (where, keyword)
            yield from ((each, (place, name)) for name, each in value.items())


def _shown(where: Position) -> str:
    steps: list[str | int] = []
    while where:
        where, step = where
        steps.append(step)
    return json_path(reversed(steps))
