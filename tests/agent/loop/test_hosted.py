"""Tools that the model's server runs, in a loop: their items, requests for approval, what a text cites."""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pytest

from openresponses_agent.loop import (
    AskApproval,
    AskModel,
    CallEnded,
    CallsBegun,
    JournalError,
    LoopEnd,
    LoopState,
    LoopView,
    ModelAnswer,
    RoundMade,
    ToolStatus,
    decode_entries,
)
from openresponses_agent.prompt import (
    PromptContext,
    create_capi_request_body,
    create_responses_request_body,
)
from openresponses_agent.prompt.bodies import create_anthropic_request_body
from openresponses_agent.prompt.summary import SummaryRequest, condense
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.hosted import work_of
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.unknown import OURS, UnknownItem
from tests.support.loops import TOOLS, Driven, driven, lines
from tests.support.machines import counting_ids

MCP = {"type": "mcp", "server_label": "weather"}
LISTED = {"type": "mcp_list_tools", "server_label": "weather", "tools": [{"name": "get_forecast"}]}
CALLED: dict[str, Any] = {
    "type": "mcp_call",
    "server_label": "weather",
    "name": "get_forecast",
    "arguments": '{"city":"Oslo"}',
    "output": "Rain",
    "error": None,
    "status": "completed",
}
SEARCHED: dict[str, Any] = {
    "type": "web_search_call",
    "status": "completed",
    "action": {
        "type": "search",
        "query": "rain",
        "sources": [{"type": "url", "url": "https://example.com/rain"}],
    },
}
HOSTILE = "\x1b]0;owned\x07\u202e<script>"


def asked(number: int = 1, **fields: Any) -> dict[str, Any]:
    item = {"type": "mcp_approval_request", "id": f"mcpr_{number}", "server_label": "weather"}
    return {**item, "name": "get_forecast", "arguments": '{"city":"Oslo"}', **fields}


def stream(
    *items: dict[str, Any],
    text: str = "",
    cites: Iterable[tuple[str, str]] = (),
    wire: str = "openai",
    calls: Iterable[tuple[str, str, str]] = (),
    reason: str = "stop",
    limit: int | None = None,
) -> list[Event]:
    """What the machine makes of an answer with these items, each announced before it is done."""
    request = CreateResponse(model="m", max_tool_calls=limit)
    machine = ResponseStreamStateMachine("m", request, ids=counting_ids(), clock=lambda: 0, wire=wire)
    events = machine.start()
    numbers = count(1)
    for item in items:
        whole = {"id": f"hosted_{next(numbers)}", **item}
        begun = {**whole, "status": "in_progress", "output": None, "error": None}
        events += machine.item_added(begun if item["type"].endswith("_call") else whole)
        events += machine.item(whole)
    if text:
        events += machine.text(text)
    for url, title in cites:
        citation = {"type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": 1}
        events += machine.annotation(citation)
    for index, (call_id, name, arguments) in enumerate(calls):
        events += machine.tool_call(index, call_id, name, arguments)
    return events + machine.finish(reason)


def drive(
    made: Driven, answers: Iterable[list[Event] | ModelAnswer], decide: Callable[[Any], bool] = lambda _: True
) -> Any:
    """Drive a loop over streams; the calls of its own tools are not run."""
    coming, steps, outcome = iter(answers), made.loop.run(), None
    while True:
        try:
            action = steps.send(outcome)
        except StopIteration as end:
            return end.value
        made.actions.append(action)
        outcome = None
        if isinstance(action, AskModel):
            outcome = answer = next(coming)
            if not isinstance(answer, ModelAnswer):
                reader = action.reader()
                for event in answer:
                    reader.feed(event)
                outcome = reader.close()
        elif isinstance(action, AskApproval):
            outcome = decide(action.request)


def hosted_loop(**options: Any) -> Driven:
    context = PromptContext(query="Rain?", tools=TOOLS, hosted_tools=[MCP])
    return driven("", context=context, **options)


def body(made: Driven, at: int = -1) -> dict[str, Any]:
    return create_responses_request_body(made.prompts[at].prompt, "m")


def sent(made: Driven, at: int = -1) -> list[tuple[Any, ...]]:
    """What the items of a request are, beyond the messages."""
    return [
        (item["type"], item.get("approve"), item.get("reason"))
        for item in body(made, at)["input"]
        if item.get("type") != "message"
    ]


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_items_of_the_servers_tools_go_back_and_are_shown(wire: str) -> None:
    view = LoopView(clock=iter([0.0, 0.0, 1.5, 1.5, 3.0, 3.0]).__next__)
    done: list[Any] = []

    def show(item: UnknownItem, is_done: bool) -> None:
        element = view.hosted(item, is_done)
        assert element is not None
        assert element.status is (ToolStatus.COMPLETE if is_done else ToolStatus.RUNNING)
        done.extend([element] if is_done else [])

    made = hosted_loop(hosted_cb=show)
    slug = "openai:" if wire == "openresponses" else ""
    first = stream(LISTED, CALLED, text="Let me look.", calls=[("c1", "look", "{}")], wire=wire)
    result = drive(made, [first, stream(SEARCHED, text="Rain.", wire=wire)])
    assert result.end is LoopEnd.DONE
    assert [(each.name, each.runner, each.result) for each in done] == [
        ("mcp_list_tools", "weather", "get_forecast"),
        ("get_forecast", "weather", "Rain"),
        ("web_search", "", "https://example.com/rain"),
    ]
    assert [each.seconds for each in done] == [0.0, 0.0, 0.0]
    assert [kind for kind, *_ in sent(made)] == [
        f"{slug}mcp_list_tools",
        f"{slug}mcp_call",
        "function_call",
        "function_call_output",
    ]
    assert body(made)["tools"][-1] == MCP
    again = LoopView()
    for entry in decode_entries(lines(made.entries)):
        again.entry(entry)
    assert [[each.name for each in made.elements] for made in again.rounds] == [
        ["mcp_list_tools", "get_forecast", "look"],
        ["web_search"],
    ]


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_an_approval_is_asked_for_sent_once_and_its_call_shown(wire: str) -> None:
    driver = hosted_loop()
    ran = {**CALLED, "id": "mcp_1", "approval_request_id": "mcpr_1"}
    requests: list[Any] = []

    def decide(request: Any) -> bool:
        requests.append(request)
        return True

    result = drive(driver, [stream(asked(), wire=wire), stream(ran, text="Rain.", wire=wire)], decide)
    assert result.end is LoopEnd.DONE
    (request,) = requests
    assert (request.server_label, request.name, request.arguments) == (
        "weather",
        "get_forecast",
        '{"city":"Oslo"}',
    )
    assert [each[:2] for each in sent(driver)] == [
        (f"{'openai:' if wire == 'openresponses' else ''}mcp_approval_request", None),
        ("mcp_approval_response", True),
    ]
    kinds = [type(each) for each in driver.entries[1:-1]]
    assert kinds == [RoundMade, CallsBegun, CallEnded, RoundMade]
    view = LoopView()
    for entry in driver.entries:
        view.entry(entry)
    ((element,), (call,)) = [each.elements for each in view.rounds]
    assert (element.status, element.runner, call.result) == (ToolStatus.APPROVED, "weather", "Rain")


def test_a_declined_call_is_answered_with_the_reason() -> None:
    driver = hosted_loop()
    result = drive(driver, [stream(asked()), stream(text="Then not.")], lambda _: False)
    assert result.end is LoopEnd.DONE
    assert sent(driver)[-1] == (
        "mcp_approval_response",
        False,
        "Error: Not allowed - the user declined this call",
    )


@pytest.mark.parametrize("stop", range(1, 5))
def test_what_a_stopped_process_approved_is_never_sent_again(stop: int) -> None:
    """After each entry of a run the process stops; the next one goes on from the journal."""
    driver = hosted_loop()
    ran = {**CALLED, "id": "mcp_1", "approval_request_id": "mcpr_1"}
    drive(driver, [stream(asked()), stream(ran, text="Rain.")])
    entries = list(decode_entries(lines(driver.entries[: stop + 1])))
    resumed = hosted_loop(entries=entries)
    questions: list[Any] = []
    drive(resumed, [stream(text="I looked.")] * 2, lambda request: bool(questions.append(request)))
    approved = any(isinstance(each, RoundMade) and each.round.response for each in entries)
    assert questions == []
    if approved:
        assert resumed.prompts == []
        return
    (decision,) = [each for each in sent(resumed) if each[0] == "mcp_approval_response"]
    assert decision[1] is False
    assert ("may have had its effect" in decision[2]) is (stop == 3)


def test_a_call_that_ran_stays_approved_in_later_requests_of_another_process() -> None:
    driver = hosted_loop()
    ran = {**CALLED, "id": "mcp_1", "approval_request_id": "mcpr_1"}
    drive(driver, [stream(asked()), stream(ran, text="Rain.")])
    context = PromptContext(query="And now?", tools=TOOLS, hosted_tools=[MCP])
    later = driven("", context=context, entries=decode_entries(lines(driver.entries)))
    drive(later, [stream(text="Sun.")])
    assert [each[:2] for each in sent(later)] == [
        ("mcp_approval_request", None),
        ("mcp_approval_response", True),
        ("mcp_call", None),
    ]


@pytest.mark.parametrize(
    "requests",
    [
        [asked(), asked(arguments='{"city":"/etc"}')],
        [asked(id="")],
        [asked(name=7)],
    ],
    ids=["twice the same id", "no id", "no name"],
)
def test_a_request_that_no_decision_can_be_for_is_not_asked_about(requests: list[dict[str, Any]]) -> None:
    driver = hosted_loop()
    questions: list[Any] = []
    answer = ModelAnswer("I ask.", [], [], items=requests)  # the machine would give them other ids
    drive(driver, [answer, stream(text="Done.")], lambda request: not questions.append(request))
    assert [each.arguments for each in questions] == [
        each["arguments"] for each in requests[:1] if each["id"] and each["name"] == "get_forecast"
    ]
    assert len(driver.loop.diagnostics.of("warning")) == 1


def test_an_approval_of_an_earlier_round_is_not_asked_for_again_nor_given() -> None:
    """A server that repeats an id with other arguments gets no second decision."""
    driver = hosted_loop()
    questions: list[Any] = []
    second = stream(asked(arguments='{"city":"/etc"}'), text="Again.")
    drive(driver, [stream(asked()), second], lambda request: not questions.append(request))
    assert [each.arguments for each in questions] == ['{"city":"Oslo"}']
    assert [entry.round.approvals for entry in driver.entries if isinstance(entry, RoundMade)][1] == []


def test_requests_of_an_answer_that_was_cut_are_not_asked_about() -> None:
    driver = hosted_loop()
    result = drive(driver, [stream(asked(), text="I", reason="length")])
    assert result.end is LoopEnd.INCOMPLETE
    assert not any(isinstance(each, AskApproval) for each in driver.actions)


def test_an_id_of_a_server_can_not_pass_for_a_call_of_ours() -> None:
    driver = hosted_loop()
    first = stream(asked(id="internal_call_001"), calls=[("c1", "look", "{}")])
    drive(driver, [first, stream(text="Done.")])
    state = LoopState(driver.entries)
    assert sorted(state.results) == ["approval_internal_call_001", "internal_call_001"]
    assert state.results["internal_call_001"].is_error  # it was not run, whatever was approved


def test_what_a_text_cites_is_kept_once_and_how_often_tools_may_be_called() -> None:
    driver = hosted_loop()
    cites = [("https://a.example/", "A"), ("https://b.example/", HOSTILE), ("https://a.example/", "again")]
    drive(driver, [stream(SEARCHED, CALLED, text="See.", cites=cites, limit=2)])
    (entry,) = [each for each in driver.entries if isinstance(each, RoundMade)]
    assert [(each.url, each.title) for each in entry.round.citations] == [
        ("https://a.example/", "A"),
        ("https://b.example/", HOSTILE),
    ]
    assert entry.round.max_tool_calls == 2
    below = hosted_loop()
    drive(below, [stream(SEARCHED, LISTED, text="See.", limit=2)])
    (entry,) = [each for each in below.entries if isinstance(each, RoundMade)]
    assert entry.round.max_tool_calls is None


def test_other_apis_leave_the_items_out_and_say_so() -> None:
    driver = hosted_loop()
    drive(driver, [stream(CALLED, text="Hm.", calls=[("c1", "look", "{}")]), stream(text="Rain.")])
    for make in (create_capi_request_body, create_anthropic_request_body):
        notes = Diagnostics()
        more: Any = {"max_tokens": 9} if make is create_anthropic_request_body else {}
        text = str(make(driver.prompts[-1].prompt, "m", diagnostics=notes, **more))
        assert "mcp_call" not in text
        assert [each.where for each in notes.of("loss")] == ["content.opaque"]


def test_a_summary_says_what_the_servers_tools_gave() -> None:
    driver = hosted_loop()
    drive(driver, [stream(CALLED, SEARCHED, text="Hm.", calls=[("c1", "look", "{}")]), stream(text="Rain.")])
    text = condense(SummaryRequest(driver.prompts[-1].prompt.messages, "", 1000, 1))
    assert 'Tool get_forecast {"city":"Oslo"} returned: Rain' in text
    assert 'Tool web_search {"query":"rain"} returned: https://example.com/rain' in text


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {**CALLED, "output": None, "error": {"type": "x", "message": "down"}},
            ("get_forecast", None, "down"),
        ),
        (
            {**CALLED, "output": None, "error": {"content": [{"type": "text", "text": "down"}, 7]}},
            ("get_forecast", None, "down"),
        ),
        ({**CALLED, "output": None, "error": "down"}, ("get_forecast", None, "down")),
        ({**LISTED, "error": "no tools"}, ("mcp_list_tools", None, "no tools")),
        ({**SEARCHED, "status": "failed", f"{OURS}output": "down"}, ("web_search", None, "down")),
        (
            {**SEARCHED, "action": {"type": "open_page", "url": "https://a"}, f"{OURS}output": "text"},
            ("open_page", "text", None),
        ),
        ({"type": "file_search_call", "queries": ["a"]}, ("file_search", None, None)),
        ({"type": "openai:code_interpreter_call", "code": "1"}, ("code_interpreter", None, None)),
        ({**CALLED, "name": 7, "output": [1], "arguments": {"a": 1}}, ("mcp_call", None, None)),
        ({**LISTED, "tools": [7, {"name": 7}, {"name": "a"}]}, ("mcp_list_tools", "a", None)),
        ({**SEARCHED, "action": 7}, ("web_search", None, None)),
        ({**SEARCHED, "action": {"type": 7, "sources": [7, {"url": 7}]}}, ("web_search", "", None)),
    ],
)
def test_work_is_read_from_whatever_a_server_sends(item: dict[str, Any], expected: Any) -> None:
    work = work_of(UnknownItem({"id": "i", **item}))
    assert work is not None
    assert (work.name, work.result, work.error) == expected


def test_items_of_other_kinds_are_no_work() -> None:
    assert work_of(UnknownItem({"type": "acme:look"})) is None
    assert work_of(UnknownItem(asked())) is None
    assert work_of(UnknownItem({})) is None


def test_a_journal_with_a_request_for_approval_twice_is_none() -> None:
    driver = hosted_loop()
    drive(driver, [stream(asked()), stream(text="Done.")])
    begun, first, calls, ended, last, _ = driver.entries
    with pytest.raises(JournalError, match="line 5 has a request for approval whose id was used before"):
        LoopState([begun, first, calls, ended, first])
    with pytest.raises(JournalError, match="line 3 is a round before the calls of the last one have ended"):
        LoopState([begun, first, last])


def test_a_request_for_approval_is_not_shown_as_work() -> None:
    view = LoopView()
    assert view.hosted(UnknownItem(asked()), True) is None
    assert view.rounds == []
