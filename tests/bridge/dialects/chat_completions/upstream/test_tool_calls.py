"""The eight shapes that tool calls arrive in (law T3), each checked event by event."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chat import calls, chunk, completion, part, run, stopped

A, B = '{"city":"Rome"}', '{"n":[1,2]}'


def cut(text: str) -> list[str]:
    return [text[:5], text[5:9], text[9:]]


def sent(index: int, call_id: str, name: str, pieces: list[str]) -> list[str]:
    """The events of a call from its announcement to the end."""
    return [
        f"added {index} function_call {call_id} {name}",
        *(f"arguments {index} {piece}" for piece in pieces),
        f"whole {index} {''.join(pieces)}",
        f"done {index} completed",
    ]


ONE_AFTER_THE_OTHER = sent(0, "call_a", "get_a", cut(A)) + sent(1, "call_b", "get_b", cut(B))


def test_shape_sequential() -> None:
    ran = stopped(
        calls(part("", name="get_a", id="call_a", index=0, type="function")),
        *(calls(part(piece, index=0)) for piece in cut(A)),
        calls(part("", name="get_b", id="call_b", index=1, type="function")),
        *(calls(part(piece, index=1)) for piece in cut(B)),
        finish="tool_calls",
    )
    assert ran.sent == ONE_AFTER_THE_OTHER
    assert ran.status == "completed"
    assert ran.repairs == []


def test_shape_one_chunk() -> None:
    whole = [
        part(A, name="get_a", id="call_a", index=0, type="function"),
        part(B, name="get_b", id="call_b", index=1, type="function"),
    ]
    ran = stopped(calls(*whole), finish="tool_calls")
    assert ran.sent == sent(0, "call_a", "get_a", [A]) + sent(1, "call_b", "get_b", [B])
    assert ran.repairs == []


def test_shape_interleaved() -> None:
    heads = [
        part("", name="get_a", id="call_a", index=0, type="function"),
        part("", name="get_b", id="call_b", index=1, type="function"),
    ]
    pairs = zip(cut(A), cut(B), strict=True)
    ran = stopped(
        calls(*heads),
        *(calls(part(a, index=0), part(b, index=1)) for a, b in pairs),
        finish="tool_calls",
    )
    deltas = [
        line for a, b in zip(cut(A), cut(B), strict=True) for line in (f"arguments 0 {a}", f"arguments 1 {b}")
    ]
    assert ran.sent == [
        "added 0 function_call call_a get_a",
        "added 1 function_call call_b get_b",
        *deltas,
        f"whole 0 {A}",
        "done 0 completed",
        f"whole 1 {B}",
        "done 1 completed",
    ]
    assert ran.repairs == []


def test_shape_same_index() -> None:
    ran = stopped(
        calls(part("", name="get_a", id="call_a", index=0)),
        *(calls(part(piece, index=0)) for piece in cut(A)),
        calls(part("", name="get_b", id="call_b", index=0)),
        *(calls(part(piece, index=0)) for piece in cut(B)),
        finish="tool_calls",
    )
    assert ran.sent == ONE_AFTER_THE_OTHER
    assert ran.repairs == ["tool_calls: another id came on a busy index: another call"]


def test_shape_no_index() -> None:
    ran = stopped(
        calls(part("", name="get_a", id="call_a")),
        *(calls(part(piece, id="call_a")) for piece in cut(A)),
        calls(part("", name="get_b", id="call_b")),
        *(calls(part(piece)) for piece in cut(B)),
        finish="tool_calls",
    )
    assert ran.sent == ONE_AFTER_THE_OTHER
    assert ran.repairs == ["tool_calls: the index is missing"]


def test_shape_blank_id() -> None:
    ran = stopped(
        calls(part("", name="get_a", id="call_a", index=0)),
        *(calls(part(piece, name="", id="", index=0)) for piece in cut(A)),
        calls(part("", name="get_b", id="call_b", index=1)),
        *(calls(part(piece, name="", id="", index=1)) for piece in cut(B)),
        finish="tool_calls",
    )
    assert ran.sent == ONE_AFTER_THE_OTHER
    assert ran.repairs == []


def test_shape_null_fields() -> None:
    def nulls(arguments: str | None, index: int) -> dict[str, Any]:
        function = {"name": None, "arguments": arguments}
        return {"index": index, "id": None, "type": None, "function": function, "custom": None}

    ran = stopped(
        calls(
            {"index": 0, "id": "call_a", "type": "function", "function": {"name": "get_a", "arguments": None}}
        ),
        calls(nulls(None, 0)),
        *(calls(nulls(piece, 0)) for piece in cut(A)),
        calls({"index": 1, "id": "call_b", "function": None}),
        calls({"index": 1, "function": {"name": "get_b"}}),
        *(calls(nulls(piece, 1)) for piece in cut(B)),
        finish="tool_calls",
    )
    assert ran.sent == ONE_AFTER_THE_OTHER
    assert ran.repairs == []


def test_shape_late_name() -> None:
    ran = stopped(
        calls(part(cut(A)[0], id="call_a", index=0)),
        calls(part(cut(A)[1], index=0)),
        calls(part(cut(A)[2], name="get_a", index=0)),
        calls(part(None, id="call_b", index=1)),
        calls(part(B, name="get_b", index=1)),
        finish="tool_calls",
    )
    # announced with its name, and all that came before it in one piece
    assert ran.sent == sent(0, "call_a", "get_a", [A]) + sent(1, "call_b", "get_b", [B])


SHAPES: dict[str, list[bytes]] = {
    "same index, no ids": [calls(part(A, name="get_a", index=0)), calls(part(B, name="get_b", index=0))],
    "same index, no ids, one function": [
        calls(part(A, name="get", index=0)),
        calls(part(B, name="get", index=0)),
    ],
    "same index, one chunk": [
        calls(part(A, name="get_a", id="call_a", index=0), part(B, name="get_b", id="call_b", index=0))
    ],
    "no index, no ids": [calls(part(A, name="get_a")), calls(part(B, name="get_b"))],
    "no index, no ids, one chunk": [calls(part(A, name="get_a"), part(B, name="get_b"))],
    "no index, no ids, in pieces": [
        calls(part("", name="get_a")),
        *(calls(part(piece)) for piece in cut(A)),
        calls(part("", name="get_b")),
        *(calls(part(piece)) for piece in cut(B)),
    ],
    "no index, one function": [calls(part(A, name="get")), calls(part(B, name="get"))],
    "one id for both": [
        calls(part(A, name="get_a", id="call_x", index=0)),
        calls(part(B, name="get_b", id="call_x", index=1)),
    ],
    "one id and one function for both": [
        calls(part(A, name="get", id="call_x", index=0)),
        calls(part(B, name="get", id="call_x", index=1)),
    ],
    "late names": [
        calls(part(A, index=0), part(B, index=1)),
        calls(part(None, name="get_a", index=0), part(None, name="get_b", index=1)),
    ],
    "late ids": [
        calls(part("", name="get_a", index=0)),
        calls(part(A, id="call_a", index=0)),
        calls(part("", name="get_b", index=1)),
        calls(part(B, id="call_b", index=1)),
    ],
    "late id, no index": [
        calls(part("", name="get_a")),
        calls(part(A, id="call_a")),
        calls(part(B, name="get_b", id="call_b")),
    ],
    "another id without a name after a whole call": [
        calls(part(A, name="get_a")),
        calls(part(B, id="call_b")),
        calls(part(None, name="get_b", id="call_b")),
    ],
    "id and name in each fragment": [
        *(calls(part(piece, name="get_a", id="call_a", index=0)) for piece in cut(A)),
        *(calls(part(piece, name="get_b", id="call_b", index=1)) for piece in cut(B)),
    ],
    "name in each fragment": [
        *(calls(part(piece, name="get_a", index=0)) for piece in cut(A)),
        *(calls(part(piece, name="get_b", index=1)) for piece in cut(B)),
    ],
    "another id in each fragment": [
        calls(part(cut(A)[0], name="get_a", id="x1", index=0)),
        calls(part(cut(A)[1], id="x2", index=0)),
        calls(part(cut(A)[2], id="x3", index=0)),
        calls(part(B, name="get_b", id="x4", index=0)),
    ],
    "the index moves within a call": [
        calls(part(cut(A)[0], name="get_a", id="call_a", index=0)),
        calls(part(cut(A)[1], index=1)),
        calls(part(cut(A)[2], index=1)),
        calls(part(B, name="get_b", id="call_b", index=2)),
    ],
    "arguments as objects": [
        calls(part(json.loads(A), name="get_a", id="call_a", index=0)),
        calls(part(json.loads(B), name="get_b", id="call_b", index=1)),
    ],
    "whole calls again at the end": [
        calls(part("", name="get_a", id="call_a", index=0)),
        *(calls(part(piece, index=0)) for piece in cut(A)),
        calls(part(B, name="get_b", id="call_b", index=1)),
        calls(
            part('{ "city": "Rome" }', name="get_a", id="call_a", index=0),
            part(B, name="get_b", id="call_b", index=1),
        ),
    ],
    "whole arguments again without id": [
        calls(part(A, name="get_a", id="call_a", index=0)),
        calls(part(A, index=0)),
        calls(part(B, name="get_b", id="call_b", index=1)),
    ],
    "nothing in it": [
        calls({}),
        calls(part(A, name="get_a", index=0)),
        calls({"index": 5, "id": None, "function": {"name": "", "arguments": ""}}),
        calls(part(B, name="get_b", index=1)),
    ],
    "index as text": [
        calls(part(A, name="get_a", id="call_a", index="0")),
        calls(part(B, name="get_b", id="call_b", index="1")),
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_mixed_with_each_other(shape: str) -> None:
    ran = stopped(*SHAPES[shape], finish="tool_calls")
    assert [json.loads(arguments) for _, _, arguments in ran.calls] == [json.loads(A), json.loads(B)]
    assert [name.removesuffix("_a").removesuffix("_b") for _, name, _ in ran.calls] == ["get", "get"]
    assert len({call_id for call_id, _, _ in ran.calls}) == 2
    assert ran.status == "completed"


def test_two_equal_calls_without_ids_are_two() -> None:
    ran = stopped(calls(part(A, name="get", index=0)), calls(part(A, name="get", index=0)))
    assert len(ran.calls) == 2
    assert ran.repairs == ["tool_calls: two calls came on one index, kept apart"]


def test_repeated_call_is_dropped_with_a_repair() -> None:
    whole = calls(part(A, name="get", id="call_a", index=0))
    ran = stopped(whole, whole, whole)
    assert ran.calls == [("call_a", "get", A)]
    assert ran.repairs == ["tool_calls: the whole arguments came again, dropped"]


def test_arguments_that_begin_again_as_others_make_their_call_incomplete() -> None:
    ran = stopped(calls(part(A, name="get", id="call_a", index=0)), calls(part('{"x', id="call_a", index=0)))
    assert ran.calls == [("call_a", "get", A)]
    assert (ran.status, ran.output[0].status) == ("incomplete", "incomplete")  # type: ignore[union-attr]


def test_fragment_without_anything_to_follow_is_a_call_without_a_name() -> None:
    ran = stopped(calls(part('{"a"')))
    assert ran.status == "incomplete"
    assert ran.losses == ["tool_call: never got a name"]


def test_nameless_fragment_follows_the_only_unfinished_call() -> None:
    ran = stopped(
        calls(part(A[:4], name="get_a", id="call_a", index=0)),
        calls(part(B, name="get_b", id="call_b", index=1)),
        calls(part(A[4:])),
    )
    assert ran.calls == [("call_a", "get_a", A), ("call_b", "get_b", B)]


def test_nameless_fragment_follows_the_last_call_when_several_could_be() -> None:
    ran = stopped(
        calls(part("", name="get_a", id="call_a", index=0)),
        calls(part(B[:4], name="get_b", id="call_b", index=1)),
        calls(part(B[4:])),
    )
    assert ran.calls == [("call_a", "get_a", "{}"), ("call_b", "get_b", B)]


def test_busy_index_and_another_id_without_name_after_a_whole_call_is_another_call() -> None:
    ran = stopped(
        calls(part(A, name="get_a", id="call_a", index=0)),
        calls(part(B, id="call_b", index=0)),
        calls(part(None, name="get_b", id="call_b", index=0)),
    )
    assert ran.calls == [("call_a", "get_a", A), ("call_b", "get_b", B)]


def test_custom_call_streams_its_text() -> None:
    def custom(text: str, **head: Any) -> bytes:
        return calls({"index": 0, "type": "custom", "custom": {"input": text, **head}})

    first = calls({"index": 0, "id": "call_p", "type": "custom", "custom": {"name": "patch", "input": ""}})
    ran = stopped(first, custom("*** Begin\n"), custom('{"not": json'), finish="tool_calls")
    assert ran.calls == [
        ("call_p", "patch", json.dumps({"input": '*** Begin\n{"not": json'}, separators=(",", ":")))
    ]


def test_custom_call_is_known_by_its_type_alone() -> None:
    ran = stopped(
        calls({"index": 0, "id": "c", "type": "custom", "function": {"name": "p", "arguments": "x"}})
    )
    assert ran.calls == [("c", "p", '{"input":"x"}')]


def test_legacy_function_call_is_one_call() -> None:
    ran = stopped(
        chunk(function_call={"name": "get", "arguments": ""}),
        *(chunk(function_call={"arguments": piece}) for piece in cut(A)),
        finish="function_call",
    )
    assert [(name, arguments) for _, name, arguments in ran.calls] == [("get", A)]
    assert ran.status == "completed"


def test_calls_of_a_whole_completion_stand_each_for_itself() -> None:
    same = {"id": "call_a", "type": "function", "function": {"name": "get", "arguments": A}}
    ran = run(completion("tool_calls", content=None, tool_calls=[same, same]))
    assert [(name, arguments) for _, name, arguments in ran.calls] == [("get", A), ("get", A)]
    assert len({call_id for call_id, _, _ in ran.calls}) == 2


# ── one id given to two calls that are announced without arguments ─────────────────────────────────
def announced(index: int | None, name: str = "f") -> dict[str, Any]:
    return part("", name=name, id="x", **({} if index is None else {"index": index}))


def more(arguments: str, index: int | None, **known: str) -> dict[str, Any]:
    return part(arguments, **known, **({} if index is None else {"index": index}))


UNDER_ONE_ID: dict[str, list[dict[str, Any]]] = {
    "both announced first": [announced(0), announced(1), more(A, 0), more(B, 1)],
    "the second's first": [announced(0), announced(1), more(A, 1), more(B, 0)],
    "one after the other": [announced(0), more(A, 0), announced(1), more(B, 1)],
    "interleaved": [
        announced(0),
        announced(1),
        *(more(text, at) for pair in zip(cut(A), cut(B), strict=True) for at, text in enumerate(pair)),
    ],
    "the id with each": [announced(0), announced(1), more(A, 0, id="x"), more(B, 1, id="x")],
    "the second with its arguments": [announced(0), more(A, 1, id="x", name="f"), more(B, 0)],
    "one index": [announced(0), announced(0), more(A, 0), more(B, 0)],
    "one index, one after the other": [announced(0), more(A, 0), announced(0), more(B, 0)],
    "one index and the id": [announced(0), announced(0), more(A, 0, id="x"), more(B, 0, id="x")],
    "no index": [announced(None), announced(None), more(A, None), more(B, None)],
    "no index, one after the other": [announced(None), more(A, None), announced(None), more(B, None)],
    "free text": [
        *({"index": at, "id": "x", "type": "custom", "custom": {"name": "f", "input": ""}} for at in (0, 1)),
        *({"index": at, "custom": {"input": text}} for at, text in enumerate((A, B))),
    ],
}


@pytest.mark.parametrize("in_one_chunk", [False, True])
@pytest.mark.parametrize("fragments", UNDER_ONE_ID.values(), ids=UNDER_ONE_ID)
def test_two_calls_of_one_id_that_begin_empty_stay_two(
    fragments: list[dict[str, Any]], in_one_chunk: bool
) -> None:
    frames = [calls(*fragments[:2]), *map(calls, fragments[2:])] if in_one_chunk else map(calls, fragments)
    ran = stopped(*frames, finish="tool_calls", wire="openai")
    payloads = [getattr(item, "input", None) or getattr(item, "arguments", "") for item in ran.output]
    assert payloads == [A, B]
    assert [getattr(item, "call_id", "") for item in ran.output] == ["x", "x_2"]
    assert "tool_calls: two calls came under one id, kept apart" in ran.repairs


REPEATED: dict[str, list[dict[str, Any]]] = {
    "on its index": [announced(0), announced(0), *(more(piece, 0) for piece in cut(A))],
    "on another, where its arguments follow": [
        announced(0),
        announced(1),
        *(more(piece, 1) for piece in cut(A)),
    ],
    "on another, where nothing follows": [announced(0), announced(1), *(more(piece, 0) for piece in cut(A))],
    "at the end": [announced(0), *(more(piece, 0) for piece in cut(A)), announced(0)],
    "with its whole arguments": [announced(0), announced(1), more(A, 0), more(A, 1)],
    "in the middle, on another": [
        announced(0),
        more(cut(A)[0], 0),
        announced(1),
        *(more(piece, 1) for piece in cut(A)[1:]),
    ],
}


@pytest.mark.parametrize("fragments", REPEATED.values(), ids=REPEATED)
def test_a_call_that_is_announced_again_stays_one(fragments: list[dict[str, Any]]) -> None:
    assert stopped(*map(calls, fragments), finish="tool_calls").calls == [("x", "f", A)]


@given(st.data())
def test_calls_of_one_id_keep_their_own_arguments_in_any_order(data: st.DataObject) -> None:
    """Each call has an index of its own and is announced there before its arguments come."""
    texts = [json.dumps({"n": number, "text": "x" * number}) for number in range(3)]
    waiting = [
        [
            announced(at, data.draw(st.sampled_from("fg"))),
            *(more(text[i : i + 4], at) for i in range(0, len(text), 4)),
        ]
        for at, text in enumerate(texts)
    ]
    fragments = []
    while any(waiting):
        fragments.append(data.draw(st.sampled_from([each for each in waiting if each])).pop(0))
    ran = stopped(*map(calls, fragments), finish="tool_calls")
    assert sorted(arguments for _, _, arguments in ran.calls) == sorted(texts)
    assert len({call_id for call_id, _, _ in ran.calls}) == 3


def test_half_a_character_in_arguments_that_were_parsed_already_is_an_escape() -> None:
    ran = stopped(calls(part({"x": "\ud83d"}, name="get_a", id="call_a", index=0)), finish="tool_calls")
    assert ran.sent == sent(0, "call_a", "get_a", ['{"x":"\\ud83d"}'])
    assert ran.status == "completed"
    assert ran.repairs == ["tool_calls: arguments were parsed already, written as JSON text again"]
