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
