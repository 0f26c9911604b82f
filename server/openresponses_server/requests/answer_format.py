"""`text.format` json_schema and json_object: how the upstream is asked for such an answer, and how its text
is checked.

If the upstream does not enforce a schema, the model is forced to call a function with that schema, or is
instructed, and its answer is checked (`requests.formatted_stream`).
"""

from __future__ import annotations

import json
from enum import Enum, auto
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.dialects.base import AnswerWay, effort_of
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.protocol.tools import FunctionToolChoice, FunctionToolParam
from openresponses_bridge.schemas.checking import check_schema
from openresponses_server.requests.prepared import Translated
from openresponses_server.requests.service import Service
from openresponses_server.runs.schema_workers import ANY_JSON, ANY_OBJECT
from openresponses_server.settings import Limits
from openresponses_server.upstreams.routing.attempts import AnswerPlan
from openresponses_server.upstreams.targets import Target

ANSWER: Final = "give_answer"
"""The name of the function whose arguments are the answer."""
WAYS: Final = {
    AnswerWay.FUNCTION: "by a forced function, judged by the server",
    AnswerWay.INSTRUCTED: "instructed, judged by the server",
}
"""How the losses describe each way."""


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


async def check_patterns(request: Translated, service: Service) -> Translated:
    """Raises InvalidRequestError for a schema whose patterns can't be matched within the limits, if the
    upstream does not enforce it; if it does, the answer is not checked against them. `check_format` checks
    everything else."""
    plan = request.form.plan
    if plan is None or plan.schema is None:
        return request
    why = await service.judge.unusable(plan.schema, request.owner)
    if why is None:
        return request
    if plan.way is AnswerWay.NATIVE:
        unjudged = replace(request.form, plan=replace(plan, schema=None))
        return replace(request, unreadable_patterns=True, form=unjudged)
    what = f"The schema can't be used: {why}."
    raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=request.schema_param)


def way_of(
    request: CreateResponse, target: Target, *, may_force: bool = True, refused: bool = False
) -> AnswerWay | None:
    """Return the way in which this upstream is asked for the answer; None for text. A function is forced only
    if there is nothing else to call (`may_force`), no reasoning, and no stop sequence, and its arguments are
    an object. `refused`: the upstream has refused another way."""
    schema = schema_of(request)
    if schema is None or request.text is None or not request.text.format:
        return None
    way = target.dialect.side.answers(request.text.format, target.model, target.options)  # type: ignore[arg-type]
    if refused or way is AnswerWay.INSTRUCTED:
        return AnswerWay.INSTRUCTED
    if way is AnswerWay.NATIVE:
        return way
    is_object = schema.get("type") == "object"
    reasons = effort_of(request) not in (None, "none")
    forces = may_force and is_object and not reasons and not request.stop
    return way if forces else AnswerWay.INSTRUCTED


def asked_in(
    way: AnswerWay, request: CreateResponse, target: Target, *, refused: bool = False
) -> CreateResponse:
    """The request that asks this upstream in this way; `refused`: it has refused another way."""
    if way is AnswerWay.INSTRUCTED:
        request = with_schema_instructions(request)
        if refused or not _takes_json_object(request, target):
            request = replace(request, text=replace(request.text, format=TextFormat()))  # type: ignore[type-var]
        return request
    if way is AnswerWay.FUNCTION and request.text is not None:
        return _with_function(request)
    return request


def _takes_json_object(request: CreateResponse, target: Target) -> bool:
    side = target.dialect.side
    return (
        request.text is not None
        and isinstance(request.text.format, JsonObjectFormat)
        and side.answers(request.text.format, target.model, target.options) is AnswerWay.NATIVE
    )


def with_schema_instructions(request: CreateResponse) -> CreateResponse:
    """The request with its schema in the instructions, for an upstream that supports at most json_object. A
    schema of something else is asked for as text."""
    schema = schema_of(request)
    if schema is None or request.text is None:
        return request
    instruction = f"{_JSON_ALONE} It must be {_fitting(schema)}"
    instructions = f"{request.instructions}\n\n{instruction}" if request.instructions else instruction
    format = JsonObjectFormat() if schema.get("type") == "object" else TextFormat()
    return replace(request, instructions=instructions, text=replace(request.text, format=format))


_JSON_ALONE: Final = "Answer with one JSON value and nothing around it: no explanation and no code fence."


def _fitting(schema: dict[str, Any]) -> str:
    return f"valid against this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"


def correction(objection: str, schema: dict[str, Any], way: AnswerWay) -> str:
    """Return the message that asks the model for another answer because the first did not fit. It repeats the
    schema unless the model was instructed with it."""
    what = f"{objection} {_JSON_ALONE}"
    return what if way is AnswerWay.INSTRUCTED else f"{what} It must be {_fitting(schema)}"


def _with_function(request: CreateResponse) -> CreateResponse:
    text_format: Any = request.text and request.text.format
    about = f"Gives the answer. {text_format.description}" if text_format.description else "Gives the answer."
    function = FunctionToolParam(ANSWER, about, text_format.schema, text_format.strict)
    return replace(
        request,
        tools=[function],
        tool_choice=FunctionToolChoice(ANSWER),
        parallel_tool_calls=None,
        max_tool_calls=None,
        text=replace(request.text, format=UNSET),  # type: ignore[type-var]
    )


def plan_of(request: CreateResponse, way: AnswerWay, *, adapted: bool, streams: bool) -> AnswerPlan | None:
    """Return how to treat the text of an answer that was asked for in this way; `adapted`: with another
    schema; `streams`: the client is sent the text as it is made.

    A native answer is judged if the request is strict, if its schema was changed, or if any JSON was asked
    for. Text is held until it is judged if another answer may replace it: when the model is only instructed,
    and when the client waits for the whole answer anyway."""
    schema = schema_of(request)
    if schema is None or request.text is None:
        return None
    format = request.text.format
    if way is AnswerWay.NATIVE:
        if isinstance(format, JsonObjectFormat):
            schema = ANY_JSON
        elif not adapted and not (isinstance(format, JsonSchemaFormatParam) and format.strict is True):
            schema = None
    return AnswerPlan(way, schema, holds=way is AnswerWay.INSTRUCTED or not streams)


# The JSON in what a model says. Models add code fences and words around it, although they are instructed
# not to.

_FENCE: Final = "```"
_BRACKETS: Final = (("{", "}"), ("[", "]"))


def json_in(text: str) -> str:
    """The JSON value in a text that also has a code fence or words around it; the text without white space
    around it if none is found. What is tried: all of it, what stands in its fence, and from the first to the
    last bracket of a kind, in the time of a few readings of the text."""
    whole = text.strip()
    if _is_json(whole):
        return whole
    opening, rest = whole.find(_FENCE), whole.rfind(_FENCE)
    if 0 <= opening < rest:
        _, _, inner = whole[opening:rest].partition("\n")
        if _is_json(inner := inner.strip()):
            return inner
    for first, last in sorted(_BRACKETS, key=lambda pair: whole.find(pair[0])):
        start, end = whole.find(first), whole.rfind(last)
        if 0 <= start < end and _is_json(inner := whole[start : end + 1]):
            return inner
    return whole


_reader = msgspec.json.Decoder(msgspec.Raw)  # reads and makes nothing of it, in a tenth of the time


def _is_json(text: str) -> bool:
    try:
        _reader.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return False
    return True


class _FenceState(Enum):
    HEAD = auto()  # only white space and perhaps a part of a fence so far
    OPENING = auto()  # in the line of the opening fence
    FENCED = auto()
    PLAIN = auto()


class FenceFilter:
    """Strips a code fence from a text that is streamed."""

    def __init__(self) -> None:
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
