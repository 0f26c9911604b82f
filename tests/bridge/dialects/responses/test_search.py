"""Searches of the web at servers that speak Responses."""

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.base import SEARCH_SOURCES
from openresponses_bridge.dialects.responses import ResponsesOptions, to_responses
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.seal import Sealer

Json = dict[str, Any]
FUNCTION = {"type": "function", "name": "f", "parameters": {}}
WISH = {
    "type": "web_search",
    "filters": {"allowed_domains": ["a.example"], "blocked_domains": ["b.example"]},
    "user_location": {"type": "approximate", "country": "DE"},
    "search_context_size": "low",
    "external_web_access": True,
}


def sent(body: Json, **options: Any) -> tuple[Json, list[str]]:
    request = decode_request(json.dumps({"model": "m", "input": "Hi", **body}))
    payload, noted = to_responses(request, options=ResponsesOptions(**options))
    return payload, [case.where for case in noted.of("loss")]


def test_openai_gets_it_as_it_came() -> None:
    wish = {**WISH, "search_content_types": ["text"]}
    body, lost = sent({"tools": [wish], "include": [SEARCH_SOURCES]})
    assert (body["tools"], body["include"], lost) == ([wish], [SEARCH_SOURCES], [])


def test_what_only_anthropic_has_does_not_reach_openai() -> None:
    body, lost = sent({"tools": [{**WISH, "max_uses": 3}]})
    assert (body["tools"], lost) == ([WISH], ["tools[0].max_uses"])


def test_each_server_is_asked_in_its_own_words() -> None:
    filters = {"allowed_domains": ["a.example"]}
    openai_tool = {name: value for name, value in WISH.items() if name != "external_web_access"}
    forms = {
        "openai": (openai_tool, []),
        "xai": ({"type": "web_search", "filters": filters}, [*openai_tool][1:]),
        "groq": ({"type": "browser_search"}, [*openai_tool][1:]),
        "plain": ({"type": "web_search"}, [*openai_tool][1:]),
    }
    for name, (tool, unsaid) in forms.items():
        body, lost = sent({"tools": [FUNCTION, WISH]}, supersets=False, web_search=name)
        assert [body["tools"][0]["name"], body["tools"][1]] == ["f", tool]
        assert {where.partition(".")[2].partition(".")[0] for where in lost} == set(unsaid)
    assert sent({"tools": [WISH]}, web_search="plain")[0]["tools"] == [{"type": "web_search"}]


@pytest.mark.parametrize("supersets", [True, False])
def test_a_server_without_one_loses_it(supersets: bool) -> None:
    body, lost = sent({"tools": [FUNCTION, WISH]}, supersets=supersets, web_search="none")
    assert [tool["type"] for tool in body["tools"]] == ["function"]
    assert len(lost) == 1
    assert "include" not in sent({"include": [SEARCH_SOURCES]}, supersets=False)[0]


def test_xai_has_a_name_of_its_own_for_what_is_blocked() -> None:
    blocked = {"type": "web_search", "filters": {"blocked_domains": ["b.example"]}}
    body, lost = sent({"tools": [blocked]}, supersets=False, web_search="xai")
    assert (body["tools"][0]["filters"], lost) == ({"excluded_domains": ["b.example"]}, [])


def test_a_search_alone_that_is_chosen_is_required() -> None:
    chosen = {"type": "web_search"}
    assert sent({"tools": [WISH], "tool_choice": chosen})[0]["tool_choice"] == "required"
    assert sent({"tools": [WISH, FUNCTION], "tool_choice": chosen})[0]["tool_choice"] == chosen


def test_it_can_be_chosen_where_it_is_known() -> None:
    for choice in ("required", {"type": "web_search"}):
        fields = {"tools": [WISH], "tool_choice": choice}
        assert sent(fields, supersets=False, web_search="xai")[0]["tool_choice"] == choice
        with pytest.raises(InvalidRequestError):
            sent(fields, supersets=False)


SOURCE = {"type": "url", "url": "https://a.example", "title": "A"}
SEALED = Sealer().seal(b"{}", "anthropic-search")
CALL = {
    "type": "web_search_call",
    "id": "srvtoolu_1",
    "status": "completed",
    "action": {"type": "search", "query": "x", "sources": [SOURCE, 3]},
    "encrypted_content": SEALED,
}
CITED = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 1}
SAID = {"type": "output_text", "text": "a", "annotations": [{**CITED, "encrypted_content": SEALED}]}
ANSWER = {"type": "message", "role": "assistant", "content": [SAID]}


@pytest.mark.parametrize("options", [{}, {"supersets": False, "web_search": "xai"}])
def test_what_was_found_goes_on_without_what_was_sealed_for_others(options: Json) -> None:
    body, lost = sent({"input": [CALL, ANSWER]}, **options)
    call, answer = body["input"]
    action = {"type": "search", "query": "x", "sources": [{"type": "url", "url": "https://a.example"}, 3]}
    assert (call["action"], "encrypted_content" in call) == (action, False)
    assert answer["content"][0]["annotations"] == [CITED]
    assert lost == ["input[0]", "input[1]"]
    if not options:
        assert call["id"].startswith("ws_")


def test_what_the_server_itself_has_encrypted_goes_back() -> None:
    own = {**CALL, "id": "ws_1", "encrypted_content": "gAAAA"}
    body, lost = sent({"input": [own]})
    assert (body["input"][0]["encrypted_content"], lost) == ("gAAAA", [])


def test_elsewhere_what_was_found_is_a_text() -> None:
    body, lost = sent({"input": [CALL]}, supersets=False)
    (message,) = body["input"]
    assert (message["role"], message["content"][0]["text"]) == (
        "assistant",
        "[searched the web for 'x' and found\n- A https://a.example]",
    )
    assert lost == ["input[0]"]


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ({"type": "open_page", "url": "https://a.example"}, "[opened the page https://a.example]"),
        (
            {"type": "find_in_page", "url": "https://a.example", "pattern": "p"},
            "[looked for 'p' in the page https://a.example]",
        ),
        ({"type": "search", "query": "x" * 600}, f"[searched the web for '{'x' * 500}…']"),
        (None, "[searched the web]"),
    ],
)
def test_each_action_has_its_text(action: Any, text: str) -> None:
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    assert sent({"input": [item]}, supersets=False)[0]["input"][0]["content"][0]["text"] == text


def test_a_search_that_failed_says_so_and_long_lists_are_cut() -> None:
    many = {"type": "search", "query": "x", "sources": [{"url": f"https://a.example/{n}"} for n in range(99)]}
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": many}
    failed = {**item, "status": "failed"}
    text, without = (
        each["content"][0]["text"] for each in sent({"input": [item, failed]}, supersets=False)[0]["input"]
    )
    assert text.count("\n") == 20
    assert without == "[searched the web for 'x', which failed]"
