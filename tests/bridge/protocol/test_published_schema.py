"""Every struct against the published document, in both directions.

For each schema a valid instance is built, then changed in every way that the schema restricts: each property
left out, null, of every other JSON type, outside its enum, its length, its range, its pattern. The schema
(jsonschema) and the struct (a strict decode) must accept or refuse the same, except for the deviations that
are listed here with their reasons.
"""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import msgspec
import pytest

from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import input_items as ii
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol import request as rq
from openresponses_bridge.protocol import request as ws
from openresponses_bridge.protocol import response as er
from openresponses_bridge.protocol import response as rs
from openresponses_bridge.protocol import tools as tl
from openresponses_bridge.protocol import usage as us
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.unknown import EXTRA
from openresponses_bridge.protocol.unknown import OURS as OURS_PREFIX
from openresponses_bridge.protocol.vocabulary import EVENTS
from tests.support.schema import event_schemas, quick_validator, schemas, validator, violations
from tests.support.shared import shared_root

pytestmark = pytest.mark.skipif(shared_root() is None, reason="needs the published document")

# ── schema → what stands for it ──────────────────────────────────────────────────────────────────────
OBJECTS: dict[str, type[Any]] = {
    "ItemReferenceParam": ii.ItemReference,
    "ReasoningSummaryContentParam": ct.SummaryTextContent,
    "ReasoningItemParam": ii.ReasoningParam,
    "CompactionSummaryItemParam": ii.CompactionParam,
    "InputTextContentParam": ct.InputTextContent,
    "InputImageContentParamAutoParam": ct.InputImageParam,
    "InputFileContentParam": ct.InputFileContent,
    "UserMessageItemParam": ii.MessageParam,
    "SystemMessageItemParam": ii.MessageParam,
    "DeveloperMessageItemParam": ii.MessageParam,
    "AssistantMessageItemParam": ii.MessageParam,
    "UrlCitationParam": ct.UrlCitation,
    "OutputTextContentParam": ct.OutputTextParam,
    "RefusalContentParam": ct.RefusalContent,
    "FunctionCallItemParam": ii.FunctionCallParam,
    "FunctionCallOutputItemParam": ii.FunctionCallOutputParam,
    "FunctionToolParam": tl.FunctionToolParam,
    "SpecificFunctionParam": tl.FunctionToolChoice,
    "AllowedToolsParam": tl.AllowedToolChoice,
    "TextParam": rq.TextParam,
    "StreamOptionsParam": rq.StreamOptions,
    "ReasoningParam": rq.ReasoningOptions,
    "CreateResponseBody": rq.CreateResponse,
    "WebSocketResponseCreateEvent": ws.ResponseCreateMessage,
    "WebSocketErrorEvent": ws.WebSocketError,
    "IncompleteDetails": rs.IncompleteDetails,
    "InputTextContent": ct.InputTextContent,
    "UrlCitationBody": ct.UrlCitation,
    "TopLogProb": ct.TopLogProb,
    "LogProb": ct.LogProb,
    "OutputTextContent": ct.OutputTextContent,
    "TextContent": ct.TextContent,
    "SummaryTextContent": ct.SummaryTextContent,
    "ReasoningTextContent": ct.ReasoningTextContent,
    "RefusalContent": ct.RefusalContent,
    "InputImageContent": ct.InputImageContent,
    "InputFileContent": ct.InputFileContent,
    "InputVideoContent": ct.InputVideoContent,
    "Message": it.Message,
    "FunctionCall": it.FunctionCall,
    "FunctionCallOutput": it.FunctionCallOutput,
    "ReasoningBody": it.ReasoningItem,
    "CompactionBody": it.CompactionItem,
    "Error": er.ResponseError,
    "FunctionTool": tl.FunctionTool,
    "FunctionToolChoice": tl.FunctionToolChoice,
    "AllowedToolChoice": tl.AllowedToolChoice,
    "TextResponseFormat": rs.TextFormat,
    "JsonObjectResponseFormat": rs.JsonObjectFormat,
    "JsonSchemaResponseFormat": rs.JsonSchemaFormat,
    "JsonSchemaResponseFormatParam": rq.JsonSchemaFormatParam,
    "TextField": rs.TextField,
    "Reasoning": rs.Reasoning,
    "InputTokensDetails": us.InputTokensDetails,
    "OutputTokensDetails": us.OutputTokensDetails,
    "Usage": us.Usage,
    "ResponseResource": rs.Response,
    "ErrorPayload": er.ErrorPayload,
    "CompactResponseMethodPublicBody": rq.CompactRequest,
    "CompactResource": rs.CompactResource,
}
ENUMS: dict[str, Any] = {
    "DetailEnum": ct.ImageDetail,
    "ImageDetail": ct.ImageDetail,
    "FunctionCallItemStatus": it.ItemStatus,
    "FunctionCallStatus": it.ItemStatus,
    "FunctionCallOutputStatusEnum": it.ItemStatus,
    "MessageStatus": it.ItemStatus,
    "MessageRole": it.MessageRole,
    "ToolChoiceValueEnum": tl.ToolChoiceValue,
    "VerbosityEnum": rs.Verbosity,
    "TruncationEnum": rs.Truncation,
}
UNIONS: dict[str, Any] = {
    "ItemParam": ii.KnownInputItem,
    "ResponsesToolParam": tl.KnownToolParam,
    "SpecificToolChoiceParam": tl.KnownToolChoice,
    "ToolChoiceParam": tl.KnownToolChoice,
    "Annotation": ct.KnownAnnotation,
    "ItemField": it.KnownItem,
    "Tool": tl.KnownTool,
    "TextFormatParam": rq.KnownFormatParam,
}
# no type of their own: a free string or object here, and why
LOOSE: dict[str, str] = {
    "IncludeEnum": "clients ask for OpenAI's includes too: `include` is a list of strings",
    "ReasoningEffortEnum": "models add levels of their own: a string, held to the enum in the echo",
    "ReasoningSummaryEnum": "the same",
    "ServiceTierEnum": "servers have tiers of their own: a string, as the response has it",
    "MetadataParam": "a dict with the schema's limits, within CreateResponse",
    "EmptyModelParam": "any object: the parameters of a function, a dict",
}

# fields of ours that the document does not have, by struct
_REQUEST: set[str] = {
    "user", "client_metadata",  # OpenAI; Codex
    "conversation", "prompt", "context_management", "moderation", "prompt_cache_retention",  # OpenAI
    "prompt_cache_options", "background_options", "access_programs",  # OpenAI
    "stop", "seed", "logit_bias", "prediction", "top_k",  # Chat Completions; Anthropic
    f"{OURS_PREFIX}beyond",
    f"{OURS_PREFIX}native",
    rq.RESTART,
}  # fmt: skip
OURS: dict[type[Any], set[str]] = {
    ct.InputImageParam: {"file_id"},  # OpenAI: a file uploaded before
    ct.InputFileContent: {"file_id", "file_data"},  # the same; one struct for both directions
    ii.MessageParam: {"phase"},  # the assistant's, and one struct for all four roles
    ii.ReasoningParam: {"status"},  # outputs carry it and come back
    ii.CompactionParam: {"created_by"},  # the same
    ii.FunctionCallParam: {"namespace"},  # OpenAI
    it.FunctionCall: {"namespace"},  # OpenAI
    it.ReasoningItem: {"status"},  # the prose says that every item has one
    tl.FunctionToolParam: {"defer_loading"},  # OpenAI, with tool_search
    rq.CreateResponse: _REQUEST,
    ws.ResponseCreateMessage: _REQUEST | {"generate", "stream_id"},  # Codex's prewarm and lanes
    rq.CompactRequest: {f"{OURS_PREFIX}beyond"},
    rq.ReasoningOptions: {"context", "mode"},  # OpenAI
    ev.ErrorEvent: {"code", "message", "param"},  # OpenAI has them at top level
    ct.UrlCitation: {"encrypted_content"},  # a citation as its upstream wants it back
    us.InputTokensDetails: {"cache_write_tokens"},  # Anthropic, OpenRouter
    # the request's stop sequence that its text ended at, and the upstream's own name of its model
    rs.Response: {rs.STOP_SEQUENCE, rs.UPSTREAM_MODEL, rs.NATIVE},
    rs.ResponseError: {rs.NATIVE},  # what the upstream says in its own API alone
    rs.ErrorPayload: {rs.NATIVE},
    us.Usage: {"estimated", "openresponses-bridge:rounds"},  # no upstream has counted it; of each answer
    ev.RefusalDelta: {"obfuscation"},  # on every delta, as the other deltas have it
}

Case = tuple[str, str, str]  # schema, property, how it was bent

CREATE = ("CreateResponseBody", "WebSocketResponseCreateEvent")
# why the struct takes what the schema refuses → where
WIDER_FOR: dict[str, list[Case]] = {
    "null in a request is `not given` everywhere": [
        *(
            (name, field, "null")
            for name in CREATE
            for field in ("include", "truncation", "store", "service_tier")
        ),
        *(("CreateResponseBody", field, "null") for field in ("stream", "background")),
        ("AssistantMessageItemParam", "phase", "null"),
        ("OutputTextContentParam", "annotations", "null"),
        ("FunctionToolParam", "strict", "null"),
        ("TextParam", "verbosity", "null"),
        ("JsonSchemaResponseFormatParam", "description", "null"),
        ("JsonSchemaResponseFormatParam", "schema", "null"),
    ],
    "one struct for the request side, where null is allowed, and the response side": [
        ("InputFileContent", "filename", "null"),
        ("InputFileContent", "file_url", "null"),
    ],
    "one struct for the request side, where the name is required and the mode not, and the response side": [
        ("SpecificFunctionParam", "name", "absent"),
        ("AllowedToolChoice", "mode", "absent"),
    ],
    "outputs carry raw reasoning, and come back as input": [("ReasoningItemParam", "content", "array")],
    "calls of other servers' tools come back under their own names": [
        ("FunctionCallItemParam", "name", "too long"),
        ("FunctionCallItemParam", "name", "pattern"),
    ],
    "servers give longer ones, and clients send them back: shortened on the way to an upstream": [
        *((f"FunctionCall{which}ItemParam", "call_id", "too long") for which in ("", "Output"))
    ],
    "OpenAI's limits by now": [
        ("FunctionToolParam", "name", "too long"),
        *((name, "safety_identifier", "too long") for name in CREATE),
    ],
    "indexes are not used on the way in": [
        ("UrlCitationParam", "start_index", "too small"),
        ("UrlCitationParam", "end_index", "too small"),
    ],
    "models and servers have levels and tiers of their own": [
        *(
            (name, field, "string")
            for name in ("ReasoningParam", "Reasoning")
            for field in ("effort", "summary")
        ),
        *((name, "service_tier", "string") for name in CREATE),
    ],
    "real clients send what must not be sent on a WebSocket": [
        *(
            ("WebSocketResponseCreateEvent", field, how)
            for field in ("stream", "background")
            for how in ("null", "true")
        ),
        *(("WebSocketResponseCreateEvent", "stream_options", how) for how in ("null", "object")),
    ],
    "OpenAI echoes the schema itself; ours is null where the published schema holds": [
        ("JsonSchemaResponseFormat", "schema", "object"),
    ],
    "OpenAI has the error's fields at top level": [("ErrorStreamingEvent", "error", "absent")],
}
# why the struct refuses what the schema takes → where
NARROWER_FOR: dict[str, list[Case]] = {
    "`lenient` infers the type of an input item, a struct does not": [
        ("ItemReferenceParam", "type", "absent"),
        ("ItemReferenceParam", "type", "null"),
    ],
    "a format without a type could be any": [
        ("JsonSchemaResponseFormatParam", "type", "absent"),
        ("TextParam", "format", "object"),
    ],
    "one struct for the request side, which asks for at least one tool and at most 128": [
        ("AllowedToolChoice", "tools", "array"),
        ("ResponseResource", "tool_choice", "smallest object"),
    ],
}
WIDER = {case for cases in WIDER_FOR.values() for case in cases}
NARROWER = {case for cases in NARROWER_FOR.values() for case in cases}
# instances to begin from where the smallest valid one is one of the deviations
BASES = {"AllowedToolChoice": {"type": "allowed_tools", "tools": [{"type": "function"}], "mode": "auto"}}


def event_structs() -> dict[str, type[Any]]:
    return {schema: EVENTS.structs[kind] for kind, schema in event_schemas().items()}


def test_each_of_the_108_schemas_has_a_type_here() -> None:
    known = {*OBJECTS, *ENUMS, *UNIONS, *LOOSE, *event_structs()}
    assert known == set(schemas())
    assert len(schemas()) == 108


@pytest.mark.parametrize("name", ENUMS)
def test_enums_have_the_published_values(name: str) -> None:
    ours, published = set(get_args(ENUMS[name])), set(schemas()[name]["enum"])
    # `original` is OpenAI's
    assert ours - published <= ({"original"} if "etail" in name else set())
    assert published <= ours


@pytest.mark.parametrize("name", UNIONS)
def test_unions_hold_every_published_member(name: str) -> None:
    structs = {OBJECTS[member] for member in members(schemas()[name]) if member in OBJECTS}
    assert structs
    assert structs <= set(get_args(UNIONS[name]))


def members(schema: dict[str, Any]) -> Iterator[str]:
    for option in schema["oneOf"]:
        name = option["$ref"].rpartition("/")[2]
        yield name
        if "oneOf" in schemas()[name]:
            yield from members(schemas()[name])


# ── instances ────────────────────────────────────────────────────────────────────────────────────────
def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without references and single-member wrappers, its first alternative where it has several."""
    if "$ref" in schema:
        return resolved(schemas()[schema["$ref"].rpartition("/")[2]])
    if "allOf" in schema:
        merged: dict[str, Any] = {"properties": {}, "required": []}
        for part in map(resolved, schema["allOf"]):
            merged = {**part, **merged, "properties": {**part.get("properties", {}), **merged["properties"]},
                      "required": merged["required"] + part.get("required", [])}  # fmt: skip
        return merged
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return resolved(schema[choice][0])
    return schema


def example(schema: dict[str, Any]) -> Any:
    """The smallest valid instance."""
    schema = resolved(schema)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "string":
        return "a"
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    if kind == "array":
        return [example(schema["items"])] * schema.get("minItems", 0)
    if kind == "boolean":
        return True
    if kind == "null" or (kind is None and not schema.get("properties")):
        return None
    names = [*schema.get("required", []), *({"type"} & set(schema.get("properties", {})))]
    return {name: example(schema["properties"][name]) for name in names}


def properties(name: str) -> dict[str, Any]:
    result: dict[str, Any] = resolved({"$ref": f"#/{name}"}).get("properties", {})
    return result


OTHERS: dict[str, Any] = {
    "null": None, "string": "x", "integer": 7, "fraction": 1.5, "true": True, "array": [], "object": {},
}  # fmt: skip


def bends(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values that a property might be given, each with a name."""
    yield from OTHERS.items()
    for option in alternatives(schema):
        if "enum" in option:
            for value in option["enum"]:
                yield f"={value}", value
        if "maxLength" in option and option["maxLength"] < 1_000:
            yield "too long", "a" * (option["maxLength"] + 1)
            yield "longest", "a" * option["maxLength"]
        if "minLength" in option:
            yield "too short", "a" * (option["minLength"] - 1)
        if "pattern" in option:
            yield "pattern", "a.b"
        if "minimum" in option:
            yield "too small", option["minimum"] - 1
            yield "smallest", option["minimum"]
        if "maximum" in option:
            yield "too large", option["maximum"] + 1
            yield "largest", option["maximum"]
        if option.get("type") == "array":
            yield "one", [example(option["items"])]
            yield "array of null", [None]
            if "maxItems" in option:
                yield "too many", [example(option["items"])] * (option["maxItems"] + 1)
                yield "most", [example(option["items"])] * option["maxItems"]
        if "maxProperties" in option:
            yield "most properties", {str(i): "a" for i in range(option["maxProperties"])}
            yield "too many properties", {str(i): "a" for i in range(option["maxProperties"] + 1)}
            yield "property too long", {"a": "a" * 513}
            yield "property longest", {"a": "a" * 512}
            yield "property of wrong type", {"a": 1}
        if option.get("properties"):
            yield "smallest object", example(option)


def alternatives(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in schema:
        yield from alternatives(schemas()[schema["$ref"].rpartition("/")[2]])
        return
    for choice in ("anyOf", "oneOf", "allOf"):
        for option in schema.get(choice, ()):
            yield from alternatives(option)
    yield schema


class Another(msgspec.Struct, tag="another", tag_field="type"):
    """Within a union the tag is required, as it is on the wire."""


@cache
def decoder(struct: type[Any]) -> Any:
    return msgspec.json.Decoder(struct if struct.__struct_config__.tag is None else struct | Another)


def takes(struct: type[Any], instance: Any) -> bool:
    try:
        decoder(struct).decode(encode(instance))
    except msgspec.ValidationError:
        return False
    return True


def all_objects() -> dict[str, type[Any]]:
    return OBJECTS | event_structs() if shared_root() else OBJECTS


def disagreements(name: str, struct: type[Any]) -> Iterator[tuple[tuple[str, str, str], bool]]:
    """(schema, property, bend) and whether it is the struct that takes it."""
    base = BASES.get(name) or example({"$ref": f"#/{name}"})
    assert violations(name, base) == []
    assert takes(struct, base), base
    for field, schema in properties(name).items():
        cases = [("absent", None), *bends(schema)]
        for how, value in cases:
            instance = copy.deepcopy(base)
            if how == "absent":
                instance.pop(field, None)
            else:
                instance[field] = value
            valid = validator(name).is_valid(instance)
            assert quick_validator(name).is_valid(instance) is valid, "the engines disagree"
            if valid is not takes(struct, instance):
                yield (name, field, how), not valid


@pytest.mark.parametrize("name", all_objects())
@pytest.mark.untraced
def test_e3_struct_and_schema_agree(name: str) -> None:
    differences = dict(disagreements(name, all_objects()[name]))
    wider = {case for case, taken in differences.items() if taken}
    narrower = set(differences) - wider
    # a case that is listed and does not deviate (any more) fails too
    assert wider == {case for case in WIDER if case[0] == name}
    assert narrower == {case for case in NARROWER if case[0] == name}


@pytest.mark.parametrize("name", all_objects())
def test_e3_fields_are_the_published_ones_and_those_listed(name: str) -> None:
    struct = all_objects()[name]
    config = struct.__struct_config__
    fields = set(struct.__struct_encode_fields__) | ({"type"} if config.tag is not None else set())
    fields -= {EXTRA}  # where the codec puts what is not known; no JSON has it
    published = set(properties(name))
    assert published <= fields
    assert fields - published <= OURS.get(struct, set())


def test_the_lists_of_deviations_name_nothing_that_is_not_there() -> None:
    for struct, names in OURS.items():
        assert names <= set(struct.__struct_encode_fields__), struct
    assert {case[0] for case in (*WIDER, *NARROWER)} <= set(all_objects())
