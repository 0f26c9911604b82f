"""An answer that claims completion has the format that was asked for, whatever the upstream makes of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.requests.answer_format import ANSWER, json_in
from openresponses_server.requests.formatted_stream import MOST_JUDGED
from openresponses_server.settings import FunctionSettings, Limits, Settings, UpstreamSettings
from tests.support import dialect_scripts as scripts
from tests.support.serving import Reply, call, respond, response_of, serving, stream, wait_for
from tests.support.sockets import opened_socket
from tests.support.upstream import CUT, DONE, Script, ScriptedUpstream, chunk, frame, refusal, text
from tests.support.upstream import call as tool_call

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}
LOOSE = FORMAT | {"strict": False}
GOOD = '{"city": "Oslo"}'
BAD = '{"town": "Oslo"}'
LOOK = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
WAYS = {"native": "json_schema", "instructed": "json_object", "function": "function"}


def of_each_way(upstream: ScriptedUpstream) -> list[UpstreamSettings]:
    return [
        UpstreamSettings(name=name, url=upstream.url, options={"json_schema": value})
        for name, value in WAYS.items()
    ]


@pytest.fixture(scope="module")
def served(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server with an upstream of each way and dialect; a model's name begins with the upstream's."""
    by_dialect = [
        UpstreamSettings(name=name, url=upstream.url, dialect=name)
        for name in ("anthropic", "gemini", "responses")
    ]
    with serving(Settings(upstreams=[*of_each_way(upstream), *by_dialect])) as base:
        yield base


def said(*answers: str) -> list[Script]:
    """Answers in turn, in small pieces."""
    return [Script(text(*(each[at : at + 3] for at in range(0, len(each), 3)))) for each in answers]


def called(name: str, arguments: str, end: str = "tool_calls") -> Script:
    pieces = [tool_call(0, arguments[at : at + 4]) for at in range(0, len(arguments), 4)]
    return Script([tool_call(0, "", name, "call_1"), *pieces, chunk(end), DONE])


def output_text(response: dict[str, Any]) -> str:
    parts = [part for item in response["output"] for part in item.get("content") or ()]
    return "".join(part.get("text", "") for part in parts)


def asked(upstream: ScriptedUpstream, model: str) -> list[dict[str, Any]]:
    return [each.body for each in upstream.received if each.model == model]


@pytest.fixture(autouse=True)
def forgets(upstream: ScriptedUpstream) -> None:
    upstream.received.clear()


def losses(reply: Reply) -> str:
    return reply.headers.get("openresponses-losses", "")


# ── one correction ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("strict", [FORMAT, LOOSE])
def test_an_answer_that_does_not_fit_is_asked_for_once_more(
    served: str, upstream: ScriptedUpstream, streamed: bool, strict: dict[str, Any]
) -> None:
    upstream.scripts["instructed/m"] = upstream.scripts["m"] = said(BAD, GOOD)
    ask = stream if streamed else respond
    reply = ask(served, model="instructed/m", text={"format": strict})
    response = reply.final if streamed else reply.json
    assert (response["status"], output_text(response)) == ("completed", GOOD)
    assert "text.format: instructed" in losses(reply)
    first, second = asked(upstream, "m")
    assert json.dumps(SCHEMA) in first["messages"][0]["content"]
    assert [each["role"] for each in second["messages"]] == ["system", "user", "assistant", "user"]
    assert second["messages"][2]["content"] == BAD
    assert "does not fit the schema at $" in second["messages"][3]["content"]
    # both were paid for
    tokens = [3 + 6, 6 + 6]
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (6, sum(tokens) - 9)
    # what is stored is what was sent
    assert output_text(response_of(served, response["id"])) == GOOD


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("answer", [BAD, "Oslo", " ", "```\n", '{"city": "Os', "[]", '{"city": NaN}'])
def test_a_second_answer_that_does_not_fit_fails(
    served: str, upstream: ScriptedUpstream, streamed: bool, answer: str
) -> None:
    upstream.scripts["m"] = said(answer)
    ask = stream if streamed else respond
    reply = ask(served, model="instructed/m", text={"format": FORMAT})
    response = reply.final if streamed else reply.json
    assert (response["status"], response["error"]["code"]) == ("failed", "model_error")
    assert len(upstream.received) == 2
    assert output_text(response) == answer


def test_held_text_comes_at_once_and_reasoning_as_it_is_made(served: str, upstream: ScriptedUpstream) -> None:
    steps = [chunk(reasoning_content="Hm."), *text('{"city"', ': "Oslo"}')]
    upstream.scripts["m"] = Script(steps)
    reply = stream(served, model="instructed/m", text={"format": FORMAT})
    deltas = [event["delta"] for event in reply.events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == GOOD
    assert [item["type"] for item in reply.final["output"]] == ["reasoning", "message"]


@pytest.mark.parametrize(
    "answer",
    [
        f"```json\n{GOOD}\n```",
        f"Here you are:\n\n{GOOD}\n\nEnjoy!",
        f"Sure.\n```json\n{GOOD}\n```\nThat is it.",
        f"  {GOOD}\n",
    ],
)
def test_fences_and_words_around_are_stripped(served: str, upstream: ScriptedUpstream, answer: str) -> None:
    upstream.scripts["m"] = said(answer)
    response = stream(served, model="instructed/m", text={"format": FORMAT}).final
    assert (response["status"], output_text(response)) == ("completed", GOOD)
    assert len(upstream.received) == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{}", "{}"),
        (" 5 ", "5"),
        ('"a {b} c"', '"a {b} c"'),
        ("a [1, {}] b", "[1, {}]"),
        ('{"a": "```"}', '{"a": "```"}'),
        ("```\n[1]", "[1]"),
        ("no {x} {}", "no {x} {}"),
        ("", ""),
        ("}{", "}{"),
    ],
)
def test_json_in_a_text(text: str, found: str) -> None:
    assert json_in(text) == found


# ── by a function ──────────────────────────────────────────────────────────────────────────────────────
def test_a_function_that_the_model_must_call_gives_the_answer(
    served: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = called(ANSWER, GOOD)
    reply = stream(served, model="function/m", text={"format": FORMAT})
    (item,) = reply.final["output"]
    assert (reply.final["status"], item["type"], output_text(reply.final)) == ("completed", "message", GOOD)
    deltas = [event["delta"] for event in reply.events if event["type"] == "response.output_text.delta"]
    assert len(deltas) == 4  # as they came
    (body,) = asked(upstream, "m")
    function = body["tools"][0]["function"]
    assert (function["parameters"], function["strict"]) == (SCHEMA, True)
    assert body["tool_choice"] == {"type": "function", "function": {"name": ANSWER}}
    assert "response_format" not in body
    assert "text.format: by a forced function" in losses(reply)
    assert reply.final["tools"] == []
    assert reply.final["tool_choice"] == "auto"


def test_what_a_function_was_given_is_judged_and_corrected_where_it_was_not_sent(
    served: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = [called(ANSWER, BAD), *said(GOOD)]
    response = respond(served, model="function/m", text={"format": FORMAT}).json
    assert (response["status"], output_text(response)) == ("completed", GOOD)
    assert json.dumps(SCHEMA) in json.dumps(asked(upstream, "m")[1]["messages"]).replace('\\"', '"')
    upstream.scripts["m"] = [called(ANSWER, BAD), *said(GOOD)]
    response = stream(served, model="function/m", text={"format": FORMAT}).final
    assert (response["status"], output_text(response)) == ("failed", BAD)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_model_that_does_not_call_the_function_is_corrected(
    served: str, upstream: ScriptedUpstream, streamed: bool
) -> None:
    upstream.scripts["m"] = said("Oslo, of course.", GOOD)
    ask = stream if streamed else respond
    reply = ask(served, model="function/m", text={"format": FORMAT})
    response = reply.final if streamed else reply.json
    assert (response["status"], output_text(response)) == ("completed", GOOD)
    assert "tools" not in asked(upstream, "m")[1]


def test_words_before_the_function_are_left_out(served: str, upstream: ScriptedUpstream) -> None:
    steps = [chunk(content="Let me see."), *called(ANSWER, GOOD).steps]
    upstream.scripts["m"] = Script(steps)
    response = stream(served, model="function/m", text={"format": FORMAT}).final
    assert (response["status"], output_text(response)) == ("completed", GOOD)


def test_a_function_that_was_cut_is_incomplete(served: str, upstream: ScriptedUpstream) -> None:
    for ask in (
        lambda: stream(served, model="function/m", text={"format": FORMAT}).final,
        lambda: respond(served, model="function/m", text={"format": FORMAT}).json,
    ):
        upstream.scripts["m"] = called(ANSWER, '{"city": "Os', end="length")
        response = ask()
        assert (response["status"], output_text(response)) == ("incomplete", '{"city": "Os')
        assert response["incomplete_details"]["reason"] == "max_output_tokens"


@pytest.mark.parametrize(
    "other",
    [
        {"tools": LOOK},
        {"reasoning": {"effort": "high"}},
        {"stop": "x"},
        {"text": {"format": FORMAT | {"schema": {"anyOf": [SCHEMA]}}}},
    ],
    ids=["tools", "reasoning", "stop", "no object"],
)
def test_a_function_is_forced_only_where_nothing_else_is_asked(
    served: str, upstream: ScriptedUpstream, other: dict[str, Any]
) -> None:
    upstream.scripts["m"] = said(GOOD)
    reply = stream(served, model="function/m", **({"text": {"format": FORMAT}} | other))
    assert reply.final["status"] == "completed"
    assert "instructed" in losses(reply)
    (body,) = asked(upstream, "m")
    assert body.get("tool_choice") in (None, "auto")


# ── natively ───────────────────────────────────────────────────────────────────────────────────────────
def test_a_native_answer_is_judged_if_it_is_to_be_strict(served: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = said(BAD, GOOD)
    response = respond(served, model="native/m", text={"format": FORMAT}).json
    assert (response["status"], output_text(response)) == ("completed", GOOD)
    second = asked(upstream, "m")[1]
    assert second["response_format"]["json_schema"]["schema"] == SCHEMA
    assert json.dumps(SCHEMA) in second["messages"][-1]["content"]
    # streamed text can't be taken back
    upstream.scripts["m"] = said(BAD, GOOD)
    reply = stream(served, model="native/m", text={"format": FORMAT})
    assert (reply.final["status"], reply.final["error"]["code"]) == ("failed", "model_error")
    assert reply.types.count("response.output_text.delta") == 6
    # else it is the upstream's
    upstream.scripts["m"] = said(BAD)
    assert stream(served, model="native/m", text={"format": LOOSE}).final["status"] == "completed"


def test_a_native_answer_streams_without_its_fence(served: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = said(f"```json\n{GOOD}\n```")
    reply = stream(served, model="native/m", text={"format": FORMAT})
    assert (reply.final["status"], output_text(reply.final)) == ("completed", GOOD)
    assert losses(reply) == ""


@pytest.mark.parametrize(("answer", "status"), [("[1]", "completed"), ("{}", "completed"), ("No", "failed")])
def test_json_mode_gives_json(served: str, upstream: ScriptedUpstream, answer: str, status: str) -> None:
    upstream.scripts["m"] = said(answer)
    final = stream(served, model="native/m", text={"format": {"type": "json_object"}}).final
    assert final["status"] == status


def test_patterns_that_cant_be_matched_here_are_left_to_a_native_upstream(
    served: str, upstream: ScriptedUpstream
) -> None:
    odd = FORMAT | {"schema": SCHEMA | {"properties": {"city": {"type": "string", "pattern": "(?<=a{1,2}"}}}}
    upstream.scripts["m"] = said(GOOD)
    assert respond(served, model="native/m", text={"format": odd}).json["status"] == "completed"
    refused = respond(served, model="instructed/m", text={"format": odd})
    assert (refused.status, refused.error["param"]) == (400, "text.format.schema")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("native/m", "Invalid schema for response_format 'place': 'additionalProperties' is required"),
        ("native/m", "This model does not support response format `json_schema`"),
        ("function/m", "Thinking mode does not support this tool_choice"),
    ],
)
def test_a_format_that_the_upstream_refuses_is_instructed(
    served: str, upstream: ScriptedUpstream, model: str, message: str
) -> None:
    upstream.scripts["m"] = [refusal(400, message=message), *said(GOOD)]
    reply = stream(served, model=model, text={"format": FORMAT})
    assert (reply.final["status"], output_text(reply.final)) == ("completed", GOOD)
    assert "text.format: instructed" in losses(reply)
    second = asked(upstream, "m")[1]
    assert not {"response_format", "tool_choice"} & second.keys()


def test_another_refusal_is_passed_on(served: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = refusal(400, message="temperature is too high")
    assert respond(served, model="native/m", text={"format": FORMAT}).status == 400
    assert len(upstream.received) == 1


def test_a_fallback_answers_in_its_own_way(upstream: ScriptedUpstream) -> None:
    first = UpstreamSettings(name="first", url=upstream.url, failover=["second/n"])
    options = {"json_schema": "json_object"}
    second = UpstreamSettings(name="second", url=upstream.url, options=options, models=["n"])
    with serving(Settings(upstreams=[first, second])) as base:
        upstream.scripts["m"] = refusal(503, message="down")
        upstream.scripts["n"] = said(BAD, GOOD)
        final = stream(base, model="m", text={"format": LOOSE}).final
    assert (final["status"], output_text(final)) == ("completed", GOOD)


# ── truthful endings ───────────────────────────────────────────────────────────────────────────────────
def test_calls_refusals_and_cut_answers_keep_their_endings(served: str, upstream: ScriptedUpstream) -> None:
    for ask in (stream, respond):

        def made(script: Script, ask: Any = ask) -> dict[str, Any]:
            upstream.scripts["m"] = script
            reply = ask(served, model="instructed/m", tools=LOOK, text={"format": FORMAT})
            response: dict[str, Any] = reply.final if ask is stream else reply.json
            return response

        calling = made(Script([chunk(content="I look."), *called("look", "{}").steps]))
        assert (calling["status"], [item["type"] for item in calling["output"]]) == (
            "completed",
            ["function_call"],
        )
        refusing = made(Script([chunk(refusal="No."), chunk("stop"), DONE]))
        assert refusing["status"] == "completed"
        cut = made(Script(text('{"ci', finish_reason="length")))
        assert (cut["status"], output_text(cut)) == ("incomplete", '{"ci')
        filtered = made(Script(text('{"ci', finish_reason="content_filter")))
        assert filtered["incomplete_details"]["reason"] == "content_filter"
    assert len(upstream.received) == 8


def test_an_upstream_that_breaks_off_is_not_corrected(served: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([chunk(content='{"city"'), CUT])
    final = stream(served, model="instructed/m", text={"format": FORMAT}).final
    assert final["status"] == "failed"
    assert len(upstream.received) == 1
    # nor is what breaks off the correction the answer
    upstream.scripts["m"] = [*said(BAD), Script([chunk(content='{"city"'), CUT])]
    final = stream(served, model="instructed/m", text={"format": FORMAT}).final
    assert final["status"] == "failed"
    upstream.scripts["m"] = [*said(BAD), refusal(500, message="down")]
    assert respond(served, model="instructed/m", text={"format": FORMAT}).status in (500, 502)


def test_an_answer_that_is_too_long_to_be_judged_fails(served: str, upstream: ScriptedUpstream) -> None:
    half = chunk(content=" " * (MOST_JUDGED // 2 + 1))
    for model in ("instructed/m", "native/m"):
        upstream.scripts["m"] = Script([half, half, chunk(content=GOOD), chunk("stop"), DONE])
        assert stream(served, model=model, text={"format": FORMAT}).final["status"] == "failed"
        assert len(upstream.received) == 1
        upstream.received.clear()


HOSTILE = {
    "a depth bomb": "[" * 100_000,
    "a closed depth bomb": "[" * 20_000 + "]" * 20_000,
    "a long number": '{"city": ' + "9" * 500_000 + "}",
    "a number out of range": '{"city": 1e999999}',
    "not a number": '{"city": NaN}',
    "half a pair in another type": '{"city": ["\\ud800"]}',
    "many fences": "```\n" * 50_000,
    "many brackets": "{[" * 50_000 + "}]" * 50_000,
    "the last of two keys": '{"city": "Oslo", "city": 7}',
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_hostile_answers_never_complete(served: str, upstream: ScriptedUpstream, answer: str) -> None:
    upstream.scripts["m"] = Script(text(answer))
    assert stream(served, model="instructed/m", text={"format": FORMAT}).final["status"] == "failed"


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    for _ in range(levels):
        schema = schema | {"properties": {"a": schema}}
    return schema


def doubling(times: int) -> dict[str, Any]:
    ways: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2}]}
        for n in range(times)
    }
    return {"type": "object", "$ref": "#/$defs/d0", "$defs": ways | {f"d{times}": {"type": "object"}}}


SCHEMAS: dict[str, tuple[dict[str, Any], bool]] = {  # (schema, whether it can be asked for)
    "as deep as may be": (deep(60), True),
    "of itself": ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["b"]}, True),
    "doubled ten times": (doubling(10), True),
    "patterns that backtrack": (
        SCHEMA | {"properties": {"city": {"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}}},
        True,
    ),
    "ten thousand words": (SCHEMA | {"properties": {"city": {"enum": [str(n) for n in range(9_000)]}}}, True),
    "from elsewhere": ({"type": "object", "$ref": "http://169.254.169.254/schema"}, False),
    "from a file": ({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}, False),
    "by a dynamic reference": (SCHEMA | {"$dynamicRef": "http://127.0.0.1/x"}, False),
}


@pytest.mark.parametrize("model", ["instructed/m", "function/m", "native/m", "anthropic/claude-opus-4-5"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_hostile_schemas(served: str, upstream: ScriptedUpstream, name: str, model: str) -> None:
    schema, usable = SCHEMAS[name]
    upstream.scripts["m"] = said('{"city": "' + "a" * 5_000 + '"}')
    upstream.scripts["claude-opus-4-5"] = Script(scripts.text("anthropic", '{"town": 1}'))
    reply = respond(served, model=model, text={"format": FORMAT | {"schema": schema}})
    if usable:
        assert reply.status == 200, reply.body
        assert reply.json["status"] == ("completed" if name == "doubled ten times" else "failed")
    else:
        assert (reply.status, reply.error["param"]) == (400, "text.format.schema")
        assert upstream.received == []


def test_what_takes_too_long_to_judge_is_not_asked_for_again(upstream: ScriptedUpstream) -> None:
    each = [{"properties": {"a": {"$ref": "#/$defs/n"}}, "required": [name]} for name in "bc"]
    schema = {"type": "object", "$ref": "#/$defs/n", "$defs": {"n": {"anyOf": each}}}
    upstream.scripts["m"] = said('{"a":' * 40 + "{}" + "}" * 40)
    limits = Limits(schema_seconds=0.2)
    with serving(Settings(upstreams=of_each_way(upstream), limits=limits)) as base:
        for way in ("native", "instructed"):
            response = respond(base, model=f"{way}/m", text={"format": FORMAT | {"schema": schema}}).json
            # the upstream that enforces it has the last word
            assert response["status"] == ("completed" if way == "native" else "failed")
    assert len(upstream.received) == 2


# ── between rounds ─────────────────────────────────────────────────────────────────────────────────────
MODULE = '''
from openresponses_agent.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool(tags={"read-only"})
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b
'''


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_the_last_round_is_what_is_judged(
    upstream: ScriptedUpstream, tmp_path: Path, way: str, streamed: bool
) -> None:
    path = tmp_path / "tools.py"
    path.write_text(MODULE)
    ask = stream if streamed else respond
    upstreams = of_each_way(upstream)
    with serving(Settings(upstreams=upstreams, functions=[FunctionSettings(module=str(path))])) as base:
        round_ = called("add", '{"a":1,"b":2}')
        talks = Script([chunk(content="I add." if way != "native" or not streamed else ""), *round_.steps])
        upstream.scripts["m"] = [talks, *said(BAD if way != "native" or not streamed else GOOD, GOOD)]
        reply = ask(base, model=f"{way}/m", text={"format": FORMAT})
        response = reply.final if streamed else reply.json
        assert (response["status"], output_text(response)) == ("completed", GOOD)
        assert [item["type"].rpartition(":")[2] for item in response["output"]] == ["mcp_call", "message"]
        # a correction may call again
        upstream.scripts["m"] = [*said(BAD), round_, *said(GOOD)]
        if way != "native" or not streamed:
            reply = ask(base, model=f"{way}/m", text={"format": FORMAT})
            response = reply.final if streamed else reply.json
            assert (response["status"], output_text(response)) == ("completed", GOOD)


# ── everywhere ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "responses"])
def test_over_every_dialect(served: str, upstream: ScriptedUpstream, dialect: str, streamed: bool) -> None:
    model = "claude-sonnet-4-5" if dialect == "anthropic" else "m"
    pieces = [GOOD[:5], GOOD[5:]]
    ask = stream if streamed else respond

    def status(*answers: list[str]) -> tuple[str, str]:
        upstream.scripts[model] = [Script(scripts.text(dialect, *each)) for each in answers]
        reply = ask(served, model=f"{dialect}/{model}", text={"format": FORMAT})
        response = reply.final if streamed else reply.json
        return response["status"], output_text(response)

    assert status(pieces) == ("completed", GOOD)
    assert status([BAD[:5], BAD[5:]], pieces) == (("failed", BAD) if streamed else ("completed", GOOD))


@pytest.mark.parametrize("streamed", [True, False])
def test_an_older_claude_calls_a_function(served: str, upstream: ScriptedUpstream, streamed: bool) -> None:
    model = "claude-sonnet-4"
    upstream.scripts[model] = Script(scripts.call("anthropic", ("toolu_1", ANSWER, GOOD)))
    ask = stream if streamed else respond
    reply = ask(served, model=f"anthropic/{model}", text={"format": FORMAT})
    response = reply.final if streamed else reply.json
    assert (response["status"], output_text(response)) == ("completed", GOOD)
    (body,) = asked(upstream, model)
    assert body["tool_choice"] == {"type": "tool", "name": ANSWER}
    assert body["tools"][0]["input_schema"] == SCHEMA


def bodies(streamed: bool) -> dict[str, tuple[str, dict[str, Any]]]:
    said_ = [{"role": "user", "content": "Where?"}]
    chat = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    claude = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    gemini = {
        "contents": [{"role": "user", "parts": [{"text": "Where?"}]}],
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
    }
    verb = "streamGenerateContent?alt=sse" if streamed else "generateContent"
    model = {"model": "instructed/m", "stream": streamed}
    return {
        "chat": ("/v1/chat/completions", model | {"messages": said_, "response_format": chat}),
        "messages": ("/v1/messages", model | {"max_tokens": 99, "messages": said_} | claude),
        "gemini": (f"/v1beta/models/instructed%2Fm:{verb}", gemini),
    }


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("surface", ["chat", "messages", "gemini"])
def test_for_clients_of_every_surface(
    served: str, upstream: ScriptedUpstream, surface: str, streamed: bool
) -> None:
    path, body = bodies(streamed)[surface]
    upstream.scripts["m"] = said(BAD, f"Here: {GOOD}")
    reply = call(served, "POST", path, body)
    assert reply.status == 200
    assert b"Oslo" in reply.body
    assert b"town" not in reply.body
    assert b"Here" not in reply.body
    upstream.scripts["m"] = said(BAD)
    failed = call(served, "POST", path, body)
    assert b"error" in failed.body
    assert streamed or failed.status >= 400
    assert not any(each in failed.body for each in (b'"end_turn"', b'"STOP"', b'"finish_reason":"stop"'))


def test_on_a_websocket(served: str, upstream: ScriptedUpstream) -> None:
    with opened_socket(served) as socket:
        upstream.scripts["m"] = said(BAD, GOOD)
        turn = socket.turn(model="instructed/m", input="x", text={"format": FORMAT})
        assert (turn.final["status"], turn.text) == ("completed", GOOD)
        upstream.scripts["m"] = said(GOOD)
        turn = socket.turn(model="native/m", input="x", text={"format": FORMAT})
        assert turn.types.count("response.output_text.delta") == 6  # as they came


def test_in_the_background_and_resumed(served: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = said(BAD, GOOD)
    begun = respond(served, model="instructed/m", text={"format": FORMAT}, background=True).json
    response = wait_for(served, begun["id"], "completed", "failed")
    assert (response["status"], output_text(response)) == ("completed", GOOD)
    upstream.scripts["m"] = said(BAD, GOOD)
    whole = stream(served, model="instructed/m", text={"format": FORMAT}, background=True)
    for at in range(len(whole.events) - 1):
        path = f"/v1/responses/{whole.final['id']}?stream=true&starting_after={at}"
        assert call(served, "GET", path).events == whole.events[at + 1 :]


@pytest.mark.parametrize("takes_n", [True, False])
def test_each_of_several_choices_is_corrected(upstream: ScriptedUpstream, takes_n: bool) -> None:
    options = {"json_schema": "json_object", "takes_n": takes_n}
    shape = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 2, "response_format": shape}

    def one(index: int, answer: str) -> bytes:
        return frame(choices=[{"index": index, "delta": {"content": answer}, "finish_reason": "stop"}])

    both = Script([one(0, GOOD), one(1, BAD), DONE])
    upstream.scripts["m"] = [both, *said(GOOD)] if takes_n else [*said(BAD), *said(GOOD), *said(GOOD)]
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url, options=options)])) as base:
        answer = call(base, "POST", "/v1/chat/completions", body).json
    assert [each["message"]["content"] for each in answer["choices"]] == [GOOD, GOOD]
