"""Counts the mistakes that the tests detect: `python -m tests.mutations PATH... [--count 40] [--seed 1]`.

Each mutation changes the operator of a comparison, a condition or a sum, negates a condition, or leaves out a
call or an assignment to an attribute, in a copy of the committed files. A path is a module, a folder of
modules, or `FILE:LINE`, which means all mutations of that line: use it after you have written a test for one
that survived. First, the tests of the layer, or those that `--tests` names, run once without a mistake and
record which of them runs each place, itself or in a process that it started. Then those tests judge the
mutation: first the ones near the file (of its name, of its folder), then the others, the quickest files
first, until they add up to `--seconds`. A test that fails without a mistake judges nothing.

The output has a line for each mutation, as soon as it is judged. It says which tests detected the mistake
(`near`, `elsewhere`, or `hangs`: the tests did not end), that the mistake `SURVIVED`, or `UNKNOWN` if no
imported function can be given its code; and how many tests were to judge it. For a mutation that survived,
write a test or remove the code.
"""

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests import quick
from tests.support.reached import Judged
from tests.support.releases import python_path
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

_SECONDS_BETWEEN: Final = 0.2  # two looks at what is judged

# As parts of another expression these may have parentheses, which the node does not include.
_IN_PARENTHESES: Final = (
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Lambda,
    ast.NamedExpr,
    ast.UnaryOp,
)


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
    """The module without a mistake, changed so that it records the number of each place when that runs."""
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
        found = source[slice(*span(part))].decode()
        return f"({found})" if isinstance(part, _IN_PARENTHESES) else found

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
    """These nodes and all nodes in them, except in f-strings, whose places Python 3.11 does not know."""
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
        case ast.Expr(ast.Call() | ast.Await() as left_out):
            # A live function gets this code, which has to name the variables of its closure.
            yield node, f"None and {of(left_out)}"
        case ast.Assign([ast.Attribute()]):
            yield node, "pass"
        case ast.If(test) | ast.IfExp(test):
            yield test, f"(not ({of(test)}))"


def is_asked(path: str, line: int, asked: Iterable[str]) -> bool:
    """Whether a line of a module is in one of the paths that were asked for."""
    return any(each == f"{path}:{line}" if ":" in each else Path(path).is_relative_to(each) for each in asked)


def is_near(path: str, test: str) -> bool:
    """Whether a file of tests has this module's name, or is in the folder of its package."""
    layer = next((each for each in quick.MIRRORED if Path(path).is_relative_to(each)), None)
    place = Path(quick.MIRRORED[layer]) / Path(path).parent.relative_to(layer) if layer else Path("tests")
    near = [*quick.tests_of(path), *quick.nearest(place)]
    return any(Path(test).is_relative_to(each) for each in near)


def wide_tests(path: str) -> Sequence[str]:
    """The tests of the layer to which a module belongs."""
    if path.startswith("bridge/"):
        return quick.LIBRARY
    return [quick.MIRRORED[each] for each in quick.MIRRORED if Path(path).is_relative_to(each)]


class Copy:
    """A copy of the committed files, in which tests run: `root` is its folder, and `folder` has what the
    tests record."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "copy"
        self._noted = folder / "noted"
        self._module = folder / "module"
        self._module.mkdir()
        shutil.copy(REPOSITORY / "tests/support/reached.py", self._module)

    def run(self, *words: str, tests: Iterable[str]) -> None:
        """Run these tests."""
        self._started(words, tests, ()).wait()

    def judge(self, *words: str, tests: Iterable[str], plan: Sequence[Judged]) -> Iterator[tuple[int, str]]:
        """Have these tests judge the mistakes of the plan; yield the number and the result of each as soon as
        it is known, and last those that no result came for."""
        left = [each.number for each in plan]
        process = self._started(words, tests, plan)
        try:
            while True:
                has_ended = process.poll() is not None
                for number, word in self._judged():
                    if number in left:
                        left.remove(number)
                        yield number, word
                if has_ended:
                    break
                time.sleep(_SECONDS_BETWEEN)
        finally:
            process.send_signal(signal.SIGINT)  # it ends what it has forked
            process.wait()
        yield from ((number, "UNKNOWN") for number in left)

    def _started(
        self, words: Iterable[str], tests: Iterable[str], plan: Iterable[Judged]
    ) -> subprocess.Popen[bytes]:
        shutil.rmtree(self._noted, ignore_errors=True)
        self._noted.mkdir()
        if lines := "".join(json.dumps(each) + "\n" for each in plan):
            (self._noted / "plan").write_text(lines, "utf-8")
        paths = [self._module, self.root / "bridge", self.root / "server"]
        changed = {"PYTHONPATH": python_path(*paths), "REACHED": str(self._noted)}
        if lines:
            # A module can change twice within the resolution of the time that marks its compiled file as old.
            changed["PYTHONDONTWRITEBYTECODE"] = "1"
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
        # Inside a test, the tests' own run of pytest is not a worker of the outer one.
        outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = outer | changed
        return subprocess.Popen([*command, *tests], cwd=self.root, env=environment, stdout=subprocess.DEVNULL)

    def _judged(self) -> list[tuple[int, str]]:
        """The results so far."""
        file = self._noted / "judged"
        *lines, _unfinished = file.read_text("utf-8").split("\n") if file.exists() else [""]
        return [(int(number), word) for number, word in map(str.split, lines)]

    def reached(self, place: int) -> set[str]:
        """The tests of the last run that reached this place."""
        file = self._noted / str(place)
        return set(file.read_text("utf-8").splitlines()) if file.exists() else set()

    def passed(self) -> dict[str, float]:
        """The tests of the last run that passed, with their durations in seconds."""
        times: Counter[str] = Counter()
        failed = set()
        for line in (self._noted / "ended").read_text("utf-8").splitlines():
            outcome, seconds, test = line.split("\t", 2)
            times[test] += float(seconds)
            if outcome != "passed":
                failed.add(test)
        return {test: seconds for test, seconds in times.items() if test not in failed}


def rounds(path: str, took: Mapping[str, float], limit: float) -> list[tuple[str, list[str]]]:
    """The order in which these tests judge a mistake in this module: the quickest files first, in each round
    as many as fit into the limit of seconds."""
    files: Counter[str] = Counter()
    for test, seconds in took.items():
        files[test.partition("::")[0]] += seconds
    result = []
    for name in ("near", "elsewhere"):
        chosen: list[str] = []
        left = limit
        for file in sorted(files, key=lambda each: (files[each], each)):
            if is_near(path, file) == (name == "near") and left > 0:
                left -= files[file]
                chosen += [test for test in took if test.partition("::")[0] == file]
        result.append((name, chosen))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", help="modules, folders of modules, or lines as FILE:LINE")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="+", help="the tests that may judge; by default, those of the layer")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="the limit for the tests that judge one mutation"
    )
    parser.add_argument("--workers", default="2", help="the processes that run the tests without mistakes")
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    within = [each.partition(":")[0] for each in options.paths]
    tests = options.tests or list(dict.fromkeys(each for path in within for each in wide_tests(path)))
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        subprocess.run(["git", "worktree", "add", "-q", "--detach", copy.root], cwd=REPOSITORY, check=True)
        try:
            sources = {each: (copy.root / each).read_bytes() for path in within for each in _modules(path)}
            candidates = [
                (path, each)
                for path in sorted(sources)
                for each in mutations(sources[path])
                if is_asked(path, each.line, options.paths)
            ]
            picked = dict(enumerate(chosen.sample(candidates, min(options.count, len(candidates)))))
            for path in {path for path, _ in picked.values()}:
                places = {number: each for number, (of, each) in picked.items() if of == path}
                (copy.root / path).write_bytes(noted(sources[path], places))
            copy.run(f"-n{options.workers}", tests=tests)
            passed = copy.passed()
            print(f"{len(passed)} tests pass without a mistake", flush=True)
            plan = []
            for number, (path, mutation) in picked.items():
                times = {test: passed[test] for test in sorted(copy.reached(number) & passed.keys())}
                mistaken = mutation.applied(sources[path]).decode()
                plan.append(
                    Judged(
                        number, path, mistaken, rounds(path, times, options.seconds), 60 + 3 * options.seconds
                    )
                )
            for path in {path for path, _ in picked.values()}:
                (copy.root / path).write_bytes(sources[path])
            files = {test.partition("::")[0] for each in plan for _, names in each.rounds for test in names}
            for number, word in copy.judge("-x", "--timeout=90", tests=sorted(files), plan=plan):
                counts[word] += 1
                path, mutation = picked[number]
                judges = sum(len(names) for _, names in plan[number].rounds)
                print(
                    f"{word} ({judges} tests): {path}:{mutation.line}: {mutation.old!r} -> {mutation.new!r}",
                    flush=True,
                )
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", copy.root], cwd=REPOSITORY, check=False)
    print(", ".join(f"{count} {how}" for how, count in counts.most_common()))


def _modules(path: str) -> list[str]:
    """The modules in a folder; for a module, only that one."""
    place = REPOSITORY / path
    paths = place.rglob("*.py") if place.is_dir() else [place]
    return sorted(str(each.relative_to(REPOSITORY)) for each in paths)


if __name__ == "__main__":
    main()
