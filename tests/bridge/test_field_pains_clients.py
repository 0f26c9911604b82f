"""Problems of bridges' clients, each a row with its number, tested without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.anthropic_messages import from_messages, to_messages
from openresponses_bridge.dialects.chat_completions import to_chat
from openresponses_bridge.dialects.responses import to_responses
from openresponses_bridge.protocol.codec import encode

USER = {"role": "user", "content": "q"}
CLAUDE, OTHER = "claude-sonnet-4-5", "kimi-k2.5"
MARK = {"type": "ephemeral"}
BILLING = "x-anthropic-billing-header: cc_version=2.1.240; cc_entrypoint=cli; cch=eb6c6;"


def block(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **fields}


def translated(given: dict[str, Any], model: str = OTHER) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """(what a Chat server is sent, what one of Anthropic's API is sent for the model, losses at the
    former)."""
    request, noted = from_messages(encode({"model": "m", "max_tokens": 9, "messages": [USER], **given}))
    chat, lost = to_chat(request)
    messages, _ = to_messages(request, model=model)
    return (
        json.loads(encode(chat)),
        json.loads(encode(messages)),
        [case.where for report in (noted, lost) for case in report.of("loss")],
    )


# system → the system message elsewhere, the system prompt for a Claude
SYSTEM: dict[str, tuple[Any, str | None, list[Any]]] = {
    "P39, a block": (
        [block(BILLING), block("be", cache_control=MARK)],
        "be",
        [block(BILLING), block("be", cache_control=MARK)],
    ),
    "P39, the only block": ([block(BILLING)], None, [block(BILLING)]),
    "P39, a block that ends its line": (
        [block(BILLING + "\n"), block("be")],
        "be",
        [block(BILLING + "\n"), block("be")],
    ),
    "P39, the first line of a text": (f"{BILLING}\n\nbe\nso", "be\nso", [block(BILLING), block("be\nso")]),
    "P39, all of a text": (BILLING, None, [block(BILLING)]),
    "P39, a block that says more": (
        [block(f"{BILLING}\nbe")],
        f"{BILLING}\nbe",
        [block(f"{BILLING}\nbe")],
    ),
    "P39, not at the head": (
        [block("be"), block(BILLING)],
        f"be\n\n{BILLING}",
        [block("be"), block(BILLING)],
    ),
    "P39, other words": (f"The {BILLING}", f"The {BILLING}", [block(f"The {BILLING}")]),
    "P39, another spelling": (f" {BILLING}", f" {BILLING}", [block(f" {BILLING}")]),
}


@pytest.mark.parametrize("name", SYSTEM)
def test_p39_a_line_for_anthropics_billing_is_sent_to_anthropic_alone(name: str) -> None:
    system, text, blocks = SYSTEM[name]
    chat, claude, _ = translated({"system": system}, CLAUDE)
    found = [each["content"] for each in chat["messages"] if each["role"] == "system"]
    assert found == ([] if text is None else [text])
    assert claude.get("system", []) == blocks
    _, other, _ = translated({"system": system})
    assert "\n\n".join(each["text"] for each in other.get("system", [])) == (text or "")
    request, _ = from_messages({"model": "m", "max_tokens": 9, "messages": [USER], "system": system})
    assert to_responses(request)[0].get("instructions") == text


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": name, "input_schema": {"type": "object"}, **fields}


def deferred(name: str) -> dict[str, Any]:
    return function(name, defer_loading=True)


def used(name: str, call_id: str = "t1") -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": name, "input": {}}]}


def result(*content: dict[str, Any], call_id: str = "t1") -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": call_id, "content": list(content)}],
    }


def found(name: str) -> dict[str, Any]:
    return {"type": "tool_reference", "tool_name": name}


SEARCH = function("ToolSearch")
LATER = [deferred("Read"), deferred("Grep"), deferred("Web")]
# fields of the request → the tools that are offered elsewhere, the results there
LOADED: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "P40, nothing was loaded": ({"tools": [*LATER, SEARCH]}, ["ToolSearch"], []),
    "P40, in the order in which they were loaded": (
        {
            "tools": [*LATER, SEARCH],
            "messages": [USER, used("ToolSearch"), result(found("Web"), found("Read"))],
        },
        ["ToolSearch", "Web", "Read"],
        ["Loaded: Web, Read"],
    ),
    "P40, twice, beside text": (
        {
            "tools": [SEARCH, *LATER],
            "messages": [
                USER,
                used("ToolSearch"),
                result(block("Two."), found("Read")),
                used("ToolSearch", "t2"),
                result(found("Read"), found("Grep"), found("Gone"), call_id="t2"),
            ],
        },
        ["ToolSearch", "Read", "Grep"],
        ["Two.\n\nLoaded: Read", "Loaded: Read, Grep, Gone"],
    ),
    "P40, one that was called, whose search is gone": (
        {"tools": [*LATER, SEARCH], "messages": [USER, used("Grep"), result(block("a"))]},
        ["ToolSearch", "Grep"],
        ["a"],
    ),
    "P40, one that has to be called": (
        {"tools": [*LATER, SEARCH], "tool_choice": {"type": "tool", "name": "Web"}},
        ["ToolSearch", "Web"],
        [],
    ),
    "P40, without a tool of the client's to find them": ({"tools": LATER}, ["Read", "Grep", "Web"], []),
    "P40, with a search that the API runs": (
        {"tools": [function("a"), *LATER, {"type": "tool_search_tool_regex_20251119", "name": "s"}]},
        ["a", "Read", "Grep", "Web"],
        [],
    ),
}


@pytest.mark.parametrize("name", LOADED)
def test_p40_deferred_tools_are_offered_when_they_were_loaded(name: str) -> None:
    body, offered, results = LOADED[name]
    chat, native, losses = translated(body)
    assert [each["function"]["name"] for each in chat.get("tools", [])] == offered
    assert [_text(each["content"]) for each in chat["messages"] if each["role"] == "tool"] == results
    assert native["tools"] == body["tools"]
    history = [each for each in body.get("messages", [USER]) if each["role"] == "user"]
    assert [each["content"] for each in native["messages"] if each["role"] == "user"][1:] == [
        each["content"] for each in history
    ][1:]
    # all are offered at once where nothing could load them: said, since the client meant another thing
    assert any("defer_loading" in each for each in losses) is (
        len(offered) > 2 and "Loaded" not in "".join(results)
    )
    assert not any("tool_reference" in each for each in losses)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
