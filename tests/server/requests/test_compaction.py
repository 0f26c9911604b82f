"""Compaction: `/v1/responses/compact`, `compaction_trigger`, and the sealed summary in later turns."""

from typing import Any

import pytest

from openresponses_bridge.protocol.content import InputTextContent, OutputTextParam
from openresponses_bridge.protocol.input_items import CompactionParam, MessageParam
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer
from openresponses_server.api.compaction import KEPT_TOKENS
from openresponses_server.requests.compaction import open_compactions, seal_summary, transcript
from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.store.history import own_input
from tests.support import dialect_scripts as scripts
from tests.support.schema import violations as schema_violations
from tests.support.serving import Reply, call, respond, serving, stream
from tests.support.sockets import opened_socket
from tests.support.upstream import CUT, Script, ScriptedUpstream, chunk, refusal, text

TALK: list[dict[str, Any]] = [
    {"role": "developer", "content": "Answer in French."},
    {"role": "user", "content": "My name is Ada."},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "A name."}]},
    {"role": "assistant", "content": "Bonjour Ada."},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"it"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "a cat"},
    {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
]

PICTURE = {"type": "input_image", "image_url": "https://pictures.example/cat.png", "detail": "low"}


def compact(base: str, **request: Any) -> Reply:
    return call(base, "POST", "/v1/responses/compact", request)


def sent(upstream: ScriptedUpstream, model: str) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in upstream.last(model).body["messages"]]


@pytest.fixture
def condensed(bridged: str, upstream: ScriptedUpstream) -> dict[str, Any]:
    """The conversation compacted by a model that says "Ada has a cat."."""
    upstream.scripts["condenser"] = Script(text("Ada has ", "a cat."))
    window: dict[str, Any] = compact(bridged, model="condenser", input=TALK, instructions="Be kind.").json
    return window


def test_window_is_the_users_words_then_one_compaction(condensed: dict[str, Any]) -> None:
    assert schema_violations("CompactResource", condensed) == []
    assert condensed["object"] == "response.compaction"
    messages = [(item["role"], item["content"][0]["text"]) for item in condensed["output"][:-1]]
    assert messages == [("developer", "Answer in French."), ("user", "My name is Ada."), ("user", "And now?")]
    assert condensed["output"][-1]["type"] == "compaction"
    assert "Ada" not in condensed["output"][-1]["encrypted_content"]
    assert condensed["usage"]["total_tokens"] > 0


def test_secrets_of_tools_are_not_in_what_is_condensed(bridged: str, upstream: ScriptedUpstream) -> None:
    """A model would repeat them in its summary, which another upstream is sent later."""
    upstream.scripts["condenser"] = Script(text("Nothing."))
    tool = {"type": "mcp", "server_label": "shown", "authorization": "hidden"}
    search = {"type": "tool_search_call", "call_id": "c", "arguments": {}, "execution": "client"}
    result = {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [tool]}
    talk = [{"type": "additional_tools", "role": "developer", "tools": [tool]}, search, result, TALK[1]]
    assert compact(bridged, model="condenser", input=talk).status == 200
    prompt = str(sent(upstream, "condenser"))
    assert "shown" in prompt
    assert "hidden" not in prompt


def test_upstream_is_asked_to_condense_what_was_said(
    condensed: dict[str, Any], upstream: ScriptedUpstream
) -> None:
    body = upstream.last("condenser").body
    assert "tools" not in body
    (role, task), (_, conversation) = sent(upstream, "condenser")
    assert role == "system"
    assert "Be kind." in task
    for words in (
        "Answer in French.",
        "My name is Ada.",
        "Bonjour Ada.",
        "look",
        '{"at":"it"}',
        "a cat",
        "And now?",
    ):
        assert words in conversation
    assert "A name." not in conversation


def test_window_begins_a_new_chain_that_knows_what_was_said(
    bridged: str, upstream: ScriptedUpstream, condensed: dict[str, Any]
) -> None:
    first = stream(
        bridged, model="later", input=[*condensed["output"], {"role": "user", "content": "Go on"}]
    ).final
    roles = [role for role, _ in sent(upstream, "later")]
    assert roles == ["system", "user", "user", "user", "user"]
    assert sent(upstream, "later")[3][1].endswith("\n\nAda has a cat.")
    # the chain keeps it sealed and opens it again in each turn
    stream(bridged, model="later", input="And then?", previous_response_id=first["id"])
    assert "Ada has a cat." in sent(upstream, "later")[3][1]


def test_a_user_s_words_are_input_in_the_window_and_again_upstream(
    many: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["responses-small"] = Script(scripts.text("responses", "Short."))
    messages = [{"role": "user", "content": [{"type": "input_text", "text": "Ada."}, PICTURE]}]
    window = compact(many, model="responses-small", input=messages).json["output"]
    assert window[0]["content"] == [{"type": "input_text", "text": "Ada."}, PICTURE]
    assert schema_violations("ItemField", window[0]) == []
    respond(many, model="responses-small", input=window)
    assert upstream.last("responses-small").body["input"][0]["content"] == messages[0]["content"]
    answered = {"role": "assistant", "content": [{"type": "output_text", "text": "A"}]}
    respond(many, model="responses-small", input=[answered, {"role": "user", "content": "B"}])
    assert upstream.last("responses-small").body["input"][0]["content"][0]["type"] == "output_text"


def test_compaction_of_a_compaction_takes_the_summary_in(
    bridged: str, upstream: ScriptedUpstream, condensed: dict[str, Any]
) -> None:
    again = compact(bridged, model="condenser", input=condensed["output"]).json
    assert [item["type"] for item in again["output"]].count("compaction") == 1
    assert "Ada has a cat." in sent(upstream, "condenser")[1][1]


def test_stored_conversation_is_compacted_by_its_last_id(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["condenser"] = Script(text("Short."))
    first = respond(bridged, model="chatty", input="Long ago").json
    done = compact(bridged, model="condenser", previous_response_id=first["id"]).json
    assert [item["type"] for item in done["output"]] == ["message", "compaction"]
    assert "Long ago" in sent(upstream, "condenser")[1][1]
    assert "Hello there" in sent(upstream, "condenser")[1][1]


def test_oldest_words_go_first_when_users_said_too_much(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["condenser"] = Script(text("Short."))
    page = "word " * (KEPT_TOKENS * 2 // 5)
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
        talk = [{"role": "user", "content": f"{number} {page}"} for number in range(3)]
        messages = compact(base, model="condenser", input=talk).json["output"][:-1]
    assert [item["content"][0]["text"][0] for item in messages] == ["1", "2"]


def test_usage_is_estimated_when_the_upstream_reports_none(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["mute"] = Script([chunk(content="Short."), chunk("stop")])
    usage = compact(bridged, model="mute", input="Hello").json["usage"]
    assert usage["input_tokens"] > 0
    assert usage["output_tokens"] > 0


# ── the trigger ────────────────────────────────────────────────────────────────────────────────────────
def test_case_36_trigger_gives_exactly_one_compaction_item(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["condenser"] = Script(text("Ada has ", "a cat."))
    reply = stream(
        bridged,
        model="condenser",
        input=[*TALK, {"type": "compaction_trigger"}],
        tools=[{"type": "function", "name": "look"}],
        tool_choice="required",
    )
    assert reply.types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    (item,) = reply.final["output"]
    assert item["type"] == "compaction"
    assert reply.final["usage"]["output_tokens"] == 2
    later = respond(bridged, model="later", input=[item, {"role": "user", "content": "Go on"}])
    assert later.status == 200
    assert "Ada has a cat." in sent(upstream, "later")[0][1]


def test_trigger_on_a_websocket_continues_the_connection_s_own(demo: str) -> None:
    with opened_socket(demo) as socket:
        first = socket.turn(input="My name is Ada", store=False).final["id"]
        done = socket.turn(input=[{"type": "compaction_trigger"}], store=False, previous_response_id=first)
        (item,) = done.final["output"]
        fresh = socket.turn(input=[item, {"role": "user", "content": "Go on"}], store=False)
    assert "My name is Ada" in fresh.text


# ── what can go wrong ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("request_", "status", "code", "param"),
    [
        ({"input": "x"}, 400, "invalid_value", "model"),
        ({"model": None, "input": "x"}, 400, "invalid_value", "model"),
        ({"model": "demo"}, 400, "missing_required_parameter", "input"),
        ({"model": "demo", "input": []}, 400, "missing_required_parameter", "input"),
        ({"model": "demo", "input": 7}, 400, "invalid_value", "input"),
        ({"model": "nobody", "input": "x"}, 404, "model_not_found", "model"),
        (
            {"model": "demo", "previous_response_id": "resp_no"},
            400,
            "previous_response_not_found",
            "previous_response_id",
        ),
    ],
    ids=str,
)
def test_wrong_request(demo: str, request_: Any, status: int, code: str, param: str) -> None:
    reply = compact(demo, **request_)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (status, code, param)
    assert reply.error["type"] == "invalid_request_error"


FOREIGN = "gAAAAABpM0Yj-foreign"


@pytest.mark.parametrize(
    "seal",
    [
        FOREIGN,
        "",
        "orb2.s.compaction.AAAA",
        "orb1.s.compaction.AAAA",
        Sealer(b"k" * 32).seal(b"x", "compaction"),
        Sealer().seal(b"x", "compaction"),
    ],
    ids=["foreign", "empty", "version", "cut", "other key", "plain"],
)
def test_seal_that_is_not_ours_is_a_clear_400(demo: str, seal: str) -> None:
    item = {"type": "compaction", "encrypted_content": seal}
    reply = respond(demo, model="demo", input=[{"role": "user", "content": "x"}, item])
    assert (reply.status, reply.error["code"]) == (400, "invalid_encrypted_content")
    assert reply.error["param"] == "input[1].encrypted_content"
    assert compact(demo, model="demo", input=[item]).error["param"] == "input[0].encrypted_content"


def test_upstream_that_compacts_itself_gets_its_own_items_back() -> None:
    sealer = Sealer(b"k" * 32)
    ours, theirs = CompactionParam(seal_summary(sealer, "Sum")), CompactionParam(FOREIGN)
    dialect_s = CompactionParam(sealer.seal(b"{}", "anthropic-compaction"))
    opened = open_compactions([ours, theirs, dialect_s], sealer, str, upstream_compacts=True)
    assert isinstance(opened[0], MessageParam)
    assert opened[1:] == [theirs, dialect_s]


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (refusal(400, message="too long", code="context_length_exceeded"), 400, "context_length_exceeded"),
        (refusal(500, message="no"), 500, "server_error"),
        (Script(text("Half", finish_reason="length")), 502, "compaction_incomplete"),
        (Script(text(" ")), 500, "model_error"),
        (Script([chunk(content="Half"), CUT]), 502, "upstream_disconnected"),
    ],
    ids=["too long", "500", "cut short", "empty", "cut off"],
)
def test_summary_that_fails_is_no_window(
    bridged: str, upstream: ScriptedUpstream, script: Script, status: int, code: str
) -> None:
    upstream.scripts["fails"] = script
    reply = compact(bridged, model="fails", input=TALK)
    assert (reply.status, reply.error["code"]) == (status, code)


def test_trigger_whose_summary_is_cut_is_incomplete_without_an_item(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["fails"] = Script(text("Half", finish_reason="length"))
    response = stream(bridged, model="fails", input=[*TALK, {"type": "compaction_trigger"}]).final
    assert (response["status"], response["output"]) == ("incomplete", [])


def test_transcript_shows_what_text_can_hold() -> None:
    from openresponses_bridge.protocol.codec import decode_request, encode

    shown = [
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
        {"role": "user", "content": [{"type": "input_file", "filename": "a.pdf", "file_data": "AAAA"}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "1"}]},
        {"type": "web_search_call", "id": "w", "status": "completed"},
    ]
    items = decode_request(encode({"input": shown})).input
    assert items is not None
    output = transcript(items)
    assert "AAAA" not in output
    for words in ("[image]", "[file a.pdf]", "select 1", "[output of c]\n1", "web_search_call"):
        assert words in output


def test_texts_of_a_window_that_is_sent_back_are_input_unless_the_assistant_said_them() -> None:
    window = [MessageParam(role, [OutputTextParam("One")]) for role in ("user", "assistant")]
    users, assistants = own_input(CreateResponse(model="m", input=[*window]))
    assert users == MessageParam("user", [InputTextContent("One")])
    assert assistants == window[1]
