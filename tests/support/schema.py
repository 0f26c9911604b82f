"""The published OpenAPI document as an independent judge: one cached validator per schema.

This module never uses the protocol structs, so that a mistake in them can't hide itself. Two engines read the
schema: a value that `jsonschema_rs` accepts is valid, and for all others `jsonschema` says what is wrong.
"""

import json
from functools import cache
from typing import Any

import jsonschema_rs
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.support.shared import require_shared

_DOCUMENT_URI = "urn:openresponses"
_EVENT_SUFFIX = "StreamingEvent"
_LINE_LENGTH = 300


@cache
def document() -> dict[str, Any]:
    """The newest published OpenAPI document of the shared folder; skips the test when there is none."""
    newest = max((require_shared() / "spec").glob("openresponses-*.openapi.json"))
    loaded: dict[str, Any] = json.loads(newest.read_bytes())
    return loaded


def schemas() -> dict[str, Any]:
    """Every schema of the document, by name."""
    definitions: dict[str, Any] = document()["components"]["schemas"]
    return definitions


@cache
def validator(name: str) -> Draft202012Validator:
    """Return the validator of one schema. Raises KeyError if the document has no schema of that name."""
    if name not in schemas():
        raise KeyError(f"the published document has no schema {name!r}")
    reference = {"$ref": f"{_DOCUMENT_URI}#/components/schemas/{name}"}
    return Draft202012Validator(reference, registry=_registry())


@cache
def quick_validator(name: str) -> jsonschema_rs.Draft202012Validator:
    """Return the validator of the other engine, which is about seventy times as fast."""
    if name not in schemas():
        raise KeyError(f"the published document has no schema {name!r}")
    return jsonschema_rs.Draft202012Validator({**document(), "$ref": f"#/components/schemas/{name}"})


@cache
def event_schemas() -> dict[str, str]:
    """The event's type on the wire → the name of its schema, for the 24 published events."""
    names = [name for name in schemas() if name.endswith(_EVENT_SUFFIX)]
    return {schemas()[name]["properties"]["type"]["enum"][0]: name for name in names}


def violations(name: str, instance: Any) -> list[str]:
    """The schema's violations in the instance, one line each with its path; empty if the instance is valid.
    Raises AssertionError if the two engines disagree."""
    if quick_validator(name).is_valid(instance):
        return []
    errors = [_describe(error) for error in validator(name).iter_errors(instance)]
    assert errors, f"{name}: only one engine finds this invalid: {instance}"
    return errors


def event_violations(event: dict[str, Any]) -> list[str]:
    """Return the violations of an event, according to the schema of its type."""
    name = event_schemas().get(event.get("type", ""))
    return violations(name, event) if name else [f"$.type: {event.get('type')!r} is not a published event"]


@cache
def _registry() -> "Registry[Any]":
    published = DRAFT202012.create_resource(document())
    registry: Registry[Any] = Registry().with_resource(_DOCUMENT_URI, published)
    return registry


def _describe(error: ValidationError) -> str:
    """Return one line about an error; for a failed union, about the branch that was probably meant."""
    branches: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.relative_schema_path[0], []).append(inner)
    meant = [branch for branch in branches.values() if not any(map(_is_of_another_kind, branch))]
    if meant:
        return _describe(meant[0][0])
    return f"{error.json_path}: {error.message}"[:_LINE_LENGTH]


def _is_of_another_kind(error: ValidationError) -> bool:
    path = list(error.relative_path)
    return (error.validator == "type" and not path) or (error.validator == "enum" and path == ["type"])
