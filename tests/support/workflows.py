"""The workflows in .github as they would run: their jobs and steps, each with the values of the matrix."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import yaml

from tests.support.shared import REPOSITORY

FOLDER: Final = REPOSITORY / ".github" / "workflows"
_MATRIX: Final = re.compile(r"\$\{\{ *matrix\.(\w+) *\}\}")


class Step(NamedTuple):
    """One step of a job, with the values of one row of its matrix."""

    workflow: str
    job: str
    fields: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"{self.workflow}: {self.job}"


def workflows() -> dict[str, dict[str, Any]]:
    """Return each workflow by the name of its file. The key `on` is `True` in them, as YAML 1.1 has it."""
    return {path.name: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.y*ml"))}


def steps() -> Iterator[Step]:
    """Yield the steps of all workflows, once for each row of their job's matrix."""
    for name, workflow in workflows().items():
        for job, fields in workflow["jobs"].items():
            for row in _rows(fields.get("strategy", {}).get("matrix", {})):
                for step in fields["steps"]:
                    yield Step(name, job, {key: _filled(value, row) for key, value in step.items()})


def _rows(matrix: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The combinations of the lists' values, and the included rows."""
    lists = {name: values for name, values in matrix.items() if name != "include"}
    included = list(matrix.get("include", []))
    if not lists and included:
        return included
    rows = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    for row in included:
        # a row that contradicts none of the others would be added to them
        assert all(any(row[name] != each[name] for name in lists) for each in rows)
    return rows + included


def _filled(value: Any, row: Mapping[str, Any]) -> Any:
    if not isinstance(value, str):
        return value
    return _MATRIX.sub(lambda match: str(row[match[1]]), value)
