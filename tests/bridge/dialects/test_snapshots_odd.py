"""Answers that upstreams send in odd ways: calls that share an index, calls whose name is one level off, and
events that are not known."""

import json
from typing import Any

from syrupy.assertion import SnapshotAssertion

from tests.support.calling import CALLING, SAID, with_functions
from tests.support.checked_inbound import CheckedInbound
from tests.support.snapshots import snapshots
from tests.support.transcripts import Transcript

FOLDERS = {
    "chat_completions": "chat",
    "anthropic_messages": "anthropic",
    "bedrock_converse": "bedrock",
    "copilot": "copilot",
    "interactions": "interactions",
    "responses": "responses",
}
NAMED = {"name": "find"}


def read(folder: str, given: list[Any]) -> tuple[CheckedInbound, str]:
    """Read these frames; return what was read, and its transcript."""
    stream, transcript, sent = CheckedInbound(CALLING[FOLDERS[folder]][0], close=False), Transcript(), 0
    for frame in given:
        data = frame if isinstance(frame, bytes) else json.dumps(frame, separators=(",", ":")).encode()
        transcript.received(data)
        stream.feed(data)
        transcript.sent(stream.events[sent:])
        sent = len(stream.events)
    stream.close()
    transcript.did("(the upstream's stream ends)")
    transcript.sent(stream.events[sent:])
    transcript.notes(stream.inbound.diagnostics)
    return stream, str(transcript)


def frames(folder: str) -> list[Any]:
    """A text, a call of `find` and one of `look`, streamed."""
    result: list[Any] = CALLING[FOLDERS[folder]][1](NAMED, False, "")
    return result


def names(read: CheckedInbound) -> list[str]:
    return [item["name"] for item in read.output if item["type"] == "function_call"]


def at_one_index(value: Any) -> Any:
    """The frame with all calls at the index of the first."""
    if isinstance(value, list):
        return [at_one_index(each) for each in value]
    if not isinstance(value, dict):
        return value
    changed = {field: at_one_index(each) for field, each in value.items()}
    if "function" in changed:
        changed["index"] = 0
    if changed.get("output_index") == 2:
        changed["output_index"] = 1
    return changed


def announced(frame: Any) -> list[Any]:
    """The frame, behind the event that begins its item if it ends a call of the Responses API."""
    item = frame.get("item", {}) if isinstance(frame, dict) else {}
    if item.get("type") != "function_call":
        return [frame]
    begun = {**item, "arguments": "", "status": "in_progress"}
    return [{**frame, "type": "response.output_item.added", "item": begun}, frame]


@snapshots("{folder}/odd/calls_share_an_index.txt", folder=("chat_completions", "responses"))
def test_calls_that_share_an_index(snapshot: SnapshotAssertion, folder: str) -> None:
    odd_frames = [at_one_index(json.loads(each) if is_json(each) else each) for each in frames(folder)]
    answer, transcript = read(folder, [frame for each in odd_frames for frame in announced(each)])
    assert (answer.status, names(answer)) == ("completed", ["find", "look"])
    assert transcript == snapshot


@snapshots("{folder}/odd/names_within_function.txt", folder=("anthropic_messages", "copilot", "responses"))
def test_names_that_are_one_level_too_deep(snapshot: SnapshotAssertion, folder: str) -> None:
    answer, transcript = read(folder, with_functions(frames(folder)))
    assert (answer.status, names(answer)) == ("completed", ["find", "look"])
    assert transcript == snapshot


@snapshots("{folder}/odd/names_beside.txt", folder=("responses",))
def test_names_that_are_one_level_too_high(snapshot: SnapshotAssertion, folder: str) -> None:
    """One beside its item, one beside its arguments."""
    start, text, find, look, end = frames(folder)
    item = find["item"]
    place = {"output_index": 1, "item_id": item["id"]}
    nameless = {name: value for name, value in item.items() if name != "name"}
    answer, transcript = read(
        folder,
        [
            start,
            text,
            {**find, "type": "response.output_item.added", "item": nameless | {"arguments": ""}},
            {
                "type": "response.function_call_arguments.done",
                **place,
                "arguments": item["arguments"],
                "name": "find",
            },
            {**find, "item": nameless},
            {**look, "item": {**look["item"], "name": ""}, "name": "look"},
            end,
        ],
    )
    assert (answer.status, names(answer)) == ("completed", ["find", "look"])
    assert transcript == snapshot


UNKNOWN: dict[str, list[dict[str, Any]]] = {
    "anthropic_messages": [{"type": "poem", "index": 0, "text": "x"}, {"type": "poem_ping", "index": 0}],
    "bedrock_converse": [{"poem": {"contentBlockIndex": 0, "text": "x"}}, {"poemPing": {"p": "ab"}}],
    "interactions": [
        {"event_type": "poem", "index": 0, "text": "x"},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "poem", "text": "x"}},
        {"event_type": "poem.ping", "event_id": "1"},
    ],
    "responses": [
        {"type": "response.poem", "output_index": 0, "item_id": "msg_1", "text": "x"},
        {"type": "response.poem.ping", "output_index": 0},
    ],
}


@snapshots("{folder}/odd/unknown_events.txt", folder=UNKNOWN)
def test_unknown_events(snapshot: SnapshotAssertion, folder: str) -> None:
    """Those that say something are losses, the others are ignored."""
    first, *rest = frames(folder)
    answer, transcript = read(folder, [first, *UNKNOWN[folder], *rest])
    assert (answer.status, answer.response.output_text) == ("completed", SAID)
    assert answer.inbound.diagnostics.of("loss")
    assert transcript == snapshot


def is_json(frame: Any) -> bool:
    return isinstance(frame, bytes) and frame.startswith(b"{")
