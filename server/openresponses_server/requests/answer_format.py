"""`text.format` json_schema and json_object over an upstream that has neither: asked for in words, and
checked when the answer is there. An answer that does not fit is a failure, and never called completed.
"""

from __future__ import annotations

import json
from enum import Enum, auto
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.items import Message
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, Response
from openresponses_bridge.schemas.checking import check_schema
from openresponses_server.runs.schema_workers import ANY_OBJECT, Question, SchemaJudge
from openresponses_server.settings import Limits

_FENCE: Final = "```"


def schema_of(request: CreateResponse) -> dict[str, Any] | None:
    """The JSON Schema that the request wants its answer to fit, None when it wants text."""
    if request.text is None:
        return None
    format = request.text.format
    if isinstance(format, JsonObjectFormat):
        return ANY_OBJECT
    if isinstance(format, JsonSchemaFormatParam):
        return format.schema if isinstance(format.schema, dict) else ANY_OBJECT
    return None


def check_format(request: CreateResponse, limits: Limits, param: str) -> None:
    """Raises InvalidRequestError with this `param` for a schema that can't be used, whichever upstream is
    asked."""
    schema = schema_of(request)
    if schema is not None and schema is not ANY_OBJECT:
        check_schema(schema, param, most_bytes=limits.schema_bytes, most_nodes=limits.schema_nodes)


async def check_patterns(judge: SchemaJudge, request: CreateResponse, owner: str, param: str) -> None:
    """Raises InvalidRequestError with this `param` for a schema whose patterns can't be used to judge an
    answer by. The schema has been checked otherwise."""
    schema = schema_of(request)
    why = None if schema is None else await judge.unusable(schema, owner)
    if why is not None:
        what = f"The schema can't be used: {why}."
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=param)


def instructed(request: CreateResponse) -> CreateResponse:
    """The request with its schema asked for in words, for an upstream that at most promises JSON."""
    schema = schema_of(request)
    if schema is None or request.text is None:
        return request
    wish = (
        "Answer with one JSON value and nothing around it: no explanation and no code fence. It must be "
        f"valid against this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"
    )
    instructions = f"{request.instructions}\n\n{wish}" if request.instructions else wish
    return replace(request, instructions=instructions, text=replace(request.text, format=JsonObjectFormat()))


class _At(Enum):
    HEAD = auto()  # only white space and perhaps the beginning of a fence so far
    OPENING = auto()  # in the line of the opening fence
    FENCED = auto()
    PLAIN = auto()


class AnswerFormat:
    """Takes a code fence off the answer as it streams, and asks at the end if it fits. Models that were asked
    not to put one around it do so all the same."""

    def __init__(self, request: CreateResponse) -> None:
        self._schema = schema_of(request) or ANY_OBJECT
        self._at = _At.HEAD
        self._start = ""  # of the text, behind white space, while it may be a fence
        self._held: list[str] = []

    def feed(self, delta: str) -> str:
        """What can be shown of the text so far."""
        if self._at is _At.PLAIN:
            return delta
        if self._at is _At.FENCED:
            return self._fenced(delta)
        self._held.append(delta)
        return self._head(delta) if self._at is _At.HEAD else self._opening(delta)

    def close(self) -> str:
        """What was held back and is not a fence."""
        rest = self._take_held()
        return "" if self._at is _At.FENCED else rest

    def question(self, response: Response) -> Question | None:
        """What has to be judged before the response may end as completed; None when the model did something
        else than answer: it called a tool or refused."""
        messages = [item for item in response.output if isinstance(item, Message)]
        refused = any(part.type == "refusal" for item in messages for part in item.content)
        if refused or any(item.type.endswith("_call") for item in response.output):
            return None
        return Question(self._schema, response.output_text)

    def _head(self, delta: str) -> str:
        start = self._start + (delta if self._start else delta.lstrip())
        if len(start) < len(_FENCE) and _FENCE.startswith(start):
            self._start = start
            return ""
        if start.startswith(_FENCE):
            self._at = _At.OPENING
            return self._opening(start)
        self._at = _At.PLAIN
        return self._take_held()

    def _opening(self, delta: str) -> str:
        _, end, rest = delta.partition("\n")
        if not end:
            return ""
        self._at = _At.FENCED
        self._held.clear()
        return self._fenced(rest)

    def _fenced(self, delta: str) -> str:
        """All but an end that may turn out to be the closing fence."""
        self._held.append(delta)
        if not delta or delta.isspace():
            return ""
        text = self._take_held()
        shown = text.rstrip()
        ticks = min(len(shown) - len(shown.rstrip("`")), len(_FENCE))
        shown = shown[: len(shown) - ticks].rstrip()
        self._held.append(text[len(shown) :])
        return shown

    def _take_held(self) -> str:
        held = "".join(self._held)
        self._held.clear()
        return held
