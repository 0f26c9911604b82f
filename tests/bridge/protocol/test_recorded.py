"""Recorded events, items and requests: decode → encode keeps the known fields, and unknown objects
unchanged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import (
    check_event,
    decode_create_message,
    decode_event,
    decode_item,
    decode_request,
    encode,
)
from openresponses_bridge.protocol.input_items import AdditionalTools, MessageParam
from openresponses_bridge.protocol.lenient import Repair
from openresponses_bridge.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool
from openresponses_bridge.protocol.unknown import UnknownEvent
from openresponses_bridge.protocol.vocabulary import EVENTS
from tests.support.shared import shared_files


def valid_json(parameters: "list[Any]") -> "list[Any]":
    """Those whose file is JSON: some examples of the documentation are not."""
    result = []
    for parameter in parameters:
        path = parameter.values[0]
        try:
            if path is not None:
                json.loads(path.read_bytes())
        except ValueError:
            continue
        result.append(parameter)
    return result


def payloads(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a recorded stream, in SSE or as lines."""
    for line in path.read_text().splitlines():
        text = line.removeprefix("data:").strip()
        if text.startswith("{"):
            yield json.loads(text)


def assert_kept(before: Any, after: Any, repaired: set[str], path: str = "$") -> None:
    """Every field of `after` is as in `before` but for what was repaired there."""
    if any(path.startswith(each) or (each.startswith(path) and before is None) for each in repaired):
        return
    if isinstance(after, dict) and isinstance(before, dict):
        for name, value in after.items():
            where = f"{path}.{name}"
            if name in before or where not in repaired:
                assert name in before, where
                assert_kept(before[name], value, repaired, where)
    elif isinstance(after, list) and isinstance(before, list):
        assert len(after) == len(before), path
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            assert_kept(one, other, repaired, f"{path}[{index}]")
    else:
        assert after == before, path


def round_trip(raw: dict[str, Any]) -> None:
    repairs: list[Repair] = []
    event = decode_event(json.dumps(raw), repairs)
    again = json.loads(encode(event))
    if isinstance(event, UnknownEvent):
        assert again == raw
        assert repairs == []
    else:
        assert type(event) is EVENTS.structs[raw["type"]]
        assert_kept(raw, again, {repair.path for repair in repairs})
    # what leaves is what the vocabulary admits: it is read back strictly, and as the same
    assert json.loads(encode(check_event(encode(event)))) == again


@pytest.mark.parametrize("path", valid_json(shared_files("spec-events", "*.json")))
def test_documented_events_survive_decoding_and_encoding(path: Path) -> None:
    round_trip(json.loads(path.read_bytes()))


RECORDED = [
    *shared_files("responses", "*"),
    *shared_files("responses-inline", "*"),
    *shared_files("openresponses", "*"),
]


@pytest.mark.parametrize("path", RECORDED)
@pytest.mark.untraced
def test_recorded_events_survive_decoding_and_encoding(path: Path) -> None:
    events = list(payloads(path))
    assert events
    for raw in events:
        if "type" in raw:
            round_trip(raw)


@pytest.mark.parametrize("path", shared_files("responses", "*"))
def test_recorded_output_items_survive_decoding_and_encoding(path: Path) -> None:
    for raw in payloads(path):
        for item in [raw.get("item"), *(raw.get("response") or {}).get("output", [])]:
            if item is not None:
                repairs: list[Repair] = []
                again = json.loads(encode(decode_item(json.dumps(item), repairs)))
                assert_kept(item, again, {repair.path for repair in repairs})


def bodies(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(kind, body) of the requests in a recording of a client."""
    for line in path.read_text().splitlines():
        recorded = json.loads(line)
        if isinstance(recorded.get("body"), dict):
            yield recorded["kind"], recorded["body"]


@pytest.mark.parametrize("path", shared_files("client-requests", "*.jsonl"))
def test_requests_of_real_clients_decode_as_they_are(path: Path) -> None:
    seen = 0
    for kind, body in bodies(path):
        decode = decode_create_message if kind == "ws-frame" else decode_request
        request = decode(json.dumps(body))
        again = json.loads(encode(request))
        present = {name: value for name, value in again.items() if value is not None}
        assert set(present) == {name for name, value in body.items() if value is not None}
        assert_kept({name: body[name] for name in present if name != "input"},
                    {name: value for name, value in present.items() if name != "input"}, set())  # fmt: skip
        inputs = body.get("input") or []
        assert isinstance(inputs, str) or len(present["input"]) == len(inputs)
        seen += 1
    assert seen


@pytest.mark.parametrize("path", shared_files("client-requests", "codex*.jsonl"))
def test_case_33_case_36_codex_requests_keep_their_tools(path: Path) -> None:
    for kind, body in bodies(path):
        decode = decode_create_message if kind == "ws-frame" else decode_request
        request = decode(json.dumps(body))
        for raw, tool in zip(body.get("tools") or (), request.tools or (), strict=True):
            assert json.loads(encode(tool)) == raw or isinstance(
                tool, FunctionToolParam | CustomTool | NamespaceTool
            )
            assert tool.type == raw["type"]
        assert isinstance(request.input, list)
        for raw, item in zip(body["input"], request.input, strict=True):
            assert item.type == raw.get("type", "message")
            if isinstance(item, MessageParam):
                assert item.role == raw["role"]
            if isinstance(item, AdditionalTools):
                assert len(item.tools) == len(raw["tools"])


def test_a_request_that_is_refused_names_the_item() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_request(
            '{"input": [{"type": "message", "role": "user", "content": ""}, {"role": "bot", "content": ""}]}'
        )
    assert caught.value.param == "input[1].role"
