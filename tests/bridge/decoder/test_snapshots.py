"""Events to VS Code's parts and to the response that they add up to."""

from collections.abc import Iterable
from typing import Any

from syrupy.assertion import SnapshotAssertion

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.decoder import PartDecoder, ResponseAccumulator, encode_part
from openresponses_bridge.protocol.codec import event_from
from tests.support import scripts
from tests.support.machines import plain
from tests.support.model_scripts import SCRIPTS, played
from tests.support.snapshots import snapshots
from tests.support.transcripts import Transcript, line, short

Raw = dict[str, Any]


@snapshots("responses/{script}.json", script=SCRIPTS)
def test_responses(snapshot: SnapshotAssertion, script: str) -> None:
    """The response at the end of each script, which is also the answer that is not streamed."""
    run = played(SCRIPTS[script])
    if script == "cut":
        run("finish", "stop")
    accumulator = ResponseAccumulator()
    for event in run.events:
        accumulator.feed(event)
    assert plain(accumulator.response) == plain(run.machine.snapshot)
    assert accumulator.response == snapshot


def call(index: int) -> Raw:
    name = ("get_weather", "get_time")[index]
    return {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{index}", "name": name}


def begun(index: int, item: Raw) -> Raw:
    return {
        "type": "response.output_item.added",
        "output_index": index,
        "item": {**item, "status": "in_progress"},
    }


def ended(index: int, item: Raw) -> Raw:
    return {
        "type": "response.output_item.done",
        "output_index": index,
        "item": {**item, "status": "completed"},
    }


def within(index: int, kind: str, **fields: Any) -> Raw:
    return {"type": f"response.{kind}", "item_id": ITEM_IDS[index], "output_index": index, **fields}


ITEM_IDS = {0: "fc_0", 1: "fc_1", 2: "msg_2"}
ARGUMENTS = ('{"city":"Paris"}', '{"zone":"CET"}')
CALLS = [{**call(index), "arguments": ARGUMENTS[index]} for index in (0, 1)]
TEXT = "Let me check that..."
PART = {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}
MESSAGE = {"type": "message", "id": "msg_2", "role": "assistant", "content": [PART]}

# two calls at once: their arguments in turn
PARALLEL_CALLS = [
    begun(0, {**call(0), "arguments": ""}),
    begun(1, {**call(1), "arguments": ""}),
    within(0, "function_call_arguments.delta", delta=ARGUMENTS[0]),
    within(1, "function_call_arguments.delta", delta=ARGUMENTS[1]),
    within(0, "function_call_arguments.done", arguments=ARGUMENTS[0]),
    within(1, "function_call_arguments.done", arguments=ARGUMENTS[1]),
    ended(0, CALLS[0]),
    ended(1, CALLS[1]),
]


def text_and_call() -> list[Raw]:
    """A message that goes on while a call is under way."""
    message, item = {**MESSAGE, "id": "msg_0"}, {**CALLS[0], "id": "fc_1"}
    text = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    arguments = {"item_id": "fc_1", "output_index": 1}
    empty = {**PART, "text": ""}
    return [
        begun(0, {**message, "content": []}),
        {"type": "response.content_part.added", **text, "part": empty},
        {"type": "response.output_text.delta", **text, "delta": "Let me ", "logprobs": []},
        begun(1, {**item, "arguments": ""}),
        {"type": "response.output_text.delta", **text, "delta": "check that...", "logprobs": []},
        {"type": "response.function_call_arguments.delta", **arguments, "delta": ARGUMENTS[0]},
        {"type": "response.output_text.done", **text, "text": TEXT, "logprobs": []},
        {"type": "response.content_part.done", **text, "part": PART},
        {"type": "response.function_call_arguments.done", **arguments, "arguments": ARGUMENTS[0]},
        ended(0, message),
        ended(1, item),
    ]


# a server that leaves out what others send: each call still comes once, from what there is
DONE_ITEMS_ONLY = [begun(0, {**call(0), "arguments": ""}), ended(0, CALLS[0])]
INTERLEAVINGS: dict[str, list[Raw]] = {
    "parallel_calls": PARALLEL_CALLS,
    "text_and_call": text_and_call(),
    "done_items_only": DONE_ITEMS_ONLY,
    "completed_response_only": [],
}
# streams that leave events out on purpose, which the validator says
LEFT_OUT = frozenset({"done_items_only", "completed_response_only"})


def stream(name: str) -> list[Raw]:
    """The interleaving with the events around it."""
    events = INTERLEAVINGS[name]
    done = {each["output_index"]: each["item"] for each in events if each["type"].endswith("item.done")}
    output = [item for _, item in sorted(done.items())] or [{**CALLS[0], "status": "completed"}]
    head = scripts.Script().events
    tail = {
        "type": "response.completed",
        "response": {
            **scripts.RESPONSE,
            "status": "completed",
            "completed_at": 1_700_000_009,
            "output": output,
        },
    }
    return scripts.renumber([*head, *events, tail])


def violations(raw: Iterable[Raw]) -> list[str]:
    validator = StreamValidator("openresponses")
    messages = [str(each) for event in raw for each in validator.feed(event_from(event))]
    return messages + [str(each) for each in validator.close()]


@snapshots("parts/{name}.txt", name=INTERLEAVINGS)
def test_parts(snapshot: SnapshotAssertion, name: str) -> None:
    """Each event with the parts that it makes whole (RFC 00022, "Interleaving Scenarios")."""
    raw = stream(name)
    broken = violations(raw)
    assert bool(broken) is (name in LEFT_OUT)
    decoder, transcript = PartDecoder(), Transcript()
    for each in raw:
        event = event_from(each)
        transcript.did(f"< {short(event)}")
        for part in decoder.feed(event):
            transcript.did(f"> {line(encode_part(part))}")
    assert not decoder.close()
    for violation in broken:
        transcript.did(f"# the validator: {violation}")
    assert str(transcript) == snapshot
