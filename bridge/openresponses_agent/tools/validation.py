"""Validates the input of a call against the tool's schema, with errors that a model can act on.

Models send numbers, booleans and JSON as texts, and JSON that is malformed. If the input does not fit, texts
are read as the types in the schema, and malformed JSON is repaired. Both are recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from openresponses_agent.tools.errors import ToolInputError, ToolValidationError
from openresponses_bridge.calls.coercion import coerced_input
from openresponses_bridge.calls.json_text import repaired_json
from openresponses_bridge.errors import InvalidRequestError, ToolError, WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.schemas.checking import check_schema, dialect_of, engine, validator
from openresponses_bridge.schemas.cost import LARGEST_PATTERN, Estimator, TooCostlyError

# Errors have the words of the JSON Schema validators that models know.

_LONGEST: Final = 200  # characters of a value in a message

# keyword → (name of its value in the validator's error, name in `params`, message)
_FACTS: Final[dict[str, tuple[str, str, str]]] = {
    "additionalProperties": ("unexpected", "additionalProperties", "must NOT have additional properties: {}"),
    "const": ("expected_value", "allowedValue", "must be equal to {}"),
    "dependentRequired": ("property", "missingProperty", "must have required property {}"),
    "enum": ("options", "allowedValues", "must be equal to one of the allowed values: {}"),
    "exclusiveMaximum": ("limit", "limit", "must be < {}"),
    "exclusiveMinimum": ("limit", "limit", "must be > {}"),
    "maxItems": ("limit", "limit", "must NOT have more than {} items"),
    "maxLength": ("limit", "limit", "must NOT have more than {} characters"),
    "maxProperties": ("limit", "limit", "must NOT have more than {} properties"),
    "maximum": ("limit", "limit", "must be <= {}"),
    "minItems": ("limit", "limit", "must NOT have fewer than {} items"),
    "minLength": ("limit", "limit", "must NOT have fewer than {} characters"),
    "minProperties": ("limit", "limit", "must NOT have fewer than {} properties"),
    "minimum": ("limit", "limit", "must be >= {}"),
    "multipleOf": ("multiple_of", "multipleOf", "must be a multiple of {}"),
    "pattern": ("pattern", "pattern", "must match the pattern {}"),
    "required": ("property", "missingProperty", "must have required property {}"),
    "type": ("types", "type", "must be {}"),
    "unevaluatedItems": ("unexpected", "unevaluatedItems", "must NOT have more items: {}"),
    "unevaluatedProperties": (
        "unexpected",
        "unevaluatedProperties",
        "must NOT have unevaluated properties: {}",
    ),
}
# keyword → message, for errors without a value
_PLAIN: Final = {
    "additionalItems": "must NOT have more items",
    "additionalProperties": "must NOT have additional properties",
    "anyOf": "must match a schema in anyOf",
    "contains": "must contain a valid item",
    "items": "must NOT have more items",
    "maxContains": "must contain fewer valid items",
    "minContains": "must contain more valid items",
    "not": "must NOT be valid",
    "oneOf": "must match exactly one schema in oneOf",
    "pattern": "can't be checked: its pattern takes too many steps",
    "uniqueItems": "must NOT have duplicate items",
}


def described(error: Any) -> ToolInputError:
    """Return the ToolInputError for one error of the validator. `keyword` is the last step of the schema's
    path that is a keyword."""
    steps = list(error.schema_path)
    keyword = next((step for step in reversed(steps) if step in _FACTS or step in _PLAIN), "false schema")
    facts = error.kind.as_dict()
    params: dict[str, Any] = {}
    if keyword in _FACTS and _FACTS[keyword][0] in facts:
        fact, param, words = _FACTS[keyword]
        value = facts[fact]
        if isinstance(value, list) and keyword == "type":
            value = value[0] if len(value) == 1 else value
        params = {param: value}
        message = words.format(_shown(value, keyword))
    else:
        message = _PLAIN.get(keyword, "must NOT be there: the schema allows nothing here")
    message += _alternatives(facts.get("context"))
    return ToolInputError(_pointer(error.instance_path), f"#{_pointer(steps)}", keyword, params, message)


def _alternatives(context: Any) -> str:
    """Return the first error of each alternative of `anyOf` or `oneOf`."""
    messages = dict.fromkeys(described(errors[0]).message for errors in context or () if errors)
    return f" ({_cut('; or '.join(messages))})" if messages else ""


def _shown(value: Any, keyword: str) -> str:
    if keyword == "type":
        return " or ".join(value) if isinstance(value, list) else str(value)
    if isinstance(value, list):
        return _cut(", ".join(map(_json, value)))
    return f"'{value}'" if keyword in ("required", "dependentRequired") else _cut(_json(value))


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        return str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _pointer(steps: Iterable[str | int]) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


_DEEPEST: Final = 100
NOT_AN_OBJECT: Final = ToolInputError("", "#/type", "type", {"type": "object"}, "must be object")
_NOT_JSON: Final = ToolInputError(
    "", "#", "json", {}, "must be made of JSON values, and of text without half a surrogate pair"
)
DEPTH: Final = "depth"
INVALID_SCHEMA: Final = "bridge.tools.invalid_schema"
_MOST_BYTES: Final = 200_000  # of a schema
_MOST_NODES: Final = 20_000
_MOST_CHARACTERS: Final = 1_000_000  # of arguments
_MOST_UNITS: Final = 4_000_000  # of validation: at most a few seconds
_ALL_ERRORS: Final = 20_000  # up to this number of units all errors are reported, above it only the first
_MOST_ERRORS: Final = 20


class ToolSchema:
    """A tool's schema, ready to validate input. Raises ToolError (`bridge.tools.invalid_schema`) for a schema
    that can't be used: not JSON Schema of a known dialect (2020-12 without `$schema`), with a reference out
    of it or a pattern that is not a regular expression, or too large. `format` is an annotation and is not
    asserted."""

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
            what = "a pattern is not a regular expression or too large, or a reference has no target."
            raise _unusable(tool_name, what) from None
        except (ValueError, RecursionError):
            raise _unusable(tool_name, "it is nested too deeply.") from None

    def errors(self, value: Any) -> list[ToolInputError]:
        """Return the violations in a JSON value, at most 20; none if it is valid."""
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
    repair: bool | None = None,
    notes: list[str] | None = None,
) -> dict[str, Any]:
    """Return the arguments of a call as an object that fits the tool's schema. `arguments` is JSON text, or
    an object that was parsed before; empty text is `{}`.

    Input that does not fit is validated once more, with texts read as the numbers, booleans, objects and
    arrays that the schema requires in their places (`coerced_input`). Text that is not JSON is repaired first
    by json-repair (the extra `repair`): by default where that is installed, with `repair` always, with False
    never. Both are recorded in `notes`. Raises ToolValidationError; ToolError for a schema that can't be
    used; LocalError when an extra is missing.
    """
    judge = schema if isinstance(schema, ToolSchema) else ToolSchema(tool_name, schema)
    changes = notes if notes is not None else []
    value = (
        arguments if isinstance(arguments, dict) else parsed_arguments(tool_name, arguments, repair, changes)
    )
    errors = _judged(judge, value)
    if not errors:
        return value
    if errors[0].keyword == DEPTH:
        raise ToolValidationError(tool_name, errors, None)
    read = coerced_input(value, judge.schema)
    if read.notes and not _judged(judge, read.value):
        changes += read.notes
        return read.value  # type: ignore[no-any-return]
    raise ToolValidationError(tool_name, errors, value)


def deep_parse_nested_json(value: Any) -> Any:
    """Return the value with each string in it that is a JSON object or array parsed, recursively to eight
    levels. Other strings are kept: a text that could be a number is a text. Each level takes time linear in
    the value.
    """
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
    """Return the violations in a call's input. It must be an object, whatever the schema says."""
    if not isinstance(value, dict):
        return [NOT_AN_OBJECT]
    return judge.errors(value)


def parsed_arguments(tool_name: str, arguments: str | bytes, repair: bool | None, notes: list[str]) -> Any:
    """Return the JSON value of a call's arguments. Raises ToolValidationError."""
    if len(arguments) > _MOST_CHARACTERS:
        what = f"is longer than {_MOST_CHARACTERS} characters"
        raise ToolValidationError(tool_name, [_not_json({"limit": _MOST_CHARACTERS}, what)], None)
    if not arguments.strip():
        return {}
    try:
        value = decode_json(arguments)
    except WireError as error:
        value = None if repair is False else repaired_json(arguments, needed=repair is True)
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
