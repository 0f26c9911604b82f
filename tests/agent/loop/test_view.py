"""A loop as data for a person's view."""

from typing import Any

from openresponses_agent.loop import AskModel, LoopView, RunToolCalls, ToolStatus
from openresponses_agent.tools.errors import ToolDeclinedError, ToolFailureEncountered
from openresponses_agent.tools.registry import ToolCallOutcome
from openresponses_agent.tools.results import LanguageModelToolResult
from tests.support.loops import Answer, driven, events_of, failing, succeed

LOOK = ("c1", "look", {"value": "a"})
CHANGE = ("c2", "change", {"value": "b"})


def watched(view: LoopView, **options: Any) -> Any:
    driver = driven(finished_cb=lambda text, index, delta: view.delta(delta), **options)
    keep = driver.loop._keep

    def record(entry: Any) -> None:
        keep(entry)
        view.entry(entry)

    driver.loop._keep = record
    return driver


def test_a_call_is_seen_before_its_arguments_are_whole() -> None:
    view = LoopView()
    driver = watched(view)
    ask = next(driver.loop.run())
    assert isinstance(ask, AskModel)
    reader, seen = ask.reader(), []
    for event in events_of(Answer("I look.", [LOOK, CHANGE], thinking="Hm.")):
        reader.feed(event)
        (shown,) = view.as_json()["rounds"] or [{}]
        now = [(each["name"], each["status"], each["input"]) for each in shown.get("elements", ())]
        seen += [now] if now and now not in seen else []
    assert seen[0] == [("look", "calling", None)]
    assert ("look", "calling", '{"val') in [each for now in seen for each in now]
    assert ("change", "calling", '{"val') in [each for now in seen for each in now]
    assert seen[-1] == [("look", "pending", {"value": "a"}), ("change", "pending", {"value": "b"})]
    assert view.rounds[0].thinking == "Hm."
    assert not view.rounds[0].is_calling


def test_statuses_follow_the_calls() -> None:
    view = LoopView()
    driver = watched(view)
    declined = ToolFailureEncountered("change", ToolDeclinedError("no"), 0)
    outcomes = {
        "c1": succeed,
        "c2": failing,
        "c3": lambda call: ToolCallOutcome(LanguageModelToolResult.failure("Error: no"), declined),
        "c4": lambda call: None,
    }

    def run(call: Any) -> Any:
        element = view.element(call.id)
        assert element is not None
        assert element.status is ToolStatus.RUNNING
        view.progress(call.id, f"at {call.name}")
        return outcomes[call.call_id](call)

    calls = [LOOK, CHANGE, ("c3", "change", {}), ("c4", "change", {})]
    driver.drive([Answer("Let me.", calls), Answer("Done.")], run)
    shown = view.as_json()
    elements = shown["rounds"][0]["elements"]
    assert [each["status"] for each in elements] == ["complete", "failed", "declined", "cancelled"]
    assert [each["progress"] for each in elements] == [
        ["at look"],
        ["at change"],
        ["at change"],
        ["at change"],
    ]
    assert elements[0]["result"] == 'did look {"value": "a"}'
    assert elements[0]["error"] is None
    assert elements[1]["result"] is None
    assert elements[1]["error"] == "Error: Tool failed - it broke"
    assert (shown["end"], shown["rounds"][1]["text"], shown["query"]) == ("done", "Done.", "Do it")


def test_what_was_shown_of_an_interrupted_answer_is_taken_back() -> None:
    view = LoopView()
    watched(view).drive([Answer("Half of", [CHANGE], cut=True), Answer("Whole.")])
    (view_round,) = view.rounds
    assert (view_round.text, view_round.elements) == ("Whole.", [])
    assert len(view_round.retries) == 1


def test_entries_alone_give_the_same_view() -> None:
    view = LoopView()
    driver = watched(view)
    driver.drive([Answer("Let me.", [LOOK, CHANGE], thinking="Hm."), Answer("Done.")])
    again = LoopView()
    for entry in driver.entries:
        again.entry(entry)
    assert again.as_json() == view.as_json()


def test_another_question_begins_an_empty_view() -> None:
    view = LoopView()
    first = watched(view)
    first.drive([Answer("Let me.", [LOOK]), Answer("Done.")])
    driver = driven("And?", entries=first.entries)
    driver.drive([Answer("So.")])
    view.entry(driver.entries[-3])
    assert view.as_json() == {"query": "And?", "rounds": [], "end": "", "message": ""}


def test_progress_is_bounded_and_of_unknown_calls_ignored() -> None:
    view = LoopView()
    driver = watched(view)

    def run(call: Any) -> Any:
        for number in range(1000):
            view.progress(call.id, str(number))
        view.progress("other", "text")
        return succeed(call)

    driver.drive([Answer(calls=[LOOK]), Answer("Done.")], run)
    progress = view.rounds[0].elements[0].progress
    assert (len(progress), progress[-1]) == (100, "999")


def test_arguments_that_are_not_json_are_shown_as_they_are() -> None:
    view = LoopView()
    driver = watched(view)
    driver.drive([Answer(calls=[("c1", "look", '{"value": oops}')]), Answer("Done.")])
    assert view.rounds[0].elements[0].input == '{"value": oops}'
    assert isinstance(driver.actions[1], RunToolCalls)
