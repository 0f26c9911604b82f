"""The values that `PartDecoder`, `ResponseAccumulator` and `StreamValidator` accept; errors name all
others."""

import json
import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

import pytest

from openresponses_bridge import PartDecoder, ResponseAccumulator, ResponseStreamStateMachine, StreamValidator
from openresponses_bridge.decoder.parts import LanguageModelTextPart
from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol.codec import decode_event, encode
from openresponses_bridge.protocol.events import ResponseCreated
from openresponses_bridge.sse import Frame
from tests.support.scripts import Event, Script, clean_streams, everything

STREAMS = [
    *[pytest.param(stream, id=name) for name, stream in clean_streams()],
    pytest.param(Script().custom_call("a", "b").finish(), id="custom call"),
    pytest.param(Script().fail(nested=False), id="error at top level"),
]


def decoded(stream: list[Any]) -> Any:
    decoder = PartDecoder(include_encrypted_thinking=True)
    parts = [part for event in stream for part in decoder.feed(event)] + decoder.close()
    result = decoder.result
    facts = (result.response_id, result.usage, result.finish_reason, result.error)
    return parts, facts, [str(case) for case in result.diagnostics]


def accumulated(stream: list[Any]) -> Any:
    accumulator = ResponseAccumulator()
    for event in stream:
        accumulator.feed(event)
    return accumulator.response, accumulator.error


def judged(stream: list[Any]) -> Any:
    validator = StreamValidator()
    return [validator.feed(event) for event in stream], validator.close()


READERS: list[Callable[[list[Any]], Any]] = [decoded, accumulated, judged]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("stream", STREAMS)
def test_the_json_object_of_an_event_is_read_as_the_event(
    stream: list[Event], read: Callable[[list[Any]], Any]
) -> None:
    structs = [decode_event(json.dumps(event)) for event in stream]
    expected = read(structs)
    assert read([*stream]) == expected
    assert read([MappingProxyType(event) for event in stream]) == expected
    assert read([json.loads(encode(event)) for event in structs]) == expected
    mixed = [
        struct if number % 2 else event
        for number, (struct, event) in enumerate(zip(structs, stream, strict=True))
    ]
    assert read(mixed) == expected


@pytest.mark.parametrize("read", READERS[:2])
def test_an_object_may_hold_structs(read: Callable[[list[Any]], Any]) -> None:
    structs: list[Any] = [decode_event(json.dumps(event)) for event in everything()]
    expected = read(structs)
    created = structs[0]
    assert type(created) is ResponseCreated
    structs[0] = {"type": created.type, "sequence_number": 0, "response": created.response}
    assert read(structs) == expected


def type_name(value: object) -> str:
    return type(value).__name__


def wrong(validator: bool) -> list[Any]:
    response = ResponseStreamStateMachine("m").snapshot
    values = [None, 5, 1.5, object(), [], ({"type": "response.created"},), {1}, LanguageModelTextPart("a")]
    values += [response, ResponseCreated, Frame("response.created", b"{}"), iter([])]
    return values if validator else [*values, b"{}", '{"type":"response.created"}']


@pytest.mark.parametrize("value", wrong(False), ids=type_name)
@pytest.mark.parametrize("ended", [False, True], ids=["open", "ended"])
@pytest.mark.parametrize("reader", [PartDecoder, ResponseAccumulator])
@pytest.mark.untraced
def test_readers_refuse_what_is_no_event_and_name_it(reader: Any, value: Any, ended: bool) -> None:
    door = reader()
    for event in everything() if ended else everything()[:6]:
        door.feed(event)
    with pytest.raises(TypeError, match=rf"an event or its JSON object.* got {type(value).__name__}\b"):
        door.feed(value)
    if not ended:
        door.feed(everything()[6])  # goes on as if nothing had been fed


@pytest.mark.parametrize("value", wrong(True), ids=type_name)
@pytest.mark.untraced
def test_the_validator_refuses_what_is_no_event_and_names_it(value: Any) -> None:
    validator = StreamValidator()
    with pytest.raises(TypeError, match=rf"got {type(value).__name__}\b"):
        validator.feed(value)
    for event in everything():
        assert validator.feed(event) == []
    assert validator.close() == []


def test_the_refusals_say_what_would_do() -> None:
    with pytest.raises(TypeError, match="decode_event"):
        ResponseAccumulator().feed(b"{}")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="feed_frame"):
        StreamValidator().feed(Frame("", b"{}"))  # type: ignore[arg-type]
    for value in ({"type": "response.created"}, b"{}", None, ("", b"{}")):
        with pytest.raises(TypeError, match=f"a Frame, got {type(value).__name__}"):
            StreamValidator().feed_frame(value)  # type: ignore[arg-type]


def test_an_object_that_is_no_json_is_refused() -> None:
    for door in (PartDecoder(), ResponseAccumulator()):
        with pytest.raises(TypeError, match="complex"):
            door.feed({"type": "response.created", "response": {"id": 1j}})


HOSTILE = [
    None,
    10**30,
    float("nan"),
    float("inf"),
    "\ud800",
    "\x00",
    [],
    {},
    [None],
    {"type": 5},
    [[[]]],
    {1: 2},
    True,
]


@pytest.mark.parametrize("reader", [PartDecoder, ResponseAccumulator, StreamValidator])
@pytest.mark.untraced
def test_no_json_object_raises_whatever_its_fields_hold(reader: Any) -> None:
    rng = random.Random(11)
    for _ in range(150):
        door = reader()
        for event in everything():
            for _ in range(rng.choice([0, 0, 1, 2])):
                name = rng.choice(list(event))
                inner = event[name] if isinstance(event[name], dict) and event[name] else event
                inner[rng.choice(list(inner))] = deepcopy(rng.choice(HOSTILE))
            door.feed(event)
        assert reader is ResponseAccumulator or door.close() is not None
    door.feed({"type": "response.output_text.delta", "delta": "\ud800", "logprobs": float("nan")})


def test_a_traced_decoder_shows_the_event_of_an_object() -> None:
    shown: list[str] = []
    decoder = PartDecoder(trace=shown.append)
    stream: list[Mapping[str, Any]] = [*everything()]
    for event in stream:
        decoder.feed(event)
    assert [line.split()[:2] for line in shown] == [[str(n), each["type"]] for n, each in enumerate(stream)]


@pytest.mark.parametrize("model", [None, 5, b"m", ["m"], {"name": "m"}, object()], ids=type_name)
def test_a_machine_refuses_a_model_that_is_no_text(model: Any) -> None:
    with pytest.raises(
        StreamStateError, match=f"model: expected a string, got {type(model).__name__}"
    ) as caught:
        ResponseStreamStateMachine(model)
    assert caught.value.code == StreamStateError.INVALID_ARGUMENT
    assert caught.value.context == {"call": "model"}
