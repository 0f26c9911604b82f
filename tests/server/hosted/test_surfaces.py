"""Searches that the server runs, for clients of every surface; the settings of such tools as they are
shown."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from openresponses_bridge.conformance import StreamValidator
from openresponses_cli.commands.cli import main
from openresponses_server.settings import UpstreamSettings, WebSearchSettings
from tests.support import dialect_scripts as scripts
from tests.support.schema import event_violations
from tests.support.searxng import HIT, SEARCH, calling, settings
from tests.support.serving import call, respond, serving, stream
from tests.support.sockets import opened_socket
from tests.support.upstream import Script, ScriptedUpstream, text


def test_a_search_on_a_websocket(searching: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [calling("web_search", '{"query":"x"}'), Script(text("Well."))]
    with opened_socket(searching) as socket:
        turn = socket.turn(model="m", input="x", tools=SEARCH)
    assert [item["type"] for item in turn.final["output"]] == ["web_search_call", "message"]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_search_of_a_chat_client(searching: str, upstream: ScriptedUpstream, streamed: bool) -> None:
    upstream.scripts["m"] = [calling("web_search", '{"query":"x"}'), Script(text("Well."))]
    messages = [{"role": "user", "content": "x"}]
    body = {"model": "m", "messages": messages, "web_search_options": {}, "stream": streamed}
    reply = call(searching, "POST", "/v1/chat/completions", body)
    assert reply.status == 200
    assert b"Well." in reply.body
    assert b"tool_calls" not in reply.body.replace(b'"tool_calls":null', b"")
    assert "rain" in str(upstream.received[-1].body["messages"][-1])


@pytest.mark.parametrize("streamed", [True, False])
def test_a_search_of_a_messages_client(searching: str, upstream: ScriptedUpstream, streamed: bool) -> None:
    upstream.scripts["m"] = [calling("web_search", '{"query":"x"}'), Script(text("Well."))]
    tools = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]
    messages = [{"role": "user", "content": "x"}]
    body = {"model": "m", "max_tokens": 9, "messages": messages, "tools": tools, "stream": streamed}
    reply = call(searching, "POST", "/v1/messages", body)
    assert reply.status == 200
    assert b"Well." in reply.body
    assert b"server_tool_use" in reply.body
    assert b"end_turn" in reply.body


def test_a_search_may_have_a_most_of_uses(searching: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [*[calling("web_search", '{"query":"x"}')] * 2, Script(text("Well."))]
    final = stream(searching, model="m", tools=[{"type": "web_search", "max_uses": 1}]).final
    assert [item["status"] for item in final["output"]] == ["completed", "failed", "completed"]


def test_settings_are_shown_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from openresponses_agent.tools import ToolRegistry\nregistry = ToolRegistry()\n"
    )
    config = tmp_path / "c.toml"
    config.write_text(
        '[web_search]\nprovider = "brave"\napi_key = "hidden"\n[[functions]]\nmodule = "mine.py"\n'
    )
    for flags in ([], ["--all"]):
        shown = CliRunner().invoke(main, ["config", "check", str(config), *flags])
        assert shown.exit_code == 0, shown.output
        assert "[[functions]]" in shown.output
        assert "hidden" not in shown.output
    config.write_text('[web_search]\nprovider = "searxng"\n')
    wrong = CliRunner().invoke(main, ["config", "check", str(config)])
    assert wrong.exit_code == 1
    assert "web_search" in wrong.output


LINK = "[rain](https://example.com/weather)"
ANSWER = ("It ", LINK[:20], LINK[20:], " and https://other.example/.")
CITED = {"type": "url_citation", "url": HIT[0], "title": HIT[1]}


def cites(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [calling("web_search", '{"query":"x"}'), Script(text(*ANSWER))]


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_an_answer_that_names_a_page_cites_it(searching: str, upstream: ScriptedUpstream, wire: str) -> None:
    cites(upstream)
    include = ["web_search_call.action.sources"]
    reply = stream(searching, {"openresponses-wire": wire}, model="m", tools=SEARCH, include=include)
    content = reply.final["output"][-1]["content"][0]
    assert content["text"] == "".join(ANSWER)
    (cited,) = content["annotations"]
    assert cited == {**CITED, "start_index": 3, "end_index": 3 + len(LINK)}
    assert content["text"][cited["start_index"] : cited["end_index"]] == LINK
    assert reply.final["output"][0]["action"]["sources"] == [{"type": "url", "url": HIT[0], "title": HIT[1]}]
    added = next(each for each in reply.events if each["type"].endswith("annotation.added"))
    assert added["annotation"] == cited
    # it comes with the text that completes it, not at the end
    later = reply.events[reply.events.index(added) :]
    assert any(each["type"] == "response.output_text.delta" for each in later)
    validator = StreamValidator(wire)  # type: ignore[arg-type]
    assert not [each for event in reply.events for each in validator.feed(json.dumps(event))]
    assert not list(event_violations(added))
    # it is read again from each event
    for after in range(len(reply.events) - 1):
        path = f"/v1/responses/{reply.final['id']}?stream=true&starting_after={after}"
        assert call(searching, "GET", path).frames == reply.frames[after + 1 :]
    # the whole answer is the same
    cites(upstream)
    whole = respond(searching, {"openresponses-wire": wire}, model="m", tools=SEARCH).json
    assert whole["output"][-1]["content"][0]["annotations"] == [cited]


@pytest.mark.parametrize("dialect", ["chat", "anthropic", "responses", "gemini"])
def test_answers_of_every_kind_of_upstream_cite(
    upstream: ScriptedUpstream, searxng: ScriptedUpstream, dialect: str
) -> None:
    at = UpstreamSettings(url=upstream.url, name="scripted", dialect=dialect)
    where = WebSearchSettings(provider="searxng", url=searxng.url.removesuffix("/v1"), when="always")
    upstream.scripts["m"] = [
        Script(scripts.call(dialect, ("call_1", "web_search", '{"query":"x"}'))),
        Script(scripts.text(dialect, *ANSWER)),
    ]
    with serving(settings(upstream, searxng, upstreams=[at], web_search=where)) as base:
        final = stream(base, model="m", tools=SEARCH).final
    content = final["output"][-1]["content"][0]
    assert content["annotations"] == [{**CITED, "start_index": 3, "end_index": 3 + len(LINK)}]


@pytest.mark.parametrize("streamed", [True, False])
def test_clients_of_other_apis_see_what_is_cited(
    searching: str, upstream: ScriptedUpstream, streamed: bool
) -> None:
    turn = [{"role": "user", "content": "x"}]
    chat = {"model": "m", "messages": turn, "web_search_options": {}, "stream": streamed}
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    messages = {"model": "m", "max_tokens": 99, "messages": turn, "tools": tools, "stream": streamed}
    gemini = {"contents": [{"role": "user", "parts": [{"text": "x"}]}], "tools": [{"googleSearch": {}}]}
    verb = "streamGenerateContent?alt=sse" if streamed else "generateContent"
    cites(upstream)
    reply = call(searching, "POST", "/v1/chat/completions", chat)
    there = {"url": HIT[0], "title": HIT[1], "start_index": 3, "end_index": 3 + len(LINK)}
    assert json.dumps(there, separators=(",", ":")).encode() in reply.body
    cites(upstream)
    reply = call(searching, "POST", "/v1/messages", messages)
    assert b"web_search_result_location" in reply.body
    if not streamed:
        kinds = [block["type"] for block in reply.json["content"]]
        assert kinds == ["server_tool_use", "web_search_tool_result", "text", "text"]
        assert [each["url"] for each in reply.json["content"][2]["citations"]] == [HIT[0]]
    cites(upstream)
    reply = call(searching, "POST", f"/v1beta/models/m:{verb}", gemini)
    last = reply.events[-1] if streamed else reply.json
    grounding = last["candidates"][0]["groundingMetadata"]
    assert grounding["groundingChunks"] == [{"web": {"uri": HIT[0], "title": HIT[1]}}]
    segment = {"startIndex": 3, "endIndex": 3 + len(LINK), "text": LINK}
    assert grounding["groundingSupports"] == [{"segment": segment, "groundingChunkIndices": [0]}]


def test_a_page_that_was_opened_is_cited(upstream: ScriptedUpstream, searxng: ScriptedUpstream) -> None:
    page = f"{searxng.url.removesuffix('/v1')}/rain"
    searxng.pages["/rain"] = Script([b"<title>Of rain</title>It rains."], 200, {"content-type": "text/html"})
    where = WebSearchSettings(provider="duckduckgo", private_hosts=["127.0.0.1"])
    with serving(settings(upstream, searxng, web_search=where)) as base:
        upstream.scripts["m"] = [calling("open_page", f'{{"url":"{page}"}}'), Script(text(f"See {page}."))]
        final = stream(base, model="m", tools=SEARCH).final
    (cited,) = final["output"][-1]["content"][0]["annotations"]
    assert (cited["url"], cited["title"], cited["start_index"]) == (page, "Of rain", 4)


def test_a_page_that_could_not_be_opened_is_not_cited(searching: str, upstream: ScriptedUpstream) -> None:
    page = "https://example.com/weather"
    upstream.scripts["m"] = [calling("open_page", '{"url":"http://127.0.0.1/"}'), Script(text(f"At {page}."))]
    final = stream(searching, model="m", tools=SEARCH).final
    assert final["output"][-1]["content"][0]["annotations"] == []  # nothing was found or opened


def test_without_a_search_nothing_is_cited(searching: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text(*ANSWER))
    final = stream(searching, model="m", tools=SEARCH).final
    assert final["output"][-1]["content"][0]["annotations"] == []
