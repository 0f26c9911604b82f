"""`/v1/alpha/search`, which Codex asks, over HTTP: found by a stand-in of SearXNG on loopback."""

import asyncio
from typing import Any

import pytest

from openresponses_server.api.search import CommandsResponse
from openresponses_server.errors import HttpError
from openresponses_server.limits.gate import Gate
from openresponses_server.settings import HostedLimits, Limits, Settings, UpstreamSettings, WebSearchSettings
from openresponses_server.settings.files import hashed
from tests.support.raw_sockets import raw_connection, request
from tests.support.searxng import HIT, found
from tests.support.serving import Reply, call, serving
from tests.support.upstream import HANG, JSON, Script, ScriptedUpstream
from tests.support.waiting import wait_until

# what Codex 0.169 sends, but for its metadata
ASKED: dict[str, Any] = {
    "id": "01a20d71-4019-7212-8fd9-249e74be68ee",
    "model": "gpt-5.5",
    "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Search."}]}],
    "commands": {
        "search_query": [{"q": "rain", "recency": 3, "domains": ["example.com"]}],
        "response_length": "short",
    },
    "settings": {"allowed_callers": ["direct"], "external_web_access": True},
    "max_output_tokens": 10_000,
}
ALICE, BOB = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}


def settings(searxng: ScriptedUpstream, **changes: Any) -> Settings:
    search = WebSearchSettings(provider="searxng", url=searxng.url.removesuffix("/v1"))
    return Settings(store="memory://", web_search=search, **changes)


def search(base: str, headers: dict[str, str] | None = None, **changes: Any) -> Reply:
    return call(base, "POST", "/v1/alpha/search", ASKED | changes, headers)


def test_what_codex_asks_is_answered(searxng: ScriptedUpstream) -> None:
    searxng.pages = {"/search?q=rain+site%3Aexample.com&format=json&time_range=week": found(HIT)}
    with serving(settings(searxng)) as base:
        reply = search(base)
    assert reply.status == 200
    assert "It will rain & stop." in reply.json["output"]
    assert [each["url"] for each in reply.json["results"]] == [HIT[0]]
    assert "openresponses-losses" not in reply.headers


def test_a_search_has_the_rules_of_every_route(searxng: ScriptedUpstream) -> None:
    keys = {"api_keys": [hashed("a"), hashed("b")]}
    limits = Limits(requests_per_minute_per_key=2)
    with serving(
        settings(searxng, limits=limits, tools=HostedLimits(calls_per_day_per_key=1), **keys)
    ) as base:
        assert search(base).status == 401
        wrong = search(base, ALICE, commands={"open": [{}]})
        assert (wrong.status, wrong.error["param"]) == (400, "commands.open[0].ref_id")
        assert search(base, ALICE, strange=1).headers["openresponses-losses"] == "strange: is not known"
        # the day's budget is spent by what has run, and one key does not spend another's
        spent = search(base, ALICE)
        assert "budget" in spent.json["output"]
        assert spent.headers["x-ratelimit-remaining-requests"] == "0"
        refused = search(base, ALICE)
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert "It will rain" in search(base, BOB).json["output"]


def test_without_a_provider_there_is_no_search(demo: str) -> None:
    reply = search(demo)
    assert (reply.status, reply.error["code"]) == (404, "web_search_not_configured")


def test_a_key_that_nobody_has_checked_searches_from_this_machine_alone(searxng: ScriptedUpstream) -> None:
    """With `pass_through` upstreams check the keys, and a search asks none."""
    upstreams = [UpstreamSettings(url=searxng.url, pass_through=True)]
    with serving(settings(searxng, upstreams=upstreams)) as base:
        assert search(base, ALICE).status == 200
        before = len(searxng.connections)
        refused = search(base, ALICE | {"x-forwarded-for": "192.0.2.1"})
        assert (refused.status, refused.error["code"]) == (403, "permission_denied")
        assert len(searxng.connections) == before


def test_a_search_takes_a_slot_and_ends_with_its_client(searxng: ScriptedUpstream) -> None:
    searxng.pages["/search"] = Script([HANG], 200, JSON)
    with serving(settings(searxng, limits=Limits(concurrent=1))) as base:
        with raw_connection(base) as client:
            client.send(request("/v1/alpha/search", ASKED))
            wait_until(lambda: searxng.connections)
            busy = search(base)
            assert (busy.status, busy.error["code"]) == (429, "too_many_concurrent_requests")
        searxng.pages["/search"] = found(HIT)

        def answered() -> bool:
            return search(base).status == 200

        wait_until(answered)


@pytest.mark.anyio
async def test_a_search_ends_with_the_server() -> None:
    gate = Gate(Limits())
    ended = asyncio.Event()

    async def run() -> dict[str, Any]:
        for deadline in gate.deadlines:  # as the gate does when the time for finishing is over
            deadline.reschedule(0)
        try:
            await asyncio.Event().wait()
            return {}
        finally:
            ended.set()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(_message: Any) -> None: ...

    with pytest.raises(HttpError) as raised:
        await CommandsResponse(run, gate, "", {})({"type": "http"}, receive, send)
    assert (raised.value.http_status, ended.is_set(), gate.runs.count) == (503, True, 0)
