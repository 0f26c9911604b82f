"""Answers that servers do not send as deltas of one choice: each text once, the calls, the thinking."""

from typing import Any

import pytest

from openresponses_bridge.dialects.chat_completions import ChatOptions
from openresponses_bridge.dialects.chat_completions.upstream import inbound
from openresponses_bridge.protocol.items import Message
from tests.support.chat import DONE, Ran, chunk, completion, frame, part, run

CALL = part("{}", name="look", id="call_1", index=0)
EMPTY = {"name": "", "arguments": ""}


def texts(ran: Ran) -> list[str]:
    return [item.content[0].text for item in ran.output if isinstance(item, Message)]  # type: ignore[union-attr]


def choices(*given: dict[str, Any]) -> bytes:
    return frame(choices=list(given))


# ── what stands beside a call ────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "beside",
    [
        {"function_call": EMPTY},
        {"function_call": {"name": None}},
        {"function_call": {"name": "look", "arguments": "{}"}},
    ],
)
@pytest.mark.parametrize("custom", [{}, {"custom": {"name": "", "input": ""}}])
def test_an_empty_or_repeated_call_is_none(beside: dict[str, Any], custom: dict[str, Any]) -> None:
    streamed = run(chunk(tool_calls=[{**CALL, **custom}], **beside), chunk("tool_calls"), DONE)
    whole = run(completion("tool_calls", content="Hi", tool_calls=[{**CALL, **custom}], **beside))
    assert streamed.calls == whole.calls == [("call_1", "look", "{}")]
    assert (streamed.status, whole.status) == ("completed", "completed")


LEGACY = {"name": "look", "arguments": "{}"}


@pytest.mark.parametrize(
    "deltas",
    [
        [{"function_call": LEGACY}, {"tool_calls": [CALL]}, {"function_call": LEGACY}],
        [{"tool_calls": [CALL]}, {"function_call": LEGACY}],
        [
            {"function_call": {"name": "look", "arguments": ""}},
            {"tool_calls": [part("", name="look", id="call_1", index=0)]},
            {"function_call": {"arguments": "{}"}},
            {"tool_calls": [part("{}", index=0)]},
        ],
    ],
)
def test_a_function_call_in_other_chunks_than_the_tool_call_is_the_same(deltas: list[dict[str, Any]]) -> None:
    ran = run(*(chunk(**delta) for delta in deltas), chunk("tool_calls"), DONE)
    assert [call[1:] for call in ran.calls] == [("look", "{}")]
    assert ran.status == "completed"


@pytest.mark.parametrize("entry", [{"id": "x", "function": None}, part("", name="", id="")])
def test_an_entry_without_a_name_and_arguments_is_no_call(entry: dict[str, Any]) -> None:
    ran = run(completion("tool_calls", content=None, tool_calls=[CALL, entry]))
    assert (ran.calls, ran.status) == ([("call_1", "look", "{}")], "completed")


def test_an_empty_function_call_beside_text_is_none() -> None:
    ran = run(chunk(content="Hi", function_call=EMPTY), chunk("stop"), DONE)
    assert (texts(ran), ran.calls, ran.status) == (["Hi"], [], "completed")


def test_empty_sound_beside_text_is_none() -> None:
    empty = {"id": "", "data": ""}
    for ran in (
        run(chunk(content="Hi", audio=empty), chunk("stop", audio=empty), DONE),
        run(completion("stop", content="Hi", audio=empty)),
    ):
        assert (texts(ran), len(ran.output), ran.status) == (["Hi"], 1, "completed")


# ── one answer in two choices ────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_text_in_one_choice_and_calls_in_another_are_one_answer(numbered: bool, turned: bool) -> None:
    text, called = {"content": "I look."}, {"tool_calls": [CALL]}
    both = [called, text] if turned else [text, called]
    entries = [{"message": each, "finish_reason": "tool_calls"} for each in both]
    ran = run(choices(*({**each, **({"index": at} if numbered else {})} for at, each in enumerate(entries))))
    assert (texts(ran), ran.calls, ran.status) == (["I look."], [("call_1", "look", "{}")], "completed")
    assert ran.losses == []


@pytest.mark.parametrize(
    ("given", "text", "calls"),
    [
        ([{"content": "Hi"}, {"tool_calls": [CALL]}, {"tool_calls": [{**CALL, "id": "call_2"}]}], "Hi", 2),
        ([{"content": "", "reasoning_content": "hm"}, {"content": "Hi"}], "Hi", 0),
        ([{"content": ""}, {"content": "Hi"}], "Hi", 0),
    ],
)
def test_what_the_first_choice_has_not_comes_of_the_others(
    given: list[dict[str, Any]], text: str, calls: int
) -> None:
    ran = run(
        choices(*({"index": at, "message": each, "finish_reason": "stop"} for at, each in enumerate(given)))
    )
    assert (texts(ran), len(ran.calls), ran.status) == ([text], calls, "completed")


def test_choices_may_be_numbered_from_one() -> None:
    ran = run(chunk(index=1, content="Hi"), chunk("stop", index=1), DONE)
    assert (texts(ran), ran.status) == (["Hi"], "completed")


def test_streamed_choices_are_joined_too() -> None:
    ran = run(
        chunk(content="I "),
        chunk(index=1, tool_calls=[part('{"a"', name="look", id="call_1", index=0)]),
        chunk(content="look."),
        chunk(index=1, tool_calls=[part(":1}", index=0)]),
        chunk("stop"),
        chunk("tool_calls", index=1),
        DONE,
    )
    assert (texts(ran), ran.calls) == (["I look."], [("call_1", "look", '{"a":1}')])
    assert ran.status == "completed"


def test_s4_a_second_choice_that_does_not_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no part of the answer then: none of it is joined to that."""
    monkeypatch.setattr(inbound, "_MOST_OTHERS", 3)
    pieces = [choices({"index": 1, "delta": {"content": "Hi"}, "finish_reason": None}) for _ in range(4)]
    ran = run(*pieces, chunk(tool_calls=[CALL]), chunk("tool_calls"), DONE)
    assert (texts(ran), ran.calls, ran.status) == ([], [("call_1", "look", "{}")], "completed")
    assert ran.losses == ["choices: choice 1 of n, only the first is kept"]


@pytest.mark.parametrize("other", [{"content": "No."}, {"content": "No.", "tool_calls": [CALL]}])
def test_another_answer_in_another_choice_is_a_loss(other: dict[str, Any]) -> None:
    ran = run(chunk(content="Yes."), chunk(index=1, **other), chunk("stop"), DONE)
    assert (texts(ran), ran.calls) == (["Yes."], [])
    assert ran.losses == ["choices: choice 1 of n, only the first is kept"]


# ── messages and texts in the place of deltas ────────────────────────────────────────────────────────
def message(finish: str | None = None, **fields: Any) -> bytes:
    return choices({"index": 0, "message": {"role": "assistant", **fields}, "finish_reason": finish})


@pytest.mark.parametrize("last", ["", "Hello, you."])
def test_messages_in_the_place_of_deltas_are_pieces(last: str) -> None:
    ran = run(message(content="Hello, "), message(content="you."), message("stop", content=last), DONE)
    assert (texts(ran), ran.status) == (["Hello, you."], "completed")


def test_calls_in_messages_in_the_place_of_deltas() -> None:
    ran = run(message(content="I look."), message("tool_calls", tool_calls=[CALL]))
    assert (texts(ran), ran.calls) == (["I look."], [("call_1", "look", "{}")])


def test_messages_in_the_place_of_deltas_that_are_cut_have_failed() -> None:
    assert run(message(content="Hello, "), message(content="you")).error[0] == "upstream_cut"


def test_a_tool_call_that_is_an_object_is_the_only_one() -> None:
    ran = run(
        chunk(tool_calls={"index": 0, "id": "", "function": {"name": "look", "arguments": '{"a"'}}),
        chunk(tool_calls={"index": 0, "id": "", "function": {"name": None, "arguments": ":1}"}}),
        chunk("tool_calls"),
        DONE,
    )
    assert [each[1:] for each in ran.calls] == [("look", '{"a":1}')]
    assert ran.repairs[0] == "chunk.choices[].delta.tool_calls: read an object as the only one of its array"


def test_the_text_of_the_api_before_chat_is_the_answer() -> None:
    streamed = run(choices({"index": 0, "text": "Hel"}), choices({"text": "lo"}), chunk("stop"), DONE)
    whole = run(choices({"index": 0, "text": "Hello", "finish_reason": "stop"}))
    assert (texts(streamed), texts(whole)) == (["Hello"], ["Hello"])
    assert (streamed.status, whole.status) == ("completed", "completed")


# ── text that comes again ────────────────────────────────────────────────────────────────────────────
AGAIN = ChatOptions(repeated_text=True)
NOTE = "content: repeats the text before it; the option repeated_text reads such an upstream"


@pytest.mark.parametrize(
    "pieces",
    [
        ["Hel", "Hello", "Hello world"],
        ["Hello", " world", "Hello world"],
        ["Hello", "Hello world", "Hello world"],
        ["Hello", "Hello world", ""],
    ],
)
@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_text_that_comes_again_is_sent_once_with_the_option(pieces: list[str], field: str) -> None:
    ran = run(*(chunk(**{field: each}) for each in pieces), chunk("stop"), DONE, reading=AGAIN)
    (item,) = ran.output
    assert item.content[0].text == "Hello world"  # type: ignore[union-attr,index]
    assert ran.status == "completed"


def test_a_replay_in_the_middle_is_left_out_with_the_option() -> None:
    pieces = ["Hello ", "world.", "Hello world.", " Fine."]
    ran = run(*(chunk(content=each) for each in pieces), chunk("stop"), DONE, reading=AGAIN)
    assert texts(ran) == ["Hello world. Fine."]


@pytest.mark.parametrize(
    "frames",
    [
        [chunk(content="Hello"), chunk(content=" world"), chunk("stop", content="Hello world")],
        [chunk(content="Hel"), chunk(content="Hello"), chunk(content="Hello world"), chunk("stop")],
    ],
)
def test_text_that_looks_repeated_is_kept_and_said_without_the_option(frames: list[bytes]) -> None:
    ran = run(*frames, DONE)
    assert texts(ran)[0].count("Hel") > 1
    warnings = [f"{case.where}: {case.what}" for case in ran.inbound.diagnostics.of("warning")]
    assert warnings == [NOTE]


def test_a_text_that_repeats_itself_looks_like_no_replay() -> None:
    for pieces in (["ha", "haha", " ha"], ["a", "and", " b"]):
        ran = run(*(chunk(content=each) for each in pieces), chunk("stop"), DONE)
        assert (texts(ran), list(ran.inbound.diagnostics)) == (["".join(pieces)], [])


# ── text that waits when the upstream fails ──────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("<thi", ("message", "<thi")),
        ("  ", ("message", "  ")),
        ("<think>Hm. </", ("reasoning", "Hm. </")),
        ("<think>Hm.\n", ("reasoning", "Hm.\n")),
    ],
)
@pytest.mark.parametrize("failure", ["frame", "choice", "unreadable", "flush"])
def test_e8_text_that_waits_is_sent_before_the_failure(
    said: str, kept: tuple[str, str], failure: str
) -> None:
    failed = {
        "frame": [frame(error={"message": "boom"})],
        "choice": [choices({"index": 0, "delta": {}, "error": {"message": "boom"}}), DONE],
        "unreadable": [b"{"],
        "flush": [],
    }[failure]
    ran = run(chunk(content=said), *failed, close=False)
    if failure == "flush":  # the connection was lost
        ran.inbound.flush()
    (item,) = ran.output
    assert (item.type, item.content[0].text) == kept  # type: ignore[union-attr,index]
    assert ran.status == ("in_progress" if failure == "flush" else "failed")
    assert ran.inbound.flush() == []


# ── other forms of the same ──────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "delta",
    [
        {"content": {"type": "text", "text": "Hi"}},
        {"content": [{"text": "Hi"}]},
        {"content": [{"type": "reasoning", "summary": [{"text": "hm"}]}, {"type": "text", "text": "Hi"}]},
    ],
)
def test_content_in_other_forms(delta: dict[str, Any]) -> None:
    for ran in (run(chunk(**delta), chunk("stop"), DONE), run(completion("stop", **delta))):
        assert (texts(ran), ran.status) == (["Hi"], "completed")
        assert ("summary" in str(delta)) == (len(ran.output) == 2)


@pytest.mark.parametrize(
    "empty", [{"delta": {}}, {"delta": {"content": None}}, {"message": {"content": None}}]
)
def test_a_legacy_text_beside_an_empty_delta_is_the_text(empty: dict[str, Any]) -> None:
    pieces = [choices({"index": 0, "text": each, **empty}) for each in ("Hel", "lo")]
    last = choices({"index": 0, "text": "Hello", **empty, "finish_reason": "stop"})
    ran = run(*pieces, last, DONE)
    assert (texts(ran), ran.status) == (["Hello"], "completed")


def test_tool_calls_as_an_object_by_their_places() -> None:
    ran = run(chunk(tool_calls={"0": CALL}), chunk("tool_calls"), DONE)
    assert (ran.calls, ran.status) == ([("call_1", "look", "{}")], "completed")


@pytest.mark.parametrize("end", [b'"[DONE]"', b"[done]"])
def test_other_end_marks(end: bytes) -> None:
    ran = run(chunk(content="Hi"), chunk("normal"), end)
    assert (texts(ran), ran.status) == (["Hi"], "completed")
