"""Several turns: history in the input, and by previous_response_id."""

from __future__ import annotations

from openresponses_bridge.conformance.scenario import (
    NotOffered,
    Play,
    Target,
    expect,
    expect_refusal,
    expect_stream,
    expect_whole,
    need_support,
    scenario,
    text_of,
)

_NAME = "My name is Alice."


@scenario("Items")
def turns_output_is_input(target: Target) -> Play:
    """A response's output items are valid input of the next request, unchanged."""
    first = {"type": "message", "role": "user", "content": _NAME}
    said = expect_whole((yield target.create(input=[first], store=False)), target)
    question = {"type": "message", "role": "user", "content": "What is my name?"}
    answer = yield target.create(input=[first, *said["output"], question], store=False)
    text = text_of(expect_whole(answer, target))
    expect("alice" in text.lower(), "the earlier turn is not known in the second")


@scenario("previous_response_id", "full")
def turns_previous_response(target: Target) -> Play:
    """previous_response_id continues a stored response; its instructions are not carried over."""
    first = expect_whole((yield target.create(input=_NAME, instructions="Be brief.")), target)
    follow = yield target.create(input="What is my name?", previous_response_id=first["id"], stream=True)
    need_support(follow, "previous_response_id")
    if follow.status == 404:
        raise NotOffered("the server stores no responses")
    response = expect_stream(follow, target)
    expect(response.get("previous_response_id") == first["id"], "previous_response_id is not echoed")
    expect(response.get("instructions") is None, "the earlier turn's instructions came back")
    expect("alice" in text_of(response).lower(), "the earlier turn is not known in the second")


@scenario("previous_response_id", "full")
def turns_unknown_previous_response(target: Target) -> Play:
    """An unknown previous_response_id is refused."""
    answer = yield target.create(previous_response_id="resp_00000000conformance")
    error = expect_refusal(answer, 400, 404)
    expect(error.get("message"), "the refusal says nothing")


@scenario("previous_response_id", "full")
def turns_not_stored(target: Target) -> Play:
    """A response that was not stored can't be continued by its id."""
    first = expect_whole((yield target.create(store=False)), target)
    expect_refusal((yield target.create(previous_response_id=first["id"])), 400, 404)
