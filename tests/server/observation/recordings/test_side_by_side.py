"""Turns of Codex that run side by side in one capture: each is a response of its own."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Mapping
from time import process_time
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge import encode_sse
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.events import Event
from openresponses_cli.commands.cli import main
from openresponses_server.observation.recordings.dialects import MOST_OPEN, StepKind
from openresponses_server.observation.recordings.observing import observed
from openresponses_server.observation.recordings.playing import AUTO, CaptureReader
from tests.support.checked_inbound import json_lines
from tests.support.costs import assert_proportional
from tests.support.normalised import Normalised
from tests.support.shared import shared_root

ROOT = shared_root()
RECORDED = {} if ROOT is None else {path.name: path for path in sorted((ROOT / "fixtures/codex").iterdir())}
TURNS = 8


def responses_of(lines: Iterable[bytes]) -> tuple[list[str], list[str]]:
    """The streams that a capture becomes, one for each response, and what was repaired or lost."""
    responses, cases = translated(lines)
    diagnostics = sorted(str(case) for case in cases if case.kind != "ignored")
    return [Normalised()(encode_sse(each).decode()) for each in responses], diagnostics


def translated(lines: Iterable[bytes]) -> tuple[list[list[Event]], Diagnostics]:
    reader = CaptureReader(AUTO, "openresponses")
    responses: list[list[Event]] = [[]]
    for step in reader.read(line + b"\n" for line in lines):
        responses[-1] += step.events
        if step.kind is StepKind.END:
            responses.append([])
    assert responses.pop() == []
    return responses, reader.diagnostics


def began(line: bytes) -> bool:
    return json.loads(line)["msg"].get("method") == "turn/started"


@st.composite
def merged(draw: st.DrawFn, captures: list[list[bytes]]) -> list[tuple[int, bytes]]:
    """The lines of several captures in one, each with its capture's number and in its order."""
    numbers = [number for number, lines in enumerate(captures) for _ in lines]
    rests = [iter(lines) for lines in captures]
    return [(number, next(rests[number])) for number in draw(st.permutations(numbers))]


@pytest.mark.skipif(not RECORDED, reason="needs the shared fixtures")
@settings(max_examples=60)
@given(data=st.data())
def test_t7_interleaved_turns_are_replayed_as_each_is_alone(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(list(RECORDED)), min_size=2, max_size=3, unique=True))
    captures = [json_lines(RECORDED[name]) for name in names]
    lines = data.draw(merged(captures))
    alone = [responses_of(capture) for capture in captures]
    waiting = [iter(streams) for streams, _ in alone]
    streams, diagnostics = responses_of(line for _, line in lines)
    assert streams == [next(waiting[number]) for number, line in lines if began(line)]
    assert diagnostics == sorted(case for _, cases in alone for case in cases)


def said(thread: str, turn: str, method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": thread, "turnId": turn, **params}}


def begin(thread: str, turn: str) -> dict[str, Any]:
    return {"method": "turn/started", "params": {"threadId": thread, "turn": {"id": turn}}}


def delta(thread: str, turn: str, text: str) -> dict[str, Any]:
    return said(thread, turn, "item/agentMessage/delta", itemId=f"msg_{thread}_{turn}", delta=text)


def end(thread: str, turn: str, status: str = "completed") -> dict[str, Any]:
    return {
        "method": "turn/completed",
        "params": {"threadId": thread, "turn": {"id": turn, "status": status}},
    }


def spent(thread: str, turn: str, total: int, last: int) -> dict[str, Any]:
    counts = {"total": {"inputTokens": total}, "last": {"inputTokens": last}}
    return said(thread, turn, "thread/tokenUsage/updated", tokenUsage=counts)


def capture(*frames: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


def replayed(*frames: Mapping[str, Any]) -> list[dict[str, Any]]:
    result = run(*frames)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def run(*frames: Mapping[str, Any], to: str = "snapshot") -> Result:
    return CliRunner().invoke(main, ["replay", "--from", "codex", "--to", to], input=capture(*frames))


def texts(response: Mapping[str, Any]) -> list[str]:
    return [item["content"][0]["text"] for item in response["output"] if item["type"] == "message"]


def test_turns_of_two_threads_come_in_the_order_in_which_they_began() -> None:
    responses = replayed(
        begin("a", "1"),
        begin("b", "1"),
        delta("b", "1", "B"),
        delta("a", "1", "A"),
        delta("b", "1", "b"),
        end("b", "1"),
        begin("b", "2"),
        delta("b", "2", "again"),
        end("b", "2"),
        delta("a", "1", "a"),
        end("a", "1"),
    )
    assert [texts(each) for each in responses] == [["Aa"], ["Bb"], ["again"]]
    assert {each["status"] for each in responses} == {"completed"}
    assert len({each["id"] for each in responses}) == 3


def test_a_sub_agent_is_no_part_of_what_its_parent_says() -> None:
    call = {"type": "collabAgentToolCall", "id": "call_1", "tool": "spawnAgent"}
    threads = {"senderThreadId": "parent", "receiverThreadIds": ["child"], "prompt": "Count."}
    parent, child = replayed(
        begin("parent", "p"),
        delta("parent", "p", "I ask another. "),
        said("parent", "p", "item/started", item={**call, **threads, "status": "inProgress"}),
        {"method": "thread/started", "params": {"thread": {"id": "child"}}},
        begin("child", "c"),
        delta("child", "c", "One, two."),
        spent("child", "c", 900, 900),
        said("child", "c", "item/commandExecution/outputDelta", itemId="call_1", delta="not the parent's"),
        end("child", "c"),
        said("parent", "p", "item/completed", item={**call, **threads, "status": "completed"}),
        spent("parent", "p", 30, 20),
        delta("parent", "p", "It says two."),
        end("parent", "p"),
    )
    assert "".join(texts(parent)) == "I ask another. It says two."
    assert texts(child) == ["One, two."]
    (item,) = (each for each in parent["output"] if each["type"] == "codex:collab_agent_tool_call")
    assert item["receiver_thread_ids"] == ["child"]
    assert (parent["usage"]["input_tokens"], child["usage"]["input_tokens"]) == (20, 900)


def test_what_names_a_thread_alone_is_of_the_turn_that_runs_in_it() -> None:
    resolved = {"method": "serverRequest/resolved", "params": {"threadId": "b", "requestId": 0}}
    capture = [begin("a", "1"), begin("b", "1"), resolved, end("b", "1"), end("a", "1")]
    streams, _ = responses_of(json.dumps(frame).encode() for frame in capture)
    assert ["codex:request_resolved" in stream for stream in streams] == [False, True]


def test_a_turn_that_never_ends_is_cut_and_those_beside_it_are_whole() -> None:
    first, second = replayed(begin("a", "1"), delta("a", "1", "A"), begin("b", "1"), end("b", "1"))
    assert (first["status"], second["status"]) == ("failed", "completed")


def test_a_resumed_thread_begins_with_counts_of_a_turn_that_is_long_over() -> None:
    (response,) = replayed(
        spent("a", "0", 70, 7), begin("a", "1"), delta("a", "1", "A"), spent("a", "1", 80, 10), end("a", "1")
    )
    assert (texts(response), response["usage"]["input_tokens"]) == (["A"], 10)


def test_what_is_still_said_of_a_turn_that_has_ended_begins_no_other() -> None:
    late = [delta("a", "1", "late") for _ in range(3)]
    result = run(begin("a", "1"), end("a", "1"), begin("a", "2"), *late, delta("a", "2", "A"), end("a", "2"))
    assert [texts(json.loads(line)) for line in result.stdout.splitlines()] == [[], ["A"]]
    assert "ignored: turn: notifications of another turn (×3)" in result.stderr


@pytest.mark.untraced
@pytest.mark.parametrize("over", [False, True])
def test_more_open_turns_than_are_kept_are_an_error_that_says_so(over: bool) -> None:
    frames = [frame for at in range(MOST_OPEN) for frame in (begin(f"t{at}", "1"), delta(f"t{at}", "1", "A"))]
    ends = [end(f"t{at}", "1") for at in range(1, MOST_OPEN)] if over else []
    result = run(*frames, *ends, begin("one more", "1"))
    if over:  # those that wait for the first one to end are not open
        assert (result.exit_code, len(result.stdout.splitlines())) == (0, MOST_OPEN + 1)
    else:
        assert result.exit_code == 2
        at = 2 * MOST_OPEN + 1
        assert f"line {at}: more than {MOST_OPEN} answers are open at once" in result.stderr


def test_e12_turns_side_by_side_cost_as_much_as_one_after_the_other() -> None:
    def lines(turns: int) -> list[bytes]:
        beside = [begin("a", "0"), *(delta("a", "0", "A") for _ in range(turns))]
        for at in range(turns):
            beside += [begin(f"t{at}", "1"), delta(f"t{at}", "1", "B"), end(f"t{at}", "1")]
        return [json.dumps(frame).encode() for frame in [*beside, end("a", "0")]]

    def seconds(turns: int) -> float:
        capture = lines(turns)
        gc.disable()  # it would look through what other tests left
        try:
            before = process_time()
            responses, _ = translated(capture)
            spent = process_time() - before
        finally:
            gc.enable()
        assert len(responses) == turns + 1
        return spent

    assert_proportional(seconds, 100, 100 * TURNS)


def test_each_event_is_shown_beside_the_payload_that_it_came_of() -> None:
    frames = [begin("a", "1"), delta("a", "1", "A"), begin("b", "1"), delta("b", "1", "B"), end("b", "1")]
    read = capture(*frames, delta("a", "1", "a"), end("a", "1")).splitlines(keepends=True)
    shown = [json.loads(line) for line in observed(read, "codex")]
    deltas = {each["data"]["delta"]: each["line"] for each in shown if "delta" in each.get("data", {})}
    assert deltas == {"A": 2, "a": 6, "B": 4}
    ends = [at for at, each in enumerate(shown) if each.get("ended")]
    sources = [each.get("source", []) for each in shown]
    of_each = sources[: ends[0] + 1], sources[ends[0] + 1 :]
    threads = [[frame["params"]["threadId"] for source in part for frame in source] for part in of_each]
    assert threads == [["a"] * 4, ["b"] * 3]
