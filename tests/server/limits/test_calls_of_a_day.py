"""The calls of tools that each key has in a day: counted over all workers, and nobody else's."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
import redis

from openresponses_server.limits.call_budget import CallBudget
from openresponses_server.settings import (
    FunctionSettings,
    HostedLimits,
    McpServerSettings,
    Settings,
    UpstreamSettings,
)
from openresponses_server.settings.files import hashed
from tests.support.clocks import Clock
from tests.support.mcp_http import HttpPeer
from tests.support.services import OwnRedis, own_redis
from tests.support.serving import Reply, call, respond, serving
from tests.support.shared_counts import joined
from tests.support.upstream import DONE, Received, Script, ScriptedUpstream, chunk, text
from tests.support.upstream import call as tool_call
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[OwnRedis]:
    with own_redis() as started:
        yield started


async def test_a_day_has_so_many_calls_for_each_key() -> None:
    clock = Clock()
    budget = CallBudget(2, clock=clock)
    assert [await budget.spend(each) for each in "aabaabb"] == [True, True, True, False, False, True, False]
    clock.now += 86_400
    assert await budget.spend("a")
    free = CallBudget(None)
    assert all([await free.spend("a") for _ in range(1000)])


async def test_a_clock_that_is_set_back_over_midnight_gives_no_second_day() -> None:
    clock = Clock()
    clock.now = 1_800_057_600.0  # midnight
    budget = CallBudget(1, clock=clock)
    assert await budget.spend("a")
    clock.now -= 1.0
    assert not await budget.spend("a")
    assert await budget.spend("b")
    clock.now += 2.0
    assert not await budget.spend("b")
    clock.now += 86_400
    assert await budget.spend("a")


async def test_a_clock_that_was_wrong_by_days_begins_anew_when_it_is_right() -> None:
    clock = Clock()
    budget = CallBudget(1, clock=clock)
    clock.now += 40 * 86_400
    assert await budget.spend("a")
    clock.now -= 40 * 86_400
    assert await budget.spend("a")


async def test_s8_workers_have_the_calls_of_a_key_together(server: OwnRedis) -> None:
    async with AsyncExitStack() as stack:
        both = [CallBudget(10, await joined(stack, server.url, "one")) for _ in range(2)]
        tries = await asyncio.gather(*(each.spend("k") for each in both * 20))
        assert sum(tries) == 10
        assert await both[0].spend("another")
        again = CallBudget(10, await joined(stack, server.url, "one"))  # a worker that was started anew
        assert not await again.spend("k")
        client = redis.Redis.from_url(server.url)
        keys = client.keys("one:calls:*")
        assert len(keys) == 2
        assert all(0 < client.pttl(key) <= 86_400_000 for key in keys)
        client.hset("one:calls:k", "day", "1")  # what it has of another day
        assert await again.spend("k")


async def test_s8_calls_that_redis_was_not_asked_for_are_counted_afterwards(server: OwnRedis) -> None:
    async with AsyncExitStack() as stack:
        one, other = [await joined(stack, server.url, "two") for _ in range(2)]
        mine, yours = CallBudget(3, one), CallBudget(3, other)
        one.redis.alone = True
        server.freeze()
        assert [await mine.spend("k") for _ in range(2)] == [True, True]
        server.thaw()

        async def together() -> bool:
            return not (one.redis.alone or other.redis.alone)

        await eventually(together)
        assert await mine.spend("k")
        assert not await yours.spend("k")
        assert not await mine.spend("k")


KEYS = {name: {"authorization": f"Bearer {name}"} for name in ("mine", "yours")}
MODULE = """
from openresponses_agent.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool(tags={"read-only"})
def look() -> str:
    \"\"\"Looks.\"\"\"
    return "seen"
"""


def looking(received: Received) -> Script:
    """Calls a tool once for each question, then says what it gave."""
    last = received.body["messages"][-1]
    if last["role"] == "tool":
        return Script(text(last["content"]))
    name = "mcp__mail__send" if "Send" in str(last["content"]) else "look"
    return Script([tool_call(0, "{}", name, "call_1"), chunk("tool_calls"), DONE])


def said(reply: Reply) -> str:
    assert reply.status == 200, reply.body
    return str(reply.json["output"][-1]["content"][0]["text"])


def test_s7_s8_no_key_spends_the_calls_of_another(tmp_path: Any, upstream: ScriptedUpstream) -> None:
    """Whatever a request says of whose it is, and whatever it continues."""
    (tmp_path / "tools.py").write_text(MODULE)
    upstream.answer = looking
    with ExitStack() as stack:
        peer = HttpPeer(stack.enter_context(ScriptedUpstream()))
        peer.results["tools/list"] = {"tools": [{"name": "send", "inputSchema": {"type": "object"}}]}
        peer.results["tools/call"] = {"content": [{"type": "text", "text": "sent"}]}
        settings = Settings(
            upstreams=[UpstreamSettings(url=upstream.url, name="scripted")],
            api_keys=[hashed(name) for name in KEYS],
            functions=[FunctionSettings(module=str(tmp_path / "tools.py"))],
            mcp_servers=[McpServerSettings(name="mail", url=f"{peer.upstream.url}/mcp")],
            tools=HostedLimits(calls_per_day_per_key=6),
        )
        base = stack.enter_context(serving(settings))
        mail = [{"type": "mcp", "server_label": "mail"}]
        reply = call(base, "POST", "/v1/conversations", {}, KEYS["yours"])
        assert reply.status == 200, reply.body
        conversation = reply.json["id"]
        response = respond(
            base, KEYS["yours"], model="m", input="Send", tools=mail, conversation=conversation
        )
        (request,) = (each for each in response.json["output"] if each["type"].endswith("approval_request"))
        answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        owned: list[dict[str, Any]] = [
            {"previous_response_id": response.json["id"]},
            {"conversation": conversation},
            {"previous_response_id": response.json["id"], "tools": mail, "input": [answer]},
            {"conversation": conversation, "tools": mail, "input": [answer]},
            {"tools": mail, "input": [{"role": "user", "content": "x"}, request, answer]},
        ]
        for each in owned:
            refused = respond(base, KEYS["mine"], model="m", **each)
            assert refused.status in (400, 404), each
        forged: list[dict[str, Any]] = [
            {"user": "yours"},
            {"safety_identifier": "yours", "prompt_cache_key": "yours"},
            {"metadata": {"owner": "yours", "user": "yours"}},
            {"input": [request, {"role": "user", "content": "x"}]},
        ]
        headers = {"openai-organization": "yours", "openai-project": "yours", "x-forwarded-user": "yours"}
        more = {"x-client-request-id": request["id"], "session_id": "yours", "x-api-key-id": "yours"}
        for each in forged:
            assert said(respond(base, {**KEYS["mine"], **headers, **more}, model="m", **each)) == "seen"
        for _ in range(2):
            assert said(respond(base, KEYS["mine"], model="m")) == "seen"
        assert "budget" in said(respond(base, KEYS["mine"], model="m"))
        assert "budget" in said(respond(base, KEYS["mine"], model="m", user="yours"))
        assert peer.asked("tools/call") == []
        for number in range(6):  # all of them are there
            fields = owned[3] if number == 0 else {}
            assert said(respond(base, KEYS["yours"], model="m", **fields)) in ("seen", "sent")
        assert "budget" in said(respond(base, KEYS["yours"], model="m"))
