"""The service tier and the model that an upstream of any API names, at clients of any other."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from openresponses_bridge.dialects import anthropic_messages, chat_completions, gemini
from openresponses_bridge.dialects.chat_completions import completion
from openresponses_bridge.dialects.chat_completions import encode as encode_chunks
from openresponses_bridge.emitter.finished import events_of
from openresponses_bridge.protocol.codec import decode_json, decode_request, encode
from tests.support.machines import machine, plain

Json = dict[str, Any]
MESSAGE: Json = {"role": "assistant", "content": "so"}
CHAT: Json = {"object": "chat.completion", "choices": [{"message": MESSAGE, "finish_reason": "stop"}]}
MESSAGES: Json = {
    "id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "so"}],
}  # fmt: skip
GEMINI: Json = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "so"}]}, "finishReason": "STOP"}]
}


def answered(inbound: Any, answer: Json, asked: str | None = None, model: str = "m") -> Any:
    """The response to a client of another API, which asked for this tier."""
    request = decode_request(encode({"model": model, "input": "Hi", "service_tier": asked}))
    stream = machine(request=request, unknown_fields=False)
    reader = inbound(stream)
    reader.feed(encode(answer))
    reader.close()
    return stream


@pytest.mark.parametrize(
    ("inbound", "answer", "told"),
    [
        (chat_completions.Inbound, CHAT | {"service_tier": "flex"}, "flex"),
        (chat_completions.Inbound, CHAT | {"service_tier": "on_demand"}, "on_demand"),
        (chat_completions.Inbound, CHAT | {"service_tier": 3}, "default"),
        (anthropic_messages.Inbound, MESSAGES | {"usage": {"service_tier": "standard"}}, "default"),
        (anthropic_messages.Inbound, MESSAGES | {"usage": {"service_tier": "batch"}}, "batch"),
        (gemini.Inbound, GEMINI | {"usageMetadata": {"serviceTier": "standard"}}, "default"),
        (gemini.Inbound, GEMINI | {"usageMetadata": {"serviceTier": "of_tomorrow"}}, "of_tomorrow"),
        (gemini.Inbound, GEMINI | {"usageMetadata": {"serviceTier": 2}}, "default"),
    ],
)
def test_n1_the_tier_of_any_upstream_is_that_of_the_response(inbound: Any, answer: Json, told: str) -> None:
    assert answered(inbound, answer, asked="priority").snapshot.service_tier == told


def test_n1_what_was_asked_for_is_told_to_clients_of_the_protocol_alone() -> None:
    request = decode_request(encode({"model": "m", "input": "Hi", "service_tier": "flex"}))
    assert machine(request=request).snapshot.service_tier == "flex"
    silent = answered(chat_completions.Inbound, CHAT, asked="flex")
    assert "service_tier" not in plain(completion(silent.snapshot))


def test_n1_a_tier_that_comes_late_is_told_at_the_end() -> None:
    stream = machine(unknown_fields=False)
    inbound, outbound = chat_completions.Inbound(stream), chat_completions.Outbound(include_usage=True)
    head = {"object": "chat.completion.chunk", "model": "m-2026"}
    frames: list[Json] = [
        {**head, "choices": [{"index": 0, "delta": MESSAGE}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**head, "choices": [], "usage": {"prompt_tokens": 1}, "service_tier": "priority"},
    ]
    events = [event for frame in frames for event in inbound.feed(encode(frame))] + inbound.close()
    chunks = [chunk for event in events for chunk in outbound.feed(event)]
    assert (stream.snapshot.service_tier, stream.snapshot.upstream_model) == ("priority", "m-2026")
    sent = [decode_json(line[6:]) for line in encode_chunks(chunks).splitlines() if line]
    assert ["service_tier" in each for each in sent] == [False, False, True, True]
    assert {each["model"] for each in sent} == {"m"}


@pytest.mark.parametrize("name", ["model", "service_tier"])
def test_a_name_that_is_longer_than_any_is_a_loss(name: str) -> None:
    stream = answered(chat_completions.Inbound, CHAT | {name: "x" * 2000})
    assert (stream.snapshot.service_tier, stream.snapshot.upstream_model) == ("default", UNSET)
    assert [case.where for case in stream.diagnostics.of("loss")] == [name]


@pytest.mark.parametrize("write", ["anthropic", "gemini"])
def test_n1_a_tier_without_a_name_there_is_a_loss(write: str) -> None:
    stream = answered(chat_completions.Inbound, CHAT | {"service_tier": "scale"})
    outbound: Any = anthropic_messages.Outbound() if write == "anthropic" else gemini.Outbound()
    sent = [chunk for event in events_of(stream.snapshot) for chunk in outbound.feed(event)]
    assert b"scale" not in encode(sent)
    assert [case.where for case in outbound.diagnostics.of("loss")] == ["service_tier"]


def test_n1_the_default_tier_comes_back_to_its_own_api_and_is_no_loss_elsewhere() -> None:
    stream = answered(chat_completions.Inbound, CHAT | {"service_tier": "default"})
    assert plain(completion(stream.snapshot))["service_tier"] == "default"
    outbound = anthropic_messages.Outbound()
    chunks = [chunk for event in events_of(stream.snapshot) for chunk in outbound.feed(event)]
    assert b"tier" not in encode(chunks)
    assert outbound.diagnostics.of("loss") == []
