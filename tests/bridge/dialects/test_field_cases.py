"""Causes that ended a client's session for good: ids, reasoning and turns of one server that another
refuses."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import (
    anthropic_messages,
    bedrock_converse,
    chat_completions,
    gemini,
    interactions,
    responses,
)
from openresponses_bridge.dialects.anthropic_messages import MessagesOptions, to_messages
from openresponses_bridge.dialects.base import DIALECT_SLUGS, entries_of, settled_calls
from openresponses_bridge.dialects.chat_completions import ChatOptions, to_chat
from openresponses_bridge.dialects.codex import turn
from openresponses_bridge.dialects.responses import ResponsesOptions, to_responses
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode, plain
from openresponses_bridge.protocol.ids import PREFIXES
from openresponses_server.upstreams.profiles import DialectOptions, profile

Json = dict[str, Any]
UPSTREAMS: dict[str, tuple[Any, Any]] = {
    "chat": (to_chat, ChatOptions),
    "anthropic": (to_messages, MessagesOptions),
    "responses": (to_responses, ResponsesOptions),
}
LONG = "codex_mcp__codex_apps__google_calendar.search_events_exec-" + "0123456789" * 4
UUID = "4ffa2f22-7283-43ae-ae18-7690736424c1"
PATCHES = ToolIdentityMap()
PATCHES.declare(ToolKind.CUSTOM, "apply_patch")


def sent(dialect: str, request: Json, **options: Any) -> tuple[Json, Diagnostics]:
    """(body, diagnostics) of a request as it goes to an upstream with these options."""
    translate, kind = UPSTREAMS[dialect]
    decoded = decode_request(encode({"model": "m", **request}))
    body, diagnostics = translate(decoded, options=msgspec.convert(options, kind))
    return json.loads(encode(body)), diagnostics


def repairs(diagnostics: Diagnostics) -> dict[str, str]:
    return {case.where: case.what for case in diagnostics.of("repair")}


def losses(diagnostics: Diagnostics) -> dict[str, str]:
    return {case.where: case.what for case in diagnostics.of("loss")}


def message(role: str, text: str, **more: str) -> Json:
    return {"type": "message", "role": role, "content": text, **more}


def call(call_id: str = "call_1", arguments: str = "{}", **more: str) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": arguments, **more}


def output(call_id: str = "call_1", **more: str) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": "seen", **more}


# ── 47: ids of the kind of their item ────────────────────────────────────────────────────────────────
def test_case_47_ids_in_recorded_answers_have_the_prefix_of_their_kind(shared: Path) -> None:
    """The table is that of OpenAI's own servers."""
    seen = {
        (item["type"], item["id"].partition("_")[0])
        for path in (shared / "fixtures/responses").glob("openai-*.txt")
        for line in path.read_text(encoding="utf-8").splitlines()
        if '"response.output_item.' in line
        for item in [json.loads(line.removeprefix("data:"))["item"]]
    }
    assert len(seen) > 12
    assert {kind: prefix for kind, prefix in seen if not PREFIXES[kind].startswith(prefix)} == {}


@pytest.mark.parametrize(
    ("kind", "arguments", "item", "prefix"),
    [
        (ToolKind.FUNCTION, "{}", "function_call", "fc_"),
        (ToolKind.CUSTOM, '{"input":"x"}', "custom_tool_call", "ctc_"),
        (ToolKind.SHELL, '{"commands":["ls"]}', "shell_call", "sh_"),
        (ToolKind.LOCAL_SHELL, '{"command":["ls"]}', "local_shell_call", "lsh_"),
        (ToolKind.APPLY_PATCH, '{"type":"delete_file","path":"a"}', "apply_patch_call", "apc_"),
        (ToolKind.TOOL_SEARCH, '{"query":"x"}', "tool_search_call", "tsc_"),
        (ToolKind.SHELL, "malformed", "function_call", "fc_"),
    ],
)
def test_case_47_a_call_has_the_prefix_of_what_it_was_declared_as(
    kind: ToolKind, arguments: str, item: str, prefix: str
) -> None:
    chunk = {"index": 0, "id": "call_1", "type": "function"}
    chunk["function"] = {"name": "tool", "arguments": arguments}
    frame = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [
        {"index": 0, "delta": {"tool_calls": [chunk]}, "finish_reason": "tool_calls"}]}  # fmt: skip
    output_item = _output(chat_completions.Inbound, kind, frame)
    assert (output_item["type"], output_item["id"][: len(prefix)]) == (item, prefix)


@pytest.mark.parametrize(
    ("given", "kind", "item_id"),
    [
        ("fc_up1", ToolKind.CUSTOM, "ctc_up1"),
        ("fc_up1", ToolKind.SHELL, "sh_up1"),
        ("fc_up1", ToolKind.FUNCTION, "fc_up1"),
        ("7f3a", ToolKind.CUSTOM, "7f3a"),
        (UUID, ToolKind.CUSTOM, f"ctc_{UUID}"),
        (UUID.replace("-", "").upper(), ToolKind.FUNCTION, f"fc_{UUID.replace('-', '').upper()}"),
    ],
)
def test_case_47_an_item_restored_to_another_type_has_an_id_of_its_kind(
    given: str, kind: ToolKind, item_id: str
) -> None:
    item = {"type": "function_call", "id": given, "call_id": "call_1", "name": "tool", "status": "completed"}
    item["arguments"] = '{"input":"x","commands":["ls"]}'
    frame = {"type": "response.output_item.done", "sequence_number": 1, "output_index": 0, "item": item}
    assert _output(responses.Inbound, kind, frame)["id"] == item_id


@pytest.mark.parametrize(
    ("item", "more", "delta"),
    [
        ({"type": "message", "role": "assistant"}, {"content": []}, "response.output_text.delta"),
        ({"type": "reasoning"}, {"summary": []}, "response.reasoning_text.delta"),
        ({"type": "web_search_call"}, {"action": {"type": "search"}}, "response.web_search_call.searching"),
    ],
)
def test_case_47_an_id_without_a_kind_gets_that_of_its_item(item: Json, more: Json, delta: str) -> None:
    machine = ResponseStreamStateMachine("m", wire="openai")
    reader = responses.Inbound(machine)
    whole = {"id": UUID, "status": "in_progress", **item, **more}
    place = {"item_id": UUID, "output_index": 0, "content_index": 0, "delta": "a"}
    events = [
        event
        for frame in (
            {"type": "response.output_item.added", "output_index": 0, "item": whole},
            {"type": delta, **place},
            {
                "type": "response.output_item.done",
                "output_index": 0,
                "item": {**whole, "status": "completed"},
            },
            {"type": "response.completed", "response": {"status": "completed"}},
        )
        for event in reader.feed(encode(frame))
    ]
    item_ids = {each["item_id"] for each in map(plain, events) if "item_id" in each}
    (output_item,) = machine.snapshot.output
    assert item_ids == {f"{PREFIXES[item['type']]}_{UUID}"} == {plain(output_item)["id"]}


def _output(inbound: Any, kind: ToolKind, frame: Json) -> Json:
    """The only item that an upstream's frame becomes where `tool` was declared as this kind."""
    identities = ToolIdentityMap()
    identities.declare(kind, "tool")
    machine = ResponseStreamStateMachine("m", tool_identities=identities, wire="openai")
    reader = inbound(machine)
    reader.feed(encode(frame))
    reader.close()
    (item,) = machine.snapshot.output
    result: Json = msgspec.to_builtins(item)
    return result


@pytest.mark.parametrize(
    ("item", "prefix"),
    [
        (message("assistant", "a", id="item_1"), "msg_"),
        (message("assistant", "a", id="chatcmpl-1"), "msg_"),
        (message("user", "a", id="msg_" + "x" * 61), "msg_"),
        (message("user", "a", id="msg_ä"), "msg_"),
        ({"type": "reasoning", "id": "rs.1", "summary": [{"type": "summary_text", "text": "s"}]}, "rs_"),
        ({"type": "web_search_call", "id": "call_00_A8", "status": "completed"}, "ws_"),
        (
            {"type": "mcp_approval_request", "id": "1", "name": "n", "server_label": "s", "arguments": "{}"},
            "mcpr_",
        ),
    ],
)
def test_case_47_openai_gets_ids_of_the_kinds_of_their_items(item: Json, prefix: str) -> None:
    (result,), diagnostics = _input([item])
    assert result["id"].startswith(prefix)
    assert len(result["id"]) <= 64
    assert result == {**item, "id": result["id"]}
    assert list(repairs(diagnostics)) == ["input[0].id"]
    assert _input([item])[0] == [result]  # always the same


def test_case_47_a_call_and_its_output_stay_a_pair() -> None:
    pair = [call(id="item_1"), output(id="ctco_1")]
    results, _ = _input(pair)
    assert [each["call_id"] for each in results] == ["call_1", "call_1"]
    assert [each["id"].partition("_")[0] for each in results] == ["fc", "fco"]


def test_case_47_what_is_right_or_encrypted_keeps_its_id() -> None:
    own: list[Json] = [
        message("assistant", "a", id="msg_1"),
        call(id="fc_1"),
        output(id="fco_1"),
        {"type": "reasoning", "id": "odd/id==", "summary": [], "encrypted_content": "gAAA"},
    ]
    assert _input(own)[0] == own
    without, _ = sent("responses", {"input": own}, item_ids=False)
    assert [each.get("id") for each in without["input"]] == [None, None, None, "odd/id=="]


def _input(items: list[Json]) -> tuple[list[Json], Diagnostics]:
    body, diagnostics = sent("responses", {"input": items})
    return body["input"], diagnostics


# ── 48: call ids of any length and form ──────────────────────────────────────────────────────────────
@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_case_48_a_long_call_id_is_shortened_for_the_call_and_its_output(dialect: str) -> None:
    request = {"input": [message("user", "Hi"), call(LONG), output(LONG)]}
    body, diagnostics = sent(dialect, request)
    ids = _call_ids(body)
    assert (len(ids), len(set(ids))) == (2, 1)
    assert len(ids[0]) <= 64
    assert repairs(diagnostics)["input[1].call_id"] == "longer than 64 characters, shortened"
    assert _call_ids(sent(dialect, request)[0]) == ids


def test_case_48_messages_clients_may_send_long_ids_too() -> None:
    used = {"type": "tool_use", "id": LONG, "name": "look", "input": {}}
    answered = {"type": "tool_result", "tool_use_id": LONG, "content": "seen"}
    turns = [("user", "Hi"), ("assistant", [used]), ("user", [answered])]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": r, "content": c} for r, c in turns]}
    request, _ = anthropic_messages.from_messages(encode(body))
    ids = _call_ids(json.loads(encode(to_chat(request)[0])))
    assert (len(set(ids)), max(map(len, ids)) <= 64) == (1, True)


@pytest.mark.parametrize("call_id", ["call_abcdefghijkl", "x", LONG, "ä" * 9])
def test_case_49_call_ids_have_the_form_that_the_server_accepts(call_id: str) -> None:
    request = {"input": [message("user", "Hi"), call(call_id), output(call_id)]}
    body, diagnostics = sent("chat", request, call_ids="[a-zA-Z0-9]{9}")
    (new_id,) = set(_call_ids(body))
    assert len(new_id) == 9
    assert new_id.isascii()
    assert new_id.isalnum()
    assert len(repairs(diagnostics)) == 1
    assert _call_ids(sent("chat", request, call_ids="[a-zA-Z0-9]{9}")[0]) == [new_id, new_id]


def test_case_49_ids_of_that_form_stay_and_others_differ() -> None:
    ids = ["aB3dE6gH9", "call_1", "call_2", "call_12"]
    items = [message("user", "Hi"), *(call(each) for each in ids), *(output(each) for each in ids)]
    call_ids = _call_ids(sent("chat", {"input": items}, call_ids="[a-zA-Z0-9]{9}")[0])
    assert (call_ids[0], len(set(call_ids))) == (ids[0], 4)


@pytest.mark.parametrize("form", ["", "[a-z]", "[a-z]{0}", "[z-a]{3}", "[a{3}", "x{3}"])
def test_case_49_another_text_is_no_form(form: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="is not of the form"):
        msgspec.convert({"call_ids": form}, ChatOptions)


def _call_ids(value: Any) -> list[str]:
    """The ids in a body that join calls and outputs, in order."""
    if isinstance(value, list):
        return [each for inner in value for each in _call_ids(inner)]
    if not isinstance(value, dict):
        return []
    names = ["call_id", "tool_call_id", "tool_use_id"]
    if value.get("type") in ("tool_use", "function"):
        names.append("id")
    own = [value[name] for name in names if name in value]
    return own + [each for inner in value.values() for each in _call_ids(inner)]


# ── 50: OpenAI's limits ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_case_50_long_safety_identifiers_and_tool_names_are_accepted(dialect: str) -> None:
    tool = {"type": "function", "name": "n" * 128, "parameters": {"type": "object", "properties": {}}}
    request = {"input": "Hi", "safety_identifier": "s" * 128, "tools": [tool]}
    body, _ = sent(dialect, request)
    assert "s" * 128 in encode(body).decode()
    (name,) = _names(body["tools"])
    assert len(name) == (128 if dialect == "responses" else 64)
    identities = ToolIdentityMap()
    UPSTREAMS[dialect][0](decode_request(encode({"model": "m", **request})), tool_identities=identities)
    assert dialect == "responses" or identities.resolve(name).name == "n" * 128  # type: ignore[union-attr]


def _names(tools: list[Json]) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in tools]


# ── 51: reasoning goes back encrypted, or not at all ─────────────────────────────────────────────────
OPENAI = profile("openai").dialects["responses"].options
SUMMARY = [{"type": "summary_text", "text": "s"}]
RAW = [{"type": "reasoning_text", "text": "hm"}]


def test_case_51_openai_is_asked_for_encrypted_reasoning() -> None:
    body, _ = sent("responses", {"input": "Hi"}, **OPENAI)
    assert body["include"] == ["reasoning.encrypted_content"]
    request = decode_request(encode({"model": "m", "input": "Hi"}))
    assert "include" not in to_responses(request, options=ResponsesOptions(**OPENAI), reasons=False)[0]


@pytest.mark.parametrize(
    "more",
    [
        {"summary": SUMMARY},
        {"summary": []},
        {"summary": [], "content": RAW},
        {"summary": [], "content": RAW, "encrypted_content": None},
    ],
)
def test_case_51_what_is_not_encrypted_is_a_loss(more: Json) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", **more}
    items = [message("user", "Hi"), reasoning, message("assistant", "Hello")]
    body, diagnostics = sent("responses", {"input": items}, **OPENAI)
    assert [item["type"] for item in body["input"]] == ["message", "message"]
    assert "reasoning that this upstream has not encrypted" in losses(diagnostics)["input[1]"]


def test_case_51_what_is_encrypted_goes_back_as_it_was() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": SUMMARY, "encrypted_content": "gAAA"}
    body, diagnostics = sent("responses", {"input": [reasoning, message("assistant", "Hi")]}, **OPENAI)
    assert body["input"][0] == reasoning
    assert losses(diagnostics) == {}


@pytest.mark.parametrize("behind", [[], [message("user", "And?")], [output(), message("user", "And?")]])
def test_case_51_reasoning_that_led_to_nothing_is_a_loss(behind: list[Json]) -> None:
    """As an interrupted turn leaves it."""
    first, second = (
        {"type": "reasoning", "id": f"rs_{at}", "summary": [], "encrypted_content": "gAAA"} for at in (1, 2)
    )
    items = [message("user", "Hi"), first, call(), second, first | {"id": "rs_3"}]
    answered = behind if output() in behind else [output(), *behind]
    body, diagnostics = sent("responses", {"input": [*items, *answered]}, **OPENAI)
    assert body["input"] == [items[0], first, items[2], *answered]
    assert losses(diagnostics) == dict.fromkeys(
        ["input[3]", "input[4]"], "reasoning that no output of the model follows"
    )


# ── 52: a conversation that ends with the assistant's text ───────────────────────────────────────────
HALF = [message("user", "q"), message("assistant", "progress ")]


@pytest.mark.parametrize(
    ("dialect", "model", "options"),
    [
        ("anthropic", "claude-opus-4-6", {}),
        ("anthropic", "claude-opus-5", {}),
        ("chat", "gemini-3-pro", profile("gemini-chat").dialects["chat"].options),
        ("chat", "mistral-large", profile("mistral").dialects["chat"].options),
    ],
)
def test_case_52_a_users_turn_follows_where_the_model_would_refuse(
    dialect: str, model: str, options: Json
) -> None:
    body, diagnostics = sent(dialect, {"model": model, "input": HALF}, **options)
    turns = [(each["role"], _text(each)) for each in body["messages"]]
    assert turns == [("user", "q"), ("assistant", "progress "), ("user", "Continue.")]
    assert repairs(diagnostics) == {"messages": "ended with the assistant's, a user's 'Continue.' added"}


@pytest.mark.parametrize(
    ("dialect", "model", "last"),
    [
        ("anthropic", "claude-opus-4-5", "progress"),
        ("anthropic", "kimi-k2", "progress"),
        ("chat", "m", "progress "),
    ],
)
def test_case_52_others_go_on_with_it(dialect: str, model: str, last: str) -> None:
    body, _ = sent(dialect, {"model": model, "input": HALF})
    assert (body["messages"][-1]["role"], _text(body["messages"][-1])) == ("assistant", last)


@pytest.mark.parametrize(
    "model", ["anthropic/claude-opus-4.6", "anthropic/claude-sonnet-5", "google/gemini-3-pro"]
)
def test_case_52_a_gateway_knows_such_models_by_their_names(model: str) -> None:
    spoken = profile("openrouter").dialects["chat"]
    options = DialectOptions(ChatOptions, [(spoken.options, spoken.model_options)])
    assert options.of(model).prefill is False  # type: ignore[attr-defined]
    assert options.of("anthropic/claude-opus-4.5").prefill is True  # type: ignore[attr-defined]


def _text(given: Json) -> str:
    content = given["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


# ── 53: malformed arguments of earlier calls ─────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", ["llamacpp", "lmstudio", "ollama", "vllm"])
@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "nope"])
def test_case_53_engines_that_parse_arguments_get_an_object(name: str, arguments: str) -> None:
    request = {"input": [message("user", "Hi"), call(arguments=arguments), output()]}
    body, diagnostics = sent("chat", request, **profile(name).dialects["chat"].options)
    assert json.loads(_called(body)) == {"INVALID_JSON": arguments}
    assert repairs(diagnostics) == {"input[1].arguments": "not a JSON object, put under INVALID_JSON"}


@pytest.mark.parametrize("arguments", ["{}", '{"a": 1}', '{"INVALID_JSON": "x"}'])
def test_case_53_objects_stay_to_the_byte(arguments: str) -> None:
    request = {"input": [message("user", "Hi"), call(arguments=arguments), output()]}
    body, diagnostics = sent("chat", request, wrap_arguments=True)
    assert (_called(body), repairs(diagnostics)) == (arguments, {})


def test_case_53_anthropic_gets_an_object_and_it_is_said() -> None:
    request = {"input": [message("user", "Hi"), call(arguments='{"a": '), output()]}
    body, diagnostics = sent("anthropic", request)
    assert body["messages"][1]["content"][0]["input"] == {"INVALID_JSON": '{"a": '}
    assert repairs(diagnostics)["input[1].arguments"] == "not a JSON object, put under INVALID_JSON"
    assert _called(sent("chat", request)[0]) == '{"a": '


def _called(body: Json) -> str:
    arguments: str = body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    return arguments


# ── 54: calls that an abort left without outputs ─────────────────────────────────────────────────────
SHELL = {"type": "shell_call", "call_id": "c3", "action": {"commands": ["ls"]}}
LOCAL = {"type": "local_shell_call", "call_id": "c4", "status": "completed"}
LOCAL |= {"action": {"type": "exec", "command": ["ls"], "env": {}}}
PATCH = {"type": "apply_patch_call", "call_id": "c5", "operation": {"type": "delete_file", "path": "a"}}
SEARCH = {"type": "tool_search_call", "call_id": "c6", "execution": "client", "arguments": {"query": "x"}}
CUSTOM = {"type": "custom_tool_call", "call_id": "c2", "name": "sql", "input": "x"}
ABORTED = [call("c1"), CUSTOM, SHELL, LOCAL, PATCH, SEARCH]


@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_case_54_calls_without_outputs_are_answered(dialect: str) -> None:
    request = {"input": [message("user", "Hi"), *ABORTED, message("user", "Go on")]}
    with pytest.raises(InvalidRequestError, match="no tool output answers the call"):
        sent(dialect, request)
    body, diagnostics = sent(dialect, request, unanswered_calls="answer")
    ids = _call_ids(body)
    assert ids == ids[:6] * 2
    assert len(set(ids)) == 6
    places = [where for where, what in repairs(diagnostics).items() if "without an output" in what]
    assert places == [f"input[{index}]" for index in range(1, 7)]


def test_case_54_the_others_keep_theirs() -> None:
    items = [message("user", "Hi"), call("c1"), call("c2"), output("c2"), message("user", "Go on")]
    body, _ = sent("chat", {"input": items}, unanswered_calls="answer")
    outputs = {each["tool_call_id"]: each["content"] for each in body["messages"] if each["role"] == "tool"}
    assert outputs == {"c1": "[no output: the call was interrupted]", "c2": "seen"}
    whole = {"input": [message("user", "Hi"), call(), output()]}
    assert sent("chat", whole, unanswered_calls="answer")[0] == sent("chat", whole)[0]
    with pytest.raises(InvalidRequestError, match="no tool call before it"):
        sent("chat", {"input": [output()]}, unanswered_calls="answer")


# ── 56: tools whose schema has alternatives at its root ──────────────────────────────────────────────
FORMS = {
    "oneOf": [
        {"type": "object", "properties": {"mode": {"const": "create"}, "name": {}}, "required": ["mode"]},
        {"type": "object", "properties": {"mode": {"const": "delete"}, "id": {}}, "required": ["mode"]},
    ]
}
ONE_OBJECT = {
    "type": "object",
    "properties": {"mode": {"anyOf": [{"const": "create"}, {"const": "delete"}]}, "name": {}, "id": {}},
    "required": ["mode"],
}


def with_tool(parameters: Json) -> Json:
    return {"input": "Hi", "tools": [{"type": "function", "name": "update", "parameters": parameters}]}


def schema_of(body: Json) -> Json:
    """The schema of the only tool."""
    tool: Json = body["tools"][0]
    schema: Json = tool.get("input_schema") or tool.get("parameters") or tool["function"]["parameters"]
    return schema


@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_case_56_alternatives_at_the_root_are_one_object(dialect: str) -> None:
    options = {"schema_forms": ["object_root"]} if dialect == "chat" else {}
    body, diagnostics = sent(dialect, with_tool(FORMS), **options)
    assert schema_of(body) == ONE_OBJECT
    assert list(losses(diagnostics).values()) == ["alternatives at the root written as one object"]


def test_case_56_a_namespace_keeps_its_tools_where_openai_knows_it() -> None:
    tool = {"type": "function", "name": "update", "parameters": FORMS}
    space = {"type": "namespace", "name": "app", "description": "d", "tools": [tool]}
    body, diagnostics = sent("responses", {"input": "Hi", "tools": [space]})
    assert body["tools"][0]["tools"][0]["parameters"] == FORMS
    assert losses(diagnostics) == {}


@pytest.mark.parametrize("name", ["openai", "azure", "openrouter", "github-copilot", "litellm"])
def test_case_56_providers_that_refuse_alternatives(name: str) -> None:
    assert "object_root" in profile(name).dialects["chat"].options["schema_forms"]


@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
@pytest.mark.parametrize("parameters", [FORMS, {"type": None, "properties": {}}, {"properties": {}}])
def test_case_56_a_tools_schema_is_of_type_object(dialect: str, parameters: Json) -> None:
    assert schema_of(sent(dialect, with_tool(parameters))[0])["type"] == "object"


# ── 57: outputs that name no call, reasoning without a summary ───────────────────────────────────────
TOLD = {
    "type": "function_call_output",
    "id": "fco_1",
    "namespace": "codex_app",
    "name": "create_thread",
    "output": "<codex_delegation>Tidy up.</codex_delegation>",
    "internal_chat_message_metadata_passthrough": {},
}
AS_MESSAGE = {
    "type": "message",
    "role": "user",
    "content": [
        {"type": "input_text", "text": "[output of codex_app.create_thread]"},
        {"type": "input_text", "text": "<codex_delegation>Tidy up.</codex_delegation>"},
    ],
}


@pytest.mark.parametrize("dialect", UPSTREAMS)
@pytest.mark.parametrize("more", [{}, {"call_id": ""}, {"call_id": None}], ids=["left out", "empty", "null"])
def test_case_57_an_output_that_names_no_call_is_the_users_message(dialect: str, more: Json) -> None:
    around = [message("user", "Hi"), call("c1")], [output("c1")]
    body, diagnostics = sent(dialect, {"input": [*around[0], TOLD | more, *around[1]]})
    expected, expected_diagnostics = sent(dialect, {"input": [*around[0], AS_MESSAGE, *around[1]]})
    assert body == expected
    assert list(diagnostics) == list(expected_diagnostics)


def test_case_57_its_output_may_be_parts() -> None:
    parts = [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
    ]
    item = {"type": "custom_tool_call_output", "output": parts}
    body, _ = sent("responses", {"input": [item, {"type": "of_tomorrow"}]})
    assert body["input"] == [{"type": "message", "role": "user", "content": parts}, {"type": "of_tomorrow"}]


@pytest.mark.parametrize("more", [{}, {"summary": None}], ids=["left out", "null"])
def test_case_57_reasoning_without_a_summary_has_an_empty_one(more: Json) -> None:
    item = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA", **more}
    body, _ = sent("responses", {"input": [message("user", "Hi"), item, message("assistant", "Hello")]})
    assert body["input"][1] == {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


# ── 61: items and tools of one dialect ───────────────────────────────────────────────────────────────
FOREIGN = ["anthropic:advisor_20260301", "gemini:googleMaps", "codex:plan"]


@pytest.mark.parametrize("supersets", [True, False])
@pytest.mark.parametrize("kind", FOREIGN)
def test_case_61_what_one_dialect_has_is_not_sent_to_another(kind: str, supersets: bool) -> None:
    item = {"type": kind, "id": "x", "status": "completed", "block": {"type": "x"}}
    request = {"input": [message("user", "Hi"), item], "tools": [{"type": kind, "name": "x"}]}
    body, diagnostics = sent("responses", request, supersets=supersets)
    assert [each["type"] for each in body["input"]] == ["message"]
    assert "tools" not in body
    assert len(losses(diagnostics)) == 2


def test_case_61_an_extension_of_the_servers_own_is_sent() -> None:
    item = {"type": "acme:note", "id": "x", "status": "completed"}
    body, diagnostics = sent("responses", {"input": [message("user", "Hi"), item]})
    assert body["input"][1] == item
    assert losses(diagnostics) == {}


def test_case_61_the_fields_of_other_tools_stay_theirs() -> None:
    tools = [
        {"type": FOREIGN[0], "name": "x"},
        *({"type": "function", "name": name, "parameters": {}, "of_tomorrow": name} for name in "ab"),
    ]
    body, _ = sent("responses", {"input": "Hi", "tools": tools})
    assert [(tool["name"], tool["of_tomorrow"]) for tool in body["tools"]] == [("a", "a"), ("b", "b")]


def test_case_61_every_dialects_own_are_known() -> None:
    own = (anthropic_messages.types, bedrock_converse.types, gemini.types, interactions.types, turn)
    slugs = {each.SLUG for each in own}
    assert slugs == set(DIALECT_SLUGS)


# ── 62: parts in the form of Chat Completions ────────────────────────────────────────────────────────
PICTURE = "data:image/png;base64,AA=="


@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_case_62_parts_of_chat_in_the_input_are_read(dialect: str) -> None:
    chats: list[Any] = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    own = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": PICTURE}]
    bodies = [
        sent(
            dialect,
            {"input": [message("user", "Hi") | {"content": parts}, call(), output() | {"output": parts}]},
        )
        for parts in (chats, own)
    ]
    if dialect == "responses":
        bodies[0][0]["input"][0]["content"][0]["type"] = "input_text"  # `text` is known there
    assert bodies[0][0] == bodies[1][0]
    assert list(bodies[0][1]) == list(bodies[1][1])


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image_url", "image_url": PICTURE},
        {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
        {"type": "input_image", "image_url": {"url": PICTURE}, "detail": "low"},
    ],
)
def test_case_62_an_image_in_any_form(image: Json) -> None:
    body, _ = sent("responses", {"input": [message("user", "Hi") | {"content": [image]}]})
    (part,) = body["input"][0]["content"]
    assert part["type"] == "input_image"
    assert part["image_url"] == PICTURE
    assert ("low" in str(image)) == (part.get("detail") == "low")


# ── 63, 64: ids that recur, outputs that are sent again ──────────────────────────────────────────────
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}


@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_case_63_call_ids_that_recur_over_turns_are_unique_towards_every_upstream(dialect: str) -> None:
    """As of agents that number their calls in each turn anew."""
    turns = [
        each
        for turn in ("a", "b", "c")
        for each in (message("user", turn), call("terminal:0"), output("terminal:0"))
    ]
    body, diagnostics = sent(dialect, {"tools": [LOOK], "input": turns})
    text = json.dumps(body)
    base = "terminal_0" if dialect == "anthropic" else "terminal:0"
    assert [text.count(f'"{base}{number}"') for number in ("", "_2", "_3", "_4")] == [2, 2, 2, 0]
    assert {"input[4].call_id", "input[5].call_id"} <= repairs(diagnostics).keys()


def test_case_63_an_output_answers_a_call_since_the_user_s_last_message() -> None:
    """One of before that was given up, under the same id, has none; of several the oldest is answered."""
    given_up = [message("user", "a"), call("terminal:0")]
    again = [message("user", "b"), call("terminal:0"), call("terminal:0"), output("terminal:0")]
    items = decode_request(encode({"model": "m", "input": [*given_up, *again]}))
    call_ids = [
        getattr(entry.item, "call_id", "") for entry in settled_calls(entries_of(items, ()), Diagnostics())
    ]
    assert call_ids == ["", "terminal:0", "", "terminal:0_2", "terminal:0_3", "terminal:0_2"]


@pytest.mark.parametrize("dialect", UPSTREAMS)
def test_case_64_an_output_that_has_answered_in_an_earlier_turn_is_left_out(dialect: str) -> None:
    earlier = [message("user", "a"), call(), output(), call("call_2")]
    history = decode_request(encode({"model": "m", "input": earlier})).input
    translate, kind = UPSTREAMS[dialect]

    def translated(*outputs: Json) -> tuple[Any, Diagnostics]:
        request = {"model": "m", "tools": [LOOK], "input": [message("user", "a"), *outputs]}
        result: tuple[Any, Diagnostics] = translate(
            decode_request(encode(request)), history=history, options=msgspec.convert({}, kind)
        )
        return result

    body, diagnostics = translated(output(), output("call_2"))
    assert repairs(diagnostics)["input[1]"] == "its call already has an output, left out"
    assert encode(body).count(b'"seen"') == 2
    with pytest.raises(InvalidRequestError, match="call_1"):
        translated({**output(), "output": "something else"}, output("call_2"))
    with pytest.raises(InvalidRequestError, match="call_1"):  # nobody's earlier turn
        sent(dialect, {"tools": [LOOK], "input": [message("user", "a"), call(), output(), output()]})
