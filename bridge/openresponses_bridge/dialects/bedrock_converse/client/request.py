"""Converts a request of Converse to one of ours, and reports what that can't express."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    CACHE_OF_PARTS,
    EFFORTS,
    EXPLICIT,
    Fields,
    body_of,
    envelope_in,
    extension,
    invalid,
    object_in,
    open_reasoning,
    place,
)
from openresponses_bridge.dialects.bedrock_converse.carried import (
    ADDITIONAL,
    CarriedFields,
    system_text,
)
from openresponses_bridge.dialects.bedrock_converse.client.content import PartReader, kind_in
from openresponses_bridge.dialects.bedrock_converse.models import BUDGETS
from openresponses_bridge.dialects.bedrock_converse.reasoning import seal_reasoning
from openresponses_bridge.dialects.bedrock_converse.types import (
    CACHE_POINT,
    GUARDED,
    REASONING,
    REASONING_TEXT,
    REDACTED,
    SLUG,
    TIERS,
)
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as it
from openresponses_bridge.protocol import request as rq
from openresponses_bridge.protocol import tools as tl
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.unknown import Extensible, UnknownItem, UnknownTool
from openresponses_bridge.seal import Sealer, SealError

_ENCRYPTED: Final = "reasoning.encrypted_content"
_ROLES: Final = ("user", "assistant", "system")
_SHOWN: Final = 64
_PATHS: Final = "additionalModelResponseFieldPaths"
_STOPPED: Final = ["/stop_sequence"]
_VARIABLES: Final = "promptVariables"
_CHANGES: Final = ("toolAddition", "toolRemoval")
_CHOICES: Final[dict[str, tl.ToolChoiceValue]] = {"auto": "auto", "any": "required"}


class MessageReader:
    """Converts messages to items, in order. Fields without a counterpart are carried. Raises
    InvalidRequestError with the place of the error."""

    def __init__(self, sealer: Sealer, diagnostics: Diagnostics, carried: CarriedFields) -> None:
        self._sealer = sealer
        self._diagnostics = diagnostics
        self._carried = carried
        self._content = PartReader(carried)
        self.items: list[Any] = []
        self._parts: list[Any] = []
        self._role: Any = "user"
        self._first = 0  # number of items before this message

    def message(self, message: Fields) -> None:
        """Read one message of the request."""
        role = message.one_of("role", _ROLES)
        if role is None:
            raise invalid(message.at("role"), "is required")
        self._role, self._first = role, len(self.items)
        message.need("content", list)
        for block in message.each("content"):
            kind = kind_in(block)
            read = _ITEMS.get(kind)
            if kind == CACHE_POINT:
                self._point(block)
            elif read is not None:
                self._flush()
                read(self, block)
            else:
                self._parts.append(self._part(block, place(len(self.items), len(self._parts))))
        self._flush()
        for where in message.unread_here:
            self._diagnostics.loss(where, "can't be expressed")

    def _part(self, block: Fields, where: str) -> Any:
        return self._content.read(block, where, output=self._role == "assistant")

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            if self._role == "system":
                self._carried.inline.add(len(self.items))
            self.items.append(it.MessageParam(self._role, parts))

    def _point(self, block: Fields) -> None:
        """Keep a cache point with the block before it; of several at one place the last counts."""
        point = block.whole()
        if self._parts:
            last = self._parts[-1]
            if isinstance(last, Extensible):
                self._parts[-1] = replace(last, extra=EXPLICIT)
            self._carried.report([CACHE_OF_PARTS])
            self._carried.points[place(len(self.items), len(self._parts) - 1)] = point
        elif len(self.items) > self._first:
            self._carried.report([CACHE_POINT])
            self._carried.points[place(len(self.items) - 1)] = point
        else:
            self._diagnostics.loss(block.param, "a cache point without content before it")

    def _tool_use(self, block: Fields) -> None:
        call = block.inner("toolUse")
        call_id, name = _word(call, "toolUseId"), _word(call, "name")
        if call.get("type", str) is not None:
            self._hosted(block)
            return
        arguments = encode(call.need("input", dict)).decode()
        self._keep(call)
        self.items.append(it.FunctionCallParam(call_id, name, arguments))

    def _tool_result(self, block: Fields) -> None:
        result = block.inner("toolResult")
        call_id = _word(result, "toolUseId")
        if result.get("type", str) is not None:
            self._hosted(block)
            return
        at = len(self.items)
        result.need("content", list)
        output = [self._result(each, at, number) for number, each in enumerate(result.each("content"))]
        status = result.one_of("status", ("success", "error"))
        failed: Any = "incomplete" if status == "error" else UNSET  # the mark of a failed call
        own = {} if status != "success" else {"status": status}
        self._keep(result, **(own if output else own | {"content": []}))
        self.items.append(it.FunctionCallOutputParam(call_id, output or "", status=failed))

    def _result(self, block: Fields, at: int, number: int) -> Any:
        return self._content.read(block, place(at, number), output=False)

    def _keep(self, read: Fields, **fields: Any) -> None:
        """Carry the fields that were not read, and these, for the next item."""
        self._carried.report(read.unread_here)
        rest = read.rest() | fields
        if rest:
            self._carried.blocks[place(len(self.items))] = rest

    def _reasoning(self, block: Fields) -> None:
        content = block.inner(REASONING)
        thought = content.maybe_inner(REASONING_TEXT)
        text = "" if thought is None else thought.need("text", str)
        opaque = content.need(REDACTED, str) if thought is None else thought.get("signature", str)
        if opaque and (envelope := envelope_in(opaque)) is not None:
            self._foreign(envelope, content.param)
            return
        parts: Any = [ct.ReasoningTextContent(text)] if text else UNSET
        sealed: Any = UNSET
        if opaque:
            sealed = seal_reasoning(self._sealer, content.whole())
        else:
            self._carried.wholes[place(len(self.items))] = block.whole()
        self.items.append(it.ReasoningParam([], content=parts, encrypted_content=sealed))

    def _foreign(self, envelope: str, where: str) -> None:
        """Open another upstream's reasoning."""
        try:
            self.items += open_reasoning(self._sealer, envelope)
        except SealError as error:
            self._diagnostics.loss(where, f"can't be opened here ({error.code})")

    def _hosted(self, block: Fields) -> None:
        """Keep a block of a tool that Bedrock ran, or that changes the tools."""
        kind = kind_in(block)
        if kind in _CHANGES:
            why = "tools that come and go within a conversation are known to Bedrock alone"
            self._carried.needed[block.at(kind)] = why
        raw = {"type": extension(SLUG, kind), "id": "", "status": "completed", "role": self._role}
        self.items.append(UnknownItem({**raw, "block": block.whole()}))


_ITEMS: Final[dict[str, Callable[[MessageReader, Fields], None]]] = {
    "toolUse": MessageReader._tool_use,
    "toolResult": MessageReader._tool_result,
    REASONING: MessageReader._reasoning,
    **dict.fromkeys(_CHANGES, MessageReader._hosted),
}


def from_converse(
    body: bytes | str | Mapping[str, Any], sealer: Sealer | None = None
) -> tuple[rq.CreateResponse, Diagnostics]:
    """Translate a request. Returns (request, losses). The model and whether the answer is streamed are in the
    path. `sealer` seals the reasoning in the history. Raises InvalidRequestError with `param`, as
    `messages[0].content[1].image.source.bytes`."""
    diagnostics, fields, carried = Diagnostics(), body_of(body), CarriedFields()
    reader = MessageReader(sealer or Sealer(), diagnostics, carried)
    for message in fields.each("messages"):
        reader.message(message)
    if not reader.items:
        raise invalid("messages", "at least one message is required")
    carried.items = len(reader.items)
    inference = fields.maybe_inner("inferenceConfig") or Fields({}, "inferenceConfig")
    config = fields.maybe_inner("toolConfig") or Fields({}, "toolConfig")
    request = rq.CreateResponse(
        input=reader.items,
        instructions=_system(fields, carried),
        tools=_tools(config, carried),
        tool_choice=_tool_choice(config),
        text=_text(fields, carried),
        max_output_tokens=_limit(inference),
        temperature=inference.get("temperature", float),
        top_p=inference.get("topP", float),
        stop=_stops(inference),
        include=[_ENCRYPTED],
        service_tier=_tier(fields, carried),
        store=False,
    )
    reasoning, top_k = _own_fields(fields, carried)
    for read in (inference, config):
        carried.report(read.unread_here)
    carried.inference = inference.rest()
    fields.skip("modelId")
    carried.body |= fields.rest()
    if _VARIABLES in carried.body:
        carried.needed[_VARIABLES] = "a prompt that Bedrock keeps can't be read by this model: send messages"
    reported = (ADDITIONAL, *([_PATHS] if carried.body.get(_PATHS) == _STOPPED else []))
    carried.report(name[:_SHOWN] for name in carried.body if name not in reported)
    return replace(request, reasoning=reasoning, top_k=top_k, native=carried.native()), diagnostics


def _system(fields: Fields, carried: CarriedFields) -> str | None:
    for block in fields.each("system"):
        kind = kind_in(block)
        if kind == "text":
            block.need("text", str)
        elif kind in (GUARDED, CACHE_POINT):
            carried.report([CACHE_POINT if kind == CACHE_POINT else block.at(kind)])
        else:
            carried.needed[block.at(kind)] = f"{kind[:_SHOWN]!r} is not known"
        carried.system.append(block.whole())
    return system_text(carried.system) or None


def _tools(config: Fields, carried: CarriedFields) -> list[Any] | None:
    tools: list[Any] = []
    for tool in config.each("tools"):
        kind = kind_in(tool)
        if kind == "toolSpec":
            tools.append(_function(tool.inner(kind), carried))
        elif kind == CACHE_POINT:
            carried.report([CACHE_POINT])
        else:
            tools.append(UnknownTool({"type": extension(SLUG, kind), "tool": tool.whole()}))
        carried.tools.append(tool.whole())
    return tools or None


def _function(spec: Fields, carried: CarriedFields) -> tl.FunctionToolParam:
    schema = spec.inner("inputSchema")
    tool = tl.FunctionToolParam(
        _word(spec, "name"),
        spec.get("description", str) or UNSET,
        schema.need("json", dict),
        bool(spec.get("strict", bool)),
    )
    carried.report([*spec.unread_here, *schema.unread_here])
    return tool


def _tool_choice(config: Fields) -> Any:
    choice = config.maybe_inner("toolChoice")
    if choice is None:
        return None
    kind = kind_in(choice)
    if kind == "tool":
        return tl.FunctionToolChoice(_word(choice.inner(kind), "name"))
    if kind not in _CHOICES:
        raise invalid(choice.param, "expected auto, any or tool")
    return _CHOICES[kind]


def _text(fields: Fields, carried: CarriedFields) -> rq.TextParam | None:
    """Return the format of the text."""
    config = fields.maybe_inner("outputConfig")
    if config is None:
        return None
    form = config.maybe_inner("textFormat")
    if form is not None:
        schema = form.inner("structure").inner("jsonSchema")
        carried.text = rq.TextParam(
            rq.JsonSchemaFormatParam(
                schema.get("name", str) or "response",
                schema.get("description", str) or UNSET,
                _schema(schema),
                True,
            )
        )
    config.skip("effort")
    carried.report(config.unread_here)
    carried.output = config.whole()
    return carried.text  # type: ignore[no-any-return]


def _schema(fields: Fields) -> dict[str, Any]:
    try:
        schema = decode_json(fields.need("schema", str))
    except WireError:
        schema = None
    if not isinstance(schema, dict):
        raise invalid(fields.at("schema"), "is not the JSON of a schema")
    return schema


def _limit(inference: Fields) -> int | None:
    limit = inference.get("maxTokens", int)
    if limit is not None and limit < 1:
        raise invalid(inference.at("maxTokens"), "must be 1 or more")
    return limit


def _stops(inference: Fields) -> list[str] | None:
    stops = inference.get("stopSequences", list)
    if stops and not all(isinstance(each, str) for each in stops):
        raise invalid(inference.at("stopSequences"), "expected strings")
    return stops or None


def _tier(fields: Fields, carried: CarriedFields) -> str | None:
    tier = fields.maybe_inner("serviceTier")
    if tier is None:
        return None
    kind = tier.need("type", str)
    carried.report(tier.unread_here)
    carried.tier = tier.whole()
    return next((ours for ours, theirs in TIERS.items() if theirs == kind), kind)


def _own_fields(body: Fields, carried: CarriedFields) -> tuple[rq.ReasoningOptions | None, int | None]:
    """Return (reasoning, top_k) from a model's own fields; the other fields are lost at any other
    upstream."""
    fields = body.get(ADDITIONAL, dict) or {}
    if fields:
        carried.body[ADDITIONAL] = fields
    effort, names = _effort(fields, carried.output.get("effort"))
    if effort is not None:
        carried.reasoning = rq.ReasoningOptions(effort, UNSET if effort == "none" else "auto")
    elif carried.output.get("effort") is not None:
        carried.report(["outputConfig.effort"])
    inner = object_in(fields, "inferenceConfig")
    top_k = next((each for each in (fields.get("top_k"), inner.get("topK")) if type(each) is int), None)
    carried.top_k = top_k
    names |= {name for name in ("top_k", "inferenceConfig") if top_k is not None}
    carried.report(f"{ADDITIONAL}.{name[:_SHOWN]}" for name in fields if name not in names)
    return carried.reasoning, carried.top_k


def _effort(fields: Mapping[str, Any], output_effort: Any) -> tuple[str | None, set[str]]:
    """Return (effort, names of the fields with it), in the form of Claude's, Nova's and OpenAI's models."""
    thinking, config = object_in(fields, "thinking"), object_in(fields, "reasoningConfig")
    named = {
        "reasoning_effort": fields.get("reasoning_effort"),
        "reasoningConfig": config.get("maxReasoningEffort") if config.get("type") == "enabled" else None,
        "output_config": object_in(fields, "output_config").get("effort"),
        "thinking": _budget(thinking),
    }
    effort = next(
        (each for each in (output_effort, *named.values()) if isinstance(each, str) and each in EFFORTS), None
    )
    if thinking.get("type") == "disabled":
        effort = "none"
    return effort, {name for name in named if effort is not None and name in fields}


def _budget(thinking: Mapping[str, Any]) -> str | None:
    """Return the effort that is nearest to a budget."""
    budget = thinking.get("budget_tokens")
    if thinking.get("type") == "adaptive":
        return "high"
    if thinking.get("type") != "enabled" or type(budget) is not int:
        return None
    return min(BUDGETS, key=lambda effort: abs(BUDGETS[effort] - budget))


def _word(fields: Fields, name: str) -> str:
    word = fields.need(name, str)
    if not word:
        raise invalid(fields.at(name), "is empty")
    return word
