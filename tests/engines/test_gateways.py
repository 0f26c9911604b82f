"""Gateways before us and behind us, in each dialect that they translate."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from openresponses_bridge.sse import is_done
from openresponses_server.settings import Settings, UpstreamSettings
from tests.engines import scripted
from tests.engines.asking import PIXEL, SCHEMA, SURFACES, TOOL, Answer, Ask
from tests.engines.gateways import DIALECTS, GATEWAYS, Gateway, Route
from tests.engines.installing import NotInstalled
from tests.engines.words import ANSWERS, THOUGHT
from tests.support.conversation_turns import calls
from tests.support.serving import Reply, call, opened, serving
from tests.support.upstream import DONE, HANG, Received, Script, ScriptedUpstream, chunk, frame, refusal

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
SLOW_DOWN: Final = "Slow down, please."
BROKE: Final = "The model broke."
LIMIT: Final = 512  # tokens
CLOSES: Final = 3.0  # seconds until a model that nobody reads has to be free
PARIS: Final = (TOOL, {"city": "Paris"})
LONDON: Final = (TOOL, {"city": "London"})
WAYS: Final = ("before", "behind")


def model(received: Received) -> Script:
    """The scripted model. An image or a schema that did not come, as a schema or as instructions, makes
    another answer."""
    body, texts = received.body, json.dumps(received.body["messages"])
    if "REFUSED" in texts:
        return refusal(429, message=SLOW_DOWN, type="rate_limit_error", code="rate_limit_exceeded")
    if "BREAKS" in texts:
        error = {"message": BROKE, "type": "server_error", "code": "server_error"}
        return Script([chunk(role="assistant", content=""), chunk(content="Hel"), frame(error=error)])
    if "FOREVER" in texts:
        return Script([chunk(role="assistant", content=""), chunk(content="la "), HANG])
    if "IMAGE" in texts:
        seen = PIXEL in texts
        messages = [{"role": "user", "content": "HELLO" if seen else "COUNT"}]
        return scripted.answer(replaced(received, messages))
    if "JSON" in texts:
        json_schema = (body.get("response_format") or {}).get("json_schema") or {}
        bound = json_schema.get("schema", {}).get("required") == SCHEMA["required"] or "JSON Schema" in texts
        choice = body.get("tool_choice")
        if isinstance(choice, dict):  # a gateway's way to have JSON: the tool that it names
            arguments = json.loads(ANSWERS["JSON"])
            return calls(("call_1", choice["function"]["name"], arguments))
        return scripted.answer(
            replaced(received, [{"role": "user", "content": "JSON" if bound else "COUNT"}])
        )
    return scripted.answer(received)


def replaced(received: Received, messages: list[dict[str, Any]]) -> Received:
    return Received(received.method, received.path, received.headers, {**received.body, "messages": messages})


@dataclass(frozen=True)
class Reached:
    """Where a client asks: the address, the surface, the model and headers that lead to the scripted one."""

    base: str
    surface: str
    model: str
    headers: dict[str, str]
    upstream: ScriptedUpstream
    ours: bool = False
    """Whether the answer is a server's of ours, and every rule holds for it."""

    def body(self, ask: Ask, streamed: bool) -> Any:
        limited = replace(ask, limit=LIMIT)  # some gateways demand one
        body = SURFACES[self.surface].body(limited, self.model) | {"stream": streamed}
        if self.surface == "Chat" and streamed:
            body["stream_options"] = {"include_usage": True}
        return body

    def reply(self, ask: Ask, streamed: bool) -> Reply:
        path = SURFACES[self.surface].path
        return call(self.base, "POST", path, self.body(ask, streamed), self.headers)

    def answer(self, ask: Ask, streamed: bool = True) -> Answer:
        reply = self.reply(ask, streamed)
        assert reply.status == 200, (reply.status, reply.body[:500])
        if self.surface == "Chat" and streamed:
            reply = Reply(reply.status, reply.headers, b"".join(without_empty_deltas(reply)))
        answer = SURFACES[self.surface].read(reply, streamed, "openai")
        assert not self.ours or answer.problems == []
        return answer


def without_empty_deltas(reply: Reply) -> Iterator[bytes]:
    """A stream of Chat without choices that say nothing, which LiteLLM sends with the usage, at the end."""
    for each in reply.frames:
        if is_done(each):
            yield DONE
            continue
        chunk = json.loads(each.data)
        chunk["choices"] = [
            choice
            for choice in chunk.get("choices") or ()
            if choice.get("finish_reason") or any((choice.get("delta") or {}).values())
        ]
        yield b"data: " + json.dumps(chunk).encode() + b"\n\n"


def plain(at: Reached) -> None:
    answer = at.answer(Ask("HELLO"), streamed=False)
    assert (answer.content, answer.end) == ((ANSWERS["HELLO"], "", []), "stop")


def streamed(at: Reached) -> None:
    answer = at.answer(Ask("HELLO"))
    assert (answer.content, answer.end) == ((ANSWERS["HELLO"], "", []), "stop")


def tools(at: Reached) -> None:
    for way in (True, False):
        answer = at.answer(Ask("WEATHER", tools=True), way)
        assert (answer.content, answer.end) == (("", "", [PARIS]), "calls")


def parallel(at: Reached) -> None:
    for way in (True, False):
        answer = at.answer(Ask("PARALLEL", tools=True), way)
        assert (answer.content, answer.end) == ((ANSWERS["PARALLEL"], "", [PARIS, LONDON]), "calls")


def round_trip(at: Reached) -> None:
    answer = at.answer(Ask("WEATHER", tools=True, after_tool=True))
    assert (answer.content, answer.end) == ((ANSWERS["RESPONSE"], "", []), "stop")


def thinking(at: Reached) -> None:
    for way in (True, False):
        answer = at.answer(Ask("THINK"), way)
        assert answer.content == (ANSWERS["THINK"], THOUGHT, [])


def images(at: Reached) -> None:
    assert at.answer(Ask("IMAGE", image=True)).text == ANSWERS["HELLO"]


def schema(at: Reached) -> None:
    assert json.loads(at.answer(Ask("JSON", schema=True)).text) == json.loads(ANSWERS["JSON"])


def usage(at: Reached) -> None:
    counted = (12, len(ANSWERS["HELLO"].split()))
    assert [at.answer(Ask("HELLO"), way).usage for way in (True, False)] == [counted, counted]


def refused(at: Reached) -> None:
    for way in (True, False):
        reply = at.reply(Ask("REFUSED"), way)
        assert reply.status == 429, (reply.status, reply.body[:500])
        assert SLOW_DOWN in reply.body.decode()


def breaks(at: Reached) -> None:
    reply = at.reply(Ask("BREAKS"), True)
    assert reply.status == 200
    assert "Hel" in reply.body.decode()
    failures = [each for each in reply.frames if not is_done(each) and is_failure(json.loads(each.data))]
    assert failures, reply.body[-500:]
    assert BROKE in reply.body.decode()


def is_failure(sent: dict[str, Any]) -> bool:
    """Whether a client of the surface can see in this frame that the answer failed."""
    return bool(sent.get("error")) or sent.get("type") in ("error", "response.failed")


def cancel(at: Reached) -> None:
    path, body = SURFACES[at.surface].path, at.body(Ask("FOREVER"), True)
    with opened(at.base, "POST", path, body, at.headers) as response:
        read = b""
        while b"la " not in read:
            line = response.readline()
            assert line, read
            read += line
    deadline = time.monotonic() + CLOSES
    while at.upstream.received[-1].gone_at is None:
        assert time.monotonic() < deadline, "the model goes on"
        time.sleep(0.05)


CASES: Final[dict[str, Callable[[Reached], None]]] = {
    "plain": plain,
    "streamed": streamed,
    "tools": tools,
    "parallel": parallel,
    "round trip": round_trip,
    "thinking": thinking,
    "images": images,
    "schema": schema,
    "usage": usage,
    "refused": refused,
    "breaks": breaks,
    "cancel": cancel,
}


@dataclass(frozen=True)
class Started:
    """A gateway with a server of ours behind it at `behind`."""

    base: str
    behind: str
    upstream: ScriptedUpstream


@pytest.fixture(scope="module")
def started() -> Iterator[Callable[[Gateway], Started]]:
    """Starts a gateway at its first use; the test is skipped where it can't be installed."""
    with ExitStack() as stack:
        upstream = stack.enter_context(ScriptedUpstream())
        upstream.answer = model
        options = {"reasoning_field": "reasoning_content"}
        upstream_settings = UpstreamSettings(url=upstream.url, name="model", options=options)
        behind = stack.enter_context(
            serving(Settings(store="memory://", wire="openai", upstreams=[upstream_settings]))
        )
        running: dict[str, Started] = {}

        def start(gateway: Gateway) -> Started:
            if gateway.name not in running:
                try:
                    base = stack.enter_context(gateway.start(behind))
                except NotInstalled as error:
                    pytest.skip(f"{gateway.name}: {error}")
                running[gateway.name] = Started(base, behind, upstream)
            return running[gateway.name]

        yield start


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("gateway", "route"),
    [
        pytest.param(gateway, route, id=f"{gateway.name}, {route}")
        for gateway in GATEWAYS.values()
        for route in gateway.routes
    ],
)
def test_a_gateway(
    started: Callable[[Gateway], Started], gateway: Gateway, route: Route, way: str, case: str
) -> None:
    running = started(gateway)
    headers = {name: value.format(behind=running.behind) for name, value in route.headers.items()}
    own = {"authorization": "Bearer none", "x-api-key": "none", "anthropic-version": "2023-06-01"}
    at = Reached(running.base, route.surface, route.model, own | headers, running.upstream)
    known = (gateway.before if way == "before" else gateway.behind).get(str(route), {}).get(case)
    with ExitStack() as stack:
        if way == "behind":
            upstream_settings = UpstreamSettings(
                url=f"{running.base}/v1",
                name="gateway",
                dialect=DIALECTS[route.surface],
                api_key="none",
                headers=headers,
            )
            base = stack.enter_context(
                serving(Settings(store="memory://", wire="openai", upstreams=[upstream_settings]))
            )
            at = replace(at, base=base, surface="Responses", headers={}, ours=True)
        if known is None:
            CASES[case](at)
            return
        with pytest.raises((AssertionError, ValueError, KeyError)):
            CASES[case](at)
