"""The engine's errors in the terms and words that models know from JSON Schema validators in the field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from openresponses_bridge.tools.errors import ToolInputError

_LONGEST: Final = 200  # characters of a value in a message

# keyword → what the engine calls its fact, what `params` call it, the message about it
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
# keyword → message, for those without a fact
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
    """One error of the engine. `keyword` is the last step of the schema's path that is a keyword."""
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
    """What each alternative of `anyOf` and `oneOf` wants, the first error of each."""
    wanted = dict.fromkeys(described(errors[0]).message for errors in context or () if errors)
    return f" ({_cut('; or '.join(wanted))})" if wanted else ""


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
