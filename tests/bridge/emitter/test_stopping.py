"""A response that ends at a stop sequence, however its text is divided."""

from collections.abc import Sequence
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from openresponses_bridge.emitter.stopping import StopFilter, StopMatcher, sequences_of
from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol.content import LogProb
from openresponses_bridge.protocol.items import Message
from tests.support.costs import assert_proportional
from tests.support.machines import Run

STOPS = st.lists(st.text("ab\U0001f600", min_size=1, max_size=4), min_size=1, max_size=5)
FAILURE = {"type": "server_error", "code": "boom", "message": "No.", "param": None}


def cut(text: str, sequences: Sequence[str]) -> tuple[str, str | None]:
    """What is left of a whole text, and the sequence that it ends at: the one that is complete first, of
    several the longest."""
    ends = [(at + len(each), at, each) for each in sequences if (at := text.find(each)) >= 0]
    if not ends:
        return text, None
    _, at, sequence = min(ends)
    return text[:at], sequence


class Stopped(Run):
    """The laws of a machine, held to one behind the filter."""

    def __init__(self, *sequences: str, schema: bool = True) -> None:
        super().__init__(started=False, schema=schema)
        self.machine: Any = StopFilter(self.machine, sequences_of(list(sequences)))
        self("start")

    @property
    def said(self) -> str:
        text: str = self.machine.snapshot.output_text
        return text

    @property
    def met(self) -> Any:
        return self.machine.snapshot.stop_sequence


def test_e7_a_call_whose_name_would_come_behind_the_sequence_is_left_out() -> None:
    run = Stopped("stop")
    run("tool_call", 0, "a", None, "{}")
    run("tool_call", 1, "b", "f", "{}")
    run("text", "Now stop here")
    assert run("tool_call", 0, None, "late") == []
    run("finish", "tool_calls")
    assert (run.said, run.met) == ("Now ", UNSET)
    assert run.terminal["incomplete_details"] == {"reason": "incomplete_tool_call"}
    assert [item["type"] for item in run.output] == ["function_call", "message"]


@settings(deadline=None)
@given(STOPS, st.lists(st.text("abc\U0001f600", max_size=6), max_size=8))
def test_any_pieces_give_what_the_whole_text_gives(stops: list[str], pieces: list[str]) -> None:
    run = Stopped(*stops, schema=False)
    left, sequence = cut("".join(pieces), stops)
    for piece in pieces:
        run("text", piece)
        assert left.startswith(run.said)
    run("finish", "length" if sequence else "stop")
    assert (run.said, run.met, run.terminal["status"]) == (left, sequence or UNSET, "completed")


@settings(deadline=None)
@given(STOPS, st.text("abc", max_size=12))
def test_what_is_held_back_is_the_beginning_of_a_sequence(stops: list[str], text: str) -> None:
    matcher = StopMatcher(tuple(stops))
    if matcher.feed(text) is None:
        tail = text[len(text) - matcher.partial_length :]
        assert not tail or any(each.startswith(tail) and each != tail for each in stops)
        assert matcher.partial_length <= max(map(len, stops)) - 1


def test_halves_of_a_character_are_joined_before_they_are_compared() -> None:
    run = Stopped("b\U0001f600")
    for piece in ("ab", "\ud83d", "\ude00", "c"):
        run("text", piece)
    run("finish")
    assert (run.said, run.met) == ("a", "b\U0001f600")
    run = Stopped("b\U0001f600")
    run("text", "ab\ud83d")
    run("finish")
    assert run.said == "ab\ufffd"


CLOSERS: dict[str, tuple[Any, ...]] = {
    "refusal": ("No.",),
    "reasoning": ("Hm",),
    "reasoning_summary": ("Hm",),
    "reasoning_encrypted": ("x",),
    "part_done": (),
    "block_done": (),
    "tool_call": (0, "a", "f", "{}"),
    "item_added": ({"type": "web_search_call", "id": "w", "status": "in_progress"},),
    "item": ({"type": "compaction", "id": "c", "encrypted_content": "x"},),
    "expect_item": ("msg_u",),
    "finish": (),
    "fail": (FAILURE,),
    "cancel": (),
}


@pytest.mark.parametrize("call", CLOSERS)
def test_what_is_held_back_comes_before_what_ends_the_text(call: str) -> None:
    run = Stopped("END")
    run("text", "the EN")
    assert run.said == "the "
    run(call, *CLOSERS[call])
    assert run.said == "the EN"
    if call not in ("finish", "fail", "cancel"):
        run("text", "D of it")  # another text
        run("finish")
        assert (run.said, run.met) == ("the END of it", UNSET)


AFTER: dict[str, tuple[Any, ...]] = {
    **CLOSERS,
    "text": ("more",),
    "annotation": ({"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1},),
    "tool_call_done": (0,),
    "end_nameless": (),
    "item_event": ("w", "response.web_search_call.searching", {}),
    "stop_sequence": ("other",),
}


@pytest.mark.parametrize("call", AFTER)
def test_nothing_that_follows_a_sequence_is_shown(call: str) -> None:
    run = Stopped("END")
    run("text", "the END and")
    assert run.machine.stopped
    events = run(call, *AFTER[call])
    if call in ("finish", "fail"):
        assert events[-1].type == "response.completed"
    elif call == "cancel":
        assert events[-1].type == "response.incomplete"
    else:
        assert events == []
        run("usage", {"input_tokens": 5, "output_tokens": 3})
        run("finish", "length", incomplete=True)
        assert run.terminal["usage"]["output_tokens"] == 3
    assert run.said == "the "
    assert run.met == (UNSET if call == "cancel" else "END")
    with pytest.raises(StreamStateError):
        run.machine.finish()


@pytest.mark.parametrize("end", ["end", "finish"])
def test_e7_a_call_whose_name_may_stand_behind_the_sequence_is_left_out(end: str) -> None:
    run = Stopped("END")
    run("tool_call", 0, "a", None, "{}")
    run("text", "the END")
    assert run("end_nameless") == []
    run(end)
    assert [item["type"] for item in run.output] == ["message"]
    assert [case.where for case in run.machine.diagnostics.of("loss")] == ["tool_call"]
    assert run.met == UNSET


def test_a_sequence_at_the_beginning_leaves_no_message() -> None:
    run = Stopped("END")
    run("expect_item", "msg_u")
    run("text", "E")
    run("text", "ND")
    run("finish")
    assert (run.output, run.met) == ([], "END")


@pytest.mark.parametrize("as_struct", [True, False])
def test_a_whole_message_ends_at_a_sequence(as_struct: bool) -> None:
    parts = [
        {"type": "refusal", "refusal": "x"},
        {"type": "output_text", "text": "one", "annotations": []},
        {"type": "output_text", "text": "two END", "annotations": [
            {"type": "url_citation", "url": "u", "title": "", "start_index": start, "end_index": end}
            for start, end in ((0, 3), (4, 7))
        ]},
        {"type": "output_text", "text": "three", "annotations": []},
    ]  # fmt: skip
    item: Any = {"type": "message", "id": "m", "status": "incomplete", "role": "assistant", "content": parts}
    if as_struct:
        from openresponses_bridge.protocol.codec import item_from

        item = item_from(item, [])
        assert isinstance(item, Message)
    run = Stopped("END")
    run("item", item)
    run("item", item)
    run("finish", "length")
    (message,) = run.output
    assert [part.get("text") for part in message["content"]] == [None, "one", "two "]
    assert len(message["content"][2]["annotations"]) == 1
    assert (message["status"], run.met) == ("completed", "END")
    run = Stopped("two", "x y")
    run("item", item)
    run("finish")
    assert (len(run.output[0]["content"]), run.met) == (2, "two")
    run = Stopped("nothing")
    run("item", item)
    run("finish")
    assert len(run.output[0]["content"]) == 4


def test_a_whole_message_of_which_nothing_is_left_is_left_out() -> None:
    run = Stopped("END")
    part = {"type": "output_text", "text": "END.", "annotations": []}
    run("item", {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [part]})
    run("finish")
    assert (run.output, run.met) == ([], "END")


def tokens(*texts: str) -> list[LogProb]:
    return [LogProb(each, -0.5, list(each.encode()), []) for each in texts]


def test_log_probabilities_stay_with_their_text() -> None:
    run = Stopped("END")
    run("text", "the E", tokens("the", " E"))
    run("text", "N", tokens("N"))
    run("text", "ough", tokens("o", "ugh"))
    run("finish")
    assert [each["token"] for each in run.output[0]["content"][0]["logprobs"]] == [
        "the",
        " E",
        "N",
        "o",
        "ugh",
    ]
    run = Stopped("END")
    run("text", "the E", tokens("the", " E"))
    run("text", "ND.", tokens("ND", "."))
    run("finish")
    assert [each["token"] for each in run.output[0]["content"][0]["logprobs"]] == ["the"]
    run = Stopped("END")
    run("text", "E", tokens("\ufffd", "\ufffd", "\ufffd"))  # more characters than there are
    run("text", "E", tokens(""))
    run("finish")
    assert len(run.output[0]["content"][0]["logprobs"]) == 4


def test_wrong_arguments_are_refused_as_ever() -> None:
    run = Stopped("END")
    for wrong in (7, ["x"]):
        with pytest.raises(StreamStateError):
            run.machine.text(wrong)
    with pytest.raises(StreamStateError):
        run.machine.text("E", [7])
    assert run("text", "") == []


def test_empty_and_repeated_sequences_are_left_out() -> None:
    assert sequences_of(["", "a", "a", "\ud83d\ude00"]) == ("a", "\U0001f600")
    assert sequences_of("a") == ("a",)
    assert sequences_of(None) == sequences_of("") == ()


WORST = {
    "nearly": (tuple("a" * length + "b" for length in range(200, 216)), "a"),
    "falls back": (("a" * 2000 + "b", "a" * 1999 + "c"), "a" * 1998 + "d"),
    "sixteen": (tuple("a" * length + chr(98 + length) for length in range(16)), "a"),
    "alternating": (("ab" * 100 + "c",), "ab" * 99 + "a"),
}


@pytest.mark.parametrize("case", WORST)
@pytest.mark.untraced
def test_the_cost_is_linear_in_the_text(case: str) -> None:
    sequences, piece = WORST[case]
    matcher = StopMatcher(tuple(each for each in sequences if each not in ("b", "")))

    def seconds(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        matcher.reset()
        began = process_time()
        assert matcher.feed(text) is None
        return process_time() - began

    assert_proportional(seconds, 10_000, 80_000)
