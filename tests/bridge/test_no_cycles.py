"""A translation leaves no reference cycles: the cyclic garbage collector rarely runs under load, and a single
cycle can keep a whole response in memory until it does."""

import gc
import json
from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge import PartDecoder, Usage
from openresponses_bridge.backend import (
    Finish,
    Reasoning,
    ReasoningSummary,
    Refusal,
    ToolCall,
    ToolCallDelta,
    UrlCitation,
    reply,
)
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.decoder.accumulator import ResponseAccumulator
from openresponses_bridge.dialects.base import AnswerContext, Dialect, Inbound, RequestContext, RequestHead
from openresponses_bridge.dialects.table import TABLE, dialects
from openresponses_bridge.dialects.vscode import from_vscode, to_vscode
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.seal import Sealer
from tests.support.cyclic_garbage import garbage
from tests.support.loops import Answer, driven
from tests.support.model_frames import frames
from tests.support.model_scripts import SCRIPTS, Step

ENTRIES = list(dialects().values())
UPSTREAMS = [entry for entry in ENTRIES if entry.upstream is not None]
CLIENTS = [entry for entry in ENTRIES if entry.client is not None]
TAGGED = [entry for entry in UPSTREAMS if entry.upstream and hasattr(entry.upstream.options(), "think")]
BOTH = [entry for entry in UPSTREAMS if entry.client is not None and entry.surface is not None]
CALLED: list[Step] = [*SCRIPTS["reasoning"][:-1], *SCRIPTS["citation"][:-1], *SCRIPTS["one_tool"]]
ANSWERS = {"whole": CALLED, **{name: SCRIPTS[name] for name in ("refusal", "incomplete", "fail", "cut")}}
FRAMES = {
    entry.name: {name: frames(line.package, steps) for name, steps in ANSWERS.items()}
    for line, entry in zip(TABLE, ENTRIES, strict=True)
}
FUNCTION = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
REQUEST = encode(
    {
        "model": "m",
        "instructions": "Be brief.",
        "tools": [FUNCTION],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
            {"type": "function_call", "call_id": "call_a", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_a", "output": "Rain."},
            {
                "role": "user",
                "content": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}],
            },
        ],
    }
)


def left_by(work: Callable[[], object]) -> set[str]:
    """The names of the package's classes whose instances `work` leaves in cycles."""
    work()  # what is kept for the next time is made now
    with garbage() as left:
        work()
    return {name.rpartition(".")[2] for name in left if name.startswith("openresponses_bridge.")}


def name_of(entry: Dialect) -> str:
    return entry.name


def machine() -> ResponseStreamStateMachine:
    return ResponseStreamStateMachine("m", wire="openai")


def answer_context(entry: Dialect, **options: Any) -> AnswerContext:
    assert entry.upstream is not None
    return AnswerContext(entry.upstream.options(**options), Sealer(), ToolIdentityMap())


def read(inbound: Inbound, sent: list[bytes]) -> list[Event]:
    events = [event for frame in sent for event in inbound.feed(frame)]
    return events + inbound.read_done() + inbound.close()


def answered(name: str = "whole") -> list[Event]:
    """An answer as events."""
    return read(dialects()["chat"].capture.inbound(machine()), FRAMES["chat"][name])


def test_a_cycle_is_found() -> None:
    def made() -> None:
        decoder = PartDecoder()
        decoder.feed = decoder.feed  # type: ignore[method-assign]

    assert "PartDecoder" in left_by(made)
    assert gc.garbage == []


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_of_a_capture(entry: Dialect, answer: str) -> None:
    sent = FRAMES[entry.name][answer]
    assert left_by(lambda: read(entry.capture.inbound(machine()), sent)) == set()
    assert left_by(lambda: read(entry.capture.inbound(machine()), [*sent[:2], b"{", *sent[2:]])) == set()


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("entry", UPSTREAMS, ids=name_of)
def test_of_an_upstreams_answer(entry: Dialect, answer: str) -> None:
    upstream, sent = entry.upstream, FRAMES[entry.name][answer]
    assert upstream is not None
    assert left_by(lambda: read(upstream.inbound(machine(), answer_context(entry)), sent)) == set()
    choice = upstream.choice
    if choice is not None:
        assert left_by(lambda: read(choice(machine(), answer_context(entry), 0), sent)) == set()


@pytest.mark.parametrize("think", ["opened", "off"])
@pytest.mark.parametrize("entry", TAGGED, ids=name_of)
def test_of_texts_that_may_have_think_tags(entry: Dialect, think: str) -> None:
    upstream, sent = entry.upstream, FRAMES[entry.name]["whole"]
    assert upstream is not None

    def cut_or_whole() -> None:
        for until in (1, len(sent) // 2, len(sent)):
            read(upstream.inbound(machine(), answer_context(entry, think=think)), sent[:until])

    assert left_by(cut_or_whole) == set()


@pytest.mark.parametrize("entry", UPSTREAMS, ids=name_of)
@pytest.mark.untraced
def test_of_an_upstreams_answer_that_is_dropped_while_it_runs(entry: Dialect) -> None:
    upstream, sent = entry.upstream, FRAMES[entry.name]["whole"]
    assert upstream is not None

    def begun() -> None:
        for until in range(len(sent)):
            inbound = upstream.inbound(machine(), answer_context(entry))
            for frame in sent[:until]:
                inbound.feed(frame)

    assert left_by(begun) == set()


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("entry", CLIENTS, ids=name_of)
def test_of_what_a_client_gets(entry: Dialect, answer: str) -> None:
    client = entry.client
    assert client is not None
    for made in filter(None, (client.outbound, client.without_text_after_tools)):

        def sent(made: Any = made) -> bytes:
            outbound = made()
            return client.encode(
                [chunk for event in answered(answer) for chunk in outbound.feed(event)] + outbound.close()
            )

        assert left_by(sent) == set()
    whole = client.whole
    if whole is not None:
        assert left_by(lambda: whole(answered(answer)[-1].response, Sealer())) == set()  # type: ignore[union-attr]


def outgoing(entry: Dialect) -> bytes:
    assert entry.upstream is not None
    context = RequestContext([], "m", entry.upstream.options(), Sealer(), ToolIdentityMap())
    return entry.upstream.request(decode_request(REQUEST), context).body


@pytest.mark.parametrize("entry", UPSTREAMS, ids=name_of)
def test_of_a_request_to_an_upstream(entry: Dialect) -> None:
    assert left_by(lambda: outgoing(entry)) == set()


@pytest.mark.parametrize("entry", BOTH, ids=name_of)
def test_of_a_clients_request(entry: Dialect) -> None:
    assert entry.surface is not None
    read, body, head = entry.surface.read, outgoing(entry), RequestHead(sealer=Sealer())
    named = encode({"model": "m", **json.loads(body)})
    assert left_by(lambda: read(named, head)) == set()

    def refused() -> None:
        for wrong in (b"{", b"{}", b'{"model":"m","messages":7,"contents":7}'):
            with pytest.raises(InvalidRequestError):
                read(wrong, head)

    assert left_by(refused) == set()


def test_of_a_chat_of_vs_code() -> None:
    def there_and_back() -> None:
        chat, _ = to_vscode(decode_request(REQUEST))
        from_vscode(chat)

    assert left_by(there_and_back) == set()


@pytest.mark.parametrize("answer", ANSWERS)
def test_of_what_is_decoded(answer: str) -> None:
    def decoded() -> None:
        decoder, accumulator = PartDecoder(), ResponseAccumulator()
        for event in answered(answer):
            decoder.feed(event)
            accumulator.feed(event)
        decoder.close()

    assert left_by(decoded) == set()


BODIES: dict[str, dict[str, Any]] = {
    "responses": {"model": "m", "input": "Hello"},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "Hello"}]},
    "anthropic": {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50},
}
OUTPUTS: list[Any] = [
    Reasoning("hm"),
    ReasoningSummary("It thought."),
    "Hello, ",
    "world.",
    Refusal("No."),
    UrlCitation("https://example.org/", 0, 3, "Here"),
    ToolCallDelta(0, '{"a":', "f"),
    ToolCallDelta(0, "1}"),
    ToolCall("f", {}),
    Usage.of(3, 4),
    Finish("tool_calls"),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", BODIES)
def test_of_a_backends_outputs(dialect: Any, stream: bool) -> None:
    def replied(outputs: list[Any]) -> None:
        b"".join(reply({**BODIES[dialect], "stream": stream}, outputs, dialect=dialect).body)

    assert left_by(lambda: replied(OUTPUTS)) == set()
    assert left_by(lambda: replied([*OUTPUTS[:4], ToolCallDelta(-1)])) == set()


def test_of_a_loop() -> None:
    def run() -> None:
        looks = Answer("I look.", [("c1", "look", {"value": "a"})], thinking="Hm.")
        driven().drive([looks, Answer("Done.")])

    assert left_by(run) == set()
