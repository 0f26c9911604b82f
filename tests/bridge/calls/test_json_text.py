"""Law E7: cut arguments are distinguished from malformed and from whole ones."""

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openresponses_bridge.calls.json_text import JsonState, json_state

EMPTY, COMPLETE, TRUNCATED, MALFORMED = JsonState

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
# Surrogates included: a model's text may hold half an emoji.
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=12)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)
LAYOUTS = st.sampled_from(
    [{}, {"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}, {"separators": (" , ", "\r\n: ")}]
)

CASES = [
    ("", EMPTY),
    (" \t\r\n", EMPTY),
    ("{}", COMPLETE),
    (' {"a": [1, -0, 2.5e+3, true, false, null, "x"]} \n', COMPLETE),
    ("12", COMPLETE),
    ('"x"', COMPLETE),
    # A decoder's own limits are not the text's fault.
    ('{"a":"\\ud800"}', COMPLETE),
    ('{"a":"\\ud800","b":1}', COMPLETE),
    ('{"a":"\\udc00"}', COMPLETE),
    ('{"a":"\\ud800\\ud800"}', COMPLETE),
    ('{"a":"\ud800"}', COMPLETE),
    ('{"a":1e999}', COMPLETE),
    ("9" * 5000, COMPLETE),
    ("[" * 100_000 + "]" * 100_000, COMPLETE),
    # Cut.
    ("[" * 100_000, TRUNCATED),
    ('{"a":' * 100_000, TRUNCATED),
    ("{", TRUNCATED),
    ('{"a', TRUNCATED),
    ('{"a"', TRUNCATED),
    ('{"a":', TRUNCATED),
    ('{"a":1', TRUNCATED),
    ('{"a":1,', TRUNCATED),
    ('{"a":1e999,', TRUNCATED),
    ('{"a":"\\', TRUNCATED),
    ('{"a":"\\u', TRUNCATED),
    ('{"a":"\\u00e', TRUNCATED),
    ('{"a":"\\ud800', TRUNCATED),
    ('{"a":"\\ud800\\u', TRUNCATED),
    ('{"a":"\\ud800","b"', TRUNCATED),
    ('{"a":"\\udc00', TRUNCATED),
    ('"\ud800', TRUNCATED),
    *[(number, TRUNCATED) for number in ("-", "1.", "1e", "1E+", "1.5e-", '{"a":-', "[0.")],
    *[(word, TRUNCATED) for word in ("t", "tr", "tru", "f", "fa", "fal", "fals", "n", "nu", "[nul")],
    # Malformed.
    ('{"a":"\x01"}', MALFORMED),
    ('{"a":"line\nline', MALFORMED),
    ('{"a":"\\x', MALFORMED),
    ('{"a":"\\uZ', MALFORMED),
    ('{"a":1,}', MALFORMED),
    ("[1,]", MALFORMED),
    ("{,", MALFORMED),
    ("{1", MALFORMED),
    ("{t", MALFORMED),
    ('{"a" "b"', MALFORMED),
    ('{"a":}', MALFORMED),
    ("{}x", MALFORMED),
    ("{}{", MALFORMED),
    ("1 2", MALFORMED),
    ("1 t", MALFORMED),
    ("[}", MALFORMED),
    ("]", MALFORMED),
    ("truex", MALFORMED),
    ("tu", MALFORMED),
    ("tru ", MALFORMED),
    ("nll", MALFORMED),
    ("NaN", MALFORMED),
    ("-Infinity", MALFORMED),
    ("01", MALFORMED),
    ("[1.]", MALFORMED),
    ("[-]", MALFORMED),
    ("1-", MALFORMED),
    ("٣", MALFORMED),
    ("\u00a0", MALFORMED),
    ("\ufeff{}", MALFORMED),
    ("'a'", MALFORMED),
    ("*** Begin Patch", MALFORMED),
]


@pytest.mark.parametrize(
    ("text", "expected"), CASES, ids=[f"{state.value} {text[:24]!a}" for text, state in CASES]
)
@pytest.mark.untraced
def test_e7_state_of_a_text(text: str, expected: JsonState) -> None:
    assert json_state(text) is expected


@given(value=OBJECTS, ascii_only=st.booleans(), layout=LAYOUTS)
def test_e7_every_prefix_of_an_object_is_cut_and_the_whole_is_complete(
    value: object, ascii_only: bool, layout: dict[str, Any]
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, **layout)
    assert json_state(text) is COMPLETE
    assert json_state("") is EMPTY
    for end in range(1, len(text)):
        assert json_state(text[:end]) is TRUNCATED, text[:end]


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@given(st.text('{}[]",:01-+.eEtrufalsn\\ud8 \n', max_size=14))
@example('{"a":"\\ud83d')
@example("[1,[2")
def test_e7_any_text_agrees_with_the_standard_library_and_with_its_prefixes(text: str) -> None:
    try:
        json.loads(text, parse_constant=_refuse)
    except ValueError:
        assert json_state(text) is not COMPLETE
    else:
        assert json_state(text) is COMPLETE
    if json_state(text) is not MALFORMED:
        assert all(json_state(text[:end]) is not MALFORMED for end in range(len(text)))


@given(text=st.text('{}[]",:01-+.eE\\ud8 ', max_size=10), more=st.text('{}[]",:01-.e', max_size=4))
def test_e7_nothing_mends_a_malformed_text(text: str, more: str) -> None:
    if json_state(text) is MALFORMED:
        assert json_state(text + more) is MALFORMED


@pytest.mark.bench
@pytest.mark.parametrize("unit", ["[", '{"a":', '"\\ud800",', "1e999,", "x" * 10, "9", '\\"'])
def test_cost_is_linear_however_the_text_is_built(unit: str) -> None:
    def seconds(count: int) -> float:
        text = '["' + unit * count if unit[0] in "x\\" else "[" + unit * count
        start = time.process_time()
        assert json_state(text) is TRUNCATED
        return time.process_time() - start

    once = min(seconds(5_000) for _ in range(3))
    # Linear is 8 and quadratic 64; the room between them is for a busy machine.
    assert min(seconds(40_000) for _ in range(3)) < 30 * once + 0.005
