"""The descriptions of the fields of settings: the strings below their declarations."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from textwrap import dedent

from msgspec import Struct


@cache
def described(kind: type[Struct]) -> Mapping[str, str]:
    """Return the description of each field: the string below its declaration, in this class or in a base.
    Raises KeyError, which names a field without one. Cached, since Python parses a whole module to find one
    class."""
    (base,) = kind.__bases__
    (declared,) = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(declared, ast.ClassDef)
    descriptions = {} if base is Struct else dict(described(base))
    descriptions |= {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(declared.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
    if missing := [name for name in kind.__struct_fields__ if not descriptions.get(name)]:
        raise KeyError(f"{kind.__name__} does not say what {', '.join(missing)} is")
    return descriptions
