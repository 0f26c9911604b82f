"""The response from its creation to its end, as `snapshot` and the lifecycle events show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from openresponses_bridge.diagnostics import LONGEST_SHOWN, Diagnostics
from openresponses_bridge.emitter.arguments import extension_type, for_wire
from openresponses_bridge.emitter.failures import CANCELLED, error_event, response_error
from openresponses_bridge.emitter.output import Output
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import tools as tl
from openresponses_bridge.protocol.beyond import bounded_fields
from openresponses_bridge.protocol.codec import with_whole_characters
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import (
    CreateResponse,
    JsonSchemaFormatParam,
    TextParam,
    conversation_of,
)
from openresponses_bridge.protocol.response import (
    RESPONSE_DEFAULTS,
    ErrorPayload,
    Format,
    IncompleteDetails,
    JsonSchemaFormat,
    Reasoning,
    Response,
    TextField,
    TextFormat,
)
from openresponses_bridge.protocol.secrets import without_secrets
from openresponses_bridge.protocol.unknown import UnknownFormat, UnknownTool, UnknownToolChoice
from openresponses_bridge.protocol.usage import Usage, with_extra_of
from openresponses_bridge.state import (
    METHODS,
    PUBLISHED_EFFORTS,
    PUBLISHED_SUMMARIES,
    TERMINAL_EVENT,
    ResponseStreamPhase,
    Wire,
)
from openresponses_bridge.text import repair_surrogates

# The response before any output: the request's fields, echoed as the schema requires.

T = TypeVar("T")
_LONGEST_OF_NAMES = 1024  # characters of an upstream's name for its model, which may be a path
_MOST_FIELDS = 256  # fields that only the upstream's API has, of all its messages together

# efforts that the published schema does not have → the nearest that it has; null would mean that the request
# had none
_NEAREST_EFFORTS = {"minimal": "low", "max": "xhigh"}

_TIER = "service_tier"
# request fields that are copied to the response; for null the response has the schema's default
_PLAIN = (
    "previous_response_id",
    "instructions",
    "truncation",
    "parallel_tool_calls",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    _TIER,
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
)
_plain_of = attrgetter(*_PLAIN)
_CONVERSATION = "conversation"
"""OpenAI's field of a response for the conversation that its request named."""
_PROMPT = "prompt"
"""OpenAI's field of a response for the prompt that its request named."""


def initial_response(
    model: str, request: CreateResponse | None, response_id: str, created_at: int, wire: Wire
) -> Response:
    """Return a response without output, with status `queued`. `created_at` is in Unix seconds."""
    fields: dict[str, Any] = dict(RESPONSE_DEFAULTS)
    if request is not None:
        for name, value in zip(_PLAIN, _plain_of(request), strict=True):
            if value is not None:
                fields[name] = value
        if wire.foreign:  # other APIs report the tier that was used, never one that was asked for
            fields[_TIER] = RESPONSE_DEFAULTS[_TIER]
        fields["tools"] = [_tool(tool, wire) for tool in request.tools] if request.tools else []
        if request.tool_choice is not None:
            fields["tool_choice"] = _choice(request.tool_choice, wire)
        if request.text is not None:
            fields["text"] = TextField(_format(request.text, wire), request.text.verbosity or UNSET)
        if request.reasoning is not None:
            fields["reasoning"] = _reasoning(
                request.reasoning.effort or None, request.reasoning.summary or None, wire
            )
        if wire.openai_items:
            fields["extra"] = _openai_echo(request) or UNSET
    return Response(id=response_id, created_at=created_at, model=model, status="queued", **fields)


def _openai_echo(request: CreateResponse) -> dict[str, Any]:
    echo: dict[str, Any] = {}
    if request.conversation is not None:
        echo[_CONVERSATION] = {"id": conversation_of(request)}
    if request.prompt is not None:
        echo[_PROMPT] = request.prompt
    return echo


def _reasoning_for_wire(used: Reasoning, request_reasoning: Reasoning | None, wire: Wire) -> Reasoning:
    """Return the reasoning settings that the upstream reports, completed by those of the request."""
    effort, summary = used.effort, used.summary
    if request_reasoning is not None:
        effort, summary = effort or request_reasoning.effort, summary or request_reasoning.summary
    shown = _reasoning(effort, summary, wire)
    return replace(shown, extra=used.extra)


def echo_for_wire(response: Response, wire: Wire) -> Response:
    """Return another server's response with the fields that it echoed in the spelling of this wire (law E10)
    and without secrets."""
    if wire.openai_items:
        tools = [without_secrets(tool) for tool in response.tools]
        return response if tools == response.tools else replace(response, tools=tools)
    reasoning, shape = response.reasoning, response.text.format
    if isinstance(shape, JsonSchemaFormat):
        shape = replace(shape, schema=None)
    return replace(
        response,
        tools=[tool if isinstance(tool, tl.FunctionTool) else _tool(tool, wire) for tool in response.tools],
        tool_choice=_choice(response.tool_choice, wire),
        text=replace(response.text, format=TextFormat() if isinstance(shape, UnknownFormat) else shape),
        reasoning=reasoning and _reasoning(reasoning.effort, reasoning.summary, wire),
    )


def _reasoning(effort: str | None, summary: str | None, wire: Wire) -> Reasoning:
    published = _NEAREST_EFFORTS.get(effort or "", effort)
    return Reasoning(
        effort if wire.openai_items else published if published in PUBLISHED_EFFORTS else None,
        summary if wire.openai_items or summary in PUBLISHED_SUMMARIES else None,
    )


def _tool(tool: tl.ToolParam | tl.Tool, wire: Wire) -> tl.Tool:
    if isinstance(tool, tl.FunctionToolParam):
        return tl.FunctionTool(
            tool.name, _given(tool.description), _given(tool.parameters), _given(tool.strict)
        )
    tool = without_secrets(tool)
    if wire.openai_items:
        return tool
    if isinstance(tool, tl.CustomTool):
        # the published schema has only functions, and the model sees this tool as a function too
        parameters = {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
        }
        return tl.FunctionTool(tool.name, _given(tool.description), parameters, None)
    raw = dict(tool.raw) if isinstance(tool, UnknownTool) else _raw(tool)
    return UnknownTool({**raw, "type": extension_type(str(raw.get("type")))})


def _raw(tool: Any) -> dict[str, Any]:
    fields = {name: getattr(tool, name) for name in tool.__struct_fields__}
    return {"type": tool.type} | {name: value for name, value in fields.items() if value is not UNSET}


def _choice(choice: tl.ToolChoice, wire: Wire) -> tl.ToolChoice:
    if wire.openai_items:
        return choice
    if isinstance(choice, tl.AllowedToolChoice):
        return tl.AllowedToolChoice([_function_choice(each) for each in choice.tools], choice.mode)
    if isinstance(choice, UnknownToolChoice):
        function = _function_choice(choice)
        return "required" if function.name is UNSET else function
    return choice


def _function_choice(choice: tl.FunctionToolChoice | UnknownToolChoice) -> tl.FunctionToolChoice:
    """Return the nearest choice that is published: a function, by name if the choice has one."""
    if isinstance(choice, tl.FunctionToolChoice):
        return choice
    name = choice.raw.get("name")
    return tl.FunctionToolChoice(name if isinstance(name, str) else UNSET)


def _format(text: TextParam, wire: Wire) -> Format:
    text_format = text.format or TextFormat()
    if isinstance(text_format, UnknownFormat):
        return text_format if wire.openai_items else TextFormat()
    if not isinstance(text_format, JsonSchemaFormatParam):
        return text_format
    # the published schema admits only null for the echoed schema (openresponses.md, "Schema traps")
    schema = _given(text_format.schema) if wire.openai_items else None
    return JsonSchemaFormat(
        text_format.name or "", _given(text_format.description), schema, bool(text_format.strict)
    )


def _given(value: T | UnsetType | None) -> T | None:
    return None if value is UNSET else value


def _merged(known: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of both; objects with the same name are merged. If there are too many, the first are
    kept."""
    both = {
        name: dict(islice({**known[name], **each}.items(), _MOST_FIELDS))
        for name, each in fields.items()
        if _are_objects(known, name, each)
    }
    return dict(islice({**known, **fields, **both}.items(), _MOST_FIELDS))


def _are_objects(known: dict[str, Any], name: str, value: Any) -> bool:
    return isinstance(value, dict) and isinstance(known.get(name), dict)


SettleUsage = Callable[[Usage | None, Sequence[Item]], Usage | None]
"""Returns the final usage of a response, from the usage that the upstream has reported and the output."""


class LiveResponse:
    """The phase of a response and its `fields`, which contain the output only after the end. `usage` is sent
    in the terminal event only (law E1), for which `settle_usage` may replace it. A total without its parts
    counts as input tokens."""

    __slots__ = (
        "_at_end",
        "_clock",
        "_diagnostics",
        "_echoed",
        "_output",
        "_usage_reported",
        "_wire",
        "fields",
        "phase",
        "settle_usage",
        "stop_sequence",
        "usage",
        "usage_at_start",
    )

    def __init__(
        self,
        model: str,
        request: CreateResponse | None,
        response_id: str,
        clock: Callable[[], float],
        wire: Wire,
        output: Output,
        diagnostics: Diagnostics,
    ) -> None:
        self._diagnostics = diagnostics
        self._clock = clock
        self._wire = wire
        self._output = output
        self.fields = initial_response(
            model if model.isascii() else repair_surrogates(model), request, response_id, int(clock()), wire
        )
        self._echoed = self.fields.extra or {}
        self.phase = ResponseStreamPhase.IDLE
        self.usage: Usage | None = None
        self.usage_at_start: Usage | None = None
        self.settle_usage: SettleUsage | None = None
        self.stop_sequence: str | None = None
        self._at_end: dict[str, Any] = {}
        self._usage_reported: Usage | None = None

    @property
    def snapshot(self) -> Response:
        """The response as it is now, with the partial text of open blocks. Takes time linear in its size."""
        if self.phase is not ResponseStreamPhase.IN_PROGRESS:
            return self.fields
        return replace(self.fields, output=self._output.live())

    def adopt(self, response: Response) -> None:
        """Take over an upstream's response: before the start all its fields, afterwards only the service tier
        and the time of completion, for the terminal event."""
        response = self._readable(response)
        if self.phase is ResponseStreamPhase.IDLE:
            self.fields = replace(
                echo_for_wire(response, self._wire),
                status="queued",
                output=[],
                usage=None,
                error=None,
                completed_at=None,
                incomplete_details=None,
                stop_sequence=UNSET,
                native=UNSET,
            )
            return
        self._at_end[_TIER] = response.service_tier
        if response.completed_at is not None:
            self._at_end["completed_at"] = response.completed_at

    def _readable(self, response: Response) -> Response:
        """Return the response as this wire can express it, without its output, which has its own events."""
        whole = with_whole_characters(replace(response, output=[]))
        return for_wire(self._wire, whole, "response", self._diagnostics)

    def report(self, response: Response) -> None:
        """Take over what an upstream's response reports of itself: before the start for all events,
        afterwards for the terminal event."""
        response = self._readable(response)
        own = self.fields
        facts: dict[str, Any] = {_TIER: response.service_tier}
        if response.reasoning is not None:
            facts["reasoning"] = _reasoning_for_wire(response.reasoning, own.reasoning, self._wire)
        if response.extra:
            facts["extra"] = {**(own.extra or {}), **response.extra, **self._echoed}
            if response.extra.get(_PROMPT):  # it has the version that was used
                facts["extra"][_PROMPT] = response.extra[_PROMPT]
        if response.text.extra:
            facts["text"] = replace(own.text, extra=response.text.extra)
        name = response.upstream_model or response.model
        if name and name != own.model:
            facts["upstream_model"] = name
        if self.phase is not ResponseStreamPhase.IDLE:
            self._usage_reported = response.usage
        self._update(facts)

    def report_names(self, model: object, service_tier: object) -> None:
        """Take over an upstream's names for its model and the service tier."""
        facts: dict[str, Any] = {}
        for what, name in (("model", model), (_TIER, service_tier)):
            if isinstance(name, str) and len(name) > _LONGEST_OF_NAMES:
                self._diagnostics.loss(what, "its name is too long")
                return
        if isinstance(model, str) and model and model != self.fields.model:
            facts["upstream_model"] = model if model.isascii() else repair_surrogates(model)
        if isinstance(service_tier, str) and service_tier:
            facts[_TIER] = repair_surrogates(service_tier)
        if facts:
            self._update(facts)

    def _update(self, facts: dict[str, Any]) -> None:
        if self.phase is ResponseStreamPhase.IDLE:
            self.fields = replace(self.fields, **facts)
        else:
            self._at_end |= facts

    def keep_native(self, dialect: str, fields: dict[str, Any]) -> None:
        """Keep an upstream's fields that only this dialect has: before the start for all events, afterwards
        for the terminal event. An object is merged with an earlier one of the same name."""
        shown, over = bounded_fields(with_whole_characters(fields))
        for name in over:
            self._diagnostics.loss(f"{dialect}.{name[:LONGEST_SHOWN]}", "is too large")
        if not shown:
            return
        is_idle = self.phase is ResponseStreamPhase.IDLE
        previous = self.fields.native if is_idle else self._at_end.get("native", self.fields.native)
        known = previous or {}
        native = {**known, dialect: _merged(known.get(dialect, {}), shown)}
        if is_idle:
            self.fields = replace(self.fields, native=native)
        else:
            self._at_end["native"] = native

    def begin(self) -> list[Event]:
        """Start the response. Returns `response.created` and `response.in_progress`."""
        self.phase = METHODS[self.phase]["start"]["in_progress"]
        self.usage_at_start = self.usage
        self.fields = replace(self.fields, status="in_progress")
        created = ev.ResponseCreated(self._output.number(), self.fields)
        return [created, ev.ResponseInProgress(self._output.number(), self.fields)]

    def end(self, method: str, incomplete: str | None) -> Event:
        """End the response by this method. Returns the terminal event; `incomplete` is the reason if the
        response is not completed, otherwise None."""
        if incomplete is None:
            return self._terminal(method, "completed", completed_at=int(self._clock()))
        if incomplete == CANCELLED and self._wire.cancelled_status == CANCELLED:
            return self._terminal(method, CANCELLED)
        return self._terminal(method, "incomplete", incomplete_details=IncompleteDetails(incomplete))

    def fail(self, payload: ErrorPayload) -> list[Event]:
        """Return `error`, then `response.failed` with the partial output, in which open items are incomplete
        (law E8)."""
        error = error_event(self._output.number(), payload, self._wire)
        return [error, self._terminal("fail", "failed", error=response_error(payload, self._wire))]

    def _terminal(self, method: str, status: str, **facts: Any) -> Event:
        self.phase = METHODS[self.phase][method][status]
        output = self._output.live("incomplete")
        facts |= self._at_end
        if status == "completed":
            # a clock may go back, and an upstream's may differ from ours
            facts["completed_at"] = max(facts["completed_at"], self.fields.created_at)
            facts["stop_sequence"] = self.stop_sequence or UNSET
        else:
            facts.pop("completed_at", None)
        if self.settle_usage is not None:
            self.usage = self.settle_usage(self.usage, output)
        if self.usage is not None and self.usage.has_only_total:
            self.usage = Usage.of(self.usage.total_tokens, 0, estimated=self.usage.estimated is True)
        if self.usage is not None and self._usage_reported is not None:
            self.usage = with_extra_of(self.usage, self._usage_reported)
        self.fields = replace(self.fields, status=status, usage=self.usage, output=output, **facts)
        event: Event = TERMINAL_EVENT[status](self._output.number(), self.fields)
        return event
