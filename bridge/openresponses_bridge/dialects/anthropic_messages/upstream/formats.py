"""The format of an answer: what the API can enforce, and what is put into the instructions instead."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages.models import MessagesOptions, ModelFacts, facts_of
from openresponses_bridge.dialects.base import AnswerFormat, AnswerWay
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.schemas.checking import REFERENCES, within
from openresponses_bridge.schemas.rewriting import Form, SchemaRewriter

_NOT_ENFORCED: Final = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems"),
        *("minProperties", "maxProperties", "patternProperties", "propertyNames"),
        *("dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"),
        *("contains", "minContains", "maxContains", "not", "if", "then", "else", "$schema", "$id"),
    }
)
"""The keywords that the API refuses in a schema for the answer."""
_FORMS: Final[frozenset[Form]] = frozenset({"closed_objects"})
_ANY_OBJECT: Final = {"type": "object"}


def answer_way(format: AnswerFormat, model: str, options: MessagesOptions) -> AnswerWay:
    """Return how this model is made to answer in this format."""
    facts = options.facts or facts_of(model)
    if isinstance(format, JsonSchemaFormatParam):
        if facts.structured and enforceable(format.schema or _ANY_OBJECT, Diagnostics()) is not None:
            return AnswerWay.NATIVE
        if facts.known and facts.forced_calls:
            return AnswerWay.FUNCTION
    return AnswerWay.INSTRUCTED


def is_closed(schema: Any) -> bool:
    """Return True if every object in a JSON schema forbids additional properties, as strict mode requires."""
    if isinstance(schema, list):
        return all(map(is_closed, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return False
    return all(map(is_closed, schema.values()))


def enforceable(schema: dict[str, Any], diagnostics: Diagnostics) -> dict[str, Any] | None:
    """Return the schema in a form that the API enforces, with changes as losses; None if there is none,
    because its objects may have any properties or it refers to itself."""
    rewriter = SchemaRewriter(_NOT_ENFORCED, _FORMS)
    rewritten = rewriter.rewrite(schema)
    if not is_closed(rewritten) or _may_recur(rewritten):
        return None
    for change in rewriter.changes:
        diagnostics.loss("text.format.schema", change)
    return rewritten


def _may_recur(schema: dict[str, Any]) -> bool:
    """Return True if a reference leads, or may lead, to a schema that contains it. References to definitions
    are followed; any other may."""
    root = schema
    open_names: list[str] = []
    done: set[str] = set()

    def visit(each: Any) -> bool:
        rest = [each]
        while rest:
            part = rest.pop()
            if not isinstance(part, dict):
                continue
            for name in REFERENCES:
                if (reference := part.get(name)) is not None and leads_back(str(reference)):
                    return True
            rest.extend(sub for sub, where in within(part, ()) if not _is_definition(where))
        return False

    def leads_back(reference: str) -> bool:
        _, keyword, name = [*reference.split("/", 2), "", ""][:3]
        if keyword not in _DEFINITIONS or "/" in name or reference in open_names:
            return True
        if reference in done:
            return False
        open_names.append(reference)
        if len(open_names) > _MOST_NESTED or visit(root.get(keyword, {}).get(name)):
            return True
        done.add(open_names.pop())
        return False

    return visit(root)


_DEFINITIONS: Final = ("$defs", "definitions")
_MOST_NESTED: Final = 50  # definitions that refer to each other


def _is_definition(where: tuple[Any, ...]) -> bool:
    (above, _) = where
    return bool(above) and above[1] in _DEFINITIONS


def text_format(
    request: CreateResponse, facts: ModelFacts, diagnostics: Diagnostics
) -> tuple[dict[str, Any] | None, str]:
    """Return (the format that the API enforces, the instruction to the model instead)."""
    requested = request.text.format if request.text is not None else None
    if not requested or isinstance(requested, TextFormat):
        return None, ""
    if isinstance(requested, JsonObjectFormat):
        diagnostics.loss("text.format", "instructed, not enforced")
        return None, "Answer with one JSON object and nothing else: no prose, no code fence."
    if not isinstance(requested, JsonSchemaFormatParam):
        diagnostics.loss(f"text.format.{requested.type[:64]}", "Anthropic has no such format")
        return None, ""
    schema = requested.schema or _ANY_OBJECT
    enforced = enforceable(schema, diagnostics) if facts.structured else None
    if enforced is not None:
        return {"type": "json_schema", "schema": enforced}, ""
    diagnostics.loss("text.format", "instructed, not enforced")
    return None, (
        "Answer with JSON that is valid under this JSON Schema and nothing else: no prose, no code fence.\n"
        + encode(schema).decode()
    )
