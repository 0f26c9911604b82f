"""What a type checker sees of the public API. Nothing here is run: `mypy` reads it (`make check`, and
`test_public_api.py`)."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, assert_type

from openresponses_bridge import (
    BridgeError,
    CreateResponse,
    Diagnostic,
    Diagnostics,
    Event,
    Frame,
    HttpError,
    InvalidRequestError,
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
    LocalError,
    Part,
    PartDecoder,
    PartResult,
    RemoteError,
    Response,
    ResponseAccumulator,
    ResponseStream,
    ResponseStreamPhase,
    ResponseStreamStateMachine,
    SSEDecoder,
    StreamFilter,
    StreamResult,
    StreamStateError,
    StreamValidator,
    ToolCallAggregator,
    ToolCallBlock,
    ToolError,
    ToolIdentityMap,
    ToolKind,
    Usage,
    UsageTracker,
    Violation,
    WireError,
    decode_event,
    decode_request,
    encode_sse,
    process_stream,
)
from openresponses_bridge.calls.aggregator import AggregatedCall
from openresponses_bridge.dialects import (
    anthropic_messages,
    chat_completions,
    codex,
    copilot,
    responses,
    vscode,
)
from openresponses_bridge.dialects.base import Dialect, Inbound, Outbound
from openresponses_bridge.models.tokens import TokenEstimator
from openresponses_bridge.models.usage import AgentUsage
from openresponses_bridge.protocol.content import LogProb, UrlCitation
from openresponses_bridge.protocol.events import KnownEvent, OutputTextDelta, ResponseCompleted
from openresponses_bridge.protocol.items import FunctionCall, Item, Message
from openresponses_bridge.protocol.unknown import UnknownEvent, UnknownItem
from openresponses_bridge.seal import Sealer


def machine_calls_give_events(citation: UrlCitation, logprob: LogProb, item: Message, usage: Usage) -> None:
    machine = ResponseStreamStateMachine(model="m")
    assert_type(machine.start(), list[Event])
    assert_type(machine.text("a"), list[Event])
    assert_type(machine.text("a", logprobs=[logprob]), list[Event])
    assert_type(machine.text("a", [{"token": "a"}]), list[Event])
    assert_type(machine.annotation(citation), list[Event])
    assert_type(machine.annotation({"type": "url_citation"}), list[Event])
    assert_type(machine.refusal("a"), list[Event])
    assert_type(machine.reasoning("a"), list[Event])
    assert_type(machine.reasoning_summary("a", part=0), list[Event])
    assert_type(machine.reasoning_encrypted("a"), list[Event])
    assert_type(machine.part_done(), list[Event])
    assert_type(machine.block_done(), list[Event])
    assert_type(machine.tool_call(index=0, id=None, name="f", arguments="{}", type="function"), list[Event])
    assert_type(machine.tool_call_done(0), list[Event])
    assert_type(machine.item(item), list[Event])
    assert_type(machine.item({"type": "acme:x"}), list[Event])
    assert_type(machine.extension_event("acme:x", {"a": 1}), list[Event])
    assert_type(machine.usage(usage), list[Event])
    assert_type(machine.usage({"input_tokens": 1}), list[Event])
    assert_type(machine.defer_finish("stop"), list[Event])
    assert_type(machine.finish(), list[Event])
    assert_type(machine.finish("stop"), list[Event])
    assert_type(machine.fail(ValueError()), list[Event])
    assert_type(machine.fail("down"), list[Event])
    assert_type(machine.fail({"code": "c", "message": "m"}), list[Event])
    assert_type(machine.cancel(), list[Event])


def machine_says_where_it_stands(request: CreateResponse, identities: ToolIdentityMap) -> None:
    machine = ResponseStreamStateMachine(
        model="m",
        request=request,
        response_id="resp_1",
        ids=lambda prefix: prefix + "_1",
        clock=lambda: 0.0,
        tool_identities=identities,
        wire="openai",
    )
    assert_type(machine.phase, ResponseStreamPhase)
    assert_type(machine.wire, str)
    assert_type(machine.response_id, str)
    assert_type(machine.snapshot, Response)
    assert_type(machine.snapshot.output_text, str)
    assert_type(machine.snapshot.output, list[Item])
    assert_type(machine.snapshot.usage, Usage | None)


def what_it_must_refuse(machine: ResponseStreamStateMachine) -> None:
    machine.text(5)  # type: ignore[arg-type]
    machine.tool_call(index="0")  # type: ignore[arg-type]
    machine.tool_call_done()  # type: ignore[call-arg]
    machine.phase = ResponseStreamPhase.FAILED  # type: ignore[misc]
    machine.snapshot.status = "completed"  # type: ignore[misc]
    machine.txt("a")  # type: ignore[attr-defined]
    ResponseStreamStateMachine()  # type: ignore[call-arg]
    ResponseStreamStateMachine(None)  # type: ignore[arg-type]


def events_are_distinguished_by_type(event: Event) -> None:
    assert_type(event.type, str)
    assert_type(event.sequence_number, int)
    if isinstance(event, OutputTextDelta):
        assert_type(event.delta, str)
    elif isinstance(event, ResponseCompleted):
        assert_type(event.response, Response)
    elif isinstance(event, UnknownEvent):
        assert_type(event.raw, dict[str, Any])
    else:
        known: KnownEvent = event
        assert_type(known.sequence_number, int)


def items_are_distinguished_by_type(item: Item) -> None:
    if isinstance(item, FunctionCall):
        assert_type(item.arguments, str)
    if isinstance(item, UnknownItem):
        assert_type(item.status, str | None)


def bytes_in_and_out(data: bytes, events: list[Event]) -> None:
    assert_type(decode_event(data), Event)
    assert_type(decode_request(data), CreateResponse)
    assert_type(encode_sse(events), bytes)
    assert_type(SSEDecoder().feed(data), list[Frame])


def readers(event: Event, raw: Mapping[str, Any]) -> None:
    decoder = PartDecoder(thinking="part", call_id_prefix="gw-")
    assert_type(decoder.feed(event), list[Part])
    assert_type(decoder.feed(raw), list[Part])
    assert_type(decoder.close(), list[Part])
    assert_type(decoder.result.usage, Usage | None)
    accumulator = ResponseAccumulator()
    accumulator.feed(event)
    accumulator.feed(raw)
    assert_type(accumulator.response, Response | None)
    validator = StreamValidator("openresponses")
    assert_type(validator.feed(event), list[Violation])
    assert_type(validator.feed(raw), list[Violation])
    assert_type(validator.close(), list[Violation])
    decoder.feed(b"{}")  # type: ignore[arg-type]
    accumulator.feed([raw])  # type: ignore[arg-type]
    validator.feed(None)  # type: ignore[arg-type]
    PartDecoder(thinking="aloud")  # type: ignore[arg-type]
    StreamValidator("other")  # type: ignore[arg-type]


def dialects(machine: ResponseStreamStateMachine, response: Response, sealer: Sealer) -> None:
    inbounds: list[Inbound] = [
        anthropic_messages.Inbound(machine, sealer),
        chat_completions.Inbound(machine, options=chat_completions.ChatOptions(think="off")),
        codex.Inbound(machine),
        copilot.Inbound(machine),
        responses.Inbound(machine, adopt=True),
        vscode.Inbound(machine),
    ]
    assert_type(inbounds[0].feed(b"", "message_start"), list[Event])
    outbounds: list[Outbound[Any]] = [
        anthropic_messages.Outbound(sealer),
        chat_completions.Outbound(include_usage=True),
        copilot.Outbound(),
        responses.Outbound("openai"),
        vscode.Outbound(thinking="drop"),
    ]
    assert_type(outbounds[0].close(), list[Any])
    assert_type(vscode.DIALECT, Dialect)
    vscode.Outbound(thinking="aloud")  # type: ignore[arg-type]
    vscode.Outbound(loud=True)  # type: ignore[call-arg]
    chat_completions.completion(response, reasoning_field="reasoning")
    chat_completions.completion(response, reasoning_field="aloud")  # type: ignore[arg-type]
    chat_completions.Choices(2, id="c", created=0, choice=1)  # type: ignore[call-arg]


def identities() -> None:
    declared = ToolIdentityMap()
    identity = declared.declare(ToolKind.CUSTOM, "patch", namespace=None)
    assert_type(identity.upstream_name, str)
    declared.declare("custom", "patch")  # type: ignore[arg-type]


def errors(error: BridgeError) -> None:
    assert_type(error.code, str)
    assert_type(error.param, str | None)
    assert_type(error.context, dict[str, Any])
    local: list[LocalError] = [StreamStateError("c", "m"), ToolError("c", "m")]
    remote: list[RemoteError] = [
        InvalidRequestError("c", "m"),
        WireError("c", "m"),
        HttpError(429, "m", headers={"retry-after": "5"}),
    ]
    every: list[BridgeError] = [*local, *remote]
    assert_type(every, list[BridgeError])


def tracking(usage: Usage) -> None:
    aggregator = ToolCallAggregator(max_argument_bytes=1_000)
    assert_type(aggregator.drain_completed_calls(), list[AggregatedCall])
    tracker = UsageTracker()
    assert_type(tracker.complete_request("agent", usage, "m"), AgentUsage)
    assert_type(tracker.fail_request("agent", "m"), AgentUsage)
    assert_type(TokenEstimator().text("a", "m"), int)


def parts_are_distinguished(part: Part, result: PartResult, notes: Diagnostics) -> None:
    if isinstance(part, LanguageModelToolCallPart):
        assert_type(part.call_id, str)
        assert_type(part.input, dict[str, Any])
    elif isinstance(part, LanguageModelTextPart):
        assert_type(part.value, str)
    elif isinstance(part, LanguageModelDataPart):
        assert_type(part.data, bytes)
    else:
        assert_type(
            part, LanguageModelThinkingPart | LanguageModelToolResultPart | LanguageModelPromptTsxPart
        )
    assert_type(result.diagnostics, Diagnostics)
    for note in notes:
        assert_type(note, Diagnostic)


class Quiet(StreamFilter):
    def reasoning(self, delta: str) -> list[Event]:
        return []


def what_stands_before_a_machine(machine: ResponseStreamStateMachine) -> None:
    stream: ResponseStream = Quiet(machine)
    assert_type(stream.text("a"), list[Event])


def a_call_as_it_grows(block: ToolCallBlock) -> None:
    assert_type(block.name, str)
    assert_type(block.index, int)


async def a_stream_is_shown(events: AsyncIterator[Event], shown: "Shown") -> None:
    result = await process_stream(events, shown, asyncio.Event())
    assert_type(result, StreamResult)
    assert_type(result.stateful_marker, str | None)


class Shown:
    def report(self, part: Part, /) -> None:
        assert_type(part, Part)
