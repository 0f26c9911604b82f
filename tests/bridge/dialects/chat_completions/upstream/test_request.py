"""Responses requests → Chat Completions requests, and what is reported as lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.chat_completions import ChatOptions, to_chat
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_create_message, decode_item, decode_request, encode
from tests.support.shared import shared_root

USER = {"role": "user", "content": "Hi"}


def translate(
    input: Any = "Hi", *, history: Any = (), options: ChatOptions | None = None, **fields: Any
) -> tuple[dict[str, Any], Diagnostics]:
    """The chat request as plain JSON, and its report."""
    body = {"model": "m", "input": input} | fields
    request = decode_request(json.dumps({name: value for name, value in body.items() if value is not None}))
    items = [decode_item(json.dumps(item)) for item in history]
    chat, diagnostics = to_chat(request, history=items, options=options or ChatOptions())
    decoded: dict[str, Any] = json.loads(encode(chat))
    return decoded, diagnostics


def messages(*items: Any, options: ChatOptions | None = None, **fields: Any) -> list[dict[str, Any]]:
    chat, _ = translate(list(items), options=options, **fields)
    return chat["messages"]  # type: ignore[no-any-return]


def losses(*items: Any, **fields: Any) -> list[str]:
    _, diagnostics = translate(list(items) or "Hi", **fields)
    return [f"{case.where}: {case.what}" for case in diagnostics.of("loss")]


def refused(*items: Any, **fields: Any) -> tuple[str, str | None]:
    """(code, param) of the refusal."""
    with pytest.raises(InvalidRequestError) as caught:
        translate(list(items), **fields)
    assert caught.value.http_status == 400
    return caught.value.code, caught.value.param


def call(call_id: str = "call_a", name: str = "f", arguments: str = "{}", **rest: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **rest}


def answer(call_id: str = "call_a", output: Any = "ok") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def chat_call(call_id: str = "call_a", name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def function(name: str = "f", **rest: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, **rest}


# ── messages ───────────────────────────────────────────────────────────────────────────────────────
def test_text_input_is_a_user_message() -> None:
    assert translate("Hi")[0] == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def test_instructions_come_first() -> None:
    assert messages(USER, instructions="Be brief.") == [{"role": "system", "content": "Be brief."}, USER]


@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_developer_role_is_the_upstreams(role: Any) -> None:
    options = ChatOptions(developer_role=role)
    developer = {"role": "developer", "content": "Be brief."}
    assert messages(developer, USER, options=options)[0] == {"role": role, "content": "Be brief."}


def test_text_parts_become_one_text() -> None:
    parts = [{"type": "input_text", "text": "One."}, {"type": "input_text", "text": "Two."}]
    assert messages({"role": "user", "content": parts}) == [{"role": "user", "content": "One.\n\nTwo."}]


PARTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
    ),
    (
        {"type": "input_image", "image_url": "https://a.example/x.png", "detail": "original"},
        {"type": "image_url", "image_url": {"url": "https://a.example/x.png", "detail": "high"}},
    ),
    (
        {"type": "input_image", "image_url": "https://a.example/x.png"},
        {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}},
    ),
    (
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
    ),
    ({"type": "input_file", "file_id": "file_1"}, {"type": "file", "file": {"file_id": "file_1"}}),
    (
        {"type": "input_video", "video_url": "https://a.example/x.mp4"},
        {"type": "video_url", "video_url": {"url": "https://a.example/x.mp4"}},
    ),
    (
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ),
]


@pytest.mark.parametrize(("part", "expected"), PARTS)
def test_user_parts(part: dict[str, Any], expected: dict[str, Any]) -> None:
    content = [{"type": "input_text", "text": "Look."}, part, {"type": "refusal", "refusal": "No."}]
    assert messages({"role": "user", "content": content})[0]["content"] == [
        {"type": "text", "text": "Look."},
        expected,
        {"type": "text", "text": "No."},
    ]


LOST_PARTS = {
    "input_image": {"type": "input_image", "file_id": "file_1"},
    "input_file": {"type": "input_file", "file_url": "https://a.example/x.pdf"},
    "input_hologram": {"type": "input_hologram", "data": "?"},
}


@pytest.mark.parametrize("kind", LOST_PARTS)
def test_parts_without_a_place_are_losses(kind: str) -> None:
    content = [{"type": "input_text", "text": "Look."}, LOST_PARTS[kind]]
    item = {"role": "user", "content": content}
    assert messages(item) == [{"role": "user", "content": "Look."}]
    assert losses(item) == [f"input[0].content[1]: {kind} can't be expressed here"]


def test_original_detail_is_reported() -> None:
    image = {"type": "input_image", "image_url": "https://a.example/x.png", "detail": "original"}
    assert losses({"role": "user", "content": [image]}) == [
        "input[0].content[0].detail: original sent as high"
    ]


# ── turns ──────────────────────────────────────────────────────────────────────────────────────────
def test_assistant_text_and_calls_are_one_message() -> None:
    turn = {
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Let "}, {"type": "output_text", "text": "me."}],
    }
    assert messages(
        USER, turn, call("a", "f", '{"x":1}'), call("b", "g"), answer("b", "B"), answer("a", "A")
    ) == [
        USER,
        {
            "role": "assistant",
            "content": "Let me.",
            "tool_calls": [chat_call("a", "f", '{"x":1}'), chat_call("b", "g")],
        },
        {"role": "tool", "content": "A", "tool_call_id": "a"},
        {"role": "tool", "content": "B", "tool_call_id": "b"},
    ]


def test_calls_answered_one_by_one_are_turns_of_their_own() -> None:
    roles = [m["role"] for m in messages(call("a"), answer("a"), call("b"), answer("b"), USER)]
    assert roles == ["assistant", "tool", "assistant", "tool", "user"]


def test_two_assistant_messages_stay_two() -> None:
    one, two = ({"role": "assistant", "content": text} for text in ("One.", "Two."))
    assert messages(one, two) == [one, two]


def test_text_after_a_call_is_another_turn_and_the_output_moves_up() -> None:
    message = {"role": "assistant", "content": "Meanwhile."}
    chat, diagnostics = translate([call("a"), message, call("b"), USER, answer("a", "A"), answer("b", "B")])
    assert chat["messages"] == [
        {"role": "assistant", "tool_calls": [chat_call("a")]},
        {"role": "tool", "content": "A", "tool_call_id": "a"},
        {"role": "assistant", "content": "Meanwhile.", "tool_calls": [chat_call("b")]},
        {"role": "tool", "content": "B", "tool_call_id": "b"},
        USER,
    ]
    assert [str(case) for case in diagnostics] == [
        "repair: input[4]: a tool output was moved up to its call",
        "repair: input[5]: a tool output was moved up to its call",
    ]


def test_empty_assistant_message_is_left_out() -> None:
    assert messages(USER, {"role": "assistant", "content": ""}, {"role": "assistant", "content": []}) == [
        USER
    ]


def test_refusal_is_a_field_of_its_own() -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert messages(refusal) == [{"role": "assistant", "refusal": "No."}]


def test_what_an_assistant_message_can_not_hold_is_a_loss() -> None:
    citation = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    content = [
        {"type": "output_text", "text": "See.", "annotations": [citation]},
        {"type": "input_image", "image_url": "https://a.example"},
    ]
    assert losses({"role": "assistant", "content": content, "phase": "commentary"}) == [
        "input[0].content: an assistant's message takes text only",
        "input[0].content: annotations can't be expressed",
        "input[0].phase: can't be expressed",
    ]


THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
SUMMARY = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "In short."}]}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_goes_with_the_turn_it_led_to(field: Any) -> None:
    options = ChatOptions(reasoning_field=field)
    assert messages(
        USER,
        THOUGHT,
        SUMMARY,
        call(),
        answer(),
        SUMMARY,
        {"role": "assistant", "content": "So."},
        options=options,
    ) == [
        USER,
        {"role": "assistant", field: "Hm.\n\nIn short.", "tool_calls": [chat_call()]},
        {"role": "tool", "content": "ok", "tool_call_id": "call_a"},
        {"role": "assistant", "content": "So.", field: "In short."},
    ]


def test_reasoning_between_parallel_calls_begins_another_turn() -> None:
    options = ChatOptions(reasoning_field="reasoning")
    turns = messages(call("a"), THOUGHT, call("b"), answer("a"), answer("b"), options=options)
    assert [m["role"] for m in turns] == ["assistant", "tool", "assistant", "tool"]


def test_a_summary_beside_the_reasoning_itself_is_a_loss() -> None:
    both = THOUGHT | {"summary": SUMMARY["summary"]}
    options, reply = ChatOptions(reasoning_field="reasoning"), {"role": "assistant", "content": "So."}
    assert messages(USER, both, reply, options=options)[1] == reply | {"reasoning": "Hm."}
    assert losses(USER, both, reply, options=options) == [
        "input[1]: a summary beside the reasoning itself can't be expressed"
    ]


def test_reasoning_without_a_place_is_a_loss() -> None:
    assert losses(USER, THOUGHT) == ["input[1]: reasoning of earlier turns can't be expressed"]
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "b3BhcXVl"}
    assert losses(USER, sealed) == ["input[1]: encrypted reasoning can't be expressed"]
    assert losses(USER, {"type": "reasoning", "summary": []}) == []


@pytest.mark.parametrize("behind", [[], [USER]])
def test_reasoning_that_led_to_nothing_is_a_loss(behind: list[Any]) -> None:
    _, diagnostics = translate([USER, THOUGHT, *behind], options=ChatOptions(reasoning_field="reasoning"))
    assert [case.what for case in diagnostics] == ["reasoning with no answer after it can't be expressed"]


# ── tool items ─────────────────────────────────────────────────────────────────────────────────────
PATCH = {"type": "update_file", "path": "a.py", "diff": "+x"}
TOOL_ITEMS: dict[str, tuple[dict[str, Any], dict[str, Any], str, Any, str]] = {
    "custom": (
        {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": '*** "Begin"\n'},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "ok"}]},
        "apply_patch",
        {"input": '*** "Begin"\n'},
        "ok",
    ),
    "shell": (
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"], "timeout_ms": 5}},
        {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "stderr": ""}]},
        "shell",
        {"commands": ["ls"], "timeout_ms": 5},
        '[{"stdout":"a","stderr":""}]',
    ),
    "local shell": (
        {
            "type": "local_shell_call",
            "call_id": "c",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "local_shell_call_output", "id": "c", "output": "a"},
        "local_shell",
        {"command": ["ls"], "env": {}},
        "a",
    ),
    "patch": (
        {"type": "apply_patch_call", "call_id": "c", "operation": PATCH},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "completed"},
        "apply_patch",
        PATCH,
        "done",
    ),
    "failed patch": (
        {"type": "apply_patch_call", "call_id": "c", "operation": PATCH},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no such file"},
        "apply_patch",
        PATCH,
        "failed: no such file",
    ),
    "tool search": (
        {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"query": "x"}},
        {"type": "tool_search_output", "call_id": "c", "tools": [function("found"), {"type": "web_search"}]},
        "tool_search",
        {"query": "x"},
        '{"tools":["found"]}',
    ),
    "namespaced": (
        call("c", "spawn", '{"n":1}', namespace="agents"),
        answer("c"),
        "agents__spawn",
        {"n": 1},
        "ok",
    ),
    "without arguments": (call("c", "f", ""), answer("c"), "f", {}, "ok"),
}


@pytest.mark.parametrize("kind", TOOL_ITEMS)
def test_e11_tool_items_are_the_function_calls_the_model_made(kind: str) -> None:
    call_item, answered, name, arguments, output = TOOL_ITEMS[kind]
    assistant, tool = messages(call_item, answered)
    [tool_call] = assistant["tool_calls"]
    assert (tool_call["id"], tool_call["function"]["name"]) == ("c", name)
    assert json.loads(tool_call["function"]["arguments"]) == arguments
    assert tool == {"role": "tool", "content": output, "tool_call_id": "c"}


@pytest.mark.parametrize("kind", ["shell", "local shell", "patch", "custom"])
def test_output_items_of_earlier_turns_are_taken_as_well(kind: str) -> None:
    call_item, answered, name, arguments, _ = TOOL_ITEMS[kind]
    chat, _ = translate([answered], history=[call_item | {"id": "i", "status": "completed"}])
    called_function = chat["messages"][0]["tool_calls"][0]["function"]
    assert (called_function["name"], json.loads(called_function["arguments"])) == (name, arguments)


def test_image_of_an_output_moves_to_a_user_message_behind_all_outputs() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA"}
    text = {"type": "input_text", "text": "Here."}
    chat, diagnostics = translate([call("a"), call("b"), answer("a", [text, image]), answer("b", [image])])
    chat_image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    assert chat["messages"][1:] == [
        {"role": "tool", "content": "Here.", "tool_call_id": "a"},
        {"role": "tool", "content": "(attached below)", "tool_call_id": "b"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Attached to the output of tool call a:"},
                chat_image,
                {"type": "text", "text": "Attached to the output of tool call b:"},
                chat_image,
            ],
        },
    ]
    assert [str(case) for case in diagnostics] == [
        "loss: input[2].output: images and files moved to a user message",
        "loss: input[3].output: images and files moved to a user message",
    ]


def test_search_that_the_server_ran_is_no_call() -> None:
    searched = {"type": "tool_search_call", "call_id": None, "arguments": {"query": "x"}}
    result = {"type": "tool_search_output", "call_id": None, "tools": [function("found")]}
    chat, diagnostics = translate([USER, searched, result])
    assert chat["messages"] == [USER]
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["found"]
    assert [case.kind for case in diagnostics] == ["ignored"]


# ── pairing ────────────────────────────────────────────────────────────────────────────────────────
def test_case_45_call_without_output_is_refused() -> None:
    assert refused(USER, call("a"), USER) == ("unpaired_tool_call", "input[1]")
    assert refused(USER, call("a")) == ("unpaired_tool_call", "input[1]")


def test_output_without_call_is_refused() -> None:
    assert refused(USER, answer("a")) == ("unpaired_tool_call", "input[1]")
    assert refused(answer("a"), call("a")) == ("unpaired_tool_call", "input[0]")
    assert refused(call("a"), answer("a"), answer("a")) == ("unpaired_tool_call", "input[2]")


def test_call_of_an_earlier_turn_without_output_is_refused() -> None:
    earlier = call("a", id="fc_1", status="completed")
    assert refused(USER, history=[earlier]) == ("unpaired_tool_call", "previous_response_id")


def test_case_40_output_alone_goes_with_the_call_of_an_earlier_turn() -> None:
    earlier = [
        {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []},
        call("call_a", id="fc_1", status="completed"),
    ]
    chat, _ = translate([answer("call_a")], history=earlier)
    assert [message["role"] for message in chat["messages"]] == ["assistant", "tool"]


def test_case_40_output_may_name_the_call_by_its_item_id() -> None:
    chat, _ = translate([answer("fc_1")], history=[call("call_a", id="fc_1", status="completed")])
    assert chat["messages"][1]["tool_call_id"] == "call_a"


def test_one_call_id_used_twice_is_answered_in_order() -> None:
    turns = messages(call("a"), answer("a", "1"), call("a"), answer("a", "2"))
    assert [message.get("content") for message in turns] == [None, "1", None, "2"]


def test_case_25_cut_call_without_output_is_left_out() -> None:
    cut = call("a", arguments='{"x', id="fc_1", status="incomplete")
    chat, diagnostics = translate([USER], history=[cut])
    assert chat["messages"] == [USER]
    assert [str(case) for case in diagnostics] == [
        "loss: history[0]: a call that was cut off and never run, left out"
    ]


# ── items that have no place ───────────────────────────────────────────────────────────────────────
def test_unresolved_reference_is_refused() -> None:
    assert refused(USER, {"type": "item_reference", "id": "msg_1"}) == ("invalid_value", "input[1]")


def test_compaction_that_nobody_opened_is_refused() -> None:
    compaction = {"type": "compaction", "encrypted_content": "sealed"}
    assert refused(USER, compaction) == ("unsupported_parameter", "input[1]")


def test_hosted_items_are_losses() -> None:
    searched = {"type": "file_search_call", "id": "fs_1", "status": "completed"}
    assert losses(USER, searched) == ["input[1]: an item of type 'file_search_call' can't be expressed"]


@pytest.mark.parametrize("fields", [{"input": None}, {"input": []}])
def test_nothing_to_answer_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        translate(**fields)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "input")


# ── parameters ─────────────────────────────────────────────────────────────────────────────────────
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
    (
        {"presence_penalty": 1.0, "frequency_penalty": -1.0},
        {"presence_penalty": 1.0, "frequency_penalty": -1.0},
    ),
    ({"max_output_tokens": 100}, {"max_completion_tokens": 100}),
    ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
    ({"reasoning": {"effort": None}}, {}),
    ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
    ({"text": {"format": {"type": "text"}}}, {}),
    ({"text": {"format": None}}, {}),
    ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    (
        {
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "n",
                    "schema": SCHEMA,
                    "strict": False,
                    "description": "d",
                }
            }
        },
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": SCHEMA, "strict": False, "description": "d"},
            }
        },
    ),
    (
        {"text": {"format": {"type": "json_schema", "schema": SCHEMA, "strict": None}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "response", "schema": SCHEMA}}},
    ),
    ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
    ({"top_logprobs": 0}, {}),
    ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
    ({"include": ["reasoning.encrypted_content"]}, {}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    ({"stream": False}, {}),
    (
        {"user": "u", "safety_identifier": "s", "prompt_cache_key": "p", "service_tier": "flex"},
        {"user": "u", "safety_identifier": "s", "prompt_cache_key": "p", "service_tier": "flex"},
    ),
    (
        {
            "store": True,
            "metadata": {"a": "b"},
            "truncation": "disabled",
            "max_tool_calls": 3,
            "background": False,
        },
        {},
    ),
    ({"parallel_tool_calls": False}, {}),
]


@pytest.mark.parametrize(("given", "expected"), FIELDS)
def test_parameters(given: dict[str, Any], expected: dict[str, Any]) -> None:
    chat, diagnostics = translate("Hi", **given)
    assert chat == {"model": "m", "messages": [USER]} | expected
    assert not list(diagnostics)


def test_options_say_what_the_upstream_takes() -> None:
    options = ChatOptions(
        max_tokens_field="max_tokens",
        stream_usage=False,
        forward_store=True,
        omit=frozenset({"verbosity", "user", "top_p", "seed"}),
    )
    fields = {"store": True, "metadata": {"a": "b"}, "text": {"verbosity": "low"}, "top_p": 0.5}
    chat, diagnostics = translate("Hi", options=options, stream=True, max_output_tokens=16, **fields)
    assert chat == {
        "model": "m",
        "messages": [USER],
        "max_tokens": 16,
        "store": True,
        "metadata": {"a": "b"},
        "stream": True,
    }
    assert [str(case) for case in diagnostics] == [
        "loss: top_p: the upstream does not accept it",
        "loss: verbosity: the upstream does not accept it",
    ]


def test_parameters_that_can_not_be_said_are_losses() -> None:
    fields = {
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["web_search_call.results"],
        "client_metadata": {"a": 1},
        "text": {"format": {"type": "grammar", "definition": "?"}},
    }
    assert losses(**fields) == [
        "reasoning.summary: summaries can't be requested",
        "client_metadata: can't be expressed",
        "text.format: 'grammar' can't be expressed",
        "include: 'web_search_call.results' is not known to the upstream",
    ]


def test_model_may_have_another_name_upstream() -> None:
    request = decode_request(json.dumps({"model": "alias", "input": "Hi"}))
    assert to_chat(request, model="real")[0].model == "real"


def test_request_without_any_model_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        to_chat(decode_request(b'{"input":"Hi"}'))
    assert caught.value.param == "model"


# ── tools ──────────────────────────────────────────────────────────────────────────────────────────
def tools(*declared: Any, **fields: Any) -> list[dict[str, Any]]:
    chat, _ = translate("Hi", tools=list(declared), **fields)
    return [tool["function"] for tool in chat.get("tools", ())]


def test_function_tools() -> None:
    assert tools(
        function("f", description="d", parameters=SCHEMA, strict=True), function("g", strict=None)
    ) == [
        {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
        {"name": "g", "parameters": {"type": "object", "properties": {}}},
    ]


@pytest.mark.parametrize("nested", [False, True])
def test_case_33_custom_tool_is_a_function_with_its_grammar_in_words(nested: bool) -> None:
    grammar = {"syntax": "lark", "definition": "start: X"}
    format = {"type": "grammar", **({"grammar": grammar} if nested else grammar)}
    [tool] = tools({"type": "custom", "name": "apply_patch", "description": "Edits.", "format": format})
    assert tool["name"] == "apply_patch"
    assert tool["parameters"]["required"] == ["input"]
    assert tool["parameters"]["properties"]["input"]["type"] == "string"
    assert tool["description"].startswith("Edits.\n\n")
    assert "lark" in tool["description"]
    assert tool["description"].endswith("start: X")


@pytest.mark.parametrize("format", [None, {"type": "text"}])
def test_custom_tool_without_grammar(format: Any) -> None:
    declared = {"type": "custom", "name": "note"} | ({"format": format} if format else {})
    [tool] = tools(declared)
    assert "description" not in tool


@pytest.mark.parametrize(
    ("kind", "required"),
    [("shell", ["commands"]), ("local_shell", ["command"]), ("apply_patch", ["type", "path"])],
)
def test_e11_built_in_tools_have_the_schema_of_their_action(kind: str, required: list[str]) -> None:
    [tool] = tools({"type": kind})
    assert (tool["name"], tool["parameters"]["required"]) == (kind, required)


def test_case_35_namespaces_are_part_of_the_name_and_come_back() -> None:
    identities = ToolIdentityMap()
    namespace = {
        "type": "namespace",
        "name": "agents",
        "description": "Sub-agents.",
        "tools": [function("spawn", description="Starts one."), {"type": "custom", "name": "run"}],
    }
    request = decode_request(json.dumps({"model": "m", "input": "Hi", "tools": [namespace]}))
    chat, _ = to_chat(request, tool_identities=identities)
    assert chat.tools is not None
    assert [tool.function.name for tool in chat.tools] == ["agents__spawn", "agents__run"]
    assert chat.tools[0].function.description == "Sub-agents.\n\nStarts one."
    spawn = identities.resolve("agents__spawn")
    assert spawn is not None
    assert (spawn.kind, spawn.name, spawn.namespace) == (ToolKind.FUNCTION, "spawn", "agents")


def test_tools_of_the_input_are_declared_too() -> None:
    additional = {"type": "additional_tools", "role": "developer", "tools": [function("late"), function("f")]}
    chat, _ = translate([additional, USER], tools=[function("f")])
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["f", "late"]
    assert chat["messages"] == [USER]


def test_tools_that_an_earlier_search_found_are_declared_too() -> None:
    searched = {
        "type": "tool_search_call",
        "id": "ts",
        "call_id": "c",
        "arguments": {},
        "status": "completed",
    }
    result = {
        "type": "tool_search_output",
        "id": "to",
        "call_id": "c",
        "tools": [function("found"), {"type": "?"}, {}],
    }
    chat, diagnostics = translate([USER], history=[searched, result])
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["found"]
    assert [str(case) for case in diagnostics] == [
        "loss: history[1].tools[1]: ? is not known to the upstream",
        "loss: history[1].tools[2]: a tool without a type is not known to the upstream",
    ]


def test_hosted_tools_are_losses() -> None:
    hosted = [{"type": "web_search"}, {"type": "tool_search", "execution": "server"}, {"type": "mcp"}]
    assert losses(tools=hosted) == [
        "tools[0]: web_search is not known to the upstream",
        "tools[1]: tool_search is not known to the upstream",
        "tools[2]: mcp is not known to the upstream",
    ]
    chat, _ = translate("Hi", tools=hosted, tool_choice="auto", parallel_tool_calls=True)
    assert chat == {"model": "m", "messages": [USER]}


def test_a_search_that_the_client_answers_is_a_function_and_finds_back() -> None:
    identities = ToolIdentityMap()
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    search = {"type": "tool_search", "execution": "client", "description": "Find.", "parameters": schema}
    request = decode_request(json.dumps({"model": "m", "input": "Hi", "tools": [search]}))
    chat, diagnostics = to_chat(request, tool_identities=identities)
    assert json.loads(encode(chat))["tools"] == [
        {
            "type": "function",
            "function": {"name": "tool_search", "description": "Find.", "parameters": schema},
        }
    ]
    assert list(diagnostics) == []
    machine = ResponseStreamStateMachine(model="m", tool_identities=identities, wire="openai")
    machine.start()
    machine.tool_call(0, "call_1", "tool_search", '{"q": "maps"}')
    machine.finish("tool_calls")
    (call,) = json.loads(encode(machine.snapshot))["output"]
    assert (call["type"], call["execution"], call["arguments"]) == (
        "tool_search_call",
        "client",
        {"q": "maps"},
    )


def test_a_call_under_the_upstreams_name_goes_back_under_it() -> None:
    """The published wire has no namespaces: a call came, and comes back, with the joined name."""
    tools = [{"type": "namespace", "name": "maps", "tools": [{"type": "function", "name": "find"}]}]
    history = [
        {"type": "function_call", "call_id": "c", "name": "maps__find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "found"},
    ]
    chat, _ = translate(history, tools=tools)
    assert chat["messages"][0]["tool_calls"][0]["function"]["name"] == chat["tools"][0]["function"]["name"]


def test_environment_of_a_shell_is_a_loss() -> None:
    shell = {"type": "shell", "environment": {"type": "container_auto"}}
    assert losses(tools=[shell]) == ["tools[0].environment: can't be expressed, the client runs the shell"]


def test_two_kinds_of_tool_with_one_name_are_refused() -> None:
    declared = [function("shell"), {"type": "shell"}]
    assert refused(USER, tools=declared) == ("invalid_value", "tools[1]")


def test_parallel_calls_are_said_where_there_are_tools() -> None:
    chat, _ = translate("Hi", tools=[function()], parallel_tool_calls=False)
    assert chat["parallel_tool_calls"] is False


# ── tool choice ────────────────────────────────────────────────────────────────────────────────────
NAMESPACE = {"type": "namespace", "name": "ns", "tools": [function("g")]}
TOOLS = [function("f"), {"type": "custom", "name": "c"}, {"type": "shell"}, NAMESPACE, {"type": "web_search"}]
CHOICES: list[tuple[Any, Any]] = [
    ("auto", "auto"),
    ("none", "none"),
    ("required", "required"),
    ({"type": "function", "name": "f"}, "f"),
    ({"type": "function", "name": "g"}, "ns__g"),
    ({"type": "function", "name": "g", "namespace": "ns"}, "ns__g"),
    ({"type": "custom", "name": "c"}, "c"),
    ({"type": "shell"}, "shell"),
]


@pytest.mark.parametrize(("choice", "expected"), CHOICES)
def test_tool_choice(choice: Any, expected: Any) -> None:
    chat, _ = translate("Hi", tools=TOOLS, tool_choice=choice)
    if isinstance(choice, dict):
        expected = {"type": "function", "function": {"name": expected}}
    assert chat["tool_choice"] == expected
    assert len(chat["tools"]) == 4


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "nobody"},
        {"type": "function"},
        {"type": "web_search"},
        {"type": "local_shell"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
    ],
)
def test_tool_choice_that_can_not_be_kept_is_refused(choice: Any) -> None:
    assert refused(USER, tools=TOOLS, tool_choice=choice) == ("invalid_value", "tool_choice")


def test_required_without_tools_is_refused() -> None:
    assert refused(USER, tools=[{"type": "web_search"}], tool_choice="required") == (
        "invalid_value",
        "tool_choice",
    )


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_are_the_only_ones_sent(mode: str) -> None:
    allowed = [{"type": "function", "name": "f"}, {"type": "shell"}, {"type": "web_search"}]
    choice = {"type": "allowed_tools", "mode": mode, "tools": allowed}
    chat, diagnostics = translate("Hi", tools=TOOLS, tool_choice=choice)
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["f", "shell"]
    assert chat["tool_choice"] == mode
    assert "loss: tool_choice.tools: web_search can't be called" in map(str, diagnostics)


def test_allowed_tools_that_leave_none_send_none() -> None:
    choice = {"type": "allowed_tools", "tools": [{"type": "function", "name": "nobody"}]}
    chat, _ = translate("Hi", tools=TOOLS, tool_choice=choice)
    assert chat == {"model": "m", "messages": [USER]}


def test_declared_but_not_offered_tool_is_not_found() -> None:
    """The identity map may know tools of earlier turns that this request does not offer."""
    identities = ToolIdentityMap()
    identities.declare(ToolKind.FUNCTION, "old")
    body = {
        "model": "m",
        "input": "Hi",
        "tools": [function()],
        "tool_choice": {"type": "function", "name": "old"},
    }
    with pytest.raises(InvalidRequestError):
        to_chat(decode_request(json.dumps(body)), tool_identities=identities)


# ── recorded requests ──────────────────────────────────────────────────────────────────────────────
_ROOT = shared_root()
RECORDED = sorted(path.name for path in (_ROOT / "fixtures/client-requests").glob("*")) if _ROOT else []


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_requests_translate(name: str, shared: Path) -> None:
    lines = (shared / "fixtures/client-requests" / name).read_bytes().splitlines()
    bodies = [body for line in lines if isinstance(body := json.loads(line).get("body"), dict)]
    assert bodies
    for body in bodies:
        data = json.dumps(body)
        request = (
            decode_create_message(data) if body.get("type") == "response.create" else decode_request(data)
        )
        earlier = [call(output) for output in unmatched(body["input"])]
        identities = ToolIdentityMap()
        chat, _ = to_chat(
            request, history=[decode_item(json.dumps(item)) for item in earlier], tool_identities=identities
        )
        declared = {tool.function.name for tool in chat.tools or ()}
        assert declared <= {identity.upstream_name for identity in identities}
        assert {
            tool_call.function.name
            for m in chat.messages
            for tool_call in m.tool_calls or ()
            if tool_call.function
        } <= declared | {"f"}
        assert check(json.loads(encode(chat))) == []


def unmatched(input: list[dict[str, Any]]) -> list[str]:
    """Outputs whose calls an earlier turn made."""
    call_ids = {item["call_id"] for item in input if item.get("type", "").endswith("_call")}
    answered = [item["call_id"] for item in input if item.get("type", "").endswith("_call_output")]
    return [call_id for call_id in answered if call_id not in call_ids]


def check(chat: dict[str, Any]) -> list[str]:
    """What the rules of Chat Completions have against a request."""
    problems, open_calls = [], []
    for message in chat["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                problems.append(f"no call {message['tool_call_id']}")
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            problems.append(f"unanswered {open_calls}")
        open_calls = [tool_call["id"] for tool_call in message.get("tool_calls", ())]
        if not message.get("content") and not open_calls:
            problems.append("an empty message")
    names = [tool["function"]["name"] for tool in chat.get("tools", ())]
    if len(names) != len(set(names)):
        problems.append("a name is used twice")
    problems += [
        f"illegal name {name}"
        for name in names
        if not name.replace("-", "_").isidentifier() or len(name) > 64
    ]
    return problems + (["unanswered at the end"] if open_calls else [])


# ── upstreams that know functions only ─────────────────────────────────────────────────────────────
FUNCTIONS = ChatOptions(tools_field="functions")
TWO_TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False} for name in "fg"
]


def test_tools_are_functions_for_an_upstream_that_has_those() -> None:
    chat, report = translate(tools=TWO_TOOLS, tool_choice="auto", options=FUNCTIONS)
    assert chat["functions"] == [{"name": name, "parameters": {"type": "object"}} for name in "fg"]
    assert chat["function_call"] == "auto"
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & chat.keys()
    assert not report.of("loss")
    plain, _ = translate(options=FUNCTIONS)
    assert not {"functions", "function_call"} & plain.keys()


@pytest.mark.parametrize(
    ("choice", "tools", "sent", "lost"),
    [
        ("none", TWO_TOOLS, "none", []),
        ("required", TWO_TOOLS, "auto", ["tool_choice: required sent as auto"]),
        ("required", TWO_TOOLS[:1], {"name": "f"}, []),
        ({"type": "function", "name": "g"}, TWO_TOOLS, {"name": "g"}, []),
    ],
)
def test_the_choice_among_functions(choice: Any, tools: Any, sent: Any, lost: list[str]) -> None:
    chat, report = translate(tools=tools, tool_choice=choice, options=FUNCTIONS)
    assert chat["function_call"] == sent
    assert [f"{case.where}: {case.what}" for case in report.of("loss")] == lost


def test_what_functions_can_not_say_is_a_loss() -> None:
    strict = [{**TWO_TOOLS[0], "strict": True}]
    assert losses(tools=strict, parallel_tool_calls=True, options=FUNCTIONS) == [
        "parallel_tool_calls: the upstream makes one call per answer",
        "tools.strict: can't be expressed",
    ]


def test_calls_side_by_side_follow_each_other_as_function_calls() -> None:
    items = [USER, call("a", "f", '{"x":1}'), call("b", "g"), answer("b", "B"), answer("a", "A"), USER]
    chat, report = translate(items, tools=TWO_TOOLS, options=FUNCTIONS)
    assert chat["messages"] == [
        USER,
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"x":1}'}},
        {"role": "function", "name": "f", "content": "A"},
        {"role": "assistant", "function_call": {"name": "g", "arguments": "{}"}},
        {"role": "function", "name": "g", "content": "B"},
        USER,
    ]
    assert not list(report)


def test_text_before_a_call_stands_in_its_message() -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So:"}]}
    _, turn, result = messages(USER, message, call(), answer(), tools=TWO_TOOLS, options=FUNCTIONS)
    assert turn == {
        "role": "assistant",
        "content": "So:",
        "function_call": {"name": "f", "arguments": "{}"},
    }
    assert result["role"] == "function"
