"""The extension in a real VS Code over the demo model: the results that another extension gets from it."""

import json
from typing import Any

from openresponses_server.upstreams.demo.behaviours import BEHAVIOURS

Results = dict[str, Any]


def test_the_models_are_listed_with_their_limits(demo: Results) -> None:
    models = {each["id"]: each for each in demo["models"]}
    assert {"demo", *(f"demo-{name}" for name in BEHAVIOURS)} <= set(models)
    assert models["demo"]["family"] == "demo"
    assert models["demo"]["maxInputTokens"] == demo["listed"]["maxInputTokens"] > 1000


def test_text_usage_and_a_marker(demo: Results) -> None:
    answer = demo["text"]
    assert (answer["text"], answer["thinking"], answer["calls"]) == ("You said: Hello there", "", [])
    usage = json.loads(answer["data"]["usage"])
    assert 0 < usage["prompt_tokens"] < usage["total_tokens"]
    assert answer["data"]["stateful_marker"].startswith("demo\\resp_")
    assert "error" not in answer


def test_thinking_is_apart_from_text(demo: Results) -> None:
    assert demo["thinking"]["text"] == "You said: Hello"
    assert demo["thinking"]["thinking"].startswith("The user wrote 1 words.")


def test_a_call_comes_once_and_its_result_is_answered(demo: Results) -> None:
    (call,) = demo["one_call"]["calls"]
    assert (call["name"], call["input"]) == ("get_weather", {"city": "Paris"})
    assert demo["tool_result"]["text"] == "The tool answered: 18 degrees"
    assert demo["tool_result"]["calls"] == []


def test_a_task_is_done_with_a_tool_that_another_extension_has_registered(demo: Results) -> None:
    done = demo["task"]
    assert (done["text"], done["rounds"], done["end"]) == ("The tool answered: 18 degrees in Rome", 2, "done")
    (invoked,) = done["invoked"]
    assert (invoked["input"], invoked["inChat"]) == ({"city": "Rome"}, False)
    assert invoked["tokenBudget"] == demo["listed"]["maxInputTokens"] // 4
    assert "no such city" in demo["task_fails"]["text"]
    assert (demo["task_limit"]["rounds"], demo["task_limit"]["end"]) == (1, "limit")


def test_an_image_gets_to_the_model(demo: Results) -> None:
    assert "I was shown 1 image." in demo["image"]["text"]


def test_what_comes_back_goes_on_from_its_marker(demo: Results) -> None:
    assert demo["goes_on"]["text"] == "You said: Two\nBefore that you said: One"


def test_a_failure_comes_after_all_text_before_it(demo: Results) -> None:
    for check, text, code in (
        ("failure", "This answer ends in a ", "demo_failure"),
        ("cut", "This stream is cut before its ", "upstream_cut"),
    ):
        assert demo[check]["text"].rstrip() == text.rstrip()
        error = demo[check]["error"]
        assert (error["isLanguageModelError"], error["code"]) == (True, code)


def test_not_now_is_blocked(demo: Results) -> None:
    error = demo["overloaded"]["error"]
    assert (error["isLanguageModelError"], error["code"]) == (True, "Blocked")
    assert error["message"] == "The demo model is overloaded as asked."


def test_tokens_of_texts_and_messages(demo: Results) -> None:
    text, message, nothing = demo["tokens"]
    assert 0 < text <= message
    assert nothing == 0


def test_a_quick_answer_comes_in_few_parts(demo: Results) -> None:
    assert demo["paced"]["words"] == 300
    assert demo["paced"]["parts"] < 30


def test_the_status_bar_shows_the_tokens_of_the_last_response(demo: Results) -> None:
    assert "↑2 ↓300" in demo["page"]
