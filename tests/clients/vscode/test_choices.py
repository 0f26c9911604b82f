"""Models in the picker of a real VS Code: the chosen effort arrives at the model, prices are shown."""

from tests.clients.vscode.results import Played


def test_the_picker_offers_the_efforts_that_the_model_has(chosen: Played) -> None:
    assert chosen.results["page"]["offered"] == ["Auto\nDefault", "None", "Low", "High"]


def test_an_effort_is_that_of_the_caller_of_the_picker_or_of_the_settings(chosen: Played) -> None:
    """The first three requests have no chosen effort; then it is high, for the chat and for another
    extension."""
    efforts = [each.body.get("reasoning_effort") for each in chosen.upstream.received]
    assert efforts == [None, "none", "low", "high", "high"]


def test_a_price_is_shown_in_the_picker(chosen: Played) -> None:
    lines = chosen.results["page"]["said"].splitlines()
    assert lines[:2] == ["text", "Cost: $3 in, $0.3 cached, $15 out per 1M tokens"]


def test_a_price_is_shown_to_other_extensions(chosen: Played) -> None:
    prices = {each["id"]: each.get("pricing") for each in chosen.results["models"]}
    assert prices == {
        "text": "$3 in, $0.3 cached, $15 out per 1M tokens",
        "thinking": None,
    }
