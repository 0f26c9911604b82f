"""From a model's call to the result that it gets: validated, confirmed, called, cancelled, failed."""

from collections.abc import Callable
from typing import Any

import pytest

from openresponses_agent.tools import (
    CancellationToken,
    LanguageModelToolResult,
    TokenizationOptions,
    Tool,
    ToolCallCancelledError,
    ToolDeclinedError,
    ToolFailureEncountered,
    ToolInvocationContext,
    ToolInvocationError,
    ToolInvocationOptions,
    ToolNotFoundError,
    ToolRegistry,
    ToolResultDataPart,
    ToolResultPromptTsxPart,
    ToolResultTextPart,
    ToolsService,
    ToolValidationError,
)
from openresponses_agent.tools.registry import DidInvokeTool, WillInvokeTool
from openresponses_bridge.errors import InvalidRequestError, LocalError

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
pytestmark = pytest.mark.anyio


def service(
    handler: Callable[..., Any], *, options: dict[str, Any] | None = None, **hooks: Any
) -> ToolsService:
    return ToolsService(ToolRegistry([Tool("read_file", "", SCHEMA, handler, **hooks)]), **(options or {}))


async def test_a_call_is_validated_and_invoked() -> None:
    seen: list[Any] = []
    tools = service(lambda given: f"read {given['path']}")
    tools.on_will_invoke_tool(seen.append)
    tools.on_did_invoke_tool(seen.append)
    options = ToolInvocationOptions({"path": "README.md"}, "token_abc123", call_id="internal_1")
    result = await tools.invoke_tool("read_file", options)
    assert result == LanguageModelToolResult([ToolResultTextPart("read README.md")])
    assert seen == [
        WillInvokeTool("read_file", options),
        DidInvokeTool("read_file", options, result, None),
    ]


async def test_a_models_call_as_it_came() -> None:
    async def later(given: dict[str, Any], context: ToolInvocationContext) -> str:
        context.progress("reading")
        return f"{context.call_id} {context.tool_name} {given['path']}"

    progress: list[Any] = []
    tools = service(later, options={"on_progress": lambda *seen: progress.append(seen)})
    outcome = await tools.run_call("read_file", '{"path": "a"}', call_id="internal_1")
    assert outcome.failure is None
    assert outcome.result.text == "internal_1 read_file a"
    assert progress == [("read_file", "internal_1", "reading")]


async def test_invalid_input_goes_back_to_the_model() -> None:
    failures: list[ToolFailureEncountered] = []
    calls: list[Any] = []
    tools = service(calls.append)
    tools.on_tool_failure(failures.append)
    outcome = await tools.run_call("read_file", '{"path": 3}', retry_attempt=2)
    assert outcome.result.text == "Error: Invalid input - /path must be string"
    assert outcome.result.is_error
    assert outcome.failure == failures[0]
    assert (failures[0].tool_name, failures[0].retry_attempt) == ("read_file", 2)
    assert isinstance(failures[0].error, ToolValidationError)
    assert calls == []


async def test_a_tool_that_is_not_there() -> None:
    outcome = await service(print).run_call("write_file", "{}")
    text = "Error: Tool not found - no tool is named 'write_file'; the tools are read_file"
    assert outcome.result.text == text
    with pytest.raises(ToolNotFoundError):
        await service(print).invoke_tool("write_file", ToolInvocationOptions({}))
    with pytest.raises(ToolNotFoundError):
        service(print).validate_tool_input("write_file", "{}")
    assert service(print).validate_tool_input("read_file", '{"path": ""}') == {"path": ""}


def raising(error: Exception) -> Callable[[Any], Any]:
    def handler(given: Any) -> None:
        raise error

    return handler


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("disk full"), "Error: Tool failed - OSError: disk full"),
        (ToolInvocationError("not a text file"), "Error: Tool failed - not a text file"),
        (InvalidRequestError("x", "wrong"), "Error: Tool failed - wrong"),
        (ToolDeclinedError("the user declined it"), "Error: Not allowed - the user declined it"),
        (ValueError("x" * 5_000), "Error: Tool failed - ValueError: " + "x" * 1988),
    ],
)
async def test_a_tool_that_fails(error: Exception, text: str) -> None:
    seen: list[DidInvokeTool] = []
    tools = service(raising(error))
    tools.on_did_invoke_tool(seen.append)
    outcome = await tools.run_call("read_file", '{"path": ""}')
    assert outcome.result.text == text
    assert outcome.failure is not None
    assert seen[0].error is outcome.failure.error
    if not isinstance(error, ToolInvocationError | ToolDeclinedError):
        assert outcome.failure.error.__cause__ is error


async def test_results_that_json_cannot_hold_are_failures() -> None:
    outcome = await service(lambda given: object()).run_call("read_file", '{"path": ""}')
    assert outcome.result.text.startswith("Error: Tool failed - TypeError:")


async def test_cancelled_before_and_meanwhile() -> None:
    token, calls = CancellationToken(), []

    def handler(given: dict[str, Any], context: ToolInvocationContext) -> None:
        calls.append(given)
        token.cancel()
        context.token.check()

    tools = service(handler)
    for times in (1, 1):
        with pytest.raises(ToolCallCancelledError):
            await tools.run_call("read_file", '{"path": ""}', token=token)
        assert len(calls) == times


def test_a_token_calls_back_once() -> None:
    token, seen = CancellationToken(), []
    token.on_cancellation_requested(lambda: seen.append("a"))
    dispose = token.on_cancellation_requested(lambda: seen.append("b"))
    dispose()
    dispose()
    token.check()
    token.cancel()
    token.cancel()
    token.on_cancellation_requested(lambda: seen.append("late"))()
    assert seen == ["a", "late"]


async def test_a_call_that_has_to_be_confirmed() -> None:
    questions: list[Any] = []

    async def ask(tool: str, question: str) -> bool:
        questions.append((tool, question))
        return question == "Read a?"

    hooks = {"confirm": lambda given: f"Read {given['path']}?" if given["path"] else None}
    tools = service(lambda given: "read", options={"confirm": ask}, **hooks)
    assert (await tools.run_call("read_file", '{"path": "a"}')).result.text == "read"
    assert (await tools.run_call("read_file", '{"path": ""}')).result.text == "read"
    declined = await tools.run_call("read_file", '{"path": "b"}')
    assert declined.result.text == "Error: Not allowed - the user declined it"
    assert questions == [("read_file", "Read a?"), ("read_file", "Read b?")]
    nobody = await service(lambda given: "read", **hooks).run_call("read_file", '{"path": "a"}')
    assert "no user can be asked" in nobody.result.text


async def test_the_hooks() -> None:
    async def resolve(given: dict[str, Any], context: ToolInvocationContext) -> dict[str, Any]:
        return {name.lower(): value for name, value in given.items()}

    def provide(missing: list[str], given: dict[str, Any], context: ToolInvocationContext) -> dict[str, Any]:
        return dict.fromkeys(missing, "asked.txt")

    def shorten(result: LanguageModelToolResult, context: ToolInvocationContext) -> LanguageModelToolResult:
        return LanguageModelToolResult.of(result.text[:10])

    tools = service(
        lambda given: f"{given['path']} and more",
        resolve_input=resolve,
        provide_input=provide,
        filter_edits=shorten,
    )
    assert (await tools.run_call("read_file", '{"PATH": "a"}')).result.text == "a and more"
    outcome = await tools.run_call("read_file", "{}")
    assert (outcome.result.text, outcome.notes) == ("asked.txt ", ("path came from the user",))
    assert (await tools.run_call("read_file", '{"path": 1}')).failure is not None
    assert (
        await tools.run_call("read_file", "[]")
    ).result.text == "Error: Invalid input - the input must be object"


@pytest.mark.parametrize("hook", ["resolve_input", "provide_input", "filter_edits", "confirm"])
async def test_a_hook_that_fails_is_a_tool_that_fails(hook: str) -> None:
    def wrong(*_: Any) -> Any:
        raise KeyError("x")

    outcome = await service(lambda given: "read", **{hook: wrong}).run_call(
        "read_file", "{}" if hook == "provide_input" else '{"path": ""}'
    )
    assert outcome.result.text == "Error: Tool failed - KeyError: 'x'"


async def test_a_handler_may_refuse_its_input() -> None:
    outcome = await service(raising(ToolValidationError("t", [], {}))).run_call("read_file", '{"path": ""}')
    assert outcome.result.text == "Error: Invalid input - "


async def test_what_a_user_provides_is_validated_too() -> None:
    outcome = await service(print, provide_input=lambda *_: {"path": 3}).run_call("read_file", "{}")
    assert outcome.result.text == "Error: Invalid input - /path must be string"


async def test_nested_and_repaired_arguments_are_noted() -> None:
    tools = service(lambda given: given["path"], options={"repair": True})
    outcome = await tools.run_call("read_file", "{'path': 'a'}")
    assert (outcome.result.text, outcome.notes) == ("a", ("the arguments were not JSON and were repaired",))


async def test_an_engine_that_is_missing_is_not_the_models_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise LocalError("bridge.schemas.engine", "jsonschema-rs is missing")

    monkeypatch.setattr("openresponses_agent.tools.validation.engine", missing)
    tools = ToolsService(ToolRegistry([Tool("a", "", {"type": "object"}, print)]))
    with pytest.raises(LocalError, match="jsonschema-rs is missing"):
        await tools.run_call("a", "{}")


async def test_listeners_can_be_taken_back_and_can_stop_a_call() -> None:
    calls: list[Any] = []
    tools = service(calls.append)
    dispose = tools.on_will_invoke_tool(raising(ToolDeclinedError("not now")))
    assert (await tools.run_call("read_file", '{"path": ""}')).result.text == "Error: Not allowed - not now"
    dispose()
    dispose()
    assert (await tools.run_call("read_file", '{"path": ""}')).failure is None
    assert len(calls) == 1


# --- results ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "parts", "text"),
    [
        (None, [], ""),
        ("a", [ToolResultTextPart("a")], "a"),
        ("\ud800", [ToolResultTextPart("\ufffd")], "\ufffd"),
        (
            b"ab",
            [ToolResultDataPart(b"ab", "application/octet-stream")],
            "[application/octet-stream, 2 bytes]",
        ),
        (3, [ToolResultTextPart("3")], "3"),
        ({"a": [1]}, [ToolResultTextPart('{"a":[1]}')], '{"a":[1]}'),
        ([], [ToolResultTextPart("[]")], "[]"),
        ({"content": "old"}, [ToolResultTextPart("old")], "old"),
        (ToolResultPromptTsxPart({"n": 1}), [ToolResultPromptTsxPart({"n": 1})], '{"n":1}'),
        (
            [ToolResultTextPart("a"), ToolResultDataPart(b"1", "image/png")],
            [ToolResultTextPart("a"), ToolResultDataPart(b"1", "image/png")],
            "a\n\n[image/png, 1 bytes]",
        ),
        (LanguageModelToolResult([], is_error=True), [], ""),
    ],
)
def test_what_a_handler_returns(value: Any, parts: list[Any], text: str) -> None:
    result = LanguageModelToolResult.of(value)
    assert result.content == parts
    assert result.text == text


def test_results_as_json() -> None:
    import msgspec

    result = LanguageModelToolResult(
        [ToolResultTextPart("a"), ToolResultDataPart(b"1", "image/png"), ToolResultPromptTsxPart([1])]
    )
    text = msgspec.json.encode(result)
    assert msgspec.json.decode(text) == {
        "content": [
            {"type": "text", "value": "a"},
            {"type": "data", "data": "MQ==", "mimeType": "image/png"},
            {"type": "prompt-tsx", "value": [1]},
        ]
    }
    assert msgspec.json.decode(text, type=LanguageModelToolResult) == result


async def test_a_result_fits_its_budget() -> None:
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(1)
        return len(text)

    parts = [
        ToolResultTextPart("a" * 50),
        ToolResultTextPart("b" * 500),
        ToolResultDataPart(b"", "image/png"),
    ]
    tools = service(lambda given: parts)
    outcome = await tools.run_call(
        "read_file", '{"path": ""}', tokenization_options=TokenizationOptions(200, count)
    )
    texts = [part.value for part in outcome.result.content if isinstance(part, ToolResultTextPart)]
    assert texts[0] == "a" * 50
    assert texts[1].startswith("bbb")
    assert texts[1].endswith("longer than its token budget)")
    assert len("".join(texts)) == 200
    assert outcome.result.content[-1] == parts[-1]
    assert len(counted) < 20
    whole = await tools.run_call(
        "read_file", '{"path": ""}', tokenization_options=TokenizationOptions(550, count)
    )
    assert whole.result.content == parts
