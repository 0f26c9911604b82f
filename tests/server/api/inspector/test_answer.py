"""The answer on the inspector's page: calls that the server ran, approvals, and what a text cites."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.protocol.hosted import work_of
from openresponses_bridge.protocol.unknown import OURS, UnknownItem
from tests.support.inspector_answers import ASKED, CALLED, HOSTILE, LINKS, LISTED, SEARCHED, observed
from tests.support.inspector_modules import modules

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")

APPROVED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
DECLINED = {**APPROVED, "approve": False, "reason": HOSTILE}
ITEMS: list[dict[str, Any]] = [
    CALLED,
    LISTED,
    SEARCHED,
    ASKED,
    {**CALLED, "output": None, "error": {"message": "down"}},
    {**CALLED, "output": None, "error": {"content": [{"type": "text", "text": "down"}, 7]}},
    {**CALLED, "output": None, "error": {"content": []}},
    {**CALLED, "name": 7, "output": [1], "error": 7},
    {**LISTED, "error": "no tools"},
    {**SEARCHED, "status": "failed", f"{OURS}output": "down"},
    {**SEARCHED, "action": {"type": "open_page", "url": "https://a"}, f"{OURS}output": "text"},
    {**SEARCHED, "type": "openai:web_search_call", "action": 7},
    {"type": "file_search_call", "id": "f", "queries": ["a"]},
    {"type": "code_interpreter_call", "id": "c", "code": "1"},
    {"type": "acme:look", "id": "a"},
]


def drawn(*cases: dict[str, Any], links: Any = (), items: Any = ()) -> Any:
    assert NODE is not None
    text = json.dumps({"cases": cases, "links": list(links), "items": list(items)})
    command = [NODE, str(Path(__file__).with_name("answer.mjs")), modules()]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def texts(case: dict[str, Any], tag: str, **props: str) -> list[str]:
    """The texts of elements with this tag and these properties."""
    return [
        " ".join(each["text"].split())
        for each in case["elements"]
        if each["tag"] == tag and props.items() <= each["props"].items()
    ]


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_calls_approvals_and_citations_are_shown(wire: str) -> None:
    stream = observed(LISTED, SEARCHED, CALLED, text="Rain.", cites=[("https://a.example/x", "A")], wire=wire)
    asks = observed(ASKED, wire=wire)
    request, declined = {"input": [APPROVED]}, {"input": [DECLINED]}
    done, waits, approved, refused = drawn(
        {"observations": stream, "request": request, "requests": [request]},
        {"observations": asks, "requests": [{"input": "Hi"}, None]},
        {"observations": asks, "requests": [None, request]},
        {"observations": asks, "requests": [declined, request]},
    )["drawn"]
    heads = [" ".join(each.split()) for each in texts(done, "header")]
    slug = ["mcp_list_tools", "web_search_call", "mcp_call"]
    assert [head.split()[:2] for head in heads] == [
        ["mcp_list_tools", slug[0]],
        ["web_search", slug[1]],
        ["get_forecast", slug[2]],
    ]
    assert all(head.endswith("500 ms") for head in heads)
    assert heads[2] == "get_forecast mcp_call by the MCP server weathercompleted 500 ms"
    assert "https://a.example" in texts(done, "div", **{"class": "result"})[0]
    assert "resultRain" in " ".join(texts(done, "div", **{"class": "result"}))
    (link,) = [each for each in done["elements"] if each["tag"] == "a"]
    assert link["props"] == {
        "href": "https://a.example/x",
        "target": "_blank",
        "rel": "noopener noreferrer nofollow",
    }
    assert texts(done, "p", **{"class": "note"}) == ["approved mcpr_1"]
    for case, words in ((waits, "waits for a decision"), (approved, "approved"), (refused, "declined")):
        (head,) = texts(case, "header")
        assert head.startswith(f"get_forecast asks for approval by the MCP server weather {words}")
    assert set(done["kinds"]) == {3, 1}  # tools and the message


def test_a_failed_call_and_the_limit_of_calls_are_shown() -> None:
    failed = {**CALLED, "output": None, "error": {"message": "down"}, "status": "failed"}
    reached, below = drawn(
        {"observations": observed(failed, SEARCHED, limit=2)}, {"observations": observed(failed, limit=2)}
    )["drawn"]
    assert len(texts(reached, "div", **{"class": "panel call failed"})) == 1
    assert "errordown" in texts(reached, "div", **{"class": "result"})
    assert "as often as allowed: 2 (max_tool_calls)" in reached["text"]
    assert "max_tool_calls" not in below["text"]


def test_only_addresses_of_the_web_are_links() -> None:
    cites = [(url, HOSTILE) for url in LINKS]
    result = drawn({"observations": observed(text="x", cites=cites)}, links=LINKS)
    assert result["links"] == list(LINKS.values())
    (case,) = result["drawn"]
    links = [each["props"] for each in case["elements"] if each["tag"] == "a"]
    assert [each["href"] for each in links] == [link for link in LINKS.values() if link]
    assert {each["rel"] for each in links} == {"noopener noreferrer nofollow"}
    assert len(texts(case, "li")) == len(LINKS), "nothing is lost: the others are text"
    assert not any("dangerouslySetInnerHTML" in each["props"] for each in case["elements"])
    assert "\u202e" not in case["text"]
    assert "\x1b" not in case["text"]


def test_work_is_read_as_the_library_does() -> None:
    for item, result in zip(ITEMS, drawn(items=ITEMS)["works"], strict=True):
        work = work_of(UnknownItem(item))
        if work is None:
            assert result is None, item
            continue
        assert (work.name, work.server_label, work.error) == (
            result["name"],
            result["runner"],
            result["error"],
        )
        tools = ", ".join(each["name"] for each in result["tools"])
        is_list = result["kind"] == "mcp_list_tools"
        assert (work.result or None) == ((None if work.error else tools) if is_list else result["result"]), (
            item
        )
        assert work.input == result["given"], item


def test_hostile_and_huge_items_are_shown_as_bounded_text() -> None:
    hostile = {
        **dict.fromkeys(("server_label", "name", "arguments", "output"), HOSTILE),
        "type": "mcp_call",
        "id": "h1",
        "status": "completed",
    }
    huge = {**CALLED, "id": "h2", "arguments": "x" * 1_000_000, "output": "y" * 3_000_000}
    tools = [{"name": HOSTILE, "description": "z" * 10_000} for _ in range(1_000)]
    approval = {**ASKED, **dict.fromkeys(("server_label", "name", "arguments"), HOSTILE)}
    odd = {**CALLED, "id": "h3", "name": 7, "arguments": {"a": [1]}, "error": {"content": 7}, "output": 7}
    many = [{**APPROVED, "approval_request_id": f"mcpr_{at}{HOSTILE}"} for at in range(5_000)]
    stream = observed(hostile, huge, {**LISTED, "tools": tools}, approval, odd)
    (case,) = drawn({"observations": stream, "request": {"input": many}, "requests": [{"input": many}]})[
        "drawn"
    ]
    assert len(case["text"]) < 130_000
    assert {each["tag"] for each in case["elements"]} <= {
        *("div", "p", "span", "code", "header", "strong", "bdi", "details", "summary", "ul", "ol", "li", "a")
    }
    assert not any(sign in case["text"] for sign in "\u202e\x1b")
    assert "2996000 more characters" in case["text"]
    assert "900 more." in case["text"]
