"""Reports the shape of the code, for `make check`: its longest functions and widest constructors, variables
with names that do not say what they hold, the state of a run besides its stages, and the path of a plain
request from file to file.  `python .ci/shape.py`

It never fails: tests/server/test_call_budget.py has the limits on costs.
"""

from __future__ import annotations

import ast
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
LONGEST: Final = 60  # lines of a function
WIDEST: Final = 8  # parameters of a constructor
PARTICIPLES: Final = frozenset(
    {"asked", "found", "given", "held", "kept", "made", "said", "told", "took", "wanted"}
)
STATEFUL: Final = {
    "server/openresponses_server/runs/pipeline.py": ("Pipeline",),
    "server/openresponses_server/runs/exchange.py": ("Exchange", "Outflow"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    sources = {path: ast.parse(path.read_text()) for half in ("bridge", "server") for path in _files(half)}
    functions = [(path, node) for path, tree in sources.items() for node in _functions(tree)]
    longest = max(functions, key=lambda each: _lines(each[1]))
    print(
        f"longest function: {_lines(longest[1])} lines, {longest[1].name} in {longest[0].relative_to(ROOT)}"
    )
    above = [(path, node) for path, node in functions if _lines(node) > LONGEST]
    _show(f"functions above {LONGEST} lines", [f"{_place(*each)}, {_lines(each[1])} lines" for each in above])
    wide = [each for each in functions if each[1].name == "__init__" and _parameters(each[1]) > WIDEST]
    _show(
        f"constructors with more than {WIDEST} parameters",
        [f"{_place(*each)}, {_parameters(each[1])} parameters" for each in wide],
    )
    named = sum(_is_participle(node) for tree in sources.values() for node in ast.walk(tree))
    print(f"variables and parameters named by a participle, as `found` and `given`: {named}")
    for name, classes in STATEFUL.items():
        for node in ast.walk(sources[ROOT / name]):
            if isinstance(node, ast.ClassDef) and node.name in classes:
                state = sorted(_state(node))
                print(f"state of {node.name} beside its stage: {len(state)} ({', '.join(state)})")
    asyncio.run(_show_plain_request())


def _files(half: str) -> list[Path]:
    return sorted((ROOT / half).rglob("*.py"))


def _functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def _lines(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _parameters(node: Function) -> int:
    arguments = node.args
    return len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - 1  # without `self`


def _is_participle(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Store) and node.id in PARTICIPLES
    return isinstance(node, ast.arg) and node.arg in PARTICIPLES


def _place(path: Path, node: Function) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


def _show(what: str, places: list[str]) -> None:
    print(f"{what}: {len(places)}", *places, sep="\n  ")


def _state(node: ast.ClassDef) -> set[str]:
    """What an object begins with and is not given: fields with a default, else what `__init__` sets to a
    constant, or to something empty."""
    attributes: set[str] = set()
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is not None:
            attributes.add(each.target.id)
        elif isinstance(each, ast.FunctionDef) and each.name == "__init__":
            attributes |= set(_set_in(each))
    return attributes - {"stage"}


def _set_in(init: ast.FunctionDef) -> Iterator[str]:
    empty = (ast.Constant, ast.List, ast.Dict, ast.Tuple)
    for each in ast.walk(init):
        if isinstance(each, ast.Assign | ast.AnnAssign) and isinstance(each.value, empty):
            for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
                if isinstance(target, ast.Attribute):
                    yield target.attr


async def _show_plain_request() -> None:
    sys.path.insert(0, str(ROOT))
    import pytest

    from tests.support import call_counts

    with pytest.MonkeyPatch.context() as patch:
        call_counts.leave_out_spans(patch.setattr)
        count = await call_counts.plain_request()
    print(f"plain request: {count.total} calls in {count.files} files, {count.moves} moves from file to file")


if __name__ == "__main__":
    main()
