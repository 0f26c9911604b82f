"""Raw messages into the words of the APIs and back."""

from typing import Any

import msgspec
import pytest

from openresponses_agent.prompt import (
    Base64Image,
    BuildPromptResult,
    CacheBreakpointPart,
    ChatMessage,
    ChatMessageToolCall,
    ImagePart,
    ImageUrl,
    OpaquePart,
    PromptRenderer,
    TextPart,
    ThinkingPart,
    anthropic_messages_to_raw_messages,
    api_messages_to_anthropic,
    capi_to_raw_messages,
    create_anthropic_request_body,
    create_capi_request_body,
    create_responses_request_body,
    input_items_to_raw_messages,
    raw_messages_to_capi,
    raw_messages_to_input_items,
)
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import thinking
from openresponses_bridge.errors import InvalidRequestError, LocalError
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as ii
from openresponses_bridge.protocol import items as out
from openresponses_bridge.protocol.codec import decode_json, decode_request, encode
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownPart
from openresponses_bridge.seal import Sealer
from tests.support.prompts import IDENTITY, PIXEL, QUERY, Characters, everything, two_edits

MARK = {"type": "ephemeral"}


def call(call_id: str = "c1", name: str = "look", arguments: str = '{"a":1}') -> ChatMessageToolCall:
    return ChatMessageToolCall.of(call_id, name, arguments)


def said(role: Any, *parts: Any) -> ChatMessage:
    return ChatMessage(role=role, content=list(parts))


def result(content: Any, call_id: str = "c1", **fields: Any) -> ChatMessage:
    return ChatMessage(role="tool", content=content, tool_call_id=call_id, name="look", **fields)


def edited() -> list[ChatMessage]:
    return PromptRenderer(Characters(), system_separator=" ").render(two_edits()).messages


# ── Chat ───────────────────────────────────────────────────────────────────────────────────────────────
def test_the_seed_s_chat_messages() -> None:
    messages = raw_messages_to_capi(edited())
    assert messages[:2] == [
        {"role": "system", "content": f"{IDENTITY} Workspace: /project"},
        {"role": "user", "content": QUERY},
    ]
    assert messages[2]["tool_calls"][0] == {
        "id": "call_0",
        "type": "function",
        "function": {
            "name": "edit_file",
            "arguments": '{"filePath":"test.js","code":"module.exports = { multiply };"}',
        },
    }
    assert messages[3] == {
        "role": "tool",
        "content": "Successfully edited test.js",
        "tool_call_id": "call_0",
        "name": "edit_file",
    }
    assert capi_to_raw_messages(messages) == edited()


def test_chat_content_of_several_kinds() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
    message = ChatMessage(
        role="user",
        name="ann",
        content=[
            TextPart("see"),
            CacheBreakpointPart("1h"),
            ImagePart(PIXEL, "original"),
            ImagePart(ImageUrl("https://example.test/a.png")),
            OpaquePart(audio, scope="chat"),
        ],
    )
    (chat,) = raw_messages_to_capi([message], cache_control=True)
    assert chat == {
        "role": "user",
        "name": "ann",
        "content": [
            {"type": "text", "text": "see", "cache_control": MARK | {"ttl": "1h"}},
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "high"},
            },
            {"type": "image_url", "image_url": {"url": "https://example.test/a.png"}},
            audio,
        ],
    }
    (back,) = capi_to_raw_messages([chat])
    assert back.content == [*message.content[:2], ImagePart(PIXEL, "high"), *message.content[3:]]
    assert back.name == "ann"


def test_chat_content_is_a_string_where_only_text_is_left() -> None:
    notes = Diagnostics()
    parts = [
        TextPart("a"),
        CacheBreakpointPart(),
        TextPart("b"),
        OpaquePart({"type": "x"}, scope="anthropic"),
    ]
    (chat,) = raw_messages_to_capi([said("system", *parts)], diagnostics=notes)
    assert chat["content"] == "a\n\nb"
    assert {(each.kind, each.where) for each in notes} == {
        ("ignored", "cache_breakpoint"),
        ("loss", "content.opaque"),
    }


def test_chat_takes_thinking_back_only_where_it_has_a_name() -> None:
    notes = Diagnostics()
    message = said("assistant", ThinkingPart("hm"), ThinkingPart(redacted="r"), TextPart("yes"))
    (named,) = raw_messages_to_capi([message], reasoning_field="reasoning_content", diagnostics=notes)
    assert named == {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    assert not notes
    (unnamed,) = raw_messages_to_capi([message], diagnostics=notes)
    assert unnamed == {"role": "assistant", "content": "yes"}
    assert [each.kind for each in notes] == ["loss"]
    assert capi_to_raw_messages([named])[0].content == [ThinkingPart("hm"), TextPart("yes")]


def test_chat_s_calls_without_words_have_null_content() -> None:
    message = ChatMessage(role="assistant", content="", tool_calls=[call()])
    (chat,) = raw_messages_to_capi([message])
    assert chat["content"] is None
    assert capi_to_raw_messages([chat]) == [message]


def test_images_of_results_follow_all_results() -> None:
    calls = ChatMessage(role="assistant", content="", tool_calls=[call("c1"), call("c2")])
    pictures = [result([TextPart("two"), ImagePart(PIXEL)]), result([ImagePart(PIXEL)], "c2")]
    after = ChatMessage(role="user", content="q")
    messages = raw_messages_to_capi([calls, *pictures, after])
    assert [each["role"] for each in messages] == ["assistant", "tool", "tool", "user", "user"]
    assert [each["content"] for each in messages[1:3]] == ["two", "(attached below)"]
    assert [part["type"] for part in messages[3]["content"]] == ["text", "image_url"] * 2
    assert "tool call c2" in messages[3]["content"][2]["text"]
    assert [each["role"] for each in raw_messages_to_capi([calls, *pictures])][-1] == "user"


def test_the_older_functions_are_read_as_calls() -> None:
    messages = capi_to_raw_messages(
        [
            {"role": "developer", "content": "d"},
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "r"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "n"}], "refusal": "o"},
        ]
    )
    assert messages == [
        ChatMessage(role="system", content="d"),
        ChatMessage(role="assistant", content="", tool_calls=[call("call_1", "f", "{}")]),
        ChatMessage(role="tool", content="r", tool_call_id="call_1", name="f"),
        said("assistant", TextPart("n"), TextPart("o")),
    ]


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("text", "messages[0]"),
        ({}, "messages[0].role"),
        ({"role": "robot"}, "messages[0].role"),
        ({"role": "user", "content": 1}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].image_url"),
        (
            {"role": "user", "content": [{"type": "text", "text": "", "cache_control": 1}]},
            "messages[0].content[0].cache_control",
        ),
        ({"role": "tool", "content": ""}, "messages[0].tool_call_id"),
        ({"role": "function", "name": "f", "content": ""}, "messages[0].name"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "messages[0].tool_calls[0].function"),
    ],
)
def test_what_is_wrong_in_a_chat_message_is_named(message: Any, place: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        capi_to_raw_messages([message])
    assert caught.value.param == place


def test_an_image_s_address_may_stand_alone() -> None:
    part = {"type": "image_url", "image_url": "data:image/PNG;base64,AA=="}
    (message,) = capi_to_raw_messages([{"role": "user", "content": [part]}])
    assert message.content == [ImagePart(Base64Image("image/png", "AA=="))]


# ── Anthropic ──────────────────────────────────────────────────────────────────────────────────────────
def test_the_seed_s_anthropic_messages() -> None:
    system, messages = api_messages_to_anthropic(edited())
    assert system == f"{IDENTITY} Workspace: /project"
    assert messages == [
        {"role": "user", "content": [{"type": "text", "text": QUERY}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me make both changes."},
                {
                    "type": "tool_use",
                    "id": "call_0",
                    "name": "edit_file",
                    "input": {"filePath": "test.js", "code": "module.exports = { multiply };"},
                },
                {
                    "type": "tool_use",
                    "id": "call_1",
                    "name": "edit_file",
                    "input": {"filePath": "server.js", "code": "app.listen(3000);"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_0", "content": "Successfully edited test.js"},
                {"type": "tool_result", "tool_use_id": "call_1", "content": "Successfully edited server.js"},
            ],
        },
    ]
    assert anthropic_messages_to_raw_messages(messages, system) == edited()


def test_anthropic_gets_one_system_text() -> None:
    notes = Diagnostics()
    late = said("system", TextPart("b"), ImagePart(PIXEL))
    user = ChatMessage(role="user", content="q")
    system, messages = api_messages_to_anthropic(
        [ChatMessage(role="system", content="a"), user, late], diagnostics=notes
    )
    assert system == "a\n\nb"
    assert [each["role"] for each in messages] == ["user"]
    assert [each.kind for each in notes] == ["loss", "loss"]


def test_breakpoints_become_cache_control_of_the_last_four() -> None:
    point = CacheBreakpointPart()
    notes = Diagnostics()
    system, messages = api_messages_to_anthropic(
        [
            said("system", point, TextPart("a"), point, TextPart("b")),
            said("user", TextPart("q"), point, CacheBreakpointPart("1h")),
            ChatMessage(role="assistant", content=[TextPart("x"), point], tool_calls=[call()]),
            result([TextPart("r"), point], is_error=True),
            said("user", ImagePart(PIXEL), point),
        ],
        diagnostics=notes,
    )
    assert system == "a\n\nb"  # the fifth from the end
    assert messages[0]["content"] == [{"type": "text", "text": "q", "cache_control": MARK | {"ttl": "1h"}}]
    assert messages[1]["content"][0]["cache_control"] == MARK
    answered, image = messages[2]["content"]
    assert answered == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": "r",
        "is_error": True,
        "cache_control": MARK,
    }
    assert image["cache_control"] == MARK
    assert [each.kind for each in notes] == ["ignored"]


def test_a_breakpoint_within_the_system_text_splits_it() -> None:
    system, _ = api_messages_to_anthropic(
        [said("system", TextPart("a"), TextPart("b"), CacheBreakpointPart(), TextPart("c"))]
    )
    assert system == [
        {"type": "text", "text": "a\n\nb", "cache_control": MARK},
        {"type": "text", "text": "c"},
    ]
    (back,) = anthropic_messages_to_raw_messages([], system)
    assert back.content == [TextPart("a\n\nb"), CacheBreakpointPart(), TextPart("c")]


def test_anthropic_refuses_repeated_ids_so_they_are_made_unique() -> None:
    again = [ChatMessage(role="assistant", content="", tool_calls=[call()]), result("r")]
    _, messages = api_messages_to_anthropic([ChatMessage(role="user", content="q"), *again, *again])
    ids = [block["id"] for each in messages for block in each["content"] if block["type"] == "tool_use"]
    answers = [
        block["tool_use_id"] for each in messages for block in each["content"] if "tool_use_id" in block
    ]
    assert ids == answers == ["c1", "c1_2"]


def test_thinking_blocks_pass_unchanged_and_unsigned_ones_are_lost() -> None:
    notes = Diagnostics()
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "cmVk"},
    ]
    message = said(
        "assistant", ThinkingPart("hm", signature="c2ln"), ThinkingPart(redacted="cmVk"), TextPart("yes")
    )
    user = ChatMessage(role="user", content="q")
    _, (_, turn) = api_messages_to_anthropic([user, message])
    assert turn["content"] == [*blocks, {"type": "text", "text": "yes"}]
    assert anthropic_messages_to_raw_messages([turn]) == [message]
    unsigned = said("assistant", ThinkingPart("hm"), TextPart("yes"))
    _, (_, turn) = api_messages_to_anthropic([user, unsigned], diagnostics=notes)
    assert turn["content"] == [{"type": "text", "text": "yes"}]
    assert [each.kind for each in notes] == ["loss"]


def test_anthropic_s_own_blocks_are_opaque_and_come_back() -> None:
    document = {"type": "document", "source": {"type": "url", "url": "https://example.test/a.pdf"}}
    image = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    remote = {"type": "image", "source": {"type": "url", "url": "https://example.test/a.png"}}
    body = [{"role": "user", "content": [{**document, "cache_control": MARK}, image, remote]}]
    raw = anthropic_messages_to_raw_messages(body)
    assert raw == [
        said(
            "user",
            OpaquePart(document, scope="anthropic"),
            CacheBreakpointPart(),
            OpaquePart(image, scope="anthropic"),
            ImagePart(ImageUrl("https://example.test/a.png")),
        )
    ]
    assert api_messages_to_anthropic(raw).messages == body
    notes = Diagnostics()
    foreign = said(
        "user", TextPart(" "), TextPart("a"), OpaquePart(1), OpaquePart({"type": "x"}, scope="chat")
    )
    _, (turn,) = api_messages_to_anthropic([foreign], diagnostics=notes)
    assert turn["content"] == [{"type": "text", "text": "a"}]
    assert sum(each.times for each in notes) == 2


def test_an_image_goes_to_anthropic_and_comes_back() -> None:
    message = said("user", ImagePart(PIXEL))
    _, messages = api_messages_to_anthropic([message])
    assert messages[0]["content"][0]["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": "iVBORw0KGgo=",
    }
    assert anthropic_messages_to_raw_messages(messages) == [message]


def test_results_with_images_and_without_content() -> None:
    calls = ChatMessage(role="assistant", content="", tool_calls=[call("c1"), call("c2")])
    _, messages = api_messages_to_anthropic(
        [
            ChatMessage(role="user", content="q"),
            calls,
            result([TextPart("a"), ImagePart(PIXEL)]),
            result("", "c2"),
        ]
    )
    first, second = messages[2]["content"]
    assert [block["type"] for block in first["content"]] == ["text", "image"]
    assert second == {"type": "tool_result", "tool_use_id": "c2"}


def test_text_between_anthropic_s_results_keeps_its_place() -> None:
    uses = {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}, "cache_control": MARK}
    raw = anthropic_messages_to_raw_messages(
        [
            {"role": "assistant", "content": [uses]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": "r"}],
                        "cache_control": MARK,
                    },
                    {"type": "text", "text": "and?"},
                ],
            },
            {"role": "user", "content": "now"},
        ]
    )
    assert raw == [
        ChatMessage(role="assistant", content=[CacheBreakpointPart()], tool_calls=[call()]),
        result([TextPart("r"), CacheBreakpointPart()]),
        ChatMessage(role="user", content="and?"),
        ChatMessage(role="user", content="now"),
    ]


@pytest.mark.parametrize(
    ("messages", "system", "place"),
    [
        ([1], "", "messages[0]"),
        ([], 1, "system"),
        ([], [{"type": "text"}], "system[0].text"),
        ([{"content": ""}], "", "messages[0].role"),
        ([{"role": "system", "content": ""}], "", "messages[0].role"),
        ([{"role": "user"}], "", "messages[0].content"),
        (
            [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b"}]}],
            "",
            "messages[0].content[0].input",
        ),
        ([{"role": "user", "content": [{"type": "thinking"}]}], "", "messages[0].content[0].thinking"),
        ([{"role": "user", "content": [{"type": "redacted_thinking"}]}], "", "messages[0].content[0].data"),
    ],
)
def test_what_is_wrong_in_an_anthropic_message_is_named(messages: Any, system: Any, place: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        anthropic_messages_to_raw_messages(messages, system)
    assert caught.value.param == place


# ── items ──────────────────────────────────────────────────────────────────────────────────────────────
def test_the_seed_s_messages_as_items_and_back() -> None:
    items = raw_messages_to_input_items(edited())
    assert [item.type for item in items] == [
        *("message", "message", "message"),
        *("function_call", "function_call", "function_call_output", "function_call_output"),
    ]
    assert items[0] == ii.MessageParam("system", f"{IDENTITY} Workspace: /project")
    assert input_items_to_raw_messages(items) == edited()


def test_everything_goes_to_items_and_comes_back() -> None:
    messages = PromptRenderer(Characters(), history_thinking=True).render(everything()).messages
    sealer = Sealer()
    notes = Diagnostics()
    back = input_items_to_raw_messages(
        raw_messages_to_input_items(messages, sealer=sealer, diagnostics=notes)
    )
    assert [each.role for each in back] == [each.role for each in messages]
    assert back[1:4] == messages[1:4]
    assert back[5:] != messages[5:]  # signatures are sealed by now
    assert (
        api_messages_to_anthropic(back, sealer=sealer).messages
        == api_messages_to_anthropic(messages).messages
    )
    assert [each.where for each in notes if each.kind == "loss"] == []


def test_a_signature_needs_a_sealer_to_become_an_item() -> None:
    notes = Diagnostics()
    part = ThinkingPart("hm", signature="c2ln")
    (lost,) = raw_messages_to_input_items([said("assistant", part)], diagnostics=notes)
    assert (lost.encrypted_content or None, [each.kind for each in notes]) == (None, ["loss"])
    sealer = Sealer()
    (item,) = raw_messages_to_input_items([said("assistant", part)], sealer=sealer)
    kind, block = thinking.open_sealed(sealer, item.encrypted_content)
    assert (kind, block["signature"]) == (thinking.THINKING, "c2ln")


@pytest.mark.parametrize("encrypted", ["orb1.nonsense", Sealer().seal(b"{}", "responses-reasoning")])
def test_reasoning_that_is_not_anthropic_s_is_a_loss_there(encrypted: str) -> None:
    notes = Diagnostics()
    part = ThinkingPart("hm", encrypted_content=encrypted, id="rs_1", summary=["s"])
    message = said("assistant", part, TextPart("yes"))
    items = raw_messages_to_input_items([message])
    assert input_items_to_raw_messages(items) == [message]
    _, (_, turn) = api_messages_to_anthropic(
        [ChatMessage(role="user", content="q"), message], sealer=Sealer(), diagnostics=notes
    )
    assert turn["content"] == [{"type": "text", "text": "yes"}]
    assert [each.kind for each in notes] == ["loss"]


def test_a_failed_result_stays_one() -> None:
    messages = [ChatMessage(role="assistant", content="", tool_calls=[call()]), result("e", is_error=True)]
    assert input_items_to_raw_messages(raw_messages_to_input_items(messages)) == messages


def test_what_an_assistant_does_in_a_row_is_one_message() -> None:
    items = [
        ii.ReasoningParam([], content=[ct.ReasoningTextContent("hm")]),
        ii.FunctionCallParam("c1", "look", "{}"),
        ii.MessageParam("assistant", "then"),
        ii.CustomToolCallParam("c2", "write", "text"),
        ii.FunctionCallOutputParam("c1", "r1"),
        ii.MessageParam("developer", "d"),
        ii.CustomToolCallOutputParam("c2", [ct.InputTextContent("r2")]),
        ii.MessageParam("user", ""),
    ]
    first, one, two, note = input_items_to_raw_messages(items)
    assert first.content == [ThinkingPart("hm"), TextPart("then")]
    assert [each.id for each in first.tool_calls or ()] == ["c1", "c2"]
    assert (one.content, two.content) == ("r1", "r2")
    assert note == ChatMessage(role="system", content="d")


def test_content_of_items_that_has_no_part_is_opaque() -> None:
    strange = {"type": "input_audio", "data": ""}
    content = [
        ct.InputImageParam("https://example.test/a.png", "low"),
        ct.InputImageParam(file_id="f"),
        ct.InputFileContent(file_id="g"),
        ct.RefusalContent("no"),
        UnknownPart(strange),
    ]
    (message,) = input_items_to_raw_messages([ii.MessageParam("user", content)])
    assert message.content == [
        ImagePart(ImageUrl("https://example.test/a.png"), "low"),
        OpaquePart({"type": "input_image", "file_id": "f"}, scope="responses"),
        OpaquePart({"type": "input_file", "file_id": "g"}, scope="responses"),
        TextPart("no"),
        OpaquePart(strange, scope="responses"),
    ]
    (back,) = raw_messages_to_input_items([message])
    assert plain_items([back])[0]["content"] == [
        {"type": "input_image", "image_url": "https://example.test/a.png", "detail": "low"},
        {"type": "input_image", "file_id": "f"},
        {"type": "input_file", "file_id": "g"},
        {"type": "input_text", "text": "no"},
        strange,
    ]


def test_opaque_parts_and_breakpoints_that_items_can_t_hold_are_noted() -> None:
    notes = Diagnostics()
    message = said("user", CacheBreakpointPart(), OpaquePart({"type": "x"}, scope="chat"), OpaquePart("text"))
    assert raw_messages_to_input_items([message], diagnostics=notes) == []
    assert {(each.kind, each.where, each.times) for each in notes} == {
        ("ignored", "cache_breakpoint", 1),
        ("loss", "content.opaque", 2),
    }


def test_output_items_are_read_too_and_what_has_no_message_is_a_loss() -> None:
    notes = Diagnostics()
    items = [
        out.Message("m", "completed", "assistant", [ct.OutputTextContent("a", [])]),
        out.FunctionCall("f", "c9", "cut", '{"a', "incomplete"),
        UnknownItem({"type": "x:y"}),
    ]
    (message,) = input_items_to_raw_messages(items, diagnostics=notes)
    assert message == ChatMessage(role="assistant", content="a")
    assert [each.where for each in notes] == ["function_call", "item.x:y"]


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([ii.FunctionCallParam("c", "f", "{}")], "unpaired_tool_call"),
        ([ii.FunctionCallOutputParam("c", "r")], "unpaired_tool_call"),
        ([ii.ItemReference("m_1")], "invalid_value"),
    ],
)
def test_items_that_don_t_stand_by_themselves_are_refused(items: list[Any], code: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        input_items_to_raw_messages(items)
    assert (caught.value.code, caught.value.param) == (code, "input[0]")


# ── bodies ─────────────────────────────────────────────────────────────────────────────────────────────
def prompt() -> BuildPromptResult:
    return PromptRenderer(Characters()).render(two_edits())


def test_bodies_hold_messages_tools_and_options() -> None:
    chat = create_capi_request_body(prompt(), "m", temperature=0.7, stream=True)
    assert list(chat) == ["model", "messages", "tools", "tool_choice", "temperature", "stream"]
    older = create_capi_request_body(prompt(), "m", functions=True)
    assert list(older) == ["model", "messages", "functions", "function_call"]
    anthropic = create_anthropic_request_body(prompt(), "m", max_tokens=4096)
    assert list(anthropic) == ["model", "system", "messages", "tools", "max_tokens"]
    assert anthropic["tools"][0]["input_schema"]["required"] == ["filePath", "code"]
    responses = create_responses_request_body(prompt(), "m", stream=True)
    assert list(responses) == ["model", "input", "tools", "stream"]


def test_a_responses_body_is_a_request() -> None:
    body = create_responses_request_body(
        PromptRenderer(Characters()).render(everything()), "m", sealer=Sealer()
    )
    request = decode_request(msgspec.json.encode(body))
    assert isinstance(request.input, list)
    assert len(request.input) == len(body["input"])


def test_a_prompt_that_asks_nothing_makes_no_request() -> None:
    empty = BuildPromptResult([], [], 0)
    for make in (
        lambda: create_capi_request_body(empty, "m"),
        lambda: create_anthropic_request_body(empty, "m", max_tokens=1),
        lambda: create_responses_request_body(empty, "m"),
    ):
        with pytest.raises(LocalError, match=r"bridge\.prompt\.empty"):
            make()


def plain_items(items: list[Any]) -> list[Any]:
    return [decode_json(encode(item)) for item in items]
