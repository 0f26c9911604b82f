"""Clients that get the usage of responses also get that of failed and cancelled ones."""

from typing import Any

import pytest

from openresponses_bridge.dialects import anthropic_messages, chat_completions, gemini
from openresponses_bridge.protocol.response import ErrorPayload
from tests.support.machines import machine, plain

USED = {"input_tokens": 11, "output_tokens": 5}
OUTBOUNDS: dict[str, Any] = {
    "chat": lambda: chat_completions.Outbound(include_usage=True),
    "anthropic": anthropic_messages.Outbound,
    "gemini": gemini.Outbound,
}
COUNTS = {
    "chat": ("usage", {"prompt_tokens": 11, "completion_tokens": 5}),
    "anthropic": ("usage", {"input_tokens": 11, "output_tokens": 5}),
    "gemini": ("usageMetadata", {"promptTokenCount": 11, "candidatesTokenCount": 5}),
}


@pytest.mark.parametrize("dialect", OUTBOUNDS)
@pytest.mark.parametrize("way", ["fail", "cancel"])
def test_the_usage_stands_before_the_error(dialect: str, way: str) -> None:
    state_machine, outbound = machine(), OUTBOUNDS[dialect]()
    events = state_machine.start() + state_machine.text("So")
    state_machine.usage(USED)
    error = ErrorPayload("server_error", "upstream_cut", "It was cut.", None)
    events += state_machine.fail(error) if way == "fail" else state_machine.cancel()
    chunks = [plain(chunk) for event in events for chunk in outbound.feed(event)]
    name, counts = COUNTS[dialect]
    assert "error" in chunks[-1]
    assert counts.items() <= chunks[-2][name].items()
    assert sum("error" in chunk for chunk in chunks) == 1


def test_a_chat_client_that_did_not_ask_is_not_told() -> None:
    state_machine, outbound = machine(), chat_completions.Outbound()
    events = state_machine.start() + state_machine.text("So")
    state_machine.usage(USED)
    events += state_machine.fail(ErrorPayload("server_error", "upstream_cut", "It was cut.", None))
    chunks = [plain(chunk) for event in events for chunk in outbound.feed(event)]
    assert not any(chunk.get("usage") for chunk in chunks)


def test_an_error_without_its_failed_response_is_told() -> None:
    state_machine, outbound = machine(), chat_completions.Outbound()
    events = state_machine.start() + state_machine.text("So")
    events += state_machine.fail(ErrorPayload("server_error", "upstream_cut", "It was cut.", None))[:1]
    chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
    assert plain(chunks[-2])["error"]["message"] == "It was cut."
