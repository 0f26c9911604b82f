"""Our request for an upstream that itself speaks Responses."""

import json
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.responses import ResponsesOptions, to_responses
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode, item_from
from openresponses_bridge.seal import Sealer
from tests.support.shared import shared_files

Json = dict[str, Any]
CALL: Json = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
ANSWER: Json = {"type": "function_call_output", "call_id": "c1", "output": "seen"}
FUNCTION: Json = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
GRAMMAR: Json = {
    "type": "custom",
    "name": "sql",
    "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
}


def sent(request: Json, history: list[Json] | None = None, **options: Any) -> tuple[Json, Diagnostics]:
    decoded = decode_request(encode({"model": "m", "input": "Hi", **request}))
    earlier = [item_from(item) for item in history or ()]
    body, diagnostics = to_responses(decoded, history=earlier, options=ResponsesOptions(**options))
    return json.loads(encode(body)), diagnostics


def body(request: Json, history: list[Json] | None = None, **options: Any) -> Json:
    return sent(request, history, **options)[0]


def losses(diagnostics: Diagnostics) -> list[str]:
    return [f"{case.where}: {case.what}" for case in diagnostics.of("loss")]


def refused(request: Json, history: list[Json] | None = None, **options: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        body(request, history, **options)
    return caught.value


# ── fields ─────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_plain_request_passes() -> None:
    assert body({"instructions": "Brief.", "temperature": 0.5}) == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "instructions": "Brief.",
        "temperature": 0.5,
        "store": False,
        "stream": False,
    }


def test_all_that_means_the_same_passes() -> None:
    fields: Json = {
        "include": ["reasoning.encrypted_content"],
        "metadata": {"a": "b"},
        "text": {
            "format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}},
            "verbosity": "low",
        },
        "top_p": 0.5,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "parallel_tool_calls": False,
        "max_output_tokens": 100,
        "max_tool_calls": 3,
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "truncation": "auto",
        "service_tier": "flex",
        "top_logprobs": 2,
        "user": "u",
        "client_metadata": {"c": 1},
        "stream": True,
        "stream_options": {"include_obfuscation": False},
    }
    payload, diagnostics = sent(fields)
    assert {name: payload[name] for name in fields} == fields
    assert losses(diagnostics) == []


def test_the_model_may_have_another_name_there() -> None:
    payload, _ = to_responses(decode_request(b'{"model":"alias","input":"Hi"}'), model="real")
    assert payload["model"] == "real"


def test_stream_options_say_nothing_without_a_stream() -> None:
    assert "stream_options" not in body({"stream_options": {"include_obfuscation": False}})


def test_a_limit_below_the_schemas_is_raised() -> None:
    request = decode_request(b'{"model":"m","input":"Hi"}')
    low = type(request)(model="m", input="Hi", max_output_tokens=3)
    payload, diagnostics = to_responses(low)
    assert payload["max_output_tokens"] == 16
    assert losses(diagnostics) == ["max_output_tokens: raised to 16"]


def test_what_the_upstream_refuses_is_left_out_and_reported() -> None:
    payload, diagnostics = sent({"top_p": 0.5, "metadata": {"a": "b"}}, omit=frozenset({"metadata", "user"}))
    assert "metadata" not in payload
    assert losses(diagnostics) == ["metadata: the upstream does not accept it"]


def test_fields_of_openais_own_are_a_loss_elsewhere() -> None:
    payload, diagnostics = sent({"user": "u", "client_metadata": {"c": 1}}, supersets=False)
    assert not payload.keys() & {"user", "client_metadata"}
    assert losses(diagnostics) == [
        "user: is not known to the upstream",
        "client_metadata: is not known to the upstream",
    ]


@pytest.mark.parametrize(
    ("request_", "param"),
    [({"model": None}, "model"), ({"input": None}, "input"), ({"input": []}, "input")],
)
def test_nothing_to_send_is_refused(request_: Json, param: str) -> None:
    assert refused(request_).param == param


def test_instructions_alone_are_enough() -> None:
    assert "input" not in body({"input": None, "instructions": "Go."})


# ── state ──────────────────────────────────────────────────────────────────────────────────────────────────
STATE = {"previous_response_id": "resp_1", "store": True, "background": False}


def test_an_upstream_without_state_gets_none_of_ours() -> None:
    payload = body(STATE)
    assert not payload.keys() & {"previous_response_id", "background"}
    assert payload["store"] is False


def test_an_upstream_with_state_goes_on_from_its_own() -> None:
    payload = body(STATE | {"input": [ANSWER]}, stateful=True)
    assert {name: payload[name] for name in STATE} == STATE
    assert payload["input"] == [ANSWER]


def test_a_link_alone_is_enough_where_there_is_state() -> None:
    payload = body(STATE | {"input": None}, stateful=True)
    assert "input" not in payload


def test_resolved_history_goes_along_and_the_link_does_not() -> None:
    answer: Json = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "phase": "final_answer",
        "content": [{"type": "output_text", "text": "Ho", "annotations": [], "logprobs": []}],
    }
    payload = body(STATE, [answer], stateful=True)
    shown = {**answer, "content": [{"type": "output_text", "text": "Ho", "annotations": []}]}
    assert payload["input"] == [shown, {"type": "message", "role": "user", "content": "Hi"}]
    assert "previous_response_id" not in payload
    assert payload["store"] is True


def test_encrypted_reasoning_is_asked_for_where_nothing_is_stored() -> None:
    fields = {"include": ["web_search_call.results", "reasoning.encrypted_content"]}
    assert body(fields, encrypted_reasoning=True)["include"] == fields["include"]
    assert body({}, encrypted_reasoning=True)["include"] == ["reasoning.encrypted_content"]
    assert "include" not in body({}, encrypted_reasoning=True, stateful=True)


# ── items ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_ids_and_statuses_are_stripped_where_asked() -> None:
    call = {**CALL, "id": "fc_1", "status": "completed"}
    answer = {**ANSWER, "id": "fco_1", "status": "completed"}
    assert body({"input": [call, answer]})["input"] == [call, answer]
    assert body({"input": [call, answer]}, item_ids=False, item_statuses=False)["input"] == [CALL, ANSWER]


def test_nulls_that_say_nothing_are_left_out() -> None:
    item = {"type": "message", "role": "user", "content": "Hi", "id": None, "status": None, "phase": None}
    assert body({"input": [item]})["input"] == [{"type": "message", "role": "user", "content": "Hi"}]


def test_items_of_openais_own_keep_their_form() -> None:
    items: list[Json] = [
        {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "SELECT"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "1"}]},
        {"type": "shell_call", "call_id": "c2", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c2", "output": [{"stdout": "a", "stderr": ""}]},
        {"type": "tool_search_call", "arguments": None, "id": "tsc_1"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        {"type": "additional_tools", "role": "developer", "tools": [FUNCTION]},
    ]
    payload, diagnostics = sent({"input": items})
    assert payload["input"] == items
    assert losses(diagnostics) == []


def test_items_under_our_slug_go_back_to_their_own_name() -> None:
    item = {"type": "openai:web_search_call", "id": "ws_1", "status": "completed"}
    assert body({"input": [item]})["input"] == [{**item, "type": "web_search_call"}]


def test_elsewhere_calls_of_any_kind_are_functions() -> None:
    items: list[Json] = [
        {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "SELECT"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "1"}]},
        {"type": "apply_patch_call", "call_id": "c2", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "call_id": "c2", "status": "completed", "output": "done"},
        {**CALL, "call_id": "c3", "id": "fc_3", "namespace": "files"},
        {**ANSWER, "call_id": "c3"},
        {"type": "additional_tools", "role": "developer", "tools": [FUNCTION]},
        {"type": "file_search_call", "id": "fs", "status": "completed"},
        {"type": "acme:note", "id": "n", "text": "x"},
    ]
    spaced = {"type": "namespace", "name": "files", "tools": [FUNCTION]}
    payload, diagnostics = sent({"input": items, "tools": [spaced]}, supersets=False)
    assert payload["input"] == [
        {"type": "function_call", "call_id": "c1", "name": "sql", "arguments": '{"input":"SELECT"}'},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "1"}]},
        {
            "type": "function_call",
            "call_id": "c2",
            "name": "apply_patch",
            "arguments": '{"type":"delete_file","path":"a"}',
        },
        {"type": "function_call_output", "call_id": "c2", "output": "done"},
        {"type": "function_call", "call_id": "c3", "name": "files__look", "arguments": "{}", "id": "fc_3"},
        {**ANSWER, "call_id": "c3"},
        {"type": "acme:note", "id": "n", "text": "x"},
    ]
    assert losses(diagnostics) == [
        "input[7]: an item of type 'file_search_call' is not known to the upstream"
    ]
    assert [tool["name"] for tool in payload["tools"]] == ["files__look", "look"]


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([CALL], "input[0]"),
        ([{"type": "message", "role": "user", "content": "Hi"}, ANSWER], "input[1]"),
        ([CALL, ANSWER, ANSWER], "input[2]"),
    ],
)
def test_case_45_unpaired_calls_and_outputs_are_refused(items: list[Json], param: str) -> None:
    error = refused({"input": items})
    assert (error.code, error.param) == ("unpaired_tool_call", param)


@pytest.mark.parametrize("supersets", [True, False])
def test_case_40_an_output_that_names_its_calls_item_leaves_with_the_call_id(supersets: bool) -> None:
    earlier = {**CALL, "id": "fc_1", "status": "completed"}
    payload = body({"input": [{**ANSWER, "call_id": "fc_1"}]}, [earlier], supersets=supersets)
    assert [item["call_id"] for item in payload["input"]] == ["c1", "c1"]


def test_case_45_faults_of_earlier_turns_are_laid_to_the_link() -> None:
    call = {**CALL, "id": "f", "status": "completed"}
    assert refused({"previous_response_id": "r"}, [call]).param == "previous_response_id"


def test_case_25_a_call_that_was_cut_is_not_sent() -> None:
    payload, diagnostics = sent({}, [{**CALL, "id": "f", "status": "incomplete"}])
    assert [item["type"] for item in payload["input"]] == ["message"]
    assert losses(diagnostics) == ["previous_response_id: a call that was cut off and never answered"]


def test_references_need_an_upstream_that_keeps_items() -> None:
    reference = {"type": "item_reference", "id": "msg_1"}
    assert refused({"input": [reference]}).param == "input[0]"
    assert body({"input": [reference]}, stateful=True, item_ids=False)["input"] == [reference]


# ── reasoning ──────────────────────────────────────────────────────────────────────────────────────────────
REASONING: Json = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "s"}],
    "content": [{"type": "reasoning_text", "text": "raw"}],
    "encrypted_content": "theirs",
}


def test_case_31_reasoning_goes_back_whole() -> None:
    assert body({"input": [REASONING]})["input"] == [REASONING]


def test_raw_reasoning_is_a_loss_where_it_is_not_taken() -> None:
    payload, diagnostics = sent({"input": [REASONING]}, reasoning_content=False)
    assert payload["input"] == [{name: value for name, value in REASONING.items() if name != "content"}]
    assert losses(diagnostics) == ["input[0]: raw reasoning of earlier turns"]


def test_what_was_sealed_for_another_upstream_is_not_sent() -> None:
    ours = Sealer().seal(b"{}", "anthropic")
    bare = {"type": "reasoning", "summary": [], "encrypted_content": ours}
    payload, diagnostics = sent({"input": [{**REASONING, "encrypted_content": ours}, bare]})
    assert payload["input"] == [
        {name: value for name, value in REASONING.items() if name != "encrypted_content"}
    ]
    assert losses(diagnostics) == [f"input[{at}]: reasoning sealed for another upstream" for at in (0, 1)]


# ── tools ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_tools_and_choices_keep_their_form() -> None:
    tools = [
        FUNCTION,
        GRAMMAR,
        {"type": "web_search"},
        {"type": "namespace", "name": "ns", "tools": [FUNCTION]},
    ]
    for choice in ["required", {"type": "function", "name": "look"}, {"type": "custom", "name": "sql"}]:
        payload = body({"tools": tools, "tool_choice": choice})
        assert payload["tools"] == tools
        assert payload["tool_choice"] == choice


def test_elsewhere_tools_are_functions_and_hosted_ones_a_loss() -> None:
    request = decode_request(
        encode({"model": "m", "input": "Hi", "tools": [FUNCTION, GRAMMAR, {"type": "web_search"}]})
    )
    identities = ToolIdentityMap()
    payload, diagnostics = to_responses(
        request, tool_identities=identities, options=ResponsesOptions(supersets=False)
    )
    assert [(tool["type"], tool["name"]) for tool in payload["tools"]] == [
        ("function", "look"),
        ("function", "sql"),
    ]
    assert payload["tools"][0]["strict"] is True
    identity = identities.resolve("sql")
    assert identity is not None
    assert identity.kind is ToolKind.CUSTOM
    assert losses(diagnostics) == ["tools: a tool of type 'web_search' is not known to the upstream"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, None),
        ("auto", "auto"),
        ("required", "required"),
        ({"type": "function", "name": "look"}, {"type": "function", "name": "look"}),
        ({"type": "custom", "name": "sql"}, {"type": "function", "name": "sql"}),
        ({"type": "shell"}, {"type": "function", "name": "shell"}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]},
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]},
        ),
    ],
)
def test_elsewhere_the_choice_is_among_functions(choice: Any, expected: Any) -> None:
    tools = [FUNCTION, GRAMMAR, {"type": "shell"}]
    assert body({"tools": tools, "tool_choice": choice}, supersets=False).get("tool_choice") == expected


def test_elsewhere_allowed_tools_lose_those_that_are_not_known() -> None:
    named = [{"type": "function", "name": "look"}, {"type": "function", "name": "gone"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": named}
    payload, diagnostics = sent({"tools": [FUNCTION], "tool_choice": choice}, supersets=False)
    assert payload["tool_choice"]["tools"] == named[:1]
    assert losses(diagnostics) == ["tool_choice.tools: tools that are not known there"]


@pytest.mark.parametrize(
    "request_",
    [
        {"tool_choice": "required"},
        {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "gone"}},
        {
            "tools": [FUNCTION],
            "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "gone"}]},
        },
    ],
)
def test_elsewhere_a_choice_that_cannot_be_kept_is_refused(request_: Json) -> None:
    assert refused(request_, supersets=False).param == "tool_choice"


def test_elsewhere_two_kinds_of_tools_under_one_name_are_refused() -> None:
    tools = [FUNCTION, {"type": "custom", "name": "look"}]
    assert refused({"tools": tools}, supersets=False).param == "tools[1]"


@pytest.mark.parametrize("path", shared_files("client-requests", "*.jsonl"))
def test_what_real_clients_send_passes_unchanged(path: Any) -> None:
    for line in path.read_bytes().splitlines():
        request = json.loads(line)
        client_body = request.get("body", request)
        if not isinstance(client_body, dict) or not isinstance(client_body.get("input"), list):
            continue
        known = {name: value for name, value in client_body.items() if name not in ("type", "generate")}
        payload, diagnostics = to_responses(
            decode_request(encode({"model": "m", **known})), options=ResponsesOptions(stateful=True)
        )
        assert losses(diagnostics) == []
        sent_items = json.loads(encode(payload))["input"]
        for ours, theirs in zip(sent_items, client_body["input"], strict=True):
            for name, value in ours.items():
                assert value == theirs.get(name, "message" if name == "type" else None), (name, theirs)
