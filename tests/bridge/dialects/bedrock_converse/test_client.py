"""Events → what a client of Converse gets: its blocks one after another, its reasoning, its end; read back by
botocore and by our own upstream's half, however the bytes are cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import responses
from openresponses_bridge.dialects.base import envelope_in
from openresponses_bridge.dialects.bedrock_converse import (
    EventStreamDecoder,
    Inbound,
    Outbound,
    answer,
    encode_events,
    encode_sse,
    from_converse,
)
from openresponses_bridge.dialects.bedrock_converse.client import outbound as sent
from openresponses_bridge.dialects.bedrock_converse.client.message import Folding
from openresponses_bridge.dialects.bedrock_converse.client.surface import SURFACE
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.seal import Sealer
from openresponses_bridge.sse import SSEDecoder
from openresponses_bridge.testing import RandomStream, streams
from tests.support.converse import pieces_of
from tests.support.machines import machine
from tests.support.scale import FACTOR
from tests.support.strict_converse import service_model

Json = dict[str, Any]
SEALER = Sealer(bytes(32))


def unsealed(value: Any) -> Any:
    """The blocks with one word for each envelope, of which no two are the same."""
    if isinstance(value, dict):
        return {name: unsealed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [unsealed(each) for each in value]
    return "sealed" if isinstance(value, str) and envelope_in(value) else value


class Sent:
    """A response as it is made, and what its client gets."""

    def __init__(self) -> None:
        self.machine = ResponseStreamStateMachine("m", wire="openai")
        self.outbound = Outbound(SEALER)
        self.events: list[Json] = []
        self._feed(self.machine.start())

    def __call__(self, verb: str, *args: Any, **options: Any) -> None:
        self._feed(getattr(self.machine, verb)(*args, **options))

    def _feed(self, events: list[Event]) -> None:
        self.events += [chunk for event in events for chunk in self.outbound.feed(event)]

    def end(self, reason: str = "stop") -> list[Json]:
        self("finish", reason)
        self.events += self.outbound.close()
        return self.content

    @property
    def content(self) -> list[Json]:
        """The blocks of the whole answer, which are those that the stream adds up to."""
        folding = Folding(Diagnostics())
        folding.feed(self.events)
        whole = answer(self.machine.snapshot, SEALER)
        assert whole is not None
        blocks: list[Json] = whole["output"]["message"]["content"]
        assert unsealed(folding.answer["output"]["message"]["content"]) == unsealed(blocks)
        return blocks

    @property
    def lost(self) -> list[str]:
        return [case.where for case in self.outbound.diagnostics.of("loss")]


def test_blocks_come_one_after_another() -> None:
    run = Sent()
    run("tool_call", 0, "a", "f", '{"x"')
    run("tool_call", 1, "b", "g", '{"y"')
    run("tool_call", 0, None, None, ":1}")
    run("tool_call", 1, None, None, ":2}")
    content = run.end("tool_calls")
    assert [block["toolUse"]["input"] for block in content] == [{"x": 1}, {"y": 2}]
    indexes = [
        next(iter(event.values()))["contentBlockIndex"]
        for event in run.events
        if "contentBlockIndex" in next(iter(event.values()))
    ]
    assert indexes == sorted(indexes)
    assert run.events[-2] == {"messageStop": {"stopReason": "tool_use"}}


def test_paragraphs_of_a_summary_stay_apart() -> None:
    run = Sent()
    run("reasoning_summary", "First.", 0)
    run("reasoning_summary", "Second.", 1)
    run("text", "So.")
    thought, text = run.end()
    assert thought == {"reasoningContent": {"reasoningText": {"text": "First.\n\nSecond."}}}
    assert text == {"text": "So."}


@pytest.mark.parametrize("shown", ["", "Hm."])
def test_another_upstreams_reasoning_is_sealed(shown: str) -> None:
    run = Sent()
    if shown:
        run("reasoning_summary", shown)
    run("reasoning_encrypted", "opaque")
    run("text", "So.")
    content = run.end()
    kind = "reasoningText" if shown else "redactedContent"
    assert [*content[0]["reasoningContent"]] == [kind]
    turns = [{"role": "assistant", "content": content}, {"role": "user", "content": [{"text": "a"}]}]
    request, losses = from_converse({"messages": turns}, SEALER)
    item: Any = (request.input or [])[0]
    assert item.encrypted_content == "opaque"
    assert [part.text for part in item.summary] == ([shown] if shown else [])
    assert list(losses) == []
    stranger, lost = from_converse({"messages": turns}, Sealer(bytes(range(32))))
    assert [each.where for each in lost.of("loss")] == ["messages[0].content[0].reasoningContent"]
    assert len(stranger.input or ()) == 2


def test_what_is_sealed_behind_the_text_is_not_the_answer() -> None:
    run = Sent()
    run("text", "So.")
    run("reasoning_encrypted", "opaque")
    assert run.end() == [{"text": "So."}]
    assert run.lost == ["item.reasoning"]
    alone = Sent()
    alone("reasoning_encrypted", "opaque")
    assert [*alone.end()[0]] == ["reasoningContent"]


def test_a_citation_belongs_to_its_block() -> None:
    run = Sent()
    run("text", "Cited.")
    run("annotation", UrlCitation("https://a.example", 0, 6, "A"))
    run("text", " Not cited.")
    cited, rest = run.end()
    page = {"title": "A", "location": {"web": {"url": "https://a.example"}}}
    assert cited == {"citationsContent": {"content": [{"text": "Cited."}], "citations": [page]}}
    assert rest == {"text": " Not cited."}
    assert run.lost == []
    turns = [{"role": "assistant", "content": [cited]}]
    request, _ = from_converse({"messages": turns}, SEALER)
    (part,) = request.input[0].content  # type: ignore[index, union-attr]
    assert part.annotations == [UrlCitation("https://a.example", 0, 6, "A")]


@pytest.mark.parametrize(
    ("made", "reason", "stop"),
    [
        ([("text", "a")], "stop", "end_turn"),
        ([("text", "a")], "length", "max_tokens"),
        ([("text", "a")], "content_filter", "content_filtered"),
        ([("text", "a")], "who knows", "max_tokens"),
        ([("refusal", "No.")], "stop", "content_filtered"),
        ([("text", "a"), ("tool_call", 0, "a", "f", "{}")], "tool_calls", "tool_use"),
    ],
)
def test_how_it_ends(made: list[Any], reason: str, stop: str) -> None:
    run = Sent()
    for verb, *facts in made:
        run(verb, *facts)
    run.end(reason)
    assert run.events[-2]["messageStop"]["stopReason"] == stop
    assert run.events[-1]["metadata"]["usage"] == {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}


def test_a_stop_sequence_is_among_the_models_own_fields() -> None:
    run = Sent()
    run("text", "a")
    run("stop_sequence", "END")
    run.end()
    assert run.events[-2]["messageStop"] == {
        "stopReason": "stop_sequence",
        "additionalModelResponseFields": {"stop_sequence": "END"},
    }


def test_cached_tokens_are_counted_beside_the_input() -> None:
    run = Sent()
    run("text", "a")
    details = {"cached_tokens": 4}
    run("usage", {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": details})
    run.end()
    usage = run.events[-1]["metadata"]["usage"]
    assert (usage["inputTokens"], usage["cacheReadInputTokens"], usage["totalTokens"]) == (5, 4, 11)


@pytest.mark.parametrize("ended", ["fail", "cancel", "nothing"])
def test_an_answer_without_an_end_of_its_own_is_an_exception(ended: str) -> None:
    run = Sent()
    run("text", "a")
    run("usage", {"input_tokens": 9, "output_tokens": 2})
    if ended != "nothing":
        run(ended, *(["down"] if ended == "fail" else []))
    run.events += run.outbound.close()
    kinds = [next(iter(event)) for event in run.events]
    assert kinds[-1] == "modelStreamErrorException"
    assert ("metadata" in kinds) is (ended != "nothing")
    if ended != "nothing":
        assert answer(run.machine.snapshot, SEALER) is None


def test_a_call_that_was_cut_is_left_out_of_a_whole_answer() -> None:
    run = Sent()
    run("tool_call", 0, "a", "f", '{"x"')
    run("finish", "length")
    diagnostics = Diagnostics()
    whole = answer(run.machine.snapshot, SEALER, diagnostics=diagnostics)
    assert whole is not None
    assert (whole["output"]["message"]["content"], whole["stopReason"]) == ([], "max_tokens")
    assert [case.where for case in diagnostics.of("loss")] == ["item.function_call"]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "bedrock:toolUse", "id": "a", "status": "completed", "block": {"toolUse": 7}},
        {"type": "bedrock:x", "id": "a", "status": "completed", "block": {"x": ["y"]}},
        {"type": "bedrock:x", "id": "a", "status": "completed", "block": {}},
        {"type": "bedrock:x", "id": "a", "status": "completed"},
        {"type": "web_search_call", "id": "ws_a", "status": "completed"},
    ],
)
def test_an_item_that_is_no_block_is_lost(item: Json) -> None:
    """Any upstream may say that an item is of Bedrock."""
    run = Sent()
    run("item", item)
    run("text", "a")
    assert run.end() == [{"text": "a"}]
    assert run.lost == [f"item.{item['type']}"]


@pytest.mark.parametrize(
    "block",
    [
        {"toolUse": {"toolUseId": 7, "input": [1]}},
        {"toolResult": {"content": "a"}},
        {"toolResult": {"content": [7]}},
        {"image": {"source": 7}},
        {"of_tomorrow": {"a": {"b": None}}},
    ],
)
def test_any_block_of_an_upstream_arrives_as_it_is(block: Json) -> None:
    run = Sent()
    run("item", {"type": f"bedrock:{next(iter(block))}", "id": "a", "status": "completed", "block": block})
    kind, fields = next(iter(block.items()))
    (content,) = run.end()
    if kind == "toolUse":
        assert content[kind]["toolUseId"] == 7
    else:
        assert content == {kind: fields}


def test_a_text_that_is_too_long_for_one_event_is_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent, "_LONGEST_PAYLOAD", 100)
    long = "é" * 300
    for delta in ({"text": long}, {"toolUse": {"input": long}}, {"reasoningContent": {"text": long}}):
        event = {"contentBlockDelta": {"delta": delta, "contentBlockIndex": 3}}
        messages = EventStreamDecoder().feed(encode_events([event]))
        assert len(messages) > 3
        assert all(len(message.payload) <= 200 for message in messages)
        folding = Folding(Diagnostics())
        folding.feed({"contentBlockDelta": decode_json(each.payload)} for each in messages)
        assert long in str(folding.answer)
    redacted = {"delta": {"reasoningContent": {"redactedContent": "A" * 400}}, "contentBlockIndex": 0}
    assert len(EventStreamDecoder().feed(encode_events([{"contentBlockDelta": redacted}]))) == 1


# ── what is written is read ────────────────────────────────────────────────────────────────────────────
def events_of(stream: RandomStream) -> tuple[ResponseStreamStateMachine, list[Event]]:
    state_machine = machine("openai")
    inbound = responses.Inbound(state_machine)
    frames = (decoder := SSEDecoder()).feed(stream.body) + decoder.close()
    return state_machine, [event for frame in frames for event in inbound.feed(frame.data)] + inbound.close()


@given(streams(), st.integers(0, 1000))
@settings(max_examples=60 * FACTOR, deadline=None)
def test_botocore_reads_what_is_written(stream: RandomStream, seed: int) -> None:
    """In any pieces, with keep-alives between: each event is one that its description has."""
    eventstream = pytest.importorskip("botocore.eventstream")
    from botocore.parsers import EventStreamJSONParser

    shape = service_model().operation_model("ConverseStream").output_shape.members["stream"]
    outbound, buffer = Outbound(SEALER), eventstream.EventStreamBuffer()
    _, events = events_of(stream)
    chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
    data = b"".join(encode_events([chunk]) + SURFACE.keep_alive for chunk in chunks)
    messages = []
    for piece in pieces_of(data, seed):
        buffer.add_data(piece)
        messages += list(buffer)
    parsed = [EventStreamJSONParser().parse(each.to_response_dict(), shape) for each in messages]
    kinds = [next(iter(chunk)) for chunk in chunks]
    if not kinds[-1].endswith("Exception"):
        assert [next(iter(each)) for each in parsed if each] == kinds
    assert len(messages) == 2 * len(chunks)


LOGPROB: Any = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}
STEPS: dict[str, list[tuple[str, Any]]] = {
    "text behind a citation": [("text", ("ab",)), ("annotation", (0, 2)), ("text", ("cd",))],
    "text with tokens behind a citation": [
        ("text", ("ab",)),
        ("annotation", (0, 2)),
        ("text", ("x", [LOGPROB])),
    ],
    "each text with tokens and a citation": [
        ("text", ("x", [LOGPROB])),
        ("annotation", (0, 1)),
        ("text", ("x", [LOGPROB])),
        ("annotation", (1, 2)),
    ],
    "raw behind two summaries": [
        ("reasoning_summary", ("A", 0)),
        ("reasoning_summary", ("B", 1)),
        ("reasoning", ("raw",)),
    ],
    "raw between two summaries": [
        ("reasoning_summary", ("A", 0)),
        ("reasoning", ("raw",)),
        ("reasoning_summary", ("B", 1)),
    ],
    "raw before two summaries": [
        ("reasoning", ("raw",)),
        ("reasoning_summary", ("A", 0)),
        ("reasoning_summary", ("B", 1)),
    ],
}


@pytest.mark.parametrize("name", STEPS)
def test_a_stream_adds_up_to_the_whole_answer(name: str) -> None:
    state_machine, outbound, folding = machine("openai"), Outbound(SEALER), Folding(Diagnostics())
    events = state_machine.start()
    for call, arguments in STEPS[name]:
        if call == "annotation":
            start, end = arguments
            arguments = ({"type": "url_citation", "url": "https://a.example/", "title": "A"},)
            arguments[0].update(start_index=start, end_index=end)
        events += getattr(state_machine, call)(*arguments)
    for event in events + state_machine.finish("stop"):
        folding.feed(outbound.feed(event))
    whole = answer(state_machine.in_one_form, SEALER)
    assert whole is not None
    assert unsealed(folding.answer["output"]) == unsealed(whole["output"])


@given(streams())
@settings(max_examples=60 * FACTOR, deadline=None)
def test_our_own_half_reads_what_is_written(stream: RandomStream) -> None:
    """As messages and as in a capture: the same texts and calls."""
    state_machine, events = events_of(stream)
    outbound, again = Outbound(SEALER), ResponseStreamStateMachine("m", wire="openai")
    chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
    frames = (decoder := SSEDecoder()).feed(encode_sse(chunks)) + decoder.close()
    inbound = Inbound(again, SEALER)
    for frame in frames:
        inbound.feed(frame.data, frame.event)
    inbound.close()
    text = "".join(
        getattr(part, "text", "") or getattr(part, "refusal", "")
        for item in state_machine.snapshot.output
        for part in getattr(item, "content", None) or ()
        if item.type == "message"
    )
    assert again.snapshot.output_text == text
    whole = answer(state_machine.in_one_form, SEALER)
    if whole is not None:
        # a refusal is said as text there, and ends as what a filter has cut
        filtered = whole["stopReason"] == "content_filtered"
        assert again.snapshot.status == ("incomplete" if filtered else state_machine.snapshot.status)
        folding = Folding(Diagnostics())
        folding.feed(chunks)
        # a stream has sent what is before a citation already, and says that its place is lost
        placed = "annotation.range" not in [case.where for case in outbound.diagnostics]
        if state_machine.snapshot.status == "completed" and placed:
            assert unsealed(folding.answer["output"]) == unsealed(whole["output"])
