"""What is masked of a body is known, so that it can be masked where it comes back."""

from __future__ import annotations

from typing import Any

import pytest

from openresponses_server.observation.recordings.masking import hidden_in, masked_value


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ({"api_key": "k1"}, ["k1"]),
        ({"authorization": "Bearer k1"}, ["k1"]),
        ({"tools": [{"headers": {"x-a": "h1", "n": 1}}]}, ["h1"]),
        ({"url": "https://u:p1@host/path"}, ["p1"]),
        ({"url": "https://u1@host/path"}, ["u1"]),
        ({"url": "https://host/?a=1&token=t1"}, ["t1"]),
        ({"text": "nothing", "n": [1, None, {"deep": "x"}]}, []),
    ],
)
def test_what_is_masked_is_what_is_named(value: Any, hidden: list[str]) -> None:
    assert list(hidden_in(value)) == hidden
    shown = repr(masked_value(value))
    assert not [secret for secret in hidden if secret in shown]
    assert (masked_value(value) == value) is (not hidden)
