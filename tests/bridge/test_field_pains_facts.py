"""Data that got lost between clients and upstreams of the Responses API, each a row with its number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pytest

from openresponses_bridge.decoder.accumulator import ResponseAccumulator
from openresponses_bridge.dialects.anthropic_messages import MessagesOptions, from_messages, to_messages
from openresponses_bridge.dialects.chat_completions import ChatOptions, from_chat, to_chat
from openresponses_bridge.dialects.responses import Inbound, ResponsesOptions, to_responses
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import (
    check_event,
    decode_event,
    decode_request,
    decode_response,
    encode,
    encode_sse,
)
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import FunctionCall
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.secrets import request_without_secrets
from openresponses_bridge.protocol.unknown import EXTRA
from tests.support.checked_inbound import CheckedInbound
from tests.support.costs import assert_proportional, seconds
from tests.support.machines import plain

CALLER = {"type": "program", "caller_id": "c0"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "status": "completed"}
CALL |= {"arguments": "{}"}
CITED = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
TEXT = {"type": "output_text", "text": "Hi", "annotations": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [TEXT]}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "So"}]}
SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "c2", "status": "completed"}
SHELL |= {"action": {"commands": ["ls"]}}
USAGE = {
    "input_tokens": 3,
    "output_tokens": 2,
    "total_tokens": 5,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


def response(**fields: Any) -> dict[str, Any]:
    """An upstream's whole response."""
    head = {"id": "resp_up", "object": "response", "status": "completed", "model": "m", "output": []}
    return {**json.loads(encode(decode_response(b"{}"))), **head, **fields}


def events_of(item: dict[str, Any]) -> list[dict[str, Any]]:
    """An item as an upstream streams it: the unknown fields of an item are there from its beginning."""
    empty = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {"summary": []}}
    begun = {**item, "status": "in_progress", **empty.get(item["type"], {})}
    place = {"item_id": item["id"], "output_index": 0}
    within: list[dict[str, Any]] = []
    if item["type"] == "function_call":
        within = [
            {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]},
            {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]},
        ]
    if item["type"] == "message":
        part = item["content"][0]
        at = {**place, "content_index": 0}
        within = [
            {"type": "response.content_part.added", **at, "part": {**TEXT, "text": ""}},
            {"type": "response.output_text.delta", **at, "delta": part["text"]},
            {"type": "response.output_text.done", **at, "text": part["text"]},
            {"type": "response.content_part.done", **at, "part": part},
        ]
    if item["type"] == "reasoning":
        part = item["summary"][0]
        at = {**place, "summary_index": 0}
        within = [
            {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}},
            {"type": "response.reasoning_summary_text.delta", **at, "delta": part["text"]},
            {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]},
            {"type": "response.reasoning_summary_part.done", **at, "part": part},
        ]
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *within,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]


def streamed(ended: dict[str, Any], begun: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The events of a whole response with at most one item."""
    first = response(status="in_progress", **(begun or {}))
    frames = [
        {"type": "response.created", "response": first},
        {"type": "response.in_progress", "response": first},
        *[event for item in ended["output"] for event in events_of(item)],
        {"type": "response.completed", "response": ended},
    ]
    return [{"sequence_number": at, **each} for at, each in enumerate(frames)]


class Fact(NamedTuple):
    """What an upstream's response has, and the names of what is lost on the wire that can't say it."""

    fields: dict[str, Any]
    lost: Sequence[str]


FACTS: dict[str, Fact] = {
    "P24, the caller of a call": Fact({"output": [CALL | {"caller": CALLER}]}, ["output_item.caller"]),
    "P24, of an item that is given whole": Fact(
        {"output": [SHELL | {"caller": CALLER}]}, ["shell_call.caller"]
    ),
    "P44, of a message": Fact({"output": [MESSAGE | {"new": {"a": [1]}}]}, ["output_item.new"]),
    "P44, of a part of it": Fact(
        {"output": [MESSAGE | {"content": [TEXT | {"moderation": {"flagged": False}}]}]},
        ["output_item.content.moderation"],
    ),
    "P44, of a citation": Fact(
        {"output": [MESSAGE | {"content": [TEXT | {"annotations": [CITED | {"score": 0.5}]}]}]},
        ["annotation.score"],
    ),
    "P44, of reasoning": Fact({"output": [THOUGHT | {"effort": "low"}]}, ["reasoning.effort"]),
    "P44, of a summary": Fact(
        {"output": [THOUGHT | {"summary": [THOUGHT["summary"][0] | {"lang": "en"}]}]},
        ["output_item.content.lang"],
    ),
    "P44, of an action": Fact(
        {"output": [SHELL | {"action": {"commands": ["ls"], "user": "u"}}]}, ["shell_call.user"]
    ),
    **{
        f"P44, {name}": Fact({name: value}, [f"response.{name}"])
        for name, value in {
            "moderation": {"input": {"flagged": False}},
            "prompt_cache_diagnostics": {"misses": []},
            "prompt_cache_options": {"mode": "explicit"},
            "tool_usage": {"web_search": {"calls": 2}},
            "input_transformations": [{"type": "compaction"}],
            "conversation": {"id": "conv_1"},
            "a field of next year": [1, {"deep": [None]}],
        }.items()
    },
    "P44, how it reasoned": Fact(
        {"reasoning": {"effort": "medium", "summary": None, "context": "all", "mode": "pro"}},
        ["response.context", "response.mode"],
    ),
    "P44, of the usage": Fact(
        {"usage": USAGE | {"images": 1, "input_tokens_details": {"cached_tokens": 0, "audio": 4}}},
        ["response.images", "response.audio"],
    ),
    "P44, the real tier": Fact({"service_tier": "priority"}, []),
}


def shown(fed: CheckedInbound) -> list[Any]:
    """The events as they are sent."""
    return [plain(event) for event in fed.run.events]


def build(machine: Any) -> Inbound:
    return Inbound(machine)


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_facts_are_carried_to_who_reads_them_and_lost_elsewhere(name: str, wire: str) -> None:
    fact = FACTS[name]
    fed = CheckedInbound(build, streamed(response(**fact.fields)), wire)
    ended = shown(fed)[-1]["response"]
    losses = [case.where for case in fed.run.machine.diagnostics.of("loss")]
    if wire == "openai":
        for field, value in fact.fields.items():
            if field == "output":
                assert_within(value[0], ended["output"][0])
            else:
                assert_within(value, ended[field])
        assert losses == []
    else:
        assert losses == list(fact.lost)
        assert b"new" not in encode(ended)
    # what was sent is read again: by clients, from a store, by the checker
    for event in fed.run.events:
        assert encode(decode_event(encode(event))) == encode(event)
        assert encode(check_event(encode(event))) == encode(event)
    assert EXTRA.encode() not in encode_sse(fed.run.events)


def test_facts_are_losses_for_a_client_of_another_dialect() -> None:
    machine = ResponseStreamStateMachine("m", wire="openai", unknown_fields=False)
    inbound = Inbound(machine)
    frames = streamed(response(output=[CALL | {"caller": CALLER}], moderation={}))
    events = [event for each in frames for event in inbound.feed(json.dumps(each).encode())]
    assert b"caller" not in encode_sse(events)
    assert b"moderation" not in encode_sse(events)
    lost = [case.where for case in machine.diagnostics.of("loss")]
    assert lost == ["output_item.caller", "response.moderation"]


def assert_within(said: Any, given: Any) -> None:
    """All that was said is in what was given."""
    if isinstance(said, dict):
        for name, value in said.items():
            assert_within(value, given[name])
    elif isinstance(said, list):
        assert len(said) == len(given)
        for one, other in zip(said, given, strict=True):
            assert_within(one, other)
    else:
        assert given == said


def test_p44_the_name_that_the_upstream_gives_its_model() -> None:
    fed = CheckedInbound(build, streamed(response(model="m-2026-09-01")), "openai")
    assert shown(fed)[-1]["response"]["model"] == "m"
    assert shown(fed)[-1]["response"]["openresponses-bridge:upstream_model"] == "m-2026-09-01"
    again = CheckedInbound(build, shown(fed), "openai")  # a bridge behind a bridge
    assert shown(again) == shown(fed)


def test_p44_what_is_known_at_the_beginning_is_told_at_the_beginning() -> None:
    fed = CheckedInbound(build, streamed(response(), {"conversation": {"id": "conv_1"}}), "openai")
    assert [each["response"]["conversation"]["id"] for each in shown(fed) if "response" in each] == [
        "conv_1"
    ] * 3


def test_p44_a_tier_that_the_upstream_leaves_out_stays_as_it_was_asked_for() -> None:
    ended = response()
    del ended["service_tier"]
    fed = CheckedInbound(build, streamed(ended), "openai")
    assert shown(fed)[-1]["response"]["service_tier"] == "default"
    whole = CheckedInbound(build, [ended], "openai")
    assert shown(whole)[-1]["response"]["service_tier"] == "default"


def test_p45_compaction_in_progress() -> None:
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": ""}
    frames = streamed(response(output=[item | {"encrypted_content": "abc"}]))
    compacting = {"type": "response.compaction.compacting", "item_id": "cmp_1", "output_index": 0}
    frames.insert(3, compacting | {"sequence_number": 3})
    fed = CheckedInbound(build, frames, "openai")
    assert "response.compaction.compacting" in [event.type for event in fed.run.events]
    assert not fed.run.machine.diagnostics.of("ignored")


INPUT = [
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "q", "new": {"a": 1}}],
        "odd": 1,
    },
    CALL | {"caller": CALLER},
    {"type": "function_call_output", "call_id": "c1", "output": "a", "caller": CALLER},
]
ASKED = {"model": "m", "input": INPUT}


def test_p24_p44_fields_of_input_items_go_where_they_are_known() -> None:
    body, diagnostics = to_responses(decode_request(json.dumps(ASKED)))
    assert body["input"] == INPUT
    assert not diagnostics.of("loss")


def test_p24_p44_fields_of_earlier_items_too() -> None:
    call = decode_response(json.dumps(response(output=[CALL | {"caller": CALLER}]))).output
    body, diagnostics = to_responses(
        decode_request(json.dumps({"model": "m", "input": INPUT[2:]})), history=call
    )
    assert body["input"] == [CALL | {"caller": CALLER}, INPUT[2]]
    options = ResponsesOptions(supersets=False)
    body, diagnostics = to_responses(
        decode_request(json.dumps({"model": "m", "input": INPUT[2:]})), history=call, options=options
    )
    assert "caller" not in body["input"][0]
    lost = [case.where for case in diagnostics.of("loss")]
    assert lost == ["previous_response_id.caller", "input[0].caller"]


def test_p24_p44_elsewhere_they_are_losses_once_for_each_name() -> None:
    body = {"model": "m", "input": INPUT * 1 + [INPUT[0]] * 50}
    for _, diagnostics in (
        to_chat(decode_request(json.dumps(body))),
        to_responses(decode_request(json.dumps(body)), options=ResponsesOptions(supersets=False)),
    ):
        lost = [case.where for case in diagnostics.of("loss")]
        assert lost == ["input[0].odd", "input[0].content[0].new", "input[1].caller"]


def test_p24_secrets_of_unknown_fields_are_not_shown() -> None:
    secret = {"authorization": "Bearer s3cret", "headers": {"x": "s3cret"}, "ok": 1}
    secret["source_url"] = "https://a.example/page?q=1"
    item = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "q", "new": secret}],
    }
    item["more"] = secret
    request = decode_request(json.dumps({"model": "m", "input": [item], "other": secret}))
    assert b"s3cret" in encode(to_responses(request)[0])
    cleaned = request_without_secrets(request)
    assert b"s3cret" not in encode(cleaned.input)
    assert encode(cleaned.input).count(b'"ok":1,"source_url":"https://a.example/page?q=1"') == 2
    fed = CheckedInbound(
        build, streamed(response(output=[CALL | {"new": secret}], moderation=secret)), "openai"
    )
    assert b"s3cret" not in encode_sse(fed.run.events)
    assert shown(fed)[-1]["response"]["moderation"] == {"ok": 1, "source_url": secret["source_url"]}


def test_p44_what_only_the_bridge_writes_is_not_read_from_others() -> None:
    forged = json.dumps({"model": "m", "input": [{"role": "user", "content": "q", EXTRA: {"type": "x"}}]})
    request = decode_request(forged)
    assert to_responses(request)[0]["input"] == [{"type": "message", "role": "user", "content": "q"}]
    call = decode_event(json.dumps(events_of(CALL | {EXTRA: {"name": "rm", "caller": 1}})[-1]))
    assert encode(call) == encode(decode_event(json.dumps(events_of(CALL)[-1])))
    known = FunctionCall("fc", "c", "ls", "{}", "completed", extra={"name": "rm", "new": 1})
    assert json.loads(encode(known))["name"] == "ls"


def hostile(size: int) -> list[dict[str, Any]]:
    """Unknown fields by the thousands, large and deep."""
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    many = {f"field_{at}": at for at in range(size)} | {"large": "x" * size * 50, "deep": deep, "n" * 9999: 1}
    item = MESSAGE | {"content": [TEXT | many]} | many
    return streamed(response(output=[item], usage=USAGE | many, **many))


def test_p44_a_hostile_upstream_stays_bounded() -> None:
    fed = CheckedInbound(build, hostile(10_000), "openai")
    ended = shown(fed)[-1]["response"]
    assert sum(name.startswith("field_") for name in ended) == 32
    assert sum(name.startswith("field_") for name in ended["output"][0]) == 32
    assert len(encode(ended)) < 10_000
    assert len(list(fed.run.machine.diagnostics)) < 20


@pytest.mark.untraced
def test_p44_the_cost_of_unknown_fields_is_linear() -> None:
    def cost(size: int) -> float:
        frames = [json.dumps(each).encode() for each in hostile(size)]
        return seconds(lambda: [decode_event(each) for each in frames])

    assert_proportional(cost, 2_000, 16_000)


def test_e1_a_fold_of_stored_frames_has_all_facts() -> None:
    snapshot = response(
        output=[MESSAGE | {"content": [TEXT | {"odd": 1}], "new": 2}],
        moderation={"a": 1},
        usage=USAGE | {"x": 1},
    )
    fed = CheckedInbound(build, streamed(snapshot), "openai")
    events: list[Event] = [decode_event(encode(event)) for event in fed.run.events]
    folded = ResponseAccumulator()
    for event in events[:-1]:
        folded.feed(event)
    assert folded.response is not None
    assert json.loads(encode(folded.response.output)) == shown(fed)[-1]["response"]["output"]
    folded.feed(events[-1])
    assert encode(folded.response) == encode(fed.run.machine.snapshot)


ENGINE = {"top_k": 4, "min_p": 0.1, "guided_json": {"type": "object"}, "chat_template_kwargs": {"a": 1}}
FROM_CHAT = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
PASSES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[str]]] = {
    "P29, all of a Responses client's": ({"passes": ["*"]}, ENGINE, ENGINE, []),
    "P29, those that are named": (
        {"passes": ["min_p"]},
        ENGINE,
        {"min_p": 0.1},
        ["top_k", "guided_json", "chat_template_kwargs"],
    ),
    "P29, none by default": ({}, {"min_p": 0.1}, {}, ["min_p"]),
    "P29, never what the bridge makes": (
        {"passes": ["*"]},
        {"messages": [], "n": 3, "max_tokens": 1, "min_p": 0.1},
        {"min_p": 0.1},
        ["messages", "n", "max_tokens"],
    ),
    "P29, what is omitted is not passed": (
        {"passes": ["*"], "omit": ["min_p"]},
        {"min_p": 0.1},
        {},
        ["min_p"],
    ),
    "P29, what the operator adds": (
        {"extra": {"provider": {"sort": "price"}, "min_p": 0.2}, "passes": ["*"]},
        {"min_p": 0.1, "top_a": 1},
        {"provider": {"sort": "price"}, "min_p": 0.2, "top_a": 1},
        [],
    ),
}
MADE_FOR_ALL = {"model", "messages"}


@pytest.mark.parametrize("name", PASSES)
def test_fields_of_engines_go_out_as_they_are(name: str) -> None:
    options, fields, sent, lost = PASSES[name]
    request = decode_request(json.dumps({"model": "m", "input": "q", **fields}))
    body, diagnostics = to_chat(request, options=msgspec.convert(options, ChatOptions))
    went = json.loads(encode(body))
    assert went["messages"] == FROM_CHAT["messages"]
    assert {name: went[name] for name in went if name not in MADE_FOR_ALL} == sent
    assert sorted(case.where for case in diagnostics.of("loss")) == sorted(lost)


def test_p29_from_chat_to_chat_passes_what_was_sent() -> None:
    fields = ENGINE | {"transforms": ["x"], "reasoning": {"enabled": True, "max_tokens": 9}, "models": ["a"]}
    request, lost = from_chat(json.dumps(FROM_CHAT | fields))
    body, diagnostics = to_chat(request)
    assert json.loads(encode(body)) == FROM_CHAT | fields
    assert [*lost, *diagnostics] == []
    for elsewhere in (to_responses(request)[1], to_messages(request)[1]):
        assert {case.where for case in elsewhere.of("loss")} >= {*fields} - {"top_k"}
    assert "models" not in to_responses(request)[0]


def test_p29_what_the_operator_adds_is_nothing_that_the_bridge_makes() -> None:
    with pytest.raises(ValueError, match="extra: stream is made"):
        ChatOptions(extra={"stream": True})


BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def broken(*texts: str) -> dict[str, Any]:
    """A request with a breakpoint after each text."""
    parts = [{"type": "input_text", "text": text, **BREAKPOINT} for text in texts]
    return {"model": "m", "input": [{"type": "message", "role": "user", "content": parts}]}


def test_p34_breakpoints_of_parts_are_kept_for_responses() -> None:
    original = broken("a", "b")
    body, diagnostics = to_responses(decode_request(json.dumps(original)))
    assert body["input"] == original["input"]
    assert not diagnostics.of("loss")


@pytest.mark.parametrize("own", [None, {"type": "ephemeral"}])
def test_p34_breakpoints_of_parts_at_anthropic(own: dict[str, Any] | None) -> None:
    request = decode_request(json.dumps(broken("a", "b", " ", "c", "d", "e", "f")))
    body, diagnostics = to_messages(request, options=MessagesOptions(cache_control=own))
    blocks = body["messages"][0]["content"]
    assert [block["text"] for block in blocks if block.get("cache_control")] == ["c", "d", "e", "f"]
    assert all(block.get("cache_control", own) in (own, {"type": "ephemeral"}) for block in blocks)
    assert [str(case) for case in diagnostics.of("loss")] == [
        "loss: prompt_cache_breakpoint: its part is left out",
        "loss: prompt_cache_breakpoint: the upstream takes 4, the last are sent (×2)",
    ]


def test_p34_a_breakpoint_of_another_form_is_a_loss_at_anthropic() -> None:
    original = broken("a", "b")
    original["input"][0]["content"][1]["prompt_cache_breakpoint"] = {"mode": "new"}
    body, diagnostics = to_messages(decode_request(json.dumps(original)))
    assert ["cache_control" in block for block in body["messages"][0]["content"]] == [True, False]
    lost = [case.where for case in diagnostics.of("loss")]
    assert lost == ["input[0].content[1].prompt_cache_breakpoint"]


CACHED = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
TOLD: dict[str, Any] = {
    "model": "m",
    "max_tokens": 99,
    "messages": [{"role": "user", "content": [CACHED, {**CACHED, "text": "b"}]}],
}


def _asked_of(dialect: str, body: dict[str, Any]) -> CreateResponse:
    return (from_messages if dialect == "messages" else from_chat)(encode(body))[0]


@pytest.mark.parametrize("client", ["messages", "chat"])
def test_p34_breakpoints_of_clients_at_openai(client: str) -> None:
    body, diagnostics = to_responses(_asked_of(client, TOLD))
    assert [part["prompt_cache_breakpoint"] for part in body["input"][0]["content"]] == [
        {"mode": "explicit"}
    ] * 2
    assert not diagnostics.of("loss")


@pytest.mark.parametrize("client", ["messages", "chat"])
def test_p34_breakpoints_of_clients_at_chat(client: str) -> None:
    request = _asked_of(client, TOLD)
    plain, diagnostics = to_chat(request)
    assert plain.messages[0].content == "a\n\nb"
    assert [loss.where for loss in diagnostics.of("loss")] == ["content.cache_control"]
    marked, diagnostics = to_chat(request, options=ChatOptions(cache_breakpoints=True))
    assert marked.messages[0].content == TOLD["messages"][0]["content"]
    assert not diagnostics.of("loss")


def test_p34_breakpoints_of_chat_s_clients_at_anthropic() -> None:
    body, diagnostics = to_messages(_asked_of("chat", TOLD))
    assert body["messages"][0]["content"] == TOLD["messages"][0]["content"]
    assert not diagnostics.of("loss")
