"""Compares each field of an SDK's types before and after its way through a dialect and back to its own
API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tests.support.gemini_fields import missing

Json = dict[str, Any]


class Tried(NamedTuple):
    """A value with one field of a type, and what of it arrived; `report` names the losses."""

    field: str
    value: Json
    found: Json
    report: list[str]


class Fates(NamedTuple):
    """The fates of the fields: the number of those that arrived, the rows of those that did not, and all
    others, each with what is missing and what was reported."""

    arrived: int
    rows: list[str]
    silent: list[str]


def fates(tried: Iterable[Tried], rows: Mapping[str, str]) -> Fates:
    """Judge the tried values. A row names a field that does not arrive, including everything within it, and
    the reason."""
    arrived, used, silent = 0, set[str](), list[str]()
    for field, value, actual, report in tried:
        lost = missing(value, actual)
        row = next((name for name in rows if field == name or field.startswith(f"{name}.")), None)
        if not lost:
            arrived += 1
        elif row is not None:
            used.add(row)
        else:
            silent.append(f"{field}: {', '.join(lost)} ({'; '.join(report) or 'in silence'})")
    return Fates(arrived, sorted(used), silent)


def assert_none_is_silent(
    samples: Iterable[tuple[str, Json]],
    through: Callable[[Json], tuple[Json, list[str]]],
    rows: Mapping[str, str],
    *,
    fewest: int,
    ours: Collection[str] = (),
    alike: Callable[[Json], Json] = lambda value: value,
) -> None:
    """Try each (name of a field, value that has it): `through` returns what arrives and what is reported. A
    field that does not arrive has to have a row, each row has to have such a field, and at least `fewest`
    have to arrive. `ours` are fields of the value that are not compared; `alike` returns the best that can
    arrive of a value."""
    tried = (
        Tried(field, {name: each for name, each in alike(value).items() if name not in ours}, *through(value))
        for field, value in samples
    )
    result = fates(tried, rows)
    assert not result.silent, "\n".join(result.silent)
    assert result.rows == sorted(rows), (
        f"rows without a field: {', '.join(sorted(rows.keys() - result.rows))}"
    )
    assert result.arrived >= fewest, f"{result.arrived} arrived"
