"""How many small mistakes the tests notice: `python -m tests.mutations PATH... [--count 40] [--seed 1]`.

Each mutation turns a comparison, a condition or a sum around, or leaves out a call or an assignment to an
attribute, in a copy of what is committed. The tests of the layer, or those that `--tests` names, run once
without a mistake, and note which of them runs each place, itself or in a process that it started. Those judge
the mutation: first the ones near the file (of its name, of its folder), then the others, the quickest files
first until they add up to `--seconds`. A test that fails without a mistake judges nothing.

Each mutation is a line: what noticed it (`near`, `elsewhere`, or `hangs`: the tests did not end), or that it
`SURVIVED`, and how many tests run its place. One that survived needs a test, or has to go.
"""

import argparse
import ast
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


def noted(source: bytes, places: Mapping[int, Mutation]) -> bytes:
    """The module without a mistake, which notes the number of each place when it is run."""
    inserted = []
    for number, (_, start, end, old, new) in places.items():
        note = f'__import__("reached").note({number})'
        if new == "pass":
            inserted.append((start, 1, -end, f"{note}; "))
        else:
            inserted += [(start, 1, -end, f"({note} or ("), (end, 0, -start, "))")]
        assert source[start:end].decode() == old
    for at, _, _, text in sorted(inserted, reverse=True):
        source = source[:at] + text.encode() + source[at:]
    return source


def mutations(source: bytes) -> Iterator[Mutation]:
    """All mutations within the functions of a module."""
    starts = [0]
    for line in source.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)

    def span(part: ast.expr | ast.stmt) -> tuple[int, int]:
        end = starts[(part.end_lineno or 1) - 1] + (part.end_col_offset or 0)
        return starts[part.lineno - 1] + part.col_offset, end

    def text(part: ast.expr) -> str:
        return source[slice(*span(part))].decode()

    seen = set()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in _within(function.body):
            for changed, new in _mutated(node, text):
                start, end = span(changed)
                found = Mutation(changed.lineno, start, end, source[start:end].decode(), new)
                if found not in seen:
                    seen.add(found)
                    yield found


def _within(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These and all in them, without what is in f-strings: Python 3.11 does not know its place."""
    for node in nodes:
        if not isinstance(node, ast.JoinedStr):
            yield node
            yield from _within(ast.iter_child_nodes(node))


def _mutated(node: ast.AST, of: Callable[[ast.expr], str]) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
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


def is_near(path: str, test: str) -> bool:
    """Whether a file of tests is one of this module's name, or in the folder of its package."""
    layer = next((each for each in quick.MIRRORED if Path(path).is_relative_to(each)), None)
    place = Path(quick.MIRRORED[layer]) / Path(path).parent.relative_to(layer) if layer else Path("tests")
    near = [*quick.tests_of(path), *quick.nearest(place)]
    return any(Path(test).is_relative_to(each) for each in near)


def wide_tests(path: str) -> Sequence[str]:
    """The tests of the layer in which a module is."""
    if path.startswith("bridge/"):
        return quick.LIBRARY
    return [quick.MIRRORED[each] for each in quick.MIRRORED if Path(path).is_relative_to(each)]


class Copy:
    """A copy of what is committed, in which tests run: `root`; what they note is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "copy"
        self._noted = folder / "noted"
        self._module = folder / "module"
        self._module.mkdir()
        shutil.copy(REPOSITORY / "tests/support/reached.py", self._module)

    def run(
        self, *words: str, tests: Iterable[str], wanted: Iterable[str] = (), seconds: float
    ) -> int | None:
        """The code with which pytest ended; none when it did not within these seconds and was stopped."""
        shutil.rmtree(self._noted, ignore_errors=True)
        self._noted.mkdir()
        if names := "\n".join(wanted):
            (self._noted / "wanted").write_text(names, "utf-8")
        paths = [self._module, self.root / "bridge", self.root / "server"]
        changed = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "REACHED": str(self._noted)}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--no-cov",
            "-pno:cacheprovider",
            "-preached",
            *words,
        ]
        process = subprocess.Popen(
            [*command, *tests],
            cwd=self.root,
            env=os.environ | changed,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def reached(self, place: int) -> set[str]:
        """The tests of the last run that ran this place."""
        file = self._noted / str(place)
        return set(file.read_text("utf-8").splitlines()) if file.exists() else set()

    def passed(self) -> dict[str, float]:
        """The tests of the last run that passed, with their seconds."""
        took: Counter[str] = Counter()
        failed = set()
        for line in (self._noted / "ended").read_text("utf-8").splitlines():
            outcome, seconds, test = line.split("\t", 2)
            took[test] += float(seconds)
            if outcome != "passed":
                failed.add(test)
        return {test: seconds for test, seconds in took.items() if test not in failed}


def _judged(copy: Copy, path: str, took: Mapping[str, float], limit: float) -> str:
    """How these tests judge what the copy has now."""
    files: Counter[str] = Counter()
    for test, seconds in took.items():
        files[test.partition("::")[0]] += seconds
    left_out = 0
    for where in ("near", "elsewhere"):
        chosen, left = [], limit
        for file in sorted(files, key=lambda each: (files[each], each)):
            if is_near(path, file) == (where == "near"):
                left -= files[file]
                chosen += [file] if left > 0 or not chosen else []
                left_out += left <= 0 and file != chosen[0]
        if chosen:
            wanted = [test for test in took if test.partition("::")[0] in chosen]
            # What a mistake lets hang fails by the time of a test, or the run is stopped.
            code = copy.run("-x", "-n0", "--timeout=90", tests=chosen, wanted=wanted, seconds=4 * limit)
            if code is None:
                return "hangs"
            if code not in (0, 5):
                return where
    return f"SURVIVED {len(took)} tests" + (f", without those of {left_out} files" if left_out else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", help="files and folders of modules")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="+", help="the tests that may judge; those of the layer without it")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the tests that judge one mutation")
    parser.add_argument("--workers", default="2", help="processes of the run without mistakes")
    asked = parser.parse_args()
    chosen = random.Random(asked.seed)
    tests = asked.tests or list(dict.fromkeys(each for path in asked.paths for each in wide_tests(path)))
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        subprocess.run(["git", "worktree", "add", "-q", "--detach", copy.root], cwd=REPOSITORY, check=True)
        try:
            sources = {
                each: (copy.root / each).read_bytes() for path in asked.paths for each in _modules(path)
            }
            found = [(path, each) for path in sorted(sources) for each in mutations(sources[path])]
            picked = dict(enumerate(chosen.sample(found, min(asked.count, len(found)))))
            for path in {path for path, _ in picked.values()}:
                places = {number: each for number, (of, each) in picked.items() if of == path}
                (copy.root / path).write_bytes(noted(sources[path], places))
            copy.run("--timeout=300", f"-n{asked.workers}", tests=tests, seconds=7200)
            passed = copy.passed()
            reached = {number: copy.reached(number) & passed.keys() for number in picked}
            print(f"{len(passed)} tests pass without a mistake", flush=True)
            for path, _ in picked.values():
                (copy.root / path).write_bytes(sources[path])
            for number, (path, mutation) in picked.items():
                (copy.root / path).write_bytes(mutation.applied(sources[path]))
                took = {test: passed[test] for test in reached[number]}
                how = _judged(copy, path, took, asked.seconds)
                (copy.root / path).write_bytes(sources[path])
                counts[how.partition(" ")[0]] += 1
                print(f"{how}: {path}:{mutation.line}: {mutation.old!r} -> {mutation.new!r}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", copy.root], cwd=REPOSITORY, check=False)
    print(", ".join(f"{count} {how}" for how, count in counts.most_common()))


def _modules(path: str) -> list[str]:
    """The modules in a folder, or this one."""
    place = REPOSITORY / path
    found = place.rglob("*.py") if place.is_dir() else [place]
    return sorted(str(each.relative_to(REPOSITORY)) for each in found)


if __name__ == "__main__":
    main()
