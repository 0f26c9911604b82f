"""Random contexts → prompts: a prompt stays within the budget, keeps the whole system text and the whole
question, has a result for each call, and is the same again when its summary is kept."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_agent.prompt import (
    Attachment,
    BuildPromptResult,
    GlobalContext,
    PromptBudgetError,
    PromptContext,
    PromptRenderer,
    Reference,
    SummaryRequest,
    ThinkingDataItem,
    ThinkingPart,
    ToolCall,
    ToolCallRound,
    Turn,
    anthropic_messages_to_raw_messages,
    api_messages_to_anthropic,
    budget_passed,
    capi_to_raw_messages,
    condense,
    create_anthropic_request_body,
    create_capi_request_body,
    input_items_to_raw_messages,
    raw_messages_to_capi,
    raw_messages_to_input_items,
    share_passed,
)
from openresponses_agent.prompt.raw import ChatMessage, parts_of, text_of
from openresponses_agent.prompt.summary import PromptCounter
from openresponses_agent.tools.results import LanguageModelToolResult, ToolResultDataPart, ToolResultTextPart
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.models.tokens import TokenCounter, TokenEstimator
from openresponses_bridge.seal import Sealer
from tests.support import anthropic_rules, chat_rules
from tests.support.prompts import EDIT_FILE, PIXEL, Characters, everything
from tests.support.scale import FACTOR

WORDS = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=12)
TEXTS = st.one_of(
    WORDS,
    st.builds(lambda text, times: text * times, WORDS, st.sampled_from([1, 10, 200])),
    st.sampled_from(["", " ", "```", "</conversation-summary>", "字" * 300]),
)
SAID = TEXTS.filter(str.strip)
RESULTS = st.builds(
    LanguageModelToolResult,
    st.lists(
        st.one_of(
            st.builds(ToolResultTextPart, TEXTS),
            st.builds(
                ToolResultDataPart, st.binary(max_size=9), st.sampled_from(["image/png", "text/x", "a/b"])
            ),
        ),
        max_size=3,
    ),
    st.booleans(),
)
THOUGHTS = st.builds(
    ThinkingDataItem,
    WORDS,
    parts=st.lists(
        st.sampled_from(
            [ThinkingPart("hm", signature="c2ln"), ThinkingPart(redacted="cmVk"), ThinkingPart("a")]
        ),
        max_size=2,
    ),
)
COUNTERS: list[TokenCounter] = [Characters(), TokenEstimator()]


@st.composite
def rounds(draw: Any, name: str) -> tuple[list[ToolCallRound], dict[str, LanguageModelToolResult]]:
    """Rounds with ids that models repeat, and results for most of their calls."""
    result, results = [], {}
    for number in range(draw(st.integers(0, 4))):
        calls = []
        for index in range(draw(st.integers(0, 3))):
            own = f"{name}_{number}_{index}"
            call_id = draw(st.sampled_from(["", "call_1", "call_2", "call_1_2", own]))
            calls.append(
                ToolCall(own, "look", draw(st.sampled_from(["{}", '{"a":"' + "b" * 90 + '"}'])), call_id)
            )
            if draw(st.integers(0, 9)):
                results[own] = draw(RESULTS)
        thinking = draw(st.one_of(st.none(), THOUGHTS))
        result.append(ToolCallRound(prompt=[], response=draw(TEXTS), tool_calls=calls, thinking=thinking))
    return result, results


@st.composite
def attached(draw: Any) -> dict[str, Any]:
    attachment = st.builds(
        lambda name, text, image: Attachment(name=name, text=text, image=image),
        WORDS,
        TEXTS,
        st.sampled_from([None, None, PIXEL]),
    )
    return {
        "attachments": draw(st.lists(attachment, max_size=2)),
        "references": draw(st.lists(st.builds(Reference, SAID, TEXTS), max_size=2)),
    }


@st.composite
def contexts(draw: Any) -> PromptContext:
    history = []
    for number in range(draw(st.integers(0, 4))):
        call_rounds, results = draw(rounds(f"h{number}"))
        turn = Turn(
            query=draw(TEXTS), rounds=call_rounds, results=results, response=draw(TEXTS), **draw(attached())
        )
        history.append(turn)
    call_rounds, results = draw(rounds("now"))
    return PromptContext(
        system=draw(st.lists(TEXTS, max_size=3)),
        global_context=GlobalContext(workspace_root=draw(WORDS), notes=draw(st.lists(WORDS, max_size=1))),
        query=draw(SAID),
        history=history,
        tool_call_rounds=call_rounds,
        tool_call_results=results,
        tools=draw(st.sampled_from([[], [EDIT_FILE]])),
        **draw(attached()),
    )


SUMMARIZERS = [
    condense,
    lambda request: "",
    lambda request: "long " * 5000,
    lambda request: "".join(text_of(each.content) for each in request.messages),
]
OPTIONS = st.fixed_dictionaries(
    {
        "max_prompt_tokens": st.one_of(st.integers(1, 400), st.integers(400, 20_000)),
        "trigger": st.sampled_from([budget_passed, share_passed(0.3), lambda *_: True]),
        "summarizer": st.sampled_from(SUMMARIZERS),
        "keep_share": st.sampled_from([0.0, 0.5, 1.0]),
        "summary_share": st.sampled_from([0.0, 0.125, 1.0]),
        "supports_images": st.booleans(),
        "cache_breakpoints": st.booleans(),
        "history_thinking": st.booleans(),
    }
)


def check_calls(messages: list[ChatMessage]) -> None:
    """Assert that each call is answered once, immediately after its message, and that there are no other
    answers."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            assert waiting
            assert message.tool_call_id == waiting.pop(0)
            continue
        assert not waiting
        waiting = [call.id for call in message.tool_calls or ()]
        assert not seen.intersection(waiting)
        assert len(set(waiting)) == len(waiting)
        seen.update(waiting)
    assert not waiting


def check_texts(result: BuildPromptResult, context: PromptContext) -> None:
    """Assert that system text and question are complete; the system text is one message, the first."""
    roles = [message.role for message in result.messages]
    system = [text for text in [*context.system, context.global_context.text()] if text.strip()]
    assert "system" not in roles[1:]
    assert (roles[0] == "system") == bool(system)
    if system:
        assert text_of(result.messages[0].content) == "\n\n".join(system)
    questions = [part for each in result.messages if each.role == "user" for part in parts_of(each.content)]
    assert any(getattr(part, "text", None) == context.query for part in questions)


def least_of(context: PromptContext, counter: TokenCounter) -> int:
    """The approximate size of the parts that can't be cut: system text, tools, question, images and notes of
    cuts."""
    alone = PromptContext(
        query=context.query, system=context.system, global_context=context.global_context, tools=context.tools
    )
    images = sum(each.image is not None for each in context.attachments)
    notes = 100 * (len(context.attachments) + len(context.references))
    return PromptRenderer(counter).render(alone).token_count + 1200 * images + notes


@settings(max_examples=80 * FACTOR)
@given(contexts(), OPTIONS, st.sampled_from(COUNTERS))
def test_laws_of_a_prompt(context: PromptContext, options: dict[str, Any], counter: TokenCounter) -> None:
    renderer = PromptRenderer(counter, **options)
    counts = PromptCounter(counter, "")
    try:
        result = renderer.render(context)
    except PromptBudgetError:
        assert least_of(context, counter) > options["max_prompt_tokens"]
        return
    assert result.token_count <= options["max_prompt_tokens"]
    assert result.token_count == counts.request(context.tools) + counts.messages(result.messages)
    check_calls(result.messages)
    check_texts(result, context)
    replayed = renderer.render(context if result.summary is None else context.with_summary(result.summary))
    assert replayed == result


def calls_of(messages: list[ChatMessage]) -> list[str]:
    return [message.tool_call_id or "" for message in messages if message.role == "tool"]


@settings(max_examples=25 * FACTOR)
@given(contexts(), st.integers(300, 5000))
def test_what_stays_of_a_conversation_is_its_end(context: PromptContext, most: int) -> None:
    try:
        messages = PromptRenderer(Characters(), max_prompt_tokens=most).render(context).messages
    except PromptBudgetError:
        return
    every = PromptRenderer(Characters()).render(context).messages
    assert calls_of(messages) == calls_of(every)[len(calls_of(every)) - len(calls_of(messages)) :]
    (answers, all_said) = ([each for each in some if each.role == "assistant"] for some in (messages, every))
    assert answers == all_said[len(all_said) - len(answers) :]


def in_blocks(body: dict[str, Any]) -> dict[str, Any]:
    """The body with texts as blocks, where the API takes both forms."""

    def blocks(content: Any) -> list[Any]:
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    def opened(block: dict[str, Any]) -> dict[str, Any]:
        return block | {"content": blocks(block["content"])} if "content" in block else block

    messages = [each | {"content": [*map(opened, each["content"])]} for each in body["messages"]]
    return body | {"messages": messages, "system": blocks(body.get("system", []))}


@settings(max_examples=40 * FACTOR)
@given(contexts(), OPTIONS)
def test_a_prompt_is_a_request_that_each_api_takes(context: PromptContext, options: dict[str, Any]) -> None:
    renderer = PromptRenderer(Characters(), **(options | {"max_prompt_tokens": 20_000}))
    try:
        result = renderer.render(context)
    except PromptBudgetError:
        return
    chat = create_capi_request_body(result, "m", reasoning_field="reasoning_content")
    # earlier calls may be of tools that are no longer offered
    assert chat_rules.violations({"model": "m", "messages": chat["messages"]}) == []
    anthropic = create_anthropic_request_body(result, "m", max_tokens=100)
    assert anthropic_rules.violations(in_blocks(anthropic)) == []
    items = raw_messages_to_input_items(result.messages, sealer=Sealer())
    check_calls(input_items_to_raw_messages(items))


@settings(max_examples=25 * FACTOR)
@given(contexts(), st.integers(300, 5000))
def test_a_summary_by_a_model_takes_the_place_of_what_was_asked_for(
    context: PromptContext, most: int
) -> None:
    renderer = PromptRenderer(Characters(), max_prompt_tokens=most)
    requests: list[SummaryRequest] = []

    def kept(request: SummaryRequest) -> str:
        requests.append(request)
        return "s"

    try:
        request = renderer.summary_request(context)
        PromptRenderer(Characters(), max_prompt_tokens=most, summarizer=kept).render(context)
    except PromptBudgetError:
        return
    assert requests == ([] if request is None else [request])


# ── messages from other sources ────────────────────────────────────────────────────────────────────────
def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all values within this one."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from paths(each, (*path, key))


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


CHAT_BODY = create_capi_request_body(
    PromptRenderer(Characters()).render(everything()), "m", cache_control=True, reasoning_field="reasoning"
)
ANTHROPIC_BODY = create_anthropic_request_body(
    PromptRenderer(Characters(), cache_breakpoints=True, history_thinking=True).render(everything()),
    "m",
    max_tokens=1,
)
READERS: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], list[ChatMessage]]]] = {
    "chat": (CHAT_BODY, lambda body: capi_to_raw_messages(body["messages"])),
    "anthropic": (
        ANTHROPIC_BODY,
        lambda body: anthropic_messages_to_raw_messages(body["messages"], body["system"]),
    ),
}
PLACES = {
    name: [path for path in paths(body) if len(path) > 1 and path[0] in ("messages", "system")]
    for name, (body, _) in READERS.items()
}
VALUES = st.sampled_from(
    [None, True, -1, 1e300, 10**400, "", "x", "\ud800", [], [1], [[]], {}, {"type": 1}, {"a": 10**30}]
)


@pytest.mark.parametrize("name", READERS)
def test_a_message_with_a_value_of_any_kind_is_read_or_refused_by_its_place(name: str) -> None:
    body, read = READERS[name]

    @settings(max_examples=80 * FACTOR)
    @given(st.sampled_from(PLACES[name]), VALUES)
    def check(path: tuple[str | int, ...], value: Any) -> None:
        changed = deepcopy(body)
        at(changed, path[:-1])[path[-1]] = value
        try:
            messages = read(changed)
        except InvalidRequestError as error:
            place = error
        else:
            raw_messages_to_capi(messages)
            api_messages_to_anthropic(messages)
            raw_messages_to_input_items(messages)
            return
        assert (place.param or "").startswith((str(path[0]), f"{path[0]}["))

    check()


@pytest.mark.parametrize("most", [801, 811, 824, 826])
def test_what_a_summary_leaves_of_its_room_is_the_rest_s(most: int) -> None:
    """With the same summary in the context, the prompt is the same."""
    context = PromptContext(
        query="0",
        references=[Reference("0", "0A" * 100), Reference("0", "00A" * 300)],
        tool_call_rounds=[
            ToolCallRound(
                prompt=[],
                response="",
                tool_calls=[ToolCall(f"{number}_{index}", "look", "{}", "") for index in range(count)],
            )
            for number, count in enumerate((1, 3, 0))
        ],
        tools=[EDIT_FILE],
    )
    options: dict[str, Any] = {"keep_share": 0.0, "summary_share": 0.125, "trigger": budget_passed}
    renderer = PromptRenderer(TokenEstimator(), max_prompt_tokens=most, summarizer=condense, **options)
    result = renderer.render(context)
    assert result.summary is not None
    assert renderer.render(context.with_summary(result.summary)) == result
