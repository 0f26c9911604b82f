"""What servers other than Anthropic's send instead of its frames."""

from typing import Any

import pytest

from openresponses_bridge.dialects.anthropic_messages import Inbound
from tests.support.anthropic import delta, frame, opened, start, stop, text, tool
from tests.support.machines import machine

DELTA = stop()[0]


def read(*frames: bytes | tuple[bytes, str], close: bool = True) -> tuple[Any, list[str]]:
    own = machine()
    inbound = Inbound(own)
    for each in frames:
        data, event = each if isinstance(each, tuple) else (each, "")
        inbound.feed(data, event)
    if close:
        inbound.close()
    return own.snapshot, [f"{case.kind} {case.where}: {case.what}" for case in own.diagnostics]


@pytest.mark.parametrize("close", [True, False])
def test_done_in_the_place_of_message_stop_ends_the_message(close: bool) -> None:
    response, notes = read(start(), *text(0, "a"), DELTA, b"[DONE]", close=close)
    assert (response.status, response.output_text) == ("completed", "a")
    assert notes == ["repair message_stop: missing, [DONE] came in its place"]


def test_done_behind_message_stop_is_nothing() -> None:
    response, _ = read(start(), *text(0, "a"), *stop(), b"[DONE]")
    assert response.status == "completed"


def test_done_without_any_content_is_a_failure() -> None:
    response, _ = read(start(), b"[DONE]")
    assert (response.status, response.error.code) == ("failed", "upstream_empty")


@pytest.mark.parametrize(
    "ping", [(b"", "ping"), (b" ", ""), (b"ping", "ping"), (b"ping", ""), (b"pong", "ping")]
)
@pytest.mark.parametrize("at", [0, 1, 2, 4])
def test_pings_without_json_are_ignored(ping: tuple[bytes, str], at: int) -> None:
    frames: list[Any] = [start(), *text(0, "a", "b"), *stop()]
    response, notes = read(*frames[:at], ping, *frames[at:])
    assert (response.status, response.output_text) == ("completed", "ab")
    assert notes in (["ignored frame: keeps the connection open"], ["ignored frame: empty"])


def test_what_is_neither_a_ping_nor_json_stays_an_error() -> None:
    response, _ = read(start(), b"nonsense")
    assert (response.status, response.error.code) == ("failed", "upstream_invalid_json")


@pytest.mark.parametrize("name", ["", None])
def test_e7_a_call_without_a_name_is_left_out_alone(name: Any) -> None:
    nameless = [
        opened(1, "tool_use", id="call_1", **({} if name is None else {"name": name}), input={}),
        delta(1, "input_json_delta", partial_json='{"a":1}'),
        frame("content_block_stop", index=1),
    ]
    named = tool(2, "call_2", "look", '{"a":1}')
    response, notes = read(start(), *text(0, "I look."), *nameless, *named, *stop("tool_use"))
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "incomplete_tool_call"
    assert [(item.type, item.status) for item in response.output] == [
        ("message", "completed"),
        ("function_call", "completed"),
    ]
    assert notes == [
        "loss tool_call: never got a name",
        "warning finish_reason: 'tool_use', ended as incomplete_tool_call",
    ]
