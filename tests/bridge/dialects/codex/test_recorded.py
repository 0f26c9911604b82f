"""Recorded turns of two Codex versions, one of which sends each in two generations side by side."""

import json
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.dialects.codex import Generation, Inbound
from tests.support.checked_inbound import CheckedInbound, json_lines
from tests.support.shared import shared_files

RECORDED = shared_files("codex", "*.jsonl")
LEGACY = shared_files("codex", "legacy080_*.jsonl")
WIRES = ("openresponses", "openai")

# recording → (status, what is reported of the end)
ENDINGS: dict[str, tuple[str, str | None]] = {
    "error_drop": ("failed", "upstream_error"),
    "error_http429": ("failed", "rate_limit_exceeded"),
    "error_http429_retries": ("failed", "service_unavailable"),
    "error_http500": ("failed", "server_error"),
    "error_response_failed": ("failed", "upstream_error"),
    "incomplete": ("incomplete", "max_output_tokens"),
    "interrupt": ("incomplete", "cancelled"),
    "legacy080_error_http429": ("failed", "rate_limit_exceeded"),
}


def messages(path: Path) -> list[dict[str, Any]]:
    return [line["msg"] for line in map(json.loads, json_lines(path)) if line["dir"] == "in"]


def first_turn(path: Path) -> list[dict[str, Any]]:
    """What was sent until the turn's end."""
    sent = messages(path)
    end = next(place for place, each in enumerate(sent) if each.get("method") == "turn/completed")
    return sent[: end + 1]


def completed_items(path: Path) -> list[dict[str, Any]]:
    return [
        each["params"]["item"]
        for each in first_turn(path)
        if each.get("method") == "item/completed" and each["params"]["item"]["type"] != "userMessage"
    ]


def without_ids(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What both generations send: all but ids and each one's bookkeeping."""
    common = ("type", "status", "outcome", "command", "cwd", "aggregated_output", "exit_code", "changes")
    words = ("content", "summary")
    return [{name: item[name] for name in (*common, *words) if name in item} for item in output]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("path", RECORDED)
def test_recorded_turn_ends_as_it_did(path: Path, wire: str) -> None:
    fed = CheckedInbound(Inbound, json_lines(path), wire)
    status, sent = ENDINGS.get(path.stem, ("completed", None))
    if (wire, sent) == ("openai", "cancelled"):
        status, sent = "cancelled", None
    assert fed.status == status
    details = fed.response.incomplete_details
    assert sent in (fed.response.error and fed.response.error.code, details and details.reason)


@pytest.mark.parametrize("path", RECORDED)
def test_recorded_items_are_all_sent_once(path: Path) -> None:
    output = CheckedInbound(Inbound, json_lines(path)).output
    sent = [item for item in output if item["status"] == "completed"]
    recorded = completed_items(path)
    assert [item["id"] for item in sent] == [item["id"] for item in recorded]
    for ours, theirs in zip(sent, recorded, strict=True):
        check(ours, theirs)


def check(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    if theirs["type"] == "agentMessage":
        assert ours["content"][0]["text"] == theirs["text"]
    elif theirs["type"] == "reasoning":
        assert [part["text"] for part in ours["summary"]] == theirs["summary"]
        assert [part["text"] for part in ours["content"]] == theirs["content"]
    elif theirs["type"] == "commandExecution":
        assert ours["type"] == "codex:command_execution"
        assert (ours["command"], ours["aggregated_output"]) == (theirs["command"], theirs["aggregatedOutput"])
        assert (ours["exit_code"], ours["outcome"]) == (theirs["exitCode"], theirs["status"])
    else:
        assert ours["type"] == "codex:file_change"
        assert ours["changes"] == theirs["changes"]


@pytest.mark.parametrize("path", RECORDED)
def test_recorded_turn_leaves_nothing_unknown(path: Path) -> None:
    fed = CheckedInbound(Inbound, first_turn(path))
    late = ["frame: came after the end"]
    assert fed.notes("ignored") in ([], late)
    assert fed.notes("loss") == fed.notes("repair") == []


@pytest.mark.parametrize("path", LEGACY)
def test_side_by_side_generations_send_the_same_and_only_one_is_believed(path: Path) -> None:
    lines = json_lines(path)
    both = CheckedInbound(Inbound, lines)
    older = CheckedInbound(Inbound, [line for line in lines if b'"codex/event/' in line])
    newer = CheckedInbound(Inbound, [line for line in lines if b'"codex/event/' not in line])
    assert both.output == newer.output
    assert without_ids(older.output) == without_ids(newer.output)
    assert older.response.usage == newer.response.usage == both.response.usage
    assert older.status == newer.status == both.status
    generations = [fed.inbound.generation for fed in (older, newer, both)]  # type: ignore[attr-defined]
    assert generations == [Generation.LEGACY, Generation.APP_SERVER, Generation.APP_SERVER]


@pytest.mark.parametrize("path", RECORDED)
@pytest.mark.untraced
def test_case_26_a_recording_cut_anywhere_is_never_completed(path: Path) -> None:
    turn = first_turn(path)
    for length in range(0, len(turn) - 1, 5):
        fed = CheckedInbound(Inbound, turn[:length])
        assert fed.status in ("failed", "incomplete")


@pytest.mark.parametrize("path", shared_files("codex", "compact.jsonl"))
def test_compaction_turn_is_an_item_and_its_usage_its_own(path: Path) -> None:
    sent = messages(path)
    second = max(place for place, each in enumerate(sent) if each.get("method") == "turn/started")
    turn_id = sent[second]["params"]["turn"]["id"]
    fed = CheckedInbound(lambda machine: Inbound(machine, turn_id), sent)
    (item,) = fed.output
    assert item["type"] == "codex:context_compaction"
    usage = fed.response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (11, 7)
    assert fed.notes("ignored") == ["turn: notifications of another turn"]


@pytest.mark.parametrize("path", shared_files("codex", "tool_command_approval.jsonl"))
def test_recorded_approval_is_an_extension_event(path: Path) -> None:
    fed = CheckedInbound(Inbound, json_lines(path))
    (approval,) = fed.extensions("codex:approval_request")
    assert approval["request_id"] == 0
    assert approval["kind"] == "command_execution"
    assert approval["item_id"] == fed.output[0]["id"]
    assert approval["command"] == fed.output[0]["command"]
    assert fed.extensions("codex:request_resolved") == [{"request_id": 0}]


@pytest.mark.parametrize("path", shared_files("codex", "tool_command_streaming_output.jsonl"))
def test_recorded_output_is_sent_while_the_command_runs(path: Path) -> None:
    fed = CheckedInbound(Inbound, json_lines(path))
    deltas = fed.extensions("codex:command_execution.output_delta")
    assert [each["delta"] for each in deltas] == ["hello-from-tool line2\n", "hello-from-tool line3\n"]
    assert {each["item_id"] for each in deltas} == {fed.output[0]["id"]}
    # the first line came before its delta could: the item holds all three
    assert fed.output[0]["aggregated_output"].count("\n") == 3
