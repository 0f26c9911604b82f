"""Google's search of the web for clients of any kind, and other upstreams' searches for its clients."""

import json
from typing import Any

import pytest

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.dialects.base import SEARCH_SOURCES
from openresponses_bridge.dialects.gemini import Outbound, from_gemini, to_gemini
from openresponses_bridge.dialects.gemini.client.answer import answer
from openresponses_bridge.dialects.gemini.upstream.inbound import Inbound
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_request, encode
from tests.support.machines import WIRES, plain

Json = dict[str, Any]
GROUNDED = {
    "webSearchQueries": ["x", "y", 3],
    "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}, {"odd": 1}],
    "groundingSupports": [{"segment": {"endIndex": 2}, "groundingChunkIndices": [0]}],
}
SOURCE = {"type": "url", "url": "https://a.example", "title": "A"}


def chunk(text: str, **more: Any) -> bytes:
    return encode({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **more}]})


def fed(*frames: bytes, wire: str = "openai") -> tuple[list[Json], list[Any]]:
    """(the output, the events), which are valid."""
    machine = ResponseStreamStateMachine("m", wire=wire)
    inbound = Inbound(machine)
    events = [event for each in frames for event in inbound.feed(each)] + inbound.close()
    validator = StreamValidator(wire)  # type: ignore[arg-type]
    assert not [each for event in events for each in validator.feed(event)] + validator.close()
    return plain(machine.snapshot)["output"], events


@pytest.mark.parametrize("wire", WIRES)
def test_what_google_searched_for_is_an_item_and_comes_back_to_its_clients(wire: str) -> None:
    output, events = fed(chunk("Hi", groundingMetadata=GROUNDED, finishReason="STOP"), wire=wire)
    message, search = output
    assert message["content"][0]["annotations"][0]["url"] == "https://a.example"
    assert search["type"].removeprefix("openai:") == "web_search_call"
    assert search["action"] == {"type": "search", "query": "x", "queries": ["x", "y"], "sources": [SOURCE]}
    outbound = Outbound()
    chunks = [each for event in events for each in outbound.feed(event)]
    assert plain(chunks[-1])["candidates"][0]["groundingMetadata"] == GROUNDED
    assert not list(outbound.diagnostics.of("loss"))


@pytest.mark.parametrize(
    ("grounding", "finish", "count"),
    [
        ({}, "STOP", 1),
        ({"webSearchQueries": []}, "STOP", 1),
        (GROUNDED, "MAX_TOKENS", 1),
        (GROUNDED, "STOP", 2),
    ],
)
def test_no_search_is_made_up_or_stands_behind_what_was_cut(grounding: Json, finish: str, count: int) -> None:
    assert len(fed(chunk("Hi", groundingMetadata=grounding, finishReason=finish))[0]) == count


def test_its_own_search_leaves_no_text_in_the_history() -> None:
    question = {"type": "message", "role": "user", "content": "Hi"}
    output, _ = fed(chunk("Hi", groundingMetadata=GROUNDED, finishReason="STOP"))
    body, lost = sent({"input": [question, *output, question]})
    assert body["contents"][1]["parts"] == [{"text": "Hi"}]
    assert lost == ["content.annotations"]
    foreign = {**output[1], "encrypted_content": "orb1.s.x"}
    assert len(sent({"input": [question, foreign, question]})[0]["contents"]) == 3


def sent(body: Json, model: str = "gemini-3-pro") -> tuple[Json, list[str]]:
    request = decode_request(encode({"model": model, "input": "Hi", **body}))
    payload, noted = to_gemini(request, model=model)
    return payload, [case.where for case in noted.of("loss")]


def test_a_search_is_googles_without_its_settings() -> None:
    wish = {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}, "external_web_access": True}
    body, lost = sent({"tools": [wish], "include": [SEARCH_SOURCES]})
    assert (body["tools"], lost) == ([{"googleSearch": {}}], ["tools[0].filters.allowed_domains"])


@pytest.mark.parametrize("choice", ["required", {"type": "web_search"}])
def test_a_search_that_is_required_is_left_to_the_model(choice: Any) -> None:
    body, lost = sent({"tools": [{"type": "web_search"}], "tool_choice": choice})
    assert (body["tools"], "toolConfig" in body, lost) == ([{"googleSearch": {}}], False, ["tool_choice"])


def test_a_search_that_may_not_be_called_is_not_offered() -> None:
    body, lost = sent({"tools": [{"type": "web_search"}], "tool_choice": "none"})
    assert ("tools" in body, lost) == (False, [])


def test_what_was_found_before_is_a_text() -> None:
    action = {"type": "search", "query": "x", "sources": [SOURCE]}
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    question = {"type": "message", "role": "user", "content": "Hi"}
    body, lost = sent({"input": [question, item, question]})
    text = "[searched the web for 'x' and found\n- A https://a.example]"
    assert body["contents"][1] == {"role": "model", "parts": [{"text": text}]}
    assert lost == ["input[1]"]


def test_a_clients_search_is_that_of_responses() -> None:
    tools = [{"googleSearch": {"excludeDomains": ["b.example"]}}]
    request, lost = from_gemini(json.dumps({"contents": [{"parts": [{"text": "Hi"}]}], "tools": tools}))
    assert plain(request)["tools"] == [{"type": "web_search", "filters": {"blocked_domains": ["b.example"]}}]
    assert SEARCH_SOURCES in (request.include or ())
    assert not list(lost)


@pytest.mark.parametrize("wire", WIRES)
def test_another_upstreams_search_is_grounding_metadata(wire: str) -> None:
    machine = ResponseStreamStateMachine("m", wire=wire)
    second = {"type": "url", "url": "https://b.example"}
    search = {"type": "search", "query": "x", "sources": [SOURCE, second]}
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": search}
    cited = {
        "type": "url_citation",
        "url": "https://a.example",
        "title": "A",
        "start_index": 0,
        "end_index": 2,
    }
    events = machine.start() + machine.item(item) + machine.text("Hi") + machine.annotation(cited)
    events += machine.finish("stop")
    outbound = Outbound()
    chunks = [each for event in events for each in outbound.feed(event)]
    grounding = plain(chunks[-1])["candidates"][0]["groundingMetadata"]
    assert grounding == {
        "groundingChunks": [
            {"web": {"uri": "https://a.example", "title": "A"}},
            {"web": {"uri": "https://b.example", "title": ""}},
        ],
        "groundingSupports": [
            {"segment": {"startIndex": 0, "endIndex": 2, "text": "Hi"}, "groundingChunkIndices": [0]}
        ],
        "webSearchQueries": ["x"],
    }
    assert not list(outbound.diagnostics)
    whole = plain(answer([machine.snapshot]))
    assert whole["candidates"][0]["groundingMetadata"] == grounding


def test_an_odd_part_goes_on_as_it_came() -> None:
    machine = ResponseStreamStateMachine("m", wire="openai")
    machine.start()
    odd: Json = {"text": {"a": 1}}
    machine.item({"type": "gemini:text", "id": "t", "status": "completed", "part": odd})
    machine.text("Hi")
    machine.finish("stop")
    (candidate,) = plain(answer([machine.snapshot]))["candidates"]
    assert candidate["content"]["parts"] == [odd, {"text": "Hi"}]


def test_a_page_that_was_opened_has_no_part() -> None:
    opened = {"type": "open_page", "url": "https://a.example"}
    machine = ResponseStreamStateMachine("m", wire="openai")
    outbound = Outbound()
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": opened}
    for event in machine.start() + machine.item(item) + machine.finish("stop"):
        outbound.feed(event)
    assert [case.where for case in outbound.diagnostics] == ["item.web_search_call"]
