"""Anthropic's SDK runs tools in a thread, where it sends the new messages alone: over every upstream its
model sees the whole conversation (law N3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import dialect_scripts as scripts
from tests.support import sdks
from tests.support.serving import call, serving
from tests.support.upstream import Script, ScriptedUpstream

DIALECTS = ("chat", "anthropic", "responses", "gemini")
HOSTED: Any = {"type": "web_search_20250305", "name": "web_search"}


def look(place: str) -> str:
    """Look at a place.

    Args:
        place: where
    """
    return f"seen {place}"


@pytest.fixture(scope="module")
def base(upstream: ScriptedUpstream) -> Iterator[str]:
    def reached(name: str) -> UpstreamSettings:
        return UpstreamSettings(name=name, url=upstream.url, dialect=name, models=[f"{name}-*"])

    with serving(Settings(upstreams=list(map(reached, DIALECTS)))) as address:
        yield address


@pytest.mark.parametrize("tools", [[], [HOSTED]], ids=["continued", "sent again"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", DIALECTS)
def test_n3_a_tool_runner_s_model_sees_all(
    base: str, upstream: ScriptedUpstream, name: str, stream: bool, tools: list[Any]
) -> None:
    model = f"{name}-m"
    calls = [(f"call_{place}", "look", f'{{"place":"{place}"}}') for place in "ab"]
    upstream.scripts[model] = [
        *(Script(scripts.call(name, each)) for each in calls), Script(scripts.text(name, "Hello"))
    ]  # fmt: skip
    before = len(upstream.received)
    client = sdks.anthropic.Anthropic(base_url=base, api_key="none", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "word: zebra"}]
    with client:
        runner: Any = client.beta.messages.tool_runner(
            model=model,
            max_tokens=99,
            tools=[sdks.anthropic.beta_tool(look), *tools],
            messages=messages,
            stream=stream,
        )
        *_, last = ((turn.get_final_message() if stream else turn) for turn in runner)
    assert last.content[0].text == "Hello"
    rounds = [each.raw.decode() for each in upstream.received[before:]]
    assert ["zebra" in each for each in rounds] == [True] * 3
    assert ["seen a" in each for each in rounds] == [False, True, True]
    assert ["seen b" in each for each in rounds] == [False, False, True]
    reply = call(base, "GET", f"/v1/responses/{last.id}")
    assert reply.status == (404 if tools else 200)
    if not tools:
        assert reply.json["previous_response_id"]
