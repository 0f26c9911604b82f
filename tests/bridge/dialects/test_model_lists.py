"""Lists of models in the forms of Anthropic's and of Google's clients."""

import pytest

from openresponses_bridge.dialects.anthropic_messages.client import model_list as anthropic
from openresponses_bridge.dialects.gemini.client import model_list as gemini
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.models.information import EnrichedModelData


def model(name: str, window: int = 1000, *, known: bool = True) -> EnrichedModelData:
    return EnrichedModelData(
        id=name,
        name=name.title(),
        upstream="u",
        family="f",
        version="1",
        context_window=window,
        max_input_tokens=window - 100,
        max_output_tokens=100,
        tools=True,
        images=False,
        reasoning=True if known else None,
        limits_known=known,
    )


MODELS = [model(f"m{number}") for number in range(5)]


def test_a_model_of_anthropic_has_the_date_of_its_name_and_limits_that_are_known() -> None:
    dated = anthropic.model_body(model("claude-sonnet-4-5-20250929"))
    assert dated["created_at"] == "2025-09-29T00:00:00Z"
    assert (dated["max_input_tokens"], dated["max_tokens"]) == (900, 100)
    guessed = anthropic.model_body(model("m", known=False))
    assert (guessed["created_at"], guessed["max_tokens"]) == ("1970-01-01T00:00:00Z", None)


@pytest.mark.parametrize(
    ("name", "window", "shown"),
    [
        ("qwen3", 1000, "claude-code/qwen3"),
        ("claude-opus-5", 1000, "claude-opus-5"),
        ("kimi-k3", 1_000_100, "claude-code/kimi-k3[1m]"),
    ],
)
def test_p41_names_for_claude_code_lead_back(name: str, window: int, shown: str) -> None:
    assert anthropic.for_claude_code(model(name, window)).id == shown
    assert anthropic.from_claude_code(shown) == name


@pytest.mark.parametrize(
    ("query", "found", "more"),
    [
        ({}, ["m0", "m1", "m2", "m3", "m4"], False),
        ({"limit": "2"}, ["m0", "m1"], True),
        ({"limit": "2", "after_id": "m1"}, ["m2", "m3"], True),
        ({"limit": "2", "before_id": "m4"}, ["m2", "m3"], True),
        ({"after_id": "m4"}, [], False),
    ],
)
def test_pages_for_anthropic(query: dict[str, str], found: list[str], more: bool) -> None:
    page = anthropic.model_page(MODELS, query)
    assert ([each["id"] for each in page["data"]], page["has_more"]) == (found, more)
    assert (page["first_id"], page["last_id"]) == ((found[0], found[-1]) if found else (None, None))


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "1001"}, {"limit": "²"}, {"after_id": "x" * 500}]
)
def test_wrong_queries_for_anthropic_are_named(query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        anthropic.model_page(MODELS, query)
    assert raised.value.param == next(iter(query))


def test_a_model_of_google_has_limits_that_are_known() -> None:
    known = gemini.model_body(model("m"))
    assert (known["name"], known["inputTokenLimit"], known["thinking"]) == ("models/m", 900, True)
    guessed = gemini.model_body(model("m", known=False))
    assert not {"inputTokenLimit", "thinking"} & guessed.keys()


def test_pages_for_google_follow_one_another() -> None:
    query, names = {"pageSize": "2"}, []
    while True:
        page = gemini.model_page(MODELS, query)
        names += [each["name"] for each in page["models"]]
        if "nextPageToken" not in page:
            break
        query["pageToken"] = page["nextPageToken"]
    assert names == [f"models/m{number}" for number in range(5)]


@pytest.mark.parametrize("query", [{"pageSize": "-1"}, {"pageSize": "²"}, {"pageToken": "9" * 7}])
def test_wrong_queries_for_google_are_named(query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        gemini.model_page(MODELS, query)
    assert raised.value.param == next(iter(query))
