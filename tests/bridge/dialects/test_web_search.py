"""Web searches from dialect to dialect and back: the same settings and the same pages."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.dialects import anthropic_messages, chat_completions
from openresponses_bridge.dialects.anthropic_messages import search as messages_search
from openresponses_bridge.dialects.base import Fields, Source, WebSearch, search_call, search_of, searched
from openresponses_bridge.dialects.chat_completions import ChatOptions
from openresponses_bridge.dialects.responses import Inbound, to_responses
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_request, encode
from tests.support.machines import plain
from tests.support.shared import require_shared

_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_DOMAINS = st.lists(_TEXT, max_size=2)
_PLACE = st.fixed_dictionaries({}, optional=dict.fromkeys(("country", "region", "city", "timezone"), _TEXT))
_WISHES = st.builds(
    WebSearch,
    allowed_domains=_DOMAINS,
    blocked_domains=_DOMAINS,
    location=_PLACE,
    context_size=st.none() | st.sampled_from(["low", "medium", "high"]),
    max_uses=st.none() | st.integers(1, 99),
)
_PAGES = st.lists(
    st.builds(Source, st.from_regex(r"https://[a-z]{1,5}", fullmatch=True), _TEXT),
    max_size=3,
    unique_by=lambda page: page.url,
)


@given(wish=_WISHES)
def test_a_wish_says_the_same_in_every_spelling(wish: WebSearch) -> None:
    assert search_of(wish.tool(), "tools[0]") == wish
    theirs = messages_search.wish_of(Fields(messages_search.FORM.make(wish), "tools[0]"))
    assert theirs == WebSearch(
        allowed_domains=wish.allowed_domains,
        blocked_domains=wish.blocked_domains,
        location=wish.location,
        max_uses=wish.max_uses,
    )
    request = decode_request(encode({"model": "m", "input": "Hi", "tools": [wish.tool().raw]}))
    body, _ = chat_completions.to_chat(request, options=ChatOptions(web_search="openai"))
    back, lost = chat_completions.from_chat(encode(body))
    (tool,) = back.tools or ()
    assert search_of(tool, "tools[0]") == WebSearch(location=wish.location, context_size=wish.context_size)
    assert not list(lost)


@given(query=_TEXT, pages=_PAGES, status=st.sampled_from(["completed", "failed"]))
def test_a_search_of_any_upstream_comes_back_from_a_client_of_messages(
    query: str, pages: list[Source], status: str
) -> None:
    pages = pages if status == "completed" else []
    item = search_call("ws_1", query, pages, status=status)
    machine = ResponseStreamStateMachine("m", wire="openai")
    machine.start()
    machine.item(item)
    machine.finish("stop")
    content = anthropic_messages.message(machine.snapshot)["content"]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "more"},
    ]
    request, _ = anthropic_messages.from_messages({"model": "m", "max_tokens": 99, "messages": messages})
    body, lost = to_responses(request)
    sent = body["input"][1]
    assert (sent["id"], sent["status"], sent["action"]["query"]) == ("ws_1", status, query)
    assert [each["url"] for each in sent["action"].get("sources", ())] == [page.url for page in pages]
    assert not list(lost.of("loss"))


def test_a_recorded_search_of_openais_is_one_for_clients_of_messages() -> None:
    path = require_shared() / "fixtures" / "responses" / "openai-web-search-tool.1.chunks.txt"
    machine = ResponseStreamStateMachine("m", wire="openai")
    inbound = Inbound(machine)
    for line in path.read_bytes().splitlines():
        inbound.feed(line)
    inbound.close()
    actions = [each for each in map(searched, machine.snapshot.output) if each is not None]
    searches = [each for each in actions if each.kind == "search"]
    assert 0 < len(searches) < len(actions)
    message = anthropic_messages.message(machine.snapshot)
    results = [block for block in message["content"] if block["type"] == "web_search_tool_result"]
    assert [len(block["content"]) for block in results] == [len(each.sources) for each in searches]
    assert message["usage"]["server_tool_use"]["web_search_requests"] == len(searches)
    assert any(block.get("citations") for block in message["content"])
    assert plain(machine.snapshot)["status"] == "completed"
