"""Items of OpenAI's over a server whose upstream knows messages and functions only."""

from typing import Any

from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_server.requests.compaction import transcript
from openresponses_server.settings import Settings, Timeouts, UpstreamSettings
from tests.support.in_process import InProcess
from tests.support.serving import respond, stream
from tests.support.upstream import Script, ScriptedUpstream, text

HEADER = "openresponses-losses"
HI = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def task(words: str) -> dict[str, Any]:
    content = [{"type": "encrypted_content", "encrypted_content": words}]
    return {"type": "agent_message", "author": "/main", "recipient": "/main/a", "content": content}


def update(**settings: Any) -> dict[str, Any]:
    return {"type": "configuration_update", **settings}


def test_a_sub_agent_has_its_task(bridged: str, upstream: ScriptedUpstream) -> None:
    reply = respond(bridged, model="plain", input=[task("Count the files.")])
    (message,) = upstream.last("plain").body["messages"]
    assert message["content"].endswith("Count the files.")
    assert HEADER not in reply.headers


def test_a_task_that_is_encrypted_is_a_loss_that_is_said(bridged: str) -> None:
    reply = respond(bridged, model="plain", input=[HI, task("gAAAAAB" + "x" * 90)])
    assert reply.headers[HEADER] == "input[1].content[0]: encrypted, can't be read here"


def test_a_task_of_10_mb_goes_through(upstream: ScriptedUpstream) -> None:
    words = "word " * 2_000_000
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url, name="scripted")], timeouts=Timeouts(connect=5.0)
    )
    server = InProcess(settings)
    try:
        reply = server.call(
            "POST", "/v1/responses", {"model": "plain", "input": [task(words)], "store": False}
        )
    finally:
        server.close()
    assert reply.status == 200
    assert words in upstream.last("plain").body["messages"][0]["content"]


def test_an_update_of_the_format_holds_for_the_turns_after_it(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["json"] = Script(text('{"n": 1}'))
    changed = update(text={"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}})
    first = respond(bridged, model="json", input=[changed, HI]).json
    assert first["text"]["format"]["schema"] == SCHEMA
    respond(bridged, model="json", input=[HI], previous_response_id=first["id"])
    assert upstream.last("json").body["response_format"]["json_schema"]["schema"] == SCHEMA


def test_a_format_that_can_not_be_used_is_refused(bridged: str) -> None:
    wrong = update(text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "nothing"}}})
    reply = respond(bridged, model="plain", input=[HI, wrong])
    assert (reply.status, reply.error["param"]) == (400, "input")


def test_a_trigger_that_its_compaction_follows_asks_for_nothing(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["condenser"] = Script(text("Said hi."))
    trigger = {"type": "compaction_trigger"}
    (item,) = stream(bridged, model="condenser", input=[HI, trigger]).final["output"]
    reply = respond(bridged, model="plain", input=[HI, trigger, item, {"role": "user", "content": "On."}])
    assert [each["type"] for each in reply.json["output"]] == ["message"]
    assert HEADER not in reply.headers
    assert "Said hi." in upstream.last("plain").body["messages"][1]["content"]


def test_a_continued_compaction_is_no_loss(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["condenser"] = Script(text("Said hi."))
    done = stream(bridged, model="condenser", input=[HI, {"type": "compaction_trigger"}]).final
    reply = respond(bridged, model="plain", input="On.", previous_response_id=done["id"])
    assert (reply.status, HEADER in reply.headers) == (200, False)


def test_a_transcript_has_what_agents_said() -> None:
    assert (
        transcript([UnknownItem(task("Count."))])
        == "[user]\n[message from agent /main to agent /main/a]\nCount."
    )
