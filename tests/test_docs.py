"""The documents are true: the diagrams are those of the tables, their examples run."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from msgspec import Struct

from openresponses_bridge.backend import Output
from openresponses_server.backend import ResponseOptions
from openresponses_server.settings import WORKER_SETTINGS
from tests.support.document_blocks import blocks
from tests.support.documents import run_python
from tests.support.drawings import drawing
from tests.support.public_names import environment_variables
from tests.support.shared import REPOSITORY

# each package with the names that it only keeps for what has moved to another
ROOTS: dict[str, set[str]] = {
    "bridge/openresponses_agent": set(),
    "bridge/openresponses_bridge": {"loop", "prompt", "tools"},
    "server/openresponses_cli": set(),
    "server/openresponses_server": {"commands"},
}
PAGES_WITH_PLOTS = ("benchmarks", "capacity")


@cache
def drawn_page(name: str) -> str:
    """The page as its tables draw it."""
    page: str = drawing("generate.py")["PAGES"][name]()
    return page


@pytest.mark.parametrize(
    "name",
    [
        *("states.md", "rules.md", "fields.md", "settings.md", "upstreams.md", "errors.md"),
        *("conformance.md", "benchmarks.md", "capacity.md", "engines.md"),
    ],
)
def test_the_drawn_pages_are_those_of_the_tables(name: str) -> None:
    page = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
    assert page == drawn_page(name), "run `make docs`"


def test_t4_nothing_that_several_apis_have_is_lost_in_silence() -> None:
    page = drawn_page("fields.md")
    assert "| audio | Chat |" in page
    assert "| the service tier | Chat | sent as `service_tier` |" in page
    assert "untold" not in page


def test_n1_what_an_answer_says_comes_back_to_clients_of_its_own_api() -> None:
    drawn = drawing("drawn_answers.py")
    for feature in drawn["FEATURES"]:
        for upstream, answer in feature.said.items():
            client = "openai" if upstream == "responses" else upstream
            fate = drawn["outcome"](feature, upstream, client, drawn["forms"](upstream, answer))
            assert fate.startswith("sent as ") or fate == f"answered: {feature.ours[client]}", feature.title


def test_the_plots_are_those_of_the_results() -> None:
    drawn = drawing("generate.py")["plots"]()
    docs = REPOSITORY / "docs"
    there = {
        path.relative_to(docs).as_posix()
        for folder in PAGES_WITH_PLOTS
        for path in (docs / folder).glob("*.svg")
    }
    assert there == set(drawn)
    for name, text in drawn.items():
        assert (docs / name).read_text(encoding="utf-8") == text, "run `make docs`"
        page = (docs / name).parent.with_suffix(".md").read_text(encoding="utf-8")
        assert f"]({name})" in page


def test_the_page_of_errors_has_the_codes_alone() -> None:
    page = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| `([\w.]+)` \| \d", page, re.MULTILINE)
    names = json.loads((REPOSITORY / "snapshots" / "server" / "names.json").read_bytes())
    assert codes == list(names["error codes"])
    assert {"invalid_api_key", "prompt_not_found", "response_interrupted", "upstream_cut"} <= set(codes)
    assert "after" not in codes  # the parameter with which a CursorError is made


def test_the_page_on_observing_has_every_event_of_the_log() -> None:
    page = (REPOSITORY / "docs" / "observing.md").read_text(encoding="utf-8")
    log = page[page.index("## The log") : page.index("## Metrics")]
    rows = re.findall(r"^\| (`[a-z_]+\.[a-z_]+`.*?) \|", log, re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    described |= set(re.findall(r"(?:line|a WebSocket)\s`(\w+)`", log))
    names = json.loads((REPOSITORY / "snapshots" / "server" / "names.json").read_bytes())["events of the log"]
    assert described == set(names)


def test_the_page_of_the_server_has_every_endpoint() -> None:
    """By the last word of its path: the table shortens what several have in common."""
    page = (REPOSITORY / "docs" / "server.md").read_text(encoding="utf-8")
    table = page.partition("## Endpoints")[2].partition("\n\nErrors are")[0]
    shown = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", table))))
    names = json.loads((REPOSITORY / "snapshots" / "server" / "names.json").read_bytes())["endpoints"]
    last = {re.findall(r"\w+", re.sub(r"\{\w+\}", "", name))[-1] for name in names}
    assert {"inspector", "input_items", "countTokens"} <= shown
    assert sorted(last - shown) == []


class Complete(Struct):
    """Some settings.

    `here`: not the explanation of a field.
    """

    here: int
    """What is said
    of this one."""
    last: int = 0
    """alone"""


class Silent(Struct):
    """`silent`: not the explanation of a field."""

    said: int
    """This."""
    silent: int


def test_each_setting_has_its_words() -> None:
    described = drawing("drawn_settings.py")["described"]
    assert described(Complete) == {"here": "What is said of this one.", "last": "alone"}
    with pytest.raises(KeyError, match="Silent does not say what silent is"):
        described(Silent)


def test_the_page_of_settings_has_every_environment_variable() -> None:
    page = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    named = environment_variables() | {WORKER_SETTINGS}
    assert {"XDG_DATA_HOME", "OPENRESPONSES_BRIDGE_PORT", "OPENRESPONSES_BRIDGE_API_KEYS"} <= named
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []


def test_the_page_of_settings_has_every_setting() -> None:
    page = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    documented = set()
    for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL):
        dialect = re.search(r" for `(\w+)`$", title)
        for place in re.findall(r"`\[+([^]]+)\]", title) or [title]:
            path = place.replace('."NAME"', "")
            if dialect:
                path = path.replace("options", f"options ({dialect[1]})")
            documented |= {f"{path}.{name}" for name in re.findall(r"^\| `(\w+)`", text, re.MULTILINE)}
    names = json.loads((REPOSITORY / "snapshots" / "server" / "names.json").read_bytes())["settings"]
    named = [name for name in names if not name.startswith("(a profile)")]
    expected = {name if "." in name else f"Top level.{name}" for name in named}
    assert sorted(expected - documented) == []


@pytest.mark.parametrize(
    ("title", "code"),
    [
        *blocks("docs/library.md", "python"),
        *blocks("docs/backend.md", "python"),
        *blocks("docs/prompts.md", "python"),
        *blocks("docs/agent.md", "python"),
    ],
)
def test_the_python_of_the_pages_runs(title: str, code: str) -> None:
    run_python(code, title)


def test_the_first_steps_have_every_extra() -> None:
    page = (REPOSITORY / "docs" / "start.md").read_text(encoding="utf-8")
    for root, name in (("server", "server"), ("bridge", "library")):
        project = tomllib.loads((REPOSITORY / root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        table = page[page.index(f"\n| extra of the {name} |") :].split("\n\n")[0]
        shown = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
        assert sorted(shown) == sorted(project["optional-dependencies"])


@pytest.mark.parametrize("root", ["bridge", "server"])
def test_the_pages_of_the_index_have_addresses_that_lead_to_files(root: str) -> None:
    """An index has no files beside the page."""
    page = (REPOSITORY / root / "README.md").read_text(encoding="utf-8")
    urls = tomllib.loads((REPOSITORY / root / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    links = [*re.findall(r"\]\(([^)]*)\)", page), *urls.values()]
    assert links
    assert all(each.startswith("https://") for each in links)
    files = [each.removeprefix(f"{urls['Source']}/blob/main/") for each in links if "/blob/" in each]
    assert [each for each in files if not (REPOSITORY / each.partition("#")[0]).is_file()] == []


def test_the_first_page_is_short() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 200
    first = readme[: readme.index("\n## ")]
    assert all(
        command in first for command in ("make serve", "make test", "run codex", "serve --store", "conform")
    )


@pytest.mark.parametrize("root", ROOTS)
def test_the_page_on_architecture_has_every_package(root: str) -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 170
    table = page[page.index(f"\n`{root}`") :].split("\n\n")[1]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    folder = REPOSITORY / root
    modules = {path.stem for path in folder.glob("[!_]*.py")}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert named == (modules | packages) - ROOTS[root]


@pytest.mark.parametrize("root", ROOTS)
def test_the_tables_of_architecture_are_the_layers_that_imports_are_held_to(root: str) -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index(f"\n`{root}`") :].split("\n\n")[1]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    shown = [set(re.findall(r"`(\w+)`", each)) for cell in cells for each in cell.split(" over ")]
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (layers,) = (
        each["layers"]
        for each in contracts["contracts"]
        if each.get("containers") == [root.partition("/")[2]]
    )
    layer_sets = [set(re.findall(r"\w+", layer)) for layer in layers]
    assert shown == [modules for each in layer_sets if (modules := each - ROOTS[root] - {"__main__"})]


def test_the_page_on_architecture_names_modules_that_there_are() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    roots = [
        REPOSITORY,
        *(REPOSITORY / root for root in ROOTS),
    ]
    paths = re.findall(r"`(?:bridge: |agent: )?([\w/]+\.py)`", page)
    assert "emitter/machine.py" in paths
    assert [path for path in paths if not any((root / path).is_file() for root in roots)] == []


def test_the_page_on_backends_has_every_output_and_every_option() -> None:
    page = (REPOSITORY / "docs" / "backend.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)", page, re.MULTILINE))
    outputs = {kind.__name__ for kind in get_args(Output)}
    options = ResponseOptions.__annotations__.keys() - {"request_headers", "ids", "clock"}
    assert rows == outputs | options | {"max_body"}


READERS = ("backend authors", "client users", "maintainers", "operators", "security reviewers")


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_the_first_line_of_each_page_says_for_whom_it_is(page: Path) -> None:
    title, empty, first, *_ = page.read_text().split("\n", 3)
    assert title.startswith("# ")
    assert not empty
    assert re.match(rf"For .*?\b({'|'.join(READERS)})\b", first), first


@pytest.mark.parametrize("reader", READERS)
def test_each_reader_has_a_page(reader: str) -> None:
    assert any(reader in page.read_text().split("\n", 3)[2] for page in (REPOSITORY / "docs").glob("*.md"))
