"""What becomes of each field of an SDK's types on its way through a dialect and back to its own API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tests.support.gemini_fields import missing

Json = dict[str, Any]


class Tried(NamedTuple):
    """A value with one field of a type, and what arrived of it; `report` names the losses."""

    field: str
    value: Json
    found: Json
    report: list[str]


class Fates(NamedTuple):
    """What became of the fields: the number of those that arrived, the rows of those that did not, and the
    others, each with what is missing and what was reported."""

    arrived: int
    rows: list[str]
    silent: list[str]


def fates(tried: Iterable[Tried], rows: Mapping[str, str]) -> Fates:
    """Judge what was tried. A row names a field, with all within it, that does not arrive, and why."""
    arrived, used, silent = 0, set[str](), list[str]()
    for field, value, found, report in tried:
        lost = missing(value, found)
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
    """Try each (name of a field, value that has it): `through` returns what arrives, and what is reported. A
    field that does not arrive has a row, each row has such a field, and at least `fewest` arrive. `ours`:
    fields of the value that are not looked for; `alike`: what arrives of it at best."""
    tried = (
        Tried(field, {name: each for name, each in alike(value).items() if name not in ours}, *through(value))
        for field, value in samples
    )
    found = fates(tried, rows)
    assert not found.silent, "\n".join(found.silent)
    assert found.rows == sorted(rows), f"rows without a field: {', '.join(sorted(rows.keys() - found.rows))}"
    assert found.arrived >= fewest, f"{found.arrived} arrived"
