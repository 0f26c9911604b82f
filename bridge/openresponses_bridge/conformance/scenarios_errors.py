"""Errors: requests that must be refused, each as JSON with type, code, message and param."""

from __future__ import annotations

from openresponses_bridge.conformance.exchange import Ask
from openresponses_bridge.conformance.scenario import (
    NotOffered,
    Play,
    Target,
    expect,
    expect_refusal,
    expect_whole,
    scenario,
)


@scenario("Errors")
def errors_malformed_json(target: Target) -> Play:
    """A body that is not JSON is refused with 400."""
    expect_refusal((yield Ask(body=b'{"model": ')), 400)


@scenario("Errors")
def errors_wrong_type(target: Target) -> Play:
    """A field of a wrong type is refused, and `param` names it."""
    error = expect_refusal((yield target.create(input=5)), 400, 422)
    expect(str(error.get("param")).startswith("input"), f"param is {error.get('param')!r}, not 'input'")


@scenario("schema CreateResponseBody")
def errors_out_of_range(target: Target) -> Play:
    """A number outside its range is refused, and `param` names it."""
    error = expect_refusal((yield target.create(max_output_tokens=1)), 400, 422)
    expect(error.get("param") == "max_output_tokens", f"param is {error.get('param')!r}")


@scenario("Errors")
def errors_unknown_model(target: Target) -> Play:
    """An unknown model is refused, where not every name is served."""
    answer = yield Ask(body={"model": "no-such-model-conformance", "input": "Hello"})
    if answer.status == 200:
        raise NotOffered("every model name is served")
    error = expect_refusal(answer, 400, 404)
    expect(error.get("message"), "the refusal says nothing")


@scenario("Errors")
def errors_before_the_stream(target: Target) -> Play:
    """A request that asks for a stream is refused with a status, not with a stream."""
    expect_refusal((yield target.create(stream=True, input=5)), 400, 422)


@scenario("Errors")
def errors_output_without_call(target: Target) -> Play:
    """A tool's output that answers no call is refused."""
    orphan = {"type": "function_call_output", "call_id": "call_conformance_none", "output": "12"}
    expect_refusal((yield target.create(input=[orphan])), 400, 404, 422)


@scenario("Errors")
def errors_leave_the_server_well(target: Target) -> Play:
    """After a refusal the next request is served."""
    expect_refusal((yield Ask(body=b"[]")), 400, 422)
    expect_whole((yield target.create()), target)
