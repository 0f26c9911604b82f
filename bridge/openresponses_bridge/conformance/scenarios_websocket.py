"""WebSocket: turns on one connection, what it remembers and what it forgets."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.conformance.scenario import (
    Broken,
    NotOffered,
    Play,
    ServerAnswer,
    ServerUnderTest,
    expect,
    expect_stream,
    scenario,
    text_of,
)

_MISSING = "previous_response_not_found"


def _need_socket(answer: ServerAnswer) -> None:
    if answer.status != 101:
        raise NotOffered(f"WebSocket: the upgrade is answered with status {answer.status}")
    if not answer.messages:
        raise Broken("the connection ended without an answer")


def _turn(answer: ServerAnswer, target: ServerUnderTest) -> dict[str, Any]:
    _need_socket(answer)
    last = answer.json if isinstance(answer.json, dict) else {}
    if last.get("type") == "error":
        raise Broken(f"the turn failed: {last.get('error')!r:.160}")
    return expect_stream(answer, target)


def _refused(answer: ServerAnswer) -> dict[str, Any]:
    """Return the envelope of a turn that must fail: {type: error, status, error: {code, message}}."""
    _need_socket(answer)
    last = answer.json if isinstance(answer.json, dict) else {}
    expect(last.get("type") == "error", f"the turn did not fail; it ended with {last.get('type')!r}")
    expect(isinstance(last.get("status"), int), f"status is {last.get('status')!r}")
    error = answer.error
    for name in ("code", "message"):
        expect(isinstance(error.get(name), str) and error[name], f"error.{name} is not text: {error!r:.160}")
    return error


@scenario("WebSocket", "full")
def websocket_turns(target: ServerUnderTest) -> Play:
    """Several turns run one after the other on one connection, each with numbers from 0 and without
    [DONE]."""
    first = yield target.send(store=False)
    one = _turn(first, target)
    second = yield target.send(store=False, input="Say goodbye.")
    two = _turn(second, target)
    expect(one["id"] != two["id"], "both turns have one response id")
    for answer in (first, second):
        expect(answer.events[0].get("sequence_number") == 0, "a turn's numbers do not begin at 0")


@scenario("WebSocket", "full")
def websocket_continuation(target: ServerUnderTest) -> Play:
    """With `store` false the connection keeps its latest response for the next turn."""
    first = _turn((yield target.send(store=False, input="My name is Alice.")), target)
    follow = target.send(store=False, input="What is my name?", previous_response_id=first["id"])
    text = text_of(_turn((yield follow), target))
    expect("alice" in text.lower(), "the earlier turn is not known in the second")


@scenario("WebSocket", "full")
def websocket_reconnect(target: ServerUnderTest) -> Play:
    """Another connection does not know that response, but accepts a new turn."""
    first = _turn((yield target.send(store=False)), target)
    lost = _refused((yield target.send(1, store=False, previous_response_id=first["id"])))
    expect(lost["code"] == _MISSING, f"the code is {lost['code']!r}, not {_MISSING!r}")
    _turn((yield target.send(1, store=False)), target)


@scenario("WebSocket", "full")
def websocket_unknown_previous_response(target: ServerUnderTest) -> Play:
    """An unknown previous_response_id is refused with the code previous_response_not_found."""
    error = _refused((yield target.send(store=False, previous_response_id="resp_00000000conformance")))
    expect(error["code"] == _MISSING, f"the code is {error['code']!r}, not {_MISSING!r}")


@scenario("WebSocket", "full")
def websocket_eviction(target: ServerUnderTest) -> Play:
    """A continuation that fails makes the connection forget the response it continued."""
    first = _turn((yield target.send(store=False)), target)
    orphan = {"type": "function_call_output", "call_id": "call_conformance_none", "output": "12"}
    _refused((yield target.send(store=False, input=[orphan], previous_response_id=first["id"])))
    lost = _refused((yield target.send(store=False, previous_response_id=first["id"])))
    expect(lost["code"] == _MISSING, f"the code is {lost['code']!r}, not {_MISSING!r}")


@scenario("WebSocket", "full")
def websocket_bad_message(target: ServerUnderTest) -> Play:
    """An invalid message is answered with an error, and the connection stays open."""
    _refused((yield target.send(store=False, input=5)))
    _turn((yield target.send(store=False)), target)
