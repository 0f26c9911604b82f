"""The nesting of a JSON text is the same wherever the text is divided, and agrees with `json_state`."""

import pytest

from openresponses_bridge.calls.json_text import JsonState, Nesting, json_state

TEXTS = {
    "{}": True,
    ' {"a": [1, {"b": "}"}]} ': True,
    '["\\\\"]': True,
    '["\\""]': True,
    '["\\"]': False,
    "[": False,
    "[]]": False,
    "[][]": False,
    "]": False,
    "{} {}": False,
    '{"a': False,
    "12": False,
    "": False,
}


def nesting(*pieces: str) -> Nesting:
    counted = Nesting()
    for piece in pieces:
        counted.feed(piece)
    return counted


@pytest.mark.parametrize(("text", "closed"), TEXTS.items())
def test_closed_once(text: str, closed: bool) -> None:
    assert nesting(text).closed_once is closed
    assert nesting(*text).closed_once is closed
    assert all(nesting(text[:at], text[at:]).closed_once is closed for at in range(len(text)))
    if text[-1:] in ("}", "]") and json_state(text) is JsonState.COMPLETE:
        assert closed
