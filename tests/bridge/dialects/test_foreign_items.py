"""Messages between agents, changed configurations, programs and tools that were searched for, as models see
them that know functions and messages only."""

import json
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.base import configured
from openresponses_bridge.dialects.base.items import is_readable
from openresponses_bridge.dialects.chat_completions import to_chat
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.seal import Sealer
from tests.support.upstream_requests import COLUMNS, drive

HI = {"type": "message", "role": "user", "content": "Hi"}
HEADER = "Message Type: NEW_TASK\nTask name: /main/count\nSender: /main\nPayload:\n"
# as Codex sends a sub-agent its task where the server has not encrypted it
TASK: dict[str, Any] = {
    "type": "agent_message",
    "author": "/main",
    "recipient": "/main/count",
    "content": [
        {"type": "input_text", "text": HEADER},
        {"type": "encrypted_content", "encrypted_content": "Count the files."},
    ],
}
HEAD = "[message from agent /main to agent /main/count]"


def request(*items: dict[str, Any], **fields: Any) -> CreateResponse:
    return decode_request(json.dumps({"model": "m", "input": list(items), **fields}))


def test_a_task_is_a_message_that_says_whose_it_is() -> None:
    sent = {column: drive(column, request(TASK)) for column in ("chat", "anthropic", "published")}
    assert [losses for _, losses in sent.values()] == [[], [], []]
    (chat,), (anthropic,) = (sent[column][0]["messages"] for column in ("chat", "anthropic"))
    assert chat == {"role": "user", "content": f"{HEAD}\n\n{HEADER}\n\nCount the files."}
    assert [block["text"] for block in anthropic["content"]] == [HEAD, HEADER, "Count the files."]
    (published,) = sent["published"][0]["input"]
    assert (published["type"], published["role"]) == ("message", "user")


def test_a_server_of_openais_kind_gets_it_whole() -> None:
    foreign = {**TASK, "internal_chat_message_metadata_passthrough": {"turn_id": "t"}}
    body, losses = drive("responses", request(foreign))
    assert (body["input"], losses) == ([foreign], [])


def test_a_result_comes_back_to_the_agent_that_asked() -> None:
    done = {**TASK, "author": "/main/count", "recipient": "/main", "content": "There are 3."}
    (message,) = drive("chat", request(done))[0]["messages"]
    assert message["content"] == "[message from agent /main/count to agent /main]\n\nThere are 3."


def test_images_between_agents_stay_images() -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
    (message,) = drive("chat", request({**TASK, "content": [picture]}))[0]["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "image_url"]


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("Count the files.", True),
        ("Summarize", True),
        ("", True),
        ("数えて" * 40, True),
        ("gAAAAABm" + "x9_-" * 30 + "==", False),
        ("eyJhbGciOiJkaXIifQ..c2VjcmV0" + "a" * 40, False),
        ("A" * 39, True),
        ("A" * 40, False),
        (" " + "A" * 40 + "\n", False),
        (Sealer().seal(b"words of ours", "thinking"), False),
        (Sealer(b"k" * 32, lambda: b"n" * 12).seal(b"x", "thinking"), False),
    ],
)
def test_what_is_encrypted_is_not_taken_for_a_text(text: str, readable: bool) -> None:
    assert is_readable(text) is readable


def test_what_can_be_read_beside_what_can_not_is_kept() -> None:
    secret = {"type": "encrypted_content", "encrypted_content": "gAAAAAB" + "x" * 80}
    mixed = {**TASK, "content": [TASK["content"][0], secret]}
    body, losses = drive("chat", request(mixed))
    assert body["messages"] == [{"role": "user", "content": f"{HEAD}\n\n{HEADER}"}]
    assert losses == ["input[0].content[1]"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"author": 1}, "input[0].author"),
        ({"recipient": []}, "input[0].recipient"),
        ({"content": {}}, "input[0].content"),
        ({"content": [3]}, "input[0].content[0]"),
        ({"content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"content": [{"type": "encrypted_content"}]}, "input[0].content[0].encrypted_content"),
    ],
)
def test_what_is_wrong_in_it_is_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        drive("chat", request({**TASK, **change}))
    assert refused.value.param == param


def test_one_that_says_nothing_is_left_out() -> None:
    assert drive("chat", request(HI, {"type": "agent_message"}))[0]["messages"] == [
        {"role": "user", "content": "Hi"}
    ]


# ── configurations ─────────────────────────────────────────────────────────────────────────────────────
def update(**settings: Any) -> dict[str, Any]:
    return {"type": "configuration_update", **settings}


SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}


def test_the_last_update_of_each_setting_holds() -> None:
    original = request(
        update(reasoning={"effort": "high"}, text={"format": SCHEMA}),
        HI,
        update(reasoning={"effort": "low"}),
        update(reasoning={"effort": None}, text=None),
        reasoning={"effort": "none", "summary": "auto"},
        text={"verbosity": "low"},
    )
    result = configured(original)
    assert result.reasoning is not None
    assert result.text is not None
    assert (result.reasoning.effort, result.reasoning.summary, result.text.verbosity) == (
        "low",
        "auto",
        "low",
    )
    assert isinstance(result.text.format, JsonSchemaFormatParam)


def test_those_of_earlier_turns_hold_too() -> None:
    earlier = request(update(reasoning={"effort": "low"})).input
    assert isinstance(earlier, list)
    result = configured(request(HI), earlier)
    assert result.reasoning is not None
    assert result.reasoning.effort == "low"
    sent, _ = to_chat(request(HI), history=earlier)
    assert (sent.reasoning_effort, sent.messages[0].content, len(sent.messages)) == ("low", "Hi", 1)


def test_a_request_without_any_is_itself() -> None:
    original = request(HI)
    assert configured(original, original.input if isinstance(original.input, list) else ()) is original
    nothing = request(HI, update())
    assert configured(nothing) == nothing


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"reasoning": "low"}, "input[0].reasoning"),
        ({"reasoning": {"effort": 3}}, "input[0].reasoning.effort"),
        ({"text": {"format": {"type": "json_schema", "schema": 1}}}, "input[0].text.format.schema"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        configured(request(update(**settings)))
    assert refused.value.param == param


# ── programs ───────────────────────────────────────────────────────────────────────────────────────────
def program() -> list[dict[str, Any]]:
    ran = {"type": "program", "id": "p1", "call_id": "p", "code": "await f()", "fingerprint": "f"}
    return [ran, {**ran, "type": "program_output", "result": "42", "status": "completed"}]


def test_a_program_and_its_output_are_texts() -> None:
    ran, came = program()
    messages = drive("chat", request(HI, ran, came))[0]["messages"]
    assert [(each["role"], each["content"]) for each in messages[1:]] == [
        ("assistant", "[ran a program, p]\nawait f()"),
        ("user", "[output of the program, p]\n42"),
    ]


@pytest.mark.parametrize(("index", "field"), [(0, "code"), (0, "call_id"), (1, "result")])
def test_a_program_without_its_text_is_refused(index: int, field: str) -> None:
    broken = {**program()[index], field: 3}
    with pytest.raises(InvalidRequestError) as refused:
        drive("chat", request(HI, broken))
    assert refused.value.param == f"input[1].{field}"


# ── tools that are searched for ────────────────────────────────────────────────────────────────────────
TOOL = {"type": "function", "name": "create_event", "parameters": {"type": "object", "properties": {}}}
SEARCHED = [
    {"type": "tool_search_call", "execution": "client", "call_id": "s", "arguments": {"query": "events"}},
    {
        "type": "tool_search_output",
        "execution": "client",
        "call_id": "s",
        "tools": [{"type": "namespace", "name": "mcp__calendar__", "tools": [TOOL]}, {**TOOL, "name": "now"}],
    },
]


@pytest.mark.parametrize("column", ["chat", "anthropic", "published"])
def test_what_a_search_found_can_be_called(column: str) -> None:
    search = {"type": "tool_search", "execution": "client"}
    body, losses = drive(column, request(HI, *SEARCHED, tools=[search]))
    names = [tool.get("name") or tool["function"]["name"] for tool in body["tools"]]
    assert (names, losses) == (["tool_search", "mcp__calendar____create_event", "now"], [])
    assert json.dumps(json.dumps({"tools": names[1:]}, separators=(",", ":")))[1:-1] in json.dumps(body)


def test_a_call_of_what_was_found_comes_back_under_its_own_name() -> None:
    search_request = request(HI, *SEARCHED, tools=[{"type": "tool_search", "execution": "client"}])
    identities = ToolIdentityMap()
    to_chat(search_request, tool_identities=identities)
    machine = ResponseStreamStateMachine("m", search_request, tool_identities=identities, wire="openai")
    machine.start()
    machine.tool_call(0, "c1", "mcp__calendar____create_event", "{}")
    machine.tool_call(1, "c2", "tool_search", '{"query":"x"}')
    machine.finish("tool_calls")
    called, searched = json.loads(encode(machine.snapshot.output))
    assert (called["type"], called["namespace"], called["name"]) == (
        "function_call",
        "mcp__calendar__",
        "create_event",
    )
    assert (searched["type"], searched["execution"]) == ("tool_search_call", "client")
    assert searched["arguments"] == {"query": "x"}


@pytest.mark.parametrize("column", sorted(COLUMNS))
def test_a_compaction_that_was_made_is_not_asked_for_again(column: str) -> None:
    trigger = {"type": "compaction_trigger"}
    body, losses = drive(column, request(HI, trigger, HI))
    assert "compaction_trigger" not in json.dumps(body)
    assert losses == []
