"""The dialects of JSON Schema, and validators that look nothing up outside the schema they are given.

Every validator is built here, offline: it resolves references within its schema and the
published metaschemas. Its patterns run in time linear in the text; those that look around or back, which
only backtracking can match, have a limit of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, Final

from openresponses_bridge.errors import LocalError

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
    """jsonschema-rs. Raises LocalError that names what to install when it is missing."""
    try:
        import jsonschema_rs
    except ImportError:
        raise LocalError(
            "bridge.schemas.engine", "a schema needs jsonschema-rs: pip install 'openresponses-bridge[tools]'"
        ) from None
    return jsonschema_rs


def dialect_of(schema: dict[str, Any]) -> str | None:
    """The address of the dialect that the schema is written in; None when it is not a known one. Without
    `$schema` it is 2020-12."""
    named = schema.get("$schema", _DEFAULT)
    if not isinstance(named, str):
        return None
    address = named.removesuffix("#")
    return address if address in _DIALECTS else None


def validator(
    dialect: str, schema: dict[str, Any], *, formats: bool | None = None, pattern_bytes: int | None = None
) -> Any:
    """A validator of values; `formats` says whether `format` is asserted (None: as the dialect says),
    `pattern_bytes` how large a compiled pattern may be. Raises `jsonschema_rs.ValidationError` for a schema
    that can't be used and ValueError for one that is nested too deeply or isn't Unicode."""
    options = engine().FancyRegexOptions(backtrack_limit=_MOST_STEPS, size_limit=pattern_bytes)
    made = getattr(engine(), _DIALECTS[dialect])
    return made(schema, pattern_options=options, offline=True, validate_formats=formats)


def pattern_fits(pattern: str, compiled_bytes: int, *, backtracks: bool = True) -> bool:
    """Whether a pattern is a regular expression that compiles to so many bytes at most; with
    `backtracks=False` also only where time linear in the text is enough to match it."""
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
    """Whether a text has a match of the pattern, in time linear in the text; None for what is not a regular
    expression, compiles to more bytes, or looks around or back, which that time is not enough for."""
    options = engine().RegexOptions(size_limit=compiled_bytes)
    try:
        made = engine().Draft202012Validator({"pattern": pattern}, pattern_options=options, offline=True)
    except (engine().ValidationError, ValueError):
        return None
    matches: Callable[[str], bool] = made.is_valid
    return matches


@cache
def metaschema(dialect: str) -> Any:
    """A validator of schemas of this dialect."""
    made = getattr(engine(), _DIALECTS[dialect])
    return made({"$ref": dialect}, validate_formats=False, offline=True)
