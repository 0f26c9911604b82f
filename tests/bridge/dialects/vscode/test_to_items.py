"""VS Code's messages → input items."""

import json
from typing import Any

import pytest

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
)
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.vscode import (
    ChatMessage,
    ChatRequest,
    ChatTool,
    Role,
    ToolMode,
    from_vscode,
)
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.request import CreateResponse

PNG = b"\x89PNG\r\n\x1a\nrest"
PNG_URL = "data:image/png;base64,iVBORw0KGgpyZXN0"


def message(role: Role, *parts: Any) -> ChatMessage:
    return ChatMessage(
        role, [LanguageModelTextPart(part) if isinstance(part, str) else part for part in parts]
    )


def user(*parts: Any) -> ChatMessage:
    return message(Role.USER, *parts)


def assistant(*parts: Any) -> ChatMessage:
    return message(Role.ASSISTANT, *parts)


def data(mime: str, value: Any) -> LanguageModelDataPart:
    return LanguageModelDataPart(value if isinstance(value, bytes) else json.dumps(value).encode(), mime)


def call(id: str = "gw-call_a", **value: Any) -> LanguageModelToolCallPart:
    return LanguageModelToolCallPart(id, "find", value)


def result(*content: Any, id: str = "gw-call_a", failed: bool = False) -> LanguageModelToolResultPart:
    return LanguageModelToolResultPart(id, list(content), failed)


def translated(*messages: ChatMessage, **fields: Any) -> tuple[CreateResponse, Diagnostics]:
    """The request, which must also be one that our own decoder takes."""
    options = {name: fields.pop(name) for name in ("use_markers", "call_id_prefix") if name in fields}
    request, diagnostics = from_vscode(ChatRequest("m", list(messages), **fields), **options)
    assert decode_request(encode(request)) == request
    return request, diagnostics


def items(*messages: ChatMessage) -> list[Any]:
    request, _ = translated(*messages)
    plain: list[Any] = json.loads(encode(request.input))
    return plain


# ── texts and roles ────────────────────────────────────────────────────────────────────────────────
def test_texts_of_each_role() -> None:
    assert items(user("a", "b"), assistant("c"), message(Role.SYSTEM, "d")) == [
        {"type": "message", "role": "user", "content": "ab"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
        {"type": "message", "role": "system", "content": "d"},
    ]


def test_messages_without_words_are_left_out() -> None:
    assert items(user(), user(" \n"), assistant(" ")) == []


def test_leading_system_messages_are_the_instructions() -> None:
    request, _ = translated(
        message(Role.SYSTEM, "Be ", "brief."), message(Role.SYSTEM, "Be kind."), user("a")
    )
    assert request.instructions == "Be brief.\n\nBe kind."
    assert isinstance(request.input, list)
    assert len(request.input) == 1
    only, _ = translated(message(Role.SYSTEM, "Be brief."))
    assert (only.instructions, only.input) == ("Be brief.", [])
    shown, _ = translated(message(Role.SYSTEM, data("image/png", PNG)), user("a"))
    assert shown.instructions is None


def test_system_prompt_disguised_as_the_assistants_first_words() -> None:
    request, _ = translated(assistant("You are an expert."), user("a"))
    assert request.instructions == "You are an expert."
    for honest in (
        [assistant("You are an expert.")],
        [assistant("Hello"), user("a")],
        [user("You are an expert."), user("a")],
        [user("a"), assistant("You are right.")],
    ):
        assert translated(*honest)[0].instructions is None


def test_names_and_unknown_values_are_reported() -> None:
    named = ChatMessage(
        Role.USER, [LanguageModelTextPart("a"), {"odd": 1}, LanguageModelPromptTsxPart(1)], "n"
    )
    _, diagnostics = translated(named)
    assert [str(case) for case in diagnostics] == [
        "loss: message.name: the protocol has no names in messages",
        "loss: message.content: no part of a message: dict",
        "loss: message.content: no part of a message: LanguageModelPromptTsxPart",
    ]


# ── tool calls and results ─────────────────────────────────────────────────────────────────────────
def test_flush_at_tool_boundaries_keeps_the_order() -> None:
    sent = items(
        assistant("Before.", call(q=1), "Between.", call("toolu_b", q="é")),
        user(result(LanguageModelTextPart("r1")), "And?", result(LanguageModelTextPart("r2"), id="toolu_b")),
    )
    assert [item["type"] for item in sent] == [
        "message",
        "function_call",
        "message",
        "function_call",
        "function_call_output",
        "message",
        "function_call_output",
    ]
    assert sent[1] == {"type": "function_call", "call_id": "call_a", "name": "find", "arguments": '{"q":1}'}
    assert sent[3]["arguments"] == '{"q":"é"}'
    assert [sent[place]["call_id"] for place in (1, 3, 4, 6)] == ["call_a", "toolu_b", "call_a", "toolu_b"]


def test_case_45_an_empty_result_still_answers_its_call() -> None:
    *_, answer = items(assistant(call()), user(result()))
    assert answer == {"type": "function_call_output", "call_id": "call_a", "output": ""}


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ([LanguageModelTextPart("a"), LanguageModelTextPart("b")], "a\n\nb"),
        ([LanguageModelTextPart("a"), LanguageModelTextPart(""), LanguageModelTextPart("b")], "a\n\nb"),
        (["a"], "a"),
        ([{"$mid": 1, "x": 2}], '{"x": 2}'),
        ([[1, 2]], "[1, 2]"),
        ([data("application/json", {"x": 1})], '{"x": 1}'),
        ([data("text/plain", "é".encode())], "é"),
        (
            [
                LanguageModelPromptTsxPart(
                    {"node": {"children": [{"type": 2, "text": "a"}, {"type": 2, "text": "b"}]}}
                )
            ],
            "ab",
        ),
        (
            [LanguageModelPromptTsxPart({"children": [3, {"type": 1, "children": None}]})],
            '{"children": [3, {"type": 1, "children": null}]}',
        ),
        ([LanguageModelPromptTsxPart("tree")], '"tree"'),
        (
            [LanguageModelTextPart("see"), LanguageModelTextPart(""), data("image/png", PNG)],
            [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PNG_URL}],
        ),
    ],
)
def test_results_hold_text_and_data(content: list[Any], output: Any) -> None:
    assert items(user(result(*content)))[0]["output"] == output


def test_failed_results_are_marked() -> None:
    assert items(user(result(LanguageModelTextPart("no"), failed=True)))[0]["status"] == "incomplete"


def test_ids_beyond_the_schema_are_shortened_alike() -> None:
    long = "gw-" + "x" * 80
    first, second = items(assistant(call(long)), user(result(id=long)))
    assert first["call_id"] == second["call_id"]
    assert len(first["call_id"]) <= 64
    assert items(assistant(call("gw-")))[0]["call_id"] == "gw-"
    assert items(assistant(call("")))[0]["call_id"].startswith("call_")


def test_another_prefix() -> None:
    request, _ = translated(assistant(call("my-1")), call_id_prefix="my-")
    assert isinstance(request.input, list)
    assert request.input[0].call_id == "1"  # type: ignore[union-attr]


# ── data ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("mime", "held", "url"),
    [
        ("image/*", PNG, PNG_URL),
        ("image/png", b"\xff\xd8\xffx", "data:image/jpeg;base64,/9j/eA=="),
        ("image/png", b"GIF89a", "data:image/gif;base64,R0lGODlh"),
        ("image/png", b"RIFF\n\n\n\nWEBP", "data:image/webp;base64,UklGRgoKCgpXRUJQ"),
        ("image/png", b"BM", "data:image/bmp;base64,Qk0="),
        ("image/jpg", b"??", "data:image/jpeg;base64,Pz8="),
        ("image/*", b"??", "data:image/png;base64,Pz8="),
        ("image/svg+xml", b"??", "data:image/svg+xml;base64,Pz8="),
        ("image/png", b"https://e.org/a.png", "https://e.org/a.png"),
    ],
)
def test_images_by_their_bytes(mime: str, held: bytes, url: str) -> None:
    (sent,) = items(user("look", LanguageModelDataPart(held, mime)))
    assert sent["content"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": url},
    ]


def test_files_and_texts() -> None:
    (sent,) = items(user(data("application/pdf", b"%PDF"), data("text/markdown", b"# a")))
    assert sent["content"] == [
        {"type": "input_file", "filename": "data", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_text", "text": "# a"},
    ]


def test_what_an_assistant_showed_comes_from_the_user_again() -> None:
    request, diagnostics = translated(
        assistant("Here.", data("image/png", PNG)), assistant(data("image/png", PNG))
    )
    sent = json.loads(encode(request.input))
    assert [item["role"] for item in sent] == ["assistant", "user", "user"]
    assert [case.where for case in diagnostics.of("repair")] == ["message.content"]


def test_marks_for_vscode_only_say_nothing() -> None:
    request, diagnostics = translated(user("a", data("cache_control", b"ephemeral"), data("usage", {}), "b"))
    assert json.loads(encode(request.input))[0]["content"] == "ab"
    assert not list(diagnostics)


def test_condensed_history_is_an_item() -> None:
    condensed = {"type": "compaction", "id": "cmp", "encrypted_content": "x"}
    first, *rest = items(user("a"), assistant(data("context_management", {"compaction": condensed}), "b"))
    assert first["role"] == "user"
    assert rest[0] == condensed
    _, diagnostics = translated(assistant(data("context_management", {"applied_edits": []})))
    assert [case.where for case in diagnostics.of("loss")] == ["context_management"]


@pytest.mark.parametrize(
    ("value", "phase"),
    [
        ({"type": "phase_data", "phase": "commentary"}, "commentary"),
        (b"final_answer", "final_answer"),
        (b"x", None),
    ],
)
def test_phase_of_a_message(value: Any, phase: str | None) -> None:
    first, second = items(assistant("a", data("phase_data", value)), assistant("b"))
    assert first.get("phase") == phase
    assert "phase" not in second


def test_stateful_marker_is_used_only_when_asked_for() -> None:
    chat = [
        user("a"),
        assistant("b", data("stateful_marker", b"m\\resp_1")),
        user("c"),
        assistant("d", data("stateful_marker", b"other\\resp_9"), data("stateful_marker", b"bad")),
        user("e"),
    ]
    whole, _ = translated(*chat)
    assert (whole.previous_response_id, len(whole.input or ())) == (None, 5)
    rest, _ = translated(*chat, use_markers=True)
    assert rest.previous_response_id == "resp_1"
    assert [item["role"] for item in json.loads(encode(rest.input))] == ["user", "assistant", "user"]
    none, _ = translated(user("a"), use_markers=True)
    assert none.previous_response_id is None


# ── reasoning ──────────────────────────────────────────────────────────────────────────────────────
DONE = {"vscode_reasoning_done": True}
PART_DONE = {"vscode_reasoning_summary_part_done": True}


def test_case_30_thinking_blocks_are_items_of_their_own() -> None:
    sent = items(
        assistant(
            LanguageModelThinkingPart(["on", "e"], "rs_a"),
            LanguageModelThinkingPart("", "rs_a", {"encrypted_content": "x"}),
            LanguageModelThinkingPart("two", "rs_b"),
            LanguageModelThinkingPart("", "rs_b", DONE),
            LanguageModelThinkingPart("", "rs_b", DONE),
            "So.",
            LanguageModelThinkingPart("three"),
        )
    )
    raw = {"type": "reasoning_text"}
    assert sent[0] == {
        "type": "reasoning",
        "id": "rs_a",
        "summary": [],
        "content": [raw | {"text": "one"}],
        "encrypted_content": "x",
    }
    assert sent[1] == {"type": "reasoning", "id": "rs_b", "summary": [], "content": [raw | {"text": "two"}]}
    assert sent[2]["role"] == "assistant"
    assert sent[3] == {"type": "reasoning", "summary": [], "content": [raw | {"text": "three"}]}


def test_marked_summary_parts_are_the_summary() -> None:
    (sent,) = items(
        assistant(
            LanguageModelThinkingPart("one", "rs"),
            LanguageModelThinkingPart("", "rs", PART_DONE),
            LanguageModelThinkingPart("\n\ntwo", "rs"),
            LanguageModelThinkingPart("", "rs", PART_DONE),
            LanguageModelThinkingPart("", "rs", PART_DONE),
        )
    )
    assert sent["summary"] == [{"type": "summary_text", "text": text} for text in ("one", "two")]
    assert "content" not in sent


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"thinking": {"id": "rs", "text": "t", "encrypted": "x"}}, ("rs", "t", "x")),
        ({"id": "rs", "text": ["t", 1], "encrypted_content": "x"}, ("rs", "t", "x")),
        (b"t", (None, "t", None)),
    ],
)
def test_thinking_data_of_a_round(value: Any, expected: tuple[Any, ...]) -> None:
    (sent,) = items(assistant(data("thinking", value)))
    text = sent["content"][0]["text"]
    assert (sent.get("id"), text, sent.get("encrypted_content")) == expected


def test_thinking_data_that_repeats_the_parts_is_left_out() -> None:
    (sent,) = items(assistant(LanguageModelThinkingPart("t", "rs"), data("thinking", b"t")))
    assert sent["content"][0]["text"] == "t"
    assert items(assistant(data("thinking", [1]))) == []


def test_another_providers_signature_is_reported() -> None:
    _, diagnostics = translated(assistant(LanguageModelThinkingPart("", "t", {"signature": "s"})))
    assert [case.where for case in diagnostics.of("loss")] == ["thinking.metadata"]


# ── tools and options ──────────────────────────────────────────────────────────────────────────────
def test_tools_are_functions_that_are_not_strict() -> None:
    tools = [ChatTool("find", "Finds.", {"type": "object"}), ChatTool("open", "")]
    request, _ = translated(user("a"), tools=tools, tool_mode=ToolMode.REQUIRED)
    assert json.loads(encode(request.tools)) == [
        {
            "type": "function",
            "name": "find",
            "description": "Finds.",
            "parameters": {"type": "object"},
            "strict": False,
        },
        {
            "type": "function",
            "name": "open",
            "description": "",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
    ]
    assert request.tool_choice == "required"
    assert translated(user("a"), tools=tools)[0].tool_choice == "auto"


def test_without_tools_there_is_nothing_to_choose() -> None:
    request, _ = translated(user("a"), tool_mode=ToolMode.REQUIRED)
    assert (request.tools, request.tool_choice, request.stream) == (None, None, True)


def test_names_no_server_takes_are_a_warning() -> None:
    _, diagnostics = from_vscode(ChatRequest("m", [user("a")], [ChatTool("a b", "")]))
    assert [case.where for case in diagnostics.of("warning")] == ["tools.name"]


def test_model_options_by_their_usual_names() -> None:
    options = {
        "temperature": 0,
        "topP": 0.5,
        "maxTokens": 99,
        "max_tokens": 50,
        "reasoning_effort": "low",
        "stop": ["x"],
        "user": None,
        "service_tier": 3,
    }
    request, diagnostics = translated(user("a"), model_options=options)
    assert (request.temperature, request.top_p, request.max_output_tokens) == (0, 0.5, 99)
    assert request.reasoning is not None
    assert request.reasoning.effort == "low"
    assert [case.where for case in diagnostics.of("loss")] == [
        "modelOptions.stop",
        "modelOptions.service_tier",
    ]


def test_what_is_chosen_beside_the_effort_is_a_loss() -> None:
    chosen = {"reasoningEffort": 3, "contextSize": 1000, "other": None}
    request, diagnostics = translated(user("a"), model_configuration=chosen)
    assert request.reasoning is None
    lost = [case.where for case in diagnostics.of("loss")]
    assert lost == ["modelConfiguration.reasoningEffort", "modelConfiguration.contextSize"]
