"""The keywords of JSON Schema that hold schemas or lead to them, of all dialects that are known."""

from __future__ import annotations

from typing import Final

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
ANCHORS: Final = ("$anchor", "$dynamicAnchor")
IDS: Final = ("$id", "id")
# keywords whose value is a schema or a list of them
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
# keywords whose value names schemas, or lists of words (`dependencies`)
NAMED_SCHEMAS: Final = (
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
)
