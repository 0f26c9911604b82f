"""`/vscode/v1/`: models, chats and token counts for VS Code, and the stateful marker between two chats."""

import base64
import json
import time
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import structlog

from openresponses_server.observation.logs import configure_logs
from openresponses_server.settings import Capabilities, LogLevel, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.store.base import StoreError
from tests.support import upstream as made
from tests.support.logs import log_as_in_production
from tests.support.serving import Reply, call, opened, respond, serving
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, refusal

ALICE = {"authorization": "Bearer alice"}
BOB = {"authorization": "Bearer bob"}
TOOL = {"name": "find", "description": "Finds.", "inputSchema": {"type": "object"}}
Message = dict[str, Any]


def user(*content: Any) -> Message:
    """As `JSON.stringify` writes a message of VS Code."""
    return {
        "_content": [{"$mid": 21, "value": each} if isinstance(each, str) else each for each in content],
        "role": 1,
    }


def assistant(*content: Any) -> Message:
    return {**user(*content), "role": 2}


def chat(
    base: str, *messages: Message, query: str = "", key: dict[str, str] | None = None, **more: Any
) -> Reply:
    body = {"model": "demo", "messages": list(messages), **more}
    return call(base, "POST", f"/vscode/v1/chat{query}", body, key)


def parts(reply: Reply) -> list[dict[str, Any]]:
    assert reply.status == 200, reply.body
    return [json.loads(line) for line in reply.body.splitlines() if line.strip()]


def text(reply: Reply) -> str:
    return "".join(part["value"] for part in parts(reply) if part["type"] == "LanguageModelTextPart")


def data(reply: Reply) -> dict[str, bytes]:
    data_parts = [part for part in parts(reply) if part["type"] == "LanguageModelDataPart"]
    return {part["mimeType"]: base64.b64decode(part["data"]) for part in data_parts}


def marker(model: str, response_id: str) -> dict[str, Any]:
    encoded = base64.b64encode(f"{model}\\{response_id}".encode()).decode()
    return {"$mid": 24, "mimeType": "stateful_marker", "data": encoded}


def named(reply: Reply) -> str:
    """The response that the marker of an answer names."""
    return data(reply)["stateful_marker"].decode().partition("\\")[2]


def stored(base: str, response_id: str, key: dict[str, str] | None = None) -> dict[str, Any]:
    reply = call(base, "GET", f"/v1/responses/{response_id}", None, key)
    assert reply.status == 200, reply.body
    response: dict[str, Any] = reply.json
    return response


def came_in(base: str, response_id: str, key: dict[str, str] | None = None) -> list[Any]:
    page = call(base, "GET", f"/v1/responses/{response_id}/input_items?order=asc&limit=100", None, key).json
    items: list[Any] = page["data"]
    return items


@pytest.fixture(scope="module")
def keyed(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server with two keys over the scripted upstream."""
    keys = [hashed("alice"), hashed("bob")]
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url, name="scripted")], api_keys=keys)
    with serving(settings) as base:
        yield base


# ── models ─────────────────────────────────────────────────────────────────────────────────────────────
def test_models_are_information_objects(demo: str) -> None:
    listed = call(demo, "GET", "/vscode/v1/models").json
    model = next(each for each in listed["models"] if each["id"] == "demo")
    assert isinstance(model["capabilities"]["toolCalling"], bool)
    assert isinstance(model["capabilities"]["imageInput"], bool)
    assert model["maxInputTokens"] > 0
    assert model["maxOutputTokens"] > 0
    assert all(isinstance(model[name], str) and model[name] for name in ("name", "family", "version"))
    assert {each["id"] for each in listed["models"]} == {
        each["id"] for each in call(demo, "GET", "/v1/models").json["data"]
    }
    assert listed["changes"] is None


def test_models_say_what_changed_since_a_version() -> None:
    def listed(models: list[str], window: int) -> Settings:
        known = {"one": Capabilities(context_window=window)}
        return Settings(
            upstreams=[UpstreamSettings(url="http://127.0.0.1:9/v1", models=models)],
            models=known,
            store="memory:",
        )

    with serving(listed(["one", "two"], 8192)) as base:
        version = call(base, "GET", "/vscode/v1/models").json["version"]
        same = call(base, "GET", f"/vscode/v1/models?since={version}").json
        unknown = call(base, "GET", "/vscode/v1/models?since=x").json
    assert same["changes"] == {"since": version, "added": [], "removed": [], "changed": []}
    assert (unknown["version"], unknown["changes"]) == (version, None)
    with serving(listed(["one", "two"], 8192)) as base:
        assert call(base, "GET", "/vscode/v1/models").json["version"] == version  # any worker's is the same
    with serving(listed(["one", "two"], 16384)) as base:
        assert call(base, "GET", "/vscode/v1/models").json["version"] != version


# ── chats ──────────────────────────────────────────────────────────────────────────────────────────────
def test_messages_as_vscode_serialises_them(demo: str) -> None:
    assert text(chat(demo, user("Hello"))) == "You said: Hello"
    wrong = chat(demo, {"_content": 5, "role": 1})
    assert (wrong.status, wrong.error["param"]) == (400, "messages[0]._content")


def test_options_of_the_request_reach_the_upstream(keyed: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["chosen"] = Script(
        [made.call(0, "{}", "find", "call_1"), chunk("tool_calls"), made.DONE]
    )
    options = {"systemPrompt": "Be brief.", "maxOutputTokens": 50, "temperature": 0.1, "topP": 0.5}
    reply = chat(
        keyed,
        {"role": 3, "content": "Be kind."},
        user("Hello"),
        key=ALICE,
        model="chosen",
        modelOptions=options,
        tools=[TOOL],
        toolMode=2,
    )
    assert text(reply) == ""
    sent = upstream.last("chosen").body
    assert sent["messages"][0]["content"] == "Be brief.\n\nBe kind."
    assert (sent["temperature"], sent["top_p"], sent["tool_choice"]) == (0.1, 0.5, "required")
    assert 50 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert sent["tools"][0]["function"]["name"] == "find"
    assert "openresponses-losses" not in reply.headers


def test_without_options_the_models_own_defaults_hold(keyed: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["plain"] = Script(made.text("Yes."))
    chat(keyed, user("Hello"), key=ALICE, model="plain")
    assert not {"temperature", "max_tokens", "max_completion_tokens"} & upstream.last("plain").body.keys()


def test_options_that_are_not_known_are_reported(demo: str) -> None:
    reply = chat(demo, user("Hello"), modelOptions={"stop": ["x"], "temperature": True, "systemPrompt": 5})
    losses = reply.headers["openresponses-losses"]
    assert all(f"modelOptions.{name}" in losses for name in ("stop", "temperature", "systemPrompt"))


def test_encrypted_thinking_when_it_is_asked_for(demo: str) -> None:
    for flag, value in ((True, 200), (None, 200), ("yes", 400)):
        assert chat(demo, user("Hello"), includeEncryptedThinking=flag).status == value
    assert chat(demo, user("Hello"), store="no").error["param"] == "store"


def test_silence_is_named_and_a_call_is_not_silence(keyed: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["silent"] = Script([chunk(role="assistant", content=""), chunk("stop"), made.DONE])
    assert text(chat(keyed, user("Hello"), key=ALICE, model="silent")).startswith(
        "**Error:** No response received"
    )
    upstream.scripts["calls"] = Script([made.call(0, "{}", "find", "call_1"), chunk("tool_calls"), made.DONE])
    called = chat(keyed, user("Hello"), key=ALICE, model="calls", tools=[TOOL])
    assert text(called) == ""
    assert [part["name"] for part in parts(called) if part["type"] == "LanguageModelToolCallPart"] == ["find"]


@pytest.mark.parametrize("store", [True, False])
def test_leaving_aborts_the_upstream_stored_or_not(
    keyed: str, upstream: ScriptedUpstream, store: bool
) -> None:
    upstream.scripts["slow"] = Script([chunk(content="Begun"), HANG])
    body = {"model": "slow", "messages": [user("Hello")], "store": store}
    with opened(keyed, "POST", "/vscode/v1/chat", body, ALICE) as response:
        assert b"Begun" in response.readline()
    while upstream.last("slow").gone_at is None:
        time.sleep(0.02)


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (403, {"message": "not you", "code": "model_forbidden"}, "NoPermissions"),
        (404, {"message": "what?"}, "NotFound"),
        (402, {"message": "pay"}, "Blocked"),
        (429, {"message": "later", "code": "slow_down"}, "Blocked"),
        (400, {"message": "pay", "code": "insufficient_quota"}, "Blocked"),
        (400, {"message": "too long", "code": "context_length_exceeded"}, "context_length_exceeded"),
    ],
)
def test_refusals_are_language_model_errors(
    keyed: str, upstream: ScriptedUpstream, status: int, error: dict[str, str], code: str
) -> None:
    upstream.scripts["refused"] = refusal(status, **error)
    reply = chat(keyed, user("Hello"), key=ALICE, model="refused")
    assert (reply.status, reply.error["name"], reply.error["code"]) == (status, "LanguageModelError", code)
    assert (reply.error["message"], reply.error["cause"]["status"]) == (error["message"], status)


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_of_ours_that_is_refused_is_not_the_client_s(
    keyed: str, upstream: ScriptedUpstream, status: int
) -> None:
    upstream.scripts["refused"] = refusal(status, message="who?")
    reply = chat(keyed, user("Hello"), key=ALICE, model="refused")
    assert (reply.status, reply.error["name"]) == (400, "LanguageModelError")
    assert reply.error["cause"] == {"status": 400, "code": "upstream_authentication_failed"}


def test_own_refusals_are_language_model_errors(demo: str, keyed: str) -> None:
    unknown = chat(demo, user("Hello"), model="nobody")
    assert (unknown.status, unknown.error["code"]) == (404, "NotFound")
    assert unknown.error["cause"] == {"status": 404, "code": "model_not_found"}
    for path in ("models", "chat", "tokens"):
        method = "GET" if path == "models" else "POST"
        nobody = call(keyed, method, f"/vscode/v1/{path}", None if path == "models" else {})
        assert (nobody.status, nobody.error["code"]) == (401, "NoPermissions")
    assert chat(demo).error["param"] == "messages"
    assert chat(demo, user("Hello"), query="?errors=loud").error["param"] == "errors"


def test_a_failure_after_the_start_is_text_or_a_line(demo: str) -> None:
    as_text = chat(demo, user("Hello"), model="demo-failure")
    assert text(as_text).endswith("**Error:** Failed as asked.")
    *shown, last = parts_and_error(chat(demo, user("Hello"), model="demo-failure", query="?errors=line"))
    assert all("error" not in each for each in shown)
    assert not any("Failed" in str(each) for each in shown)
    assert (last["error"]["name"], last["error"]["message"]) == ("LanguageModelError", "Failed as asked.")
    cut = text(chat(demo, user("Hello"), model="demo-incomplete", query="?errors=line"))
    assert "**Note:**" in cut


def parts_and_error(reply: Reply) -> list[dict[str, Any]]:
    return [json.loads(line) for line in reply.body.splitlines() if line.strip()]


# ── tokens ─────────────────────────────────────────────────────────────────────────────────────────────
def test_tokens_of_a_text_and_of_a_message(demo: str) -> None:
    def count(**body: Any) -> Reply:
        return call(demo, "POST", "/vscode/v1/tokens", {"model": "demo", **body})

    few, many = count(text="word").json["tokens"], count(text="word " * 100).json["tokens"]
    assert 0 < few < many
    message = count(message=user("word " * 100)).json["tokens"]
    assert message > many - 5
    assert count(text=user("word " * 100)).json == {"tokens": message}
    assert count(message={"role": 3, "content": "word " * 100}).json["tokens"] >= many
    assert count(text="").json == {"tokens": 0}
    for body, param in (({}, "text"), ({"text": "a", "message": user("a")}, "text"), ({"text": 5}, "text")):
        assert (count(**body).status, count(**body).error["param"]) == (400, param)
    assert count(model="nobody", text="a").error["code"] == "NotFound"
    assert count(model=None, text="a").error["param"] == "model"


# ── the stateful marker ────────────────────────────────────────────────────────────────────────────────
def test_a_marker_names_a_stored_response_and_is_gone_on_from(demo: str) -> None:
    first = chat(demo, user("One"))
    response_id = named(first)
    assert stored(demo, response_id)["output"][0]["content"][0]["text"] == text(first)
    talk = [user("One"), assistant(text(first), marker("demo", response_id))]
    second = chat(demo, *talk, user("Two"))
    going_on = stored(demo, named(second))
    assert going_on["previous_response_id"] == response_id
    assert [item["content"][0]["text"] for item in came_in(demo, going_on["id"])] == ["Two"]
    third = chat(
        demo, *talk, user("Two"), assistant(text(second), marker("demo", going_on["id"])), user("Three")
    )
    assert stored(demo, named(third))["previous_response_id"] == going_on["id"]


def test_without_storing_there_is_no_marker(demo: str) -> None:
    reply = chat(demo, user("One"), store=False)
    assert set(data(reply)) == {"usage"}
    line = chat(demo, user("One"), model="demo-failure")
    assert "stateful_marker" not in data(line)


def test_a_call_with_its_result_is_gone_on_from(keyed: str, upstream: ScriptedUpstream) -> None:
    called = [made.call(0, '{"b":1,"a":2}', "find", "call_1"), chunk("tool_calls"), made.DONE]
    upstream.scripts["tool"] = [Script([chunk(content="Let me see."), *called]), Script(made.text("Found."))]  # type: ignore[assignment]
    first = chat(keyed, user("Look"), key=ALICE, model="tool", tools=[TOOL])
    (call_part,) = [part for part in parts(first) if part["type"] == "LanguageModelToolCallPart"]
    # a client may order the names of an object anew
    seen = {**call_part, "input": dict(sorted(call_part["input"].items()))}
    answer = {"callId": call_part["callId"], "content": [{"$mid": 21, "value": "18"}]}
    talk = [user("Look"), assistant(text(first), seen, marker("tool", named(first))), user(answer)]
    second = chat(keyed, *talk, key=ALICE, model="tool", tools=[TOOL])
    assert text(second) == "Found."
    going_on = stored(keyed, named(second), ALICE)
    assert going_on["previous_response_id"] == named(first)
    assert [item["type"] for item in came_in(keyed, going_on["id"], ALICE)] == ["function_call_output"]
    assert [each["role"] for each in upstream.last("tool").body["messages"]] == ["user", "assistant", "tool"]


FORGED = [
    marker("demo", "resp_forged"),
    marker("demo", "../../etc/passwd"),
    marker("demo", "x" * 5000),
    marker("demo", "resp_\x00"),
    marker("other", "resp_forged"),
    {"mimeType": "stateful_marker", "data": ""},
    {"mimeType": "stateful_marker", "data": base64.b64encode(b"\xff\xfe\\\xff").decode()},
    {
        "mimeType": "stateful_marker",
        "data": base64.b64encode("demo\\resp_\ud83d".encode("utf-8", "surrogatepass")).decode(),
    },
]


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_a_forged_marker_counts_as_none(demo: str, forged: dict[str, Any]) -> None:
    reply = chat(demo, user("One"), assistant("Two", forged), user("Three"))
    assert text(reply).startswith("You said: Three")
    record = stored(demo, named(reply))
    assert record["previous_response_id"] is None
    assert len(came_in(demo, record["id"])) == 3


def test_s7_a_marker_of_another_owner_counts_as_none(keyed: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["two"] = [Script(made.text("Secret.")), Script(made.text("Yes."))]  # type: ignore[assignment]
    theirs = named(chat(keyed, user("The word is swordfish."), key=ALICE, model="two"))
    mine = chat(
        keyed, user("One"), assistant("Two", marker("two", theirs)), user("Three"), key=BOB, model="two"
    )
    assert text(mine) == "Yes."
    assert stored(keyed, named(mine), BOB)["previous_response_id"] is None
    assert "swordfish" not in json.dumps(upstream.last("two").body)


@pytest.mark.parametrize("changed", ["before", "answer", "call", "nothing follows"])
def test_a_marker_after_another_conversation_counts_as_none(demo: str, changed: str) -> None:
    first = chat(demo, user("One"))
    question = "Eins" if changed == "before" else "One"
    answer: list[Any] = ["Something else" if changed == "answer" else text(first)]
    if changed == "call":
        answer.append({"callId": "gw-made_up", "name": "find", "input": {}})
    following = [] if changed == "nothing follows" else [user("Two")]
    if changed == "call":
        following = [user({"callId": "gw-made_up", "content": []}, "Two")]
    reply = chat(demo, user(question), assistant(*answer, marker("demo", named(first))), *following)
    assert reply.status == 200
    assert stored(demo, named(reply))["previous_response_id"] is None


def test_a_marker_of_what_was_deleted_or_has_not_ended_counts_as_none(
    keyed: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["gone"] = Script(made.text("Yes."))
    first = chat(keyed, user("One"), key=ALICE, model="gone")
    talk = [user("One"), assistant(text(first), marker("gone", named(first))), user("Two")]
    assert call(keyed, "DELETE", f"/v1/responses/{named(first)}", None, ALICE).status == 200
    assert (
        stored(keyed, named(chat(keyed, *talk, key=ALICE, model="gone")), ALICE)["previous_response_id"]
        is None
    )
    upstream.scripts["hanging"] = Script([chunk(content="Yes."), HANG])
    running = respond(keyed, ALICE, model="hanging", background=True).json["id"]
    talk[1] = assistant("Yes.", marker("gone", running))
    assert (
        stored(keyed, named(chat(keyed, *talk, key=ALICE, model="gone")), ALICE)["previous_response_id"]
        is None
    )
    call(keyed, "POST", f"/v1/responses/{running}/cancel", None, ALICE)


def test_a_chat_goes_on_without_a_store_that_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage that is known costs a chat its marker and nothing else."""

    async def out() -> None:
        raise StoreError(StoreError.UNAVAILABLE, "The store can't be reached.")

    with serving(Settings(store="memory:")) as base:
        assert "stateful_marker" in data(chat(base, user("One")))
        monkeypatch.setattr("openresponses_server.runs.support.RunSupport.check_store", lambda self: out())
        assert text(chat(base, user("One"))) == "You said: One"
        assert "stateful_marker" not in data(chat(base, user("One")))


@pytest.mark.parametrize("level", ["debug", "info"])
def test_at_debug_level_each_event_is_a_line_without_content(level: LogLevel) -> None:
    file = StringIO()
    configure_logs(file, level)
    structlog.configure(cache_logger_on_first_use=False)
    try:
        with serving(Settings(store="memory:", log_level=level)) as base:
            assert text(chat(base, user("Secret words"))) == "You said: Secret words"
    finally:
        log_as_in_production()
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    traced = [line["event_and_parts"] for line in lines if line["event"] == "vscode.event"]
    if level == "info":
        assert traced == []
        return
    assert traced[0] == "0 response.created -> nothing"
    assert "response.output_text.delta -> LanguageModelTextPart" in traced[4]
    assert traced[-1].endswith("response.completed -> LanguageModelDataPart, LanguageModelDataPart")
    assert "Secret" not in file.getvalue()


def test_a_limit_that_a_refusal_has_named_is_the_model_s_for_this_key(upstream: ScriptedUpstream) -> None:
    """Of this key alone, since a server may repeat what a request says."""
    upstream.scripts["small"] = refusal(
        400, message="Your request exceeded model token limit: 900 (requested: 9999)"
    )
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url, models=["small"])],
        api_keys=[hashed("alice"), hashed("bob")],
    )

    def limit(base: str, key: dict[str, str]) -> int:
        listed = call(base, "GET", "/vscode/v1/models", headers=key).json
        (model,) = [each for each in listed["models"] if each["id"] == "small"]
        return int(model["maxInputTokens"])

    with serving(settings) as base:
        before = limit(base, ALICE)
        assert before > 900
        assert chat(base, user("Hello"), key=ALICE, model="small").status == 400
        assert limit(base, ALICE) == 900
        assert limit(base, {"authorization": "Bearer bob"}) == before
