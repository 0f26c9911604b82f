"""The dialects of JSON Schema, and validators that look nothing up outside the schema they are given.

Every validator of the server is built here, offline: it resolves references within its schema and the
published metaschemas. Its patterns run in time linear in the text; those that look around or back, which
only backtracking can match, have a limit of steps.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import jsonschema_rs as engine

_DEFAULT: Final = "https://json-schema.org/draft/2020-12/schema"
_DIALECTS: Final[dict[str, type[Any]]] = {
    _DEFAULT: engine.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": engine.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": engine.Draft7Validator,
    "http://json-schema.org/draft-06/schema": engine.Draft6Validator,
    "http://json-schema.org/draft-04/schema": engine.Draft4Validator,
}
_PATTERNS: Final = engine.FancyRegexOptions(backtrack_limit=100_000)


def dialect_of(schema: dict[str, Any]) -> str | None:
    """The address of the dialect that the schema is written in; None when it is not a known one. Without
    `$schema` it is 2020-12."""
    named = schema.get("$schema", _DEFAULT)
    if not isinstance(named, str):
        return None
    address = named.removesuffix("#")
    return address if address in _DIALECTS else None


def validator(dialect: str, schema: dict[str, Any]) -> Any:
    """A validator of values. Raises `jsonschema_rs.ValidationError` for a schema that can't be used and
    ValueError for one that is nested too deeply or isn't Unicode."""
    return _DIALECTS[dialect](schema, pattern_options=_PATTERNS, offline=True)


@cache
def metaschema(dialect: str) -> Any:
    """A validator of schemas of this dialect."""
    return _DIALECTS[dialect]({"$ref": dialect}, validate_formats=False, offline=True)
