"""Whether a schema that a client sends can be used at all, decided when it comes.

The walk knows which keywords hold a schema: a property that is called `$ref` is not a reference, nor
is one inside `const` or `examples`. What a reference leads to is walked too, wherever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.schemas.dialects import dialect_of, engine, metaschema
from openresponses_bridge.schemas.json_paths import json_path
from openresponses_bridge.schemas.keywords import ANCHORS, IDS, NAMED_SCHEMAS, REFERENCES, SCHEMAS

_PATTERNS: Final = frozenset({"pattern", "patternProperties"})
_INDEX: Final = re.compile(r"[0-9]{1,9}")

Position = tuple[Any, ...]  # (the position of the container, key or index); () is the root


def check_schema(schema: dict[str, Any], param: str, *, most_bytes: int, most_nodes: int) -> None:
    """Raises InvalidRequestError with this `param` for what is not a JSON Schema of a known dialect, refers
    to anything outside itself or to what is not in it, or is larger than these limits. The message names the
    place and the keyword."""
    _Check(schema, param).run(most_bytes, most_nodes)


def has_patterns(schema: dict[str, Any]) -> bool:
    """Whether a checked schema may hold regular expressions: one of their keywords is a name in it."""
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
            self._refuse("it is nested too deeply, or holds half a surrogate pair")
        self._walk()
        for anchor, where in self._named:
            if anchor not in self._anchors:
                self._refuse(f"the reference at {_shown(where)} leads nowhere")

    def _check_size(self, most_bytes: int, most_nodes: int) -> None:
        nodes, rest = 0, [self._root]
        while rest:
            value: Any = rest.pop()
            nodes += 1
            if nodes + len(rest) > most_nodes:
                self._refuse(f"it has more values than the limit of {most_nodes}")
            if isinstance(value, dict):
                rest.extend(value.values())
            elif isinstance(value, list):
                rest.extend(value)
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
        """One schema is one document: an `$id` within it would give references another base."""
        self._anchors.update(anchor for name in ANCHORS if isinstance(anchor := schema.get(name), str))
        for name in IDS:
            identity = schema.get(name)
            if isinstance(identity, str) and identity.startswith("#"):
                self._anchors.add(identity[1:])
            elif where and identity is not None:
                self._refuse(f"`{name}` at {_shown(where)} may stand at the root only")
        if where and schema.get("$schema", self._root.get("$schema")) != self._root.get("$schema"):
            self._refuse(f"`$schema` at {_shown(where)} may stand at the root only")

    def _referred(self, schema: dict[str, Any], where: Position) -> Iterator[tuple[Any, Position]]:
        for name in REFERENCES:
            reference = schema.get(name)
            if reference is None:
                continue
            place = (where, name)
            if not isinstance(reference, str) or not reference.startswith("#"):
                self._refuse(f"`{name}` at {_shown(place)} leads out of it, and only # references are taken")
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
                self._refuse(f"the reference at {_shown(place)} leads nowhere")
        if not isinstance(value, dict | bool):
            self._refuse(f"the reference at {_shown(place)} does not lead to a schema")
        return value

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE, f"The schema can't be used: {what}.", param=self._param
        )


def within(schema: dict[str, Any], where: Position) -> Iterator[tuple[Any, Position]]:
    """The schemas that stand directly in this one."""
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
