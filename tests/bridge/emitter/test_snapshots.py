"""What leaves the machine: whole streams as their bytes, and each method's events, on both wires."""

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.corpus import case
from openresponses_bridge.corpus.scripts import SCRIPTS
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import decode_response, encode, encode_sse
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.sse import DONE
from openresponses_bridge.state import LIFECYCLE_METHODS, OUTPUT_METHODS
from tests.support.machines import WIRES, Run, machine
from tests.support.model_scripts import played
from tests.support.snapshots import snapshots
from tests.support.transcripts import Transcript

Call = tuple[Any, ...]
CITATION = {
    "type": "url_citation", "url": "https://a.example/", "title": "A", "start_index": 0, "end_index": 2,
}  # fmt: skip
LOGPROB = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
MESSAGE = {
    "type": "message", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
}  # fmt: skip
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
IDENTITIES = ToolIdentityMap()
for kind, name in (
    (ToolKind.CUSTOM, "sql"), (ToolKind.SHELL, "shell"), (ToolKind.LOCAL_SHELL, "local_shell"),
    (ToolKind.APPLY_PATCH, "apply_patch"), (ToolKind.FUNCTION, "my.tool"),
):  # fmt: skip
    IDENTITIES.declare(kind, name)
RENAMED = next(each.upstream_name for each in IDENTITIES if each.name == "my.tool")


def call(index: int, id: str, name: str, *pieces: str) -> list[Call]:
    return [("tool_call", index, id, name), *[("tool_call", index, None, None, piece) for piece in pieces]]


# the method that a file is about → the calls that show it
METHODS: dict[str, list[Call]] = {
    "text": [("text", "Hi", [LOGPROB]), ("text", ""), ("text", "\ud83d"), ("text", "\ude42"), ("finish",)],
    "annotation": [("text", "Hi"), ("annotation", CITATION), ("finish",)],
    "refusal": [("text", "Well, "), ("refusal", "no"), ("refusal", "."), ("finish",)],
    "reasoning": [("reasoning", "Hm"), ("reasoning", "m."), ("text", "So."), ("finish",)],
    "reasoning_summary": [
        ("reasoning_summary", "First."), ("reasoning_summary", "Sec", 1), ("reasoning_summary", "ond.", 1),
        ("finish",),
    ],
    "reasoning_encrypted": [("reasoning", "Hm."), ("reasoning_encrypted", "b3BhcXVl"), ("finish",)],
    "part_done": [("text", "one"), ("part_done",), ("text", "two"), ("finish",)],
    "block_done": [("text", "one"), ("block_done",), ("text", "two"), ("finish",)],
    "expect_item": [("expect_item", "msg_upstream", "final_answer"), ("text", "Hi"), ("finish",)],
    "tool_call": [
        *call(0, "call_a", "find", '{"q":', '"x"}'),
        ("tool_call", 1, "call_b", None, '{"late":'),
        ("tool_call", 1, None, "named", "true}"),
        ("tool_call", 2, "call_c", "empty"),
        ("finish", "tool_calls"),
    ],
    "tool_call_done": [
        *call(0, "call_a", "find", '{"q":1}'), ("tool_call_done", 0), ("text", "After it."), ("finish",),
    ],
    "end_nameless": [
        *call(0, "call_a", "find", '{"q":1}'), ("tool_call", 1, "call_b", None, "{}"), ("end_nameless",),
        ("finish",),
    ],
    "tool_call_cut": [*call(0, "call_a", "find", '{"q":'), ("finish", "stop")],
    "tool_call_malformed": [*call(0, "call_a", "find", '{"q":}'), ("finish", "tool_calls")],
    "tool_call_kinds": [
        *call(0, "call_a", "sql", '{"input":"sel', 'ect 1"}'),
        *call(1, "call_b", "shell", '{"commands":["ls"]}'),
        *call(2, "call_c", "local_shell", '{"command":["ls","-l"]}'),
        *call(3, "call_d", "apply_patch", '{"type":"delete_file","path":"old.txt"}'),
        *call(4, "call_e", RENAMED, "{}"),
        ("finish", "tool_calls"),
    ],
    "item": [
        ("item", MESSAGE),
        ("item", {"type": "function_call", "call_id": "call_a", "name": "find", "arguments": '{"q":1}'}),
        ("item", {"type": "acme:note", "text": "hello"}),
        ("finish",),
    ],
    "item_added": [("item_added", SEARCH), ("item", {**SEARCH, "status": "completed"}), ("finish",)],
    "item_event": [
        ("item_added", SEARCH),
        ("item_event", "ws_1", "response.web_search_call.searching", {}),
        ("item", {**SEARCH, "status": "completed"}),
        ("finish",),
    ],
    "item_extra": [("text", "Hi"), ("item_extra", {"new": 1}), ("block_done",), ("finish",)],
    "part_extra": [("text", "Hi"), ("part_extra", {"new": 1}), ("part_done",), ("finish",)],
    "extension_event": [("extension_event", "acme:beat", {"value": 1}), ("finish",)],
    "stop_sequence": [("text", "Hello "), ("stop_sequence", "END"), ("finish", "stop_sequence")],
    "usage": [
        ("usage", {"input_tokens": 12, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 3}}),
        ("finish",),
    ],
    "defer_finish": [("text", "Hi"), ("defer_finish", "length"), ("finish",)],
    "finish": [("text", "Hi"), *call(0, "call_a", "find", "{}"), ("finish", "tool_calls")],
    "fail": [("text", "Hi"), *call(0, "call_a", "find", '{"q"'), ("fail", "the model is down")],
    "cancel": [("text", "Hi"), *call(0, "call_a", "find", '{"q"'), ("cancel",)],
}  # fmt: skip


@snapshots("streams/{wire}/{script}.sse", wire=WIRES, script=SCRIPTS)
@pytest.mark.untraced
def test_streams(snapshot: SnapshotAssertion, wire: str, script: str) -> None:
    """The streams of the corpus."""
    run = played(SCRIPTS[script].steps, wire)
    if script == "cut":
        run("finish", "stop")
    assert not run.validator.close()
    sent = encode_sse(run.events)
    assert case(f"{wire}/{script}").body == sent + DONE
    assert sent == snapshot


@snapshots("methods/{wire}/{method}.txt", wire=WIRES, method=METHODS)
@pytest.mark.untraced
def test_methods(snapshot: SnapshotAssertion, wire: str, method: str) -> None:
    run = Run(wire, identities=IDENTITIES, started=False)
    transcript = Transcript()
    for name, *arguments in [("start",), *METHODS[method]]:
        transcript.did(f"{name}({', '.join(map(repr, arguments))})")
        transcript.sent(run(name, *arguments))
    transcript.notes(run.machine.diagnostics)
    assert not run.validator.close()
    assert str(transcript) == snapshot


@snapshots("methods/{wire}/adopt.txt", wire=WIRES)
def test_adopt(snapshot: SnapshotAssertion, wire: str) -> None:
    """An upstream's response is taken on with its id, its model and what it echoes."""
    request = CreateResponse(model="theirs", instructions="Be brief.", temperature=0.5)
    upstream = machine(wire, request)
    run, transcript = Run(wire, started=False), Transcript()
    transcript.did("adopt(response of another machine)")
    run("adopt", upstream.snapshot)
    for name, *arguments in [("start",), ("text", "Hi"), ("finish",)]:
        transcript.did(f"{name}({', '.join(map(repr, arguments))})")
        transcript.sent(run(name, *arguments))
    assert not run.validator.close()
    assert str(transcript) == snapshot


@snapshots("methods/{wire}/report.txt", wire=WIRES)
def test_report(snapshot: SnapshotAssertion, wire: str) -> None:
    """What an upstream's response says of itself is in the events after it."""
    fields = {"model": "m-2026", "service_tier": "flex", "reasoning": {"effort": "low", "mode": "pro"}}
    begun = decode_response(encode(fields | {"conversation": {"id": "conv_1"}}))
    ended = decode_response(encode(fields | {"moderation": [], "usage": {"input_tokens": 1, "images": 2}}))
    run, transcript = Run(wire, started=False), Transcript()
    for name, *arguments in [
        ("report", begun), ("start",), ("text", "Hi"), ("usage", ended.usage), ("report", ended), ("finish",),
    ]:  # fmt: skip
        transcript.did(name)
        transcript.sent(run(name, *arguments))
    transcript.notes(run.machine.diagnostics)
    assert not run.validator.close()
    assert str(transcript) == snapshot


@snapshots("methods/{wire}/native.txt", wire=WIRES)
def test_native(snapshot: SnapshotAssertion, wire: str) -> None:
    """What only clients of the upstream's API know is in the events after it, too."""
    run, transcript = Run(wire, started=False), Transcript()
    for name, *arguments in [
        ("native", "anthropic", {"usage": {"speed": "fast"}, "diagnostics": {}}), ("start",), ("text", "Hi"),
        ("native", "anthropic", {"usage": {"inference_geo": "eu"}, "api_key": "k"}), ("finish",),
    ]:  # fmt: skip
        transcript.did(name)
        transcript.sent(run(name, *arguments))
    assert not run.validator.close()
    assert str(transcript) == snapshot


def test_every_method_is_shown() -> None:
    alone = {"start", "adopt", "report", "report_names", "native"}
    shown = {name for calls in METHODS.values() for name, *_ in calls} | alone
    assert shown == OUTPUT_METHODS | LIFECYCLE_METHODS


# where the machine stands → calls that it refuses there
WRONG: dict[str, list[Call]] = {
    "before the start": [("text", "a"), ("finish",)],
    "in progress": [
        ("start",), ("text", 5), ("tool_call_done", 9), ("annotation", {}), ("item", {}),
        ("extension_event", "plain", {}), ("finish", 5),
    ],
    "with a call that has no name": [("tool_call_done", 0), ("finish",)],
    "after the end": [
        ("text", "a"), ("tool_call", 0, "call_b", "find"), ("finish",), ("fail", "x"), ("cancel",),
    ],
}  # fmt: skip
REACH: dict[str, list[Call]] = {
    "before the start": [],
    "in progress": [("start",)],
    "with a call that has no name": [("tool_call", 0, "call_a", None, "{}")],
    "after the end": [("tool_call", 0, None, "find"), ("finish",)],
}


@snapshots("wrong_calls.txt")
def test_wrong_calls(snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    """A call in the wrong phase says so and changes nothing (law E9)."""
    run, transcript = Run(started=False), Transcript()
    for place, calls in WRONG.items():
        for call in REACH[place]:
            run(*call)
        transcript.did(f"{place}:")
        for name, *arguments in calls:
            with pytest.raises(BridgeError) as caught:
                run(name, *arguments)
            invocation = f"{name}({', '.join(map(repr, arguments))})"
            transcript.did(f"  {invocation} raises {caught.value.code}: {caught.value.message}")
    assert str(transcript) == snapshot
