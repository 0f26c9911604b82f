"""The extension in a real VS Code over a hostile server: each failure soon becomes an error with a
message."""

import pytest

from tests.clients.vscode.hostile import ADDRESSES, ANSWERS, LISTS
from tests.clients.vscode.results import Attacked

ONCE = "Once upon "
FAILURES = {
    "html": ("", "invalid_answer", "not an openresponses-bridge"),
    "html-error": ("", "server_error", "status 502"),
    "redirect": ("", "invalid_answer", "redirects"),
    "silent": ("", "timeout", "sent nothing for 1 s"),
    "stalls": (ONCE, "timeout", "sent nothing for 2 s"),
    "endless": ("", "invalid_answer", "a line of more than"),
    "bomb": ("", "invalid_answer", "a line of more than"),
    "cut": (ONCE, "connection_error", "in the middle of a line"),
    "reset": (ONCE, "connection_error", "The connection to the server failed"),
    "garbage": (ONCE, "invalid_answer", "not JSON"),
    "array": ("", "invalid_answer", "not an object"),
    "unauthorized": ("", "NoPermissions", "Who are you?"),
    "long-error": ("", "server_error", "xxx"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_what_is_not_an_answer_is_a_language_model_error(attacked: Attacked, kind: str) -> None:
    text, code, words = FAILURES[kind]
    answer = attacked.results[kind]
    assert answer["text"] == text
    assert (answer["error"]["isLanguageModelError"], answer["error"]["code"]) == (True, code)
    assert words in answer["error"]["message"]
    assert len(answer["error"]["message"]) <= 2000


def test_every_answer_is_tried() -> None:
    assert set(ANSWERS) == {*FAILURES, "odd"}


def test_lines_that_are_not_parts_are_left_out(attacked: Attacked) -> None:
    answer = attacked.results["odd"]
    assert (answer["text"], answer["thinking"], answer["calls"]) == ("The end.", "", [])
    assert "error" not in answer


def test_a_line_is_not_read_beyond_its_limit(attacked: Attacked) -> None:
    (endless,) = [each for each in attacked.hostile.asked if each.sent > 2**25]
    assert endless.sent < 2**26


@pytest.mark.parametrize("kind", LISTS)
def test_what_is_not_a_list_of_models_is_none(attacked: Attacked, kind: str) -> None:
    listed = attacked.results[f"list {kind}"]
    assert listed["models"] == []
    assert listed["seconds"] < 5


@pytest.mark.parametrize("address", ADDRESSES)
def test_what_is_not_an_address_is_not_asked(attacked: Attacked, address: str) -> None:
    assert attacked.results[f"address {address}"] == []


def test_an_address_may_be_that_of_the_responses_api(attacked: Attacked) -> None:
    assert attacked.results["spelled"] > len(ANSWERS)


def test_odd_models_hide_no_others(attacked: Attacked) -> None:
    models = {each["id"]: each for each in attacked.results["models"]}
    assert set(models) == {*ANSWERS, "text", "odd-model"}
    assert models["odd-model"]["name"] == "n" * 199 + "…"
    assert (models["odd-model"]["family"], models["odd-model"].get("pricing")) == ("family", None)
    assert {each["maxInputTokens"] for each in attacked.results["models"]} == {0}


def test_a_number_of_tokens_that_is_none_is_an_error(attacked: Attacked) -> None:
    assert attacked.results["tokens"]["code"] == "invalid_answer"


def test_redirects_are_not_followed(attacked: Attacked) -> None:
    assert attacked.stranger.asked == []
