"""Turns written by hand: each notification with its events, and the stream of Chat Completions made from
them."""

from typing import Any

from syrupy.assertion import SnapshotAssertion

from openresponses_bridge.dialects import chat_completions, codex
from openresponses_bridge.sse import SSEDecoder
from tests.support.checked_inbound import CheckedInbound, Frame
from tests.support.codex import counts, ended, item, legacy, notify, proxied, said, spent, started
from tests.support.model_frames import compact
from tests.support.snapshots import snapshots
from tests.support.transcripts import Transcript

COMPLETED = proxied("completed", response={"status": "completed", "output": []})
CAP = 1_000_000  # characters of arguments that a call may have


def text(delta: str) -> Frame:
    return proxied("output_text.delta", item_id="msg_1", delta=delta)


def call(id: str = "call_a", name: str = "get_weather") -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name}


def added(id: str = "call_a", name: str = "get_weather") -> Frame:
    return proxied("output_item.added", item=call(id, name))


def piece(delta: str, id: str = "call_a") -> Frame:
    return proxied("function_call_arguments.delta", call_id=id, delta=delta)


def done(arguments: str, id: str = "call_a", name: str = "get_weather") -> list[Frame]:
    return [
        proxied("function_call_arguments.done", call_id=id, arguments=arguments),
        proxied("output_item.done", item={**call(id, name), "arguments": arguments}),
    ]


TOOL = [added(), piece('{"city":'), piece('"Paris"}'), *done('{"city":"Paris"}')]
REPLAYS: dict[str, list[Frame]] = {
    "text_only": [text("Hello"), text(" there."), COMPLETED],
    "tool_only": [*TOOL, COMPLETED],
    "text_then_tool": [text("Let me "), text("look."), *TOOL, COMPLETED],
    "tool_then_text": [*TOOL, text("That was it."), COMPLETED],
    "ends_with_its_call": TOOL,
    "cut_within_a_sibling": [*TOOL, added("call_b", "get_time")],
    "bare_and_older": [
        {"type": "agent_message_delta", "delta": "Hel"},
        {"id": "0", "msg": {"type": "agent_message_delta", "delta": "lo"}},
        {"type": "task_complete"},
    ],
    "unknown_types": [
        proxied("created", response={}),
        proxied("novelty", value=1),
        text("Hello"),
        proxied("novelty", value=2),
        proxied("output_text.annotated", delta="?"),
        text("."),
        COMPLETED,
    ],
    "calls_a_and_b_interleaved": [
        added("call_a"),
        added("call_b", "get_time"),
        piece('{"city":', "call_a"),
        piece('{"zone":', "call_b"),
        piece('"Paris"}', "call_a"),
        piece('"CET"}', "call_b"),
        *done('{"zone":"CET"}', "call_b", "get_time"),
        *done('{"city":"Paris"}', "call_a"),
        COMPLETED,
    ],
    "done_without_deltas": [added(), *done('{"city":"Paris"}'), COMPLETED],
    "over_the_cap": [added(), piece("x" * (CAP // 2)), piece("x" * (CAP // 2 + 1)), COMPLETED],
    "failed": [
        text("Hel"), proxied("failed", response={"error": {"code": "server_error", "message": "down"}}),
    ],
    "legacy": [
        legacy("task_started"),
        legacy("agent_message_delta", delta="Hel"),
        legacy("agent_message_delta", delta="lo"),
        legacy("agent_message", message="Hello"),
        legacy("item_completed", item={"type": "agentMessage", "id": "msg_1", "text": "Hello"}),
        legacy("task_complete", last_agent_message="Hello"),
    ],
    "legacy_camel_case": [
        {"method": "agentMessageDelta", "params": {"delta": "Hello"}},
        {"method": "taskComplete", "params": {"lastAgentMessage": "Hello"}},
    ],
    "app_server": [
        started(),
        item("started", "reasoning", "rs_1"),
        notify("item/reasoning/summaryTextDelta", itemId="rs_1", delta="Looking.", summaryIndex=0),
        item("completed", "reasoning", "rs_1", summary=["Looking."], content=[]),
        item("started", "agentMessage", "msg_1", text=""),
        said("Hel", "msg_1"),
        said("lo", "msg_1"),
        item("completed", "agentMessage", "msg_1", text="Hello"),
        spent(counts(12, 7), counts(12, 7)),
        ended(),
    ],
    "app_server_command": [
        started(),
        item("started", "commandExecution", "call_a", command="ls", cwd="src", status="inProgress"),
        notify("item/commandExecution/outputDelta", itemId="call_a", delta="area.js\n"),
        item(
            "completed", "commandExecution", "call_a", command="ls", cwd="src", status="completed",
            aggregatedOutput="area.js\n", exitCode=0,
        ),
        said("One file."),
        ended(),
    ],
    "interrupted": [started(), said("Hel"), ended("interrupted")],
    "cut": [started(), said("Hel")],
}  # fmt: skip


@snapshots("replays/{replay}.txt", replay=REPLAYS)
def test_replays(snapshot: SnapshotAssertion, replay: str) -> None:
    stream, transcript = CheckedInbound(codex.Inbound, close=False), Transcript()
    sent = 0
    for frame in map(compact, REPLAYS[replay]):
        if replay == "over_the_cap" and len(frame) > CAP // 4:
            transcript.did(f"(a frame of {len(frame)} bytes)")
        else:
            transcript.received(frame)
        stream.feed(frame)
        if replay != "over_the_cap":
            transcript.sent(stream.events[sent:])
        sent = len(stream.events)
    stream.close()
    if replay != "over_the_cap":
        transcript.did("(the upstream's stream ends)")
        transcript.sent(stream.events[sent:])
    else:
        transcript.did(f"the response ends {stream.status}, {stream.error[0]}: {stream.error[1]}")
    transcript.notes(stream.inbound.diagnostics)
    assert str(transcript) == snapshot


@snapshots("replays/{replay}.sse", replay=[name for name in REPLAYS if name != "over_the_cap"])
def test_replays_as_chat_completions(snapshot: SnapshotAssertion, replay: str) -> None:
    stream = CheckedInbound(codex.Inbound, map(compact, REPLAYS[replay]), wire="openai")
    outbound = chat_completions.Outbound(text_after_tool_call="drop")
    chunks = [chunk for event in stream.events for chunk in outbound.feed(event)]
    data = chat_completions.encode([*chunks, *outbound.close()])
    decoder = SSEDecoder()
    again = CheckedInbound(
        chat_completions.Inbound, [frame.data for frame in decoder.feed(data) + decoder.close()]
    )
    expected = "" if replay == "tool_then_text" else stream.response.output_text
    assert again.response.output_text == expected
    assert data == snapshot
