"""Arguments that servers send twice, begin again or wrap, each with the arguments that are passed on."""

import json
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.calls.json_text import JsonState, json_state
from openresponses_bridge.calls.streamed_arguments import (
    StreamedArguments,
    is_placeholder,
    whole_within,
)
from openresponses_bridge.diagnostics import Diagnostics
from tests.support.costs import assert_at_most, seconds

AGAIN = "repair: tool_call.arguments: they came again from their beginning, the rest was added"
REPEATED = "repair: tool_call.arguments: they came again, dropped"
BEFORE = "repair: tool_call.arguments: what stood in their place or before them was dropped"
BEHIND = "repair: tool_call.arguments: brackets and tokens behind them were dropped"
LAST = "repair: tool_call.arguments: they began more than once, the last time counts"
DIFFERS = "warning: tool_call.arguments: they came again and differ from those that were sent: incomplete"


def read(*pieces: str) -> tuple[list[str], bool, list[str]]:
    """What is passed on piece by piece and at the end, whether the call is broken, and the diagnostics."""
    diagnostics, sent = Diagnostics(), StringIO()
    streamed = StreamedArguments(diagnostics)
    passed = []
    for piece in pieces:
        passed.append(streamed.feed(piece, sent))
        sent.write(passed[-1])
    passed.append(streamed.end(sent))
    assert streamed.end(sent) == ""
    return passed, streamed.broken, [str(case) for case in diagnostics]


@pytest.mark.parametrize(
    ("pieces", "passed", "said"),
    [
        (["{}", '{"a":1}'], ["", '{"a":1}', ""], [BEFORE]),
        (["{ }", "{", '"a":1}'], ["", "{", '"a":1}', ""], [BEFORE]),
        (["{}{}", ' {"a":1}'], ["", '{"a":1}', ""], [BEFORE]),
        (["{}"], ["", "{}"], []),
        (["{}", "{}"], ["", "", "{}"], [BEFORE]),
        (["[ARGS]", '{"a":1}'], ["", '{"a":1}', ""], [BEFORE]),
        (["[AR", 'GS]{"a":1}'], ["", '{"a":1}', ""], [BEFORE]),
        (["<|message|>{", "}"], ["{", "}", ""], [BEFORE]),
        (["<|mes", "sage|>", "{}"], ["", "", "", "{}"], [BEFORE]),
        (['{"a":1,', '"b":2', '{"a":1,"b":2}'], ['{"a":1,', '"b":2', "}", ""], [AGAIN]),
        (["{", '{"a":1}'], ["{", '"a":1}', ""], [AGAIN]),
        (['{"a"', '{"a":1', '{"a":1}'], ['{"a"', ":1", "}", ""], [AGAIN + " (×2)"]),
        (['{"a":"x', '{"a":"xy', '{"a":"xyz"}'], ['{"a":"x', "y", 'z"}', ""], [AGAIN + " (×2)"]),
        (['{"a":1,', '{"a"', ':1,"b"', ":2}"], ['{"a":1,', "", '"b"', ":2}", ""], [AGAIN]),
        (['{"a":1}', "}"], ['{"a":1}', "", ""], [BEHIND]),
        (['{"a":1}', "\n}", "]"], ['{"a":1}', "", "", ""], [BEHIND + " (×2)"]),
        (['{"a":1}}'], ['{"a":1}', ""], [BEHIND]),
        (['{"a"', ':{"b":1}}}]'], ['{"a"', ':{"b":1}}', ""], [BEHIND]),
        (['{"a":1}', "<|call|>"], ['{"a":1}', "", ""], [BEHIND]),
        (['{"a":1}', "<|im", "_end|>", "\n"], ['{"a":1}', "", "", "\n", ""], [BEHIND]),
        (['{"a":1}</tool_call>'], ['{"a":1}', ""], [BEHIND]),
        (['{"a":1}\n</tool', "_call>"], ['{"a":1}', "", ""], [BEHIND]),
        (["```", "json\n", '{"a":1}', "\n```"], ["", "", '{"a":1}', "", ""], [BEFORE, BEHIND]),
        (['<|constrain|>json<|message|>{"a":1}'], ['{"a":1}', ""], [BEFORE]),
        (['[CALL_ID]x1[ARGS]{"a":1}'], ['{"a":1}', ""], [BEFORE]),
        (['\ufeff{"a":1}'], ['{"a":1}', ""], [BEFORE]),
        (['{{"a":1}'], ['{"a":1}', ""], [LAST]),
        (['{"a":1,"b{"a":1,"b":2}'], ['{"a":1,"b":2}', ""], [LAST]),
        (['{"a":1}{"a":1}'], ['{"a":1}', ""], [LAST]),
        (['{"a"', ':1}{"a":1}'], ['{"a"', ":1}", ""], [REPEATED]),
        (['{"a":', '{"a":[1', '{"a":[1]}'], ['{"a":', "", "[1]}", ""], [AGAIN]),
        (['{"a":1}', '{"a": 1}'], ['{"a":1}', "", ""], [REPEATED]),
        (['{"a":1}', '{"a"'], ['{"a":1}', "", ""], [REPEATED]),
        # a value of the same form as the beginning: what follows decides
        (['{"a":', '{"a":1}', "}"], ['{"a":', "", '{"a":1}}', ""], []),
        (['{"a":', '{"a":1}'], ['{"a":', "", "1}"], [AGAIN]),
        (['{"a":', '{"a":1}', '{"a":1}'], ['{"a":', "", "1}", ""], [AGAIN]),
    ],
)
def test_n4_what_begins_again_becomes_the_arguments(
    pieces: list[str], passed: list[str], said: list[str]
) -> None:
    result = read(*pieces)
    assert result == (passed, False, said)
    assert json_state("".join(passed)) is JsonState.COMPLETE


@pytest.mark.parametrize(
    "pieces",
    [
        ['{"a":1}', '{"b":1}'],
        ['{"a":1,', '{"a": 1, "b": 2}'],
        ['{"a":1}', '{"x'],
        ['{"a":1}', '{"a":2}', '{"a":2}'],
    ],
)
def test_n4_what_begins_again_as_something_else_is_broken(pieces: list[str]) -> None:
    passed, broken, notes = read(*pieces)
    assert ("".join(passed), broken, notes) == (pieces[0], True, [DIFFERS])


@pytest.mark.parametrize(
    "pieces",
    [
        ['{"a":1}', " I call it now."],
        ['{"a":1}', "<b", "old text"],
        ['{"a":1} and {"b":2}', "}"],
        ['{"a":1}', "<|never"],
        ["``", "no fence"],
    ],
)
def test_n4_other_words_pass_as_they_are(pieces: list[str]) -> None:
    passed, broken, notes = read(*pieces)
    assert ("".join(passed), broken, notes) == ("".join(pieces), False, [])


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"a":{"a":[{"a":1},{"a":2}]}}}',
        '{"code":"function () { return {}; }","list":[[],{},[{}]]}',
        '{"text":"[ARGS]{}<|x|>\\" {"}',
        '{"html":"<a>}}</a>","code":"```json {}```"}',
        '{"a":{}}',
        '{"{": null, "{\\"": "{\\""}',
        "[1,{}]",
        ' \n{ "a" : { } } ',
    ],
)
def test_n4_no_split_of_good_arguments_changes_them(text: str) -> None:
    for first in range(1, len(text)):
        for second in range(first, len(text)):
            pieces = [piece for piece in (text[:first], text[first:second], text[second:]) if piece]
            passed, broken, notes = read(*pieces)
            assert ("".join(passed), broken, notes) == (text, False, []), pieces
    assert "".join(read(*text)[0]) == text


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('{}[]",:\\a é', max_size=6),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text("ab{", max_size=2), each, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("ab{", max_size=2), VALUES, min_size=1, max_size=3), st.data())
def test_n4_arguments_that_come_again_are_told_once_or_broken(value: object, data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(1, len(text)))
    again = data.draw(st.sampled_from([text, json.dumps(value, indent=1)]))
    size = data.draw(st.integers(1, 6))
    pieces = [text[at : min(at + size, cut)] for at in range(0, cut, size)]
    passed, broken, notes = read(*pieces, again)
    whole = "".join(passed)
    if not broken and json_state(whole) is JsonState.COMPLETE:
        assert json.loads(whole) == value
    else:  # where a string was cut, a line break goes on with it: models write them into strings as they are
        goes_on = json_state(whole) is JsonState.TRUNCATED or "\n" in whole
        assert broken or goes_on or not notes


def test_what_stands_in_place_of_arguments() -> None:
    assert [is_placeholder(each) for each in ("{}", " { } ", "", "{", "[]", '{"a":1}')] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ('{"a":{"a":{"' + '{"a":{"b":1}}', True),  # the first has what the second begins with
        ('{"a":' * 3 + '{"a":{"b":1}}', True),
        ('{"b"{"a":{"' + '{"a":{"b":1}}', False),
    ],
)
def test_n4_a_beginning_that_agrees_further_than_it_went_is_seen(text: str, again: bool) -> None:
    assert (whole_within(text) is not None) is again


def test_e12_beginnings_are_looked_for_at_a_small_cost() -> None:
    """In a long text of many beginnings that is not JSON in the end, beside a sorting of its characters."""
    text = ('{"a":"' + "x" * 6_000) * 64 + "}"
    assert whole_within(text) is None
    assert_at_most(20, lambda: seconds(lambda: whole_within(text)), lambda: seconds(lambda: sorted(text)))
