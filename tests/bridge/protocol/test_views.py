"""Helper functions of the vocabulary: hosted items, usage, output text, error payloads, statuses, ids."""

from typing import Any

import pytest

from openresponses_bridge.protocol import hosted
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.codec import decode_event, encode
from openresponses_bridge.protocol.events import ErrorEvent
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.state import WIRES

HOSTED: list[tuple[dict[str, Any], type[Any], dict[str, Any]]] = [
    ({"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search",
     "query": "q"}},
     hosted.WebSearchCall, {"action": {"type": "search", "query": "q"}}),
    ({"type": "file_search_call", "id": "f", "queries": ["a"], "results": None}, hosted.FileSearchCall,
     {"queries": ["a"], "results": None}),
    ({"type": "code_interpreter_call", "id": "c", "code": "1+1", "container_id": "k", "outputs": []},
     hosted.CodeInterpreterCall, {"code": "1+1", "container_id": "k", "outputs": []}),
    ({"type": "image_generation_call", "id": "i", "result": "aGk="}, hosted.ImageGenerationCall,
     {"result": "aGk="}),
    ({"type": "mcp_call", "id": "m", "server_label": "s", "name": "n", "arguments": "{}", "output": "o"},
     hosted.McpCall, {"server_label": "s", "name": "n", "arguments": "{}", "output": "o"}),
    ({"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": [{"name": "n"}]},
     hosted.McpListTools,
     {"tools": [{"name": "n"}]}),
    ({"type": "mcp_approval_request", "id": "m", "name": "n"}, hosted.McpApprovalRequest, {"name": "n"}),
    ({"type": "computer_call", "id": "c", "call_id": "k"}, hosted.ComputerCall, {"call_id": "k"}),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "struct", "fields"), HOSTED, ids=[case[0]["type"] for case in HOSTED])
@pytest.mark.parametrize("slug", ["", "openai:"])
def test_e10_hosted_items_are_seen_whatever_slug_they_carry(
    raw: dict[str, Any], struct: type[Any], fields: dict[str, Any], slug: str
) -> None:
    seen = hosted.view(UnknownItem(raw | {"type": slug + raw["type"]}))
    assert type(seen) is struct
    assert (seen.id, seen.type) == (raw["id"], slug + raw["type"])
    assert {name: getattr(seen, name) for name in fields} == fields


@pytest.mark.parametrize(
    "raw", [{"type": "acme:x", "id": "x"}, {"type": "web_search_call"}, {"type": "mcp_call", "id": 5}]
)
def test_other_items_are_seen_as_none(raw: dict[str, Any]) -> None:
    assert hosted.view(UnknownItem(raw)) is None


def test_every_hosted_struct_is_in_the_table() -> None:
    assert {case[1] for case in HOSTED} == set(hosted.HOSTED_ITEMS.values())


def test_usage_adds_up_unless_the_upstream_says_otherwise() -> None:
    assert Usage.of(2, 3).total_tokens == 5
    sent = Usage.of(2, 3, cached_tokens=1, reasoning_tokens=2, total_tokens=9)
    assert (sent.total_tokens, sent.input_tokens_details.cached_tokens) == (9, 1)
    assert sent.output_tokens_details.reasoning_tokens == 2
    assert Usage.of(2, 3, total_tokens=0).total_tokens == 0


@pytest.mark.parametrize(
    ("raw", "payload"),
    [
        (
            {"error": {"type": "t", "code": None, "message": "m", "param": "p"}},
            ErrorPayload("t", None, "m", "p"),
        ),
        ({"code": "c", "message": "m", "param": None}, ErrorPayload("server_error", "c", "m", None)),
        ({}, ErrorPayload("server_error", None, "", None)),
    ],
)
def test_e8_an_error_is_read_from_wherever_it_stands(raw: dict[str, Any], payload: ErrorPayload) -> None:
    event = decode_event(encode({"type": "error", "sequence_number": 0} | raw))
    assert isinstance(event, ErrorEvent)
    assert event.payload == payload


def test_a_status_is_given_to_items_that_can_carry_one() -> None:
    message = it.Message("m", "in_progress", "assistant", [])
    assert it.with_status(message, "completed").status == "completed"
    compaction = it.CompactionItem("c", "x")
    assert it.with_status(compaction, "completed") is compaction
    plain = UnknownItem({"type": "acme:x"})
    assert it.with_status(plain, "completed") is plain
    assert it.with_status(UnknownItem({"status": "a"}), "completed") == UnknownItem({"status": "completed"})


def test_an_id_is_given_to_any_item() -> None:
    message = it.Message("m", "in_progress", "assistant", [])
    assert it.with_id(message, "m") is message
    assert it.with_id(message, "n").id == "n"
    assert it.with_id(UnknownItem({"type": "a"}), "n") == UnknownItem({"type": "a", "id": "n"})


def test_e10_the_two_wires_differ_in_their_table_only() -> None:
    assert set(WIRES) == {"openresponses", "openai"}
    assert {name: wire.name for name, wire in WIRES.items()} == {name: name for name in WIRES}
