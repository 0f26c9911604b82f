"""Events, deltas and parts of an upstream whose type is not known: those that say something are losses, once
for each type; a flood of types leaves room for other cases."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from openresponses_bridge.diagnostics import Diagnostic
from tests.support.calling import CALLING, SAID
from tests.support.checked_inbound import CheckedInbound

Json = dict[str, Any]
NAMED = {"name": "find"}


class Row(NamedTuple):
    """An unknown part of an answer in a dialect: `made` returns it by its name and fields. It comes after so
    many frames of the answer in `CALLING`. `where` and `what` are in the report."""

    dialect: str
    made: Callable[[str, Json], Json]
    after: int
    where: str
    what: str = "unknown event"


ROWS = {
    "anthropic": Row("anthropic", lambda name, fields: {"type": name, "index": 0, **fields}, 1, "{}"),
    "anthropic delta": Row(
        "anthropic",
        lambda name, fields: {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": name, **fields},
        },
        3,
        "delta.{}",
        "unknown delta",
    ),
    "bedrock": Row(
        "bedrock", lambda name, fields: {name: {"contentBlockIndex": 0, "p": "ab", **fields}}, 1, "{}"
    ),
    "interactions": Row(
        "interactions",
        lambda name, fields: {"event_type": name, "event_id": "1", "index": 0, **fields},
        1,
        "{}",
    ),
    "interactions delta": Row(
        "interactions",
        lambda name, fields: {"event_type": "step.delta", "index": 0, "delta": {"type": name, **fields}},
        1,
        "step.delta.{}",
        "does not belong to its step",
    ),
    "responses": Row(
        "responses",
        lambda name, fields: {"type": f"response.{name}", "output_index": 0, "item_id": "msg_1", **fields},
        1,
        "response.{}",
    ),
}
PINGS = ["ping", "keepalive", "keep-alive", "keepAlive", "heartbeat"]
EMPTY: list[Json] = [{}, {"text": ""}, {"text": None, "parts": [{}, []], "inner": {"text": "", "type": "x"}}]


def fed_with(row: Row, odd: list[Json], name: Json) -> CheckedInbound:
    """Feed an answer whose first call has this name, with odd frames in it."""
    build, frames = CALLING[row.dialect]
    known_frames = frames(name, False, "")
    return CheckedInbound(build, [*known_frames[: row.after], *odd, *known_frames[row.after :]])


def losses(fed: CheckedInbound) -> list[Diagnostic]:
    """Return the losses of an inbound."""
    return fed.inbound.diagnostics.of("loss")


@pytest.mark.parametrize("said", [{"text": "x"}, {"count": 0}, {"parts": [{"inner": False}]}])
@pytest.mark.parametrize("part", ROWS)
@pytest.mark.untraced
def test_an_unknown_event_that_says_something_is_a_loss_once(part: str, said: Json) -> None:
    row = ROWS[part]
    fed = fed_with(row, [row.made(name, said) for name in ("poem", "song", "poem")], NAMED)
    assert (fed.status, fed.response.output_text) == ("completed", SAID)
    assert losses(fed) == [
        Diagnostic("loss", row.where.format("poem"), row.what, 2),
        Diagnostic("loss", row.where.format("song"), row.what),
    ]


@pytest.mark.parametrize("said", EMPTY)
@pytest.mark.parametrize("part", ROWS)
def test_an_unknown_event_that_says_nothing_is_no_loss(part: str, said: Json) -> None:
    row = ROWS[part]
    fed = fed_with(row, [row.made("poem", said)], NAMED)
    assert (fed.status, losses(fed)) == ("completed", [])
    assert f"{row.where.format('poem')}: {row.what}" in fed.notes("ignored")


@pytest.mark.parametrize("name", PINGS)
@pytest.mark.parametrize("dialect", ["anthropic", "bedrock", "interactions", "responses"])
@pytest.mark.untraced
def test_a_ping_is_no_loss_whatever_is_in_it(dialect: str, name: str) -> None:
    ping = {"type": name, "at": 7} if dialect == "responses" else ROWS[dialect].made(name, {"at": 7})
    fed = fed_with(ROWS[dialect], [ping], NAMED)
    assert (fed.status, fed.response.output_text, losses(fed)) == ("completed", SAID, [])


@pytest.mark.parametrize("part", ROWS)
@pytest.mark.untraced
def test_many_unknown_types_leave_room_for_later_losses(part: str) -> None:
    row = ROWS[part]
    flood = [row.made(f"poem{number}", {"text": "x"}) for number in range(300)]
    fed = fed_with(row, flood + flood[:1], {})
    *named, more, last = losses(fed)
    assert [case.where for case in named] == [row.where.format(f"poem{number}") for number in range(20)]
    assert [case.times for case in named] == [2] + [1] * 19
    assert more == Diagnostic("loss", "unknown types", "more than are named", 280)
    assert last == Diagnostic("loss", "tool_call", "never got a name")
    assert fed.inbound.diagnostics.dropped == 0


def test_unknown_deltas_of_a_text_of_converse_are_losses_of_which_few_are_named() -> None:
    row = ROWS["bedrock"]._replace(after=2)  # within the text
    deltas = [{f"poem{number}": {"text": "x"}} for number in range(300)]
    odd = [{"contentBlockDelta": {"contentBlockIndex": 0, "delta": delta}} for delta in deltas]
    *named, more, last = losses(fed_with(row, odd, {}))
    assert [case.where for case in named] == [f"text.poem{number}" for number in range(20)]
    assert (more.times, last.where) == (280, "tool_call")


def test_known_places_of_converse_are_named_however_many_unknown_ones_there_are() -> None:
    """Before them they take no room, and behind them they are not one case with them."""
    known = [{"text": 7}, {"citation": 7}, {"toolUse": 7}, {"reasoningContent": 7}]
    places = ["text.text", "text.citation", "text.toolUse", "text.reasoningContent"]
    unknown = [{f"poem{number}": {"text": "x"}} for number in range(300)]
    for deltas, times in ((known + unknown, 1), (unknown + known + known, 2)):
        row = ROWS["bedrock"]._replace(after=2)  # within the text
        odd = [{"contentBlockDelta": {"contentBlockIndex": 0, "delta": delta}} for delta in deltas]
        counts = {case.where: case.times for case in losses(fed_with(row, odd, NAMED))}
        assert {where: times for where, times in counts.items() if "poem" not in where} == {
            **dict.fromkeys(places, times),
            "unknown types": 280,
        }
        assert sum("poem" in where for where in counts) == 20


def test_a_known_delta_in_another_step_is_named_however_many_unknown_ones_there_are() -> None:
    row = ROWS["interactions delta"]
    flood = [row.made(f"poem{number}", {"text": "x"}) for number in range(300)]
    signed = row.made("thought_signature", {"signature": "x"})
    *named, more, known = losses(fed_with(row, [*flood, signed, signed], NAMED))
    assert [len(named), more.times] == [20, 280]
    assert (known.where, known.times) == ("step.delta.thought_signature", 2)


def test_blocks_of_unknown_kinds_that_are_cut_off_are_named_a_few_times() -> None:
    def block(index: int, kind: str) -> list[Json]:
        return [
            {"contentBlockStart": {"contentBlockIndex": index, "start": {kind: {}}}},
            {"contentBlockDelta": {"contentBlockIndex": index, "delta": {kind: {"input": '{"a'}}}},
            {"contentBlockStop": {"contentBlockIndex": index}},
        ]

    kinds = [*(f"poem{number}" for number in range(30)), "toolResult"]
    frames = [frame for index, kind in enumerate(kinds) for frame in block(index, kind)]
    fed = CheckedInbound(CALLING["bedrock"][0], [*frames, {"messageStop": {"stopReason": "end_turn"}}])
    *named, more, last = losses(fed)
    assert [case.where for case in named] == [f"poem{number}.input" for number in range(20)]
    assert (more.where, more.times, last.where) == ("unknown types", 10, "toolResult.input")


@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
def test_an_unknown_field_of_converses_reasoning_is_a_loss(whole: bool) -> None:
    reasoning = {"reasoningContent": {"poem": "x"}}
    if whole:
        content = [reasoning, {"text": SAID}]
        frames: list[Json] = [{"output": {"message": {"content": content}}, "stopReason": "end_turn"}]
    else:
        deltas = [(0, reasoning), (1, {"text": SAID})]
        frames = [{"contentBlockDelta": {"contentBlockIndex": at, "delta": each}} for at, each in deltas]
        frames.append({"messageStop": {"stopReason": "end_turn"}})
    fed = CheckedInbound(CALLING["bedrock"][0], frames)
    assert (fed.status, fed.response.output_text) == ("completed", SAID)
    assert [case.where for case in losses(fed)] == ["reasoningContent.poem"]


# whole answers with a part of the type `poem`, and the type of its item
WHOLE: dict[str, tuple[Callable[[Json], None], str]] = {
    "anthropic": (lambda body: body["content"].insert(0, {"type": "poem", "text": "x"}), "anthropic:poem"),
    "bedrock": (lambda body: body["output"]["message"]["content"].insert(0, {"poem": {}}), "bedrock:poem"),
    "interactions": (
        lambda body: body["steps"].insert(0, {"type": "poem", "text": "x"}),
        "interactions:poem",
    ),
    "responses": (lambda body: body["output"].insert(0, {"type": "acme:poem", "id": "p"}), "acme:poem"),
}


@pytest.mark.parametrize("dialect", WHOLE)
def test_an_unknown_part_of_a_whole_answer_is_kept(dialect: str) -> None:
    build, frames = CALLING[dialect]
    (body,) = frames(NAMED, True, "")
    add, kind = WHOLE[dialect]
    add(body)
    fed = CheckedInbound(build, [body])
    assert (fed.output[0]["type"], fed.status, losses(fed)) == (kind, "completed", [])


def test_unknown_contents_of_a_whole_interaction_are_losses_of_which_few_are_named() -> None:
    build, frames = CALLING["interactions"]
    (body,) = frames({}, True, "")
    body["steps"][0]["content"] += [{"type": f"poem{number}", "text": "x"} for number in range(300)]
    *named, more, last = losses(fed := CheckedInbound(build, [body]))
    assert fed.response.output_text == SAID
    assert [case.where for case in named] == [f"step.delta.poem{number}" for number in range(20)]
    assert (more.times, last.where) == (280, "tool_call")


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock", "interactions", "responses"])
def test_an_unknown_event_may_be_as_deep_as_any(dialect: str) -> None:
    deep: Any = ""
    for _ in range(900):
        deep = {"inner": deep}
    fed = fed_with(ROWS[dialect], [ROWS[dialect].made("poem", {"text": deep})], NAMED)
    assert (fed.status, losses(fed)) == ("completed", [])
