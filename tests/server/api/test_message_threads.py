"""A client of Messages that sends the new messages of a thread alone: its conversation is continued, or it is
told to send everything (law N3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support import dialect_scripts as scripts
from tests.support.in_process import InProcess
from tests.support.serving import Reply
from tests.support.upstream import HANG, Script, ScriptedUpstream
from tests.support.waiting import until

BETA = [(b"anthropic-beta", b"message-threads-2026-08-12,other-1")]
DIALECTS = ("chat", "anthropic", "responses", "gemini")
CREATE = {"type": "create"}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def app(upstream: ScriptedUpstream) -> Iterator[InProcess]:
    def reached(name: str) -> UpstreamSettings:
        return UpstreamSettings(name=name, url=upstream.url, dialect=name, models=[f"{name}-*"])

    running = InProcess(
        Settings(api_keys=[hashed("one"), hashed("other")], upstreams=list(map(reached, DIALECTS)))
    )
    yield running
    running.close()


def ask(app: InProcess, model: str, said: Any, key: bytes = b"one", path: str = "", **fields: Any) -> Reply:
    messages = said if isinstance(said, list) else [{"role": "user", "content": said}]
    body = {"model": model, "max_tokens": 9, "messages": messages, **fields}
    return app.call("POST", f"/v1/messages{path}", body, [(b"x-api-key", key), *BETA])


def continued(previous: str) -> dict[str, str]:
    return {"type": "continue", "previous_message_id": previous}


def refused(reply: Reply) -> bool:
    error = reply.json.get("error", {})
    is_named = "capability_rejected: beta_header:message-threads-2026-08-12" in error.get("message", "")
    details = {"error_code": "thread_unsupported_request"}
    return (reply.status, error.get("type"), error.get("details"), is_named) == (
        400, "invalid_request_error", details, True
    )  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", DIALECTS)
def test_n3_a_thread_is_continued_with_its_system_prompt_and_tools(
    app: InProcess, upstream: ScriptedUpstream, name: str, stream: bool
) -> None:
    model = f"{name}-m"
    upstream.scripts[model] = Script(scripts.call(name, ("call_1", "look", "{}")))
    first = ask(app, model, "word: zebra", thread=CREATE, system="Be kind.", tools=[TOOL])
    result = {"type": "tool_result", "tool_use_id": first.json["content"][0]["id"], "content": "seen"}
    upstream.scripts[model] = Script(scripts.text(name, "Hello"))
    turn = [{"role": "user", "content": [result]}]
    second = ask(app, model, turn, thread=continued(first.json["id"]), stream=stream)
    assert second.status == 200, second.body
    received = upstream.last(model)
    for each in ("word: zebra", "Be kind.", "Looks.", "seen"):
        assert each in received.raw.decode(), each
    assert "thread" not in received.body
    sent_on = received.headers.get("anthropic-beta")
    assert sent_on == ("other-1" if name == "anthropic" else None)


def test_n3_a_paused_turn_goes_on_without_new_messages(app: InProcess, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-m"] = Script(scripts.text("chat", "Hello"))
    first = ask(app, "chat-m", "word: zebra", thread=CREATE)
    again = ask(app, "chat-m", [], thread=continued(first.json["id"]))
    assert again.status == 200
    assert "zebra" in upstream.last("chat-m").raw.decode()


def test_n3_a_system_prompt_of_its_own_leaves_the_tools(app: InProcess, upstream: ScriptedUpstream) -> None:
    """As Claude Code continues: with the system prompt, and without the tools."""
    upstream.scripts["chat-m"] = Script(scripts.text("chat", "Hello"))
    first = ask(app, "chat-m", "word: zebra", thread=CREATE, system="Be kind.", tools=[TOOL])
    ask(app, "chat-m", "and?", thread=continued(first.json["id"]), system="Be short.")
    sent = upstream.last("chat-m").raw.decode()
    assert [each in sent for each in ("zebra", "Looks.", "Be short.", "Be kind.")] == [True] * 3 + [False]


@pytest.mark.parametrize("name", DIALECTS)
def test_n3_what_is_not_there_is_refused_and_the_whole_conversation_answered(
    app: InProcess, upstream: ScriptedUpstream, name: str
) -> None:
    model = f"{name}-m"
    upstream.scripts[model] = Script(scripts.text(name, "Hello"))
    created = ask(app, model, "x", thread=CREATE).json["id"]
    before = len(upstream.received)
    assert refused(ask(app, model, "which word?", thread=continued("msg_1")))
    assert refused(ask(app, model, "which word?", thread=continued("x" * 5000)))
    assert refused(ask(app, model, "which word?", b"other", thread=continued(created)))
    deleted = app.call("DELETE", f"/v1/responses/{created}", headers=[(b"authorization", b"Bearer one")])
    assert deleted.status == 200
    assert refused(ask(app, model, "which word?", thread=continued(created)))
    assert len(upstream.received) == before
    assert ask(app, model, "which word?").status == 200


def test_n3_what_was_not_a_thread_is_not_stored(app: InProcess, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-m"] = Script(scripts.text("chat", "Hello"))
    assert refused(ask(app, "chat-m", "and?", thread=continued(ask(app, "chat-m", "x").json["id"])))


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{**TOOL, "defer_loading": True}]},
        {"tools": [{**TOOL, "input_examples": [{"a": 1}]}]},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]},
    ],
    ids=["deferred", "examples", "search", "system"],
)
def test_n3_what_could_not_be_restored_is_not_stored(
    app: InProcess, upstream: ScriptedUpstream, fields: dict[str, Any]
) -> None:
    upstream.scripts["anthropic-m"] = Script(scripts.text("anthropic", "Hello"))
    reply = ask(app, "anthropic-m", "x", thread=CREATE, **fields)
    assert reply.status == 200, reply.body
    assert refused(ask(app, "anthropic-m", "and?", thread=continued(reply.json["id"])))


def test_n3_one_that_was_cut_can_not_be_continued_in_silence(
    app: InProcess, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["chat-m"] = Script(scripts.piece("chat"))
    cut = ask(app, "chat-m", "word: zebra", thread=CREATE, stream=True)
    assert b"event: error" in cut.body
    upstream.scripts["chat-m"] = Script(scripts.text("chat", "Hello"))
    own = cut.body.partition(b'"id":"')[2].partition(b'"')[0].decode()
    reply = ask(app, "chat-m", "which word?", thread=continued(own))
    assert refused(reply) or "zebra" in upstream.last("chat-m").raw.decode()


@pytest.mark.parametrize(
    ("thread", "param"),
    [
        ("create", "thread"),
        ({}, "thread.type"),
        ({"type": "fork"}, "thread.type"),
        ({"type": "continue"}, "thread.previous_message_id"),
        ({"type": "continue", "previous_message_id": 3}, "thread.previous_message_id"),
        ({**CREATE, "of_tomorrow": 1}, "thread.of_tomorrow"),
    ],
)
def test_n3_another_thread_is_refused_by_its_field(app: InProcess, thread: Any, param: str) -> None:
    reply = ask(app, "chat-m", "x", thread=thread)
    assert reply.status == 400
    assert reply.json["error"]["message"].startswith(f"{param}: ")


def test_tokens_of_a_thread_are_counted(app: InProcess) -> None:
    reply = ask(app, "chat-m", "which word?", path="/count_tokens", thread=continued("msg_1"))
    assert (reply.status, reply.json["input_tokens"] > 0) == (200, True)


def test_s3_a_thread_s_client_that_leaves_ends_its_response(
    app: InProcess, upstream: ScriptedUpstream
) -> None:
    """As without a thread: nobody else waits for the answer."""
    upstream.scripts["chat-m"] = Script([*scripts.piece("chat"), HANG])
    body = {"model": "chat-m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    body |= {"thread": CREATE, "stream": True}
    app.call("POST", "/v1/messages", body, [(b"x-api-key", b"one")], leaves=True)
    received = upstream.last("chat-m")

    async def closed() -> None:
        await until(lambda: received.gone_at is not None)

    app.run(closed())


def test_s8_a_key_without_room_is_answered_and_its_thread_not_stored(upstream: ScriptedUpstream) -> None:
    upstream.scripts["chat-m"] = Script(scripts.text("chat", "Hello"))
    reached = UpstreamSettings(name="chat", url=upstream.url, dialect="chat")
    limits = Limits(stored_bytes_per_key=10)
    full = InProcess(Settings(api_keys=[hashed("one")], upstreams=[reached], limits=limits))
    reply = ask(full, "chat-m", "word: zebra", thread=CREATE)
    assert reply.status == 200
    assert refused(ask(full, "chat-m", "and?", thread=continued(reply.json["id"])))
    full.close()
