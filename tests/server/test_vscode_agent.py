"""The extension's agent, which invokes VS Code's tools by `vscode.lm.invokeTool`, over a VS Code made for the
test. `make vscode` shows it in a real one."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.support.shared import REPOSITORY

AGENT = REPOSITORY / "server" / "openresponses_server" / "vscode" / "extension" / "lib" / "agent.js"
CHECKS = REPOSITORY / "tests" / "support" / "vscode_agent.js"
Results = dict[str, Any]


@pytest.fixture(scope="module")
def results() -> Results:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    done = subprocess.run([node, str(CHECKS), str(AGENT)], capture_output=True, check=True)
    reports: Results = json.loads(done.stdout)
    return reports


def test_a_call_is_invoked_and_its_result_goes_back(results: Results) -> None:
    report = results["round"]
    assert report["outcome"] == {"text": "Done.", "rounds": 2, "end": "done"}
    assert report["seen"] == ["Let me", " look.", "<look>", "Done."]
    assert report["invoked"] == [{"name": "look", "input": {"at": "a"}, "token": "chat", "budget": 1000}]
    assert report["second"] == ["Let me look.|look|", "saw a"]
    assert report["parts"] == 3, "text, call and marker; usage is of the answer alone"
    assert report["offered"] == [["name", "description", "inputSchema"]]


def test_calls_of_one_answer_share_the_room_for_results(results: Results) -> None:
    report = results["several"]
    assert [each["budget"] for each in report["invoked"]] == [500, 500]
    assert [each["input"] for each in report["invoked"]] == [{"at": "a"}, {}]
    assert report["results"] == ["c1", "c2"]


def test_a_tool_that_fails_is_told_to_the_model_in_bounds(results: Results) -> None:
    assert results["failure"] == {"outcome": {"text": "Sorry.", "rounds": 2, "end": "done"}, "told": 2000}


def test_a_tool_that_was_not_offered_is_not_invoked(results: Results) -> None:
    report = results["not_offered"]
    assert report["invoked"] == []
    assert report["told"] == "Error: no tool is named erase; the tools are look"


def test_it_ends_at_its_limit_when_cancelled_and_when_the_model_fails(results: Results) -> None:
    assert results["limit"] == {"outcome": {"text": "", "rounds": 3, "end": "limit"}, "times": 3}
    cancelled = {"outcome": {"text": "", "rounds": 1, "end": "cancelled"}, "asked": 1, "invoked": 1}
    assert results["cancelled"] == cancelled
    assert results["model_fails"] == "no model"
    assert results["many_tools"] == 128


def test_the_participant_asks_at_its_rounds_whether_to_go_on(results: Results) -> None:
    report = results["goes_on"]
    assert report["questions"] == [
        "The model has called tools in 2 rounds. Go on?",
        "The model has called tools in 4 rounds. Go on?",
    ]
    assert report["result"] == {"metadata": {"end": "limit", "rounds": 4}}
    assert report["shown"] == ["\n\nStopped after 4 rounds of tool calls."]


def test_what_the_model_no_longer_takes_is_summarised_by_it(results: Results) -> None:
    report = results["summarised"]
    assert report["outcome"] == {"text": "Done.", "rounds": 3, "end": "done"}
    assert (report["summary"], report["tools"]) == ("Summarise", 0)
    assert report["last"] == [
        "user: Do it",
        "user: The work so far, summarised:\nI have looked.",
        "assistant: c2",
        "user: c2",
    ]
    assert report["context"] == [False, False, False], "each time it is asked with less than its share"
    assert report["parts"] == 1, "the marker stands for the whole conversation"
    failed = results["summary_fails"]
    assert failed == {"outcome": {"text": "Done.", "rounds": 3, "end": "done"}, "messages": 5}


def test_the_participant_of_the_chat(results: Results) -> None:
    report = results["chat"]
    assert report["first"] == ["user: Before", "assistant: An answer.", "user: Now"]
    shown = [each for each in report["shown"] if "context" not in each]
    assert shown == ["I look.", "<Running look…>", "Done."]
    assert report["shown"][0] == "<1 % of the context is used.>"
    assert (report["offered"], report["result"]) == (1, {"metadata": {"end": "done", "rounds": 2}})
    assert report["invoked"][0]["token"] == "of the chat"


def test_the_effort_that_was_chosen_in_the_chat_goes_with_each_round(results: Results) -> None:
    """To the models of this vendor alone: others may take no such option."""
    high = {"reasoningEffort": "high"}
    assert results["effort"] == [high, high, None, None]
