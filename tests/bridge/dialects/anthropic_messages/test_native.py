"""Fields that only the Messages API has, from its client to its server: unchanged, or reported as a loss.

The tables here name every field of Anthropic's SDK, so that a new one fails until somebody decides about it.
"""

import json
import typing
from typing import Any

import anthropic.types as sdk
import pytest
from anthropic.types import message_create_params as stable
from anthropic.types.beta import message_create_params as beta
from msgspec.structs import replace

from openresponses_bridge.dialects import chat_completions
from openresponses_bridge.dialects.anthropic_messages import MessagesOptions, from_messages, to_messages
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import encode

MODEL = "claude-opus-4-7"
MARK = {"type": "ephemeral", "ttl": "1h"}
FUNCTION = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}

# field of a request → (a value, whether the API gets it as it is, else the name of the loss)
FIELDS: dict[str, tuple[Any, bool | str]] = {
    "max_tokens": (3, True),
    "messages": ([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], True),
    "model": (MODEL, True),
    "cache_control": (MARK, True),
    "container": ("container_1", True),
    "diagnostics": ({"previous_message_id": "msg_1"}, True),
    "inference_geo": ("us", True),
    "metadata": ({"user_id": "u" * 300}, True),
    "output_config": ({"effort": "max", "format": {"type": "json_schema", "schema": SCHEMA}}, True),
    "service_tier": ("standard_only", True),
    "speed": ("fast", True),
    "stop_sequences": (["END", "STOP"], True),
    "system": ([{"type": "text", "text": "A"}, {"type": "text", "text": "B", "cache_control": MARK}], True),
    "thinking": ({"type": "adaptive", "display": "omitted"}, True),
    "tool_choice": ({"type": "any", "disable_parallel_tool_use": True}, True),
    "tools": ([{**FUNCTION, "cache_control": MARK}], True),
    "user_profile_id": ("up_1", True),
    "workspace_id": ("w_1", True),
    # beta
    "billing_policy": ({"type": "x"}, True),
    "compaction": ({"type": "auto"}, True),
    "context_management": ({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}, True),
    "fallback_credit_token": ("t", True),
    "fallbacks": ([{"model": "m"}], True),
    "mcp_servers": ([{"type": "url", "url": "https://a", "name": "a"}], True),
    "thread": ({"type": "create"}, False),  # answered here
}
_HEADERS = {"betas"}  # the SDK sends it as `anthropic-beta`
BESIDE: dict[str, dict[str, Any]] = {"tool_choice": {"tools": [FUNCTION]}}

# what blocks, results and tools may hold beyond their counterparts here, by the SDK's struct
BLOCKS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "TextBlockParam": ({"type": "text", "text": "x"}, {"cache_control", "citations"}),
    "ImageBlockParam": (
        {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
        {"cache_control", "transformations"},
    ),
    "DocumentBlockParam": (
        {"type": "document", "title": "T.pdf", "source": {"type": "url", "url": "https://a/b.pdf"}},
        {"cache_control", "citations", "context"},
    ),
    "ToolUseBlockParam": (CALL, {"cache_control", "caller", "toolset_name"}),
    "ToolResultBlockParam": (
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": [{"type": "text", "text": "r"}],
            "is_error": True,
        },
        {"cache_control", "toolset_name"},
    ),
    "ToolParam": (
        {**FUNCTION, "strict": False},
        {"allowed_callers", "cache_control", "defer_loading", "eager_input_streaming", "input_examples"},
    ),
    "SearchResultBlockParam": (
        {"type": "search_result", "source": "https://a", "title": "t", "content": []},
        {"cache_control", "citations"},
    ),
}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 100, "messages": FIELDS["messages"][0], **fields}


def sent(given: dict[str, Any], options: MessagesOptions | None = None) -> tuple[dict[str, Any], list[str]]:
    """(what an upstream of the same API is sent, what is lost), through the bytes of both."""
    request, noted = from_messages(encode(given))
    out, lost = to_messages(request, options=options or MessagesOptions())
    every = [case.where for report in (noted, lost) for case in report.of("loss")]
    return json.loads(encode(out)), every


def elsewhere(given: dict[str, Any]) -> list[str]:
    """What is lost at a Chat Completions server."""
    request, noted = from_messages(encode(given))
    _, lost = chat_completions.to_chat(request)
    return [case.where for report in (noted, lost) for case in report.of("loss")]


def test_every_field_of_the_sdk_is_decided() -> None:
    known = {
        name
        for params in (stable, beta)
        for name in typing.get_type_hints(params.MessageCreateParamsBase)
        if name not in _HEADERS
    }
    assert set(FIELDS) == known
    for struct, (block, more) in BLOCKS.items():
        assert set(block) | more | {"type"} == set(typing.get_type_hints(getattr(sdk, struct))) | {"type"}


@pytest.mark.parametrize("name", FIELDS)
def test_field_is_kept_or_lost(name: str) -> None:
    value, outcome = FIELDS[name]
    payload = body(**{name: value}, **BESIDE.get(name, {}))
    out, lost = sent(payload)
    if outcome is True:
        assert out[name] == value
        assert lost == []
    elif outcome is False:
        assert name not in out
        assert lost == []
    else:
        assert name not in out
        assert lost == [outcome]
        assert outcome in elsewhere(payload)


@pytest.mark.parametrize(
    ("struct", "field"), [(struct, field) for struct, (_, more) in BLOCKS.items() for field in sorted(more)]
)
def test_field_of_a_block_keeps_its_place(struct: str, field: str) -> None:
    block = {**BLOCKS[struct][0], field: MARK if field == "cache_control" else [{"some": "value"}]}
    payload = conversation(struct, block)
    own = {"type": "ephemeral"} if field == "cache_control" else None
    out, lost = sent(payload, MessagesOptions(cache_control=own))
    if field == "cache_control":
        assert json.dumps(out).count('"cache_control"') == 1  # the operator's own points stay out
    blocks = out["tools"] if struct == "ToolParam" else [b for m in out["messages"] for b in m["content"]]
    expected = {name: value for name, value in block.items() if name != "strict"}
    assert expected in blocks
    assert lost == []
    if struct != "SearchResultBlockParam":
        assert any(field in where for where in elsewhere(payload))


def conversation(struct: str, block: dict[str, Any]) -> dict[str, Any]:
    if struct == "ToolParam":
        return body(tools=[block])
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "r"}
    call, answer = (block, result) if struct == "ToolUseBlockParam" else (CALL, result)
    answer = block if struct == "ToolResultBlockParam" else answer
    turns: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "first"}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [answer]},
    ]
    if struct not in ("ToolUseBlockParam", "ToolResultBlockParam"):
        turns[0]["content"].append(block)
    return body(messages=turns, tools=[FUNCTION])


def test_points_of_the_cache_stay_where_the_client_put_them() -> None:
    def text(said: str, **more: Any) -> dict[str, Any]:
        return {"type": "text", "text": said, **more}

    payload = body(
        system=[text("A"), text("B", cache_control=MARK), text("C")],
        tools=[FUNCTION, {**FUNCTION, "name": "g", "cache_control": MARK}],
        messages=[
            {"role": "user", "content": [text("one", cache_control=MARK), text("two")]},
            {"role": "assistant", "content": [text("so"), {**CALL, "cache_control": MARK}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [text("r"), text("s", cache_control=MARK)],
                    },
                    text("and"),
                ],
            },
        ],
    )
    out, lost = sent(payload, MessagesOptions(cache_control={"type": "ephemeral"}))
    assert lost == []
    assert {name: out[name] for name in ("system", "tools", "messages")} == {
        name: payload[name] for name in ("system", "tools", "messages")
    }
    assert sorted(elsewhere(payload)) == ["cache_control", "content.cache_control"]


TURNS = [
    {"role": "user", "content": [{"type": "text", "text": "a"}]},
    {"role": "system", "content": [{"type": "text", "text": "S", "cache_control": MARK}]},
    {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
    {"role": "user", "content": [{"type": "text", "text": "c"}]},
]


@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-sonnet-5-5", "claude-fable-5", "claude-opus-9"])
def test_case_59_a_clients_system_message_stays_where_it_stands(model: str) -> None:
    out, lost = sent(body(messages=TURNS, model=model))
    assert (out["messages"], lost) == (TURNS, [])
    assert "system" not in out


@pytest.mark.parametrize("model", ["claude-opus-4-7", "claude-sonnet-4-6", "deepseek-v4-pro", "qwen3.7-plus"])
def test_case_59_elsewhere_it_is_a_reminder_of_the_users(model: str) -> None:
    out, lost = sent(body(messages=TURNS, model=model))
    reminder = {"type": "text", "text": "<system-reminder>\nS\n</system-reminder>", "cache_control": MARK}
    assert out["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, reminder]},
        *TURNS[2:],
    ]
    assert "system" not in out
    assert lost == []


REMOVED = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}
SYSTEM_TURNS: dict[str, dict[str, Any]] = {
    "nothing but an effort": {"content": [], "output_config": {"effort": "low"}},
    "an effort and a text": {"output_config": {"effort": "low"}, "content": [{"type": "text", "text": "S"}]},
    "a text for one turn": {"clear_at": "next_user_message", "content": [{"type": "text", "text": "S"}]},
    "a tool less": {"content": [{"type": "text", "text": "S"}, REMOVED]},
}


@pytest.mark.parametrize("kind", SYSTEM_TURNS)
def test_case_60_what_a_system_message_says_besides_is_kept(kind: str) -> None:
    turns = [TURNS[0], {"role": "system", **SYSTEM_TURNS[kind]}, *TURNS[2:]]
    payload = body(messages=turns, model="claude-opus-5-5", tools=[FUNCTION])
    out, lost = sent(payload)
    assert (out["messages"], lost) == (turns, [])
    honoured = kind == "a tool less"
    assert bool(elsewhere(payload)) != honoured
    out, lost = sent(payload | {"model": "claude-opus-4-7"})
    assert [message["role"] for message in out["messages"]] == ["user", "assistant", "user"]
    assert len(lost) == (0 if honoured else 1)


REFERENCE = {"type": "tool_reference", "name": "late"}
EDIT = {"name": "edit", "input_schema": {"type": "object", "properties": {}}}
CHANGES = [
    {"type": "tool_addition", "tool": REFERENCE},
    {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": EDIT}},
    REMOVED,
]
CHANGED = [{"role": "user", "content": "hi"}, {"role": "system", "content": CHANGES}]
DEFERRED = {**FUNCTION, "name": "late", "defer_loading": True}


def test_n3_the_api_reads_itself_which_tools_come_and_go() -> None:
    payload = body(model="claude-opus-5", messages=CHANGED, tools=[FUNCTION, DEFERRED])
    out, lost = sent(payload)
    assert (out["messages"][1], lost) == (CHANGED[1], [])
    assert [tool["name"] for tool in out["tools"]] == ["f", "late"]
    assert out["tools"][1]["defer_loading"] is True


@pytest.mark.parametrize("model", ["claude-opus-4-7", ""], ids=["an older model", "another API"])
@pytest.mark.parametrize("declared", [[FUNCTION, DEFERRED], [DEFERRED]], ids=["one deferred", "all deferred"])
def test_n3_tools_that_come_and_go_are_offered_from_there_on(model: str, declared: list[Any]) -> None:
    payload = body(model=model or MODEL, messages=CHANGED, tools=declared)
    request, noted = from_messages(encode(payload))
    if model:
        out, lost = to_messages(request)
        offered = [tool["name"] for tool in out["tools"]]
    else:
        chat, lost = chat_completions.to_chat(request)
        offered = [tool["function"]["name"] for tool in json.loads(encode(chat))["tools"]]
    assert offered == ["late", "edit"]
    assert not [*noted.of("loss"), *lost.of("loss")]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ([REMOVED, {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}], ["f"]),
        ([CHANGES[1], {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "edit"}}], ["f"]),
        ([CHANGES[1], CHANGES[1]], ["f", "edit"]),
    ],
)
def test_n3_the_last_change_of_a_tool_holds(changes: list[Any], names: list[str]) -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "system", "content": changes}]
    request, _ = from_messages(encode(body(messages=turns, tools=[FUNCTION])))
    assert [tool.name for tool in request.tools or ()] == names


def test_a_change_of_what_is_not_known_is_a_loss() -> None:
    server = {"type": "mcp_toolset_reference", "server_name": "s"}
    turns = [CHANGED[0], {"role": "system", "content": [{"type": "tool_addition", "tool": server}]}]
    assert "tool_addition" in elsewhere(body(messages=turns, tools=[FUNCTION]))


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-sonnet-4-5"])
def test_case_59_a_leading_system_message_joins_the_system_prompt(model: str) -> None:
    turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "a"}]
    out, _ = sent(body(model=model, system="top", messages=turns))
    assert [block["text"] for block in out["system"]] == ["top", "be brief"]
    assert [message["role"] for message in out["messages"]] == ["user"]


def test_case_60_an_effort_may_come_last_and_without_content() -> None:
    turns = [TURNS[0], {"role": "system", "output_config": {"effort": "low"}}]
    out, lost = sent(body(messages=turns, model="claude-opus-5"), MessagesOptions(cache_control=MARK))
    assert (out["messages"][-1], lost) == ({**turns[1], "content": []}, [])


def test_case_60_fields_of_other_messages_are_losses() -> None:
    payload = body(messages=[{**TURNS[0], "clear_at": "never"}])
    assert sent(payload)[1] == ["messages[0].clear_at"]


def test_case_60_the_sdk_has_no_other_fields_of_messages() -> None:
    fields = {
        role: set(typing.get_type_hints(getattr(sdk.beta, f"Beta{role}MessageParam")))
        for role in ("User", "Assistant", "System")
    }
    assert fields == {
        "User": {"role", "content"},
        "Assistant": {"role", "content"},
        "System": {"role", "content", "clear_at", "output_config"},
    }


def test_parts_of_a_result_that_are_the_apis_own_are_kept() -> None:
    content = [{"type": "text", "text": "x"}, {"type": "search_result", "source": "https://a", "title": "t"}]
    payload = conversation(
        "ToolResultBlockParam", {"type": "tool_result", "tool_use_id": "t1", "content": content}
    )
    out, lost = sent(payload)
    assert out["messages"][2]["content"][0]["content"] == content
    assert lost == []
    assert elsewhere(payload) == ["tool_result.search_result"]


@pytest.mark.parametrize(
    ("model", "given", "thinking", "effort"),
    [
        (MODEL, {"thinking": {"type": "adaptive"}}, {"type": "adaptive"}, "high"),
        (MODEL, {"thinking": {"type": "disabled"}}, {"type": "disabled"}, None),
        (MODEL, {"thinking": {"type": "between_tools"}}, {"type": "between_tools"}, None),
        (MODEL, {"output_config": {"effort": "low"}}, None, "low"),
        ("claude-opus-9", {"output_config": {"effort": "brand-new"}}, None, "brand-new"),
        (
            "claude-sonnet-4-5",
            {"thinking": {"type": "enabled", "budget_tokens": 3001}},
            {"type": "enabled", "budget_tokens": 3001},
            None,
        ),
        ("claude-sonnet-4-5", {"output_config": {"effort": "low"}}, None, None),
        ("claude-3-haiku", {"thinking": {"type": "disabled"}}, None, None),
    ],
)
def test_thinking_is_asked_for_in_the_clients_words(
    model: str, given: dict[str, Any], thinking: Any, effort: str | None
) -> None:
    out, _ = sent(body(model=model, max_tokens=4000, **given))
    assert out.get("thinking") == thinking
    assert out.get("output_config", {}).get("effort") == effort


def test_a_budget_above_a_limit_that_was_lowered_is_planned_anew() -> None:
    request, _ = from_messages(
        body(max_tokens=100_000, thinking={"type": "enabled", "budget_tokens": 90_000})
    )
    out, _ = to_messages(request, model="claude-sonnet-4-5")
    assert out["max_tokens"] == 64_000
    assert out["thinking"]["budget_tokens"] < 64_000


def test_what_is_carried_can_be_written_as_json() -> None:
    marked = {"type": "text", "text": "x", "cache_control": MARK}
    request, _ = from_messages(body(messages=[{"role": "user", "content": [marked]}]))
    assert b"cache_control" in encode(request)


def test_places_are_of_no_use_in_another_input() -> None:
    payload = body(
        messages=[{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": MARK}]}]
    )
    request, _ = from_messages(payload)
    other = from_messages(conversation("TextBlockParam", {"type": "text", "text": "y"}))[0]

    out, _ = to_messages(replace(request, input=other.input))
    assert "cache_control" not in json.dumps(out)


@pytest.mark.parametrize("block", ["image", "document"])
def test_n3_what_the_api_alone_can_read_is_refused_elsewhere(block: str) -> None:
    payload = body(messages=[{"role": "user", "content": [
        {"type": block, "source": {"type": "file", "file_id": "file_1"}, "cache_control": MARK}
    ]}])  # fmt: skip
    out, lost = sent(payload)
    assert (out["messages"], lost) == (payload["messages"], [])
    with pytest.raises(InvalidRequestError) as caught:
        elsewhere(payload)
    assert caught.value.param == "messages[0].content[0].source"


def test_n3_a_container_is_refused_elsewhere() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        elsewhere(body(container="container_1"))
    assert caught.value.param == "container"
