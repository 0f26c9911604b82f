"""Codex and Claude Code search the web through the server, which uses a stand-in for SearXNG on loopback, for
models that have only functions; `run` starts the agents and configures them for this."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.loops import Answer
from tests.support.processes import run_agent
from tests.support.rules_of_models import Rule, Seen, named, ruled
from tests.support.upstream import JSON, Received, Script, ScriptedUpstream

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]

PAGE = "https://example.com/weather"
FOUND = {"results": [{"url": PAGE, "title": "Weather", "content": "It will rain."}]}
LINK = f"It [rains]({PAGE})."
CONFIG = """
[web_search]
provider = "searxng"
url = "{search}"
private_hosts = ["127.0.0.1"]

[[upstreams]]
url = "{upstream}"
dialect = "chat"
models = ["scripted"]
"""


class Searching:
    """A user whose server has a web search. `page` is the page that may be opened."""

    def __init__(
        self, node: Path, upstream: ScriptedUpstream, search: ScriptedUpstream, folder: Path
    ) -> None:
        self._programs = node / "node_modules" / ".bin"
        self._upstream = upstream
        self._folder = folder
        root = search.url.removesuffix("/v1")
        self.page = f"{root}/page"
        search.pages["/search"] = Script([json.dumps(FOUND).encode()], 200, JSON)
        search.pages["/page"] = Script([b"<p>First<p>Second"], 200, {"content-type": "text/html"})
        (folder / "work").mkdir()
        (folder / "bridge.toml").write_text(CONFIG.format(search=root, upstream=upstream.url))

    def rule(self, rule: Rule) -> None:
        """The rule by which the agent's model answers."""
        self._upstream.answer = ruled("chat", rule)

    def run(self, agent: str, *arguments: str) -> str:
        """Run the agent, and return its output."""
        options = [
            "--no-probe",
            "--program",
            str(self._programs / agent),
        ]  # the scripts answer the agent alone
        options += ["--config", str(self._folder / "bridge.toml")]
        home = self._folder
        done = run_agent(agent, *options, "--", *arguments, home=home, work=home / "work", data=home / "data")
        return done.stdout

    def codex(self, *flags: str) -> list[dict[str, Any]]:
        """The items of `codex exec`."""
        shown = self.run("codex", "exec", "--json", "--skip-git-repo-check", *flags, "Will it rain?")
        events = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
        return [each["item"] for each in events if each["type"] == "item.completed"]

    @property
    def sent(self) -> list[Received]:
        """The request to the agent's model."""
        return self._upstream.received


@pytest.fixture
def searching(node: Path, upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[Searching]:
    with ScriptedUpstream() as search:
        yield Searching(node, upstream, search, tmp_path)


def test_codex_has_the_server_search(searching: Searching) -> None:
    def rule(seen: Seen) -> Answer:
        if "search" not in seen.results:
            return Answer(calls=[("search", "web_search", {"query": "rain"})])
        if "open" not in seen.results:
            return Answer(calls=[("open", "open_page", {"url": searching.page})])
        assert "It will rain." in seen.results["search"]
        assert "Second" in seen.results["open"]
        return Answer(LINK)

    searching.rule(rule)
    items = searching.codex()
    assert [item["text"] for item in items if item["type"] == "agent_message"] == [LINK]
    actions = [item["action"] for item in items if item["type"] == "web_search"]
    assert [action["type"] for action in actions] == ["search", "open_page"]


def test_codex_searches_itself_at_the_server(searching: Searching) -> None:
    """With its feature `standalone_web_search`, `web.run` is Codex's own function, and `/v1/alpha/search`
    runs it."""

    def rule(seen: Seen) -> Answer:
        if "run" in seen.results:
            return Answer(LINK)
        commands = {
            "search_query": [{"q": "rain", "recency": 30}],
            "open": [{"ref_id": searching.page, "lineno": 2}],
            "find": [{"ref_id": searching.page, "pattern": "first"}],
            "time": [{"utc_offset": "+00:00"}],
        }
        return Answer(calls=[("run", named(seen, "run"), commands)])

    searching.rule(rule)
    provider = "model_providers.openresponses-bridge.supports_standalone_web_search=true"
    items = searching.codex("-c", "features.standalone_web_search=true", "-c", provider)
    assert [item["text"] for item in items if item["type"] == "agent_message"] == [LINK]
    (search,) = [item for item in items if item["type"] == "web_search"]
    assert search["action"] == {"type": "search", "query": "rain"}
    assert [each["url"] for each in search["results"]] == [PAGE]
    (content,) = [each["content"] for each in searching.sent[-1].body["messages"] if each["role"] == "tool"]
    text = content if isinstance(content, str) else content[0]["text"]
    for part in ("It will rain.", "Lines 2 to 2 of 2:\nSecond", "First", "Time at +00:00"):
        assert part in text


def test_claude_code_searches_with_its_own_tool(searching: Searching) -> None:
    def rule(seen: Seen) -> Answer:
        if "WebSearch" in seen.tools:
            is_first = "client" not in seen.results
            return Answer(calls=[("client", "WebSearch", {"query": "rain"})]) if is_first else Answer(LINK)
        if "ToolSearch" in seen.tools:  # it is among the deferred tools
            assert "tool" not in seen.results, seen.results
            return Answer(calls=[("tool", "ToolSearch", {"query": "select:WebSearch"})])
        if "web_search" in seen.tools:
            is_first = "search" not in seen.results
            return Answer(calls=[("search", "web_search", {"query": "rain"})]) if is_first else Answer(LINK)
        return Answer("A title.")

    searching.rule(rule)
    flags = ("-p", "Will it rain?", "--output-format", "json", "--allowedTools", "WebSearch")
    done = json.loads(searching.run("claude", *flags))
    assert done["result"] == LINK
    assert [each["webSearchRequests"] for each in done["modelUsage"].values()] == [1]
    results = [each for each in searching.sent[-1].body["messages"] if each["role"] == "tool"]
    assert f'{{"title":"Weather","url":"{PAGE}"}}' in json.dumps(results).replace("\\", "")
