"""Pages that a model opens (law S10), and their text."""

import asyncio
import sys
from collections.abc import Callable
from urllib.parse import quote

import pytest

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.unknown import UnknownTool
from openresponses_server.hosted import html
from openresponses_server.hosted import pages as pages_module
from openresponses_server.hosted.base import HostedCall, HostedContext, HostedToolError
from openresponses_server.hosted.html import Page, page_of, plain_text, tokens
from openresponses_server.hosted.pages import PageBudget, Pages, found_in
from openresponses_server.hosted.search import _PROVIDERS, SearchHit, SearchQuery
from openresponses_server.hosted.web import WebSearch
from openresponses_server.http.client.fetching import FetchedFile
from openresponses_server.settings import WebSearchSettings
from tests.support.costs import assert_proportional, seconds
from tests.support.fetched_files import PUBLIC, Files

pytestmark = pytest.mark.anyio


def pages(**changes: object) -> Pages:
    return Pages(WebSearchSettings(provider="duckduckgo", **{"seconds": 5.0, **changes}))  # type: ignore[arg-type]


async def opened(pages: Pages, url: str, admits: Callable[[str], bool]) -> Page:
    return await pages.open(url, admits, pages.budget())


async def test_a_page_is_its_text(files: Files) -> None:
    url = files.serve("/a", b"<title>A &amp; B</title><nav>x</nav><p>One <b>two</b><p>three", "text/html")
    assert await opened(pages(), url, lambda _: True) == ("A & B", "One two\nthree")


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]"])
async def test_s10_a_page_that_redirects_to_a_private_address_is_not_followed(
    files: Files, host: str
) -> None:
    url = files.redirect("/a", f"http://{host}:{files.port}/b")
    with pytest.raises(HostedToolError, match="public address"):
        await opened(pages(), url, lambda _: True)
    assert [path for path, _ in files.seen] == ["/a"]


async def test_s10_the_address_that_was_checked_is_the_one_that_is_asked(
    files: Files, lookups: dict[str, list[list[str]]]
) -> None:
    lookups["files.example"] = [[PUBLIC], ["127.0.0.1"]]
    url = files.serve("/a", b"fine", "text/plain")
    assert (await opened(pages(), url, lambda _: True)).text == "fine"
    lookups["files.example"] = [["127.0.0.1"]]
    with pytest.raises(HostedToolError, match="public address"):
        await opened(pages(), url, lambda _: True)


async def test_redirects_keep_to_the_domains_of_the_request(
    files: Files, lookups: dict[str, list[list[str]]]
) -> None:
    lookups["other.example"] = [[PUBLIC]]
    url = files.redirect("/a", files.url("/b", "other.example"))
    with pytest.raises(HostedToolError, match="may be asked"):
        await opened(pages(), url, SearchQuery("", 1, ["files.example"]).admits)


async def test_a_blocked_domain_is_not_reached_by_another_spelling(
    files: Files, lookups: dict[str, list[list[str]]]
) -> None:
    """By the address that is asked for, or by a redirect of another page's."""
    lookups["evil.example"] = [[PUBLIC]]
    for host in ("\uff45vil.example", "evil\u3002example", "ev\u00adil.example", "EVIL.example."):
        for url in (files.url("/b", host), files.redirect("/a", quote(files.url("/b", host), ":/"))):
            with pytest.raises(HostedToolError, match="may be asked"):
                await opened(pages(), url, SearchQuery("", 1, [], ["evil.example"]).admits)
    assert {path for path, _ in files.seen} == {"/a"}


async def test_private_hosts_are_reached_where_the_operator_allows_them(files: Files) -> None:
    url = files.serve("/a", b"inside", "text/plain").replace("files.example", PUBLIC)
    assert (await opened(pages(private_hosts=[PUBLIC]), url, lambda _: True)).text == "inside"


async def test_pages_have_a_size_and_a_type(files: Files) -> None:
    with pytest.raises(HostedToolError, match="larger than 1024 bytes"):
        await opened(pages(page_bytes=1024), files.serve("/a", b"x" * 2000, "text/plain"), lambda _: True)
    with pytest.raises(HostedToolError, match="type"):
        await opened(pages(), files.serve("/a", b"x", "image/png"), lambda _: True)


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
    """A parser that keeps a tree took minutes for a megabyte of some of these."""

    def cost(size: int) -> float:
        page = piece * (size // len(piece))
        return seconds(lambda: page_of(page))

    assert_proportional(cost, 20_000, 160_000)


@pytest.mark.parametrize(
    "piece",
    ["<", "<b><i>", "<br>x", "<b>" + "x" * 99, "&amp;", "x ", "\u00e9<\u0130", "<title>a</title>"],
)
def test_s10_what_is_read_of_a_page_is_bounded(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a twentieth of the bounds, which a twentieth of the page reaches."""
    assert html._MOST_TOKENS <= 200_000
    assert html._MOST_TEXT <= 1_000_000
    monkeypatch.setattr(html, "_MOST_TOKENS", 10_000)
    monkeypatch.setattr(html, "_MOST_TEXT", 50_000)
    page = piece * (150_000 // len(piece))
    assert sum(1 for _ in tokens(page)) <= 20_000
    assert sum(len(each) for each in page_of(page)) <= 50_001


def test_lower_case_has_the_length_of_the_text() -> None:
    """Places in the one are places in the other."""
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert len(everything.replace("\u0130", "I").lower()) == len(everything)


class Provider:
    """Finds nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        for provider, (_, _, form, _) in _PROVIDERS.items():
            assert form(query, "key"), provider
        self.asked.append(query.text)
        return []

    async def close(self) -> None: ...


async def test_s10_the_pages_of_a_request_have_a_sum_and_are_opened_a_few_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = most = 0
    go_on = asyncio.Event()

    async def fetch(url: str, *_: object, **__: object) -> FetchedFile:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await go_on.wait()
        at_once -= 1
        return FetchedFile("text/html", b"<p>" + b"x" * 1000)

    monkeypatch.setattr(pages_module, "fetch_file", fetch)
    opening = pages(page_bytes=2000)
    budget = opening.budget()
    tasks = [
        asyncio.create_task(opening.open("https://a.example/", lambda _: True, budget)) for _ in range(20)
    ]
    while at_once < 4:
        await asyncio.sleep(0)
    go_on.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in results] == [Page] * 7 + [HostedToolError] * 13
    assert "8000 bytes together" in str(results[-1])
    assert most == 4
    # however many tools of this kind it declares; another request has its own
    search = WebSearch(WebSearchSettings(provider="duckduckgo", page_bytes=2000), Provider())
    context, other = (HostedContext("me", 1000, 5.0) for _ in range(2))
    declared = UnknownTool({"type": "web_search"})
    tools = [await search.open(declared, context) for _ in range(16)]
    call = HostedCall("c", "open_page", '{"url":"https://a.example/"}')
    assert [(await each.run(call)).failed for each in tools] == [False] * 7 + [True] * 9
    assert not (await (await search.open(declared, other)).run(call)).failed
    assert isinstance(await opening.open("https://a.example/", lambda _: True, opening.budget()), Page)


async def test_half_a_surrogate_in_a_query_or_an_address_is_no_failure_of_ours(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    settings = WebSearchSettings(provider="duckduckgo", seconds=5.0)
    provider = Provider()
    tool = WebSearch(settings, provider).tool({"filters": {"allowed_domains": ["\udc00.example"]}}, {})
    result = await tool.run(HostedCall("c", "web_search", '{"query":"rain \\ud800"}'))
    assert result.output == "Nothing was found."
    assert await tool.search("a\ud800b", domains=["\ud800.example"]) == []
    assert provider.asked == ["rain \ufffd", "a\ufffdb"]
    opened = await tool.run(HostedCall("c", "open_page", '{"url":"https://a.example/\\ud800"}'))
    assert opened.failed
    encode(opened.item)


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
    request = form(SearchQuery("rain & sun", 3, ["a.example"], ["b.example"], "DE"), "key")
    sent = f"{request.path} {request.body!r}"
    assert "rain" in sent
    assert "a.example" in sent
    assert "b.example" in sent
    assert "key" not in sent  # it is a header


def test_domains_are_whole_names_and_those_below() -> None:
    blocked = ["bad.example.com", "b\u00fccher.docs.org", "\uff45vil.docs.org", "1.2.3.4", "[2001:db8::1]"]
    query = SearchQuery("", 1, ["Example.com", "https://docs.org/x", "1.2.3.4", "2001:db8::1"], blocked)
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
        # other spellings of names and addresses, which lead to the same server
        "https://\uff45xample.com/": True,
        "https://\uff42ad.example.com/": False,
        "https://bad\u3002example\uff0ecom/": False,
        "https://ba\u00add.example.com/": False,
        "https://b%61d.example.com/": False,
        "https://BAD.EXAMPLE.COM\uff61/": False,
        "https://xn--bcher-kva.docs.org/": False,
        "https://B\u00dcCHER.docs.org/": False,
        "https://evil.docs.org/": False,
        "https://0x1020304/": False,
        "https://16909060/": False,
        "https://01.02.0x3.4/": False,
        "https://[2001:DB8:0:0::1]/": False,
        "https://a..docs.org/\u00fc": True,
        "https://\u00fc..docs.org/": False,
    }.items():
        assert query.admits(url) is admitted, url


@pytest.mark.parametrize("entity", ["&#" + "1" * 5000 + ";", "&#" + "1" * 100_000, "&#0" * 3000])
def test_no_number_of_an_entity_makes_a_page_or_a_search_unreadable(entity: str) -> None:
    assert page_of(f"<title>A{entity}</title><p>One").text == "One"
    assert page_of(f"<p>One &amp; two<p>{entity}<p>three").text.splitlines()[-1] == "three"
    assert plain_text(f"a {entity} b").endswith(" b")
    body = f'{{"results":[{{"url":"https://a.example","title":"A","content":"{entity}"}}]}}'
    assert [hit.title for hit in _PROVIDERS["searxng"][3](body.encode())] == ["A"]


def test_s10_all_the_bytes_of_a_request_s_budget_may_be_used_and_no_more() -> None:
    budget = PageBudget(4)
    for _ in range(4):
        budget.check()
        budget.spend(1)
    for use in (budget.check, lambda: budget.spend(1)):
        with pytest.raises(HostedToolError, match="4 bytes together"):
            use()
