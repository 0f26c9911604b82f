"""The inspector's page in Chromium: calls that the server ran, approvals, and links from untrusted
sources."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from openresponses_server.settings import McpServerSettings, Settings, UpstreamSettings
from tests.support.inspector_answers import ASKED, CALLED, HOSTILE, LINKS, LISTED, SEARCHED, observed
from tests.support.inspector_page import dropped
from tests.support.mcp_http import HttpPeer
from tests.support.serving import call as request
from tests.support.serving import serving
from tests.support.upstream import Received, Script, ScriptedUpstream, call, chunk, text

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
TOOLS = [{"type": "mcp", "server_label": "weather"}]


def model(received: Received) -> Script:
    if received.body["messages"][-1]["role"] == "tool":
        return Script(text("Told."))
    steps = [call(0, '{"city":"Oslo"}', "mcp__weather__get_forecast", "c1"), chunk("tool_calls")]
    return Script([*steps, b"data: [DONE]\n\n"])


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with ScriptedUpstream() as upstream, ScriptedUpstream() as behind:
        upstream.answer = model
        peer = HttpPeer(behind)
        peer.results["tools/list"] = {"tools": [{"name": "get_forecast", "inputSchema": {"type": "object"}}]}
        peer.results["tools/call"] = {"content": [{"type": "text", "text": "Rain in Oslo"}]}
        settings = Settings(
            store="memory://",
            upstreams=[UpstreamSettings(url=upstream.url, name="one", models=["m"])],
            mcp_servers=[McpServerSettings(name="weather", url=f"{behind.url}/mcp")],
            mcp_private_hosts=[urlsplit(behind.url).netloc],
        )
        with serving(settings) as address:
            yield address


def capture(observations: list[dict[str, Any]]) -> bytes:
    return b"".join(
        f"event: {each['event']}\ndata: {json.dumps(each['data'])}\n\n".encode() for each in observations
    )


def test_what_the_server_ran_is_shown_and_strangers_words_do_nothing(
    page: Any, faults: Callable[[Any], list[str]]
) -> None:
    hostile = {**CALLED, "id": "mcp_2", "name": HOSTILE, "server_label": HOSTILE, "output": HOSTILE}
    cites = [(url, HOSTILE) for url in LINKS]
    dialogs: list[str] = []

    def refuse(dialog: Any) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", refuse)
    dropped(page, capture(observed(LISTED, SEARCHED, CALLED, hostile, ASKED, text="Rain.", cites=cites)))
    page.locator(".sources").wait_for()
    assert page.locator(".answer .panel.call").count() == 5
    assert page.locator(".answer .panel.call header").nth(2).inner_text().split()[0] == "get_forecast"
    assert page.get_by_role("group", name="Request for approval of get_forecast").count() == 1
    links = page.locator(".sources a").evaluate_all("all => all.map(a => [a.protocol, a.rel, a.target])")
    assert {tuple(each) for each in links} == {
        (protocol, "noopener noreferrer nofollow", "_blank") for protocol in ("http:", "https:")
    }
    assert page.locator(".sources li").count() == len(LINKS)
    assert page.locator(".answer img, .answer script").count() == 0
    assert dialogs == []
    assert faults(page) == []


def sent(page: Any, previous: str, **fields: Any) -> None:
    """Send a request with the tools of the MCP server."""
    page.get_by_role("button", name="Request", exact=True).click()
    page.locator(".composer").evaluate(
        "form => form.querySelectorAll('details').forEach(each => { each.open = true; })"
    )
    page.fill("#model", "m")
    page.fill("#previous", previous)
    page.fill("#more", json.dumps({"tools": TOOLS, **fields}))
    page.get_by_role("button", name="Send", exact=True).click()
    page.locator(".figures .status:not(.live)").wait_for()


def test_a_decision_is_shown_beside_its_request_and_in_the_next_response(page: Any, base: str) -> None:
    sent(page, "", input="Rain?")
    page.get_by_text("waits for a decision").wait_for()
    first = page.locator(".figures .id").inner_text()
    request_id = json.loads(request(base, "GET", f"/v1/responses/{first}").body)["output"][-1]["id"]
    approval = {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": True}
    sent(page, first, input=[approval])
    page.locator(".answer .note", has_text="approved").wait_for()
    page.locator(".answer .panel.call .result", has_text="Rain in Oslo").wait_for()
    page.get_by_role("navigation", name="Open streams").get_by_role("button").first.click()
    page.locator(".answer .panel.call header", has_text="asks for approval").wait_for()
    assert page.locator(".answer .panel.call header .status", has_text="approved").count() == 1
