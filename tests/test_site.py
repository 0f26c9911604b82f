"""The parts of the site that are not pages: links, the navigation, what may be loaded: `make docs-test`."""

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.docs
SITE = REPOSITORY / "build" / "site"


@pytest.fixture(scope="module")
def hooks() -> dict[str, Any]:
    pytest.importorskip("mkdocs")
    return runpy.run_path(str(REPOSITORY / "docs" / "site" / "hooks.py"))


@pytest.fixture
def files() -> SimpleNamespace:
    server = "# The server\n\n```sh\n# keys\n```\n\n## Keys [and limits]\n"
    pages = dict.fromkeys(["index.md", "clients/codex.md", "clients/index.md", "reporting.md"], "# A title\n")
    there = {
        name: SimpleNamespace(content_string=text)
        for name, text in (pages | {"server.md": server, "examples.md": "# Programs\n"}).items()
    }
    return SimpleNamespace(get_file_from_path=there.get)


@pytest.mark.parametrize(
    ("page", "line", "led"),
    [
        ("index.md", "see [it](docs/server.md#keys)", "see [it](server.md#keys)"),
        ("clients/codex.md", "[it](../server.md)", "[it](../server.md)"),
        ("server.md", "[it](../SECURITY.md)", "[it](reporting.md)"),
        ("reporting.md", "[all](README.md)", "[all](index.md)"),
        ("index.md", "[programs](docs/examples)", "[programs](examples.md)"),
        ("index.md", "[docs/server.md](docs/server.md)", "[The server](server.md)"),
        ("clients/codex.md", "[server.md](../server.md)", "[The server](../server.md)"),
        (
            "index.md",
            "[`docs/server.md`](docs/server.md#keys-and-limits)",
            r"[Keys \[and limits\]](server.md#keys-and-limits)",
        ),
        ("index.md", "[docs/server.md](docs/server.md#none)", "[The server](server.md#none)"),
        ("index.md", "[docs/examples](docs/examples)", "[Programs](examples.md)"),
        ("index.md", "[docs/clients](docs/clients/index.md)", "[A title](clients/index.md)"),
        (
            "index.md",
            "[server](docs/server.md), [e.g.](docs/server.md)",
            "[server](server.md), [e.g.](server.md)",
        ),
        (
            "index.md",
            "[the table](bridge/openresponses_bridge/state.py)",
            "the table (`bridge/openresponses_bridge/state.py`)",
        ),
        (
            "index.md",
            "[bridge/openresponses_bridge/state.py](bridge/openresponses_bridge/state.py)",
            "bridge/openresponses_bridge/state.py",
        ),
        ("index.md", "[gone](docs/gone.md)", "[gone](docs/gone.md)"),
        ("index.md", "```sh\n[x](docs/server.md)\n```", "```sh\n[x](docs/server.md)\n```"),
        ("index.md", "```python ask.py\n```", '```python title="ask.py"\n```'),
        ("index.md", "[out](https://example.org/x)", "[out](https://example.org/x)"),
    ],
)
def test_links_lead_within_the_site(
    hooks: dict[str, Any], files: SimpleNamespace, page: str, line: str, led: str
) -> None:
    here = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    assert hooks["on_page_markdown"](line, here, None, files) == led


@pytest.mark.parametrize(
    "loads",
    [
        '<script src="https://cdn.example/x.js"></script>',
        "<link rel=stylesheet href=//fonts.example/css>",
        '<img alt="" src="http://images.example/x.png">',
    ],
)
def test_nothing_is_loaded_from_another_address(hooks: dict[str, Any], loads: str) -> None:
    here = SimpleNamespace(url="server.html", file=SimpleNamespace(src_uri="server.md"))
    with pytest.raises(Exception, match="another address"):
        hooks["on_post_page"](f"<head></head>{loads}", here, None)
    assert hooks["on_post_page"]('<a href="https://example.org">', here, None)


def test_the_script_of_diagrams_is_on_their_pages_alone(hooks: dict[str, Any]) -> None:
    here = SimpleNamespace(url="clients/x.html", file=SimpleNamespace(src_uri="clients/x.md"))
    page = '<head></head><pre class="mermaid">'
    assert 'src="../assets/mermaid.min.js"' in hooks["on_post_page"](page, here, None)
    assert hooks["on_post_page"]("<head></head>", here, None) == "<head></head>"


def test_the_search_has_a_name(hooks: dict[str, Any]) -> None:
    """As the theme writes it; what a page has in fact, tests/clients/site looks at."""
    here = SimpleNamespace(url="x.html", file=SimpleNamespace(src_uri="x.md"))
    search = '<div class="md-search" data-md-component="search" role="dialog">'
    assert 'role="dialog" aria-label="Search">' in hooks["on_post_page"](search, here, None)


def test_every_page_is_in_the_site() -> None:
    if not SITE.exists():
        pytest.skip("the site is not built: make docs")
    docs = REPOSITORY / "docs"
    pages = [path.relative_to(docs) for path in [*docs.glob("*.md"), *docs.glob("clients/*.md")]]
    missing = [page for page in pages if not (SITE / page.with_suffix(".html")).is_file()]
    assert missing == []
    start = (SITE / "index.html").read_text()
    assert [page for page in pages if page.with_suffix(".html").as_posix() not in start] == []


def test_links_of_the_pages_are_not_called_by_file_names() -> None:
    if not SITE.exists():
        pytest.skip("the site is not built: make docs")
    pages = [path for path in SITE.rglob("*.html") if path.name != "404.html"]
    assert len(pages) > 40
    named = {
        f"{path.relative_to(SITE)}: {text}"
        for path in pages
        for text in re.findall(r"<a\b[^>]*>(?:<code>)?([\w./-]+\.md)(?:</code>)?</a>", path.read_text())
    }
    assert named == set()


def test_the_reference_has_the_public_names() -> None:
    if not SITE.exists():
        pytest.skip("the site is not built: make docs")
    import openresponses_bridge

    page = (SITE / "api" / "bridge.html").read_text()
    aliases = {"Event", "Part"}  # unions, which have no entry of their own
    assert [
        name
        for name in openresponses_bridge.__all__
        if f"openresponses_bridge.{name}" not in page and name not in aliases
    ] == []


def test_nothing_but_what_a_browser_reads_is_published() -> None:
    """No compiled modules, no tests, no programs; in `deploy` what is downloaded to deploy it."""
    if not SITE.exists():
        pytest.skip("make docs builds it")
    kinds = {".html", ".css", ".js", ".map", ".json", ".xml", ".gz", ".svg", ".png", ".inv", ".txt"}
    kinds |= {".toml", ".yaml", ".yml", ".md", ".example", ".conf", ".ini"}
    files = [path for path in SITE.rglob("*") if path.is_file()]
    assert [path for path in files if path.suffix in {".py", ".pyc"} or "__pycache__" in path.parts] == []
    read = [path for path in files if "deploy" not in path.relative_to(SITE).parts]
    assert {path.suffix for path in read} - kinds == set()


def test_each_version_has_a_folder_of_the_branch(tmp_path: Path) -> None:
    """Two versions, as a workflow adds them: the second becomes the latest, and the first stays."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / "build").mkdir()
    for script in (REPOSITORY / "build").glob("mermaid-*"):
        shutil.copy(script, tmp_path / "build")
    (tmp_path / ".venv").symlink_to(REPOSITORY / ".venv")
    git("init", "--quiet", "--initial-branch=main")
    git("config", "user.name", "a tester")
    git("config", "user.email", "tester@example.org")
    git("add", "bridge")
    git("commit", "--quiet", "--message=one")
    for version in ("0.1", "0.2"):
        # what is installed is of the checkout, not of this copy, and stays as it is
        command = ["make", "--old-file=.venv/.docs", "docs-version", f"VERSION={version}", "ALIAS=latest"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    versions = json.loads(git("show", "gh-pages:versions.json"))
    assert [(each["version"], each["aliases"]) for each in versions] == [("0.2", ["latest"]), ("0.1", [])]
    for version in ("0.1", "0.2"):
        assert '"version": {"provider": "mike"}' in git("show", f"gh-pages:{version}/index.html")
        assert git("show", f"gh-pages:{version}/api/bridge.html")
    assert git("show", "gh-pages:latest") == "0.2"
