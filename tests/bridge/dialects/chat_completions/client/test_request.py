"""A Chat Completions request → ours: what it means, what is lost, what is refused and where."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.dialects.chat_completions import (
    AnswerOptions,
    ChatOptions,
    answer_options,
    from_chat,
    to_chat,
)
from openresponses_bridge.dialects.chat_completions.carried import carried_by
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as ii
from openresponses_bridge.protocol import request as rq
from openresponses_bridge.protocol import tools as tl
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.protocol.unknown import UnknownFormat, UnknownPart, UnknownTool, UnknownToolChoice

Json = dict[str, Any]
HI: Json = {"role": "user", "content": "Hi"}
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
CALLED: Json = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER: Json = {"role": "tool", "tool_call_id": "c1", "content": "seen"}
FUNCTION: Json = {"type": "function", "function": {"name": "look"}}


def read(*messages: Json, **fields: Any) -> tuple[rq.CreateResponse, list[str]]:
    """(request, losses) of a body with these messages."""
    request, diagnostics = from_chat({"model": "m", "messages": list(messages or (HI,)), **fields})
    assert not diagnostics.of("ignored")
    return request, [f"{case.where}: {case.what}" for case in diagnostics.of("loss")]


def items(*messages: Json) -> Any:
    return read(*messages)[0].input


def refused(*messages: Json, **fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        read(*messages, **fields)
    return caught.value


# ── messages ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_messages_keep_their_roles(role: Any) -> None:
    assert items({"role": role, "content": "Hi"}) == [ii.MessageParam(role, "Hi")]
    parts = [{"type": "text", "text": "Hi"}]
    assert items({"role": role, "content": parts}) == [ii.MessageParam(role, [ct.InputTextContent("Hi")])]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "Hi"}, ct.InputTextContent("Hi")),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
            ct.InputImageParam("data:image/png;base64,AA", "low"),
        ),
        ({"type": "image_url", "image_url": {"url": "https://a/b.png"}}, ct.InputImageParam("https://a/b.png")),
        ({"type": "image_url", "image_url": "https://a/b.png"}, ct.InputImageParam("https://a/b.png")),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
            ct.InputFileContent(filename="a.pdf", file_data="data:application/pdf;base64,AA"),
        ),
        ({"type": "file", "file": {"file_id": "file_1"}}, ct.InputFileContent(file_id="file_1")),
        ({"type": "video_url", "video_url": {"url": "https://a/b.mp4"}}, ct.InputVideoContent("https://a/b.mp4")),
        (
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            UnknownPart({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}),
        ),
    ],
)  # fmt: skip
def test_parts_of_a_users_message(part: Json, expected: Any) -> None:
    (message,) = items({"role": "user", "content": [part]})
    assert message.content == [expected]


def test_an_assistants_turn_is_its_reasoning_its_words_and_its_calls() -> None:
    turn = {
        "role": "assistant",
        "reasoning_content": "hm",
        "reasoning": "hm",
        "content": "Let me see.",
        "tool_calls": [
            CALL,
            {"id": "c2", "type": "custom", "custom": {"name": "sql", "input": "SELECT"}, "index": 1},
        ],
        "annotations": [],
    }
    custom = {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "1"}]}
    request, losses = read(HI, turn, ANSWER, custom)
    assert request.input == [
        ii.MessageParam("user", "Hi"),
        ii.ReasoningParam([], content=[ct.ReasoningTextContent("hm")]),
        ii.MessageParam("assistant", "Let me see."),
        ii.FunctionCallParam("c1", "look", '{"a":1}'),
        ii.CustomToolCallParam("c2", "sql", "SELECT"),
        ii.FunctionCallOutputParam("c1", "seen"),
        ii.CustomToolCallOutputParam("c2", [ct.InputTextContent("1")]),
    ]
    assert losses == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Hm", [ct.OutputTextParam("Hm"), ct.RefusalContent("No.")]),
        ("", [ct.RefusalContent("No.")]),
        (None, [ct.RefusalContent("No.")]),
        ([{"type": "text", "text": "Hm"}], [ct.OutputTextParam("Hm"), ct.RefusalContent("No.")]),
    ],
)
def test_a_refusal_is_a_part(content: Any, expected: Any) -> None:
    (message,) = items({"role": "assistant", "content": content, "refusal": "No."})
    assert message.content == expected


def test_a_refusal_may_be_a_part_already() -> None:
    (message,) = items({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]})
    assert message.content == [ct.RefusalContent("No.")]


def test_an_empty_answer_says_nothing() -> None:
    assert items(HI, {"role": "assistant", "content": ""}) == [ii.MessageParam("user", "Hi")]


def test_tool_results_may_hold_images() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://a/b.png"}}
    (_, output) = items(CALLED, {**ANSWER, "content": [{"type": "text", "text": "See"}, image]})
    assert output.output == [ct.InputTextContent("See"), ct.InputImageParam("https://a/b.png")]


def test_functions_in_the_old_form_are_joined_by_name() -> None:
    def called(name: str) -> Json:
        return {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": "{}"}}

    def answered(name: str, text: str) -> Json:
        return {"role": "function", "name": name, "content": text}

    input_items = items(
        called("a"), answered("a", "1"), called("b"), answered("b", "2"), called("a"), answered("a", "3")
    )
    assert [(item.call_id, getattr(item, "output", "")) for item in input_items] == [
        ("call_1", ""),
        ("call_1", "1"),
        ("call_2", ""),
        ("call_2", "2"),
        ("call_3", ""),
        ("call_3", "3"),
    ]


def test_an_id_may_be_used_again_in_a_later_turn() -> None:
    assert len(items(CALLED, ANSWER, CALLED, ANSWER)) == 4


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([HI, ANSWER], "messages[1].tool_call_id"),
        ([CALLED, ANSWER, ANSWER], "messages[2].tool_call_id"),
        ([{"role": "function", "name": "look", "content": "x"}], "messages[0].name"),
    ],
)
def test_case_45_answers_without_calls_are_refused(messages: list[Json], param: str) -> None:
    error = refused(*messages)
    assert (error.code, error.param) == ("unpaired_tool_call", param)


# ── fields ─────────────────────────────────────────────────────────────────────────────────────────────────
def test_fields_that_mean_the_same() -> None:
    same: Json = {
        "temperature": 0.5,
        "top_p": 1,
        "presence_penalty": 0.1,
        "frequency_penalty": -0.1,
        "parallel_tool_calls": False,
        "stream": True,
        "service_tier": "flex",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
    }
    request, losses = read(**same)
    assert {name: getattr(request, name) for name in same} == same
    assert request.model == "m"
    assert losses == []


def test_nothing_is_stored_unless_asked() -> None:
    assert read()[0].store is False


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7}, 7),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7),
    ],
)
def test_the_limit_of_the_answer(fields: Json, limit: int | None) -> None:
    request, losses = read(**fields)
    assert request.max_output_tokens == limit
    assert losses == []


@pytest.mark.parametrize(
    ("fields", "include", "top"),
    [
        ({}, None, None),
        ({"logprobs": False}, None, None),
        ({"logprobs": True}, ["message.output_text.logprobs"], None),
        ({"logprobs": True, "top_logprobs": 3}, ["message.output_text.logprobs"], 3),
    ],
)
def test_log_probabilities(fields: Json, include: Any, top: Any) -> None:
    request, losses = read(**fields)
    assert (request.include, request.top_logprobs, losses) == (include, top, [])


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"reasoning_effort": "low"}, "low"),
        ({"reasoning": {"effort": "high"}}, "high"),
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "low"),
    ],
)
def test_reasoning_effort(fields: Json, effort: str) -> None:
    assert read(**fields)[0].reasoning == rq.ReasoningOptions(effort)


def test_reasoning_options_without_an_effort_ask_for_none() -> None:
    request, losses = read(reasoning={"exclude": True})
    assert (replace(request, native=UNSET), losses) == (read()[0], [])
    assert request.native
    assert request.native.names == ["reasoning"]
    assert carried_by(request).body == {"reasoning": {"exclude": True}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "text"}, TextFormat()),
        ({"type": "json_object"}, JsonObjectFormat()),
        (
            {
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": True},
            },
            rq.JsonSchemaFormatParam("s", UNSET, {"type": "object"}, True),
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "s", "description": "d"}},
            rq.JsonSchemaFormatParam("s", "d"),
        ),
        ({"type": "grammar", "grammar": "x"}, UnknownFormat({"type": "grammar", "grammar": "x"})),
    ],
)
def test_the_answers_format(given: Json, expected: Any) -> None:
    request, losses = read(response_format=given)
    assert request.text == rq.TextParam(expected)
    assert losses == []


def test_verbosity() -> None:
    assert read(verbosity="low")[0].text == rq.TextParam(UNSET, "low")
    assert read()[0].text is None


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, AnswerOptions()),
        ({"n": 3}, AnswerOptions(3)),
        ({"stream_options": {"include_usage": True}}, AnswerOptions(1, True)),
        ({"stream_options": {"include_obfuscation": False}}, AnswerOptions()),
        ({"functions": [{"name": "look"}]}, AnswerOptions(1, False, True)),
        ({"functions": [{"name": "look"}], "tools": [FUNCTION]}, AnswerOptions()),
    ],
)
def test_what_concerns_the_form_of_the_answer(fields: Json, options: AnswerOptions) -> None:
    body = {"model": "m", "messages": [HI], **fields}
    assert answer_options(body) == answer_options(json.dumps(body).encode()) == options
    assert not from_chat(body)[1].of("loss")


def test_padding_is_asked_for_or_not() -> None:
    assert read(stream_options={"include_obfuscation": False})[0].stream_options == rq.StreamOptions(False)
    assert read(stream_options={"include_usage": True})[0].stream_options is None


@pytest.mark.parametrize(
    ("fields", "losses"),
    [
        ({"logit_bias": {}, "stop": None, "seed": None}, []),
        ({"modalities": ["text"]}, []),
        ({"modalities": ["text", "audio"], "audio": {"voice": "v"}}, []),
        ({"top_k": 3, "provider": {"order": ["a"]}}, []),
        ({"tools": [FUNCTION | {"odd": 1}]}, ["tools[0].odd"]),
    ],
)
def test_what_cannot_be_said_is_listed(fields: Json, losses: list[str]) -> None:
    assert read(**fields)[1] == [f"{name}: can't be expressed" for name in losses]


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": "END"},
        {"stop": ["END", "STOP"]},
        {"seed": 3},
        {"logit_bias": {"1": 2, "3": -0.5}},
        {"prediction": {"type": "content", "content": "x"}},
        {"prompt_cache_retention": "24h"},
        {"store": True, "metadata": {"a": "b"}},
        {"store": False},
    ],
)
def test_what_only_this_api_has_reaches_its_own_kind(fields: Json) -> None:
    request, losses = read(**fields)
    body, report = to_chat(request)
    outgoing = json.loads(encode(body))
    assert outgoing == {"model": "m", "messages": [HI], **fields}
    assert losses == []
    assert not report.of("loss")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop": 3}, "stop"),
        ({"stop": ["a", 3]}, "stop"),
        ({"seed": "x"}, "seed"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"1": "x"}}, "logit_bias.1"),
        ({"logit_bias": {"1": True}}, "logit_bias.1"),
        ({"logit_bias": {"1" * 40: "x"}}, "logit_bias." + "1" * 32),
        ({"prediction": "x"}, "prediction"),
    ],
)
def test_they_are_of_their_types(fields: Json, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(**fields)
    assert caught.value.param == param


def test_what_cannot_be_said_within_is_listed_with_its_place() -> None:
    part = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    tool = {"type": "function", "function": {"name": "look", "examples": [1]}}
    _, losses = read({"role": "user", "content": [part], "of": "Ann"}, tools=[tool])
    assert losses == [
        "messages[0].of: can't be expressed",
        "tools[0].function.examples: can't be expressed",
    ]


# ── tools ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_tools_of_each_kind() -> None:
    grammar = {"syntax": "lark", "definition": "x"}
    request, losses = read(
        tools=[
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": "d",
                    "parameters": {"type": "object"},
                    "strict": True,
                },
            },
            FUNCTION,
            {"type": "custom", "custom": {"name": "sql", "format": {"type": "grammar", "grammar": grammar}}},
            {"type": "custom", "custom": {"name": "any", "description": "d", "format": {"type": "text"}}},
            {"type": "custom", "custom": {"name": "bare"}},
            {"type": "web_search", "size": 1},
        ],
        functions=[{"name": "old"}],
        web_search_options={"search_context_size": "low"},
    )
    assert request.tools == [
        tl.FunctionToolParam("look", "d", {"type": "object"}, True),
        tl.FunctionToolParam("look", UNSET, UNSET, False),
        tl.CustomTool("sql", UNSET, {"type": "grammar", **grammar}),
        tl.CustomTool("any", "d", {"type": "text"}),
        tl.CustomTool("bare"),
        UnknownTool({"type": "web_search", "size": 1}),
        tl.FunctionToolParam("old", UNSET, UNSET, False),
        UnknownTool({"type": "web_search", "search_context_size": "low"}),
    ]
    assert losses == []


def test_no_tools_are_none() -> None:
    assert read(tools=[])[0].tools is None


NAMED: Json = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"tool_choice": "required"}, "required"),
        ({"tool_choice": NAMED}, tl.FunctionToolChoice("look")),
        (
            {"tool_choice": {"type": "custom", "custom": {"name": "sql"}}},
            UnknownToolChoice({"type": "custom", "name": "sql"}),
        ),
        ({"tool_choice": {"type": "web_search"}}, UnknownToolChoice({"type": "web_search"})),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": [NAMED]},
                }
            },
            tl.AllowedToolChoice([tl.FunctionToolChoice("look")], "required"),
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [NAMED]}}},
            tl.AllowedToolChoice([tl.FunctionToolChoice("look")]),
        ),
        ({"function_call": "none"}, "none"),
        ({"function_call": {"name": "look"}}, tl.FunctionToolChoice("look")),
        ({"tool_choice": "auto", "function_call": "none"}, "auto"),
    ],
)
def test_the_choice_among_tools(fields: Json, expected: Any) -> None:
    request, losses = read(tools=[FUNCTION], **fields)
    assert request.tool_choice == expected
    assert losses == []


# ── malformed ──────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["Hi"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": "u"}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].image_url",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 1}}]}]},
            "messages[0].content[0].image_url.url",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "u", "detail": "best"}}],
                    }
                ]
            },
            "messages[0].content[0].image_url.detail",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"filename": "a"}}]}]},
            "messages[0].content[0].file.file_data",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
            "messages[0].tool_calls[0].id",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "id": ""}]}]},
            "messages[0].tool_calls[0].id",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "type": "magic"}]}]},
            "messages[0].tool_calls[0].type",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": ""}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "n"}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"temperature": "hot"}, "temperature"),
        ({"stream": 1}, "stream"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": True}, "max_completion_tokens"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"verbosity": "loud"}, "verbosity"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
        ({"tools": [{"function": {"name": "look"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}},
            "tool_choice.allowed_tools.tools",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [NAMED]}}},
            "tool_choice.allowed_tools.mode",
        ),
        ({"function_call": "sometimes"}, "function_call"),
        ({"stream_options": 5}, "stream_options"),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:70],
)
def test_malformed_fields_are_named(fields: Json, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        from_chat({"model": "m", "messages": [HI], **fields})
    assert caught.value.param == param
    assert caught.value.code == "invalid_value" or "tool_call_id" in param
    assert caught.value.http_status == 400


@pytest.mark.parametrize("n", [0, 129, True, "2"])
def test_a_wrong_number_of_choices_is_refused(n: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        answer_options({"n": n})
    assert caught.value.param == "n"


@pytest.mark.parametrize("body", [b"{", b"[]", b""])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        from_chat(body)
    assert caught.value.code == "invalid_json"


# ── there and back ─────────────────────────────────────────────────────────────────────────────────────────
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.strip)
turns = st.one_of(
    st.builds(lambda text: [{"role": "user", "content": text}], texts),
    st.builds(lambda text: [{"role": "system", "content": text}], texts),
    st.builds(lambda text: [{"role": "assistant", "content": text}], texts),
    st.builds(
        lambda text, url: [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": text},
                    {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
                ],
            }
        ],
        texts,
        texts,
    ),
    st.builds(
        lambda said, thought, answers: [
            {
                "role": "assistant",
                **({"content": said} if said else {}),
                **({"reasoning_content": thought} if thought else {}),
                "tool_calls": [
                    {"id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                    for at in range(len(answers))
                ],
            },
            *({"role": "tool", "tool_call_id": f"c{at}", "content": text} for at, text in enumerate(answers)),
        ],
        st.none() | texts,
        st.none() | texts,
        st.lists(texts, min_size=1, max_size=3),
    ),
)


@given(st.lists(turns, min_size=1, max_size=5), st.booleans())
def test_a_request_that_goes_through_comes_out_as_it_was(parts: list[list[Json]], stream: bool) -> None:
    body: Json = {
        "model": "m",
        "messages": [
            json.loads(re.sub(r'(id": "c)(?=\d")', rf"\g<1>{turn}_", json.dumps(message)))  # unique call ids
            for turn, part in enumerate(parts)
            for message in (*part, HI)
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "strict": False, "parameters": {"type": "object"}},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "s", "schema": {"type": "object"}},
        },
        "reasoning_effort": "low",
        "max_completion_tokens": 5,
        "temperature": 0.5,
        **({"stream": True, "stream_options": {"include_usage": True}} if stream else {}),
    }
    request, diagnostics = from_chat(body)
    out, lost = to_chat(request, options=ChatOptions(reasoning_field="reasoning_content"))
    assert list(diagnostics) == []
    assert list(lost) == []
    assert json.loads(encode(out)) == body


@given(st.lists(turns, min_size=1, max_size=4))
def test_what_was_read_is_a_request_of_ours(parts: list[list[Json]]) -> None:
    """It can be stored and read again."""
    request, _ = from_chat({"model": "m", "messages": [message for part in parts for message in part]})
    assert decode_request(encode(request)) == request


CITED = {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 2}


def cited(*annotations: Any, content: Any = "Hi there") -> tuple[Any, list[str]]:
    request, losses = read(HI, {"role": "assistant", "content": content, "annotations": list(annotations)})
    return request.input[1].content, losses


@pytest.mark.parametrize("content", ["Hi there", [{"type": "text", "text": "Hi there"}]])
def test_citations_of_an_earlier_answer_are_carried(content: Any) -> None:
    nested, flat = {"type": "url_citation", "url_citation": CITED}, {"type": "url_citation", **CITED}
    citation = ct.UrlCitation("https://a.example", 0, 2, "A")
    expected = [ct.OutputTextParam("Hi there", annotations=[citation, citation])]
    assert cited(nested, flat, content=content) == (expected, [])


@pytest.mark.parametrize(
    "annotation",
    [
        {"type": "file_citation"},
        {"type": "url_citation"},
        {"type": "url_citation", "url_citation": None},
        {"type": "url_citation", "url_citation": {**CITED, "url": 1}},
        {"type": "url_citation", "url_citation": {**CITED, "end_index": 10**30}},
        {"type": "url_citation", "url_citation": {**CITED, "start_index": -1}},
        {"type": "url_citation", "url_citation": {**CITED, "start_index": True}},
        "x",
        None,
    ],
)
def test_other_annotations_are_losses(annotation: Any) -> None:
    content, losses = cited(annotation)
    assert content == "Hi there"
    assert [each.partition(":")[0] for each in losses] == ["messages[1].annotations"]
    parts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": " there"}]
    content, losses = cited({"type": "url_citation", "url_citation": CITED}, content=parts)
    assert content == [ct.OutputTextParam("Hi"), ct.OutputTextParam(" there")]
    assert len(losses) == 1


@pytest.mark.parametrize("content", [{}, {"content": None}])
def test_case_58_messages_without_content(content: Json) -> None:
    tool = {"role": "tool", "tool_call_id": "c1", **content}
    request, diagnostics = from_chat(
        json.dumps({"model": "m", "messages": [CALLED, tool, {"role": "assistant", **content}]}).encode()
    )
    assert [each["type"] for each in json.loads(encode(request.input))] == [
        "function_call",
        "function_call_output",
    ]
    assert json.loads(encode(request.input))[1]["output"] == ""
    assert list(diagnostics) == []
