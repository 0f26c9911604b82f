"""Input items → VS Code's messages."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.decoder import LanguageModelToolCallPart, encode_part
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.vscode import ChatMessage, ChatRequest, ToolMode, from_vscode, to_vscode
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.items import CompactionItem, FunctionCall, FunctionCallOutput, Message


def translated(**fields: Any) -> tuple[ChatRequest, Diagnostics]:
    options = {
        name: fields.pop(name)
        for name in ("history", "system_role", "tool_identities", "call_id_prefix")
        if name in fields
    }
    request = decode_request(json.dumps({"model": "m", "input": "", **fields}))
    return to_vscode(request, **options)


def plain(messages: list[ChatMessage]) -> list[tuple[int, list[Any]]]:
    """(role, parts) of each message; text parts as their text."""
    return [(int(message.role), [_plain(part) for part in message.content]) for message in messages]


def _plain(part: Any) -> Any:
    value = json.loads(encode_part(part))
    value.pop("$mid", None)
    kind = value.pop("type").removeprefix("LanguageModel").removesuffix("Part")
    return value["value"] if kind == "Text" else {kind: value}


def messages(*items: Any, **fields: Any) -> list[tuple[int, list[Any]]]:
    return plain(translated(input=list(items), **fields)[0].messages)


def said(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **fields}


CALL = {"type": "function_call", "call_id": "call_a", "name": "find", "arguments": '{"q":1}'}
ANSWER = {"type": "function_call_output", "call_id": "call_a", "output": "found"}


# ── messages ───────────────────────────────────────────────────────────────────────────────────────
def test_roles_and_instructions() -> None:
    sent = messages(said("developer", "d"), said("user", "u"), said("assistant", "a"), instructions="i")
    assert sent == [(3, ["i"]), (3, ["d"]), (1, ["u"]), (2, ["a"])]


def test_without_a_system_role_its_words_are_the_users() -> None:
    assert messages(said("system", "s"), said("user", "u"), system_role=False) == [(1, ["s"]), (1, ["u"])]


def test_input_that_is_text() -> None:
    assert plain(translated(input="Hi")[0].messages) == [(1, ["Hi"])]
    assert plain(translated(input="")[0].messages) == []
    assert plain(translated(input=None)[0].messages) == []


def test_history_comes_first() -> None:
    past = [Message("msg", "completed", "assistant", []), FunctionCall("fc", "c", "f", "{}", "completed")]
    answer = FunctionCallOutput("fco", "c", "ok", "completed")
    chat, _ = translated(input="Hi", history=[*past, answer, CompactionItem("cmp", "x")])
    assert [message.role for message in chat.messages] == [2, 1, 2, 1]
    (call,), _, (condensed,), _ = (message.content for message in chat.messages)
    assert isinstance(call, LanguageModelToolCallPart)
    assert json.loads(condensed.data)["encrypted_content"] == "x"


def test_reasoning_words_and_calls_of_one_turn_share_a_message() -> None:
    reasoning = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}
    (message, answer) = messages(reasoning, said("assistant", "Look."), CALL, ANSWER)
    role, parts = message
    assert role == 2
    assert parts[2:] == [
        "Look.",
        {"ToolCall": {"callId": "gw-call_a", "name": "find", "input": {"q": 1}}},
    ]
    result = {"callId": "gw-call_a", "content": [_text("found")], "isError": False}
    assert answer == (1, [{"ToolResult": result}])


def _text(value: str) -> dict[str, Any]:
    return {"type": "LanguageModelTextPart", "value": value, "$mid": 21}


def test_words_of_two_messages_stay_apart() -> None:
    assert messages(said("assistant", "a"), said("assistant", "b")) == [(2, ["a"]), (2, ["b"])]


def test_phase_is_marked_data() -> None:
    ((_, parts),) = messages(said("assistant", "a", phase="commentary"))
    assert parts[1]["Data"]["mimeType"] == "phase_data"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"type": "input_text", "text": "a"}, "a"),
        ({"type": "refusal", "refusal": "no"}, "no"),
        (
            {"type": "input_image", "image_url": "data:image/png;base64,/9j/eA=="},
            {"Data": {"data": "/9j/eA==", "mimeType": "image/jpeg"}},
        ),
        (
            {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERg=="},
            {"Data": {"data": "JVBERg==", "mimeType": "application/pdf"}},
        ),
        ({"type": "input_image", "image_url": "https://e.org/a"}, "[input_image: https://e.org/a]"),
        ({"type": "input_image", "file_id": "f"}, "[input_image: not available]"),
        ({"type": "input_image", "image_url": "data:image/png;base64,?"}, "[input_image: not available]"),
        ({"type": "input_image", "image_url": "data:image/png,x"}, "[input_image: not available]"),
        ({"type": "input_file", "file_url": "https://e.org/b"}, "[input_file: https://e.org/b]"),
    ],
)
def test_contents(content: dict[str, Any], expected: Any) -> None:
    assert messages(said("user", [content])) == [(1, [expected])]


def test_contents_without_a_part_are_reported() -> None:
    chat, diagnostics = translated(input=[said("user", [{"type": "input_video", "video_url": "u"}])])
    assert chat.messages == []
    assert [case.where for case in diagnostics.of("loss")] == ["input_video"]


# ── reasoning ──────────────────────────────────────────────────────────────────────────────────────
def test_reasoning_as_the_decoder_would_give_it() -> None:
    summary = [{"type": "summary_text", "text": text} for text in ("one", "two")]
    content = [{"type": "reasoning_text", "text": "raw"}]
    ((_, parts),) = messages({"type": "reasoning", "id": "rs", "summary": summary, "content": content})
    thoughts = [(part["Thinking"]["value"], part["Thinking"].get("metadata")) for part in parts]
    mark = {"vscode_reasoning_summary_part_done": True}
    done = {"vscode_reasoning_done": True}
    assert thoughts == [("one", None), ("", mark), ("\n\ntwo", None), ("", mark), ("raw", None), ("", done)]
    assert messages({"type": "reasoning", "summary": []}) == []


# ── calls ──────────────────────────────────────────────────────────────────────────────────────────
def test_arguments_that_are_no_object_are_repaired() -> None:
    chat, diagnostics = translated(input=[CALL | {"arguments": "[1]"}, ANSWER])
    (call,) = chat.messages[0].content
    assert call.input == {"input": [1]}
    assert [case.where for case in diagnostics.of("repair")] == ["function_call.arguments"]


def test_case_33_custom_calls_take_their_text_as_input() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "*** Begin"}
    answer = {
        "type": "custom_tool_call_output",
        "call_id": "c",
        "output": [{"type": "input_text", "text": "ok"}],
    }
    (_, (call,)), (_, (result,)) = messages(custom, answer)
    assert call["ToolCall"]["input"] == {"input": "*** Begin"}
    assert result["ToolResult"]["content"] == [_text("ok")]


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (
            {"type": "shell_call", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "output": [{"stdout": "a"}]},
        ),
        (
            {"type": "local_shell_call", "action": {"command": ["ls"]}},
            {"type": "local_shell_call_output", "output": "a"},
        ),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            {"type": "apply_patch_call_output", "status": "incomplete"},
        ),
        ({"type": "tool_search_call", "arguments": "q"}, {"type": "tool_search_output", "tools": []}),
    ],
)
def test_case_45_openais_own_calls_keep_their_answers(call: dict[str, Any], answer: dict[str, Any]) -> None:
    (_, (call_part,)), (_, (sent,)) = messages(call | {"call_id": "c"}, answer | {"call_id": "c"})
    assert call_part["ToolCall"]["callId"] == sent["ToolResult"]["callId"] == "gw-c"
    assert call_part["ToolCall"]["input"]
    assert sent["ToolResult"]["isError"] == (answer.get("status") == "incomplete")


def test_items_without_a_form_are_reported() -> None:
    chat, diagnostics = translated(input=[{"type": "item_reference", "id": "x"}, {"type": "web_search_call"}])
    assert chat.messages == []
    assert [case.where for case in diagnostics] == ["input.item_reference", "input.web_search_call"]


# ── tools ──────────────────────────────────────────────────────────────────────────────────────────
FIND = {"type": "function", "name": "find", "description": "Finds.", "parameters": {"type": "object"}}
OPEN = {"type": "function", "name": "open"}


def test_two_kinds_of_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="declared twice") as caught:
        translated(tools=[FIND, {"type": "custom", "name": "find"}])
    assert caught.value.param == "tools[1]"


def test_tools_of_every_kind_that_can_be_a_function() -> None:
    identities = ToolIdentityMap()
    tools = [
        FIND,
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "agents", "tools": [OPEN]},
        {"type": "local_shell"},
        {"type": "web_search"},
    ]
    chat, diagnostics = translated(tools=tools, tool_identities=identities)
    assert [tool.name for tool in chat.tools] == ["find", "patch", "agents__open", "local_shell"]
    assert chat.tools[0].input_schema == {"type": "object"}
    restored = identities.resolve("patch")
    assert restored is not None
    assert restored.kind is ToolKind.CUSTOM
    assert [case.where for case in diagnostics.of("loss")] == ["tools[4]"]
    spaced = {
        "type": "function_call",
        "call_id": "c",
        "name": "open",
        "namespace": "agents",
        "arguments": "{}",
    }
    named, _ = translated(input=[spaced, ANSWER | {"call_id": "c"}], tools=tools)
    assert named.messages[0].content[0].name == "agents__open"


@pytest.mark.parametrize(
    ("choice", "names", "mode"),
    [
        (None, ["find", "open"], ToolMode.AUTO),
        ("auto", ["find", "open"], ToolMode.AUTO),
        ("required", ["find", "open"], ToolMode.REQUIRED),
        ("none", [], ToolMode.AUTO),
        ({"type": "function", "name": "open"}, ["open"], ToolMode.REQUIRED),
        (
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "find"}], "mode": "required"},
            ["find"],
            ToolMode.REQUIRED,
        ),
        (
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "other"}], "mode": "auto"},
            [],
            ToolMode.AUTO,
        ),
        (
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "find"}], "mode": "none"},
            [],
            ToolMode.AUTO,
        ),
    ],
)
def test_choosing_is_leaving_out(choice: Any, names: list[str], mode: ToolMode) -> None:
    chat, _ = translated(tools=[FIND, OPEN], tool_choice=choice)
    assert [tool.name for tool in chat.tools] == names
    assert chat.tool_mode is mode


def test_choices_that_cannot_be_expressed_are_reported() -> None:
    chat, diagnostics = translated(tools=[FIND], tool_choice={"type": "mcp", "server_label": "s"})
    assert len(chat.tools) == 1
    assert [case.where for case in diagnostics.of("loss")] == ["tool_choice"]
    assert translated(tool_choice="required")[0].tool_mode is ToolMode.AUTO


# ── options ────────────────────────────────────────────────────────────────────────────────────────
def test_options_by_their_usual_names_and_the_rest_reported() -> None:
    chat, diagnostics = translated(
        temperature=0.5,
        max_output_tokens=99,
        reasoning={"effort": "low"},
        truncation="auto",
        store=False,
        metadata={"a": "b"},
    )
    assert chat.model_options == {"temperature": 0.5, "max_tokens": 99, "reasoning_effort": "low"}
    assert [case.where for case in diagnostics.of("loss")] == ["truncation"]
    assert to_vscode(decode_request(b"{}"), model="mine")[0].model == "mine"


# ── there and back ─────────────────────────────────────────────────────────────────────────────────
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(str.strip)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 5))):
        items.append(said("user", draw(TEXT)))
        if draw(st.booleans()):
            content = [{"type": "reasoning_text", "text": draw(TEXT)}]
            items.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "content": content})
        items.append(said("assistant", [{"type": "output_text", "text": draw(TEXT)}]))
        for call in range(draw(st.integers(0, 2))):
            id = f"call_{number}_{call}"
            arguments = json.dumps(draw(st.dictionaries(TEXT, TEXT, max_size=2)), ensure_ascii=False)
            items.append(
                CALL | {"call_id": id, "arguments": arguments.replace('": "', '":"').replace('", "', '","')}
            )
            items.append(ANSWER | {"call_id": id, "output": draw(st.text("ab ", max_size=3))})
    return items


@settings(max_examples=60)
@given(conversations())
def test_items_to_messages_to_items(items: list[dict[str, Any]]) -> None:
    chat, there = translated(input=items, instructions="Be brief.")
    request, back = from_vscode(chat)
    again = json.loads(encode(request.input))
    for item in (*items, *again):
        if item["type"] == "function_call":
            item["arguments"] = json.loads(item["arguments"])
    assert again == items
    assert request.instructions == "Be brief."
    assert not list(there)
    assert not list(back)


# ── what can't be said ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([CALL], "input[0]"),
        ([said("user", "Hi"), ANSWER], "input[1]"),
        ([ANSWER, CALL], "input[0]"),
        ([CALL, ANSWER, ANSWER], "input[2]"),
    ],
)
def test_an_unpaired_call_or_output_is_refused_with_its_place(items: list[Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        translated(input=items)
    assert (caught.value.code, caught.value.param) == ("unpaired_tool_call", param)


def test_a_call_that_was_cut_and_never_run_is_left_out_with_a_note() -> None:
    chat, diagnostics = translated(input=[CALL | {"status": "incomplete"}, said("user", "Go on")])
    assert plain(chat.messages) == [(1, ["Go on"])]
    assert [case.where for case in diagnostics.of("loss")] == ["input[0]"]


def test_what_vscode_can_not_be_asked_for_is_a_loss() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "high"}
    _, diagnostics = translated(
        input=[said("user", [image])],
        reasoning={"effort": "low", "summary": "auto"},
        include=["reasoning.encrypted_content"],
    )
    assert {case.where for case in diagnostics.of("loss")} == {
        "input_image.detail",
        "reasoning.summary",
        "include",
    }
    _, diagnostics = translated(
        input=[said("user", [image | {"detail": "auto"}])], reasoning={"effort": "low"}
    )
    assert diagnostics.of("loss") == []
