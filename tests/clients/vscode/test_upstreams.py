"""The extension in a real VS Code, over scripted upstreams that speak Chat Completions and Messages."""

import json

import pytest

from tests.clients.vscode.results import Played
from tests.clients.vscode.scripts import BOTH, CHUNKS, scripts
from tests.support.conversation_turns import results

CALLS = [(name, arguments) for _, name, arguments in BOTH]


def test_the_models_are_listed_with_their_limits(played: Played) -> None:
    """Over Messages, the upstream, which is a server too, reports the limits."""
    limits = {each["id"]: each["maxInputTokens"] for each in played.results["models"]}
    assert set(limits) == set(scripts())
    assert limits["text"] == 4321


@pytest.mark.parametrize(("check", "text"), [("late", "At last."), ("pauses", "Well, yes.")])
def test_a_model_that_is_silent_for_long_is_waited_for(played: Played, check: str, text: str) -> None:
    """Before an answer begins, another limit applies; after that, keep-alives count as answers."""
    assert played.results[check]["text"] == text


def test_answers_at_the_same_time_are_kept_apart(played: Played) -> None:
    text, thinking = ["Hello", "", 0], ["Four.", "Two and two.", 0]
    assert played.results["together"] == [text, thinking, text, ["", "", 1], thinking]


def test_text_and_usage(played: Played) -> None:
    answer = played.results["text"]
    assert answer["text"] == "Hello"
    usage = json.loads(answer["data"]["usage"])
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (11, 7, 18)


def test_options_get_to_the_model(played: Played) -> None:
    assert played.results["options"]["text"] == "Yes."
    sent = played.upstream.last("options").body
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    assert sent["temperature"] == 0.5
    assert 77 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))


def test_thinking(played: Played) -> None:
    answer = played.results["thinking"]
    assert (answer["thinking"], answer["text"]) == ("Two and two.", "Four.")


def test_text_that_comes_quickly_is_put_together(played: Played) -> None:
    """The host waits until 30 ms pass without text, or until it has 31 parts: without that, text would arrive
    in jerks."""
    answer = played.results["steady"]
    assert answer["text"] == "word " * CHUNKS
    assert len(answer["times"]) < CHUNKS


@pytest.mark.parametrize(("check", "count"), [("one_call", 1), ("two_calls", 2)])
def test_each_call_comes_once(played: Played, check: str, count: int) -> None:
    answer = played.results[check]
    assert [(call["name"], call["input"]) for call in answer["calls"]] == CALLS[:count]
    assert len({call["callId"] for call in answer["calls"]}) == count
    assert "error" not in answer


def test_results_are_sent_back_with_their_calls_and_answered(played: Played) -> None:
    assert played.results["answered"]["text"] == "It is cool in both."
    request = [each.body.get("model") for each in played.upstream.received].index("round") + 1
    assert results(played.upstream, request) == {
        "call_1": "12 degrees in Lima",
        "call_2": "12 degrees in Oslo",
    }


@pytest.mark.parametrize(("when", "text"), [("amid", "Once upon "), ("before", "")])
def test_cancelling_ends_the_answer_and_the_upstream_s(played: Played, when: str, text: str) -> None:
    answer = played.results[f"cancelled_{when}"]
    assert (answer["text"], "error" in answer) == (text, False)
    assert played.upstream.last(f"hangs-{when}").gone_at is not None


def test_what_is_cancelled_already_is_not_asked(played: Played) -> None:
    assert played.results["already_cancelled"]["text"] == ""
    assert "never-asked" not in [each.body.get("model") for each in played.upstream.received]


@pytest.mark.parametrize(
    ("check", "codes", "message"),
    [
        ("busy", {"Blocked"}, "Slow down."),
        ("not_found", {"NotFound"}, "There is no such model."),
        # Anthropic's errors have no code
        ("too_long", {"context_length_exceeded", "invalid_request"}, "Too many tokens."),
    ],
)
def test_refusals_are_language_model_errors(
    played: Played, check: str, codes: set[str], message: str
) -> None:
    error = played.results[check]["error"]
    assert error["isLanguageModelError"]
    assert error["code"] in codes
    # over Messages, in the words by which its clients recognize a prompt that is too long
    assert error["message"].removeprefix("prompt is too long: ") == message


@pytest.mark.parametrize(("check", "message"), [("fails", "Too hot."), ("breaks", "was lost")])
def test_a_failure_comes_after_all_text_before_it(played: Played, check: str, message: str) -> None:
    answer = played.results[check]
    assert answer["text"] == "Once upon "
    assert answer["error"]["isLanguageModelError"]
    assert message in answer["error"]["message"]
    assert answer["error"]["cause"]["status"] == 502
