"""Whatever an upstream sends, in any order: no exception, and a valid stream with one end, the right one."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.protocol.codec import encode
from tests.support.chat import DONE, Ran, calls, chunk, frame, run
from tests.support.reference_validator import judge

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "0", "stop", "{}", "<think>", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "text", "name"]), inner, max_size=2)
    ),
    max_leaves=4,
)
PIECES = st.sampled_from(["", "{", '{"a":1}', '{"a":', "1}", "x", "}", " ", "[", "\ud83d", "\ude42"])
FRAGMENT = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([0, 1, None, "0"]),
        "id": st.sampled_from(["a", "b", "", None]),
        "type": st.sampled_from(["function", "custom", None]),
        "function": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["f", "g", "", None]),
                "arguments": PIECES | st.none() | st.just({"a": 1}),
            },
        ),
        "custom": st.none() | st.just({"name": "c", "input": "free"}),
    },
)
TEXT = st.sampled_from(["", "Hi", "<th", "ink>", "<think>", "</think>", "\n", "\ud83d", "\ude42"])
DELTA: dict[str, st.SearchStrategy[Any]] = {
    "content": TEXT | st.none(),
    "reasoning_content": TEXT | st.none(),
    "reasoning": TEXT,
    "reasoning_opaque": TEXT,
    "refusal": TEXT | st.none(),
    "tool_calls": st.lists(FRAGMENT, max_size=2) | st.none(),
    "function_call": FRAGMENT.map(lambda call: call.get("function")),
}
SAID = st.fixed_dictionaries({}, optional=DELTA).map(lambda delta: chunk(**delta))
ODD = st.fixed_dictionaries({}, optional=dict.fromkeys([*DELTA, "annotations", "audio"], JSON)).map(
    lambda delta: chunk(**delta)
)
FIELDS = ("choices", "usage", "error", "citations", "x_groq", "message", "object")
FRAMES = SAID | st.one_of(
    ODD,
    st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)).map(lambda fields: frame(**fields)),
    st.sampled_from(["stop", "length", "tool_calls", "error", "weird", ""]).map(chunk),
    st.sampled_from([DONE, b"", b"{", b"[]", b"7", b'{"type":"ping"}']),
    JSON.map(lambda value: json.dumps(value).encode()),
)


def held(ran: Ran) -> None:
    """The stream ended once, is valid, and its last word is the response as it stands."""
    assert judge([json.loads(encode(event)) for event in ran.events]) == []
    assert ran.events[-1].response == ran.response  # type: ignore[union-attr]


@given(st.lists(FRAMES, max_size=8), st.booleans())
def test_any_frames_end_in_one_valid_way(frames: list[bytes], think_tags: bool) -> None:
    held(run(*frames, think_tags=think_tags))


@given(st.lists(FRAGMENT, min_size=1, max_size=6))
def test_any_fragments_of_calls_end_in_one_valid_way(fragments: list[dict[str, Any]]) -> None:
    ran = run(*(calls(fragment) for fragment in fragments), chunk("tool_calls"), DONE)
    held(ran)


@given(st.lists(SAID, max_size=6), st.integers(0, 6))
def test_a_cut_anywhere_is_never_completed(frames: list[bytes], at: int) -> None:
    ran = run(*frames[:at])
    held(ran)
    assert ran.status == "failed"
