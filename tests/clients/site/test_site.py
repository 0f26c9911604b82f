"""The site in Chromium, as `make docs` has built it: pages, search, pictures, light and dark, nothing loaded
from other servers."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml

from tests.support.shared import REPOSITORY

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
SITE = REPOSITORY / "build" / "site"
NAVIGATION = yaml.safe_load((REPOSITORY / "docs" / "site" / "mkdocs.yml").read_text())["nav"]
SCHEMES = ("light", "dark")


def first_of(section: Any) -> str:
    """The first page of a section of the navigation."""
    while not isinstance(section, str):
        section = next(iter(section.values())) if isinstance(section, dict) else section[0]
    return section.replace(".md", ".html")


PAGES = [first_of(section) for section in NAVIGATION] + ["benchmarks.html", "examples.html", "errors.html"]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        return None


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    if not SITE.exists():
        pytest.skip("the site is not built: make docs")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(params=SCHEMES)
def page(request: pytest.FixtureRequest, browser: Any, base: str) -> Iterator[Any]:
    """A page in a browser with the light or the dark scheme. An error or a warning in the console, a request
    to another address, and a failed request fail the test."""
    tab = browser.new_page(color_scheme=request.param, viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    here = (base, "data:", "blob:")
    tab.on("request", lambda sent: None if sent.url.startswith(here) else wrong.append(sent.url))
    tab.on("response", lambda got: wrong.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    yield tab
    tab.close()
    assert wrong == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_each_section(page: Any, base: str, name: str) -> None:
    page.goto(f"{base}/{name}")
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").count() == 1
    for image in page.locator("article img").all():
        image.scroll_into_view_if_needed()
        assert image.evaluate("each => each.decode().then(() => each.naturalWidth)") > 0
        assert image.get_attribute("alt")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is wider than the window"


def test_tables_fit_into_a_common_window(browser: Any, base: str) -> None:
    """On every page, at a width of 1440 px, neither a table nor its container scrolls sideways."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    too_wide = """() => [...document.querySelectorAll('article table:not([class])')].filter(table =>
      table.getBoundingClientRect().right > table.closest('article').getBoundingClientRect().right + 1
      || [table, table.parentElement, table.closest('.md-typeset__scrollwrap') ?? table]
        .some(each => each.scrollWidth > each.clientWidth + 1)
    ).map(table => table.innerText.slice(0, 60))"""
    overflows, tables = {}, 0
    for path in sorted(SITE.rglob("*.html")):
        name = path.relative_to(SITE).as_posix()
        page.goto(f"{base}/{name}")
        tables += page.locator("article table").count()
        if wide := page.evaluate(too_wide):
            overflows[name] = wide
    page.close()
    assert tables > 20
    assert overflows == {}


def test_diagrams_are_drawn(page: Any, base: str) -> None:
    if not list((SITE / "assets").glob("mermaid*.js")):
        pytest.skip("built without npm: diagrams are text")
    page.goto(f"{base}/states.html")
    page.locator("div.mermaid").first.wait_for()
    page.wait_for_load_state("networkidle")
    assert page.locator("pre.mermaid").count() == 0
    heights = page.locator("div.mermaid").evaluate_all("all => all.map(each => each.offsetHeight)")
    assert len(heights) == (REPOSITORY / "docs" / "states.md").read_text().count("```mermaid")
    assert min(heights) > 100


@pytest.mark.parametrize(
    ("words", "found"), [("starting_after", "sessions.html"), ("PostgreSQL", "backup.html")]
)
def test_search_finds(page: Any, base: str, words: str, found: str) -> None:
    page.goto(f"{base}/index.html")
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").press_sequentially(words)
    result = page.locator(f'.md-search-result__link[href*="{found}"]').first
    result.wait_for(state="attached")
    page.goto(f"{base}/{found}")
    assert page.locator("article", has_text=words).count() == 1


def test_light_and_dark(page: Any, base: str) -> None:
    """The page follows the system's scheme, and shows the other one on request."""
    page.goto(f"{base}/index.html")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    brightness = """() => {
      const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
      return (r + g + b) / 3; }"""
    assert (page.evaluate(brightness) < 128) == dark
    page.locator("label[for^=__palette]:visible").click()
    page.wait_for_function(f"dark => (({brightness})() < 128) != dark", arg=dark)


@pytest.mark.parametrize("name", ["index.html", "start.html", "benchmarks.html", "clients/index.html"])
def test_axe_finds_nothing_serious(page: Any, base: str, axe: str, name: str) -> None:
    page.goto(f"{base}/{name}")
    page.wait_for_load_state("networkidle")
    page.evaluate(f"() => {{ {axe} }}")
    violations = page.evaluate(
        "() => axe.run().then(({violations}) => violations"
        ".filter(v => v.impact === 'serious' || v.impact === 'critical')"
        ".map(v => v.id + ': ' + v.nodes.slice(0, 5).map(n => n.html.slice(0, 160)).join(' | ')))"
    )
    assert violations == []
