"""The examples of the rules: each breaks its rule, and the streams that they change are valid."""

from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge.conformance import RULES, StreamValidator
from openresponses_bridge.conformance.examples import EXAMPLES, completed, explanation, failed
from tests.support.reference_validator import judge


@pytest.mark.parametrize("stream", [completed, failed])
def test_the_streams_are_clean(stream: Callable[[], list[dict[str, Any]]]) -> None:
    assert judge(stream()) == []
    for wire in ("openresponses", "openai", "any", "auto"):
        validator = StreamValidator(wire)  # type: ignore[arg-type]
        for event in stream():
            validator.feed(event)
        validator.close()
        assert validator.violations == []


def test_every_rule_has_an_example() -> None:
    assert set(EXAMPLES) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_an_example_breaks_its_rule(rule: str) -> None:
    shown = explanation(rule)
    assert shown.violations
    assert all(line.startswith(f"{rule}: event ") for line in shown.violations)
    assert shown.example
    assert (shown.asks, shown.clause) == (RULES[rule].description, RULES[rule].source)


def test_examples_may_be_asked_for_again() -> None:
    assert explanation("usage.sum") == explanation("usage.sum")


def test_an_unknown_rule_has_no_explanation() -> None:
    with pytest.raises(KeyError):
        explanation("usage.product")
