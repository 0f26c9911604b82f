"""The documents are true: the diagrams are those of the tables, the README's examples run."""

from __future__ import annotations

import runpy

import pytest

from tests.support.readme import blocks
from tests.support.shared import REPOSITORY


@pytest.mark.parametrize("name", ["states.md", "rules.md", "fields.md"])
def test_the_drawn_pages_are_those_of_the_tables(name: str) -> None:
    page = runpy.run_path(str(REPOSITORY / "docs" / "generate.py"))["PAGES"][name]()
    assert (REPOSITORY / "docs" / name).read_text(encoding="utf-8") == page, "run `make docs`"


@pytest.mark.parametrize(("title", "code"), blocks("README.md", "python"))
def test_the_readme_examples_run(title: str, code: str) -> None:
    exec(compile(code, f"README.md: {title}", "exec"), {"__name__": "readme"})
