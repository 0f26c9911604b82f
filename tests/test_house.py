"""The house: one version, pins without addresses, no machine paths, plain words, a sans-IO bridge."""

import ast
import io
import os
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.support.schema import event_schemas, event_violations, violations
from tests.support.shared import REPOSITORY
from tests.support.tracing import TRACED

# A guide for prose that users and newcomers read: the word, and what to say instead.
WORDS = {
    r"[Tt]old|[Tt]ells?|[Tt]elling": "sent, reported, emitted, called with, distinguished",
    r"(?<![Tt]here )(?<!tool_choice )(?:is|are|was|were) (?:no|none)(?! longer)": "is not a, is not one of",
    r"holds? no": "has no, does not hold",
    r"gravestone|signs? of life": "mark, answer",
    r"(?<!I )[Ss]hall": "should, is to, may",
    r"(?:is|are|was|were) there (?:already|twice)": "already exists, is given twice",
    r"as the \w+ likes?": "the default, any",
    r"(?:of which|whom) (?:a|an|the|one) \w+ has to": "each … must, one of them must",
}
# Verbs that no function of the library begins with, and the terms for what they did.
VERBS = {
    "admit": "feed, accept",
    "believe": "accept, use",
    "cite": "annotate",
    "forget": "reset, evict",
    "hear": "receive, dispatch",
    "heed": "accept, apply",
    "hold": "buffer, reserve",
    "leave": "close, end",
    "mend": "repair",
    "note": "record, add",
    "reach": "open, connect",
    "say": "send, emit, append",
    "says": "equals",
    "settle": "flush, finish",
    "speak": "send, emit",
    "take": "feed, accept, append, update",
    "tell": "send, report",
    "wake": "mark, notify",
}
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:home|root|work|Users)/[\w.]")


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def distribution(root: str) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((REPOSITORY / root / "pyproject.toml").read_text())["project"]
    return project


def modules(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (REPOSITORY / package).rglob("*.py"))


def imported_names(module: Path) -> Iterator[str]:
    """Absolute names that the module imports; those from a relative import stay inside its package."""
    for node in ast.walk(ast.parse(module.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def exceptions_of(module: Path) -> Iterator[str]:
    """The names under which the module keeps an exception."""
    for node in ast.parse(module.read_bytes()).body:
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(value, ast.Call):
            callee = ast.unparse(value.func).rpartition(".")[2]
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if callee.endswith(("Error", "Outage", "Refusal")):
                yield from map(ast.unparse, targets)


def test_no_exception_is_raised_that_a_module_keeps() -> None:
    """Each raise adds its frames to the exception's traceback, which would hold those of all requests."""
    construction = re.compile(r"^\w.*(?:Error|Outage|Refusal)\(", re.MULTILINE)  # trees are expensive
    names, raised = set[str](), dict[str, Path]()
    for module in modules("bridge", "server"):
        names |= set(exceptions_of(module)) if construction.search(module.read_text()) else set()
    assert names  # some are kept and never raised
    named = re.compile(rf"\braise\b.*\b(?:{'|'.join(names)})\b")
    for module in modules("bridge", "server"):
        if not named.search(module.read_text()):
            continue
        for node in ast.walk(ast.parse(module.read_bytes())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name | ast.Attribute):
                raised[ast.unparse(node.exc).rpartition(".")[2]] = module
    assert {name: str(raised[name]) for name in names & raised.keys()} == {}


def tracked_files() -> list[Path]:
    """What git tracks, and what it would track once added."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listing.stdout.decode().split("\0") if (path := REPOSITORY / name).is_file()]


@pytest.mark.parametrize("root", ["bridge", "server"])
def test_version_of_a_distribution_is_that_of_what_is_installed(root: str) -> None:
    project = distribution(root)
    assert metadata.version(project["name"]) == project["version"]


@pytest.mark.parametrize("root", ["bridge", "server"])
def test_a_distribution_has_the_licence_and_the_changes_of_the_repository(root: str) -> None:
    """They are links, since nothing outside its folder is packed."""
    for name in ("LICENSE", "CHANGELOG.md"):
        assert (REPOSITORY / root / name).read_bytes() == (REPOSITORY / name).read_bytes()


def test_console_script_is_installed_under_its_name() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="openresponses-bridge")
    assert script.value == "openresponses_cli.__main__:main"
    assert callable(script.load())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LICENSE", "Apache License"),
        ("CHANGELOG.md", "## [Unreleased]"),
        ("README.md", "make test"),
        ("CONTRIBUTING.md", "make snapshots"),
        (".ci/run", "make test"),
    ],
)
def test_files_that_stand_beside_the_code(name: str, words: str) -> None:
    assert words in (REPOSITORY / name).read_text()


def test_decisions_are_a_context_a_decision_and_a_price() -> None:
    entries = re.findall(r"^- .*?(?=^- |^#|\Z)", (REPOSITORY / "docs/decisions.md").read_text(), re.M | re.S)
    pieces = [" ".join(entry.split()).split(" · ") for entry in entries]
    odd = [parts[0] for parts in pieces if len(parts) != 3 or not parts[2].startswith("Price: ")]
    assert entries
    assert not odd


def test_ci_run_can_be_executed() -> None:
    assert os.access(REPOSITORY / ".ci/run", os.X_OK)


def run_of_make_test(*arguments: str) -> list[str]:
    """The words of the command that runs tests with pytest."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTEST_ARGS", "MAKEFLAGS")}
    command = ["make", "--dry-run", "test", *arguments]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, env=clean)
    [line] = [line for line in shown.stdout.splitlines() if "-m pytest" in line]
    return line.split()


@pytest.mark.parametrize(
    ("arguments", "measured"),
    [("", True), ("PYTEST_ARGS=", True), ("PYTEST_ARGS=tests/bridge/test_sse.py", False)],
)
def test_coverage_is_asked_for_of_the_whole_run_only(
    pyproject: dict[str, Any], arguments: str, measured: bool
) -> None:
    assert ("--cov" in run_of_make_test(*filter(None, [arguments]))) == measured
    assert pyproject["tool"]["coverage"]["report"]["fail_under"] >= 97


def test_whole_run_leaves_no_test_out() -> None:
    words = run_of_make_test()
    # `--cov` would take a path that follows it for what is to be measured
    assert words[words.index("--cov") + 1].startswith("--")
    assert [word for word in words if "tests/" in word] == [
        "--ignore=tests/clients",
        "--ignore=tests/engines",
    ]


def test_each_test_that_is_traced_is_there() -> None:
    assert [path for path in TRACED if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize("name", ["clients", "engines"])
def test_no_test_of_real_clients_or_engines_belongs_to_a_whole_run(name: str) -> None:
    """So their folder need not be collected: each module has a mark, if not from its folder's conftest.py."""
    folder = REPOSITORY / "tests" / name
    marked = re.compile(r"^pytestmark = \[pytest\.mark\.(?:clients|browser|engines),", re.MULTILINE)
    modules_of_it = [path for path in folder.rglob("test_*.py") if path.parent != folder / "vscode"]
    assert modules_of_it
    assert [path.name for path in modules_of_it if not marked.search(path.read_text())] == []


def wrong_imports(source: str) -> list[str]:
    """What a module imports of the tests that is itself a test, or is not there."""
    imports = re.findall(
        r"^ *from (tests(?:\.\w+)*) import (\([^)]*\)|.*)|^ *import (tests[.\w]*)", source, re.M
    )
    wrong = []
    for package, names, module in imports:
        imported = re.findall(r"(\w+)(?: as \w+)?(?:,|\)|\s*$)", names, re.M)
        place = REPOSITORY / (package or module).replace(".", "/")
        modules = [place] if not place.is_dir() else [place / name for name in imported]
        wrong += [
            str(each.relative_to(REPOSITORY))
            for each in modules
            if each.name == "conftest"
            or each.name.startswith("test_")
            or not (each.is_dir() or each.with_suffix(".py").exists())
        ]
    return wrong


def test_tests_import_no_tests() -> None:
    """What they share is in `tests/support`, or beside them in a module that has none."""
    assert wrong_imports("from tests.support.shared import REPOSITORY\nfrom tests.load import faults") == []
    assert wrong_imports("from tests.support import (\n    shared,\n    nothing as x,\n)") == [
        "tests/support/nothing"
    ]
    assert wrong_imports("from tests import test_house\n    from tests.conftest import logs") == [
        "tests/test_house",
        "tests/conftest",
    ]
    assert wrong_imports("import tests.test_house") == ["tests/test_house"]
    files = (REPOSITORY / "tests").rglob("*.py")
    assert {str(each): imports for each in files if (imports := wrong_imports(each.read_text()))} == {}


def test_each_module_that_tests_share_has_its_line_in_the_readme() -> None:
    folder = REPOSITORY / "tests" / "support"
    descriptions = {
        path.stem: " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
        for path in folder.glob("*.py")
    }
    firsts = {name: re.match(r".*?\.(?= [A-Z`]|$)", text) for name, text in descriptions.items()}
    expected = [f"- `{name}`: {first[0] if first else 'no sentence'}" for name, first in firsts.items()]
    lines = [line for line in (folder / "README.md").read_text().splitlines() if line.startswith("- ")]
    assert sorted(lines) == sorted(expected)


CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time"}
_CLOCK = re.compile(rf"\b(?:{'|'.join(CLOCKS)})\b")
MEASURED = {"benchmarks", "clients", "engines", "load", "packaging"}  # no part of the whole run


def judges_by_the_clock(source: str) -> list[int]:
    """The lines of a module's assertions that read a clock."""
    if not _CLOCK.search(source):  # a tree is expensive
        return []
    asserted = [node.test for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    return [
        node.lineno
        for test in asserted
        for node in ast.walk(test)
        if isinstance(node, ast.Call)
        and (node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")) in CLOCKS
    ]


def test_no_test_judges_by_the_clock_of_a_machine_that_may_be_busy() -> None:
    assert judges_by_the_clock("begun = monotonic()\nassert time.monotonic() - begun < 5") == [2]
    assert judges_by_the_clock("assert perf_counter() < ends, 'late'\nassert clock.now() == 5") == [1]
    folder = REPOSITORY / "tests"
    files = [each for each in folder.rglob("*.py") if not MEASURED & set(each.relative_to(folder).parts)]
    assert {str(each): lines for each in files if (lines := judges_by_the_clock(each.read_text()))} == {}


def test_scripts_of_redis_are_run_by_script_alone() -> None:
    """It knows what to do where Redis has forgotten one."""
    paths = [
        str(file.relative_to(REPOSITORY))
        for file in (REPOSITORY / "server").rglob("*.py")
        if re.search(r"\.(?:eval|evalsha|register_script)\(", file.read_text())
    ]
    assert paths == ["server/openresponses_server/redis_clients.py"]


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 takes such a group for absent where it can match in several ways: it is an atomic
    group around a greedy one (`(?>(?:…)*)`), which means the same."""
    places = [
        f"{file.relative_to(REPOSITORY)}: {line.strip()}"
        for root in ("bridge", "server")
        for file in (REPOSITORY / root).rglob("*.py")
        for line in file.read_text().splitlines()
        if re.search(r"\(\?.*\)(?:[*+?]|\{[^{}]*\})\+", line)
    ]
    assert places == []


def test_the_site_is_built_without_what_the_tests_need(tmp_path: Path) -> None:
    """Where nothing is installed yet: the environment, the group for documents and the site, but no tests."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTEST_ARGS", "MAKEFLAGS")}
    command = ["make", "--dry-run", "docs", f"VENV={tmp_path / 'none'}"]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, env=clean)
    assert re.findall(r"--group (\S+)", shown.stdout) == ["docs"]
    assert re.findall(r"--editable (\S+)", shown.stdout) == ["bridge", "server"]
    assert "mkdocs build" in shown.stdout
    assert "-m pytest" not in shown.stdout


@pytest.mark.parametrize(
    "package",
    [
        "bridge/openresponses_agent",
        "bridge/openresponses_bridge",
        "server/openresponses_cli",
        "server/openresponses_server",
    ],
)
def test_packages_say_that_they_are_typed(package: str) -> None:
    assert (REPOSITORY / package / "py.typed").is_file()


def machine_paths(text: str, *folders: Path) -> list[int]:
    """The numbers of the lines that have a path of somebody's machine, or one in these folders."""
    own = [f"{each}/" for each in folders if each != each.parent]

    def has_one(of: str) -> bool:
        return any(each in of for each in own) or MACHINE_PATH.search(of) is not None

    if not has_one(text):  # as nearly always
        return []
    return [number for number, line in enumerate(text.splitlines(), 1) if has_one(line)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a\n/tmp/copy/README.md", [2]),
        ("/srv/me/.config", [1]),
        ("/".join(["", "home", "you"]), [1]),
        ("/tmp/owned and /tmp/copy.txt, https://example.com/srv/me", []),
    ],
)
def test_paths_of_a_machine_are_found_wherever_the_checkout_is(text: str, found: list[int]) -> None:
    assert machine_paths(text, Path("/tmp/copy"), Path("/srv/me")) == found
    assert machine_paths("https://example.com", Path("/")) == []


def test_no_tracked_file_holds_a_path_of_a_machine() -> None:
    places = [
        f"{path.relative_to(REPOSITORY)}:{number}"
        for path in tracked_files()
        for number in machine_paths(path.read_text(errors="replace"), REPOSITORY, Path.home())
    ]
    assert not places


def test_constraints_pin_versions_and_nothing_else() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    odd = [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)]
    assert pins
    assert not odd


def test_constraints_pin_every_declared_dependency(pyproject: dict[str, Any]) -> None:
    def canonical(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    text = (REPOSITORY / "constraints.txt").read_text()
    pinned = {canonical(line.split("==")[0]) for line in text.splitlines() if "==" in line}
    groups = [*pyproject["dependency-groups"].values()]
    for project in map(distribution, ("bridge", "server")):
        groups += [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {canonical(re.split(r"[^\w.-]", need, maxsplit=1)[0]) for group in groups for need in group}
    assert declared - {"openresponses-bridge"} <= pinned


_CONTINUED = re.compile(r"""["']\s*[rbfuRBFU]{0,2}["']""")  # one string after another is one text
_BETWEEN = re.compile(r"""(?:\\n|[\s#"'\\])+""")
_ODD_WORD = re.compile(rf"\b(?:{'|'.join(WORDS)})\b")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of what a file says: a paragraph of a document, a comment, a docstring, a message. Of a
    module in which no text can have one of WORDS there is nothing: tokens are expensive."""
    text = path.read_text()
    if path.suffix != ".py":
        for paragraph in re.finditer(r"(?:.+\n?)+", text):
            yield text.count("\n", 0, paragraph.start()) + 1, paragraph[0]
        return
    if not _ODD_WORD.search(_BETWEEN.sub(" ", _CONTINUED.sub("", text))):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            block.append(token)
        elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT) and block:
            yield block[0].start[0], "\n".join(each.string.lstrip("# ") for each in block)
            block = []


def odd_words(text: str) -> list[str]:
    plain = " ".join(text.split())
    return [
        f"{match[0]!r} (say: {instead})"
        for word, instead in WORDS.items()
        for match in re.finditer(rf"\b(?:{word})\b", plain)
    ]


@pytest.mark.parametrize(
    ("text", "odd"),
    [
        ("Whoever waits is told.", 1),
        ("what is\nno JSON is none of ours", 2),
        ("There is no limit, and it is no longer told apart", 1),
        ("The part holds no text.", 1),
        ("Shall it be replaced? It is there already, as the model likes.", 3),
        ("keys: 2, of which a request has to show one", 1),
        ("reported, sent, not a list; a storyteller; tool_choice is none", 0),
    ],
)
def test_words_that_explain_nothing_are_found(text: str, odd: int) -> None:
    assert len(odd_words(text)) == odd


@pytest.mark.parametrize(
    "source",
    [
        "# it is\n# none\n",
        "def f():\n    # it is\n    #   none of\n    pass\n",
        "x = 1  # whoever waits is told\n",
        '"""The part\n    holds no text."""\n',
        "x = 'it is '\\\n    'none'\n",
        'raise E(\n    "it is "\n    f"none of {x}"\n)\n',
        'raise E("it is to" "ld")\n',
        'x = "it is\\nnone"\n',
        'x = """it is \\\nnone"""\n',
        'x = f"{y} is none of {z}"\n',
        'x = rb"" and r"it shall"\n',
    ],
)
def test_odd_words_are_found_wherever_a_module_says_them(source: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(source)
    assert [odd for _, text in prose(tmp_path / "m.py") for odd in odd_words(text)]


def test_prose_is_plain_english() -> None:
    documents = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    pages = [
        path
        for path in tracked_files()
        if path.suffix in (".css", ".html", ".js", ".md", ".toml")
        and path.is_relative_to(REPOSITORY / "server")
        and "vendor" not in path.parts
    ]
    problems = [
        f"{path.relative_to(REPOSITORY)}:{line}: {odd}"
        for path in [*modules("bridge", "server"), *documents, *pages]
        for line, text in prose(path)
        for odd in odd_words(text)
    ]
    assert not problems, "\n".join(problems)


_ODD_VERB = re.compile(rf"\bdef\s+_*(?:{'|'.join(VERBS)})(?:_|\b)")


def odd_verbs(source: str) -> list[str]:
    """The functions in this source whose names begin with one of VERBS, each with what to say instead."""
    if not _ODD_VERB.search(source):  # a tree is expensive
        return []
    names = [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    verbs = [(name, name.lstrip("_").partition("_")[0]) for name in names]
    return [f"{name} (say: {VERBS[verb]})" for name, verb in verbs if verb in VERBS]


@pytest.mark.parametrize(
    ("source", "odd"),
    [
        ("def take(): ...", 1),
        ("class Call:\n    async def _take_text(self): ...", 1),
        ("def _takes_context(): ...\ntake = 1\ndef intake(): ...", 0),
    ],
)
def test_verbs_that_are_not_the_fields_are_found(source: str, odd: int) -> None:
    assert len(odd_verbs(source)) == odd


def test_functions_of_the_library_begin_with_the_fields_verbs() -> None:
    problems = [
        f"{path.relative_to(REPOSITORY)}: {odd}"
        for path in modules("bridge")
        for odd in odd_verbs(path.read_text())
    ]
    assert not problems, "\n".join(problems)


def test_functions_of_the_server_begin_with_the_fields_verbs() -> None:
    problems = [
        f"{path.relative_to(REPOSITORY)}: {odd}"
        for path in modules("server")
        for odd in odd_verbs(path.read_text())
        if odd.lstrip("_").startswith(("admit", "forget", "note", "say", "take"))
    ]
    assert not problems, "\n".join(problems)


def test_bridge_imports_nothing_that_does_io(pyproject: dict[str, Any]) -> None:
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    (sans_io,) = [contract for contract in contracts if contract["type"] == "forbidden"]
    # import-linter knows outside packages by their first name only, and urllib.parse is welcome.
    roots = tuple(f"{name}." for name in [*sans_io["forbidden_modules"], "urllib.request"])
    any_root = re.compile(rf"\b(?:{'|'.join(root.partition('.')[0] for root in roots)})\b")
    problems = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in modules("bridge")
        if any_root.search(path.read_text())  # a tree is expensive
        for name in imported_names(path)
        if f"{name}.".startswith(roots)
    ]
    assert not problems


def test_schema_support_distinguishes_a_valid_instance_from_an_invalid_one() -> None:
    delta = {
        "type": "response.output_text.delta",
        "sequence_number": 3,
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "a",
        "logprobs": [],
    }
    assert len(event_schemas()) == 24
    assert event_violations(delta) == []
    assert event_violations(delta | {"delta": 1}) == ["$.delta: 1 is not of type 'string'"]
    assert event_violations({"type": "response.unheard_of"})
    part = {"type": "response.content_part.added", "part": {"type": "refusal"}}
    assert "$.part: 'refusal' is a required property" in event_violations(part)
    # ResponseResource refers to most of the others: an unresolved reference would raise here.
    assert violations("ResponseResource", {"object": "response"})
