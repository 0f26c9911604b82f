"""A call's input judged by its tool's schema, with errors that a model can act on.

Models send JSON inside of JSON strings, and JSON that is not quite JSON. The former is tried when the
input does not fit as it is; the latter is repaired only where that is asked for, and noted.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from openresponses_bridge.errors import InvalidRequestError, ToolError, WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.schemas.checking import check_schema
from openresponses_bridge.schemas.cost import LARGEST_PATTERN, Estimator, TooCostlyError
from openresponses_bridge.schemas.dialects import dialect_of, engine, validator
from openresponses_bridge.tools.errors import ToolInputError, ToolValidationError
from openresponses_bridge.tools.repair import repaired_json
from openresponses_bridge.tools.violations import described

NOT_AN_OBJECT: Final = ToolInputError("", "#/type", "type", {"type": "object"}, "must be object")
_NOT_JSON: Final = ToolInputError(
    "", "#", "json", {}, "must be made of JSON values, and of text without half a surrogate pair"
)
DEPTH: Final = "depth"
INVALID_SCHEMA: Final = "bridge.tools.invalid_schema"
_MOST_BYTES: Final = 200_000  # of a schema
_MOST_NODES: Final = 20_000
_MOST_CHARACTERS: Final = 1_000_000  # of arguments
_DEEPEST: Final = 100  # levels of an input
_MOST_UNITS: Final = 4_000_000  # of judging: a few seconds at the very most
_ALL_ERRORS: Final = 20_000  # up to so many units all errors are found, beyond them the first
_MOST_ERRORS: Final = 20


class ToolSchema:
    """A tool's schema, ready to judge by. Raises ToolError (`bridge.tools.invalid_schema`) for one that can't
    be used: not JSON Schema of a known dialect (2020-12 where none is declared), a reference out of it, a
    pattern that is not a regular expression, too large. `format` is an annotation and is not asserted."""

    __slots__ = ("_errors", "_estimator", "_validator", "schema")

    def __init__(self, tool_name: str, schema: dict[str, Any]) -> None:
        self.schema = schema
        self._errors = engine().ValidationError
        try:
            check_schema(schema, "input_schema", most_bytes=_MOST_BYTES, most_nodes=_MOST_NODES)
            self._estimator = Estimator(schema)
            self._validator = validator(
                dialect_of(schema) or "", schema, formats=False, pattern_bytes=LARGEST_PATTERN
            )
        except InvalidRequestError as error:
            raise _unusable(tool_name, error.message) from None
        except self._errors:
            what = "a pattern is not a regular expression or too large, or a reference leads nowhere."
            raise _unusable(tool_name, what) from None
        except (ValueError, RecursionError):
            raise _unusable(tool_name, "it is nested too deeply.") from None

    def errors(self, value: Any) -> list[ToolInputError]:
        """What is wrong with a JSON value: nothing, or at most 20 errors."""
        if _deeper(value, _DEEPEST):
            return [_too_deep()]
        try:
            msgspec.json.encode(value)
            units = self._estimator.units(value, _MOST_UNITS)
            if self._validator.is_valid(value):
                return []
            if units <= _ALL_ERRORS:
                return [described(each) for each in self._validator.iter_errors(value)][:_MOST_ERRORS]
            self._validator.validate(value)
        except TooCostlyError as error:
            return [ToolInputError("", "#", "cost", {}, f"can't be checked: {error.message}")]
        except self._errors as error:
            return [described(error)]
        except (ValueError, TypeError):
            return [_NOT_JSON]
        return []


def validate_tool_input(
    tool_name: str,
    arguments: str | bytes | dict[str, Any],
    schema: dict[str, Any] | ToolSchema,
    *,
    repair: bool = False,
    notes: list[str] | None = None,
) -> dict[str, Any]:
    """A call's arguments as its tool's schema wants them: a JSON text, or an object already parsed.

    Input that does not fit is tried once more with the JSON inside of its strings read
    (`deep_parse_nested_json`). With `repair`, text that is not JSON is repaired first (json-repair, the extra
    `repair`). What was done of both is appended to `notes`. No arguments at all are `{}`. Raises
    ToolValidationError; ToolError for a schema that can't be used; LocalError when an extra is missing.
    """
    judge = schema if isinstance(schema, ToolSchema) else ToolSchema(tool_name, schema)
    made = notes if notes is not None else []
    value = arguments if isinstance(arguments, dict) else parsed_arguments(tool_name, arguments, repair, made)
    errors = _judged(judge, value)
    if not errors:
        return value
    if errors[0].keyword == DEPTH:
        raise ToolValidationError(tool_name, errors, None)
    parsed = deep_parse_nested_json(value)
    if parsed != value and not _judged(judge, parsed):
        made.append("JSON inside of strings was read")
        return parsed  # type: ignore[no-any-return]
    raise ToolValidationError(tool_name, errors, value)


def deep_parse_nested_json(value: Any) -> Any:
    """The value with each string in it that is a JSON object or array replaced by that, in turn read the same
    way. Other strings stay: text that happens to be a number is text. Takes time linear in the value for each
    level of strings in strings, of which eight are read."""
    return _deep_parsed(value, 8)


def _deep_parsed(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        if not levels or value.lstrip()[:1] not in ("{", "["):
            return value
        try:
            inner = decode_json(value)
        except WireError:
            return value
        return value if _deeper(inner, _DEEPEST) else _deep_parsed(inner, levels - 1)
    if isinstance(value, list):
        return [_deep_parsed(each, levels) for each in value]
    if isinstance(value, dict):
        return {name: _deep_parsed(each, levels) for name, each in value.items()}
    return value


def _judged(judge: ToolSchema, value: Any) -> list[ToolInputError]:
    """Whatever the schema says, a tool is called with an object."""
    if not isinstance(value, dict):
        return [NOT_AN_OBJECT]
    return judge.errors(value)


def parsed_arguments(tool_name: str, arguments: str | bytes, repair: bool, notes: list[str]) -> Any:
    """The JSON value that a call's arguments are. Raises ToolValidationError."""
    if len(arguments) > _MOST_CHARACTERS:
        what = f"is longer than {_MOST_CHARACTERS} characters"
        raise ToolValidationError(tool_name, [_not_json({"limit": _MOST_CHARACTERS}, what)], None)
    if not arguments.strip():
        return {}
    try:
        value = decode_json(arguments)
    except WireError as error:
        value = repaired_json(arguments) if repair else None
        if value is None:
            raise ToolValidationError(
                tool_name, [_not_json({}, f"is not JSON: {error.message}")], arguments
            ) from None
        notes.append("the arguments were not JSON and were repaired")
    if _deeper(value, _DEEPEST):
        raise ToolValidationError(tool_name, [_too_deep()], None)
    return value


def _too_deep() -> ToolInputError:
    return ToolInputError("", "#", DEPTH, {"limit": _DEEPEST}, f"is nested deeper than {_DEEPEST} levels")


def _not_json(params: dict[str, Any], message: str) -> ToolInputError:
    return ToolInputError("", "#", "json", params, message)


def _deeper(value: Any, most: int) -> bool:
    rest = [(value, 1)]
    while rest:
        each, level = rest.pop()
        if isinstance(each, dict | list):
            if level > most:
                return True
            rest.extend((one, level + 1) for one in (each.values() if isinstance(each, dict) else each))
    return False


def _unusable(tool_name: str, what: str) -> ToolError:
    return ToolError(
        INVALID_SCHEMA, f"the input schema of the tool {tool_name!r}: {what}", tool_name=tool_name
    )
