"""Web searches that Anthropic runs: as items for any client, and sent back byte for byte; and searches of
other upstreams for clients of Messages."""

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.anthropic_messages import (
    MessagesOptions,
    Outbound,
    encode_sse,
    from_messages,
    to_messages,
)
from openresponses_bridge.dialects.anthropic_messages import message as whole_message
from openresponses_bridge.dialects.base import SEARCH_SOURCES
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.seal import Sealer
from tests.support.anthropic import (
    Json,
    add_up,
    closed,
    delta,
    opened,
    parse_sse,
    run,
    sealed,
    start,
    stop,
    text,
)
from tests.support.anthropic_requests import F, out
from tests.support.machines import WIRES, plain

PAGE = {"type": "web_search_result", "url": "https://a.example/1", "title": "One", "page_age": "May 1"}
FOUND = [
    {**PAGE, "encrypted_content": "Eq4="},
    {**PAGE, "url": "https://a.example/2", "encrypted_content": "Fr"},
]
CITED = {
    "type": "web_search_result_location",
    "url": "https://a.example/1",
    "title": "One",
    "cited_text": "words",
    "encrypted_index": "Eo8B",
}


def use(index: int, own: str = "srvtoolu_1", *pieces: str) -> list[bytes]:
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in pieces or ('{"query":"x"}',)]
    return [opened(index, "server_tool_use", id=own, name="web_search", input={}), *deltas, closed(index)]


def found(index: int, content: Any = FOUND, own: str = "srvtoolu_1") -> list[bytes]:
    return [opened(index, "web_search_tool_result", tool_use_id=own, content=content), closed(index)]


def kinds(fed: Any) -> list[str]:
    return [event.type.removeprefix("openai:").removeprefix("response.") for event in fed.events]


# ── its streams ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("wire", WIRES)
def test_a_search_is_one_item_with_its_progress(wire):
    fed = run(start(), use(0, "srvtoolu_1", '{"que', 'ry":"x"}'), found(1), text(2, "a"), stop(), wire=wire)
    item, message = fed.output
    assert item["type"].removeprefix("openai:") == "web_search_call"
    assert (item["id"], item["status"]) == ("ws_srvtoolu_1", "completed")
    sources = [{"type": "url", "url": f"https://a.example/{n}", "title": "One"} for n in (1, 2)]
    assert item["action"] == {"type": "search", "query": "x", "sources": sources}
    assert message["content"][0]["text"] == "a"
    begun = kinds(fed)[2:7]
    assert begun == [
        "output_item.added",
        *(f"web_search_call.{verb}" for verb in ("in_progress", "searching", "completed")),
        "output_item.done",
    ]
    assert fed.notes("loss") == []


def test_what_was_found_is_sealed_to_the_byte():
    key = Sealer(b"k" * 32)
    fed = run(start(), use(0), found(1), text(2, "a"), stop(), wire="openai", sealer=key)
    kind, blocks = sealed(fed.output[0], key)
    assert kind == "anthropic-search"
    assert blocks["blocks"][1]["content"] == FOUND
    assert "Eq4=" not in json.dumps(fed.output)


def test_searches_side_by_side_are_items_in_their_order():
    fed = run(
        start(), use(0, "s1"), use(1, "s2"), found(2, [], "s2"), found(3, FOUND, "s1"), text(4, "a"), stop()
    )
    assert [item["id"] for item in fed.output[:2]] == ["ws_s1", "ws_s2"]
    assert ["sources" in item["action"] for item in fed.output[:2]] == [True, False]


def test_a_search_that_failed_says_so():
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    fed = run(start(), use(0), found(1, error), text(2, "a"), stop())
    assert fed.output[0]["status"] == "failed"
    assert fed.response.status == "completed"


def test_a_turn_that_is_paused_in_a_search_can_go_on():
    fed = run(start(), text(0, "a"), use(1), stop("pause_turn"), wire="openai")
    assert (fed.response.status, fed.output[1]["status"]) == ("completed", "failed")
    (block,) = [each for each in add_up(fed.chunks())["content"] if each["type"] != "text"]
    assert block == {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "x"},
    }


def test_e7_a_search_that_was_cut_is_incomplete():
    fed = run(start(), use(0, "s", '{"query": "x'), stop("max_tokens"))
    assert (fed.output[0]["status"], fed.response.status) == ("incomplete", "incomplete")
    fed = run(start(), use(0), stop("max_tokens"))
    assert (fed.output[0]["status"], fed.response.status) == ("incomplete", "incomplete")


@pytest.mark.parametrize(
    "frames",
    [
        [*use(0), *found(1), *found(2)],
        [*use(0), *use(1), *found(2)],
        [*found(0), *use(1), *found(2)],
        [*use(0)[:1], *found(1), *use(0)[1:]],
        [*use(0), found(1)[0], found(2)[0], closed(1), closed(2)],
        [opened(0, "server_tool_use", id=7, name="web_search"), closed(0), *found(1)],
        [*use(0, "s", "[1]"), *found(1, "odd", "s")],
        [*use(0), *found(1, [7, {"url": 3}, {"url": "javascript:x"}, None])],
    ],
)
def test_blocks_that_contradict_each_other_are_kept(frames):
    fed = run(start(), frames, text(9, "a"), stop())
    assert fed.response.status == "completed"
    assert all(item["status"] in ("completed", "failed") for item in fed.output)


def test_citations_come_back_to_anthropics_clients_as_they_were():
    cited = [opened(2, "text", text=""), delta(2, "text_delta", text="cited")]
    cited += [delta(2, "citations_delta", citation=CITED), closed(2)]
    fed = run(start(), use(0), found(1), cited, text(3, " more."), stop(), wire="openai")
    (annotation,) = fed.output[1]["content"][0]["annotations"]
    assert (annotation["url"], annotation["start_index"], annotation["end_index"]) == (CITED["url"], 0, 5)
    for content in (add_up(fed.chunks())["content"], whole_message(fed.response, fed.sealer)["content"]):
        assert content[2:] == [
            {"type": "text", "text": "cited", "citations": [CITED]},
            {"type": "text", "text": " more."},
        ]


# ── requests ───────────────────────────────────────────────────────────────────────────────────────────
PLACE = {"type": "approximate", "country": "DE", "city": "Ulm"}


def test_a_search_of_responses_is_anthropics():
    wish = {
        "type": "web_search",
        "filters": {"allowed_domains": ["a.example"]},
        "user_location": {**PLACE, "region": None},
        "external_web_access": True,
    }
    body, lost = out(tools=[F, wish])
    assert body["tools"][1] == {
        "type": "web_search_20250305",
        "name": "web_search",
        "allowed_domains": ["a.example"],
        "user_location": PLACE,
    }
    assert lost == []


def test_what_a_search_cant_say_is_lost():
    wish = {
        "type": "web_search_preview_2025_03_11",
        "filters": {"allowed_domains": ["a.example"], "blocked_domains": ["b.example"], "odd": 1},
        "search_context_size": "high",
        "external_web_access": False,
        "search_content_types": ["image"],
    }
    body, lost = out(tools=[wish, {"type": "web_search"}])
    assert body["tools"] == [
        {"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["a.example"]}
    ]
    assert lost == [
        "tools[0].search_context_size",
        "tools[0].filters.blocked_domains",
        "tools[0].external_web_access",
        "tools[0].search_content_types",
        "tools[0].filters.odd",
        "tools[1]",
    ]


def test_a_server_without_a_search_loses_it():
    body, lost = out(tools=[F, {"type": "web_search"}], options=MessagesOptions(web_search=False))
    assert [tool["name"] for tool in body["tools"]] == ["f"]
    assert lost == ["tools.web_search"]


def test_a_clients_function_keeps_its_name():
    own = {**F, "name": "web_search"}
    body, lost = out(tools=[{"type": "web_search"}, own])
    assert body["tools"] == [{"name": "web_search", "input_schema": F["parameters"]}]
    assert lost == ["tools[0]"]


def test_a_search_can_be_chosen():
    body, _ = out(tools=[F, {"type": "web_search"}], tool_choice={"type": "web_search"})
    assert body["tool_choice"] == {"type": "tool", "name": "web_search"}


def test_a_search_can_be_among_the_tools_that_are_allowed():
    for allowed, expected in (
        ([{"type": "web_search"}], ["web_search"]),
        ([{"type": "function", "name": "f"}], ["f"]),
        ([{"type": "function", "name": "f"}, {"type": "web_search"}], ["f", "web_search"]),
    ):
        choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
        body, lost = out(tools=[F, {"type": "web_search"}], tool_choice=choice)
        assert [tool["name"] for tool in body["tools"]] == expected
        assert (body["tool_choice"], lost) == ({"type": "any"}, [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("filters", []),
        ("filters", {"allowed_domains": "a"}),
        ("filters", {"blocked_domains": [1]}),
        ("user_location", "here"),
        ("user_location", {"city": 1}),
        ("max_uses", "3"),
        ("search_context_size", 1),
    ],
)
def test_a_search_that_is_malformed_is_named(field, value):
    with pytest.raises(InvalidRequestError) as refused:
        out(tools=[{"type": "web_search", field: value}])
    assert refused.value.param.startswith(f"tools[0].{field}")


# Claude Code's WebSearch asks a model of its own with this tool alone
OWN = {
    "type": "web_search_20260209",
    "name": "web_search",
    "max_uses": 8,
    "blocked_domains": ["b.example"],
    "user_location": PLACE,
    "allowed_callers": ["direct"],
}


def client(*messages: Json, **fields: Any) -> Json:
    return {"model": "claude-opus-4-7", "max_tokens": 9, "messages": list(messages), **fields}


HI = {"role": "user", "content": "hi"}


def test_a_search_of_anthropics_client_is_openais_in_the_middle_and_its_own_at_the_end():
    chosen = {"type": "tool", "name": "web_search"}
    request, lost = from_messages(
        client(HI, tools=[{**OWN, "cache_control": {"type": "ephemeral"}}], tool_choice=chosen)
    )
    (tool,) = plain(request)["tools"]
    assert tool == {
        "type": "web_search",
        "filters": {"blocked_domains": ["b.example"]},
        "user_location": PLACE,
        "max_uses": 8,
    }
    assert (plain(request)["tool_choice"], request.include) == ({"type": "web_search"}, [SEARCH_SOURCES])
    body, later = to_messages(request)
    assert body["tools"] == [{**OWN, "cache_control": {"type": "ephemeral"}}]
    assert body["tool_choice"] == chosen
    assert [*lost, *later] == []


def test_a_search_beside_other_tools_is_chosen_by_its_type():
    function = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
    chosen = {"type": "tool", "name": "web_search"}
    request, _ = from_messages(client(HI, tools=[OWN, function], tool_choice=chosen))
    assert plain(request)["tool_choice"] == {"type": "web_search"}
    assert to_messages(request)[0]["tool_choice"] == chosen


def test_a_malformed_search_of_a_client_is_named():
    for field, value in (("allowed_domains", [1]), ("max_uses", "3"), ("user_location", 1)):
        with pytest.raises(InvalidRequestError) as refused:
            from_messages(client(HI, tools=[{**OWN, field: value}]))
        assert refused.value.param == f"tools[0].{field}"


# ── histories ──────────────────────────────────────────────────────────────────────────────────────────
CALL = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": FOUND}
SAID = {"type": "text", "text": "a", "citations": [CITED]}
MARK = {"cache_control": {"type": "ephemeral"}}


def through(*blocks: Json, key: bytes | None = b"k" * 32) -> tuple[list[Json], list[Json], list[str]]:
    """(the items, the blocks that the API gets again, the losses)."""
    sealer = Sealer(key)
    payload = client(HI, {"role": "assistant", "content": list(blocks)}, HI)
    request, noted = from_messages(payload, sealer)
    body, lost = to_messages(request, sealer=sealer)
    where = [case.where for report in (noted, lost) for case in report.of("loss")]
    return plain(request)["input"], body["messages"][1]["content"], where


def test_a_history_comes_back_to_anthropic_to_the_byte():
    blocks = [{**CALL, **MARK}, {**RESULT, **MARK}, SAID]
    items, back, lost = through(*blocks)
    assert [item["type"] for item in items[1:3]] == ["web_search_call", "message"]
    assert (back, lost) == (blocks, [])


def test_a_call_without_its_results_comes_back_alone():
    items, back, _ = through(CALL, SAID)
    assert items[1]["status"] == "failed"
    assert back == [CALL, SAID]


def test_blocks_that_are_no_pair_are_kept_whole():
    fetch = {**CALL, "id": "srvtoolu_2", "name": "web_fetch"}
    blocks = [RESULT, fetch, CALL, CALL, RESULT, RESULT, SAID]
    items, back, _ = through(*blocks)
    assert [item["type"] for item in items[1:-2]] == [
        "anthropic:web_search_tool_result",
        "anthropic:server_tool_use",
        "web_search_call",
        "anthropic:server_tool_use",
        "anthropic:web_search_tool_result",
    ]
    assert back == [RESULT, fetch, CALL, RESULT, CALL, RESULT, SAID]


def test_what_was_sealed_elsewhere_goes_as_text():
    payload = client(HI, {"role": "assistant", "content": [CALL, RESULT, SAID]}, HI)
    request, _ = from_messages(payload, Sealer(b"a" * 32))
    body, lost = to_messages(request, sealer=Sealer(b"b" * 32))
    first, block = body["messages"][1]["content"]
    listed = "- One https://a.example/1\n- One https://a.example/2"
    assert first["text"] == f"[searched the web for 'x' and found\n{listed}]"
    assert block == {"type": "text", "text": "a"}
    assert [case.where for case in lost] == ["input[1]", "content.annotations"]


# ── other upstreams' searches for its clients ──────────────────────────────────────────────────────────
def told(*items: Json, wire: str = "openai") -> Json:
    machine = ResponseStreamStateMachine("m", wire=wire)
    events = machine.start()
    for item in items:
        events += machine.item(item)
    events += machine.text("So.") + machine.finish("stop")
    outbound = Outbound()
    chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
    assert len(outbound.diagnostics) == 0
    streamed = add_up(parse_sse(encode_sse(chunks)))
    assert whole_message(machine.snapshot)["content"] == streamed["content"]
    return streamed


SEARCHED = {
    "type": "web_search_call",
    "id": "ws_9",
    "status": "completed",
    "action": {"type": "search", "query": "x", "sources": [{"type": "url", "url": "https://a.example"}, 3]},
}


@pytest.mark.parametrize("wire", WIRES)
def test_another_upstreams_search_is_a_pair_of_blocks_and_counted(wire):
    message = told(SEARCHED, wire=wire)
    use, result = message["content"][:2]
    assert use == {
        "type": "server_tool_use",
        "id": "srvtoolu_ws_9",
        "name": "web_search",
        "input": {"query": "x"},
    }
    page = {"type": "web_search_result", "url": "https://a.example", "title": "https://a.example"}
    assert result == {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_ws_9",
        "content": [{**page, "encrypted_content": "", "page_age": None}],
    }
    assert message["usage"]["server_tool_use"] == {"web_search_requests": 1}


def test_a_search_that_failed_elsewhere_is_an_error_and_not_counted():
    message = told({**SEARCHED, "status": "failed"})
    assert message["content"][1]["content"] == {
        "type": "web_search_tool_result_error",
        "error_code": "unavailable",
    }
    assert message["usage"]["server_tool_use"] == {"web_search_requests": 0}


def test_a_page_that_was_opened_has_no_block():
    opened_page = {**SEARCHED, "action": {"type": "open_page", "url": "https://a.example"}}
    machine = ResponseStreamStateMachine("m", wire="openai")
    outbound = Outbound()
    for event in machine.start() + machine.item(opened_page) + machine.finish("stop"):
        outbound.feed(event)
    assert [case.where for case in outbound.diagnostics] == ["item.web_search_call"]


def test_another_upstreams_search_comes_back_as_its_item_and_goes_to_anthropic_as_text():
    blocks = told(SEARCHED)["content"]
    items, back, lost = through(*blocks)
    source = {"type": "url", "url": "https://a.example", "title": "https://a.example"}
    assert items[1] == {**SEARCHED, "action": {**SEARCHED["action"], "sources": [source]}}
    assert back[0]["text"].startswith("[searched the web for 'x' and found")
    assert lost == ["input[1]"]


@pytest.mark.parametrize(
    "odd", ["https://a.example", 3, None, {"type": "char_location"}, {**CITED, "url": 3}]
)
def test_a_citation_that_is_no_web_page_goes_on_as_it_came(odd):
    _, back, lost = through({**SAID, "citations": [odd, CITED]})
    assert (back, lost) == ([{**SAID, "citations": [odd, CITED]}], [])


def test_a_made_citation_does_not_reach_anthropic():
    block = {**SAID, "citations": [{**CITED, "encrypted_index": "", "cited_text": ""}]}
    items, back, lost = through(block)
    assert items[1]["content"][0]["annotations"][0]["url"] == CITED["url"]
    assert (back, lost) == ([{"type": "text", "text": "a"}], ["content.annotations"])


# ── clients of Responses ───────────────────────────────────────────────────────────────────────────────
def test_a_client_of_responses_sends_back_what_it_got():
    sealer = Sealer(b"k" * 32)
    cited = [opened(2, "text", text="cited", citations=[CITED]), closed(2)]
    fed = run(start(), use(0), found(1), cited, stop(), wire="openai", sealer=sealer)
    question = {"type": "message", "role": "user", "content": "hi"}
    request = decode_request(encode({"model": "claude-opus-4-7", "input": [question, *fed.output, question]}))
    body, lost = to_messages(request, sealer=sealer)
    content = body["messages"][1]["content"]
    assert content == [CALL, RESULT, {"type": "text", "text": "cited", "citations": [CITED]}]
    assert [case.where for case in lost] == []


def test_a_client_that_keeps_known_fields_only_sends_a_text():
    item = {
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "queries": ["a", "b"]},
    }
    question = {"type": "message", "role": "user", "content": "hi"}
    body, lost = to_messages(decode_request(encode({"model": "m", "input": [question, item, question]})))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "[searched the web for 'a / b']"}]
    assert [case.where for case in lost] == ["input[1]"]


@pytest.mark.parametrize(
    "blocks", [[], 3, [3], [{"type": ["x"]}], [{"type": "tool_use"}], [CALL, CALL], [RESULT]]
)
def test_what_was_forged_is_no_block(blocks):
    forged = Sealer().seal(encode({"blocks": blocks}), "anthropic-search")
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "encrypted_content": forged}
    question = {"type": "message", "role": "user", "content": "hi"}
    body, _ = to_messages(decode_request(encode({"model": "m", "input": [question, item, question]})))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "[searched the web]"}]


def test_an_odd_item_is_read_as_far_as_it_can_be():
    outbound = Outbound()
    machine = ResponseStreamStateMachine("m", wire="openai")
    odd = UnknownItem(
        {"type": "web_search_call", "id": "x", "action": {"type": 1, "query": [], "queries": 3}}
    )
    for event in machine.start() + machine.item(odd) + machine.finish("stop"):
        outbound.feed(event)
    assert len(outbound.diagnostics) == 0
