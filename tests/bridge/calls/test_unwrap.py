"""Law E11, field cases 33 and 34: raw input from streamed arguments, whole and cut anywhere."""

import json
import time
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from openresponses_bridge.calls.json_text import JsonState, json_state
from openresponses_bridge.calls.unwrap import InputUnwrapper, wrap_input

PATCH = '*** Begin Patch\n*** Update File: a.py\n@@\n-print("é")\n+print("🙂\\n")\n*** End Patch\n'


def unwrap(fragments: list[str]) -> tuple[str, list[str], bool]:
    unwrapper = InputUnwrapper()
    text = "".join([unwrapper.feed(fragment) for fragment in fragments]) + unwrapper.close()
    return text, unwrapper.repairs, unwrapper.truncated


def cut(text: str, at: list[int]) -> list[str]:
    edges = [0, *sorted(position % (len(text) + 1) for position in at), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


# What the model sent, the input in it, what was repaired.
CASES: list[tuple[str, str, list[str]]] = [
    # The wrapper as asked for.
    ('{"input":"go"}', "go", []),
    (' {\n "input" :\t"go" }\r\n', "go", []),
    ('{"input":""}', "", []),
    (r'{"input":"\"\\\/\b\f\n\r\tA\u00e9"}', '"\\/\b\f\n\r\tAé', []),
    ('{"\\u0069nput":"go"}', "go", []),
    ("", "", []),
    (" \n", "", []),
    ("{}", "", []),
    # Characters in halves.
    (r'{"input":"\ud83d\ude42"}', "🙂", []),
    (r'{"input":"\ud83d\ud83d\ude42"}', "\ufffd🙂", ["lone_surrogate"]),
    (r'{"input":"\ud83d-\ude42"}', "\ufffd-\ufffd", ["lone_surrogate"]),
    (r'{"input":"\ud83d"}', "\ufffd", ["lone_surrogate"]),
    ('{"input":"\ud83d\ude42"}', "🙂", []),
    ("\ud83d", "\ufffd", ["raw_text", "lone_surrogate"]),
    # Another key, members before and behind.
    ('{"patch":"go"}', "go", ["wrapper_key:patch"]),
    ('{"content":"go"}', "go", ["wrapper_key:content"]),
    ('{"code":"go"}', "go", ["wrapper_key:code"]),
    ('{"text":"go"}', "go", ["wrapper_key:text"]),
    ('{"command":"go"}', "go", ["wrapper_key:command"]),
    ('{"diff":"go"}', "go", ["wrapper_key:diff"]),
    ('{"diff":"*** Begin Patch"}', "*** Begin Patch", ["wrapper_key:diff"]),
    ('{"diff":"*** Begin Patch\\nx\\u00e9"}', "*** Begin Patch\nxé", ["wrapper_key:diff"]),
    ('{"diff":"*** Begin nothing"}', "*** Begin nothing", ["wrapper_key:diff"]),
    ('{"' + "k" * 99 + '":"go"}', "go", ["wrapper_key:" + "k" * 40]),
    ('{"why":"because","input":"go"}', "go", ["other_members"]),
    ('{"command":"apply_patch","input":"go"}', "go", ["other_members"]),
    ('{"command":"apply_patch","text":"go"}', "go", ["wrapper_key:text", "other_members"]),
    ('{"why":"because","command":"go"}', "go", ["wrapper_key:command", "other_members"]),
    ('{"n":1,"o":{"input":"no","l":["}",[{}]]},"b":true,"input":"go"}', "go", ["other_members"]),
    ('{"n":-1.5e3,"z":null,"diff":"go"}', "go", ["wrapper_key:diff", "other_members"]),
    ('{"input":"go","patch":"no","n":{"a":"\\"}"}}', "go", ["other_members"]),
    ('{"input":null,"patch":"go"}', "go", ["wrapper_key:patch", "other_members"]),
    # No wrapper: passes as it is.
    ('{"a":"1","b":"2"}', '{"a":"1","b":"2"}', ["no_wrapper"]),
    ('{"input":{"a":1}} ', '{"input":{"a":1}} ', ["no_wrapper"]),
    ("[1]", "[1]", ["raw_text"]),
    (PATCH, PATCH, ["raw_text"]),
    ("  go\n", "  go\n", ["raw_text"]),
    ('"go\\n"', "go\n", ["json_string"]),
    # Malformed: before the input is found all passes as it is, behind it nothing is added.
    ("{ let a = 1 }", "{ let a = 1 }", ["malformed_json"]),
    ('{"a" 1}', '{"a" 1}', ["malformed_json"]),
    ('{"a":]', '{"a":]', ["malformed_json"]),
    ('{"input":"go" oops', "go", ["malformed_json"]),
    ('{"input":"go"} oops', "go", ["trailing_text"]),
    ('"go" oops', "go", ["json_string", "trailing_text"]),
    ('{"input":"a\nb\tc"}', "a\nb\tc", []),
    (r'{"input":"\d+\u12\u00zz"}', r"\d+\u12\u00zz", ["invalid_escape"]),
    # Fences and here-documents.
    ('{"input":"```patch\\nA\\nB\\n```"}', "A\nB", ["code_fence"]),
    ('{"input":"\\n```\\r\\nA\\n```\\n\\n"}', "A", ["code_fence"]),
    ("````md\n```\nA\n```\n````", "```\nA\n```", ["raw_text", "code_fence"]),
    ("```py\n```", "", ["raw_text", "code_fence"]),
    ("```py\nA", "A", ["raw_text", "code_fence"]),
    ("```py\nA\n``", "A\n``", ["raw_text", "code_fence"]),
    ("```py\nA\n```\n\nB", "A\n```\n\nB", ["raw_text", "code_fence"]),
    ("```py\nA\n```\n```", "A\n```", ["raw_text", "code_fence"]),
    ("apply_patch <<'EOF'\nA\nEOF\n", "A", ["raw_text", "heredoc"]),
    ('{"input":"<<\\"END\\"\\nA\\nEND"}', "A", ["heredoc"]),
    ("applypatch <<-X\nA\nXY\nX", "A\nXY", ["raw_text", "heredoc"]),
    ("```bash\napply_patch <<EOF\nA\nEOF\n```\n", "A", ["raw_text", "code_fence", "heredoc"]),
    # What only looks like one.
    ("```", "```", ["raw_text"]),
    ("``x", "``x", ["raw_text"]),
    ("``` not a fence\nA\n```", "``` not a fence\nA\n```", ["raw_text"]),
    ("```" + "x" * 200 + "\nA", "```" + "x" * 200 + "\nA", ["raw_text"]),
    ("apply_patch is a tool\n", "apply_patch is a tool\n", ["raw_text"]),
    ("<<'EOF\nA\nEOF", "<<'EOF\nA\nEOF", ["raw_text"]),
    ("A\n```", "A\n```", ["raw_text"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "text", "repairs"), CASES, ids=[f"{n} {case[0][:32]!a}" for n, case in enumerate(CASES)]
)
def test_e11_case_34_input_whole_by_character_and_in_two(sent: str, text: str, repairs: list[str]) -> None:
    expected = (text, repairs, False)
    assert unwrap([sent]) == expected
    assert unwrap(["", *sent, ""]) == expected
    for at in range(len(sent)):
        assert unwrap([sent[:at], sent[at:]]) == expected


CUT_CASES = [
    ('{"input":"go', "go"),
    ('{"input":"go\\', "go"),
    ('{"input":"go\\u00e', "go"),
    ('{"input":"go\\ud83d', "go\ufffd"),
    ('{"input":"go"', "go"),
    ('{"input":"go","n":{', "go"),
    ('{"diff":"go', "go"),
    ('{"why":"a","diff":"go', ""),
    ('{"inp', ""),
    ('{"input"', ""),
    ('{"input":', ""),
    ("{", ""),
    ('"go', "go"),
    ('{"input":"```py\\ngo', "go"),
]


@pytest.mark.parametrize(("sent", "text"), CUT_CASES)
def test_e11_cut_arguments_give_what_came_and_are_marked(sent: str, text: str) -> None:
    for fragments in ([sent], list(sent)):
        result, _, truncated = unwrap(fragments)
        assert (result, truncated) == (text, True)


def is_plain(text: str) -> bool:
    begun = text.lstrip()
    return not begun.startswith(("```", "<<", "apply"))


ANY_TEXT = st.text(max_size=60) | st.text('\\"/{}🙂é\n`<EOF u0d', max_size=60)
CUTS = st.lists(st.integers(0, 10_000), max_size=10)


@given(
    text=ANY_TEXT,
    key=st.sampled_from(["input", "patch", "content", "code", "text", "command", "diff", "é"]),
    before=st.dictionaries(
        st.text("abc", min_size=1), st.integers() | st.lists(st.text(max_size=4), max_size=2)
    ),
    ascii_only=st.booleans(),
    layout=st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"separators": (" , ", "\t: ")}]),
    at=CUTS,
)
@example("🙂", "input", {}, True, {}, [12, 13, 14, 18, 19])
def test_e11_any_text_in_any_wrapper_comes_back_exactly(
    text: str, key: str, before: dict[str, object], ascii_only: bool, layout: dict[str, Any], at: list[int]
) -> None:
    assume(is_plain(text))
    sent = json.dumps({**before, key: text}, ensure_ascii=ascii_only, **layout)
    repairs = [f"wrapper_key:{key}"] * (key != "input") + ["other_members"] * bool(before)
    for fragments in ([sent], cut(sent, at), list(sent)):
        assert unwrap(fragments) == (text, repairs, False)


@given(text=ANY_TEXT, at=CUTS)
def test_e11_any_raw_text_comes_back_exactly(text: str, at: list[int]) -> None:
    assume(is_plain(text) and text.strip(" \t\r\n")[:1] not in ("", "{", '"'))
    assert unwrap(cut(text, at)) == (text, ["raw_text"], False)


@given(sent=st.text('{}[]":,\\input patch\n`<EOF1ud83e', max_size=60), at=CUTS)
def test_e11_any_arguments_give_the_same_however_they_are_cut(sent: str, at: list[int]) -> None:
    expected = unwrap([sent])
    assert unwrap(cut(sent, at)) == expected
    assert unwrap(list(sent)) == expected


@given(
    text=st.text("ab\n` EOF\r", max_size=40),
    opening=st.sampled_from(["```\n", "```patch\n", "<<EOF\n"]),
    at=CUTS,
)
def test_case_34_any_wrapped_text_gives_the_same_however_it_is_cut(
    text: str, opening: str, at: list[int]
) -> None:
    expected = unwrap([opening + text])
    assert unwrap(cut(opening + text, at)) == expected
    assert unwrap(list(opening + text)) == expected
    closing = "```" if opening.startswith("`") else "EOF"
    assert unwrap(cut(f"{opening}{text}\n{closing}\n", at))[0] == text


@given(
    document=st.dictionaries(
        st.sampled_from(["input", "patch", "diff", "n"]),
        st.recursive(
            ANY_TEXT | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=2), max_leaves=3
        ),
    ),
    ascii_only=st.booleans(),
)
def test_e11_truncated_means_what_json_state_says(document: dict[str, object], ascii_only: bool) -> None:
    sent = json.dumps(document, ensure_ascii=ascii_only)
    for end in range(len(sent) + 1):
        assert unwrap([sent[:end]])[2] is (json_state(sent[:end]) is JsonState.TRUNCATED), sent[:end]


@pytest.mark.parametrize("sent", [
    json.dumps({"input": PATCH * 20}),
    json.dumps({"why": "x" * 40, "n": [1, {}], "patch": PATCH * 20}),
    json.dumps({"some_other_key": PATCH * 20}),
    json.dumps({"input": "```patch\n" + PATCH * 20 + "```"}),
    json.dumps({"input": "apply_patch <<'EOF'\n" + PATCH * 20 + "EOF\n"}),
    json.dumps(PATCH * 20),
    PATCH * 20,
], ids=["input", "late key", "unknown key", "fence", "heredoc", "string", "raw"])  # fmt: skip
def test_e11_a_patch_streams_from_its_beginning(sent: str) -> None:
    unwrapper = InputUnwrapper()
    behind: list[int] = []
    came = 0
    for end, character in enumerate(sent, 1):
        came += len(unwrapper.feed(character))
        behind.append(end - came)
    first = next(end for end, lag in enumerate(behind, 1) if lag < end)
    assert first < 120
    # Escapes and the wrapper are all that it lags behind.
    assert came > 0.9 * len(PATCH * 20) - 10
    assert unwrapper.close() in ("", "\n")


def test_e11_half_an_escape_and_half_a_character_are_held_and_nothing_else() -> None:
    unwrapper = InputUnwrapper()
    fragments = ['{"input":"x', "b\\", "nc\\u", "00", "e9", "\\ud83d", "\\ud", "e42d", '"', "}"]
    assert [unwrapper.feed(fragment) for fragment in fragments] == [
        "x",
        "b",
        "\nc",
        "",
        "é",
        "",
        "",
        "🙂d",
        "",
        "",
    ]
    assert unwrapper.close() == ""


def test_case_34_only_what_may_be_the_closing_line_is_held() -> None:
    unwrapper = InputUnwrapper()
    fragments = ["```patch", "\nlong line", " goes on", "\n", "next\n``", "x\n```", "\n"]
    assert [unwrapper.feed(fragment) for fragment in fragments] == [
        "",
        "long line",
        " goes on",
        "",
        "\nnext",
        "\n``x",
        "",
    ]
    assert unwrapper.repairs == ["raw_text", "code_fence"]
    assert unwrapper.close() == ""


@pytest.mark.parametrize("begin", ["apply_patch ", "```", "  ", "<<"])
def test_case_34_a_first_line_too_long_to_open_a_wrapper_streams(begin: str) -> None:
    unwrapper = InputUnwrapper()
    text = begin + "x" * 100
    assert unwrapper.feed(wrap_input(text)[:-2]) == text


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", '{"input":""}'),
        ('a"\n', '{"input":"a\\"\\n"}'),
        ("é🙂", '{"input":"é🙂"}'),
        ("\ud83d", '{"input":"\ufffd"}'),
    ],
    ids=["empty", "escapes", "not escaped", "lone surrogate"],
)
def test_case_33_canonical_arguments(text: str, arguments: str) -> None:
    assert wrap_input(text) == arguments


@given(ANY_TEXT)
def test_case_33_what_is_wrapped_unwraps_to_itself(text: str) -> None:
    assume(is_plain(text))
    assert unwrap(list(wrap_input(text))) == (text, [], False)


def test_e12_nothing_is_kept_once_the_input_is_found() -> None:
    unwrapper = InputUnwrapper()
    tracemalloc.start()
    try:
        unwrapper.feed('{"why":"')
        for _ in range(100):
            assert unwrapper.feed("x" * 10_000) == ""
        buffered, _ = tracemalloc.get_traced_memory()
        unwrapper.feed('","input":"')
        for _ in range(100):
            assert unwrapper.feed("x" * 10_000) == "x" * 10_000
        remaining, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert buffered > 1_000_000
    assert remaining < 50_000


BEGINNINGS = {
    "input": '{"input":"',
    "held": '{"zzz":"',
    "skipped": '{"input":"x","zzz":"',
    "skipped list": '{"input":"x","zzz":[',
    "key": '{"',
    "raw": "raw ",
    "white space": "",
    "fence": "```\n",
    "blank lines behind a fence": "```\n\n```\n",
}


@pytest.mark.bench
@pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
def test_cost_of_a_fragment_does_not_grow_with_what_came_before(begin: str) -> None:
    character = "\n" if begin.endswith("\n```\n") or not begin else "x"

    def seconds(before: int) -> float:
        unwrapper = InputUnwrapper()
        unwrapper.feed(begin)
        unwrapper.feed(character * before)
        start = time.process_time()
        for _ in range(1_000):
            unwrapper.feed(character)
        return time.process_time() - start

    # Reading or copying 4 MB again for each fragment would cost some hundred times as much.
    assert min(seconds(4_000_000) for _ in range(3)) < 10 * min(seconds(1_000) for _ in range(3)) + 0.005
