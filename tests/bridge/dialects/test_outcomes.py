"""The request functions do with each field what the tables say."""

import json
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.dialects import anthropic_messages, chat_completions, interactions
from openresponses_bridge.dialects.base import (
    METADATA_OF_CHAT,
    NATIVE_OF_CHAT,
    NATIVE_OF_CONVERSE,
    NATIVE_OF_GEMINI,
    NATIVE_OF_INTERACTIONS,
    NATIVE_OF_MESSAGES,
    OTHER,
    STORE_OF_CHAT,
    asked,
)
from openresponses_bridge.dialects.bedrock_converse import carried as converse
from openresponses_bridge.dialects.gemini.carried import CarriedFields
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.request import (
    RESTART,
    CreateResponse,
    ReasoningOptions,
    StreamOptions,
    TextParam,
)
from tests.support.upstream_requests import CLOSED, COLUMNS, drive

TOOL = {"type": "function", "name": "f", "parameters": CLOSED}
# a value that asks for something, by field
SAMPLES: dict[str, Any] = {
    "model": "m",
    "input": "Hi",
    "previous_response_id": "resp_1",
    "include": ["message.output_text.logprobs"],
    "tools": [TOOL],
    "tool_choice": "required",
    "metadata": {"a": "b"},
    "text.format": {"type": "json_schema", "name": "n", "schema": CLOSED, "strict": True},
    "text.verbosity": "low",
    "temperature": 0.5,
    "top_p": 0.5,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "parallel_tool_calls": False,
    "stream": True,
    "stream_options.include_obfuscation": True,
    "background": True,
    "max_output_tokens": 100,
    "max_tool_calls": 3,
    "reasoning.effort": "low",
    "reasoning.summary": "auto",
    "reasoning.context": "all_turns",
    "reasoning.mode": "pro",
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "truncation": "auto",
    "instructions": "Be brief.",
    "store": True,
    "service_tier": "default",
    "top_logprobs": 3,
    "user": "u",
    "client_metadata": {"a": "b"},
    "conversation": "conv_1",
    "prompt": {"id": "pmpt_1"},
    "context_management": [{"type": "compaction", "compact_threshold": 1000}],
    "moderation": {"model": "omni"},
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"a": 1},
    "background_options": {"completion_window": "2h"},
    "access_programs": ["p"],
    "stop": ["END"],
    "seed": 3,
    "logit_bias": {"1": 2.0},
    "prediction": {"type": "content", "content": "x"},
    "top_k": 3,
    RESTART: "always",
    STORE_OF_CHAT: True,
    METADATA_OF_CHAT: {"a": "b"},
    NATIVE_OF_MESSAGES: {"type": "ephemeral"},
    NATIVE_OF_CHAT: {"order": ["a"]},
    NATIVE_OF_GEMINI: "cachedContents/1",
    NATIVE_OF_INTERACTIONS: {"uris": ["https://hooks.example"]},
    NATIVE_OF_CONVERSE: {"latency": "optimized"},
    OTHER: {"a": 1},
}
NATIVE = {
    NATIVE_OF_MESSAGES,
    NATIVE_OF_CHAT,
    NATIVE_OF_GEMINI,
    NATIVE_OF_INTERACTIONS,
    NATIVE_OF_CONVERSE,
}
FOREIGN = {STORE_OF_CHAT, METADATA_OF_CHAT, *NATIVE, OTHER}
# what a field needs beside it to say anything
BESIDE: dict[str, dict[str, Any]] = {
    "tool_choice": {"tools": [TOOL]},
    "parallel_tool_calls": {"tools": [TOOL]},
    "reasoning.summary": {"reasoning": {"effort": "low"}},
    "stream_options.include_obfuscation": {"stream": True},
}
OWN_NAMES = (OTHER, NATIVE_OF_CHAT, NATIVE_OF_GEMINI, NATIVE_OF_INTERACTIONS, NATIVE_OF_CONVERSE)
FIELDS_OF = {
    OTHER: "unheard_of",
    NATIVE_OF_MESSAGES: "cache_control",
    NATIVE_OF_CHAT: "provider",
    NATIVE_OF_GEMINI: "cachedContent",
    NATIVE_OF_INTERACTIONS: "webhook_config",
    NATIVE_OF_CONVERSE: "performanceConfig",
}
# where it stands in the request when its row is not a path
BODIES: dict[str, dict[str, Any]] = {OTHER: {"unheard_of": SAMPLES[OTHER]}}


def rows() -> list[tuple[str, str]]:
    return [(column, name) for column, (side, options) in COLUMNS.items() for name in table(side, options)]


def table(side: Any, options: dict[str, Any]) -> Any:
    return side.outcomes(side.options(**options))


def body_with(name: str) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "m", "input": "Hi", **json.loads(json.dumps(BESIDE.get(name, {})))}
    if name in BODIES:
        return body | BODIES[name]
    within, _, last = name.rpartition(".")
    (body.setdefault(within, {}) if within else body)[last] = SAMPLES[name]
    return body


def request_with(name: str) -> CreateResponse:
    if name in (STORE_OF_CHAT, METADATA_OF_CHAT, NATIVE_OF_CHAT):
        field = FIELDS_OF.get(name) or name.partition(",")[0]
        client_body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], field: SAMPLES[name]}
        return chat_completions.from_chat(client_body)[0]
    if name == NATIVE_OF_MESSAGES:
        block = {"type": "text", "text": "Be brief.", "cache_control": SAMPLES[name]}
        messages = [{"role": "user", "content": "Hi"}]
        client_body = {"model": "m", "max_tokens": 100, "system": [block], "messages": messages}
        return anthropic_messages.from_messages(client_body)[0]
    if name == NATIVE_OF_GEMINI:
        brought = CarriedFields(body={"cachedContent": SAMPLES[name]}, names={"cachedContent": None})
        return CreateResponse(model="m", input="Hi", native=brought.native())
    if name == NATIVE_OF_INTERACTIONS:
        return interactions.from_interactions({"model": "m", "input": "Hi", FIELDS_OF[name]: SAMPLES[name]})[
            0
        ]
    if name == NATIVE_OF_CONVERSE:
        body = {"performanceConfig": SAMPLES[name]}
        own = converse.CarriedFields(body=body, names={"performanceConfig": None})
        return CreateResponse(model="m", input="Hi", native=own.native())
    return decode_request(json.dumps(body_with(name)))


def test_every_field_has_a_row_and_every_row_is_tried() -> None:
    full = CreateResponse(
        **{name: 1 for name in CreateResponse.__struct_fields__ if name not in ("beyond", "native")}  # type: ignore[arg-type]
        | {
            "reasoning": ReasoningOptions("a", "b", "c", "d"),
            "text": TextParam(1, "low"),  # type: ignore[arg-type]
            "stream_options": StreamOptions(True),
        }
    )
    fields = {name for name, _ in asked(full)}
    for side, options in COLUMNS.values():
        assert set(table(side, options)) == fields | FOREIGN
        assert all(outcome.what for outcome in table(side, options).values())
    assert set(SAMPLES) == fields | FOREIGN


@pytest.mark.parametrize(("column", "name"), rows())
def test_the_row_is_true(column: str, name: str) -> None:
    side, options = COLUMNS[column]
    outcome = table(side, options)[name]
    request = request_with(name)
    if name == "include" and outcome.kind == "honoured":
        request = replace(request, include=["reasoning.encrypted_content"])
    if outcome.kind == "refused":
        with pytest.raises(InvalidRequestError) as caught:
            drive(column, request)
        assert caught.value.param == name
        return
    body, lost = drive(column, request)
    field = FIELDS_OF.get(name, name.partition(",")[0])
    assert (field in lost) is (outcome.kind == "loss"), lost
    if outcome.kind == "sent":
        assert differs(body, column, name), body
    elif outcome.kind == "honoured" and name not in ("store", "metadata"):
        assert field not in body


def differs(body: dict[str, Any], column: str, name: str) -> bool:
    """Whether the place that the row names holds what would not be there without the field."""
    side, options = COLUMNS[column]
    where = FIELDS_OF[name] if name in OWN_NAMES else table(side, options)[name].what
    without = decode_request(json.dumps({"model": "other", "input": "Ho", **BESIDE.get(name, {})}))
    if name == "model":
        return bool(body["model"] == "m")
    if name == "stream":
        return body["stream"] is True
    return at(body, where) is not UNSET and at(body, where) != at(drive(column, without)[0], where)


def at(body: Any, path: str) -> Any:
    for step in path.split("."):
        if not isinstance(body, dict) or step not in body:
            return UNSET
        body = body[step]
    return body


@pytest.mark.parametrize("column", COLUMNS)
def test_a_value_that_asks_for_nothing_is_no_loss(column: str) -> None:
    quiet = {
        "truncation": "disabled",
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "top_logprobs": 0,
        "reasoning": {"context": "auto", "mode": "standard"},
        "stream_options": {"include_obfuscation": False},
        "unheard_of": None,
    }
    assert drive(column, decode_request(json.dumps({"model": "m", "input": "Hi", **quiet})))[1] == []


WITHIN = {
    "reasoning.unheard_of": {"reasoning": {"effort": "low", "unheard_of": 1}},
    "text.unheard_of": {"text": {"unheard_of": 1}},
    "text.format.unheard_of": {"text": {"format": {"type": "json_object", "unheard_of": 1}}},
    "tools[0].output_schema": {"tools": [TOOL | {"output_schema": CLOSED}]},
    "tools[0].allowed_callers": {"tools": [TOOL | {"allowed_callers": ["direct"]}]},
    "tools[0].tools[0].output_schema": {
        "tools": [{"type": "namespace", "name": "n", "tools": [TOOL | {"output_schema": CLOSED}]}]
    },
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", WITHIN)
def test_unknown_fields_within_are_passed_on_or_lost(column: str, name: str) -> None:
    body, lost = drive(column, decode_request(json.dumps({"model": "m", "input": "Hi", **WITHIN[name]})))
    passed = column in ("responses", "stateful")
    assert (name in lost) is not passed
    if passed:
        key = name.split(".")[0].partition("[")[0]
        assert body[key] == WITHIN[name][key]


@pytest.mark.parametrize("column", COLUMNS)
def test_unknown_fields_of_items_are_passed_on_or_lost_once_for_each_name(column: str) -> None:
    item = {"role": "user", "content": [{"type": "input_text", "text": "Hi", "odd": 1}], "odder": 2}
    request = decode_request(json.dumps({"model": "m", "input": [item] * 3}))
    body, lost = drive(column, request)
    if column in ("responses", "stateful"):
        assert (body["input"], lost) == ([{"type": "message", **item}] * 3, [])
    else:
        assert set(lost) == {"input[0].odder", "input[0].content[0].odd"}


def test_unknown_fields_are_found_however_deep_they_stand() -> None:
    tool: dict[str, Any] = TOOL | {"odd": 1}
    for _ in range(30):
        tool = {"type": "namespace", "name": "n", "tools": [tool]}
    request = decode_request(json.dumps({"model": "m", "input": "Hi", "tools": [tool]}))
    assert drive("chat", request)[1][-1].endswith("].odd")


def test_many_unknown_fields_are_one_bounded_report() -> None:
    many = {f"odd_{index}": index for index in range(5000)}
    request = decode_request(json.dumps({"model": "m", "input": "Hi", **many}))
    assert len(drive("chat", request)[1]) == 200
    assert drive("responses", request)[0].items() >= many.items()


def test_what_an_output_has_may_come_back() -> None:
    part = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
    item = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}
    assert decode_request(json.dumps({"input": [item]})).beyond is UNSET


@pytest.mark.parametrize("column", ["chat", "anthropic"])
@pytest.mark.parametrize("effort", ["banana", "MAX", "high ", "x" * 10_000])
def test_an_effort_that_nobody_knows_is_refused(column: str, effort: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        drive(
            column, decode_request(json.dumps({"model": "m", "input": "Hi", "reasoning": {"effort": effort}}))
        )
    assert caught.value.param == "reasoning.effort"
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("tools", [[], [{"type": "file_search"}], [{"type": "mcp", "server_label": "x"}]])
@pytest.mark.parametrize("column", ["chat", "anthropic", "published"])
def test_a_call_that_nobody_could_make_is_refused_at_once(column: str, tools: list[Any]) -> None:
    body = {"model": "m", "input": "Hi", "tools": tools, "tool_choice": "required"}
    with pytest.raises(InvalidRequestError) as caught:
        drive(column, decode_request(json.dumps(body)))
    assert caught.value.param == "tool_choice"


def test_the_upstreams_own_tools_can_be_required() -> None:
    body = {"model": "m", "input": "Hi", "tool_choice": "required"}
    searching = body | {"tools": [{"type": "anthropic:web_search_20250305", "name": "web_search"}]}
    assert drive("anthropic", decode_request(json.dumps(searching)))[0]["tool_choice"] == {"type": "any"}
    hosted = body | {"tools": [{"type": "web_search"}]}
    assert drive("anthropic", decode_request(json.dumps(hosted)))[0]["tool_choice"] == {"type": "any"}
    assert drive("responses", decode_request(json.dumps(hosted)))[0]["tool_choice"] == "required"
