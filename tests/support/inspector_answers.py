"""Answers as the inspector's page observes them: hosted calls, approvals, links, hostile text."""

import json
from typing import Any

from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from tests.support.machines import counting_ids

HOSTILE = "<img src=x onerror=alert(1)>\u202egnp\x1b[2J"


CALLED: dict[str, Any] = {
    "type": "mcp_call",
    "id": "mcp_1",
    "server_label": "weather",
    "name": "get_forecast",
    "arguments": '{"city":"Oslo"}',
    "output": "Rain",
    "error": None,
    "status": "completed",
    "approval_request_id": "mcpr_1",
}


LISTED = {"type": "mcp_list_tools", "id": "l", "server_label": "weather", "tools": [{"name": "get_forecast"}]}


SEARCHED: dict[str, Any] = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "rain", "sources": [{"type": "url", "url": "https://a.example"}]},
}


ASKED = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "weather",
    "name": "get_forecast",
    "arguments": '{"city":"Oslo"}',
}


LINKS = {
    "https://example.com/a?b=c#d": "https://example.com/a?b=c#d",
    "HTTP://example.com": "http://example.com/",
    "javascript:alert(1)": None,
    "java\nscript:alert(1)": None,
    " \x01javascript:alert(1)": None,
    "data:text/html,<script>alert(1)</script>": None,
    "vbscript:x": None,
    "file:///etc/passwd": None,
    "blob:https://example.com/x": None,
    "//example.com": None,
    "/inspector": None,
    "": None,
    'https://example.com/"onclick="alert(1)': "https://example.com/%22onclick=%22alert(1)",
}


def observed(
    *items: dict[str, Any],
    text: str = "",
    cites: Any = (),
    wire: str = "openai",
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Return the events of an answer as the page gets them, one every half second."""
    request = CreateResponse(model="m", max_tool_calls=limit)
    machine = ResponseStreamStateMachine("m", request, ids=counting_ids(), clock=lambda: 0, wire=wire)
    events = machine.start()
    for item in items:
        events += machine.item_added({**item, "status": "in_progress"} if "status" in item else item)
        events += machine.item(item)
    if text:
        events += machine.text(text)
    for url, title in cites:
        cited = {"type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": 1}
        events += machine.annotation(cited)
    sent = json.loads(encode(events + machine.finish()))
    return [{"event": each["type"], "data": each, "at": 0.5 * at} for at, each in enumerate(sent)]
