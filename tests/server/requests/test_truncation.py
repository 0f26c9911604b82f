"""`truncation: auto`: what is too long for its model loses its oldest turns, and stays a conversation."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.models.tokens import TokenEstimator
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.seal import Sealer
from openresponses_server.requests.abilities import FittedRequest
from openresponses_server.requests.compaction import summary_item
from openresponses_server.requests.truncation import Truncator, kept_indexes
from openresponses_server.settings import Capabilities, Settings, UpstreamSettings
from openresponses_server.upstreams.routing.models import build_router
from tests.support.serving import Reply, respond, serving, stream
from tests.support.upstream import DONE, Script, ScriptedUpstream, frame, refusal, text

ANSWER = Script(text("Hi"))
TOO_LONG = refusal(400, code="context_length_exceeded", message="Too long.")
IN_STREAM = Script([frame(error={"code": "context_length_exceeded", "message": "Too long."}), DONE])
LIMIT = 500
WORDS = "some words " * 40  # about 80 tokens


def message(role: str, said: str = "") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": f"{said} {WORDS}" if said else "short"}


def called(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": json.dumps({"x": WORDS})}


def output(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": WORDS}


def reasoning() -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": WORDS}]}


TURNS = [message(role, f"{role} {turn}") for turn in range(5) for role in ("user", "assistant")]
LAST = message("user", "last")


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def base(scripted: ScriptedUpstream) -> Iterator[str]:
    """A server that knows the limit of one model and of no other."""
    able = {"small": Capabilities(max_input_tokens=LIMIT)}
    with serving(Settings(upstreams=[UpstreamSettings(url=scripted.url)], models=able)) as address:
        yield address


@pytest.fixture
def upstream(scripted: ScriptedUpstream) -> ScriptedUpstream:
    scripted.scripts.clear()
    scripted.received.clear()
    scripted.scripts |= {"small": ANSWER, "other": ANSWER}
    return scripted


def said(upstream: ScriptedUpstream, number: int = -1) -> list[str]:
    """Who said what in a request that came: role and the first words."""
    messages = upstream.received[number].body["messages"]
    return [f"{each['role']}: {' '.join(str(each.get('content')).split()[:2])}" for each in messages]


def ask(base: str, items: list[dict[str, Any]] | str, **fields: Any) -> Reply:
    return respond(base, **{"model": "small", "truncation": "auto", "input": items, **fields})


# ── what is sent ───────────────────────────────────────────────────────────────────────────────────────────
def test_the_oldest_turns_go_and_it_is_said(base: str, upstream: ScriptedUpstream) -> None:
    items = [message("system", "the rules"), *TURNS, LAST]
    reply = ask(base, items, instructions="Be brief.")
    sent = said(upstream)
    assert sent[:2] == ["system: Be brief.", "system: the rules"]
    assert sent[2:] == ["user: user 4", "assistant: assistant 4", "user: last some"]
    assert reply.json["truncation"] == "auto"
    assert reply.headers["openresponses-losses"] == (
        "input: the first 8 of 12 items, for which the model's context has no room"
    )
    counted = TokenEstimator().request(
        decode_request(json.dumps({"instructions": "Be brief.", "input": [items[0], *items[-3:]]}))
    )
    assert LIMIT - 210 < counted <= LIMIT


def test_the_history_of_a_stored_response_is_shortened_and_stays_stored(
    base: str, upstream: ScriptedUpstream
) -> None:
    before = ask(base, TURNS, model="other").json["id"]
    reply = ask(base, [LAST], previous_response_id=before)
    assert said(upstream)[-1] == "user: last some"
    assert 2 <= len(said(upstream)) < 6
    again = ask(base, "And?", model="other", previous_response_id=reply.json["id"])
    assert again.status == 200
    assert len(said(upstream)) == len(TURNS) + 4


@pytest.mark.parametrize(
    ("fields", "losses"),
    [
        ({"truncation": "disabled"}, None),
        ({"truncation": None}, None),
        ({"model": "other"}, "truncation: a conversation that is too long is not shortened"),
        ({"input": [message("user"), message("assistant"), message("user")]}, None),
        ({"input": "Hello"}, None),
    ],
)
def test_what_may_not_or_need_not_be_shortened_goes_as_it_is(
    base: str, upstream: ScriptedUpstream, fields: dict[str, Any], losses: str | None
) -> None:
    items = fields.get("input", [*TURNS, LAST])
    reply = ask(base, items, **fields)
    assert len(said(upstream)) == (1 if isinstance(items, str) else len(items))
    assert reply.headers.get("openresponses-losses") == losses


def test_a_turn_that_is_too_long_by_itself_loses_its_oldest_rounds(
    base: str, upstream: ScriptedUpstream
) -> None:
    """As an agent's does: one question and many calls."""
    rounds = [item for number in range(5) for item in (called(f"c{number}"), output(f"c{number}"))]
    ask(base, [*TURNS, LAST, *rounds])
    messages = upstream.received[-1].body["messages"]
    assert said(upstream)[0] == "user: last some"
    ids = [each["tool_calls"][0]["id"] for each in messages if each["role"] == "assistant"]
    assert ids == ["c4"]
    assert [each["tool_call_id"] for each in messages if each["role"] == "tool"] == ids


@pytest.mark.parametrize(
    "item",
    [
        message("developer", "rule"),
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
        {"type": "additional_tools", "tools": [{"type": "function", "name": "f"}]},
    ],
    ids=["developer", "configuration", "tools"],
)
def test_what_holds_for_all_that_follows_stays(item: dict[str, Any]) -> None:
    items = decode_request(json.dumps({"input": [*TURNS[:2], item, *TURNS, LAST]})).input
    assert isinstance(items, list)
    assert kept_indexes(items, [1.0] * len(items), 2) == [2, len(items) - 1]


def test_what_has_to_stay_is_sent_however_long_it_is(base: str, upstream: ScriptedUpstream) -> None:
    ask(base, [*TURNS, message("user", WORDS * 9)])
    assert len(said(upstream)) == 1


def test_a_responses_server_is_left_to_do_it_itself(scripted: ScriptedUpstream) -> None:
    scripted.scripts["small"] = ANSWER
    able = {"small": Capabilities(max_input_tokens=LIMIT)}
    up = UpstreamSettings(url=scripted.url, dialect="responses")
    with serving(Settings(upstreams=[up], models=able)) as base:
        ask(base, [*TURNS, LAST])
    body = scripted.last("small").body
    assert (body["truncation"], len(body["input"])) == ("auto", len(TURNS) + 1)


# ── what an upstream refuses ───────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("model", ["small", "other"])
@pytest.mark.parametrize("refused", [TOO_LONG, IN_STREAM], ids=["status", "in the stream"])
def test_what_is_refused_all_the_same_is_sent_shorter_once(
    base: str, upstream: ScriptedUpstream, model: str, refused: Script
) -> None:
    upstream.scripts[model] = [refused, ANSWER]
    reply = stream(base, model=model, truncation="auto", input=[*TURNS, LAST])
    assert reply.final["output"][0]["content"][0]["text"] == "Hi"
    first, second = said(upstream, 0), said(upstream, 1)
    assert first[-len(second) :] == second
    assert len(second) <= (len(first) + 1) // 2
    assert len(upstream.received) == 2


@pytest.mark.parametrize("refused", [TOO_LONG, IN_STREAM], ids=["status", "in the stream"])
def test_an_upstream_that_always_refuses_is_asked_twice_and_its_refusal_passed_on(
    base: str, upstream: ScriptedUpstream, refused: Script
) -> None:
    upstream.scripts["small"] = refused
    reply = ask(base, [*TURNS, LAST])
    error = reply.json["error"]
    assert error["code"] == "context_length_exceeded"
    assert len(upstream.received) == 2


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"truncation": "disabled"}, TOO_LONG),
        ({"input": [LAST]}, TOO_LONG),
        ({"input": "Hello"}, TOO_LONG),
        ({}, refusal(400, code="bad", message="Bad.")),
        ({}, Script([frame(error={"code": "server_error", "message": "No."}), DONE])),
    ],
)
def test_nothing_else_is_asked_again(
    base: str, upstream: ScriptedUpstream, fields: dict[str, Any], refused: Script
) -> None:
    upstream.scripts["other"] = refused
    ask(base, fields.pop("input", [*TURNS, LAST]), model="other", **fields)
    assert len(upstream.received) == 1


def test_after_the_first_words_of_an_answer_nothing_is_asked_again(
    base: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["other"] = Script([*text("Some")[:2], *IN_STREAM.steps])
    reply = stream(base, model="other", truncation="auto", input=[*TURNS, LAST])
    assert (reply.final["status"], len(upstream.received)) == ("failed", 1)


# ── any conversation ───────────────────────────────────────────────────────────────────────────────────────
_KINDS = st.sampled_from(["user", "assistant", "system", "developer", "reasoning", "call", "answer"])


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Each call has an output somewhere behind it."""
    items: list[dict[str, Any]] = []
    waiting: list[str] = []
    for number, kind in enumerate(draw(st.lists(_KINDS, max_size=30))):
        if kind == "call":
            waiting.append(f"c{number}")
            items.append(called(waiting[-1]))
        elif kind == "answer" and waiting:
            items.append(output(waiting.pop(draw(st.integers(0, len(waiting) - 1)))))
        elif kind == "reasoning":
            items.append(reasoning())
        elif kind != "answer":
            items.append(message(kind))
    return items + [output(call_id) for call_id in waiting]


@settings(max_examples=150, deadline=None)
@given(conversations(), st.data())
def test_any_conversation_stays_one_and_loses_no_more_than_it_has_to(
    raw: list[dict[str, Any]], data: st.DataObject
) -> None:
    given_items = decode_request(json.dumps({"input": raw})).input
    assert isinstance(given_items, list)
    costs = data.draw(st.lists(st.integers(1, 50), min_size=len(raw), max_size=len(raw)))
    room = data.draw(st.integers(-10, sum(costs) + 10))
    indexes = kept_indexes(given_items, costs, room)
    assert indexes == sorted(set(indexes))
    stays = [raw[index] for index in indexes]
    calls = [item["call_id"] for item in stays if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in stays if item["type"] == "function_call_output"]
    assert sorted(calls) == sorted(outputs)
    pinned = {index for index, item in enumerate(raw) if item.get("role") in ("system", "developer")}
    users = [index for index, item in enumerate(raw) if item.get("role") == "user"]
    assert pinned | set(users[-1:]) <= set(indexes)
    spent = sum(costs[index] for index in indexes)
    least = kept_indexes(given_items, costs, -1000)
    assert spent <= room or indexes == least
    if sum(costs) <= room:
        assert indexes == list(range(len(raw)))
    more = kept_indexes(given_items, costs, spent)
    assert sum(costs[index] for index in more) <= max(spent, sum(costs[index] for index in least))
    assert not raw or indexes


def test_a_summary_of_what_came_before_stays() -> None:
    raw = [message("user", "a"), message("assistant", "b"), message("user", "c"), message("assistant", "d")]
    items: Any = decode_request(json.dumps({"input": [*raw, message("user", "e")]})).input
    items[2] = summary_item("Ada has a cat.")
    assert kept_indexes(items, [10.0] * len(items), 20.0) == [2, 4]


def test_s10_each_item_is_counted_and_looked_at_once() -> None:
    """Twenty thousand open calls, answered in the other order: what looks at pairs would take minutes."""
    count = 10_000
    raw = [called(f"c{n}") | {"arguments": "{}"} for n in range(count)]
    raw += [output(f"c{n}") | {"output": ""} for n in reversed(range(count))]
    items = decode_request(json.dumps({"input": raw})).input
    assert isinstance(items, list)
    assert kept_indexes(items, [1.0] * len(items), 10.0) == list(range(2 * count))
    counter = Counting()
    request = decode_request(json.dumps({"model": "m", "truncation": "auto", "input": []}))
    target = build_router(Settings(models={"demo": Capabilities(max_input_tokens=9)}), Sealer()).resolve(
        "demo"
    )
    fit = Truncator(counter).truncated(FittedRequest(request, items, []), target)
    assert counter.items == 2 * count
    assert counter.requests == 2
    assert len(fit.earlier) == 2 * count


class Counting(TokenEstimator):
    """Notes how often it is asked."""

    items = 0
    requests = 0

    def item(self, item: Any, model: str = "") -> int:
        self.items += 1
        return 1

    def request(self, request: Any, history: Any = (), model: str = "") -> int:
        self.requests += 1
        return len(list(history))
