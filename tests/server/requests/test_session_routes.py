"""A session goes where its prompt cache is, whichever way it is named; no client steers that of another."""

import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.serving import call, respond, serving
from tests.support.upstream import JSON, Received, Script, ScriptedUpstream, refusal, text

KEYS = {"alice": "key-of-alice-0123456789", "bob": "key-of-bob-0123456789"}
SESSIONS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "prompt_cache_key": ({"prompt_cache_key": "{}"}, {}),
    "Codex": ({}, {"session_id": "{}"}),
    "Claude Code's header": ({}, {"x-claude-code-session-id": "{}"}),
    "a conversation of an upstream": ({}, {"openresponses-conversation": "{}"}),
    "a user": ({"user": "user_1_session_0000{}"}, {}),
}


@pytest.fixture
def places() -> Iterator[tuple[dict[str, ScriptedUpstream], Settings]]:
    with ScriptedUpstream() as first, ScriptedUpstream() as second:
        servers = {"first": first, "second": second}
        upstreams = [
            UpstreamSettings(name=name, url=each.url, models=["m"]) for name, each in servers.items()
        ]
        settings = Settings(upstreams=upstreams, balance="round_robin", api_keys=list(KEYS.values()))
        yield servers, msgspec.structs.replace(settings, api_keys=[hashed(key) for key in KEYS.values()])


def as_client(name: str, **headers: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}", **headers}


def counts(places: dict[str, ScriptedUpstream]) -> tuple[int, ...]:
    return tuple(len(each.received) for each in places.values())


def filled(given: dict[str, Any], value: str) -> dict[str, Any]:
    return {name: text.replace("{}", value) for name, text in given.items()}


@pytest.mark.parametrize("kind", SESSIONS)
def test_a_session_stays_and_sessions_spread(places: Any, kind: str) -> None:
    upstreams, settings = places
    body, headers = SESSIONS[kind]
    used = set()
    with serving(settings) as base:
        for number in range(12):
            before = counts(upstreams)
            for _ in range(2):
                fields = filled(body, f"{number:04}")
                reply = respond(
                    base, as_client("alice", **filled(headers, f"{number:04}")), model="m", **fields
                )
                assert reply.json["status"] == "completed"
            grown = tuple(now - then for now, then in zip(counts(upstreams), before, strict=True))
            assert sorted(grown) == [0, 2]
            used.add(grown)
    assert len(used) == 2


def test_a_response_is_continued_where_it_was_made(places: Any) -> None:
    upstreams, settings = places
    with serving(settings) as base:
        for _ in range(3):
            before = counts(upstreams)
            previous = None
            for _ in range(3):
                more = {"previous_response_id": previous} if previous else {}
                previous = respond(base, as_client("alice"), model="m", **more).json["id"]
            grown = [now - then for now, then in zip(counts(upstreams), before, strict=True)]
            assert sorted(grown) == [0, 3]


def test_a_conversation_stays(places: Any) -> None:
    upstreams, settings = places
    with serving(settings) as base:
        conversation = call(base, "POST", "/v1/conversations", {}, as_client("alice")).json["id"]
        for _ in range(4):
            assert respond(base, as_client("alice"), model="m", conversation=conversation).status == 200
    assert sorted(counts(upstreams)) == [0, 4]


def test_no_client_steers_another_s_sessions(places: Any) -> None:
    """The same name is another session for another key."""
    upstreams, settings = places
    where: dict[str, list[int]] = {name: [] for name in KEYS}
    with serving(settings) as base:
        for number in range(24):
            for name in KEYS:
                before = counts(upstreams)
                respond(base, as_client(name), model="m", prompt_cache_key=f"same-{number}")
                grown = [now - then for now, then in zip(counts(upstreams), before, strict=True)]
                where[name].append(grown.index(1))
    assert where["alice"] != where["bob"]


def test_a_session_that_is_out_goes_elsewhere_and_comes_back(places: Any) -> None:
    upstreams, settings = places
    with serving(settings) as base:
        respond(base, as_client("alice"), model="m", prompt_cache_key="k")
        home = next(each for each in upstreams.values() if each.received)
        other = next(each for each in upstreams.values() if each is not home)
        home.answer = lambda _received: refusal(429, {"retry-after": "1"}, message="x")
        for _ in range(3):
            assert (
                respond(base, as_client("alice"), model="m", prompt_cache_key="k").json["status"]
                == "completed"
            )
        assert (len(home.received), len(other.received)) == (2, 3)  # the one that found out, and nobody since
        home.answer = None
        while len(home.received) == 2:
            respond(base, as_client("alice"), model="m", prompt_cache_key="k")
            time.sleep(0.05)
        assert len(home.received) == 3


def test_p36_what_another_upstream_cannot_be_sent_is_a_loss(upstream: ScriptedUpstream) -> None:
    """Reasoning that one upstream has sealed, and the items of its own tools."""
    down = refusal(503, message="x")
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA-of-another", "id": "rs_1"}
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "weather"},
    }
    items = [{"role": "user", "content": "Hi"}, sealed, search, {"role": "user", "content": "And?"}]
    upstream.scripts.update({"m": down, "good": Script(text("Hello"))})
    first = UpstreamSettings(
        name="first",
        url=upstream.url,
        dialect="responses",
        models=["m"],
        options={"encrypted_reasoning": True},
        failover=["second/good"],
    )
    second = UpstreamSettings(name="second", url=upstream.url, models=["good"])
    with serving(Settings(upstreams=[first, second])) as base:
        reply = respond(base, model="m", input=items)
    assert reply.json["status"] == "completed"
    assert "reasoning" in reply.headers["openresponses-losses"]
    assert "gAAAA" not in str(upstream.last("good").body)


def test_p36_another_key_that_cannot_decrypt_is_asked_without(upstream: ScriptedUpstream) -> None:
    response = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA-of-the-first"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
            },
        ],
    }
    limited: list[bool] = []

    def answer(received: Received) -> Script:
        is_first = received.headers["authorization"].endswith("aaaa")
        if is_first and limited:
            return refusal(429, {"retry-after": "60"}, message="x")
        if not is_first and "gAAAA" in str(received.body):
            return refusal(400, code="invalid_encrypted_content", message="x")
        return Script([json.dumps(response).encode()], 200, JSON)

    keys: list[str | list[str]] = ["sk-first-0123456789-aaaa", "sk-second-0123456789-bbbb"]
    options = {"encrypted_reasoning": True}
    one = UpstreamSettings(name="one", url=upstream.url, dialect="responses", api_keys=keys, options=options)
    more = {"include": ["reasoning.encrypted_content"], "store": False}
    upstream.answer = answer
    try:
        with serving(Settings(upstreams=[one])) as base:
            first = respond(base, model="m", **more).json
            limited.append(True)
            own = [{"role": "user", "content": "Hi"}, *first["output"], {"role": "user", "content": "And?"}]
            reply = respond(base, model="m", input=own, **more)
    finally:
        upstream.answer = None
    assert reply.json["status"] == "completed"
    assert ["gAAAA" in str(each.body) for each in upstream.received] == [False, True, True, False]
    assert "reasoning" in reply.headers["openresponses-losses"]
    assert reply.headers["openresponses-tried"] == "one 429"


def test_weights_are_met_without_sessions(places: Any) -> None:
    upstreams, settings = places
    light, heavy = settings.upstreams
    weighed = [light, msgspec.structs.replace(heavy, weight=3.0)]
    with serving(msgspec.structs.replace(settings, upstreams=weighed)) as base:
        for _ in range(16):
            respond(base, as_client("alice"), model="m")
    assert counts(upstreams) == (4, 12)
