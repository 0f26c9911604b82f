"""The parts of the site that are not pages: links, the navigation, what may be loaded. Run by `make docs`."""

import runpy
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
    there = {"index.md", "server.md", "clients/codex.md", "reporting.md", "examples.md"}
    return SimpleNamespace(get_file_from_path=lambda name: name if name in there else None)


@pytest.mark.parametrize(
    ("page", "line", "led"),
    [
        ("index.md", "see [it](docs/server.md#keys)", "see [it](server.md#keys)"),
        ("clients/codex.md", "[it](../server.md)", "[it](../server.md)"),
        ("server.md", "[it](../SECURITY.md)", "[it](reporting.md)"),
        ("reporting.md", "[all](README.md)", "[all](index.md)"),
        ("index.md", "[programs](docs/examples)", "[programs](examples.md)"),
        ("index.md", "[the table](bridge/state.py)", "the table (`bridge/state.py`)"),
        ("index.md", "[bridge/state.py](bridge/state.py)", "bridge/state.py"),
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


def test_the_reference_has_the_public_names() -> None:
    if not SITE.exists():
        pytest.skip("the site is not built: make docs")
    import bridge

    page = (SITE / "api" / "bridge.html").read_text()
    aliases = {"Event", "Part"}  # unions, which have no entry of their own
    assert [name for name in bridge.__all__ if f"bridge.{name}" not in page and name not in aliases] == []


def test_every_code_of_an_error_is_on_its_page(hooks: dict[str, Any]) -> None:
    page = hooks["errors_page"]()
    for code in ("upstream_unreachable", "previous_response_not_found", "bridge.stream.invalid_transition"):
        assert f"`{code}`" in page
    assert len(page.splitlines()) > 50
