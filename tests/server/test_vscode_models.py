"""The extension's list of models, over servers that say anything, and the effort of its requests. `make
vscode` shows both in a real VS Code."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.support.shared import REPOSITORY

LIBRARY = REPOSITORY / "server" / "openresponses_server" / "vscode" / "extension" / "lib"
CHECKS = REPOSITORY / "tests" / "support" / "vscode_models.js"
Results = dict[str, Any]


@pytest.fixture(scope="module")
def results() -> Results:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    done = subprocess.run([node, str(CHECKS), str(LIBRARY)], capture_output=True, check=True)
    reports: Results = json.loads(done.stdout)
    return reports


def test_what_is_no_list_is_said_to_be_none(results: Results) -> None:
    for each in results["no_list"]:
        assert each["code"] == "invalid_answer"
        assert "it sent no list of models" in each["message"]


def test_a_list_without_a_usable_id_is_an_error(results: Results) -> None:
    error = results["no_ids"]
    assert error["code"] == "invalid_answer"
    assert error["message"] == "The server sent 10 models, none of them with a usable id."


def test_what_has_no_id_hides_no_others_and_is_counted(results: Results) -> None:
    listing = results["some"]
    assert [each["id"] for each in listing["models"]] == ["one", "__proto__", "x" * 1024]
    assert listing["warned"] == ["models: 2 of 5 were left out: too many, or without an id of their own"]
    many = results["many"]
    assert (len(many["models"]), len(many["warned"])) == (1000, 1)


def test_fields_of_other_types_count_as_missing(results: Results) -> None:
    assert results["odd"] == {
        "id": "m",
        "name": "m",
        "family": "m",
        "version": "1",
        "maxInputTokens": 0,
        "maxOutputTokens": 0,
        "capabilities": {"imageInput": False, "toolCalling": False},
        "isUserSelectable": True,
    }


def test_names_are_short_and_have_nothing_that_is_not_seen(results: Results) -> None:
    model = results["long"]
    assert model["name"] == "n" * 199 + "…"
    assert (len(model["family"].encode("utf-16-le")) // 2, model["family"][-1]) == (199, "…")
    assert model["version"] == "1.0 2"
    assert model["tooltip"] == "Log in(https://a.example) img src=x"
    assert "detail" not in model
    assert model["maxInputTokens"] == 0


def test_no_proposed_api_is_asked_for(results: Results) -> None:
    """`editTools` of an extension without that proposal is an error, which hides all models."""
    assert results["long"]["capabilities"] == {"imageInput": False, "toolCalling": 0}


def test_a_model_can_be_kept_out_of_the_picker_and_have_a_price(results: Results) -> None:
    assert (results["hidden"]["isUserSelectable"], results["hidden"]["pricing"]) == (False, "$1 in")


def test_the_schema_of_the_effort_is_made_anew(results: Results) -> None:
    assert results["effort"]["properties"]["reasoningEffort"] == {
        "type": "string",
        "title": "Effort",
        "enum": ["auto", "low", "high"],
        "enumItemLabels": ["Auto", "L", "high"],
        "default": "auto",
        "group": "navigation",
    }
    assert results["no_effort"] == [None] * 5


def test_a_list_is_read_again_when_its_version_is_another_or_not_a_text(results: Results) -> None:
    assert results["versions"] == {"seen": [["x"], ["x"], ["y"]], "changed": 1}
    assert results["odd_versions"] == {"seen": [["m0"], ["m1"], ["m2"], ["m3"]], "changed": 3}


def test_what_was_known_stays_until_the_server_sends_a_list_again(results: Results) -> None:
    first, wrong, last = results["stays"]["seen"]
    assert (first, last) == (["x"], ["y"])
    assert "no list of models" in wrong["error"]


def test_an_effort_is_that_of_the_caller_else_the_chosen_one_else_that_of_the_settings(
    results: Results,
) -> None:
    setting, chosen, auto, odd, caller = results["sent"]
    assert setting == {"modelOptions": {"reasoningEffort": "low", "temperature": 1}}
    assert chosen == {
        "modelOptions": {"temperature": 1},
        "modelConfiguration": {"reasoningEffort": "high"},
    }
    assert auto == odd == {"modelOptions": {"reasoningEffort": "low"}}
    # the server has what the caller says go before what was chosen
    assert caller["modelOptions"] == {"reasoningEffort": "none"}


def test_an_errors_message_has_nothing_that_is_not_seen(results: Results) -> None:
    assert results["message"] == "a b c\nd"
