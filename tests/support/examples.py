"""The programs in docs/examples, as modules."""

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from tests.support.shared import REPOSITORY

EXAMPLES = REPOSITORY / "docs" / "examples"


@cache
def example(name: str) -> ModuleType:
    """The example with this name, executed only once: Django keeps the views that it has found."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Django finds its addresses by the module's name
    spec.loader.exec_module(module)
    return module


def lines_of_code(path: Path) -> int:
    """The number of lines of code, without empty lines and the docstring."""
    text = path.read_text(encoding="utf-8")
    docstring = ast.parse(text).body[0]
    assert docstring.end_lineno is not None
    return sum(bool(line.strip()) for line in text.splitlines()[docstring.end_lineno :])
