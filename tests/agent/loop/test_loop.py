"""The core of the loop: rounds, limits, retries, cancellation, going on from a journal."""

from typing import Any

import pytest

from openresponses_agent.loop import (
    AnswerReader,
    AskModel,
    AskUser,
    CallEnded,
    CallsBegun,
    JournalError,
    LoopBegun,
    LoopEnd,
    LoopError,
    LoopState,
    ModelAnswer,
    ModelFailure,
    RoundMade,
    RunToolCalls,
    ToolCall,
    ToolCallingLoop,
    ToolCallLimitBehavior,
    ToolCallRound,
    decode_entries,
    encode_entry,
)
from openresponses_agent.loop.answer import CUT
from openresponses_agent.loop.loop import INTERRUPTED
from openresponses_agent.prompt import PromptContext, PromptRenderer
from openresponses_agent.prompt.raw import ChatMessage
from openresponses_agent.tools.errors import CancellationToken, ToolCallCancelledError
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.errors import HttpError
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.usage import Usage
from tests.support.loops import TOOLS, Answer, driven, failing, lines, overloaded, read, succeed

LOOK = ("c1", "look", {"value": "a"})
CHANGE = ("c2", "change", {"value": "b"})
CALLING = Answer("Let me.", [CHANGE])
DONE = Answer("Done.")


def texts(messages: list[ChatMessage]) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in messages]


def test_a_question_without_calls_is_one_round() -> None:
    driver = driven()
    result = driver.drive([DONE])
    assert (result.end, result.response, result.message) == (LoopEnd.DONE, "Done.", "")
    assert [round_.tool_calls for round_ in result.tool_call_rounds] == [[]]
    assert texts(driver.prompts[0].prompt.messages) == [("system", "You are a test."), ("user", "Do it")]
    assert driver.prompts[0].prompt.tools == TOOLS


def test_results_go_back_under_the_models_ids_and_are_kept_under_ours() -> None:
    driver = driven()
    result = driver.drive([Answer("Let me.", [LOOK, CHANGE]), DONE])
    first = result.tool_call_rounds[0]
    assert [(call.id, call.call_id, call.name) for call in first.tool_calls] == [
        ("internal_call_001", "c1", "look"),
        ("internal_call_002", "c2", "change"),
    ]
    assert list(result.tool_call_results) == ["internal_call_001", "internal_call_002"]
    assert first.timestamp == 1_700_000_000_500
    last = driver.prompts[1].prompt.messages
    assert [call.id for call in last[2].tool_calls or ()] == ["c1", "c2"]
    assert [(message.tool_call_id, message.content) for message in last[3:]] == [
        ("c1", 'did look {"value": "a"}'),
        ("c2", 'did change {"value": "b"}'),
    ]


def test_an_id_that_the_model_uses_in_two_rounds_is_two_calls() -> None:
    driver = driven()
    result = driver.drive([Answer(calls=[LOOK]), Answer(calls=[LOOK]), DONE])
    assert driver.ran == ["internal_call_001", "internal_call_002"]
    assert len(result.tool_call_results) == 2


def test_only_calls_that_are_declared_safe_run_side_by_side() -> None:
    driver = driven()
    looks = [(f"l{number}", "look", {}) for number in range(3)]
    driver.drive([Answer(calls=[*looks, CHANGE, ("c3", "change", {}), ("l9", "look", {})]), DONE])
    batches = [[call.call_id for call in a.calls] for a in driver.actions if isinstance(a, RunToolCalls)]
    assert batches == [["l0", "l1", "l2"], ["c2"], ["c3"], ["l9"]]


@pytest.mark.parametrize(
    ("behavior", "consents", "end", "rounds", "questions"),
    [
        (ToolCallLimitBehavior.STOP, [], LoopEnd.LIMIT, 2, 0),
        (ToolCallLimitBehavior.CONFIRM, [False], LoopEnd.LIMIT, 2, 1),
        (ToolCallLimitBehavior.CONFIRM, [True, False], LoopEnd.LIMIT, 4, 2),
        (ToolCallLimitBehavior.CONFIRM, [True, True], LoopEnd.DONE, 6, 2),
    ],
)
def test_the_limit_stops_or_asks(
    behavior: ToolCallLimitBehavior, consents: list[bool], end: LoopEnd, rounds: int, questions: int
) -> None:
    driver = driven(tool_call_limit=2, limit_behavior=behavior)
    result = driver.drive([*[CALLING] * 5, DONE], consents=consents)
    assert (result.end, len(result.tool_call_rounds)) == (end, rounds)
    assert result.message == ("Tool call limit reached" if end is LoopEnd.LIMIT else "")
    assert sum(isinstance(action, AskUser) for action in driver.actions) == questions
    ran = sum(len(each.tool_calls) for each in result.tool_call_rounds)
    assert len(result.tool_call_results) == len(driver.ran) == ran


@pytest.mark.parametrize(
    ("behavior", "consents", "end"),
    [
        (ToolCallLimitBehavior.STOP, [], LoopEnd.LIMIT),
        (ToolCallLimitBehavior.CONFIRM, [True], LoopEnd.DONE),
    ],
)
def test_a_loop_that_stopped_at_its_limit_asks_again_when_it_is_resumed(
    behavior: ToolCallLimitBehavior, consents: list[bool], end: LoopEnd
) -> None:
    first = driven(tool_call_limit=1, limit_behavior=ToolCallLimitBehavior.STOP)
    first.drive([CALLING])
    again = driven(entries=first.entries, tool_call_limit=1, limit_behavior=behavior)
    assert again.drive([DONE], consents=consents).end is end
    assert again.ran == []


def test_the_callback_sees_text_calls_that_begin_and_whole_calls() -> None:
    seen: list[tuple[str, Any]] = []

    def finished_cb(text: Any, index: int, delta: Any) -> None:
        assert index == 0
        seen.append((str(text), delta))

    driven(finished_cb=finished_cb).drive([Answer("I look.", [LOOK], thinking="Hm."), DONE])
    begun = [delta.begin_tool_calls[0].name for _, delta in seen if delta.begin_tool_calls]
    whole = [call.arguments for _, delta in seen for call in delta.copilot_tool_calls or ()]
    assert (begun, whole) == (["look"], ['{"value": "a"}'])
    assert next(index for index, (_, delta) in enumerate(seen) if delta.begin_tool_calls) < next(
        index for index, (_, delta) in enumerate(seen) if delta.copilot_tool_call_stream_updates
    )
    assert [text for text, _ in seen][-1] == "Done."
    assert "".join(d.thinking.text or "" for _, d in seen if d.thinking) == "Hm."


def test_the_callback_may_stop_the_reading_and_no_call_is_made() -> None:
    driver = driven(finished_cb=lambda text, index, delta: 6 if "two" in str(text) else None)
    result = driver.drive([Answer("one two three four", [CHANGE])])
    assert (result.end, result.response, driver.ran) == (LoopEnd.TRIMMED, "one tw", [])
    assert driven(entries=driver.entries).drive([]).end is LoopEnd.TRIMMED


def test_an_interrupted_stream_is_asked_for_again_and_its_calls_never_run() -> None:
    shown: list[Any] = []
    driver = driven(finished_cb=lambda text, index, delta: shown.append(delta), retry_delay=0.5)
    result = driver.drive([Answer("Let me.", [CHANGE], cut=True), Answer("Again.", [LOOK]), DONE])
    assert result.end is LoopEnd.DONE
    assert [call.name for round_ in result.tool_call_rounds for call in round_.tool_calls] == ["look"]
    assert driver.ran == ["internal_call_001"]
    assert [(ask.round_index, ask.attempt, ask.delay) for ask in driver.prompts] == [
        (0, 0, 0),
        (0, 1, 0.5),
        (1, 0, 0),
    ]
    assert sum(delta.retry_reason is not None for delta in shown) == 1
    (warning,) = driver.loop.diagnostics
    assert warning.where == "rounds[0]"
    assert "ended before it was whole" in warning.what


def test_arguments_that_end_before_their_json_does_count_as_an_interruption() -> None:
    driver = driven()
    result = driver.drive([Answer(calls=[("c1", "change", '{"value": "b')]), DONE])
    assert (result.end, driver.ran, len(driver.prompts)) == (LoopEnd.DONE, [], 2)


@pytest.mark.parametrize(
    ("answers", "code", "attempts"),
    [
        ([Answer(error=overloaded())] * 3, "server_is_overloaded", 3),
        ([Answer(error=HttpError(401, "who are you?"))], "invalid_api_key", 1),
        (
            [Answer(error=HttpError(502, "too long", code="context_length_exceeded"))],
            "context_length_exceeded",
            1,
        ),
        ([Answer("a", cut=True)] * 3, CUT, 3),
    ],
)
def test_a_failure_ends_the_loop_with_its_error(answers: list[Answer], code: str, attempts: int) -> None:
    driver = driven()
    result = driver.drive(answers)
    assert result.end is LoopEnd.FAILED
    assert result.error is not None
    assert (result.error.code, len(driver.prompts), result.tool_call_rounds) == (code, attempts, [])
    assert result.as_json()["error"]["code"] == code
    assert driven(entries=driver.entries).drive([DONE]).end is LoopEnd.DONE


def test_delays_between_attempts_double_up_to_a_bound() -> None:
    driver = driven(retries=7, retry_delay=1.0)
    driver.drive([Answer(error=overloaded())] * 8)
    assert [ask.delay for ask in driver.prompts] == [0, 1, 2, 4, 8, 16, 30, 30]


def test_an_empty_answer_is_warned_of_and_asked_for_once_more() -> None:
    driver = driven()
    assert driver.drive([Answer(), DONE]).end is LoopEnd.DONE
    assert [str(each) for each in driver.loop.diagnostics] == [
        "warning: rounds[0]: the model's answer was empty; asked again"
    ]
    silent = driven()
    result = silent.drive([Answer(" "), Answer()])
    assert (result.end, result.tool_call_rounds) == (LoopEnd.EMPTY, [])


def test_an_answer_that_was_cut_is_not_done_and_runs_nothing() -> None:
    driver = driven()
    result = driver.drive([Answer("So far", [CHANGE], reason="length")])
    assert (result.end, result.response, driver.ran) == (LoopEnd.INCOMPLETE, "So far", [])
    assert "max_output_tokens" in result.message
    assert driven(entries=driver.entries[:-1]).drive([]).end is LoopEnd.INCOMPLETE


def test_an_empty_prompt_makes_no_request() -> None:
    driver = driven(query="", context=PromptContext(system=["You are a test."]))
    assert (driver.drive([]).end, driver.actions) == (LoopEnd.EMPTY_PROMPT, [])


def test_a_prompt_that_can_not_fit_fails_the_loop() -> None:
    driver = driven(query="word " * 500, renderer=PromptRenderer(max_prompt_tokens=50))
    result = driver.drive([])
    assert result.end is LoopEnd.FAILED
    assert result.error is not None


def test_the_stateful_marker_goes_into_the_next_request() -> None:
    driver = driven()
    result = driver.drive([Answer(calls=[LOOK], marker="ctx_1"), Answer(calls=[LOOK]), DONE])
    assert [ask.stateful_marker for ask in driver.prompts] == [None, "ctx_1", None]
    assert [each.stateful_marker for each in result.tool_call_rounds] == ["ctx_1", None, None]
    ids = driven(stateful=True)
    ids.drive([Answer(calls=[LOOK]), DONE])
    assert ids.prompts[1].stateful_marker == ids.loop.tool_call_rounds[0].stateful_marker
    assert str(ids.prompts[1].stateful_marker).startswith("resp_")


def test_thinking_is_kept_with_its_round_and_carried_on() -> None:
    driver = driven()
    usage = Usage.of(10, 5, reasoning_tokens=3)
    result = driver.drive([Answer(calls=[LOOK], thinking="Look first.", usage=usage), DONE])
    thinking = result.tool_call_rounds[0].thinking
    assert thinking is not None
    assert (thinking.thinking, thinking.thinking_tokens, thinking.associated_round) == ("Look first.", 3, 0)
    assistant = driver.prompts[1].prompt.messages[2]
    assert [part.type for part in assistant.content if not isinstance(part, str)] == ["thinking"]


def test_usage_is_the_sum_of_all_attempts_of_all_rounds() -> None:
    driver = driven()
    result = driver.drive(
        [
            Answer(usage=Usage.of(10, 1)),
            Answer(calls=[LOOK], usage=Usage.of(10, 5)),
            Answer("Done.", usage=Usage.of(20, 2)),
        ]
    )
    assert result.usage is not None
    assert (result.usage.input_tokens, result.usage.output_tokens) == (40, 8)
    assert result.as_json()["usage"]["total_tokens"] == 48
    assert driven().drive([DONE]).usage is None


def test_failures_count_until_the_tool_succeeds() -> None:
    attempts = []
    driver = driven()

    def run(call: ToolCall) -> Any:
        attempts.append(driver.loop.retry_attempt(call))
        return failing(call) if len(attempts) in (1, 2, 4) else succeed(call)

    driver.drive([*[CALLING] * 5, DONE], run)
    assert attempts == [0, 1, 2, 0, 1]
    assert driver.loop.tool_call_results["internal_call_001"].is_error


# ── cancelling ─────────────────────────────────────────────────────────────────────────────────────
def test_cancelled_before_a_call_no_call_is_run_and_it_may_go_on_later() -> None:
    token = CancellationToken()
    driver = driven(token=token)
    steps = driver.loop.run()
    ask = next(steps)
    assert isinstance(ask, AskModel)
    outcome = read(ask, CALLING)
    token.cancel()
    with pytest.raises(StopIteration) as end:
        steps.send(outcome)
    result = end.value.value
    assert (result.end, result.tool_call_rounds) == (LoopEnd.CANCELLED, [])
    assert result.message == ToolCallCancelledError().message
    assert driven(entries=driver.entries).drive([DONE]).end is LoopEnd.DONE


def test_cancelled_within_a_batch_the_running_call_is_cancelled_and_the_next_not_begun() -> None:
    token = CancellationToken()
    driver = driven(token=token)

    def run(call: ToolCall) -> Any:
        token.cancel()
        return None

    result = driver.drive([Answer(calls=[CHANGE, ("c3", "change", {})])], run)
    assert result.end is LoopEnd.CANCELLED
    assert driver.ran == ["internal_call_001"]
    assert list(result.tool_call_results) == ["internal_call_001"]
    assert driver.loop.state.failures == {"internal_call_001": ToolCallCancelledError.CANCELLED}
    again = driven(entries=driver.entries)
    assert again.drive([DONE]).end is LoopEnd.DONE
    assert again.ran == ["internal_call_002"]


# ── going on ───────────────────────────────────────────────────────────────────────────────────────
def test_a_journal_read_from_its_lines_is_the_same() -> None:
    driver = driven()
    driver.drive([Answer("Let me.", [LOOK], thinking="Hm.", usage=Usage.of(3, 4)), DONE])
    assert list(decode_entries(lines(driver.entries))) == driver.entries
    kinds = [type(entry).__name__ for entry in driver.entries]
    assert kinds == ["LoopBegun", "RoundMade", "CallsBegun", "CallEnded", "RoundMade", "LoopEnded"]


def test_a_line_that_was_being_written_when_the_process_stopped_is_left_out() -> None:
    driver = driven()
    driver.drive([CALLING, DONE])
    data = lines(driver.entries)
    for cut in range(len(data)):
        entries = list(decode_entries(data[:cut]))
        assert entries == driver.entries[: len(entries)]
        assert len(entries) == data[:cut].count(b"\n")


def test_after_a_crash_at_any_entry_no_call_runs_twice_and_none_is_without_a_result() -> None:
    answers = [Answer("Let me.", [LOOK, CHANGE]), CALLING, DONE]
    whole = driven()
    whole.drive(answers)
    for length in range(len(whole.entries)):
        before = whole.entries[:length]
        begun = {each for entry in before if isinstance(entry, CallsBegun) for each in entry.ids}
        ended = {entry.id for entry in before if isinstance(entry, CallEnded)}
        rounds = sum(isinstance(entry, RoundMade) for entry in before)
        again = driven(entries=before)
        result = again.drive(answers[rounds:])
        assert result.end is LoopEnd.DONE
        assert not begun & {*again.ran}
        assert {*result.tool_call_results} == {f"internal_call_{n:03d}" for n in (1, 2, 3)}
        lost = {call_id for call_id, code in again.loop.state.failures.items() if code == INTERRUPTED}
        assert lost == begun - ended


def test_another_question_goes_on_from_the_first_ones_rounds() -> None:
    first = driven("Do it")
    first.drive([CALLING, Answer("Done.", usage=Usage.of(50, 5))])
    second = driven("And now?", entries=first.entries)
    result = second.drive([Answer(calls=[LOOK]), Answer("Then.", usage=Usage.of(10, 1))])
    assert result.usage == Usage.of(10, 1)
    assert texts(second.prompts[0].prompt.messages)[-1] == ("user", "And now?")
    assert ("user", "Do it") in texts(second.prompts[0].prompt.messages)
    assert [call.id for call in result.tool_call_rounds[0].tool_calls] == ["internal_call_002"]
    assert {*result.tool_call_results} == {"internal_call_002"}


def test_an_unanswered_question_goes_on_without_being_asked_again() -> None:
    first = driven("Do it")
    first.drive([Answer(error=HttpError(400, "no"))])
    second = driven("", entries=first.entries, context=PromptContext(tools=TOOLS))
    assert second.drive([DONE]).end is LoopEnd.DONE
    assert texts(second.prompts[0].prompt.messages) == [("user", "Do it")]


SUCCESS = succeed(ToolCall("i2", "look", "{}", "c1")).result
ROUND = RoundMade(ToolCallRound(prompt=[], response="", tool_calls=[ToolCall("i1", "look", "{}", "c1")]))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([ROUND], "line 1 comes before a question"),
        ([LoopBegun("q"), ROUND, ROUND], "line 3 has a call whose id was used before"),
        ([LoopBegun("q"), CallsBegun(["i1"])], "line 2 begins a call that is unknown"),
        ([LoopBegun("q"), ROUND, CallsBegun(["i1"]), CallsBegun(["i1"])], "line 4 begins a call"),
        (
            [LoopBegun("q"), ROUND, CallEnded("i2", SUCCESS)],
            "line 3 ends a call",
        ),
        (
            [LoopBegun("q"), ROUND, RoundMade(ToolCallRound(prompt=[], response="", tool_calls=[]))],
            "line 3 is a round before the calls",
        ),
    ],
)
def test_a_journal_that_contradicts_itself_is_refused(entries: list[Any], message: str) -> None:
    with pytest.raises(JournalError, match=message):
        LoopState(entries)


@pytest.mark.parametrize(
    "line", [b"{}", b"nonsense", b'{"type":"other"}', b'{"type":"begun"}', b"\xff", b"[" * 9_000]
)
def test_a_line_that_is_not_an_entry_is_named(line: bytes) -> None:
    data = encode_entry(LoopBegun("q")) + line + b"\n"
    with pytest.raises(JournalError, match="line 2 is not an entry"):
        list(decode_entries(data))


# ── misuse ─────────────────────────────────────────────────────────────────────────────────────────
def test_outcomes_that_fit_no_action_are_refused() -> None:
    with pytest.raises(LoopError, match="above 0"):
        driven(tool_call_limit=0)
    steps = driven().loop.run()
    next(steps)
    with pytest.raises(LoopError, match="AskModel"):
        steps.send(None)


def test_a_call_is_reported_once_and_only_when_it_was_begun() -> None:
    driver = driven()
    steps = driver.loop.run()
    ask = next(steps)
    assert isinstance(ask, AskModel)
    run = steps.send(read(ask, CALLING))
    assert isinstance(run, RunToolCalls)
    with pytest.raises(LoopError, match="not begun"):
        driver.loop.call_ended("internal_call_009", succeed(run.calls[0]))
    driver.loop.call_ended("internal_call_001", succeed(run.calls[0]))
    with pytest.raises(LoopError, match="ended before"):
        driver.loop.call_ended("internal_call_001", succeed(run.calls[0]))


def test_what_can_not_be_recorded_is_not_done() -> None:
    def record(entry: Any) -> None:
        if isinstance(entry, CallsBegun):
            raise OSError("no space left")

    loop = ToolCallingLoop(PromptContext(query="q", tools=TOOLS), driven().loop._renderer, record=record)
    steps = loop.run()
    ask = next(steps)
    assert isinstance(ask, AskModel)
    with pytest.raises(OSError, match="no space"):
        steps.send(read(ask, CALLING))


def test_an_answer_knows_whether_it_says_anything() -> None:
    assert ModelAnswer(" \n", [], []).is_empty
    assert not ModelAnswer("", [], [], incomplete="max_output_tokens").is_empty


@pytest.mark.parametrize(("code", "retryable"), [("server_error", True), ("context_length_exceeded", False)])
def test_a_failure_within_the_stream_keeps_its_code(code: str, retryable: bool) -> None:
    machine = ResponseStreamStateMachine("m")
    reader = AnswerReader()
    error = ErrorPayload("server_error", code, "no", None)
    assert all(reader.feed(event) for event in machine.start() + machine.text("So") + machine.fail(error))
    failure = reader.close()
    assert isinstance(failure, ModelFailure)
    assert (failure.error.code, failure.error.message, failure.retryable) == (code, "no", retryable)


def test_an_answer_without_an_event_is_an_interruption() -> None:
    failure = AnswerReader().close()
    assert isinstance(failure, ModelFailure)
    assert (failure.error.code, failure.retryable) == (CUT, True)
