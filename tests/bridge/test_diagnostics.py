"""Diagnostics: each case once, counted, bounded."""

import pytest

from openresponses_bridge.diagnostics import Diagnostic, Diagnostics


def test_a_case_is_reported_once_and_counted() -> None:
    notes = Diagnostics()
    assert notes.repair("a", "b")
    assert not notes.repair("a", "b")
    assert notes.loss("a", "b")
    assert list(notes) == [Diagnostic("repair", "a", "b", 2), Diagnostic("loss", "a", "b", 1)]
    assert [str(case) for case in notes] == ["repair: a: b (×2)", "loss: a: b"]
    assert len(notes) == 2


def test_each_kind_has_its_call() -> None:
    notes = Diagnostics()
    for note in (notes.repair, notes.loss, notes.ignored, notes.warning):
        assert note("where", "what")
    assert [case.kind for case in notes] == ["repair", "loss", "ignored", "warning"]
    assert notes.of("ignored") == [Diagnostic("ignored", "where", "what")]


def test_at_most_the_limit_is_kept_and_the_rest_counted() -> None:
    notes = Diagnostics(limit=2)
    for where in ("a", "b", "c", "c", "a"):
        notes.warning(where, "x")
    assert [(case.where, case.times) for case in notes] == [("a", 2), ("b", 1)]
    assert notes.dropped == 2
    assert not notes.warning("d", "x")


def test_few_unknown_types_are_named_and_the_rest_are_one_case_of_each_kind() -> None:
    notes = Diagnostics(limit=30)
    assert all(notes.unknown("loss", f"a{number}", "x") for number in range(20))
    assert notes.unknown("loss", "a20", "x")
    assert notes.unknown("ignored", "a21", "x")
    for number in range(22, 99):
        assert not notes.unknown("loss", f"a{number}", "x")
    assert not notes.unknown("loss", "a0", "x")
    assert notes.loss("another", "x")
    named, others = list(notes)[:20], list(notes)[20:]
    assert [(case.where, case.times) for case in named] == [("a0", 2), *((f"a{n}", 1) for n in range(1, 20))]
    assert [str(case) for case in others] == [
        "loss: unknown types: more than are named (×78)",
        "ignored: unknown types: more than are named",
        "loss: another: x",
    ]
    assert notes.dropped == 0


def test_cases_of_another_are_added_within_the_limit() -> None:
    one, other = Diagnostics(limit=2), Diagnostics(limit=2)
    one.loss("a", "x")
    for where in ("a", "a", "b", "c"):
        other.loss(where, "x")
    one.extend(other)
    assert [(case.where, case.times) for case in one] == [("a", 3), ("b", 1)]
    assert one.dropped == 1
    one.extend(one)
    assert [case.times for case in one] == [6, 2]
    third = Diagnostics(limit=2)
    third.loss("d", "x")
    third.loss("d", "x")
    one.extend(third)
    assert one.dropped == 4


@pytest.mark.parametrize(
    "text", ["a\r\nloss: b", "\x1b]0;t\x07\x1b[2J", "\x9b2J", "\u202eab", "\ud800", "a" * 10**6]
)
def test_a_name_that_a_stranger_chose_is_a_short_part_of_one_line(text: str) -> None:
    notes = Diagnostics()
    assert notes.loss(text, text)
    assert not notes.loss(text, text)
    (case,) = notes
    assert str(case).isprintable()
    assert len(str(case)) < 1000
    assert case.times == 2
