"""Each scenario can fail: it is played against answers that are right, then against each of its wrongs."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge import ResponseStreamStateMachine, encode_sse
from openresponses_bridge.conformance.scenario import (
    Broken,
    HttpRequest,
    NotOffered,
    ServerAnswer,
    ServerUnderTest,
    Step,
    WebSocketMessage,
)
from openresponses_bridge.conformance.scenarios import SCENARIOS
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.sse import DONE

TARGET = ServerUnderTest("m")
JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream; charset=utf-8"}
Change = Callable[[ServerAnswer], ServerAnswer]


def right(step: Step) -> ServerAnswer:
    """What a server that keeps the protocol answers to a plain request: a text."""
    assert isinstance(step, HttpRequest | WebSocketMessage)
    fields = dict(step.body if isinstance(step, HttpRequest) else step.message)
    fields.pop("type", None)
    streamed = fields.pop("stream", False)
    machine = ResponseStreamStateMachine(model="m", request=decode_request(encode(fields)))
    events = [*machine.start(), *machine.text("Hello, "), *machine.text("Alice."), *machine.finish("stop")]
    if isinstance(step, WebSocketMessage):
        return ServerAnswer(status=101, messages=[encode(event) for event in events])
    if streamed:
        return ServerAnswer(status=200, headers=SSE, body=encode_sse(events) + DONE)
    return ServerAnswer(status=200, headers=JSON, body=encode(machine.snapshot))


def play(
    name: str, change: Change = lambda answer: answer, answer: Callable[[Step], ServerAnswer] = right
) -> None:
    steps = SCENARIOS[name].play(TARGET)
    try:
        step = next(steps)
        while True:
            step = steps.send(change(answer(step)))
    except StopIteration:
        return


def edited(**fields: Any) -> Change:
    """The whole answer with these fields changed."""

    def change(answer: ServerAnswer) -> ServerAnswer:
        return ServerAnswer(status=200, headers=JSON, body=json.dumps({**answer.json, **fields}).encode())

    return change


def rewritten(before: bytes, after: bytes) -> Change:
    return lambda answer: ServerAnswer(status=200, headers=SSE, body=answer.body.replace(before, after))


def refused(status: int, **error: Any) -> Callable[[Step], ServerAnswer]:
    body = {"type": "invalid_request_error", "code": None, "message": "No.", "param": None, **error}
    return lambda _: ServerAnswer(status=status, headers=JSON, body=json.dumps({"error": body}).encode())


RIGHT = ["transport.whole", "transport.streamed", "transport.line-ends", "schema.input-forms", "schema.echo"]
RIGHT += ["order.stream", "order.agreement", "tools.none", "turns.output-is-input", "websocket.turns"]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    play(name)


WRONG: list[tuple[str, Change, str]] = [
    ("transport.whole", edited(status="in_progress", completed_at=None), "status is 'in_progress'"),
    ("transport.whole", edited(output=[]), "has no text"),
    ("transport.whole", edited(usage="many"), r"\$\.usage"),
    (
        "transport.whole",
        lambda answer: ServerAnswer(status=500, body=b'{"error":{"message":"No room."}}'),
        "status 500 instead of 200: No room.$",
    ),
    (
        "transport.whole",
        lambda answer: ServerAnswer(status=502, body=b"No way."),
        "502 instead of 200: No way.$",
    ),
    (
        "transport.whole",
        lambda answer: ServerAnswer(status=200, headers=SSE, body=answer.body),
        "content-type",
    ),
    ("transport.streamed", rewritten(DONE, b""), "DONE"),
    ("transport.streamed", rewritten(b"event: response.in_progress", b"event: response.other"), "breaks"),
    ("transport.line-ends", rewritten(b"\n", b"\r\n"), "carriage returns"),
    ("schema.echo", edited(metadata={}), "metadata is"),
    ("order.stream", rewritten(b'"sequence_number":3', b'"sequence_number":9'), "breaks"),
    ("order.agreement", rewritten(b'"delta":"Alice."', b'"delta":"Bob."'), "breaks"),
]


@pytest.mark.parametrize(("name", "change", "said"), WRONG)
def test_what_is_wrong_fails(name: str, change: Change, said: str) -> None:
    with pytest.raises(Broken, match=said):
        play(name, change)


def test_three_violations_are_listed_and_the_others_counted() -> None:
    """One for each event whose name is another."""
    streamed = right(HttpRequest(body={"model": "m", "input": "Hi", "stream": True}))
    with pytest.raises(Broken) as broken:
        play("order.stream", rewritten(b"event: response.", b"event: x."))
    listed, _, more = str(broken.value).partition(" (and ")
    assert len(listed.split("; ")) == 3
    assert more == f"{streamed.body.count(b'event: ') - 3} more)"


def test_a_tool_that_is_not_called_fails() -> None:
    with pytest.raises(Broken, match="0 calls instead of 1"):
        play("tools.call")


def test_a_refusal_that_must_come_and_does_not_fails() -> None:
    broken = ServerAnswer(status=200, headers=JSON, body=b"{}")
    with pytest.raises(Broken, match="status 200 instead of 400"):
        play("errors.malformed-json", answer=lambda _: broken)


def test_a_refusal_names_its_field() -> None:
    play("errors.out-of-range", answer=refused(400, param="max_output_tokens"))
    with pytest.raises(Broken, match="param is 'input'"):
        play("errors.out-of-range", answer=refused(400, param="input"))
    with pytest.raises(Broken, match=r"error\.message"):
        play("errors.out-of-range", answer=refused(400, message=None))


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("compaction.window", 404),
        ("tools.call", 400),
        ("schema.image-input", 400),
        ("cancel.background", 400),
        ("transport.models", 404),
        ("websocket.turns", 426),
    ],
)
def test_what_is_not_offered_is_distinguished(name: str, status: int) -> None:
    with pytest.raises(NotOffered):
        play(name, answer=refused(status))


def test_a_websocket_turn_that_fails_is_a_failure() -> None:
    error = {"type": "error", "status": 500, "error": {"code": "server_error", "message": "No."}}
    with pytest.raises(Broken, match="the turn failed"):
        play("websocket.turns", answer=lambda _: ServerAnswer(status=101, messages=[encode(error)]))


def test_an_unknown_previous_response_needs_its_code() -> None:
    def answer(code: str) -> Callable[[Step], ServerAnswer]:
        error = {"type": "error", "status": 404, "error": {"code": code, "message": "No."}}
        return lambda _: ServerAnswer(status=101, messages=[encode(error)])

    play("websocket.unknown-previous-response", answer=answer("previous_response_not_found"))
    with pytest.raises(Broken, match="the code is 'server_error'"):
        play("websocket.unknown-previous-response", answer=answer("server_error"))


def test_ids_areas_and_sources() -> None:
    areas = {each.area for each in SCENARIOS.values()}
    assert areas >= {"transport", "schema", "order", "tools", "turns", "errors", "cancel", "resume"}
    assert areas >= {"websocket", "compaction"}
    assert all(each.source for each in SCENARIOS.values())
    assert [each.id for each in SCENARIOS.values() if not each.description.endswith(".")] == []
