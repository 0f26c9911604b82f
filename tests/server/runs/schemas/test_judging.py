"""Answers are judged where no schema holds up the server, and nothing of them shows in messages or logs."""

import asyncio
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import structlog

from openresponses_bridge.schemas.checking import check_schema
from openresponses_server.isolated import IsolatedProcess, isolated_command
from openresponses_server.runs.schema_judge import objection
from openresponses_server.runs.schema_workers import ANY_OBJECT, SchemaCheck, SchemaJudge
from openresponses_server.settings import Limits, Settings, UpstreamSettings
from tests.support.serving import call, respond, serving, stream
from tests.support.upstream import Script, ScriptedUpstream, text
from tests.support.waiting import NEVER, until

SECRET = "the-model-s-own-words"


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def alternatives() -> dict[str, Any]:
    """A schema by which each level of nesting is judged twice, so that its cost doubles with each."""
    each = [{"properties": {"a": {"$ref": "#/$defs/n"}}, "required": [name]} for name in "bc"]
    return {"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": each}}}


def doubling(times: int) -> dict[str, Any]:
    """A schema of `times` definitions, each of which refers twice to the next."""
    ways: dict[str, Any] = {f"d{times}": {"type": "object"}}
    for n in range(times):
        next_one = {"$ref": f"#/$defs/d{n + 1}"}
        ways[f"d{n}"] = {"allOf": [next_one, {"minProperties": 0} | next_one]}
    return {"$ref": "#/$defs/d0", "$defs": ways}


BOMB = (alternatives(), json.dumps(nested(40)))

# ── one answer ───────────────────────────────────────────────────────────────────────────────────────────
PLACES: dict[str, tuple[dict[str, Any], Any, str]] = {
    "a type": ({"properties": {"city": {"type": "string"}}}, {"city": [SECRET]}, "$.city: violates 'type'"),
    "a key of the model": ({"additionalProperties": {"type": "null"}}, {SECRET: 1}, "$.*: violates 'type'"),
    "a key too many": ({"additionalProperties": False}, {SECRET: 1}, "$: violates 'additionalProperties'"),
    "an index": ({"items": {"const": 1}}, [1, SECRET], "$[1]: violates 'const'"),
    "behind a reference": (
        {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"properties": {"b": {"maxLength": 2}}}}},
        {"a": {"b": SECRET}},
        "$.a.b: violates 'maxLength'",
    ),
    "alternatives": ({"anyOf": [{"type": "null"}, {"type": "number"}]}, SECRET, "$: violates 'anyOf'"),
    "a pattern": ({"pattern": "^[0-9]+$"}, SECRET, "$: violates 'pattern'"),
    "a pattern that is not one": ({"pattern": "["}, SECRET, "a pattern that can't be used"),
    "half a surrogate pair": ({"const": 1}, "\ud800", "could not be checked"),
    "in draft 4": (
        {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3, "exclusiveMaximum": True},
        3,
        "$: violates 'exclusiveMaximum'",
    ),
}


@pytest.mark.parametrize(("schema", "value", "why"), PLACES.values(), ids=PLACES)
def test_objection_names_place_and_keyword_only(schema: dict[str, Any], value: Any, why: str) -> None:
    check_schema(schema, "p", most_bytes=10**5, most_nodes=10**4)
    reason = objection(schema, json.dumps(value))
    assert reason is not None
    assert why in reason
    assert SECRET not in reason


def test_text_that_is_not_json_is_not_quoted() -> None:
    reason = objection(ANY_OBJECT, '{"a": ' + SECRET)
    assert reason is not None
    assert reason.startswith("The answer is not JSON")
    assert SECRET not in reason


CHEAP = {  # what stopped the server when patterns backtracked and lists were compared pair by pair
    "unique items": ({"uniqueItems": True}, [{"a": number} for number in range(4000)]),
    "a pattern that backtracks": ({"pattern": "^(a|a)*(a+)+$"}, "a" * 5000 + "b"),
    "one that looks ahead": ({"pattern": "^(?=a)(?:(a+)+)+\\1$"}, "a" * 200 + "b"),
    "references that double": (doubling(12), {}),
    "a circle": ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#"}}}, {}),
}


@pytest.mark.parametrize(("schema", "value"), CHEAP.values(), ids=CHEAP)
def test_cost_that_the_engine_does_not_have(schema: dict[str, Any], value: Any) -> None:
    objection(schema, json.dumps(value))


# ── in processes ─────────────────────────────────────────────────────────────────────────────────────────
def judged(seconds: float, *questions: tuple[dict[str, Any], str]) -> list[str | None]:
    async def ask() -> list[str | None]:
        with closing(SchemaJudge(seconds)) as judge:
            return await asyncio.gather(*(judge.objection(SchemaCheck(*each)) for each in questions))

    return asyncio.run(ask())


def test_deadline_stops_the_work_and_the_next_answer_is_judged() -> None:
    fine = ({"type": "object", "required": ["a"]}, '{"a": 1}')
    wrong = ({"type": "object", "required": ["a"]}, "{}")
    late, *others = judged(0.5, BOMB, fine, wrong, BOMB, fine)
    assert late is not None
    assert "could not be checked against the schema within 0.5 seconds" in late
    assert others == [None, "The answer does not fit the schema at $: violates 'required'", late, None]


def test_slow_schemas_of_one_key_leave_a_process_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list[bytes]()

    def is_bomb(line: bytes) -> bool:
        return json.loads(line)[0] == BOMB[0]

    class Process:
        """It judges a bomb until another's answer has been judged."""

        def __init__(self, _module: str) -> None: ...

        async def ask(self, line: bytes) -> bytes:
            lines.append(line)
            if is_bomb(line):
                await is_answered.wait()
            return b"null"

        def end(self) -> None: ...

    async def ask() -> list[str | None]:
        with closing(SchemaJudge(NEVER)) as judge:
            bombs = [
                asyncio.create_task(judge.objection(SchemaCheck(*BOMB), owner="bomber")) for _ in range(4)
            ]
            await until(lambda: any(map(is_bomb, lines)))
            assert await judge.objection(SchemaCheck({"const": 1}, "1"), "other") is None
            assert not any(bomb.done() for bomb in bombs)
            is_answered.set()
            return await asyncio.gather(*bombs)

    monkeypatch.setattr("openresponses_server.runs.schema_workers.IsolatedProcess", Process)
    is_answered = asyncio.Event()
    assert asyncio.run(ask()) == [None] * 4


UNUSABLE = [{"pattern": "["}, {"properties": {"a": {"patternProperties": {"(": {}}}}}]


def test_patterns_are_read_before_a_model_is_asked() -> None:
    async def ask() -> list[str | None]:
        with closing(SchemaJudge(5)) as judge:
            return [await judge.unusable(schema) for schema in [*UNUSABLE, {"pattern": "^a+$"}]]

    why = "it holds a pattern that is not a regular expression, or one that is too large"
    assert asyncio.run(ask()) == [why, why, None]


def test_schema_without_patterns_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openresponses_server.runs.schema_workers.IsolatedProcess", None)
    assert asyncio.run(SchemaJudge(1).unusable({"properties": {"a": {"type": "string"}}})) is None


def test_nothing_of_an_answer_is_logged() -> None:
    with structlog.testing.capture_logs() as lines:
        judged(0.3, ({"const": 1}, json.dumps(SECRET)), (BOMB[0], BOMB[1].replace("{}", f'"{SECRET}"')))
    assert [line["event"] for line in lines] == ["schema.too_slow"]
    assert SECRET not in str(lines)


def test_any_object_needs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openresponses_server.runs.schema_workers.IsolatedProcess", None)
    assert judged(1, (ANY_OBJECT, "{}"), (ANY_OBJECT, "[]")) == [
        None,
        "The answer does not fit the schema at $: violates 'type'",
    ]


def test_what_ends_the_process_is_a_failure_of_the_response_and_the_next_has_another() -> None:
    class Mortal(IsolatedProcess):
        async def ask(self, line: bytes) -> bytes:
            if SECRET.encode() in line:
                self._process.kill()
            return await super().ask(line)

    with pytest.MonkeyPatch.context() as patched, structlog.testing.capture_logs() as lines:
        patched.setattr("openresponses_server.runs.schema_workers.IsolatedProcess", Mortal)
        questions = (
            ({"const": 1}, json.dumps(SECRET)),
            ({"const": 1}, "1"),
            ({"const": "\ud800"}, '"\\ud800"'),
        )
        reason, *others = judged(5, *questions)
    assert reason == "The answer could not be checked against the schema: that takes too much."
    assert others[0] is None
    assert "could not be checked" in str(others[1])
    assert [line["event"] for line in lines] == ["schema.worker_failed"]


def test_s8_a_process_that_died_behind_one_key_fails_no_other() -> None:
    """It took too much memory for one key, say, and the system ended it when that key had its answer."""

    async def ask() -> list[str | None]:
        with closing(SchemaJudge(60)) as judge:
            assert await judge.objection(SchemaCheck({"const": 1}, "1"), "me") is None
            (process,) = judge._idle
            process._process.kill()
            process._process.wait()
            return [await judge.objection(SchemaCheck({"const": 1}, each), "you") for each in ("1", "2")]

    reasons = asyncio.run(ask())
    assert reasons == [None, "The answer does not fit the schema at $: violates 'const'"]


def test_processes_are_kept_and_end_with_the_judge() -> None:
    async def ask() -> list[IsolatedProcess]:
        with closing(SchemaJudge(5)) as judge:
            for _ in range(3):
                assert await judge.objection(SchemaCheck({"const": 1}, "1")) is None
            (process,) = judge._idle
            assert process._process.poll() is None
        return [process]

    (process,) = asyncio.run(ask())
    assert process._process.returncode in (0, -signal.SIGKILL)  # its input ends before it is killed


def asked_alone(*lines: Any) -> subprocess.CompletedProcess[bytes]:
    """A process that is asked by whoever is gone then."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        ours.shutdown(socket.SHUT_WR)
        done = subprocess.run(isolated_command("openresponses_server.runs.schema_judge"), stdin=theirs)
        ours.setblocking(False)
        done.stdout = ours.recv(1000) if done.returncode == 0 else b""
    return done


def test_process_whose_server_is_gone_ends_by_itself() -> None:
    assert asked_alone([BOMB[0], -2, BOMB[1]]).returncode < 0  # by the signal for too much time


def test_judging_within_the_limits() -> None:
    done = asked_alone([{}, 9, "1"], [{"pattern": "["}, 9, None])
    assert (done.returncode, [json.loads(line) for line in done.stdout.splitlines()]) == (
        0,
        [None, "it holds a pattern that is not a regular expression, or one that is too large"],
    )


# ── over HTTP ────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def hasty(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server in front of an upstream that knows no schemas, with little time to judge."""
    options = {"json_schema": "json_object"}
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url, options=options)],
        limits=Limits(schema_seconds=1.0),
        keep_alive=0.1,
    )
    with serving(settings) as base:
        yield base


@pytest.mark.parametrize("schema", UNUSABLE)
def test_pattern_that_is_not_one_is_a_400_and_no_model_is_asked(
    hasty: str, upstream: ScriptedUpstream, schema: dict[str, Any]
) -> None:
    upstream.scripts["never"] = Script(text("{}"))
    before = len(upstream.received)
    refused = respond(hasty, model="never", text={"format": format_of(schema)})
    assert refused.status == 400
    assert refused.error["param"] == "text.format.schema"
    assert "not a regular expression" in refused.error["message"]
    assert len(upstream.received) == before


def test_server_answers_others_while_a_bomb_is_judged(hasty: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["bomb"] = Script(text(BOMB[1]))
    replies: list[Any] = []

    def explode() -> None:
        replies.append(stream(hasty, model="bomb", text={"format": format_of(BOMB[0])}))

    thread = threading.Thread(target=explode)
    thread.start()
    answers = 0
    while thread.is_alive():
        assert call(hasty, "GET", "/healthz").status == 200
        answers += 1
        time.sleep(0.05)
    assert answers  # before the judgement was there
    (reply,) = replies
    assert (reply.final["status"], reply.final["error"]["code"]) == ("failed", "model_error")
    assert "could not be checked" in reply.final["error"]["message"]
    assert "response.completed" not in reply.types
    assert b": keep-alive" in reply.body  # keep-alives while it was judged


def format_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "name": "n", "schema": schema}


@pytest.mark.parametrize("said", ['{"a": 1}', '```json\n{"a": 1}\n```'])
def test_what_follows_the_end_of_the_output_is_not_read(
    hasty: str, upstream: ScriptedUpstream, said: str
) -> None:
    upstream.scripts["fits"] = Script(text(said))
    response = stream(hasty, model="fits", text={"format": format_of({"required": ["a"]})}).final
    assert response["status"] == "completed"
    assert response["output"][0]["content"][0]["text"] == '{"a": 1}'
    whole = respond(hasty, model="fits", text={"format": format_of({"required": ["b"]})})
    assert (whole.json["status"], whole.json["error"]["code"]) == ("failed", "model_error")


def test_a_reference_out_of_the_schema_is_refused_whatever_the_upstream(hasty: str, bridged: str) -> None:
    format = format_of({"properties": {"a": {"$ref": "file:///etc/passwd"}}})
    replies = [respond(base, model="x", text={"format": format}) for base in (hasty, bridged)]
    assert [(reply.status, reply.error["param"]) for reply in replies] == [(400, "text.format.schema")] * 2
    assert replies[0].error == replies[1].error
