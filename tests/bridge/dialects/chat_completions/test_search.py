"""Searches of the web at servers of Chat Completions, and for its clients."""

import json
from typing import Any, get_args, get_type_hints

import pytest

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.dialects.chat_completions import ChatOptions, Outbound, from_chat, to_chat
from openresponses_bridge.dialects.chat_completions.upstream.search import FORMS, MOST
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from tests.support.chat import DONE, chunk, completion, frame, part, run, stopped
from tests.support.machines import WIRES, plain

Json = dict[str, Any]
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
PLACE = {"type": "approximate", "country": "DE", "timezone": "Europe/Berlin"}
WISH = {
    "type": "web_search",
    "filters": {"allowed_domains": ["a.example"]},
    "user_location": PLACE,
    "search_context_size": "low",
    "max_uses": 3,
}
LOCATION = {"country": "DE", "timezone": "Europe/Berlin"}
SENT: dict[str, tuple[Json, set[str]]] = {
    "openai": (
        {
            "web_search_options": {
                "search_context_size": "low",
                "user_location": {"type": "approximate", "approximate": LOCATION},
            }
        },
        {"filters.allowed_domains", "max_uses"},
    ),
    "perplexity": (
        {
            "web_search_options": {"search_context_size": "low", "user_location": {"country": "DE"}},
            "search_domain_filter": ["a.example"],
        },
        {"max_uses"},
    ),
    "openrouter": (
        {
            "tools": [
                {
                    "type": "openrouter:web_search",
                    "parameters": {
                        "allowed_domains": ["a.example"],
                        "user_location": PLACE,
                        "search_context_size": "low",
                    },
                }
            ]
        },
        {"max_uses"},
    ),
    "groq": (
        {"tools": [{"type": "browser_search"}]},
        {"filters.allowed_domains", "user_location", "search_context_size", "max_uses"},
    ),
    "groq_compound": (
        {"search_settings": {"include_domains": ["a.example"]}},
        {"user_location", "search_context_size", "max_uses"},
    ),
    "google": (
        {"web_search_options": {}},
        {"filters.allowed_domains", "user_location", "search_context_size", "max_uses"},
    ),
    "qwen": (
        {"enable_search": True},
        {"filters.allowed_domains", "user_location", "search_context_size", "max_uses"},
    ),
    "zai": (
        {
            "tools": [
                {
                    "type": "web_search",
                    "web_search": {"enable": True, "search_engine": "search-prime", "search_result": True},
                }
            ]
        },
        {"filters.allowed_domains", "user_location", "search_context_size", "max_uses"},
    ),
}


def sent(body: Json, form: Any, **options: Any) -> tuple[Json, list[str]]:
    request = decode_request(encode({"model": "m", "input": "Hi", **body}))
    chat, noted = to_chat(request, options=ChatOptions(web_search=form, **options))
    return json.loads(encode(chat)), [case.where for case in noted.of("loss")]


def test_each_form_is_known_here() -> None:
    names = set(get_args(get_type_hints(ChatOptions)["web_search"]))
    assert names - {"none"} == FORMS.keys() == SENT.keys()


@pytest.mark.parametrize("form", SENT)
def test_a_server_is_asked_in_its_own_way(form: str) -> None:
    fields, unsaid = SENT[form]
    body, lost = sent({"tools": [FUNCTION, WISH, {"type": "web_search"}]}, form)
    functions, *searches = body["tools"]
    assert functions["function"]["name"] == "f"
    assert searches == fields.get("tools", [])
    assert {name: body[name] for name in fields if name != "tools"} == {
        name: value for name, value in fields.items() if name != "tools"
    }
    assert set(lost) == {*(f"tools[1].{name}" for name in unsaid), "tools[2]"}


def test_what_is_blocked_has_its_place() -> None:
    blocked = {"type": "web_search", "filters": {"blocked_domains": ["b.example"]}}
    assert sent({"tools": [blocked]}, "perplexity")[0]["search_domain_filter"] == ["-b.example"]
    settings = sent({"tools": [blocked]}, "groq_compound")[0]["search_settings"]
    assert settings == {"exclude_domains": ["b.example"]}


def test_a_request_without_a_search_has_none_of_it() -> None:
    for form in FORMS:
        plain_one, _ = sent({"tools": [FUNCTION]}, form)
        assert plain_one == sent({"tools": [FUNCTION]}, "none")[0]


def test_a_search_that_may_not_be_called_is_not_offered() -> None:
    body, lost = sent({"tools": [FUNCTION, WISH], "tool_choice": "none"}, "openrouter")
    assert ([tool["type"] for tool in body["tools"]], lost) == (["function"], [])


@pytest.mark.parametrize("choice", ["required", {"type": "web_search"}])
def test_a_search_that_is_required_is_left_to_the_model(choice: Any) -> None:
    body, lost = sent({"tools": [{"type": "web_search"}], "tool_choice": choice}, "openrouter")
    assert (body["tools"][0]["type"], "tool_choice" in body) == ("openrouter:web_search", False)
    assert lost == ["tool_choice"]
    with pytest.raises(InvalidRequestError):
        sent({"tools": [{"type": "web_search"}], "tool_choice": choice}, "none")


def test_what_was_found_before_is_a_text() -> None:
    action = {"type": "search", "query": "x", "sources": [{"url": "https://a.example", "title": "A"}]}
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    question = {"type": "message", "role": "user", "content": "Hi"}
    body, lost = sent({"input": [question, item, question]}, "openrouter")
    assert body["messages"][1] == {
        "role": "assistant",
        "content": "[searched the web for 'x' and found\n- A https://a.example]",
    }
    assert lost == ["input[1]"]


# ── what servers say of what they found ────────────────────────────────────────────────────────────────
def items(*frames: bytes, form: Any = "openrouter", wire: str = "openai") -> list[Json]:
    ran = run(*frames, reading=ChatOptions(web_search=form), wire=wire)
    validator = StreamValidator(wire)  # type: ignore[arg-type]
    assert not [each for event in ran.events for each in validator.feed(event)]
    assert not validator.close()
    output: list[Json] = plain(ran.response)["output"]
    return output


CITED = {
    "type": "url_citation",
    "url_citation": {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 2},
}
SOURCE = {"type": "url", "url": "https://a.example", "title": "A"}


def test_citations_stay_at_the_text_of_an_answer_that_also_refuses() -> None:
    message, _ = items(chunk(content="Hi", refusal="No.", annotations=[CITED]), chunk("stop"), DONE)
    assert [part["type"] for part in message["content"]] == ["output_text", "refusal"]
    (cited,) = message["content"][0]["annotations"]
    assert (cited["start_index"], cited["end_index"]) == (0, 2)


@pytest.mark.parametrize("wire", WIRES)
def test_citations_are_the_sources_of_a_search(wire: str) -> None:
    message, search = items(
        chunk(content="Hi"), chunk(annotations=[CITED, CITED]), chunk("stop"), DONE, wire=wire
    )
    assert message["content"][0]["annotations"][0]["url"] == "https://a.example"
    assert search["type"].removeprefix("openai:") == "web_search_call"
    assert (search["status"], search["action"]) == (
        "completed",
        {"type": "search", "query": "", "sources": [SOURCE]},
    )


def test_perplexitys_lists_are_one_search() -> None:
    lists = {
        "citations": ["https://a.example"],
        "search_results": [{"url": "https://a.example", "title": "A"}],
    }
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}
    _, search = items(frame(choices=[choice], **lists), frame(choices=[choice], **lists), chunk("stop"), DONE)
    assert search["action"]["sources"] == [SOURCE]


def test_zais_list_is_a_search() -> None:
    ended = {"index": 0, "delta": {}, "finish_reason": "stop"}
    results = [{"link": "https://a.example", "title": "A", "content": "c"}, {"link": 3}, 7]
    _, search = items(chunk(content="Hi"), frame(choices=[ended], web_search=results), DONE, form="zai")
    assert search["action"]["sources"] == [SOURCE]


def test_what_groq_ran_has_its_queries() -> None:
    begun = {"index": 0, "type": "search", "arguments": '{"query": "x"}'}
    results = {"results": [{"url": "https://a.example", "title": "A", "score": 1}]}
    tools = [
        begun,
        {"index": 1, "type": "python"},
        {"index": 2, "type": "search", "arguments": "{"},
        3,
        {"type": []},
    ]
    output = items(
        chunk(executed_tools=[begun]),
        chunk(content="Hi"),
        chunk(executed_tools=[{**tools[0], "search_results": results}, *tools[1:]]),
        chunk("stop"),
        DONE,
        form="groq",
    )
    assert [item.get("action") for item in output[1:]] == [
        {"type": "search", "query": "x", "sources": [SOURCE]},
        {"type": "search", "query": ""},
    ]


def test_a_whole_completion_says_the_same() -> None:
    tools = [{"index": 0, "type": "browser_search", "arguments": {"query": "x"}}]
    _, search = items(completion(content="Hi", executed_tools=tools), form="groq")
    assert search["action"]["query"] == "x"


def test_no_search_stands_behind_what_was_cut_or_is_made_up() -> None:
    assert len(items(chunk(content="Hi"), chunk(annotations=[CITED]), chunk("length"), DONE)) == 1
    assert len(items(chunk(content="Hi"), chunk("stop"), DONE)) == 1
    ran = stopped(chunk(content="Hi"), chunk(annotations=[CITED]), frame(choices=[], citations=["https://a"]))
    assert len(ran.response.output) == 1


def test_sources_without_end_are_cut() -> None:
    many = [{"url": f"https://a.example/{number}"} for number in range(MOST * 3)]
    _, search = items(chunk(content="Hi"), frame(choices=[], search_results=many), chunk("stop"), DONE)
    assert len(search["action"]["sources"]) == MOST


def test_a_search_may_follow_a_call() -> None:
    called = chunk(tool_calls=[part("{}", name="f", id="c", index=0)])
    output = items(called, chunk(annotations=[CITED]), chunk("tool_calls"), DONE)
    assert {"function_call", "web_search_call"} <= {item["type"] for item in output}


# ── its clients ────────────────────────────────────────────────────────────────────────────────────────
def test_a_clients_search_is_that_of_responses() -> None:
    options = {
        "search_context_size": "low",
        "user_location": {"type": "approximate", "approximate": LOCATION},
    }
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "web_search_options": options}
    request, lost = from_chat(encode(body))
    (tool,) = plain(request)["tools"]
    assert tool == {
        "type": "web_search",
        "search_context_size": "low",
        "user_location": {"type": "approximate", **LOCATION},
    }
    back, later = to_chat(request, options=ChatOptions(web_search="openai"))
    assert json.loads(encode(back))["web_search_options"] == options
    assert [*lost, *later] == []


def test_a_malformed_place_is_named() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    with pytest.raises(InvalidRequestError) as refused:
        from_chat(encode({**body, "web_search_options": {"user_location": 3}}))
    assert refused.value.param == "web_search_options.user_location"


@pytest.mark.parametrize("wire", WIRES)
def test_a_client_reads_of_a_search_in_the_citations(wire: str) -> None:
    ran = run(
        chunk(content="Hi"),
        chunk(annotations=[CITED]),
        chunk("stop"),
        DONE,
        reading=ChatOptions(web_search="openrouter"),
        wire=wire,
    )
    outbound = Outbound()
    chunks = [each for event in ran.events for each in outbound.feed(event)] + outbound.close()
    assert b"https://a.example" in encode(chunks)
    assert not list(outbound.diagnostics.of("loss"))


def test_what_no_text_cites_is_a_loss_to_its_client() -> None:
    listed = frame(choices=[], search_results=[{"url": "https://b.example"}])
    ran = run(chunk(content="Hi"), listed, chunk("stop"), DONE, reading=ChatOptions(web_search="perplexity"))
    outbound = Outbound()
    for event in ran.events:
        outbound.feed(event)
    assert [case.where for case in outbound.diagnostics] == ["item.web_search_call"]
