"""Arguments that servers send twice, begin again, parse or leave out, in each dialect that streams them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge.dialects.anthropic_messages import Inbound as AnthropicInbound
from openresponses_bridge.dialects.bedrock_converse import Inbound as BedrockInbound
from openresponses_bridge.dialects.chat_completions import Inbound as ChatInbound
from openresponses_bridge.dialects.gemini import Inbound as GeminiInbound
from openresponses_bridge.dialects.interactions import Inbound as InteractionsInbound
from openresponses_bridge.dialects.responses import Inbound as ResponsesInbound
from openresponses_bridge.protocol.items import FunctionCall
from tests.support import anthropic, chat, converse, gemini
from tests.support.calling import ARGUMENTS, CALLING, with_arguments_as, with_functions
from tests.support.checked_inbound import CheckedInbound

HEAD = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
ARGUED = "response.function_call_arguments"


def chat_frames(*pieces: Any) -> list[Any]:
    first = chat.calls(chat.part("", name="look", id="call_1", index=0))
    return [
        first,
        *(chat.calls(chat.part(each, index=0)) for each in pieces),
        chat.chunk("tool_calls"),
        chat.DONE,
    ]


def anthropic_frames(*pieces: Any) -> list[Any]:
    return [anthropic.start(), *anthropic.tool(0, "call_1", "look", *pieces), *anthropic.stop("tool_use")]


def bedrock_frames(*pieces: Any) -> list[Any]:
    return [converse.start(), *converse.call(0, "call_1", "look", *pieces), *converse.end("tool_use")]


def interactions_frames(*pieces: Any) -> list[Any]:
    call = {"type": "function_call", "id": "call_1", "name": "look", "arguments": {}}
    deltas = [{"type": "arguments_delta", "arguments": each} for each in pieces]
    return [
        {"event_type": "step.start", "index": 0, "step": call},
        *({"event_type": "step.delta", "index": 0, "delta": each} for each in deltas),
        {"event_type": "step.stop", "index": 0},
        {"event_type": "interaction.completed", "interaction": {"status": "requires_action"}},
    ]


def call_of(arguments: Any, **more: Any) -> dict[str, Any]:
    named = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look"}
    return {**named, "arguments": arguments, "status": "completed", **more}


def responses_frames(*pieces: Any, added: Any = "", done: Any = None, item: Any = None) -> list[Any]:
    place = {"output_index": 0, "item_id": "fc_1"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**HEAD, "status": "in_progress"}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": call_of(added, status="in_progress"),
        },
        *({"type": f"{ARGUED}.delta", **place, "delta": each} for each in pieces),
    ]
    if done is not None:
        events.append({"type": f"{ARGUED}.done", **place, "arguments": done})
    if item is not None:
        events.append({"type": "response.output_item.done", "output_index": 0, "item": call_of(item)})
    return [*events, {"type": "response.completed", "response": {**HEAD, "status": "completed"}}]


DIALECTS: dict[str, tuple[Callable[..., Any], Callable[..., list[Any]]]] = {
    "chat": (ChatInbound, chat_frames),
    "anthropic": (AnthropicInbound, anthropic_frames),
    "bedrock": (BedrockInbound, bedrock_frames),
    "interactions": (InteractionsInbound, interactions_frames),
    "responses": (ResponsesInbound, responses_frames),
}


def read(dialect: str, *pieces: Any, **more: Any) -> tuple[str, list[tuple[str, str, str]]]:
    """The status, and (name, arguments, status) of each call; deltas add up to what is done."""
    build, frames = DIALECTS[dialect]
    fed = CheckedInbound(build, frames(*pieces, **more))
    calls = [
        (item.name, item.arguments, item.status) for item in fed.response.output if type(item) is FunctionCall
    ]
    return fed.status, calls


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.parametrize(
    "pieces",
    [
        ["{}", '{"a":1}'],
        ['{"a"', ":1", '{"a":1}'],
        ["{", '{"a":1}'],
        ['{"a"', '{"a":1', '{"a":1}'],
        ["[ARGS]", '{"a":1}'],
        ['{"a":1}', "}"],
        ['{"a":1}', '{"a":1}'],
        ['{"a"', ":1}}"],
        ['{"a":1}', "<|call|>"],
        ['{"a":1}</tool_call>'],
        ['```json\n{"a":1}\n```'],
        ['{"a"{"a":1}'],
        ['{"a":1}{"a":1}'],
        [{"a": 1}],
    ],
)
def test_n4_each_becomes_the_one_call(dialect: str, pieces: list[Any]) -> None:
    status, ((name, arguments, ended),) = read(dialect, *pieces)
    assert (status, name, json.loads(arguments), ended) == ("completed", "look", {"a": 1}, "completed")


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_n4_arguments_that_begin_again_as_others_are_incomplete(dialect: str) -> None:
    status, calls = read(dialect, '{"a":1,', '{"a": 1, "b": 2}')
    assert (status, calls) == ("incomplete", [("look", '{"a":1,', "incomplete")])


@pytest.mark.parametrize("last", [['\\\\": ["\\""]}'], ['\\\\": ["\\""]', "}"]], ids=["at once", "later"])
@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_n4_arguments_that_begin_again_within_a_string_are_incomplete(dialect: str, last: list[str]) -> None:
    """The closing bracket, which is behind what the outermost one seems to be, is a part of them."""
    status, ((_, arguments, ended),) = read(dialect, "{", '"', "{", '"', *last)
    assert (status, ended) == ("incomplete", "incomplete")
    assert arguments == '{"{"\\\\": ["\\""]'


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_n4_arguments_that_are_not_json_are_never_sent_without_a_diagnostic(dialect: str) -> None:
    build, frames = DIALECTS[dialect]
    fed = CheckedInbound(build, frames('{"a"', " 1}"))
    assert fed.status == "completed"  # they are the model's own words (law E7)
    assert "tool_call.arguments: not JSON, sent as they are" in fed.notes("warning")


@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize("field", ["arguments", "input", "args", "parameters"])
@pytest.mark.parametrize("dialect", sorted(CALLING))
@pytest.mark.untraced
def test_n4_arguments_under_the_name_of_another_api_are_the_calls(
    dialect: str, field: str, whole: bool
) -> None:
    build, frames = CALLING[dialect]
    fed = CheckedInbound(build, with_arguments_as(field, frames({"name": "find"}, whole, "")))
    calls = [item for item in fed.output if item["type"] == "function_call"]
    assert [(call["name"], call["arguments"]) for call in calls] == [("find", ARGUMENTS), ("look", ARGUMENTS)]
    assert fed.status == "completed"


@pytest.mark.parametrize("field", ["input", "args", "parameters"])
def test_n4_pieces_under_the_name_of_another_api_are_the_calls(field: str) -> None:
    pieces = [{"name": "look", field: ""}, {field: '{"a"'}, {field: ":1}"}]
    fragments = [{"index": 0, "id": "call_1", "function": each} for each in pieces]
    fed = CheckedInbound(ChatInbound, [*map(chat.calls, fragments), chat.chunk("tool_calls"), chat.DONE])
    assert [(item["name"], item["arguments"]) for item in fed.output] == [("look", ARGUMENTS)]
    older = [chat.chunk(function_call=each) for each in pieces]
    fed = CheckedInbound(ChatInbound, [*older, chat.chunk("function_call"), chat.DONE])
    assert [(item["name"], item["arguments"]) for item in fed.output] == [("look", ARGUMENTS)]


@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize("dialect", ["anthropic", "copilot", "responses"])
def test_n4_calls_whose_fields_are_within_a_function(dialect: str, whole: bool) -> None:
    build, frames = CALLING[dialect]
    call_frames = frames({"name": "find"}, whole, "")
    fed, plain = CheckedInbound(build, with_functions(call_frames)), CheckedInbound(build, call_frames)
    assert (fed.status, fed.notes("loss")) == ("completed", [])
    assert (fed.output, len(fed.output)) == (plain.output, 3)
    assert "tool_call.name: came within function" in fed.notes("repair")


@pytest.mark.parametrize("dialect", ["anthropic", "copilot", "responses"])
def test_n4_a_calls_own_name_counts_before_that_within_a_function(dialect: str) -> None:
    build, frames = CALLING[dialect]
    call_frames = frames({"name": "find", "function": {"name": "other"}}, True, "")
    fed = CheckedInbound(build, call_frames)
    assert [item["name"] for item in fed.output if item["type"] == "function_call"] == ["find", "look"]
    assert "tool_call.name: came within function" not in fed.notes("repair")


def test_n4_a_name_within_a_function_is_known_before_the_arguments() -> None:
    frames = responses_frames('{"a"', ":1}", done=ARGUMENTS, item=ARGUMENTS)
    fed = CheckedInbound(ResponsesInbound, with_functions(frames))
    assert [(item["name"], item["arguments"]) for item in fed.output] == [("look", ARGUMENTS)]
    assert [event.delta for event in fed.events if event.type == f"{ARGUED}.delta"] == ['{"a"', ":1}"]  # type: ignore[union-attr]
    assert (fed.status, fed.notes("loss")) == ("completed", [])


FLAT = "tool_calls: fields of the function came beside it"


@pytest.mark.parametrize(
    "function", [{}, {"function": None}, {"function": {}}], ids=["absent", "null", "empty"]
)
@pytest.mark.parametrize("field", ["arguments", "input", "args", "parameters"])
def test_n4_calls_whose_fields_are_beside_the_function(field: str, function: dict[str, Any]) -> None:
    heads = [
        {"index": at, "id": f"call_{at}", "name": name, **function}
        for at, name in enumerate(("look", "find"))
    ]
    streamed = [
        *({**head, field: ""} for head in heads),
        *({"index": at, field: piece, **function} for piece in ('{"a"', ":1}") for at in (0, 1)),
    ]
    once = [{**head, field: ARGUMENTS} for head in heads]
    wholes = [{**head, field: {"a": 1}} for head in heads]
    for frames in (
        [*map(chat.calls, streamed), chat.chunk("tool_calls"), chat.DONE],
        [*map(chat.calls, once), chat.chunk("tool_calls"), chat.DONE],
        [chat.completion("tool_calls", content=None, tool_calls=once)],
        [chat.completion("tool_calls", content=None, tool_calls=wholes)],
    ):
        fed = CheckedInbound(ChatInbound, frames)
        assert fed.status == "completed"
        assert [(item["name"], item["arguments"], item["call_id"]) for item in fed.output] == [
            ("look", ARGUMENTS, "call_0"),
            ("find", ARGUMENTS, "call_1"),
        ]
        assert FLAT in fed.notes("repair")
        assert fed.notes("loss") == []


def test_n4_the_functions_own_fields_count_before_those_beside_it() -> None:
    call = {
        "id": "call_1",
        "name": "other",
        "arguments": "[]",
        "function": {"name": "look", "arguments": ARGUMENTS},
    }
    fed = CheckedInbound(ChatInbound, [chat.completion("tool_calls", content=None, tool_calls=[call])])
    assert [(item["name"], item["arguments"]) for item in fed.output] == [("look", ARGUMENTS)]
    assert FLAT not in fed.notes("repair")
    call["function"] = {"arguments": ARGUMENTS}
    fed = CheckedInbound(ChatInbound, [chat.completion("tool_calls", content=None, tool_calls=[call])])
    assert [(item["name"], item["arguments"]) for item in fed.output] == [("other", ARGUMENTS)]
    assert FLAT in fed.notes("repair")


def test_n4_an_object_in_the_place_of_the_arguments_gives_way_to_those_under_another_name() -> None:
    function = {"name": "look", "arguments": "{}", "parameters": {"a": 1}}
    whole = chat.completion("tool_calls", content=None, tool_calls=[{"id": "call_1", "function": function}])
    fed = CheckedInbound(ChatInbound, [whole])
    assert [item["arguments"] for item in fed.output] == [ARGUMENTS]
    assert "tool_call.arguments: came as parameters" in fed.notes("repair")


@pytest.mark.parametrize("done", [None, '{"a":1}', {"a": 1}])
@pytest.mark.parametrize("item", [None, '{"a":1}', {"a": 1}])
@pytest.mark.parametrize("added", ["", "{}", {}, '{"a":1}', {"a": 1}])
@pytest.mark.parametrize("pieces", [[], ['{"a"', ":1}"], [{"a": 1}]])
def test_responses_tell_the_same_arguments_in_four_places(
    pieces: Any, added: Any, item: Any, done: Any
) -> None:
    texts = [*pieces, *(each for each in (added, item, done) if each and each != "{}")]
    status, calls = read("responses", *pieces, added=added, done=done, item=item)
    ((_, arguments, _),) = calls
    if texts and (item or done or pieces):
        assert (status, json.loads(arguments)) == ("completed", {"a": 1})


def test_two_names_under_one_id_are_two_calls() -> None:
    named = [chat.part('{"a":1}', name=name, id="call_1", index=0) for name in ("look", "find")]
    fed = CheckedInbound(ChatInbound, [*map(chat.calls, named), chat.chunk("tool_calls"), chat.DONE])
    assert [item["name"] for item in fed.output] == ["look", "find"]
    items = [call_of('{"a":1}', name=name) for name in ("look", "find")]
    ended = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(items)
    ]
    completed = {"type": "response.completed", "response": {**HEAD, "status": "completed"}}
    fed = CheckedInbound(ResponsesInbound, [*ended, completed])
    assert [item["name"] for item in fed.output] == ["look", "find"]


@pytest.mark.parametrize("text", ['{"a":1}}', '{}{"a":1}', '{"a"{"a":1}', '[ARGS]{"a":1}', '{"a":1}{"a":1}'])
def test_n4_a_text_in_the_place_of_geminis_object_is_read_as_in_others(text: str) -> None:
    call = gemini.chunk({"functionCall": {"name": "look", "args": text}}, finish="STOP")
    fed = CheckedInbound(GeminiInbound, [call])
    assert [(item["arguments"], item["status"]) for item in fed.output] == [('{"a":1}', "completed")]


@pytest.mark.parametrize("again", [['{"a":1}'], ["{}"], ['{"a"', ":1}"], ["", '{"a":1}']])
def test_arguments_again_under_the_same_name_and_id_are_no_second_call(again: list[str]) -> None:
    parts = [chat.part(each, name="look", id="call_1", index=0) for each in ('{"a":1}', *again)]
    fed = CheckedInbound(ChatInbound, [*map(chat.calls, parts), chat.chunk("tool_calls"), chat.DONE])
    assert [item["arguments"] for item in fed.output] == ['{"a":1}']
    assert fed.notes("repair")


def test_others_in_pieces_under_the_same_name_and_id_are_a_second_call() -> None:
    pieces = ('{"a":1}', '{"a"', ":2}")
    parts = [chat.part(each, name="look", id="call_1", index=0) for each in pieces]
    fed = CheckedInbound(ChatInbound, [*map(chat.calls, parts), chat.chunk("tool_calls"), chat.DONE])
    assert [item["arguments"] for item in fed.output] == ['{"a":1}', '{"a":2}']


@pytest.mark.parametrize("begun", ["", "{}"])
@pytest.mark.parametrize("streamed", [True, False])
def test_a_call_whose_arguments_are_an_entry_of_their_own(begun: str, streamed: bool) -> None:
    named = chat.part(begun, name="look", id="call_1", index=0)
    rest = chat.part('{"a":1}', name="", id="", index=1)
    frames = [chat.calls(named), chat.calls(rest), chat.chunk("tool_calls"), chat.DONE]
    whole = chat.completion("tool_calls", content=None, tool_calls=[named, rest])
    fed = CheckedInbound(ChatInbound, frames if streamed else [whole])
    assert fed.status == "completed"
    assert [(item["name"], item["arguments"]) for item in fed.output] == [("look", '{"a":1}')]


def test_calls_without_indexes_keep_their_arguments_behind_empty_objects() -> None:
    parts = [
        part
        for name in ("look", "find")
        for part in (chat.part("{}", name=name, id=f"id_{name}"), chat.part(json.dumps({"of": name})))
    ]
    fed = CheckedInbound(ChatInbound, [*map(chat.calls, parts), chat.chunk("tool_calls"), chat.DONE])
    assert [json.loads(item["arguments"]) for item in fed.output] == [{"of": "look"}, {"of": "find"}]


@pytest.mark.parametrize("first", ["{}", '{"a":1}'])
def test_an_entry_without_a_name_continues_the_call_before_it(first: str) -> None:
    named = chat.calls(chat.part(first, name="look", id="call_1", index=0))
    nameless = chat.calls(chat.part('{"a":1}', index=1))
    fed = CheckedInbound(ChatInbound, [named, nameless, chat.chunk("tool_calls"), chat.DONE])
    assert [(item["name"], item["arguments"]) for item in fed.output] == [("look", '{"a":1}')]
    assert fed.status == "completed"


def test_an_empty_object_under_the_same_name_and_id_is_no_call_of_its_own() -> None:
    parts = [chat.part(each, name="look", id="call_1", index=0) for each in ("{}", '{"a":1}')]
    fed = CheckedInbound(ChatInbound, [*map(chat.calls, parts), chat.chunk("tool_calls"), chat.DONE])
    assert [item["arguments"] for item in fed.output] == ['{"a":1}']
