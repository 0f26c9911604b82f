"""`snapshots/public.json`: what other people's programs can use, by name, parameter, field and method."""

import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.support.public_members import public_members
from tests.support.shared import REPOSITORY
from tests.support.snapshots import snapshots

PAGES = tomllib.loads((REPOSITORY / "docs" / "site" / "api.toml").read_text("utf-8"))
MODULES = [module for page in PAGES.values() for module in page["modules"]]


@snapshots("public.json")
def test_what_is_public(snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    assert {module: public_members(module) for module in MODULES} == snapshot


def test_each_page_of_the_reference_is_in_the_navigation() -> None:
    navigation = (REPOSITORY / "docs" / "site" / "mkdocs.yml").read_text("utf-8")
    assert [name for name in PAGES if f"api/{name}.md" not in navigation] == []


def test_all_that_is_public_says_what_it_is() -> None:
    undocumented = [
        f"{module}.{name}"
        for module in MODULES
        for name in import_module(module).__all__
        if isinstance(member := getattr(import_module(module), name), type) and not member.__doc__
    ]
    assert undocumented == []


PROGRAM = '''
from msgspec import Struct

__all__ = ["Given", "Made", "ONE", "later", "made"]
ONE = 1

class Given(Struct):
    """Fields."""
    first: int
    second: str = "a"

class Base:
    def inherited(self): ...

class Made(Base):
    def __init__(self, of, *, wide=False):
        self.of = of
        self._wide = wide
    @property
    def size(self): ...
    @classmethod
    def whole(cls, *parts, **named): ...
    def _own(self): ...

async def later(wait=[]): ...
def made(): ...
'''


def test_what_is_read_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters, fields, methods and attributes, those of a base too; nothing with an underscore."""
    (tmp_path / "openresponses_read.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "openresponses_read", raising=False)
    assert public_members("openresponses_read") == {
        "Given": ["class Given(Struct)", "field first", "field second='a'"],
        "Made": [
            "class Made(Base)",
            "attribute of",
            "classmethod def whole(cls, *parts, **named)",
            "def __init__(self, of, *, wide=False)",
            "def inherited(self)",
            "property size",
        ],
        "ONE": ["int"],
        "later": ["async def later(wait=…)"],
        "made": ["def made()"],
    }
