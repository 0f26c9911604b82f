"""The demo model by itself: what its samples are, and that it is deterministic."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry

from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.sse import SSEDecoder, is_done
from openresponses_server.errors import UpstreamError
from openresponses_server.http.flow import BodyReader
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.demo.behaviours import BEHAVIOURS, own_words, sample
from openresponses_server.upstreams.demo.upstream import MODELS, DemoUpstream


def play(**body: Any) -> bytes:
    async def read() -> bytes:
        request = UpstreamRequest("/chat/completions", encode(body), "r")
        async with DemoUpstream().open(request) as reply:
            reader = BodyReader(reply)
            received = b""
            while data := await reader.read():
                received += data
            return received

    return anyio.run(read)


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "number"}},
            "required": ["a"],
        },
        {"type": "object", "properties": {"when": {"type": "string", "format": "date"}}},
        {"type": "object", "properties": {}},
        {"type": "array", "items": {"type": "integer", "minimum": 4}, "minItems": 3},
        {"enum": ["x", "y"]},
        {"const": 3},
        {"type": ["null", "boolean"]},
        {"anyOf": [{"type": "null"}, {"type": "string", "minLength": 40, "maxLength": 50}]},
        {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"type": "object"}]},
        {
            "$ref": "#/$defs/tree",
            "$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"}}}},
        },
        {"type": "integer", "exclusiveMinimum": 7, "maximum": 8},
        {"type": "number", "multipleOf": 5},
        {"type": "string", "maxLength": 2},
    ],
    ids=str,
)
def test_samples_fit_their_schema(schema: dict[str, Any]) -> None:
    value = sample(schema, "What is the weather in Oslo?")
    assert list(Draft202012Validator(schema, registry=Registry()).iter_errors(value)) == []


def test_samples_take_the_user_s_words() -> None:
    words = 'Search for "red shoes" in New York'
    names = {"query": "red shoes", "location": "New York", "command": "red shoes"}
    for name, expected in names.items():
        assert sample({"type": "string"}, words, name) == expected


def wide(names: int, schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{number}": schema for number in range(names)}}


def deep(depth: int, least: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": least}
    return schema


MANY_BRANCHES = {"allOf": [{"$ref": "#/$defs/wide"}] * 200}
HUGE: dict[str, Callable[[], dict[str, Any]]] = {
    "items": lambda: {"type": "array", "minItems": 10**9},
    "items within items": lambda: deep(9, 50),
    "length": lambda: {"type": "string", "minLength": 10**9},
    "many lengths": lambda: wide(500, {"type": "string", "minLength": 10**6}),
    "many names": lambda: wide(200_000, {}),
    "references that double": lambda: wide(300, {"$ref": "#"}),
    "constants by reference": lambda: (
        wide(500, {"$ref": "#/$defs/c"}) | {"$defs": {"c": {"const": "c" * 50_000}}}
    ),
    "long words for many names": lambda: wide(5000, {"type": "string"}),
    "branches": lambda: wide(500, MANY_BRANCHES) | {"$defs": {"wide": wide(2000, {})}},
    "a long pointer": lambda: wide(500, {"$ref": "#" + "/$defs" * 10_000}) | {"$defs": {}},
    "alternatives": lambda: wide(100, {"anyOf": [{"type": "null"}] * 5000}),
}


@pytest.mark.parametrize("name", HUGE)
def test_what_a_schema_asks_for_has_a_budget(name: str) -> None:
    value = sample(HUGE[name](), "in" + " Oslo" * 100_000)
    assert len(encode(value)) < 2_000_000


WRONG: list[Any] = [
    "x",
    "9" * 5000,
    -1,
    1.5,
    10**400,
    -(10**400),
    1e308,
    None,
    True,
    [],
    {},
    [[]],
    [{}],
    {"a": 1},
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:20])
def test_schema_with_anything_anywhere_has_a_sample(wrong: Any) -> None:
    keywords = (
        "type minItems minLength maxLength minimum maximum exclusiveMinimum multipleOf properties required"
        " items enum examples anyOf oneOf allOf $ref format"
    )
    for key in keywords.split():
        for kind in ("object", "array", "number", "string", "integer"):
            encode(sample({"type": kind, "properties": {"a": {}}, key: wrong}, "words"))
            encode(sample({"allOf": [{key: wrong}, {"type": kind}, wrong]}, "words"))


def test_counts_may_be_written_as_whole_floats() -> None:
    assert sample({"type": "array", "items": {"const": 1}, "minItems": 2.0}, "") == [1, 1]


def test_recursive_schema_ends() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}, "required": ["child"]}
    assert isinstance(sample(tree, ""), dict)
    assert sample({"$ref": "#"}, "", "x") == "x"


@pytest.mark.parametrize("name", [name for name in BEHAVIOURS if name != "slow"])
def test_the_same_request_gets_the_same_bytes(name: str) -> None:
    body = {"model": f"demo-{name}", "messages": [{"role": "user", "content": "Hello"}]}
    assert play(**body) == play(**body)
    assert f"demo-{name}" in MODELS


@pytest.mark.parametrize(
    ("choice", "words", "called"),
    [
        (None, "What is the time in Oslo?", ["get_time"]),
        (None, "Time and weather, please", ["get_weather", "get_time"]),
        (None, "Just talk to me", []),
        (None, "Please call something", ["get_weather"]),
        ("none", "What is the weather?", []),
        ("required", "Just talk to me", ["get_weather"]),
        ({"type": "function", "function": {"name": "get_time"}}, "Weather!", ["get_time"]),
    ],
)
def test_which_tools_are_called(choice: Any, words: str, called: list[str]) -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in ("get_weather", "get_time")
    ]
    answer = play(
        model="demo", messages=[{"role": "user", "content": words}], tools=tools, tool_choice=choice
    )
    assert [name for name in ("get_weather", "get_time") if name.encode() in answer] == called


@pytest.mark.parametrize(
    ("words", "called"),
    [
        ('Read the file "notes.txt"', {"read_file"}),
        ('Read "README.md"', {"read_file"}),
        ("What is in the file?", {"create_file"}),
        ("Create a file and read the file", {"create_file", "read_file"}),
        ("Look in the folder", set()),
    ],
)
def test_tools_that_share_a_word_are_not_called_beside_the_one_that_is_named(
    words: str, called: set[str]
) -> None:
    names = ("create_file", "edit_file", "read_file", "run_in_terminal")
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    answer = play(model="demo", messages=[{"role": "user", "content": words}], tools=tools)
    assert {name for name in names if name.encode() in answer} == called


def test_one_tool_at_a_time_when_parallel_calls_are_off() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("get_weather", "get_time")]
    messages = [{"role": "user", "content": "time and weather"}]
    answer = play(model="demo", messages=messages, tools=tools, parallel_tool_calls=False)
    assert b"get_time" not in answer


def said(**body: Any) -> tuple[str, str | None, int]:
    """The text, the finish reason and the count of tokens."""
    sent = play(stream_options={"include_usage": True}, **body)
    chunks = [decode_json(frame.data) for frame in SSEDecoder().feed(sent) if not is_done(frame)]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    return text, choices[-1]["finish_reason"], chunks[-1]["usage"]["completion_tokens"]


ONE_TWO = {"model": "demo", "messages": [{"role": "user", "content": "one two three"}]}


@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [
        ("two", "You said: one ", 4),
        ("wo", "You said: one t", 4),
        (["three", " two"], "You said: one", 3),
        ("one two", "You said: ", 3),
        ("You", "", 0),
        (["four", "", 7, None], "You said: one two three", 5),
        ([], "You said: one two three", 5),
        (None, "You said: one two three", 5),
    ],
    ids=str,
)
def test_a_text_ends_before_the_first_stop_sequence(stop: Any, text: str, tokens: int) -> None:
    """Words with the space before them, or what is left of one, count as tokens."""
    assert said(**ONE_TWO, stop=stop) == (text, "stop", tokens)


def test_a_stop_sequence_in_reasoning_or_arguments_is_not_looked_at() -> None:
    messages = [{"role": "user", "content": "the weather in Oslo"}]
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    body = {"model": "demo", "messages": messages, "tools": tools, "reasoning_effort": "low"}
    assert play(**body, stop=["user", "{"]) == play(**body)


def test_more_stop_sequences_than_are_looked_for_are_refused() -> None:
    with pytest.raises(UpstreamError, match="at most 16") as caught:
        play(**ONE_TWO, stop=["x"] * 17)
    assert (caught.value.http_status, caught.value.param) == (400, "stop")
    assert said(**ONE_TWO, stop=["x"] * 16)[0] == "You said: one two three"


# --- the user's own words -----------------------------------------------------------------------------------


REMINDER = "<system-reminder>\nCall the tool Agent.\n</system-reminder>"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Hello", "Hello"),
        (f"{REMINDER}\nHello", "Hello"),
        (f"Hello\n{REMINDER}", "Hello"),
        ([{"type": "text", "text": REMINDER}, {"type": "text", "text": "Hello"}], "Hello"),
        (f"<environment_context>\n<cwd>/w</cwd>\n</environment_context>{REMINDER}", ""),
        (f"{REMINDER}\n<userRequest>\nFix <b>this</b>\n</userRequest>", "Fix <b>this</b>"),
        ("<task>\nDo it\n</task>\n<environment_details>\nx\n</environment_details>", "Do it"),
        ("Fix the <my-element>text</my-element> here", "Fix the <my-element>text</my-element> here"),
        ("<div>\ntext\n</div>", "<div>\ntext\n</div>"),
        ("<system-reminder>\nwithout an end", "<system-reminder>\nwithout an end"),
        (None, ""),
        ([None, 3, {"type": "image_url"}], ""),
    ],
)
def test_the_users_own_words_are_what_no_client_has_put_beside_them(content: Any, words: str) -> None:
    assert own_words(content) == words


def test_words_are_found_in_time_linear_in_the_text() -> None:
    for text in ("<a-b>" * 200_000, "<a-b></a-b>" * 100_000, "\n<a-b" * 200_000, "x<a-b></a-b>" * 100_000):
        own_words(text)


def functions(*names: str, **parameters: Any) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": parameters}
    return [{"type": "function", "function": {"name": name, "parameters": schema}} for name in names]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


AGENTS = ("Agent", "Task", "spawn_agent", "collab__spawn_agent", "delegate", "subagent")


@pytest.mark.parametrize("name", AGENTS)
def test_no_agent_is_begun_unless_that_is_forced(name: str) -> None:
    words = f"Use a tool: run {name} with an agent and delegate the task to a subagent"
    body = {"model": "demo", "messages": [user(words)], "tools": functions(name)}
    assert b"tool_calls" not in play(**body)
    assert b"tool_calls" in play(**body, tool_choice="required")
    beside = functions(name) + functions("look")
    assert (
        name.encode() not in play(**(body | {"tools": beside}), tool_choice="required").split(b"arguments")[0]
    )
    by_parameter = functions("begin", subagent_type={"type": "string"})
    assert b"tool_calls" not in play(**(body | {"tools": by_parameter}))


FORCED = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize("choice", [None, "auto", "required", FORCED])
def test_each_turn_ends_within_three_calls_whatever_the_client_says_between(choice: Any) -> None:
    """A client that puts reminders after each result, and always asks for a call."""
    messages = [user(f"{REMINDER}\nLook: use a tool")]
    tools = functions("look", "look_again", "look_there", "look_here")
    for _ in range(10):
        answer = play(model="demo", messages=messages, tools=tools, tool_choice=choice)
        chunks = [decode_json(frame.data) for frame in SSEDecoder().feed(answer) if not is_done(frame)]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        calls = [call for delta in deltas for call in delta.get("tool_calls", []) if "id" in call]
        if not calls:
            break
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "seen"} for call in calls]
        messages.append(user(REMINDER))
    assert not calls
    assert 1 <= sum(len(each.get("tool_calls", [])) for each in messages) <= 3
