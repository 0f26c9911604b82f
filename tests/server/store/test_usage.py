"""Tokens: no end of a response without counts, on any surface; sums for the key that spent them."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.models.tokens import MAX_FAMILIES
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.content import OutputTextContent
from openresponses_bridge.protocol.items import Item, Message
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.seal import Sealer
from openresponses_server.observation.responses import EndedRun, LoggedEnd, TokenTiming
from openresponses_server.runs import metering
from openresponses_server.runs.metering import SAMPLE, MeasuredInput, Meter, Meters
from openresponses_server.settings import Settings, UpstreamSettings, load_settings
from openresponses_server.settings.files import hashed
from openresponses_server.store import usage as bounds
from openresponses_server.store import usage_keeper
from openresponses_server.store.base import StoreError
from openresponses_server.store.endings import cancelled, interrupted
from openresponses_server.store.usage import OTHERS, MemoryUsage, UsageBook, UsageRows
from openresponses_server.store.usage_keeper import UsageKeeper
from openresponses_server.upstreams.routing.models import build_router
from tests.support.serving import Reply, call, respond, serving, stream
from tests.support.stores import record
from tests.support.upstream import CUT, DONE, Script, ScriptedUpstream, chunk, frame, text
from tests.support.waiting import wait_until

ALICE = {"authorization": "Bearer alice"}
BOB = {"authorization": "Bearer bob"}
WORDS = [chunk(role="assistant", content="Some words ")] + [chunk(content="and more words ")] * 20
UNCOUNTED = Script([*WORDS, chunk("stop"), DONE])
HELLO = [{"role": "user", "content": "Hello, how are you?"}]


@pytest.fixture
def served(upstream: ScriptedUpstream) -> Iterator[str]:
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)], api_keys=[hashed("alice"), hashed("bob")]
    )
    with serving(settings) as base:
        yield base


def usage(base: str, headers: dict[str, str] = ALICE, query: str = "") -> dict[str, Any]:
    reply = call(base, "GET", f"/v1/usage{query}", headers=headers)
    assert reply.status == 200
    shown: dict[str, Any] = reply.json
    return shown


# ── every surface ──────────────────────────────────────────────────────────────────────────────────────────
def _counts(reply: Reply, path: str, streamed: bool) -> dict[str, Any]:
    """The usage at the end of an answer, in the words of its surface."""
    if path == "/v1/responses":
        counts: Any = (reply.final if streamed else reply.json)["usage"]
    elif path == "/vscode/v1/chat":
        parts = [json.loads(line) for line in reply.body.splitlines() if line.strip()]
        (data,) = [part["data"] for part in parts if part.get("mimeType") == "usage"]
        counts = json.loads(base64.b64decode(data) if isinstance(data, str) else bytes(data))
    elif not streamed:
        counts = reply.json["usage"]
    else:
        payloads = [frame.data for frame in reply.frames if frame.data.startswith(b"{")]
        counts = [json.loads(data)["usage"] for data in payloads if json.loads(data).get("usage")][-1]
    return dict(counts)


_SURFACES = [
    ("/v1/responses", {"input": HELLO}, "output_tokens"),
    ("/v1/chat/completions", {"messages": HELLO}, "completion_tokens"),
    ("/v1/messages", {"messages": HELLO, "max_tokens": 99}, "output_tokens"),
]
_STREAMS_ONLY = (
    "/vscode/v1/chat",
    {"messages": [{"role": 1, "content": [{"type": "text", "value": "Hello"}]}]},
    "completion_tokens",
)


@pytest.mark.parametrize(
    ("path", "fields", "output", "streamed"),
    [*[(*each, streamed) for each in _SURFACES for streamed in (True, False)], (*_STREAMS_ONLY, True)],
)
def test_what_an_upstream_does_not_count_is_estimated_and_says_so(
    served: str, upstream: ScriptedUpstream, path: str, fields: dict[str, Any], output: str, streamed: bool
) -> None:
    upstream.scripts["m"] = UNCOUNTED
    options = {"stream_options": {"include_usage": True}} if path.endswith("completions") and streamed else {}
    stream_field = {} if path.startswith("/vscode") else {"stream": streamed}
    reply = call(served, "POST", path, {"model": "m", **stream_field, **fields, **options}, ALICE)
    counts = _counts(reply, path, streamed)
    assert counts["estimated"] is True
    assert 40 <= counts[output] <= 90
    (row,) = usage(served)["data"]
    assert (row["model"], row["requests"], row["estimated"], row["estimated_requests"]) == ("m", 1, True, 1)
    assert row["output_tokens"] == counts[output]
    assert 3 <= row["input_tokens"] <= 15


def test_what_an_upstream_counts_stands_as_it_is(served: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("Hi"))
    reply = respond(served, ALICE, model="m", input="Hello")
    assert reply.json["usage"] == {
        "input_tokens": 3,
        "output_tokens": 1,
        "total_tokens": 4,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    shown = usage(served)
    assert (shown["input_tokens"], shown["output_tokens"], shown["estimated"]) == (3, 1, False)


# ── every end ──────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ([CUT], "failed"),
        ([chunk("length"), DONE], "incomplete"),
        ([chunk("content_filter"), DONE], "incomplete"),
        ([frame(error={"message": "no", "code": "server_error"})], "failed"),
    ],
)
def test_an_end_that_is_not_the_answers_has_counts_too(
    served: str, upstream: ScriptedUpstream, end: list[Any], status: str
) -> None:
    upstream.scripts["m"] = Script([*WORDS, *end])
    final = stream(served, ALICE, model="m", input="Hello").final
    assert final["status"] == status
    assert final["usage"]["estimated"] is True
    assert final["usage"]["output_tokens"] > 40
    shown = usage(served)
    assert (shown["requests"], shown["failed"]) == (1, int(status == "failed"))
    assert shown["output_tokens"] == final["usage"]["output_tokens"]


def test_what_was_made_after_an_upstream_had_counted_is_estimated() -> None:
    """Anthropic counts one token of output when a message begins, and no more when it is cut."""
    with ScriptedUpstream() as upstream:
        begun = {"id": "m", "role": "assistant", "content": [], "model": "m"}
        begun |= {"usage": {"input_tokens": 700, "cache_creation_input_tokens": 40, "output_tokens": 1}}
        sent = [{"type": "message_start", "message": begun}]
        sent += [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}]
        words = {"type": "text_delta", "text": "and more words "}
        sent += [{"type": "content_block_delta", "index": 0, "delta": words}] * 20
        frames = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in sent]
        upstream.scripts["m"] = Script([*frames, CUT])
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url, dialect="anthropic")])) as base:
            counts = stream(base, model="m", input="Hello").final["usage"]
    assert counts["input_tokens"] == 740
    assert counts["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 40}
    assert counts["output_tokens"] > 40
    assert counts["estimated"] is True


def test_a_response_that_was_never_made_has_spent_nothing() -> None:
    queued = ResponseStreamStateMachine("m").snapshot
    for wire in ("openresponses", "openai"):
        assert cancelled(queued, wire).usage == Usage.of(0, 0)


def test_a_response_whose_worker_stopped_has_an_estimate() -> None:
    machine = ResponseStreamStateMachine("m", decode_request(json.dumps({"instructions": "Be brief."})))
    machine.start()
    machine.text("some words " * 20)
    request = decode_request(
        json.dumps({"input": [{"type": "message", "role": "user", "content": "Hello"}]})
    ).input
    counts = interrupted(machine.snapshot, request, whole=True).usage  # type: ignore[arg-type]
    assert counts is not None
    assert counts.estimated is True
    assert counts.input_tokens > 5
    assert 30 < counts.output_tokens < 70


def test_a_request_that_is_refused_is_a_failed_one_without_tokens(
    served: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = Script(
        [b'{"error": {"message": "no"}}'], 400, {"content-type": "application/json"}
    )
    assert respond(served, ALICE, model="m", input="Hello").status == 400
    shown = usage(served)
    assert (shown["requests"], shown["failed"], shown["total_tokens"]) == (1, 1, 0)


def test_choices_of_one_request_are_not_paid_for_twice(upstream: ScriptedUpstream) -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 6, "total_tokens": 16}
    both = [frame(choices=[{"index": n, "delta": {"content": "a"}}]) for n in (0, 1)]
    ends = [frame(choices=[{"index": n, "delta": {}, "finish_reason": "stop"}]) for n in (0, 1)]
    upstreams = [{"url": upstream.url, "options": {"takes_n": True}}]
    settings = load_settings(upstreams=upstreams, store="memory://")
    body = {"model": "m", "messages": HELLO, "n": 2}
    with serving(settings) as base:
        upstream.scripts["m"] = Script([*both, *ends, frame(choices=[], usage=counts), DONE])
        assert call(base, "POST", "/v1/chat/completions", body).json["usage"]["total_tokens"] == 16
        assert usage(base, {})["total_tokens"] == 16
        upstream.scripts["m"] = Script([*both, *ends, DONE])
        estimated = call(base, "POST", "/v1/chat/completions", body).json["usage"]
        assert estimated["estimated"] is True
        assert estimated["prompt_tokens"] < 15


# ── who sees it ────────────────────────────────────────────────────────────────────────────────────────────
def test_s7_a_key_sees_what_it_spent_and_nothing_else(served: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("Hi"))
    for agent in ("first", "second", "first"):
        assert respond(served, ALICE, model="m", input="Hello", prompt_cache_key=agent).status == 200
    shown = usage(served)
    assert (shown["object"], shown["requests"], shown["total_tokens"]) == ("usage", 3, 12)
    assert [(agent["agent"], agent["requests"], agent["total_tokens"]) for agent in shown["agents"]] == [
        ("second", 1, 4),
        ("first", 2, 8),
    ]
    assert usage(served, BOB)["requests"] == 0
    assert usage(served, BOB)["data"] == []
    day = shown["data"][0]["day"]
    assert usage(served, query=f"?since={day}")["requests"] == 3
    assert usage(served, query="?since=2999-01-01")["requests"] == 0
    assert call(served, "GET", "/v1/usage").status == 401


@pytest.mark.parametrize("day", ["yesterday", "2026-13-01", "2026-1-1", "20260101", "2026-W01-1"])
def test_a_day_that_is_not_one_is_named(served: str, day: str) -> None:
    reply = call(served, "GET", f"/v1/usage?since={day}", headers=ALICE)
    assert (reply.status, reply.error["param"]) == (400, "since")


def test_a_message_begins_with_the_input_it_is_likely_to_have(
    served: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = UNCOUNTED
    body = {
        "model": "m",
        "max_tokens": 9,
        "stream": True,
        "messages": [{"role": "user", "content": "word " * 500}],
    }
    first = json.loads(call(served, "POST", "/v1/messages", body, ALICE).frames[0].data)
    assert 450 <= first["message"]["usage"]["input_tokens"] <= 650


# ── one counter ────────────────────────────────────────────────────────────────────────────────────────────
def test_what_is_learned_from_reports_is_what_the_endpoints_count_with(
    served: str, upstream: ScriptedUpstream
) -> None:
    counts = {"prompt_tokens": 1000, "completion_tokens": 1, "total_tokens": 1001}
    end = frame(choices=[], usage=counts)
    upstream.scripts["m"] = Script([chunk(content="a"), chunk("stop"), end, DONE])
    words = "word " * 500
    body = {"model": "m", "messages": [{"role": "user", "content": words}]}

    def counted() -> tuple[int, int]:
        whole = call(served, "POST", "/v1/responses/input_tokens", {"model": "m", "input": words}, ALICE)
        return (
            whole.json["input_tokens"],
            call(served, "POST", "/v1/messages/count_tokens", body, ALICE).json["input_tokens"],
        )

    assert all(450 <= tokens <= 650 for tokens in counted())
    for _ in range(12):
        respond(served, ALICE, model="m", input=words)
    assert all(900 <= tokens <= 1050 for tokens in counted())
    theirs = call(served, "POST", "/v1/responses/input_tokens", {"model": "m", "input": words}, BOB)
    assert 450 <= theirs.json["input_tokens"] <= 650  # another key's


def test_the_demo_models_words_teach_nothing() -> None:
    source = (Path(__file__).parents[3] / "bridge/openresponses_bridge/emitter/machine.py").read_text()[:1500]

    def counted(text: str) -> int:
        body = {"model": "demo", "text": text}
        tokens: int = call(base, "POST", "/vscode/v1/tokens", body).json["tokens"]
        return tokens

    with serving(Settings()) as base:
        before = [counted(text) for text in ("word", source)]
        assert before[0] == 1
        for _ in range(3):
            assert respond(base, model="demo", input=source).status == 200
        assert [counted(text) for text in ("word", source)] == before


def test_what_is_learned_is_bounded_in_keys_and_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "MAX_KEYS", 3)
    meters = Meters(UsageBook())
    measured_input = MeasuredInput(decode_request(json.dumps({"input": "some words, " * 50})), [])
    counts = Usage.of(round(measured_input.measured.tokens() * 1.5), 1)
    plain = meters.tokens(measured_input.measured, "a", "nobody")
    for _ in range(9):
        for owner in ("first", "second", "third", "fourth"):
            meters.learn(owner, "a", measured_input, counts)
    assert list(meters._keys) == ["second", "third", "fourth"]
    assert (
        meters.tokens(measured_input.measured, "a", "first")
        == plain
        < meters.tokens(measured_input.measured, "a", "second")
    )
    for number in range(500):  # names that one key makes up are in nobody else's way
        meters.learn("second", f"{chr(97 + number % 26) * (1 + number // 26)}-model", measured_input, counts)
    assert len(meters._keys["second"].estimator._families) <= MAX_FAMILIES
    assert meters.tokens(measured_input.measured, "a", "third") > plain


def test_a_counter_of_a_key_counts_by_what_is_learned_later() -> None:
    meters = Meters(UsageBook())
    counter = meters.counter("me")
    measured_input = MeasuredInput(decode_request(json.dumps({"input": "some words, " * 50})), [])
    before = counter.text("some words, " * 50, "m")
    for _ in range(20):
        meters.learn("me", "m", measured_input, Usage.of(measured_input.measured.tokens() * 2, 1))
    assert counter.text("some words, " * 50, "m") > 1.7 * before


# ── what an upstream counted, and what it did not ──────────────────────────────────────────────────────────
YES = [Message("msg", "incomplete", "assistant", [OutputTextContent("Yes", [])])]
LONG = [Message("msg", "incomplete", "assistant", [OutputTextContent("and more words " * 20, [])])]


@pytest.mark.parametrize(
    ("reported", "output", "settled"),
    [
        (Usage.of(9, 1), YES, Usage.of(9, 1)),
        (Usage.of(9, 1), LONG, Usage.of(9, 1)),  # it is what the upstream says
        (Usage.of(9, 6, estimated=True), LONG, Usage.of(9, 6, estimated=True)),
        (Usage.of(9, 0), [], Usage.of(9, 0)),
        (Usage.of(9, 0), [Message("msg", "incomplete", "assistant", [])], Usage.of(9, 0)),
        (Usage.of(9, 0, cached_tokens=3), YES, Usage.of(9, 1, cached_tokens=3, estimated=True)),
        (Usage.of(0, 7), YES, Usage.of(9, 7, estimated=True)),
        (Usage.of(0, 0), YES, Usage.of(9, 1, estimated=True)),
        (Usage.of(0, 0, total_tokens=30), YES, Usage.of(29, 1, estimated=True)),
        (Usage.of(0, 0, total_tokens=30), LONG, Usage.of(0, 30, estimated=True)),
        (None, YES, Usage.of(9, 1, estimated=True)),
        (None, [], Usage.of(9, 0, estimated=True)),
    ],
)
def test_an_estimate_stands_only_where_nothing_was_counted(
    reported: Usage | None, output: list[Item], settled: Usage
) -> None:
    target = build_router(Settings(), Sealer()).resolve("demo")
    measured_input = MeasuredInput(decode_request(json.dumps({"input": "Hello, how are you?"})), [])
    meter = Meter(Meters(UsageBook()), "", "demo", target, measured_input)
    assert measured_input.measured.tokens() == 9
    assert meter.settle(reported, output) == settled


CUT_SHORT = [("length", "incomplete"), ("content_filter", "incomplete"), ("stop", "completed")]


@pytest.mark.parametrize(("reason", "status"), CUT_SHORT)
@pytest.mark.parametrize(("said", "tokens"), [("Yes", 1), ("-" * 400, 6)])
def test_counts_of_an_answer_that_was_cut_short_stand(
    served: str, upstream: ScriptedUpstream, reason: str, status: str, said: str, tokens: int
) -> None:
    counts = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
    upstream.scripts["m"] = Script(
        [chunk(content=said), chunk(reason), frame(choices=[], usage=counts), DONE]
    )
    shown = respond(served, ALICE, model="m", input="Hello").json
    assert shown["status"] == status
    assert (shown["usage"]["input_tokens"], shown["usage"]["output_tokens"]) == (9, tokens)
    assert "estimated" not in shown["usage"]
    sums = usage(served)
    assert (sums["output_tokens"], sums["estimated"]) == (tokens, False)


@pytest.mark.parametrize("reason", ["max_tokens", "end_turn", "refusal"])
def test_counts_of_a_message_that_was_cut_short_stand(reason: str) -> None:
    begun = {"id": "m", "role": "assistant", "content": [], "model": "m"}
    begun |= {"usage": {"input_tokens": 9, "output_tokens": 1}}
    sent: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "-" * 400}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 6}},
        {"type": "message_stop"},
    ]
    with ScriptedUpstream() as upstream:
        upstream.scripts["m"] = Script(
            [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in sent]
        )
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url, dialect="anthropic")])) as base:
            counts = respond(base, model="m", input="Hello").json["usage"]
    assert (counts["input_tokens"], counts["output_tokens"]) == (9, 6)
    assert "estimated" not in counts


NULLS = {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}
ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
COUNTED = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


@pytest.mark.parametrize(
    ("reports", "shown"),
    [
        ([COUNTED, ZEROS], (9, 4, False)),
        ([COUNTED, NULLS], (9, 4, False)),
        ([{"prompt_tokens": 9}, {"completion_tokens": 4}], (9, 4, False)),
        ([{"prompt_tokens": 9, "completion_tokens": None, "total_tokens": 13}], (9, 4, False)),
        ([{"total_tokens": 100}], (29, 71, True)),
        ([NULLS], (5, 71, True)),
        ([ZEROS], (5, 71, True)),
        ([{"prompt_tokens": 9}], (9, 71, True)),
        ([{"completion_tokens": 4}], (5, 4, True)),
    ],
)
def test_counts_that_are_missing_are_estimated_and_no_others(
    served: str, upstream: ScriptedUpstream, reports: list[Any], shown: tuple[int, int, bool]
) -> None:
    frames = [frame(choices=[], usage=counts) for counts in reports]
    upstream.scripts["m"] = Script([*WORDS, chunk("stop"), *frames, DONE])
    counts = respond(served, ALICE, model="m", input="Hello").json["usage"]
    numbers = (counts["input_tokens"], counts["output_tokens"], counts.get("estimated", False))
    assert numbers == shown
    assert counts["total_tokens"] == numbers[0] + numbers[1]


def test_counting_takes_no_limit_and_refuses_in_its_own_shape(served: str) -> None:
    reply = call(served, "POST", "/v1/messages/count_tokens", {"model": "m", "messages": 5}, ALICE)
    assert (reply.status, reply.json["type"], reply.error["type"]) == (400, "error", "invalid_request_error")


# ── bounds ─────────────────────────────────────────────────────────────────────────────────────────────────
def test_s10_a_book_is_bounded_whatever_models_and_days_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_MODELS", 3)
    monkeypatch.setattr(bounds, "MAX_ROWS", 4)
    now = [0.0]
    book = UsageBook(lambda: now[0], max_owners=2)
    for model in ("a", "b", "c", "d", "e" * 10_000):
        book.add("me", "", model, Usage.of(1, 1), failed=False)
    rows = {row.model: row.counts.requests for row in book.of("me").days}
    assert rows == {"a": 1, "b": 1, "c": 1, OTHERS: 2}
    now[0] = 24 * 3600.0
    book.add("me", "", "f", Usage.of(1, 1), failed=False)
    assert [(row.day, row.model) for row in book.of("me").days] == [("1970-01-02", "f")]
    for owner in ("you", "they"):
        book.add(owner, "", "a", None, failed=True)
    assert [len(book.of(owner).days) for owner in ("me", "you", "they")] == [0, 1, 1]


def test_s10_keys_that_anybody_makes_up_are_not_stored() -> None:
    book = UsageBook(any_key=True)
    for owner in ("made up", "real", "draws"):
        book.add(owner, "", "m", None, failed=True, cost=0)
    book.add("real", "", "m", Usage.of(1, 1), failed=False)
    book.add("draws", "", "m", None, failed=False, cost=40_000_000_000)  # an image, which has no tokens
    assert [(row.owner, row.counts.requests) for row in book.drain().days] == [("real", 2), ("draws", 2)]
    assert book.of("made up").days
    assert not book.of("real")


def test_s10_names_that_no_database_takes_are_made_ones_that_each_does() -> None:
    book = UsageBook()
    book.add("me", "a\0" * 300, "m\0\ud800", Usage.of(1, 1), failed=False)
    batch = book.drain()
    assert batch.days[0].model == "m\ufffd?"
    assert batch.agents[0].agent == "a\ufffd" * 100


# ── what is stored ─────────────────────────────────────────────────────────────────────────────────────────
class Failing(MemoryUsage):
    """Raises before it has added, or after."""

    def __init__(self) -> None:
        super().__init__()
        self.down = ""
        self.calls = 0

    async def add_usage(self, writer: str, number: int, batch: UsageRows) -> None:
        self.calls += 1
        if self.down == "before":
            raise StoreError(StoreError.UNAVAILABLE, "The session store can't be reached.")
        await super().add_usage(writer, number, batch)
        if self.down == "after":
            raise StoreError(StoreError.UNAVAILABLE, "The session store does not answer.")


def requests_in(spent: UsageRows) -> int:
    return sum(row.counts.requests for row in spent.days)


@pytest.mark.parametrize("down", ["before", "after"])
async def test_what_a_store_did_not_take_is_shown_and_stored_once_later(down: str) -> None:
    store, book = Failing(), UsageBook()
    keeper = UsageKeeper(book, store, None)
    book.add("me", "a", "m", Usage.of(1, 1), failed=False)
    store.down = down
    for _ in range(2):
        with pytest.raises(StoreError):
            await keeper.store_all()
        book.add("me", "a", "m", Usage.of(1, 1), failed=False)
    store.down = ""
    await keeper.store_all()
    for _ in range(2):
        shown = await keeper.report("me")
        assert (shown["requests"], shown["agents"][0]["requests"]) == (3, 3)
        await keeper.store_all()
    assert requests_in(await store.usage_of("me")) == 3


async def test_a_report_counts_once_what_was_stored_without_an_answer() -> None:
    store, book = Failing(), UsageBook()
    keeper = UsageKeeper(book, store, None)
    book.add("me", "a", "m", Usage.of(1, 1), failed=False)
    store.down = "after"
    with pytest.raises(StoreError):
        await keeper.store_all()
    store.down = ""
    assert (await keeper.report("me"))["requests"] == 1
    store.down = "before"  # full, say
    book.add("me", "a", "m", Usage.of(1, 1), failed=False)
    with pytest.raises(StoreError):
        await keeper.store_all()
    assert (await keeper.report("me"))["requests"] == 2


async def test_nothing_is_written_where_nothing_was_spent() -> None:
    store = Failing()
    keeper = UsageKeeper(UsageBook(), store, None)
    for _ in range(3):
        await keeper.store_all()
    assert store.calls == 0


async def test_sums_are_stored_now_and_then_and_old_ones_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_keeper, "_EVERY", 0.01)
    store, now = Failing(), [1000.0]
    book = UsageBook(lambda: now[0])
    keeper = UsageKeeper(book, store, 3600.0)
    book.add("me", "", "old", Usage.of(1, 1), failed=False)
    await keeper.store_all()
    now[0] = time.time()
    async with keeper.going():
        book.add("me", "", "new", Usage.of(1, 1), failed=False)
        while [row.model for row in (await store.usage_of("me")).days] != ["new"]:
            await asyncio.sleep(0.005)
        store.down = "before"
        book.add("me", "", "new", Usage.of(1, 1), failed=False)
        while store.calls < 4:
            await asyncio.sleep(0.005)
        store.down = ""
    assert (await store.usage_of("me")).days[0].counts.requests == 2


async def test_a_batch_that_waits_for_those_of_others_makes_the_next_one_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    def paused(seconds: float) -> float:
        pauses.append(seconds)
        return 0.0

    class Slow(Failing):
        async def add_usage(self, writer: str, number: int, batch: UsageRows) -> None:
            now[0] += 2.0 if number == 1 else 1000.0
            await super().add_usage(writer, number, batch)
            book.add("me", "", "m", Usage.of(1, 1), failed=False)

    now = [0.0]
    monkeypatch.setattr(usage_keeper, "jittered", paused)
    monkeypatch.setattr(usage_keeper, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    book = UsageBook()
    book.add("me", "", "m", Usage.of(1, 1), failed=False)
    async with UsageKeeper(book, Slow(), None).going():
        while len(pauses) < 3:
            await asyncio.sleep(0)
    assert pauses[:3] == [5.0, 40.0, 60.0]


async def test_a_process_that_leaves_without_its_store_says_what_it_loses() -> None:
    store, book = Failing(), UsageBook()
    store.down = "before"
    with structlog.testing.capture_logs() as logs:
        async with UsageKeeper(book, store, None).going():
            book.add("me", "", "m", Usage.of(1, 1), failed=False)
    assert [(line["event"], line["log_level"]) for line in logs] == [("usage.lost", "warning")]


def test_workers_show_the_sums_of_all_and_a_restart_forgets_none(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers over one store; what one has not yet stored, it shows itself."""
    monkeypatch.setattr(usage_keeper, "_EVERY", 0.05)
    upstream.scripts["m"] = Script(text("Hi"))
    settings = Settings(
        store=f"sqlite:///{tmp_path / 's.sqlite3'}",
        upstreams=[UpstreamSettings(url=upstream.url)],
        api_keys=[hashed("alice"), hashed("bob")],
    )
    with serving(settings) as one, serving(settings) as other:
        for base in (one, other):
            assert respond(base, ALICE, model="m", input="Hello", user="agent").status == 200
            assert usage(base)["requests"] >= 1
        wait_until(lambda: usage(one) == usage(other) and usage(one)["requests"] == 2)
        assert respond(one, ALICE, model="m", input="Hello").status == 200
    with serving(settings) as base:
        shown = usage(base)
        assert (shown["requests"], shown["total_tokens"]) == (3, 12)
        agents = {agent["agent"]: agent["requests"] for agent in shown["agents"]}
        assert agents == {"agent": 2, "": 1}
        assert usage(base, BOB)["requests"] == 0


def test_a_meter_enters_a_response_once_and_samples_what_is_long() -> None:
    meters = Meters(UsageBook())
    router = build_router(Settings(), Sealer())
    request = decode_request(json.dumps({"input": "word " * 100_000}))
    meter = Meter(meters, "", "demo", router.resolve("demo"), MeasuredInput(request, []))
    ended = EndedRun("", "", record("r").response, TokenTiming(), [], 0.0, 0.0, True)
    for _ in range(2):
        meter.end(ended, LoggedEnd("completed"))
    (row,) = meters.book.of("").days
    assert row.counts.requests == 1
    answer = Message("msg", "completed", "assistant", [])
    settled = meter.settle(None, [answer])
    assert settled is not None
    assert settled.estimated is True
    assert settled.input_tokens > 100_000
    assert SAMPLE < 100_000
