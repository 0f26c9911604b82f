"""Tools: calls, choices of tools, answers to calls."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.conformance.scenario import (
    Play,
    ServerUnderTest,
    expect,
    expect_stream,
    expect_whole,
    items,
    need_support,
    object_in,
    scenario,
    text_of,
)


def _tool(name: str, description: str, argument: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


WEATHER: Final = _tool("get_weather", "The weather at a place now.", "location")
_CLOCK: Final = _tool("get_time", "The local time at a place.", "place")
QUESTION: Final = "What is the weather in Lima now? Use the tool."


def the_call(response: dict[str, Any], name: str = "get_weather") -> dict[str, Any]:
    """Return the only call of the response, which must be of this function, complete, and have JSON
    arguments."""
    calls = items(response, "function_call")
    expect(len(calls) == 1, f"{len(calls)} calls instead of 1")
    (call,) = calls
    expect(call.get("name") == name, f"the call is of {call.get('name')!r}, not {name!r}")
    expect(call.get("call_id"), "the call has no call_id")
    expect(object_in(str(call.get("arguments"))) is not None, "the arguments are not a JSON object")
    return call


def _expect_echoed(response: dict[str, Any], *tools: dict[str, Any]) -> None:
    """Expect `tools` to be those of the request with all of their fields; a server may add to them."""
    echoed = response.get("tools") or []
    expect(len(echoed) == len(tools), f"{len(echoed)} tools are echoed, not {len(tools)}")
    for tool, echo in zip(tools, echoed, strict=True):
        for name in ("type", "name", "description"):
            expect(echo.get(name) == tool[name], f"{name} of a tool is {echo.get(name)!r:.80}")
        properties = (echo.get("parameters") or {}).get("properties") or {}
        expect(properties.keys() >= tool["parameters"]["properties"].keys(), "a tool lost its parameters")


@scenario("tool_choice")
def tools_call(target: ServerUnderTest) -> Play:
    """With `required` the answer has a call with JSON arguments, and the response repeats the tools with all
    fields."""
    answer = yield target.create(input=QUESTION, tools=[WEATHER], tool_choice="required")
    need_support(answer, "tools")
    response = expect_whole(answer, target)
    the_call(response)
    _expect_echoed(response, WEATHER)
    expect(response.get("tool_choice") == "required", f"tool_choice is {response.get('tool_choice')!r:.80}")


@scenario("Streaming")
def tools_streamed_call(target: ServerUnderTest) -> Play:
    """The deltas of a streamed call add up to its arguments."""
    answer = yield target.create(input=QUESTION, tools=[WEATHER], tool_choice="required", stream=True)
    need_support(answer, "tools")
    call = the_call(expect_stream(answer, target))
    kind = "response.function_call_arguments.delta"
    deltas = "".join(event["delta"] for event in answer.events if event.get("type") == kind)
    expect(deltas == call["arguments"], "the deltas are not the arguments")


@scenario("tool_choice")
def tools_none(target: ServerUnderTest) -> Play:
    """With `none` the answer has no calls."""
    answer = yield target.create(input=QUESTION, tools=[WEATHER], tool_choice="none")
    need_support(answer, "tools")
    response = expect_whole(answer, target)
    expect(not items(response, "function_call"), "a tool was called although tool_choice is none")
    expect(text_of(response), "the output has no text")


@scenario("tool_choice")
def tools_forced(target: ServerUnderTest) -> Play:
    """A function that tool_choice names is called."""
    choice = {"type": "function", "name": "get_time"}
    answer = yield target.create(input=QUESTION, tools=[WEATHER, _CLOCK], tool_choice=choice)
    need_support(answer, "a forced function")
    the_call(expect_whole(answer, target), "get_time")


@scenario("allowed_tools")
def tools_allowed(target: ServerUnderTest) -> Play:
    """`allowed_tools` is a hard constraint, and does not change `tools`."""
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_time"}]}
    answer = yield target.create(input=QUESTION, tools=[WEATHER, _CLOCK], tool_choice=choice)
    need_support(answer, "allowed_tools")
    response = expect_whole(answer, target)
    called = {call.get("name") for call in items(response, "function_call")}
    expect(called <= {"get_time"}, f"a tool that is not allowed was called: {', '.join(map(str, called))}")
    _expect_echoed(response, WEATHER, _CLOCK)


@scenario("schema FunctionCallOutputItemParam")
def tools_result(target: ServerUnderTest) -> Play:
    """The model answers when a call is sent back unchanged with its output."""
    question = {"type": "message", "role": "user", "content": QUESTION}
    request = target.create(input=[question], tools=[WEATHER], tool_choice="required", store=False)
    answer = yield request
    need_support(answer, "tools")
    response = expect_whole(answer, target)
    call = the_call(response)
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "12 degrees, fog"}
    follow = yield target.create(input=[question, *response["output"], result], tools=[WEATHER], store=False)
    text = text_of(expect_whole(follow, target))
    expect(text, "no text after the tool's answer")
    expect("12" in text or "fog" in text.lower(), f"the tool's answer is not known: {text!r:.120}")


@scenario("parallel_tool_calls")
def tools_one_at_a_time(target: ServerUnderTest) -> Play:
    """With parallel_tool_calls false there is at most one call."""
    answer = yield target.create(
        input="What are the weather and the time in Lima? Use both tools.",
        tools=[WEATHER, _CLOCK],
        parallel_tool_calls=False,
    )
    need_support(answer, "parallel_tool_calls")
    response = expect_whole(answer, target)
    expect(len(items(response, "function_call")) <= 1, "several calls although they were not allowed")
    expect(response.get("parallel_tool_calls") is False, "parallel_tool_calls is not echoed")
