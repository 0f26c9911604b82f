"""How many small mistakes the tests notice: `python -m tests.mutations PATH... [--count 40] [--seed 1]`.

Each mutation turns a comparison, a condition or a sum around, or leaves out a call or an assignment to an
attribute, in a copy of what is committed. It is judged by the tests that `make quick` knows for that file:
those named after it, then those of its folder. One that outlives them is printed: it needs a test, or a
sentence that says why it may. Tests that take longer than `--seconds` notice nothing.
"""

import argparse
import ast
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests import quick
from tests.support.shared import REPOSITORY

_TURNED: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


class Mutation(NamedTuple):
    """One change of a module: the bytes from `start` to `end` become `new`."""

    line: int
    start: int
    end: int
    old: str
    new: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutations(source: bytes) -> Iterator[Mutation]:
    """All mutations within the functions of a module."""
    text = source.decode()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen = set()
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            for changed, new in _mutated(node, text):
                start = starts[changed.lineno - 1] + changed.col_offset
                end = starts[(changed.end_lineno or 1) - 1] + (changed.end_col_offset or 0)
                found = Mutation(changed.lineno, start, end, source[start:end].decode(), new)
                if found not in seen:
                    seen.add(found)
                    yield found


def _mutated(node: ast.AST, text: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    def of(part: ast.AST) -> str:
        return ast.get_source_segment(text, part) or ""

    match node:
        case ast.Compare(left, [how], [right]):
            yield node, f"({of(left)} {_TURNED[type(how)]} {of(right)})"
        case ast.BoolOp(how, [left, right]):
            yield node, f"({of(left)} {'or' if isinstance(how, ast.And) else 'and'} {of(right)})"
        case ast.UnaryOp(ast.Not(), operand):
            yield node, f"({of(operand)})"
        case ast.BinOp(left, ast.Add(), right):
            yield node, f"({of(left)} - {of(right)})"
        case ast.BinOp(left, ast.Sub(), right):
            yield node, f"({of(left)} + {of(right)})"
        case ast.Expr(ast.Call() | ast.Await()) | ast.Assign([ast.Attribute()]):
            yield node, "pass"
        case ast.If(test) | ast.IfExp(test):
            yield test, f"(not ({of(test)}))"


def judges_of(path: str) -> list[list[str]]:
    """The tests that judge a mutation of this file, those of its name first."""
    found = list(dict.fromkeys(quick.tests_of(path)))
    named = [each for each in found if each.endswith(".py")]
    folder = quick._nearest(Path("tests") / path.partition("/")[0] / Path(*Path(path).parts[2:-1]))
    return [each for each in (named, [*folder, *(name for name in found if name not in named)]) if each]


def _is_noticed(copy: Path, tests: list[str], seconds: float) -> bool:
    paths = os.pathsep.join(str(copy / package) for package in ("bridge", "server"))
    command = [sys.executable, "-m", "pytest", "-qx", "-n0", "--no-cov", "-pno:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0)
    asked = parser.parse_args()
    chosen = random.Random(asked.seed)
    files = sorted(str(each) for path in asked.paths for each in Path(path).rglob("*.py"))
    all_of_them = [(path, each) for path in files for each in mutations((REPOSITORY / path).read_bytes())]
    picked = chosen.sample(all_of_them, min(asked.count, len(all_of_them)))
    noticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", copy], cwd=REPOSITORY, check=True)
        try:
            for path, mutation in picked:
                source = (copy / path).read_bytes()
                (copy / path).write_bytes(mutation.applied(source))
                is_noticed = any(_is_noticed(copy, tests, asked.seconds) for tests in judges_of(path))
                (copy / path).write_bytes(source)
                noticed += is_noticed
                if not is_noticed:
                    print(f"{path}:{mutation.line}: {mutation.old!r} -> {mutation.new!r}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", copy], cwd=REPOSITORY, check=False)
    print(f"{noticed} of {len(picked)} were noticed")


if __name__ == "__main__":
    main()
