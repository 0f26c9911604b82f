"""`text.format` json_schema and json_object over an upstream that has neither: asked for in words, and
checked when the answer is there. An answer that does not fit is a failure, and never called completed.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from msgspec.structs import replace
from referencing.exceptions import Unresolvable

from bridge.errors import InvalidRequestError, WireError
from bridge.protocol.codec import decode_json
from bridge.protocol.items import Message
from bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from bridge.protocol.response import JsonObjectFormat, Response

_ANY_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_FENCE: Final = "```"
# the end of a text that may turn out to be a closing fence
_CLOSING: Final = re.compile(r"\s*`{0,3}\s*\Z")
_LONGEST_REASON: Final = 300  # characters


def schema_of(request: CreateResponse) -> dict[str, Any] | None:
    """The JSON Schema that the request wants its answer to fit, None when it wants text."""
    format = request.text.format if request.text is not None else None
    if isinstance(format, JsonObjectFormat):
        return _ANY_OBJECT
    if isinstance(format, JsonSchemaFormatParam):
        return format.schema if isinstance(format.schema, dict) else _ANY_OBJECT
    return None


def instructed(request: CreateResponse) -> CreateResponse:
    """The request with its schema asked for in words, for an upstream that at most promises JSON.

    Raises InvalidRequestError for a schema that is none.
    """
    schema = schema_of(request)
    if schema is None or request.text is None:
        return request
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE,
            f"the schema is no JSON Schema: {error.message[:_LONGEST_REASON]}",
            param="text.format.schema",
        ) from error
    wish = (
        "Answer with one JSON value and nothing around it: no explanation and no code fence. It must be "
        f"valid against this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"
    )
    instructions = f"{request.instructions}\n\n{wish}" if request.instructions else wish
    return replace(request, instructions=instructions, text=replace(request.text, format=JsonObjectFormat()))


class AnswerFormat:
    """Takes a code fence off the answer as it streams, and judges it at the end. Models that were told
    not to put one around it do so all the same."""

    def __init__(self, request: CreateResponse) -> None:
        self._schema = schema_of(request) or _ANY_OBJECT
        self._held = ""
        self._begun = False
        self._fenced = False

    def feed(self, delta: str) -> str:
        """What can be shown of the text so far."""
        self._held += delta
        if not self._begun and not self._begin():
            return ""
        if not self._fenced:
            return self._release(len(self._held))
        closing = _CLOSING.search(self._held)
        return self._release(closing.start() if closing else len(self._held))

    def close(self) -> str:
        """What was held back and is no fence."""
        rest, self._held = self._held, ""
        return "" if self._fenced else rest

    def objection(self, response: Response) -> str | None:
        """Why the answer does not fit; None when it does, or when the model did something else than
        answer: it called a tool or refused."""
        messages = [item for item in response.output if isinstance(item, Message)]
        refused = any(part.type == "refusal" for item in messages for part in item.content)
        if refused or any(item.type.endswith("_call") for item in response.output):
            return None
        try:
            value = decode_json(response.output_text)
            Draft202012Validator(self._schema).validate(value)
        except WireError as error:
            return f"The answer is not JSON: {error.message[:_LONGEST_REASON]}"
        except ValidationError as error:
            return f"The answer does not fit the schema at {error.json_path}: violates {error.validator!r}"
        except Unresolvable as error:
            return f"The schema refers to what is not in it: {str(error)[:_LONGEST_REASON]}"
        return None

    def _begin(self) -> bool:
        """Whether it is known by now if a fence opens the text."""
        start = self._held.lstrip()
        if not start or (len(start) < len(_FENCE) and _FENCE.startswith(start)):
            return False
        if start.startswith(_FENCE):
            _, end, rest = start.partition("\n")
            if not end:
                return False
            self._fenced, self._held = True, rest
        self._begun = True
        return True

    def _release(self, size: int) -> str:
        shown, self._held = self._held[:size], self._held[size:]
        return shown
