"""Pages that a model opens (law S10), and their text."""

import time

import pytest

from openresponses_server.hosted.base import HostedToolError
from openresponses_server.hosted.html import page_of, plain_text
from openresponses_server.hosted.pages import Pages, found_in
from openresponses_server.hosted.search import _PROVIDERS, SearchQuery
from openresponses_server.settings import WebSearchSettings
from tests.server.requests.test_fetched_files import PUBLIC, Files, files, lookups

__all__ = ["files", "lookups"]
pytestmark = pytest.mark.anyio


def pages(**changes: object) -> Pages:
    return Pages(WebSearchSettings(provider="duckduckgo", **{"seconds": 5.0, **changes}))  # type: ignore[arg-type]


async def test_a_page_is_its_text(files: Files) -> None:
    url = files.serve("/a", b"<title>A &amp; B</title><nav>x</nav><p>One <b>two</b><p>three", "text/html")
    assert await pages().open(url, lambda _: True) == ("A & B", "One two\nthree")


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]"])
async def test_s10_a_page_that_redirects_to_a_private_address_is_not_followed(
    files: Files, host: str
) -> None:
    url = files.redirect("/a", f"http://{host}:{files.port}/b")
    with pytest.raises(HostedToolError, match="public address"):
        await pages().open(url, lambda _: True)
    assert [path for path, _ in files.seen] == ["/a"]


async def test_s10_the_address_that_was_checked_is_the_one_that_is_asked(
    files: Files, lookups: dict[str, list[list[str]]]
) -> None:
    lookups["files.example"] = [[PUBLIC], ["127.0.0.1"]]
    url = files.serve("/a", b"fine", "text/plain")
    assert (await pages().open(url, lambda _: True)).text == "fine"
    lookups["files.example"] = [["127.0.0.1"]]
    with pytest.raises(HostedToolError, match="public address"):
        await pages().open(url, lambda _: True)


async def test_redirects_keep_to_the_domains_of_the_request(
    files: Files, lookups: dict[str, list[list[str]]]
) -> None:
    lookups["other.example"] = [[PUBLIC]]
    url = files.redirect("/a", files.url("/b", "other.example"))
    with pytest.raises(HostedToolError, match="may be asked"):
        await pages().open(url, SearchQuery("", 1, ["files.example"]).admits)


async def test_private_hosts_are_reached_where_the_operator_allows_them(files: Files) -> None:
    url = files.serve("/a", b"inside", "text/plain").replace("files.example", PUBLIC)
    assert (await pages(private_hosts=[PUBLIC]).open(url, lambda _: True)).text == "inside"


async def test_pages_have_a_size_and_a_type(files: Files) -> None:
    with pytest.raises(HostedToolError, match="more than"):
        await pages(page_bytes=1024).open(files.serve("/a", b"x" * 2000, "text/plain"), lambda _: True)
    with pytest.raises(HostedToolError, match="type"):
        await pages().open(files.serve("/a", b"x", "image/png"), lambda _: True)


@pytest.mark.parametrize(
    "piece",
    [
        *("<!--", "<div>", "<", "<!a", "<?", "</a", "&a", "<![CDATA[", "<script></scrip", "<xmp></xmp>"),
        *("é<İ", "<b><i><a>", "<table><td></div>"),
        "<a ",
        '<a b="',
    ],
)
def test_s10_text_costs_what_the_page_is_long(piece: str) -> None:
    """A parser that keeps a tree took minutes for some of these."""
    begun = time.process_time()
    page_of(piece * (1_000_000 // len(piece)))
    assert time.process_time() - begun < 10


def test_what_is_silent_and_what_is_not() -> None:
    page = page_of("<h1>Hi</h1><script>a<b</script><style>x</style><svg/>1 &lt; 2 < 3<br>4<template>no")
    assert page.text == "Hi\n1 < 2 < 3\n4"
    assert plain_text("<b>a</b>&amp;  b\n") == "a & b"


def test_found_in_a_text() -> None:
    assert found_in("x" * 1000 + "Needle" + "y" * 1000, "nEEDLE") == "x" * 300 + "Needle" + "y" * 300
    assert found_in("İ needle", "needle") == "İ needle"
    assert found_in("abc", "d") == found_in("abc", "") == ""
    assert found_in("ab" * 100_000, "a").count("[…]") == 19


ANSWERS = {
    "searxng": b'{"results":[{"url":"https://a.example/x","title":"T","content":"C"}]}',
    "brave": b'{"web":{"results":[{"url":"https://a.example/x","title":"T","description":"<b>C</b>"}]}}',
    "tavily": b'{"results":[{"url":"https://a.example/x","title":"T","content":"C"}]}',
    "exa": b'{"results":[{"url":"https://a.example/x","title":"T","text":"C"}]}',
    "duckduckgo": b'<div class="result"><a class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2F'
    b'a.example%2Fx&amp;rut=1"><b>T</b></a><a class="result__snippet" href="x">C</a></div>',
}


@pytest.mark.parametrize("name", _PROVIDERS)
def test_every_provider_is_asked_and_read(name: str) -> None:
    _, _, form, read = _PROVIDERS[name]
    hits = read(ANSWERS[name])
    assert [(hit.url, hit.title, hit.text) for hit in hits] == [("https://a.example/x", "T", "C")]
    asked = form(SearchQuery("rain & sun", 3, ["a.example"], ["b.example"], "DE"), "key")
    sent = f"{asked.path} {asked.body!r}"
    assert "rain" in sent
    assert "a.example" in sent
    assert "b.example" in sent
    assert "key" not in sent  # it is a header


def test_domains_are_whole_names_and_those_below() -> None:
    query = SearchQuery("", 1, ["Example.com", "https://docs.org/x"], ["bad.example.com"])
    for url, admitted in {
        "https://example.com/": True,
        "https://www.EXAMPLE.com./": True,
        "https://docs.org": True,
        "https://notexample.com/": False,
        "https://x.bad.example.com": False,
        "https://example.com.evil.org/": False,
        "nonsense": False,
        "https://[docs.org/": False,
        "https://a]docs.org/": False,
    }.items():
        assert query.admits(url) is admitted, url


@pytest.mark.parametrize("entity", ["&#" + "1" * 5000 + ";", "&#" + "1" * 100_000, "&#0" * 3000])
def test_no_number_of_an_entity_makes_a_page_or_a_search_unreadable(entity: str) -> None:
    assert page_of(f"<title>A{entity}</title><p>One").text == "One"
    assert page_of(f"<p>One &amp; two<p>{entity}<p>three").text.splitlines()[-1] == "three"
    assert plain_text(f"a {entity} b").endswith(" b")
    found = f'{{"results":[{{"url":"https://a.example","title":"A","content":"{entity}"}}]}}'
    assert [hit.title for hit in _PROVIDERS["searxng"][3](found.encode())] == ["A"]
