"""A stand-in for SearXNG, a server that searches with it, and models that ask for a search."""

import json
from typing import Any

from openresponses_server.settings import Settings, UpstreamSettings, WebSearchSettings
from tests.support.upstream import DONE, JSON, Script, ScriptedUpstream, chunk, frame
from tests.support.upstream import call as tool_call

SEARCH = [{"type": "web_search"}]


USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}


def calling(name: str, arguments: str, said: str = "", id: str = "call_1") -> Script:
    steps = [chunk(content=said)] if said else []
    calls = [tool_call(0, "", name, id), tool_call(0, arguments)]
    return Script([*steps, *calls, chunk("tool_calls"), frame(choices=[], usage=USAGE), DONE])


def found(*hits: tuple[str, str, str]) -> Script:
    results = [dict(zip(("url", "title", "content"), hit, strict=True)) for hit in hits]
    return Script([json.dumps({"results": results}).encode()], 200, JSON)


HIT = ("https://example.com/weather", "Weather", "It will <b>rain</b> &amp; stop.")


def settings(upstream: ScriptedUpstream, searxng: ScriptedUpstream, **changes: Any) -> Settings:
    defaults: dict[str, Any] = {
        "upstreams": [UpstreamSettings(url=upstream.url, name="scripted")],
        "web_search": WebSearchSettings(provider="searxng", url=searxng.url.removesuffix("/v1")),
    }
    return Settings(**defaults | changes)
