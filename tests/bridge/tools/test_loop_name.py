"""The documented name of the loop."""

import ast
from pathlib import Path

from openresponses_bridge import loop
from openresponses_bridge.tools import loop as documented


def test_the_documented_name_has_what_its_stub_declares() -> None:
    (imported,) = [
        each
        for each in ast.parse(Path(documented.__file__).with_suffix(".pyi").read_text()).body
        if isinstance(each, ast.ImportFrom)
    ]
    assert imported.module == loop.__name__
    names = [each.name for each in imported.names]
    assert {"ToolCallLimitBehavior", "ToolCallRound", "ToolCallingLoop"} <= {*names}
    assert [getattr(documented, name) for name in names] == [getattr(loop, name) for name in names]
