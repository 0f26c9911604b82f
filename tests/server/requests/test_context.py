"""`context_management`: a conversation beyond its threshold is condensed before its model answers."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.models.tokens import TokenEstimator
from openresponses_bridge.protocol.codec import decode_request
from openresponses_server.requests import prepared
from openresponses_server.requests.composition import compose
from openresponses_server.requests.prepare import prepare
from openresponses_server.settings import Capabilities, FunctionSettings, Retries, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support import dialect_scripts as scripts
from tests.support.crashes import left_by
from tests.support.schema import violations as schema_violations
from tests.support.serving import call, output_text, respond, serving, stream, violations, wait_for
from tests.support.sockets import opened_socket
from tests.support.upstream import (
    CUT,
    DONE,
    HANG,
    Received,
    Script,
    ScriptedUpstream,
    chunk,
    frame,
    refusal,
    text,
)
from tests.support.upstream import call as tool_call
from tests.support.waiting import wait_until

HEADER = "openresponses-losses"
COMPACTING = "response.compaction.compacting"
LONG = "the cat sat on the mat and looked " * 400
EARLIER: list[dict[str, Any]] = [
    {"role": "developer", "content": "Answer in French."},
    {"role": "user", "content": f"My name is Ada. {LONG}"},
    {"role": "assistant", "content": "Bonjour Ada."},
]
QUESTION = {"role": "user", "content": "And now?"}

READING = f"""
from tests.support.waiting import wait_until
from openresponses_agent.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool(tags={{"read-only"}})
def read() -> str:
    \"\"\"Reads.\"\"\"
    return {LONG!r}
"""
READS = [tool_call(0, "", "read", "call_1"), tool_call(0, "{}"), chunk("tool_calls"), DONE]


def at(threshold: int | None = 1000) -> dict[str, Any]:
    options = {} if threshold is None else {"compact_threshold": threshold}
    return {"context_management": [{"type": "compaction", **options}]}


def texts(received: Received) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in received.body["messages"]]


def asked(upstream: ScriptedUpstream, model: str) -> list[Received]:
    return [each for each in upstream.received if each.model == model]


@pytest.fixture
def condensing(upstream: ScriptedUpstream) -> ScriptedUpstream:
    """Its model `m` says a summary first, then answers."""
    upstream.scripts["m"] = [Script(text("Ada has ", "a cat.")), Script(text("Oui."))]
    return upstream


@pytest.mark.parametrize("dialect", ["chat", "anthropic", "gemini"])
def test_a_conversation_beyond_the_threshold_is_condensed_first(
    upstream: ScriptedUpstream, dialect: str
) -> None:
    upstream.scripts["m"] = [
        Script(scripts.text(dialect, "Ada has ", "a cat.")),
        Script(scripts.text(dialect, "Oui.")),
    ]
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url, dialect=dialect)])) as base:
        reply = stream(base, model="m", input=[*EARLIER, QUESTION], **at())
        compaction, message = reply.final["output"]
        assert (compaction["type"], message["content"][0]["text"]) == ("compaction", "Oui.")
        summary, answer = asked(upstream, "m")
        assert "Bonjour Ada." in json.dumps(summary.body)
        sent = json.dumps(answer.body)
        assert "Ada has a cat." in sent
        assert "Answer in French." in sent
        assert "And now?" in sent
        assert "Bonjour Ada." not in sent
        # the next turn begins with it, whoever keeps what came before
        for turn in (
            {"previous_response_id": reply.final["id"], "input": "Go on"},
            {"input": [*EARLIER, QUESTION, compaction, message, {"role": "user", "content": "Go on"}]},
            {"input": [compaction, message, {"role": "user", "content": "Go on"}]},
        ):
            upstream.scripts["m"] = Script(scripts.text(dialect, "Bien."))
            upstream.received.clear()
            again = stream(base, model="m", **turn, **at())
            assert [item["type"] for item in again.final["output"]] == ["message"]
            (body,) = [json.dumps(each.body) for each in upstream.received]
            for words in ("Answer in French.", "And now?", "Ada has a cat.", "Oui.", "Go on"):
                assert body.count(words) == 1, words
            assert "Bonjour Ada." not in body


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_the_stream_says_it_in_the_words_of_its_wire(
    bridged: str, condensing: ScriptedUpstream, wire: str
) -> None:
    body = {"model": "m", "input": [*EARLIER, QUESTION], "stream": True, **at()}
    reply = call(bridged, "POST", "/v1/responses", body, {"openresponses-wire": wire})
    progress = COMPACTING if wire == "openai" else f"openai:{COMPACTING}"
    assert reply.types[:5] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        progress,
        "response.output_item.done",
    ]
    added, compacting, done = reply.events[2:5]
    assert added["item"]["encrypted_content"] == ""
    assert compacting["item_id"] == added["item"]["id"] == done["item"]["id"]
    assert compacting["output_index"] == 0
    assert done["item"] == reply.final["output"][0]
    assert schema_violations("ItemField", done["item"]) == []
    validator = StreamValidator(wire=wire)
    objections = [violation for frame in reply.frames for violation in validator.feed_frame(frame)]
    assert [*objections, *validator.close()] == []


def test_the_summary_stands_where_the_last_thing_was_that_it_stands_for(
    bridged: str, condensing: ScriptedUpstream
) -> None:
    assert respond(bridged, model="m", input=[*EARLIER, QUESTION], **at()).status == 200
    roles = [role for role, _ in texts(asked(condensing, "m")[1])]
    messages = [words for _, words in texts(asked(condensing, "m")[1])]
    assert roles == ["system", "user", "user"]
    assert "Ada has a cat." in messages[1]
    assert messages[2] == "And now?"
    # the calls that a question led to come after it, and are in the summary
    condensing.received.clear()
    condensing.scripts["m"] = [Script(text("It looked.")), Script(text("Oui."))]
    called = [
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": LONG},
    ]
    assert respond(bridged, model="m", input=[QUESTION, *called], **at()).status == 200
    messages = [words for _, words in texts(asked(condensing, "m")[1])]
    assert messages[0] == "And now?"
    assert "It looked." in messages[1]
    assert len(messages) == 2


def test_a_second_compaction_takes_the_first_one_in(bridged: str, condensing: ScriptedUpstream) -> None:
    first = respond(bridged, model="m", input=[*EARLIER, QUESTION], **at()).json
    condensing.received.clear()
    condensing.scripts["m"] = [Script(text("Ada has two cats.")), Script(text("Oui."))]
    grown = [*first["output"], {"role": "user", "content": LONG}, {"role": "assistant", "content": "Ah."}]
    second = respond(bridged, model="m", input=[*grown, QUESTION], **at()).json
    assert [item["type"] for item in second["output"]] == ["compaction", "message"]
    summary, answer = asked(condensing, "m")
    assert "Ada has a cat." in texts(summary)[1][1]
    messages = [words for _, words in texts(answer)]
    assert len(messages) == 3
    assert "Ada has two cats." in messages[1]
    assert not any("Ada has a cat." in words for words in messages)


def test_a_summary_is_no_words_of_the_users(bridged: str, upstream: ScriptedUpstream) -> None:
    """Without a new question, the summary of before would stay for ever beside the next one."""
    called = [
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": LONG},
    ]
    items: list[dict[str, Any]] = [QUESTION, *called]
    for number in range(3):
        upstream.scripts["m"] = [Script(text(f"Looked {number}.")), Script(text("Oui."))]
        output = respond(bridged, model="m", input=items, **at()).json["output"]
        assert [item["type"] for item in output] == ["compaction", "message"]
        messages = [words for _, words in texts(upstream.last("m"))]
        assert (messages[0], len(messages)) == ("And now?", 2)
        assert f"Looked {number}." in messages[1]
        items = [*items, *output, *called]


def test_usage_is_that_of_both(bridged: str, condensing: ScriptedUpstream) -> None:
    alone = respond(bridged, model="m", input="Hi").json["usage"]
    condensing.scripts["m"] = [Script(text("Ada has ", "a cat.")), Script(text("Oui."))]
    both = respond(bridged, model="m", input=[*EARLIER, QUESTION], **at()).json["usage"]
    condensing.scripts["m"] = Script(text("Oui."))
    answer = respond(bridged, model="m", input="Hi").json["usage"]
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        assert both[name] == alone[name] + answer[name]


def test_usage_of_a_summary_stays_when_the_answer_has_none(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [
        Script(text("Ada has a cat.")),
        Script([chunk(content="Oui."), chunk("stop")]),
    ]
    usage = respond(bridged, model="m", input=[*EARLIER, QUESTION], **at()).json["usage"]
    assert usage["output_tokens"] > 0


@pytest.mark.parametrize(
    ("items", "threshold"),
    [
        ([*EARLIER, QUESTION], 100_000),
        ([{"role": "user", "content": LONG}], 1000),
        ([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}, EARLIER[1]], 1000),
        ([{"role": "developer", "content": LONG}, *EARLIER[2:], QUESTION], 1000),
    ],
    ids=["below", "one question", "nothing much before it", "instructions"],
)
def test_what_a_summary_would_not_help_is_sent_whole(
    bridged: str, upstream: ScriptedUpstream, items: list[Any], threshold: int
) -> None:
    reply = respond(bridged, model="m", input=items, **at(threshold))
    assert [item["type"] for item in reply.json["output"]] == ["message"]
    assert len(asked(upstream, "m")) == 1
    assert HEADER not in reply.headers


def reading_files(upstream: ScriptedUpstream, folder: Path) -> Settings:
    """A server that has the function of `READS`."""
    (folder / "tools.py").write_text(READING)
    return Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        functions=[FunctionSettings(module=str(folder / "tools.py"))],
    )


def test_between_two_rounds_of_tools_that_the_server_runs(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """A result may be what goes beyond the threshold. It is condensed once, however much follows."""
    with serving(reading_files(upstream, tmp_path)) as base:
        upstream.scripts["m"] = [
            Script(READS),
            Script(text("It is about a cat.")),
            Script(READS),
            Script(text("A cat.")),
        ]
        reply = stream(base, model="m", input="What is in it?", **at())
    kinds = [item["type"].removeprefix("openai:") for item in reply.final["output"]]
    assert kinds == ["mcp_call", "compaction", "mcp_call", "message"]
    first, summary, second, last = asked(upstream, "m")
    assert LONG[:100] in texts(summary)[1][1]
    assert [role for role, _ in texts(second)] == ["user", "user"]
    assert texts(second)[0][1] == "What is in it?"
    assert "It is about a cat." in texts(second)[1][1]
    assert [each["role"] for each in last.body["messages"]] == ["user", "user", "assistant", "tool"]
    assert "tools" not in summary.body
    assert first.body["tools"] == second.body["tools"] == last.body["tools"]


def test_between_two_rounds_without_a_summary(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with serving(reading_files(upstream, tmp_path)) as base:
        upstream.scripts["m"] = [Script(READS), refusal(500, message="no"), Script(text("A cat."))]
        reply = stream(base, model="m", input="What is in it?", **at())
    assert [item["type"].removeprefix("openai:") for item in reply.final["output"]] == ["mcp_call", "message"]
    assert [each["role"] for each in upstream.last("m").body["messages"]] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("condensed", [True, False])
def test_before_an_answer_that_is_corrected(upstream: ScriptedUpstream, condensed: bool) -> None:
    """The second answer is asked for with the summary too, and nothing is condensed again."""
    summary = Script(text("Ada has a cat.")) if condensed else refusal(400, message="no")
    upstream.scripts["m"] = [summary, Script(text("nope")), Script(text('{"x": 1}'))]
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    settings = UpstreamSettings(url=upstream.url, options={"json_schema": "json_object"})
    with serving(Settings(upstreams=[settings])) as base:
        form = {"format": {"type": "json_schema", "name": "a", "schema": schema}}
        reply = stream(base, model="m", input=[*EARLIER, QUESTION], text=form, **at())
    assert violations(reply) == []
    assert reply.final["status"] == "completed"
    assert [item["type"] for item in reply.final["output"]] == ["compaction"] * condensed + ["message"]
    assert reply.final["output"][-1]["content"][0]["text"] == '{"x": 1}'
    for each in asked(upstream, "m")[1:]:
        assert ("Ada has a cat." in json.dumps(each.body)) == condensed
        assert ("Bonjour Ada." in json.dumps(each.body)) != condensed


# ── what can go wrong ──────────────────────────────────────────────────────────────────────────────────
FAILURES = [
    refusal(400, message="too long", code="context_length_exceeded"),
    refusal(401, message="no"),
    Script(text("Half", finish_reason="length")),
    Script(text(" ")),
    Script([chunk(content="Half"), CUT]),
    Script([b'data: {"error": {"message": "boom", "code": 500}}\n\n']),
    Script([]),
]
NAMES = ["too long", "refused", "cut short", "empty", "cut off", "error", "nothing"]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("script", FAILURES, ids=NAMES)
def test_without_a_summary_the_whole_conversation_is_sent(
    bridged: str, upstream: ScriptedUpstream, script: Script, streamed: bool
) -> None:
    upstream.scripts["m"] = [script, Script(text("Oui."))]
    ask = stream if streamed else respond
    reply = ask(bridged, model="m", input=[*EARLIER, QUESTION], **at())
    final = reply.final if streamed else reply.json
    assert [item["type"] for item in final["output"]] == ["message"]
    assert final["status"] == "completed"
    assert "Bonjour Ada." in json.dumps(asked(upstream, "m")[-1].body)
    assert "context_management: the conversation was not compacted" in reply.headers[HEADER]


@pytest.mark.parametrize("script", FAILURES, ids=NAMES)
def test_without_a_summary_a_conversation_that_does_not_fit_is_refused(
    bridged: str, upstream: ScriptedUpstream, script: Script
) -> None:
    upstream.scripts["m"] = [script, refusal(400, message="too long", code="context_length_exceeded")]
    reply = call(bridged, "POST", "/v1/responses", {"model": "m", "input": [*EARLIER, QUESTION], **at()})
    assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("end", ["completed", "failed"])
@pytest.mark.parametrize("stored", [True, False])
def test_a_summary_that_fails_late_leaves_a_stream_that_has_begun(
    bridged: str, upstream: ScriptedUpstream, stored: bool, end: str
) -> None:
    last = Script(text("Oui.")) if end == "completed" else refusal(400, message="no")
    upstream.scripts["m"] = [Script([chunk(content="Half"), 0.8, CUT]), last]
    reply = stream(bridged, model="m", input=[*EARLIER, QUESTION], store=stored, **at())
    assert reply.types[:2] == ["response.created", "response.in_progress"]
    assert reply.types[-1] == f"response.{end}"
    assert [event["sequence_number"] for event in reply.events] == list(range(len(reply.events)))
    assert all(item["type"] == "message" for item in reply.final["output"])


def test_an_answer_that_fails_after_its_compaction_keeps_that(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = [Script(text("Ada has a cat.")), refusal(400, message="no")]
    reply = stream(bridged, model="m", input=[*EARLIER, QUESTION], **at())
    assert reply.types[-1] == "response.failed"
    assert [item["type"] for item in reply.final["output"]] == ["compaction"]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([{"type": "compaction", "compact_threshold": 999}], "context_management[0].compact_threshold"),
        ([{"type": "compaction", "compact_threshold": -5}], "context_management[0].compact_threshold"),
        ([{"type": "compaction", "compact_threshold": True}], "context_management[0].compact_threshold"),
        ([{"type": "compaction", "compact_threshold": "2000"}], "context_management[0].compact_threshold"),
        ([{"type": "compaction", "compact_threshold": 2000.5}], "context_management[0].compact_threshold"),
        ([{"compact_threshold": 2000}], "context_management[0].type"),
        ([{"type": 3}], "context_management[0].type"),
        ([{"type": "other"}, {"type": "compaction"}, {"type": "compaction"}], "context_management"),
    ],
    ids=str,
)
def test_what_can_not_be_meant_is_refused(demo: str, given: Any, param: str) -> None:
    reply = call(demo, "POST", "/v1/responses", {"model": "demo", "input": "x", "context_management": given})
    assert (reply.status, reply.error["param"]) == (400, param)


def test_what_is_not_known_is_a_loss(bridged: str, condensing: ScriptedUpstream) -> None:
    management = [{"type": "forgetting"}, *at()["context_management"]]
    reply = respond(bridged, model="m", input=[*EARLIER, QUESTION], context_management=management)
    assert reply.headers[HEADER] == "context_management[0]: 'forgetting' is not known"
    assert reply.json["output"][0]["type"] == "compaction"


def test_without_a_threshold_the_model_s_context_is_one(upstream: ScriptedUpstream) -> None:
    models = {"m": Capabilities(context_window=4000, max_output_tokens=1000)}
    items = [*EARLIER, QUESTION]
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], models=models)
    with serving(settings) as base:
        upstream.scripts["m"] = [Script(text("Ada has a cat.")), Script(text("Oui."))]
        output = respond(base, model="m", input=items, **at(None)).json["output"]
        assert [item["type"] for item in output] == ["compaction", "message"]
        reply = respond(base, model="other", input=items, **at(None))
    assert [item["type"] for item in reply.json["output"]] == ["message"]
    assert "no threshold is given" in reply.headers[HEADER]


# ── upstreams that compact by themselves ───────────────────────────────────────────────────────────────
def test_an_upstream_that_has_it_gets_the_field(many: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["responses-m"] = Script(scripts.text("responses", "Oui."))
    reply = respond(many, model="responses-m", input=[*EARLIER, QUESTION], **at())
    (received,) = asked(upstream, "responses-m")
    assert received.body["context_management"] == at()["context_management"]
    assert HEADER not in reply.headers


@pytest.mark.parametrize("options", [{"supersets": False}, {"omit": ["context_management"]}], ids=str)
def test_a_responses_server_that_lacks_it_is_no_exception(
    upstream: ScriptedUpstream, options: dict[str, Any]
) -> None:
    upstream.scripts["m"] = [
        Script(scripts.text("responses", "Ada has a cat.")),
        Script(scripts.text("responses", "Oui.")),
    ]
    settings = UpstreamSettings(url=upstream.url, dialect="responses", options=options)
    with serving(Settings(upstreams=[settings])) as base:
        reply = respond(base, model="m", input=[*EARLIER, QUESTION], **at())
    assert [item["type"] for item in reply.json["output"]] == ["compaction", "message"]
    assert all("context_management" not in each.body for each in asked(upstream, "m"))
    assert HEADER not in reply.headers


def test_a_fallback_that_lacks_it_says_so(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [refusal(503, message="busy"), Script(text("Oui."))]
    upstreams = [
        UpstreamSettings(name="one", url=upstream.url, dialect="responses", models=["m"], failover=["two"]),
        UpstreamSettings(name="two", url=upstream.url, models=["second"]),
    ]
    with serving(Settings(upstreams=upstreams)) as base:
        reply = respond(base, model="m", input=[*EARLIER, QUESTION], **at())
    assert "context_management: the upstream that was asked first compacts by itself" in reply.headers[HEADER]


# ── wherever a conversation is kept ────────────────────────────────────────────────────────────────────
def test_in_a_conversation(bridged: str, condensing: ScriptedUpstream) -> None:
    conversation = call(bridged, "POST", "/v1/conversations", {"items": EARLIER}).json["id"]
    respond(bridged, model="m", input=[QUESTION], conversation=conversation, **at())
    items = call(bridged, "GET", f"/v1/conversations/{conversation}/items?order=asc").json["data"]
    assert [item["type"] for item in items] == ["message"] * 4 + ["compaction", "message"]
    condensing.scripts["m"] = Script(text("Bien."))
    respond(bridged, model="m", input="Go on", conversation=conversation, **at())
    messages = [words for _, words in texts(condensing.last("m"))]
    assert len(messages) == 5
    assert "Ada has a cat." in messages[1]


@pytest.mark.parametrize("stored", [True, False])
def test_on_a_websocket(bridged: str, condensing: ScriptedUpstream, stored: bool) -> None:
    with opened_socket(bridged) as socket:
        first = socket.turn(model="m", input=[*EARLIER, QUESTION], store=stored, **at()).final
        assert [item["type"] for item in first["output"]] == ["compaction", "message"]
        condensing.scripts["m"] = Script(text("Bien."))
        socket.turn(model="m", input="Go on", store=stored, previous_response_id=first["id"], **at())
    messages = [words for _, words in texts(condensing.last("m"))]
    assert len(messages) == 5
    assert "Ada has a cat." in messages[1]


def test_in_the_background_and_read_again(bridged: str, condensing: ScriptedUpstream) -> None:
    first = stream(bridged, model="m", input=[*EARLIER, QUESTION], background=True, **at())
    again = call(bridged, "GET", f"/v1/responses/{first.final['id']}").json
    assert again["output"] == first.final["output"]
    assert [item["type"] for item in again["output"]] == ["compaction", "message"]
    replayed = call(bridged, "GET", f"/v1/responses/{first.final['id']}?stream=true&starting_after=1")
    compacting = replayed.types.index(f"openai:{COMPACTING}")
    assert replayed.types[compacting - 1 : compacting + 2] == [
        "response.output_item.added",
        f"openai:{COMPACTING}",
        "response.output_item.done",
    ]


@pytest.mark.parametrize("at_summary", [True, False])
def test_s1_its_worker_is_killed(upstream: ScriptedUpstream, tmp_path: Path, at_summary: bool) -> None:
    """During the summary nobody has seen anything, and it is made again; what was seen after it stays."""
    hanging = Script([chunk(content="Half"), HANG])
    done = [Script(text("Ada has a cat.")), Script(text("Oui."))]
    upstream.scripts["m"] = [hanging, *done] if at_summary else [done[0], hanging, *done]
    database = tmp_path / "sessions.sqlite3"

    def settings(database: Path) -> Settings:
        return Settings(
            upstreams=[UpstreamSettings(url=upstream.url)],
            store=f"sqlite:///{database}",
            checkpoint_interval=0.05,
            lease=1.0,
        )

    body = {"model": "m", "input": [*EARLIER, QUESTION], "background": True, **at()}
    with serving(settings(database)) as base:
        response_id = call(base, "POST", "/v1/responses", body).json["id"]
        wait_until(lambda: len(asked(upstream, "m")) == (1 if at_summary else 2))
        wait_until(lambda: upstream.last("m").sent > 0)
        wait_until(
            lambda: at_summary or call(base, "GET", f"/v1/responses/{response_id}").json["output"] != []
        )
        database = left_by(base, response_id, database, 1)
    with serving(settings(database)) as base:
        final = wait_for(base, response_id, "completed" if at_summary else "failed")
        again = call(base, "GET", f"/v1/responses/{response_id}?stream=true")
    kinds = [item["type"] for item in final["output"]]
    assert kinds[0] == "compaction"
    assert kinds.count("compaction") == 1
    assert violations(again) == []


def test_cancelled_during_the_summary(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([chunk(content="Half"), HANG])
    body = {"model": "m", "input": [*EARLIER, QUESTION], "background": True, **at()}
    response_id = call(bridged, "POST", "/v1/responses", body).json["id"]
    wait_until(lambda: len(asked(upstream, "m")) == 1)
    cancelled = call(bridged, "POST", f"/v1/responses/{response_id}/cancel").json
    assert (cancelled["status"], cancelled["output"]) == ("incomplete", [])
    assert len(asked(upstream, "m")) == 1


def test_another_key_can_not_open_it(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [Script(text("Ada has a cat.")), Script(text("Oui."))]
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], api_keys=[hashed("a"), hashed("b")])
    with serving(settings) as base:
        ours, theirs = ({"authorization": f"Bearer {letter}"} for letter in "ab")
        body = {"model": "m", "input": [*EARLIER, QUESTION], **at()}
        output = call(base, "POST", "/v1/responses", body, ours).json["output"]
        taken = {"model": "m", "input": [*output, QUESTION]}
        reply = call(base, "POST", "/v1/responses", taken, theirs)
    assert (reply.status, reply.error["param"]) == (400, "input[0].encrypted_content")


def test_pictures_and_secrets_are_not_carried_along(bridged: str, condensing: ScriptedUpstream) -> None:
    """What later turns begin with is bounded, and has no secrets of tools."""
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{'A' * 70_000}"}
    tool = {"type": "mcp", "server_label": "shown", "authorization": "hidden"}
    declared = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    question = {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, picture]}
    with_tools = {"role": "user", "content": "x"}
    reply = respond(bridged, model="m", input=[declared, *EARLIER, with_tools, question], **at())
    compaction = reply.json["output"][0]
    answered = json.dumps(asked(condensing, "m")[1].body)
    assert picture["image_url"] in answered, "the answer is to the question with its picture"
    assert len(compaction["encrypted_content"]) < 60_000
    condensing.scripts["m"] = Script(text("Bien."))
    respond(bridged, model="m", input=[compaction, QUESTION])
    later = json.dumps(condensing.last("m").body)
    assert "[image]" in later
    assert "What is it?" in later
    assert "hidden" not in later


@pytest.mark.anyio
async def test_the_request_for_a_summary_takes_memory_too() -> None:
    service = compose(Settings(store="memory://"))
    for fields, times in ({}, 1), (at(), 2):
        body = {"model": "demo", "input": [*EARLIER, QUESTION], "store": False, **fields}
        received = prepared.Received(decode_request(json.dumps(body).encode()), {}, "r")
        request = await prepare(received, service)
        assert service.available.budget.bytes == times * len(request.form.outgoing.body)
        request.reservation.release()


@pytest.mark.anyio
async def test_s10_each_item_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    count = TokenEstimator.item

    def counting(self: TokenEstimator, item: Any, model: str = "") -> int:
        counted.append(1)
        return count(self, item, model)

    monkeypatch.setattr(TokenEstimator, "item", counting)
    service = compose(Settings(store="memory://"))
    talk = [{"role": role, "content": f"word {at}"} for at in range(500) for role in ("user", "assistant")]
    body = {"model": "demo", "input": [*talk, QUESTION], "store": False, **at()}
    received = prepared.Received(decode_request(json.dumps(body).encode()), {}, "r")
    request = await prepare(received, service)
    assert request.is_due
    assert len(counted) == len(talk) + 1


@pytest.mark.parametrize("begun", [False, True], ids=["at once", "within the summary"])
def test_s7_why_nothing_was_condensed_is_said_without_the_upstreams_key(
    upstream: ScriptedUpstream, logs: StringIO, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    key = "sk-operator-0123456789abcdef"
    monkeypatch.setenv("UPSTREAM_KEY", key)
    error = frame(choices=[], error={"code": 503, "message": f"The account of {key} is busy"})
    summary = [chunk(content="Ada"), error] if begun else [error]
    upstream.scripts["m"] = [Script(summary), Script(text("Oui."))]
    settings = UpstreamSettings(url=upstream.url, api_key="${UPSTREAM_KEY}", retries=Retries(times=0))
    with serving(Settings(upstreams=[settings])) as base:
        reply = respond(base, model="m", input=[*EARLIER, QUESTION], **at())
    assert output_text(reply.json) == "Oui."
    lines = [json.loads(line) for line in logs.getvalue().splitlines()]
    why = next(each for each in lines if each["event"] == "context.not_compacted")["reason"]
    assert why == "The account of [key] is busy"
    assert key not in json.dumps(reply.headers) + reply.body.decode() + logs.getvalue()


def test_the_log_says_it_without_content(bridged: str, condensing: ScriptedUpstream, logs: StringIO) -> None:
    respond(bridged, model="m", input=[*EARLIER, QUESTION], **at())
    condensing.scripts["m"] = [refusal(400, message="no"), Script(text("Oui."))]
    respond(bridged, model="m", input=[*EARLIER, QUESTION], **at())
    lines = [json.loads(line) for line in logs.getvalue().splitlines()]
    done = next(each for each in lines if each["event"] == "context.compacted")
    assert (done["items"], done["tokens"] > 1000) == (2, True)
    assert next(each for each in lines if each["event"] == "context.not_compacted")["reason"]
    assert "Ada" not in logs.getvalue()
