"""`LanguageModelChatProvider`: VS Code's interface of a provider, over upstreams in this process and over a
server."""

import asyncio
import json
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import pytest

from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
    Part,
    StreamResult,
)
from openresponses_bridge.dialects.vscode import ChatMessage, ChatTool, LanguageModelError, Role, ToolMode
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.models.usage import AgentUsage, UsageTracker
from openresponses_server.client import OpenResponsesClient
from openresponses_server.settings import Retries, Settings, UpstreamSettings
from openresponses_server.vscode.in_process import in_process
from openresponses_server.vscode.provider import LanguageModelChatProvider
from openresponses_server.vscode.remote import over_server
from tests.support import dialect_scripts as made
from tests.support.documents import blocks_of
from tests.support.serving import serving
from tests.support.upstream import HANG, Script, ScriptedUpstream, refusal
from tests.support.waiting import until

DIALECTS = ("chat", "anthropic", "responses")
FIND = ChatTool("find", "Finds.", {"type": "object", "properties": {"q": {"type": "string"}}})
T = TypeVar("T")


class Shown:
    """What a host was given."""

    def __init__(self, cancel: asyncio.Event | None = None) -> None:
        self.parts: list[Part] = []
        self._cancel = cancel

    def report(self, part: Part, /) -> None:
        self.parts.append(part)
        if self._cancel is not None:
            self._cancel.set()

    @property
    def text(self) -> str:
        return "".join(part.value for part in self.parts if isinstance(part, LanguageModelTextPart))

    @property
    def calls(self) -> list[LanguageModelToolCallPart]:
        return [part for part in self.parts if isinstance(part, LanguageModelToolCallPart)]

    @property
    def data(self) -> dict[str, bytes]:
        return {part.mime_type: part.data for part in self.parts if isinstance(part, LanguageModelDataPart)}

    @property
    def message(self) -> ChatMessage:
        """The answer as a host sends it back."""
        return ChatMessage(Role.ASSISTANT, list(self.parts))


def user(*content: Any) -> ChatMessage:
    parts = [LanguageModelTextPart(each) if isinstance(each, str) else each for each in content]
    return ChatMessage(Role.USER, parts)


Place = Callable[..., Any]


@asynccontextmanager
async def within(settings: Settings, **options: Any) -> AsyncIterator[LanguageModelChatProvider]:
    async with in_process(settings, **options) as provider:
        yield provider


@asynccontextmanager
async def before_a_server(settings: Settings, **options: Any) -> AsyncIterator[LanguageModelChatProvider]:
    with serving(settings) as base:
        async with OpenResponsesClient(base) as client:
            yield over_server(client, **options)


PLACES = {"in process": within, "over a server": before_a_server}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    chosen: Place = PLACES[request.param]
    return chosen


def run(
    place: Place,
    work: Callable[[LanguageModelChatProvider], Awaitable[T]],
    settings: Settings | None = None,
    **options: Any,
) -> T:
    async def main() -> T:
        async with place(settings or Settings(store="memory:"), **options) as provider:
            return await work(provider)

    return asyncio.run(main())


async def respond(
    provider: LanguageModelChatProvider,
    *messages: Any,
    model: Any = "demo",
    cancel: asyncio.Event | None = None,
    shown: Shown | None = None,
    **options: Any,
) -> tuple[Shown, StreamResult]:
    shown = shown or Shown()
    result = await provider.provide_language_model_chat_response(model, messages, options, shown, cancel)
    return shown, result


@pytest.fixture
def scripted() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as server:
        yield server


def upstreams(scripted: ScriptedUpstream) -> Settings:
    """One of each dialect: `chat-…`, `anthropic-…`, `responses-…`."""
    return Settings(
        store="memory:",
        upstreams=[
            UpstreamSettings(name=each, url=scripted.url, dialect=each, models=[f"{each}-*", f"{each}-named"])
            for each in DIALECTS
        ],
    )


def test_information_of_every_model(place: Place) -> None:
    async def work(provider: LanguageModelChatProvider) -> None:
        models = await provider.provide_language_model_chat_information()
        demo = next(model for model in models if model["id"] == "demo")
        assert demo["maxInputTokens"] > 0
        assert set(demo["capabilities"]) == {"imageInput", "toolCalling"}
        assert await provider.provide_language_model_chat_information(refresh=True) == models

    run(place, work)


def test_a_change_of_the_list_is_notified(scripted: ScriptedUpstream) -> None:
    seen: list[int] = []

    async def work(provider: LanguageModelChatProvider) -> None:
        scripted.models = ["one"]
        end = provider.on_did_change_language_model_chat_information(seen.append)
        await provider.provide_language_model_chat_information()
        scripted.models = ["one", "two"]
        await asyncio.sleep(1.05)  # the soonest that it is asked again
        models = await provider.provide_language_model_chat_information(refresh=True)
        assert [model["id"] for model in models] == ["one", "two"]
        end()

    run(within, work, Settings(store="memory:", upstreams=[UpstreamSettings(url=scripted.url)]))
    assert len(seen) == len(set(seen)) >= 1
    assert seen == sorted(seen)


def test_an_answer_with_its_usage_and_marker(place: Place) -> None:
    async def work(provider: LanguageModelChatProvider) -> None:
        shown, result = await respond(provider, user("Hello"))
        assert (shown.text, result.finish_reason) == ("You said: Hello", "stop")
        assert json.loads(shown.data["usage"])["total_tokens"] > 0
        assert shown.data["stateful_marker"] == f"demo\\{result.response_id}".encode()
        unstored, _ = await respond(provider, user("Hello"), store=False)
        assert "stateful_marker" not in unstored.data

    run(place, work)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_options_reach_every_upstream(place: Place, scripted: ScriptedUpstream, dialect: str) -> None:
    model = f"{dialect}-m"
    scripted.scripts[model] = Script(made.call(dialect, ("call_1", "find", '{"q": "x"}')))
    options = {"systemPrompt": "Be brief.", "maxOutputTokens": 64, "temperature": 0.25}

    async def work(provider: LanguageModelChatProvider) -> None:
        shown, result = await respond(
            provider,
            user("Look"),
            model=model,
            tools=[FIND],
            toolMode=ToolMode.REQUIRED,
            modelOptions=options,
        )
        assert [(call.name, call.input) for call in shown.calls] == [("find", {"q": "x"})]
        assert result.finish_reason == "tool-calls"

    run(place, work, upstreams(scripted))
    sent = scripted.last(model).body
    assert sent["temperature"] == 0.25
    assert 64 in (sent.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"))
    assert "Be brief." in json.dumps(
        [sent.get(name) for name in ("messages", "system", "instructions", "input")]
    )
    assert sent["tool_choice"] in ("required", {"type": "any"})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_and_its_result_go_on(place: Place, scripted: ScriptedUpstream, dialect: str) -> None:
    model = f"{dialect}-m"
    scripted.scripts[model] = [
        Script(made.call(dialect, ("call_1", "find", '{"q": "x"}'), ("call_2", "find", "{}"))),
        Script(made.text(dialect, "Found.")),
    ]

    async def work(provider: LanguageModelChatProvider) -> None:
        first, _ = await respond(provider, user("Look"), model=model, tools=[FIND])
        results = [
            LanguageModelToolResultPart(call.call_id, [call.input.get("q", "none")]) for call in first.calls
        ]
        assert len(results) == 2
        second, _ = await respond(
            provider, user("Look"), first.message, user(*results), model=model, tools=[FIND]
        )
        assert second.text == "Found."

    run(place, work, upstreams(scripted))
    sent = json.dumps(scripted.last(model).body)
    assert all(sent.count(f'"{name}"') >= 2 for name in ("call_1", "call_2"))  # each with its result


def test_thinking_is_parts(place: Place) -> None:
    async def work(provider: LanguageModelChatProvider) -> None:
        shown, _ = await respond(provider, user("Hello"), model="demo-reasoning")
        assert any(isinstance(part, LanguageModelThinkingPart) and part.value for part in shown.parts)
        assert shown.text

    run(place, work)


def test_only_what_is_new_is_sent_to_a_server_that_keeps_responses(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = [
        Script(made.text("responses", text)) for text in ("One.", "Two.", "Three.", "Four.")
    ]

    async def main() -> None:
        async with OpenResponsesClient(scripted.url) as client:
            provider = over_server(client)
            talk = [user("1")]
            for number in ("2", "3"):
                shown, result = await respond(provider, *talk, model="m")
                talk += [shown.message, user(number)]
            await respond(provider, *talk, model="m")
            sent = scripted.last("m").body
            assert sent["previous_response_id"] == result.stateful_marker
            assert len(sent["input"]) == 1
            # another conversation, the same marker: everything goes out
            talk[0] = user("another")
            await respond(provider, *talk, model="m")
            sent = scripted.last("m").body
            assert "previous_response_id" not in sent
            assert len(sent["input"]) == 5

    asyncio.run(main())


def test_a_server_that_has_forgotten_is_sent_the_whole_chat(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = [
        Script(made.text("responses", "One.")),
        refusal(400, code="previous_response_not_found", message="Gone."),
        Script(made.text("responses", "Two.")),
    ]

    async def main() -> None:
        async with OpenResponsesClient(scripted.url) as client:
            provider = over_server(client)
            first, _ = await respond(provider, user("1"), model="m")
            second, _ = await respond(provider, user("1"), first.message, user("2"), model="m")
            assert second.text == "Two."

    asyncio.run(main())
    assert [len(each.body["input"]) for each in scripted.received] == [1, 1, 3]


def test_a_server_that_is_busy_is_not_sent_the_chat_again(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = [Script(made.text("responses", "One.")), refusal(429, message="Later.")]

    async def main() -> None:
        async with OpenResponsesClient(scripted.url, retries=Retries()) as client:
            provider = over_server(client)
            first, _ = await respond(provider, user("1"), model="m")
            with pytest.raises(LanguageModelError, match="Later") as caught:
                await respond(provider, user("1"), first.message, user("2"), model="m")
            assert caught.value.code == "Blocked"

    asyncio.run(main())
    assert [len(each.body["input"]) for each in scripted.received] == [1, 1]


def test_tokens_of_a_text_and_a_message(place: Place) -> None:
    async def work(provider: LanguageModelChatProvider) -> None:
        few = await provider.provide_token_count("demo", "word")
        many = await provider.provide_token_count("demo", user("word " * 100))
        assert 0 < few < many
        plain = {"_content": [{"$mid": 21, "value": "word " * 100}], "role": 1}
        assert await provider.provide_token_count({"id": "demo"}, plain) == many

    run(place, work)


def test_usage_is_tracked_from_start_to_end(place: Place) -> None:
    states: list[AgentUsage] = []

    async def work(provider: LanguageModelChatProvider) -> None:
        (model, *_) = await provider.provide_language_model_chat_information()
        await respond(provider, user("Hello"), model=model)
        started, ended = states[0], states[-1]
        assert (started.usage, started.max_input_tokens) == (None, model["maxInputTokens"])
        assert started.estimated_input_tokens > 0
        assert ended.usage is not None
        assert provider.tracker.total.total_tokens == ended.usage.total_tokens > 0
        with pytest.raises(LanguageModelError):
            await respond(provider, user("Hello"), model="nobody")
        assert provider.tracker.total.total_tokens == ended.usage.total_tokens

    run(place, work, tracker=UsageTracker(states.append))


def test_cancelling_ends_the_answer_and_the_upstream(place: Place, scripted: ScriptedUpstream) -> None:
    scripted.scripts["chat-m"] = Script([*made.piece("chat"), HANG])

    async def work(provider: LanguageModelChatProvider) -> None:
        cancel = asyncio.Event()
        shown, result = await respond(
            provider, user("Hello"), model="chat-m", cancel=cancel, shown=Shown(cancel)
        )
        assert (shown.text, result.finish_reason, result.error) == ("Hel", "cancelled", None)
        await until(lambda: scripted.last("chat-m").gone_at is not None)

    run(place, work, upstreams(scripted))


def test_a_cancelled_caller_leaves_nothing_behind(scripted: ScriptedUpstream) -> None:
    scripted.scripts["chat-m"] = Script([*made.piece("chat"), HANG])

    async def work(provider: LanguageModelChatProvider) -> None:
        answering = asyncio.create_task(respond(provider, user("Hello"), model="chat-m"))
        await until(lambda: scripted.received)
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        await until(lambda: scripted.last("chat-m").gone_at is not None)

    run(within, work, upstreams(scripted))


@pytest.mark.parametrize(
    ("status", "code"), [(404, "NotFound"), (403, "NoPermissions"), (429, "Blocked"), (400, "too_long")]
)
def test_refusals_are_language_model_errors(
    place: Place, scripted: ScriptedUpstream, status: int, code: str
) -> None:
    scripted.scripts["chat-m"] = refusal(status, message="No.", code="too_long")

    async def work(provider: LanguageModelChatProvider) -> None:
        with pytest.raises(LanguageModelError, match="No") as caught:
            await respond(provider, user("Hello"), model="chat-m")
        assert caught.value.code == code

    run(place, work, upstreams(scripted))


def test_a_failure_after_the_first_part_is_text_or_raised(place: Place) -> None:
    async def as_text(provider: LanguageModelChatProvider) -> None:
        shown, result = await respond(provider, user("Hello"), model="demo-failure")
        assert shown.text.endswith("**Error:** Failed as asked.")
        assert result.finish_reason == "error"

    async def raised(provider: LanguageModelChatProvider) -> None:
        shown = Shown()
        with pytest.raises(LanguageModelError, match="Failed as asked"):
            await respond(provider, user("Hello"), model="demo-failure", shown=shown)
        assert shown.text == "This answer ends in a"

    run(place, as_text)
    run(place, raised, failures="raise")


def test_failures_are_counted(place: Place, scripted: ScriptedUpstream) -> None:
    """Refused before the first part, failed after it, told as text or raised: each is a failed request."""
    scripted.scripts["chat-m"] = refusal(400, message="No.", code="too_long")

    def failed(model: str, settings: Settings, failures: str) -> list[tuple[int, int]]:
        tracker = UsageTracker()

        async def work(provider: LanguageModelChatProvider) -> None:
            with suppress(LanguageModelError):
                await respond(provider, user("Hello"), model=model)

        run(place, work, settings, tracker=tracker, failures=failures)
        return [(agent.requests, agent.failed) for agent in tracker]

    demo = Settings(store="memory:")
    for failures in ("text", "raise"):
        assert failed("chat-m", upstreams(scripted), failures) == [(1, 1)]
        assert failed("demo-failure", demo, failures) == [(1, 1)]
        assert failed("demo-cut", demo, failures) == [(1, 1)]
        assert failed("demo", demo, failures) == [(1, 0)]


def test_each_event_can_be_traced(place: Place) -> None:
    lines: list[str] = []

    async def work(provider: LanguageModelChatProvider) -> None:
        await respond(provider, user("Secret"))

    run(place, work, trace=lines.append)
    assert lines[0] == "0 response.created -> nothing"
    assert any(line.endswith("response.output_text.delta -> LanguageModelTextPart") for line in lines)
    assert "Secret" not in "".join(lines)


def test_what_can_not_be_read_is_named(place: Place) -> None:
    async def work(provider: LanguageModelChatProvider) -> None:
        for messages, param in (([], "messages"), ([{"role": 9, "content": ""}], "messages[0].role")):
            with pytest.raises(InvalidRequestError) as caught:
                await respond(provider, *messages)
            assert caught.value.param == param

    run(place, work)


def test_the_program_of_the_page_runs(demo: str) -> None:
    (block,) = (block for block in blocks_of("docs/streams.md") if block.language == "py")
    program = f"async def page(progress, cancel):\n{textwrap.indent(block.code, '    ')}\n    return result"
    defined: dict[str, Any] = {}
    exec(compile(program.replace("http://127.0.0.1:8080", demo), block.page, "exec"), defined)
    shown = Shown()

    async def main() -> StreamResult:
        return await defined["page"](shown, None)

    assert asyncio.run(main()).finish_reason == "stop"
    assert shown.text
