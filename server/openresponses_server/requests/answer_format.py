"""`text.format` json_schema and json_object for upstreams without them: the schema goes into the instructions
and the output is checked against it. Output that does not match fails the response.
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
from openresponses_server.requests.prepared import PreparedRequest
from openresponses_server.requests.service import Service
from openresponses_server.runs.schema_workers import ANY_OBJECT, SchemaCheck
from openresponses_server.settings import Limits

_FENCE: Final = "```"


def schema_of(request: CreateResponse) -> dict[str, Any] | None:
    """The JSON Schema of `text.format`; None for text."""
    if request.text is None:
        return None
    format = request.text.format
    if isinstance(format, JsonObjectFormat):
        return ANY_OBJECT
    if isinstance(format, JsonSchemaFormatParam):
        return format.schema if isinstance(format.schema, dict) else ANY_OBJECT
    return None


def check_format(request: CreateResponse, limits: Limits, param: str) -> None:
    """Raises InvalidRequestError with this `param` for a schema that can't be used with any upstream."""
    schema = schema_of(request)
    if schema is not None and schema is not ANY_OBJECT:
        check_schema(schema, param, most_bytes=limits.schema_bytes, most_nodes=limits.schema_nodes)


async def check_patterns(request: PreparedRequest, service: Service) -> None:
    """Raises InvalidRequestError for a schema that the upstream does not enforce and whose patterns can't be
    matched within the limits. `check_format` checks everything else."""
    schema = schema_of(request.body) if request.translated.format_unenforced else None
    why = None if schema is None else await service.judge.unusable(schema, request.owner)
    if why is not None:
        what = f"The schema can't be used: {why}."
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=request.schema_param)


def with_schema_instructions(request: CreateResponse) -> CreateResponse:
    """The request with its schema in the instructions, for an upstream that supports at most json_object."""
    schema = schema_of(request)
    if schema is None or request.text is None:
        return request
    instruction = (
        "Answer with one JSON value and nothing around it: no explanation and no code fence. It must be "
        f"valid against this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"
    )
    instructions = f"{request.instructions}\n\n{instruction}" if request.instructions else instruction
    return replace(request, instructions=instructions, text=replace(request.text, format=JsonObjectFormat()))


class _FenceState(Enum):
    HEAD = auto()  # only white space and perhaps a part of a fence so far
    OPENING = auto()  # in the line of the opening fence
    FENCED = auto()
    PLAIN = auto()


class AnswerFormat:
    """Strips a code fence from the streamed output, which models add although they are instructed not to, and
    gives the output and its schema to be judged at the end."""

    def __init__(self, request: CreateResponse) -> None:
        self._schema = schema_of(request) or ANY_OBJECT
        self._state = _FenceState.HEAD
        self._start = ""  # of the text after white space, while it may be a fence
        self._buffer: list[str] = []

    def feed(self, delta: str) -> str:
        """The text that is known not to be a part of a fence."""
        if self._state is _FenceState.PLAIN:
            return delta
        if self._state is _FenceState.FENCED:
            return self._fenced(delta)
        self._buffer.append(delta)
        return self._head(delta) if self._state is _FenceState.HEAD else self._opening(delta)

    def close(self) -> str:
        """The rest of the buffer, unless it is a closing fence."""
        rest = self._drain()
        return "" if self._state is _FenceState.FENCED else rest

    def question(self, response: Response) -> SchemaCheck | None:
        """What must be judged before the response may complete; None when the model called a tool or
        refused."""
        messages = [item for item in response.output if isinstance(item, Message)]
        refused = any(part.type == "refusal" for item in messages for part in item.content)
        if refused or any(item.type.endswith("_call") for item in response.output):
            return None
        return SchemaCheck(self._schema, response.output_text)

    def _head(self, delta: str) -> str:
        start = self._start + (delta if self._start else delta.lstrip())
        if len(start) < len(_FENCE) and _FENCE.startswith(start):
            self._start = start
            return ""
        if start.startswith(_FENCE):
            self._state = _FenceState.OPENING
            return self._opening(start)
        self._state = _FenceState.PLAIN
        return self._drain()

    def _opening(self, delta: str) -> str:
        _, end, rest = delta.partition("\n")
        if not end:
            return ""
        self._state = _FenceState.FENCED
        self._buffer.clear()
        return self._fenced(rest)

    def _fenced(self, delta: str) -> str:
        """The text without an end that may be the closing fence."""
        self._buffer.append(delta)
        if not delta or delta.isspace():
            return ""
        text = self._drain()
        shown = text.rstrip()
        ticks = min(len(shown) - len(shown.rstrip("`")), len(_FENCE))
        shown = shown[: len(shown) - ticks].rstrip()
        self._buffer.append(text[len(shown) :])
        return shown

    def _drain(self) -> str:
        text = "".join(self._buffer)
        self._buffer.clear()
        return text
