"""The generation and the turn that are read, and frames that can't be read."""

import json

import pytest

from openresponses_bridge.dialects.codex import Generation, Inbound
from tests.support.checked_inbound import CheckedInbound, Frame
from tests.support.codex import TURN, counts, ended, item, legacy, notify, proxied, said, spent, started


def fed(*frames: Frame, close: bool = True) -> CheckedInbound:
    return CheckedInbound(Inbound, frames, close=close)


def test_first_frame_starts_the_machine() -> None:
    stream = fed(close=False)
    assert stream.feed({"id": 1, "result": {}}) == ["created", "in_progress"]
    assert stream.feed(started()) == []
    assert stream.feed(said("a"))[0] == "output_item.added"


def test_a_started_machine_is_not_started_again() -> None:
    stream = fed(close=False)
    stream.run("start")
    assert stream.feed(started()) == []


# ── generations ────────────────────────────────────────────────────────────────────────────────────
def test_newer_generation_is_believed_as_long_as_nothing_was_sent() -> None:
    stream = fed(
        legacy("task_started"),
        {"method": "thread/started", "params": {}},
        started(),
        legacy("agent_message_delta", delta="old"),
        said("new"),
        ended(),
    )
    assert stream.response.output_text == "new"
    assert stream.inbound.generation is Generation.APP_SERVER  # type: ignore[attr-defined]


def test_what_was_begun_in_one_generation_is_not_sent_again_in_another() -> None:
    stream = fed(
        legacy("agent_message_delta", delta="a"),
        started(),
        said("a"),
        proxied("output_text.delta", delta="a"),
        legacy("agent_message_delta", delta="b"),
        ended(),
        legacy("task_complete"),
    )
    assert stream.response.output_text == "ab"


def test_thread_notifications_do_not_choose_a_generation() -> None:
    stream = fed(notify("thread/name/updated"), legacy("agent_message", message="a"), legacy("task_complete"))
    assert stream.response.output_text == "a"


def test_a_request_is_heard_whichever_generation_is_believed() -> None:
    request = {"id": 3, "method": "item/fileChange/requestApproval", "params": {"itemId": "f"}}
    stream = fed(legacy("agent_message_delta", delta="a"), request, legacy("task_complete"))
    assert stream.extensions("codex:approval_request")[0]["request_id"] == 3


# ── turns ──────────────────────────────────────────────────────────────────────────────────────────
def test_only_the_first_turn_is_read() -> None:
    other = {"method": "item/agentMessage/delta", "params": {"turnId": "turn_2", "itemId": "m", "delta": "x"}}
    stream = fed(started(), said("a"), other, ended())
    assert stream.response.output_text == "a"
    assert stream.notes("ignored") == ["turn: notifications of another turn"]


def test_a_turn_of_the_same_id_in_another_thread_is_left_out() -> None:
    """As older servers count them, from 0 in each thread; what names a thread alone is left out with it."""
    elsewhere = {"threadId": "other", "turnId": TURN, "itemId": "m", "delta": "x"}
    resolved = {"method": "serverRequest/resolved", "params": {"threadId": "other", "requestId": 0}}
    older = {"id": TURN, "conversationId": "other", "msg": {"type": "agent_message_delta", "delta": "x"}}
    stream = fed(
        started(),
        {"method": "item/agentMessage/delta", "params": elsewhere},
        {"method": "codex/event/agent_message_delta", "params": older},
        resolved,
        said("a"),
        ended(),
    )
    assert stream.response.output_text == "a"
    assert stream.extensions("codex:request_resolved") == []
    (case,) = stream.inbound.diagnostics
    assert (case.what, case.times) == ("notifications of another turn", 2)


def test_counts_of_an_older_turn_do_not_choose_the_turn() -> None:
    """With which a thread that is resumed begins."""
    older = spent(counts(70, 7), counts(70, 7), turn="turn_0")
    stream = fed(older, started(), said("a"), spent(counts(80, 9), counts(10, 2)), ended())
    assert stream.response.output_text == "a"
    assert stream.response.usage is not None
    assert stream.response.usage.input_tokens == 10


def test_a_delta_of_another_turn_for_the_open_item_is_left_out() -> None:
    other = {
        "method": "item/agentMessage/delta",
        "params": {"turnId": "turn_2", "itemId": "msg_a", "delta": "x"},
    }
    stream = fed(started(), said("a"), other, said("b"), ended())
    assert stream.response.output_text == "ab"


def test_deltas_without_a_turn_are_ours() -> None:
    bare = {"method": "item/agentMessage/delta", "params": {"itemId": "msg_a", "delta": "b"}}
    assert fed(started(), said("a"), bare, bare, ended()).response.output_text == "abb"


# ── wrappings ──────────────────────────────────────────────────────────────────────────────────────
def test_recordings_are_unwrapped_and_the_clients_side_is_left_out() -> None:
    ours = {"t": 0.1, "dir": "out", "msg": {"id": 4, "method": "turn/interrupt", "params": {}}}
    stream = fed(ours, *[{"t": 0.1, "dir": "in", "msg": frame} for frame in (started(), said("a"), ended())])
    assert stream.response.output_text == "a"
    assert not list(stream.inbound.diagnostics)


def test_an_error_answer_before_the_turn_fails_and_later_ones_do_not() -> None:
    refused = {"id": 3, "error": {"code": -32600, "message": "no such thread"}}
    assert fed(refused).error == ("upstream_error", "no such thread")
    assert fed(started(), refused, said("a"), ended()).status == "completed"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"{", "upstream_invalid_json"),
        (b"[]", "upstream_invalid_shape"),
        (
            b'{"method":"item/agentMessage/delta","params":{"itemId":"msg_a","delta":"\xff"}}',
            "upstream_invalid_json",
        ),
    ],
)
def test_unreadable_frames_fail_the_response(frame: bytes, code: str) -> None:
    stream = fed(started(), said("a"), frame)
    assert stream.status == "failed"
    assert stream.error[0] == code
    assert stream.output[0]["status"] == "incomplete"


def test_odd_frames_say_nothing() -> None:
    odd = [
        {},
        {"msg": 3},
        {"method": 3},
        notify("item/started"),
        notify("item/agentMessage/delta", delta=None),
    ]
    stream = fed(started(), said("a"), *odd, ended())
    assert stream.response.output_text == "a"


def test_case_14_no_delta_after_its_item_is_done() -> None:
    stream = fed(
        started(),
        said("a"),
        item("completed", "commandExecution", "c", status="completed"),
        said("b"),
        ended(),
    )
    assert [each["type"] for each in stream.output] == ["message", "codex:command_execution", "message"]


def test_case_26_an_end_without_the_turns_end_is_a_cut() -> None:
    assert fed(started(), said("a")).error[0] == "upstream_cut"
    assert fed().error[0] == "upstream_cut"


def test_frames_after_the_end_are_ignored() -> None:
    stream = fed(started(), said("a"), ended(), said("b"))
    assert stream.response.output_text == "a"
    assert stream.notes("ignored") == ["frame: came after the end"]


def test_split_surrogates_in_deltas_are_joined() -> None:
    halves = [json.dumps(said(half)).encode() for half in ("\ud83d", "\ude00")]
    assert fed(started(), said("a"), *halves, ended()).response.output_text == "a😀"
