"""Another route is asked by cause, before anything was sent; which were tried is said, and what a client does
puts no route out."""

import io
import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import msgspec
import pytest

from openresponses_server.errors import UpstreamError
from openresponses_server.settings import CAUSES, Retries, Settings, Tracing, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.upstreams.refusals import limit_seconds
from openresponses_server.upstreams.refusals import refusal as refused
from tests.support.logs import log_as_in_production
from tests.support.serving import HASTY, PATIENT, call, ready, respond, serving, stream
from tests.support.upstream import (
    CUT,
    DONE,
    HANG,
    JSON,
    Script,
    ScriptedUpstream,
    chunk,
    frame,
    refusal,
    text,
)

FIRST_KEY, SECOND_KEY = "sk-first-0123456789-aaaa", "sk-second-0123456789-bbbb"
OVERLOADED = {"code": "server_is_overloaded", "message": "later"}
IN_BAND = {
    "a frame with an error": [
        b'data: {"error": {"code": "rate_limit_exceeded", "message": "slow"}}\n\n',
        DONE,
    ],
    "after an empty frame": [frame(choices=[]), CUT],
    "a field of the stream with an error": [b'error: {"code": 503, "message": "slow"}\n\n'],
    "a frame of MiniMax": [
        b'data: {"choices": null, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}\n\n'
    ],
    "an empty stream": [],
    "a comment, and no more": [b": hello\n\n"],
    "cut at once": [CUT],
    "cut within the first frame": [b'data: {"id": "chat', CUT],
}
REFUSALS = {
    "408": refusal(408, message="x"),
    "429": refusal(429, {"retry-after": "30"}, message="x"),
    "out of money with 429": refusal(429, code="insufficient_quota", message="x"),
    "500": refusal(500, message="x"),
    "529": refusal(529, message="x"),
    "HTML": Script([b"<html>down</html>"], 200, {"content-type": "text/html"}),
    "401": refusal(401, message="x"),
    "402": refusal(402, message="x"),
    "Anthropic's 402": refusal(400, message="Your credit balance is too low to access the API."),
    "a key with 400": refusal(400, message="API key not valid. Please pass a valid API key."),
    "MiniMax, out of money": Script(
        [b'{"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}'], 200, JSON
    ),
    "a gateway that passes on a limit": refusal(
        400, message="no", metadata={"raw": '{"error": {"code": "rate_limit_exceeded", "message": "x"}}'}
    ),
    "403 of the key": refusal(403, code="forbidden", message="x"),
    "403 of the region": refusal(403, code="unsupported_country_region_territory", message="x"),
    "404 of the model": refusal(404, code="model_not_found", message="x"),
    "404 of another API": Script([b"404 page not found"], 404, {"content-type": "text/plain"}),
    "a model that is gone": refusal(400, code="model_decommissioned", message="x"),
    "an error in the JSON of a 200": Script(
        [b'{"error": {"code": "overloaded_error", "message": "x"}}'], 200, JSON
    ),
    "silence": Script([], before=HANG),
}
STAYS = {
    "400": refusal(400, message="x"),
    "413": refusal(413, message="x"),
    "403 of the content": refusal(403, code="content_policy_violation", message="flagged"),
    "404 of an item": refusal(404, code="not_found", message="No file with this id."),
}


def settings(upstream: ScriptedUpstream, first: dict[str, Any] | None = None, **more: Any) -> Settings:
    options = {"failover": ["second/good"], "timeouts": PATIENT, **(first or {})}
    return Settings(
        upstreams=[
            UpstreamSettings(name="first", url=upstream.url, models=["m"], **options),
            UpstreamSettings(name="second", url=upstream.url, models=["good"]),
        ],
        **{"timeouts": PATIENT, **more},
    )


def asked(upstream: ScriptedUpstream, model: str) -> int:
    return sum(each.model == model for each in upstream.received)


@pytest.fixture(scope="module")
def many(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server with two upstreams for each case, so that no case has anything to do with another."""
    upstreams = []
    for number in range(2 * (len(REFUSALS) + len(IN_BAND))):
        timeouts = HASTY if [*REFUSALS, *IN_BAND][number // 2] == "silence" else PATIENT
        failover = [f"s{number}/good-{number}"]
        first = UpstreamSettings(
            name=f"f{number}",
            url=upstream.url,
            models=[f"m-{number}"],
            failover=failover,
            timeouts=timeouts,
        )
        upstreams += [first, UpstreamSettings(name=f"s{number}", url=upstream.url, models=[f"good-{number}"])]
    with serving(Settings(upstreams=upstreams, timeouts=PATIENT)) as base:
        yield base


@pytest.mark.parametrize("case", [*REFUSALS, *IN_BAND])
@pytest.mark.parametrize("streamed", [True, False])
def test_another_answers(many: str, upstream: ScriptedUpstream, case: str, streamed: bool) -> None:
    number = 2 * [*REFUSALS, *IN_BAND].index(case) + streamed
    model, good = f"m-{number}", f"good-{number}"
    upstream.scripts[model] = REFUSALS.get(case) or Script(IN_BAND[case])
    upstream.scripts[good] = Script(text("Hello"))
    reply = stream(many, model=model) if streamed else respond(many, model=model)
    final = reply.final if streamed else reply.json
    assert (final["status"], final["output"][0]["content"][0]["text"]) == ("completed", "Hello")
    assert (asked(upstream, model), asked(upstream, good)) == (1, 1)
    if not (streamed and case == "after an empty frame"):  # with which the answer's headers were sent
        assert reply.headers["openresponses-tried"].startswith(f"f{number} ")


@pytest.mark.parametrize("dialect", ["anthropic", "responses"])
def test_p12_an_error_as_the_first_words_in_other_dialects(upstream: ScriptedUpstream, dialect: str) -> None:
    error = {
        "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        "responses": {
            "type": "response.failed",
            "response": {"id": "r", "status": "failed", "output": [], "error": OVERLOADED},
        },
    }[dialect]
    begun = {
        "anthropic": b'event: message_start\ndata: {"type": "message_start", "message": {"id": "m"}}\n\n',
        "responses": b'data: {"type": "response.created", "response": {"id": "r"}}\n\n',
    }[dialect]
    upstream.scripts["m"] = Script([begun, f"event: {error['type']}\ndata: {json.dumps(error)}\n\n".encode()])
    upstream.scripts["good"] = Script(text("Hello"))
    with serving(settings(upstream, {"dialect": dialect})) as base:
        reply = stream(base, model="m")
    assert reply.final["status"] == "completed"
    assert reply.types.count("response.created") == 1
    assert (asked(upstream, "m"), asked(upstream, "good")) == (1, 1)


@pytest.mark.parametrize("case", STAYS)
def test_what_the_request_is_the_cause_of_is_the_answer(upstream: ScriptedUpstream, case: str) -> None:
    upstream.scripts["m"] = STAYS[case]
    with serving(settings(upstream)) as base:
        reply = respond(base, model="m")
    assert reply.status == STAYS[case].status
    assert "openresponses-tried" not in reply.headers
    assert asked(upstream, "good") == 0


@pytest.mark.parametrize("cause", CAUSES)
def test_an_operator_says_for_which_causes(upstream: ScriptedUpstream, cause: str) -> None:
    case = {"5xx": "500", "403": "403 of the key", "404": "404 of the model"}.get(cause, cause)
    upstream.scripts["m"] = Script([CUT]) if cause == "connection" else REFUSALS[case]
    others = [each for each in CAUSES if each != cause]
    with serving(settings(upstream, {"failover_on": others})) as base:
        assert respond(base, model="m").status >= 400
    assert asked(upstream, "good") == 0


def test_never_after_output_was_sent(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([chunk(role="assistant", content="Hel"), CUT])
    with serving(settings(upstream)) as base:
        reply = stream(base, model="m")
    assert reply.final["status"] == "failed"
    assert asked(upstream, "good") == 0


def test_when_all_fail_the_first_error_is_the_answer_with_all_that_were_tried(
    upstream: ScriptedUpstream,
) -> None:
    upstream.scripts["m"] = refusal(503, message="First.")
    upstream.scripts["good"] = refusal(429, message="Second.")
    with serving(settings(upstream)) as base:
        reply = respond(base, model="m")
    assert (reply.status, reply.error["message"]) == (503, "First.")
    assert reply.headers["openresponses-tried"] == "first 5xx, second 429"


def test_what_was_tried_is_in_the_log_the_metrics_and_the_trace(
    upstream: ScriptedUpstream, tmp_path: Any
) -> None:
    upstream.scripts["m"] = refusal(402, message="x")
    upstream.scripts["good"] = Script(text("Hello"))
    log = io.StringIO()
    log_as_in_production(log)
    try:
        with serving(settings(upstream, trace=Tracing(folder=str(tmp_path)))) as base:
            reply = respond(base, model="m")
            metrics = call(base, "GET", "/metrics").body.decode()
            trace = call(base, "GET", f"/v1/responses/{reply.json['id']}/trace").body.decode()
    finally:
        log_as_in_production()
    assert 'openresponses_bridge_failovers_total{cause="402",upstream="first"} 1.0' in metrics
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    (ended,) = [line for line in lines if line["event"] == "response"]
    assert (ended["upstream"], ended["tried"]) == ("second", ["first 402"])
    (opened,) = [line for line in lines if line["event"] == "route.open"]
    assert (opened["upstream"], opened["cause"], opened["level"]) == ("first", "402", "warning")
    assert "is asked instead of first, after 402" in trace


# ── several keys ──────────────────────────────────────────────────────────────────────────────────────────


def keyed(upstream: ScriptedUpstream, patch: pytest.MonkeyPatch, **more: Any) -> Settings:
    patch.setenv("FIRST", FIRST_KEY)
    patch.setenv("SECOND", SECOND_KEY)
    keys: list[str | list[str]] = ["${FIRST}", ["printf", SECOND_KEY]]
    options = UpstreamSettings(name="one", url=upstream.url, api_keys=keys, **more)
    return Settings(upstreams=[options])


def keys_of(upstream: ScriptedUpstream) -> list[str]:
    return [each.headers["authorization"].removeprefix("Bearer ") for each in upstream.received]


@pytest.mark.parametrize("case", ["429", "out of money with 429", "401", "402", "403 of the key"])
def test_the_next_key_is_used(upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    def answer(received: Any) -> Script:
        return REFUSALS[case] if received.headers["authorization"].endswith(FIRST_KEY) else Script(text("a"))

    upstream.answer = answer
    try:
        with serving(keyed(upstream, monkeypatch, retries=Retries(times=2, first_wait=9.0))) as base:
            replies = [respond(base, model="m") for _ in range(3)]
    finally:
        upstream.answer = None
    assert [each.json["status"] for each in replies] == ["completed"] * 3
    again = [FIRST_KEY] if case.startswith("403") else []  # it may be about the model
    expected = [FIRST_KEY, SECOND_KEY, *again, SECOND_KEY, *again, SECOND_KEY]
    assert keys_of(upstream) == expected


def test_when_all_keys_are_limited_the_one_whose_limit_is_over_first_is_asked(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.scripts["m"] = [
        refusal(429, {"retry-after": "40"}, message="x"),
        refusal(
            429, {"x-ratelimit-reset-requests": "20s", "x-ratelimit-remaining-requests": "0"}, message="x"
        ),
        Script(text("a")),
    ]
    upstream.scripts["other"] = Script(text("a"))
    with serving(keyed(upstream, monkeypatch)) as base:
        first, second = respond(base, model="m"), respond(base, model="m")
        assert respond(base, model="other").json["status"] == "completed"  # a limit is of one model
    assert (first.status, first.headers["retry-after"]) == (429, "40")
    assert second.json["status"] == "completed"
    assert keys_of(upstream)[:3] == [FIRST_KEY, SECOND_KEY, SECOND_KEY]


def test_a_key_that_an_upstream_echoes_is_masked(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also another key than that of the request."""
    both = f"{FIRST_KEY} and {SECOND_KEY} are bad"
    upstream.scripts["m"] = refusal(400, message=both, code=SECOND_KEY)
    upstream.scripts["limited"] = refusal(429, {"retry-after": "1"}, message="x")
    log = io.StringIO()
    log_as_in_production(log)
    try:
        with serving(keyed(upstream, monkeypatch)) as base:
            respond(base, model="limited")  # so that the command has printed its key
            reply = respond(base, model="m")
            listed = call(base, "GET", "/v1/routes").body.decode()
            metrics = call(base, "GET", "/metrics").body.decode()
    finally:
        log_as_in_production()
    assert reply.status == 400
    for shown in (reply.body.decode(), str(reply.headers), log.getvalue(), listed, metrics):
        assert FIRST_KEY not in shown
        assert SECOND_KEY not in shown
    assert '"aaaa"' in listed
    assert '"bbbb"' in listed


# ── what a client does ────────────────────────────────────────────────────────────────────────────────────


def states(base: str) -> list[tuple[str, int | None, str]]:
    rows = call(base, "GET", "/v1/routes").json["data"]
    return [(row["upstream"], row["key"], row["state"]) for row in rows if row["state"] != "closed"]


@pytest.mark.parametrize(
    "script",
    [
        *STAYS.values(),
        refusal(429, message="Request too large for m on tokens per min"),
        refusal(402, message="You requested 9 tokens, but can only afford 3"),
        refusal(404, code="model_not_found", message="x"),
        refusal(403, code="forbidden", message="x"),
        refusal(500, message="x"),  # all of them, so that it may be the request
    ],
)
def test_a_client_puts_no_route_out(upstream: ScriptedUpstream, script: Script) -> None:
    upstream.scripts["m"] = upstream.scripts["good"] = script
    with serving(settings(upstream)) as base:
        for _ in range(8):
            assert respond(base, model="m").status >= 400
        assert states(base) == []


def test_a_client_s_own_key_that_is_refused_counts_for_nobody(upstream: ScriptedUpstream) -> None:
    """And gets nothing from another upstream, which has a key of the operator's."""
    upstream.scripts["good"] = Script(text("a"))
    with serving(settings(upstream, {"pass_through": True})) as base:
        for script in (*(REFUSALS[each] for each in ("401", "402", "403 of the key")),):
            upstream.scripts["m"] = script
            reply = respond(base, {"authorization": "Bearer wrong"}, model="m")
            assert reply.status == script.status
        assert asked(upstream, "good") == 0
        upstream.scripts["m"] = REFUSALS["429"]
        assert respond(base, {"authorization": "Bearer wrong"}, model="m").json["status"] == "completed"
        assert states(base) == []


@pytest.mark.parametrize("key", ["a%0ab", "a%0d%0ahost:%20b", "a%00b", "%7f"])
def test_a_key_that_can_t_be_sent_to_an_upstream_gets_nothing_from_another_one(
    upstream: ScriptedUpstream, key: str
) -> None:
    """Only an address can have such a key."""
    upstream.scripts["m"] = upstream.scripts["good"] = Script(text("a"))
    with serving(settings(upstream, {"pass_through": True})) as base:
        before = len(upstream.received)
        body = {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}
        reply = call(base, "POST", f"/v1beta/models/m:generateContent?key={key}", body)
        assert reply.status == 401
        assert len(upstream.received) == before
        assert states(base) == []


def test_a_failing_upstream_is_left_out_and_probed(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [refusal(500, message="x"), refusal(500, message="x"), Script(text("back"))]
    upstream.scripts["good"] = Script(text("Hello"))
    circuit = {"circuit": {"failures": 2, "seconds": 0.3}}
    upstream_settings = msgspec.convert({"name": "first", **circuit}, UpstreamSettings)
    with serving(settings(upstream, {"circuit": upstream_settings.circuit})) as base:
        assert [respond(base, model="m").headers.get("openresponses-tried") for _ in range(3)] == [
            "first 5xx",
            "first 5xx",
            None,
        ]
        assert states(base) == [("first", 1, "open")]
        assert ready(base).json["routes_out"] == 1
        while asked(upstream, "m") < 3:
            assert respond(base, model="m").json["status"] == "completed"
            time.sleep(0.02)
        assert states(base) == []


def test_an_answer_that_is_cut_counts_though_nothing_failed_before(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script([chunk(content="Hel"), CUT])
    upstream.scripts["good"] = Script(text("Hello"))
    upstream_settings = msgspec.convert({"circuit": {"failures": 2, "seconds": 600}}, UpstreamSettings)
    with serving(settings(upstream, {"circuit": upstream_settings.circuit})) as base:
        statuses = [respond(base, model="m").json["status"] for _ in range(3)]
        assert statuses == ["failed", "failed", "completed"]
        assert states(base) == [("first", 1, "open")]
        assert asked(upstream, "m") == 2
    alone = UpstreamSettings(name="first", url=upstream.url, models=["m"], circuit=upstream_settings.circuit)
    with serving(Settings(upstreams=[alone])) as base:
        for _ in range(3):  # an upstream that is alone is asked all the same
            assert respond(base, model="m").json["status"] == "failed"
    assert asked(upstream, "m") == 5


def test_a_hostile_wait_puts_a_route_out_for_minutes_at_most(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = refusal(429, {"retry-after": "9" * 300}, message="x")
    upstream.scripts["good"] = Script(text("a"))
    with serving(settings(upstream)) as base:
        assert respond(base, model="m").json["status"] == "completed"
        (row,) = [row for row in call(base, "GET", "/v1/routes").json["data"] if row["state"] == "limited"]
    assert (row["upstream"], row["model"], row["cause"]) == ("first", "m", "429")
    assert row["cooldown_until"] <= time.time() + 601


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (refusal(429, {"retry-after": "5"}, message="slow"), 503),
        (refusal(429, message="slow"), 503),
        (refusal(429, {"retry-after": "500"}, message="slow"), 429),
        (refusal(429, code="insufficient_quota", message="slow"), 429),
    ],
)
def test_a_limit_that_is_soon_over_does_not_end_a_turn_of_codex(
    upstream: ScriptedUpstream, script: Script, status: int
) -> None:
    upstream.scripts["m"] = script
    alone = UpstreamSettings(name="first", url=upstream.url, models=["m"])
    with serving(Settings(upstreams=[alone])) as base:
        for headers, expected in (({"user-agent": "codex_exec/0.169.0"}, status), ({}, 429)):
            reply = respond(base, headers, model="m")
            assert (reply.status, reply.error["message"]) == (expected, "slow")
            assert reply.headers.get("retry-after") == script.headers.get("retry-after")


def test_only_operators_read_the_routes(upstream: ScriptedUpstream) -> None:
    hashes = {name: [hashed(name)] for name in ("client", "operator")}
    config = settings(upstream, api_keys=hashes["client"], operator_keys=hashes["operator"])
    with serving(config) as base:
        statuses = {
            name: call(base, "GET", "/v1/routes", headers={"authorization": f"Bearer {name}"}).status
            for name in ("client", "operator", "other")
        }
        assert call(base, "GET", "/v1/routes").status == 401
    assert statuses == {"client": 401, "operator": 200, "other": 401}


@pytest.mark.parametrize("refuses", [True, False])
def test_requests_in_progress_are_counted_where_they_are(upstream: ScriptedUpstream, refuses: bool) -> None:
    endless = Script([chunk(content="Hello"), HANG])
    upstream.scripts["m"] = REFUSALS["500"] if refuses else endless
    upstream.scripts["good"] = endless
    with serving(settings(upstream)) as base:
        assert in_progress(base) == {"first": 0, "second": 0}
        connection = HTTPConnection(base.removeprefix("http://"))
        body = json.dumps({"model": "m", "input": "Hi", "stream": True, "store": False})
        connection.request("POST", "/v1/responses", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        while b"Hello" not in answer.readline():
            pass
        assert in_progress(base) == {"first": int(not refuses), "second": int(refuses)}
        answer.close()
        connection.close()
        while any(in_progress(base).values()):
            time.sleep(0.02)


def in_progress(base: str) -> dict[str, int]:
    rows = call(base, "GET", "/v1/routes").json["data"]
    return {row["upstream"]: row["in_progress"] for row in rows if row["model"] is None}


# ── how long a limit lasts ────────────────────────────────────────────────────────────────────────────────

NOW = 1_800_000_000.0
RETRY_INFO = {
    "details": [{"@type": "x"}, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
}
WAITS: list[tuple[dict[str, str], dict[str, Any], float | None]] = [
    ({}, {}, None),
    ({"retry-after": "12"}, {}, 12),
    ({"retry-after": "2.5"}, {}, 2.5),
    ({"retry-after-ms": "1500", "retry-after": "9"}, {}, 1.5),
    ({}, RETRY_INFO, 34.5),
    ({"x-ratelimit-reset-requests": "1m3.5s"}, {}, 63.5),
    ({"x-ratelimit-reset-tokens": "20ms", "x-ratelimit-remaining-tokens": "0"}, {}, 0.02),
    ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "12"}, {}, None),
    ({"x-ratelimit-reset": str(int(NOW) + 7)}, {}, 7),
    ({"x-ratelimit-reset": f"{int(NOW) + 7}000"}, {}, 7),
    ({"anthropic-ratelimit-requests-reset": "2027-01-15T08:00:10Z"}, {}, 10),
    (
        {"anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-input-tokens-reset": "x"},
        {},
        None,
    ),
    ({"x-ratelimit-reset-requests": "9" * 5000}, {}, None),
    ({"x-ratelimit-reset-requests": "999999999h"}, {}, 366 * 24 * 3600),
    ({"retry-after": "-5"}, {}, None),
    ({"retry-after": "nan"}, {}, None),
    ({}, {"details": [{"@type": RETRY_INFO["details"][1]["@type"], "retryDelay": "-1s"}]}, None),
    ({}, {"details": "RetryInfo"}, None),
]


@pytest.mark.parametrize(("headers", "fields", "seconds"), WAITS)
def test_how_long_a_limit_lasts(
    headers: dict[str, str], fields: dict[str, Any], seconds: float | None
) -> None:
    assert limit_seconds(headers, fields, NOW) == (None if seconds is None else pytest.approx(seconds))


def test_google_s_delay_is_the_client_s_retry_after() -> None:
    error = {"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED", **RETRY_INFO}
    failure = refused(429, {}, json.dumps([{"error": error}]).encode())
    assert (failure.headers["retry-after"], failure.failover, failure.counts) == ("35", "429", True)
    assert isinstance(failure, UpstreamError)
