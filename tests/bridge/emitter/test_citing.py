"""Addresses of found pages in a text become citations, however the text is divided."""

from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.emitter.citing import MOST_CITATIONS, MOST_PAGES, CitingFilter, FoundPages
from tests.support.costs import assert_proportional
from tests.support.machines import WIRES, Run

PAGE = "https://a.example/rain"
WIKI = "https://en.example/wiki/Rain_(weather)"
HOME = "https://b.example/"


def found(*pages: str) -> FoundPages:
    found_pages = FoundPages()
    found_pages.add((url, f"Title of {url}") for url in pages or (PAGE, WIKI, HOME))
    return found_pages


class Citing(Run):
    """The laws of a machine, held to one behind the filter."""

    def __init__(self, pages: FoundPages | None = None, wire: str = "openai") -> None:
        super().__init__(wire=wire, started=False)
        self.machine: Any = CitingFilter(self.machine, found() if pages is None else pages)
        self("start")

    def cited(self) -> list[tuple[str, str]]:
        """What is cited, and where."""
        return [cited for message in self.machine.snapshot.output for cited in places(message)]


def places(message: Any) -> list[tuple[str, str]]:
    return [
        (each.url, part.text[each.start_index : each.end_index])
        for part in getattr(message, "content", ()) or ()
        for each in getattr(part, "annotations", ())
    ]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        (f"See {PAGE} now", [(PAGE, PAGE)]),
        (f"See {PAGE}.", [(PAGE, PAGE)]),
        (f"See ({PAGE}), **{PAGE}**", [(PAGE, PAGE)] * 2),
        (f"It [rains]({PAGE}).", [(PAGE, f"[rains]({PAGE})")]),
        (f"It [rains [1]]({PAGE}).", [(PAGE, f"[rains [1]]({PAGE})")]),
        (f"[a](b) ]({PAGE}).", [(PAGE, PAGE)]),
        (f'[a]({PAGE} "t")', [(PAGE, PAGE)]),
        (f"[a](<{PAGE}>)", [(PAGE, PAGE)]),
        (f"{WIKI} and [w]({WIKI})", [(WIKI, WIKI), (WIKI, f"[w]({WIKI})")]),
        (f"{PAGE}#part {PAGE}/ ", [(PAGE, f"{PAGE}#part"), (PAGE, f"{PAGE}/")]),
        ("HTTPS://A.example/rain", [(PAGE, "HTTPS://A.example/rain")]),
        ("https://b.example, 见https://b.example。", [(HOME, "https://b.example")] * 2),
        (f"{PAGE}", [(PAGE, PAGE)]),
        (f"{PAGE}/more {PAGE}?q=1 x{PAGE[5:]} http://a.example/rain", []),
        ("https:// https://c.example https://a.example", []),
        (f"https://c.example/?{PAGE}", []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_addresses_of_pages_that_were_found_are_cited(
    text: str, cited: list[tuple[str, str]], wire: str, size: int
) -> None:
    run = Citing(wire=wire)
    for at in range(0, len(text), size):
        run("text", text[at : at + size])
    run("finish", "stop")
    assert run.cited() == cited
    assert run.machine.snapshot.output_text == text


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([PAGE, HOME, "[", "](", ")", " ", "x", ".", "\U0001f600", "http"]), max_size=30)
)
def test_any_pieces_give_what_the_whole_text_gives(pieces: list[str]) -> None:
    one, other = Citing(), Citing()
    for piece in pieces:
        for character in piece:
            one("text", character)
    if pieces:
        other("text", "".join(pieces))
    for run in (one, other):
        run("finish", "stop")
    assert one.cited() == other.cited()


def test_a_citation_comes_when_its_address_is_whole() -> None:
    run = Citing()
    assert [each.type for each in run("text", f"See {PAGE}")][-1] == "response.output_text.delta"
    assert [each.type for each in run("text", " and")] == [
        "response.output_text.delta",
        "response.output_text.annotation.added",
    ]
    run("text", f" or {HOME}")
    events = run("tool_call", 0, "c", "f", "{}")
    assert events[0].type == "response.output_text.annotation.added"
    run("tool_call_done", 0)
    run("finish", "tool_calls")


@pytest.mark.parametrize(
    "call",
    [
        ("refusal", "no"),
        ("reasoning", "hm"),
        ("reasoning_summary", "hm"),
        ("reasoning_encrypted", "x"),
        ("part_done",),
        ("block_done",),
        ("expect_item", "msg_9"),
        ("item_added", {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}),
        ("item", {"type": "reasoning", "id": "rs_1", "summary": []}),
        ("cancel",),
        ("fail", {"type": "server_error", "code": "boom", "message": "No.", "param": None}),
    ],
    ids=lambda call: call[0],
)
def test_whatever_ends_the_text_ends_its_last_address(call: tuple[Any, ...]) -> None:
    run = Citing()
    run("text", f"See {PAGE}")
    run(*call)
    assert run.cited() == [(PAGE, PAGE)]


def test_whole_messages_are_cited_too() -> None:
    run = Citing()
    part = {"type": "output_text", "text": f"See {PAGE}, {HOME}", "annotations": []}
    run(
        "item",
        {"type": "message", "id": "msg_7", "status": "completed", "role": "assistant", "content": [part]},
    )
    run("finish", "stop")
    assert run.cited() == [(PAGE, PAGE), (HOME, HOME)]


def test_an_upstream_that_cites_is_left_alone() -> None:
    run = Citing()
    run("text", "See")
    run("annotation", {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 3})
    run("text", f" {PAGE} ")
    run("finish", "stop")
    assert run.cited() == [("u", "See")]


def test_there_is_a_most_of_pages_and_of_citations() -> None:
    run = Citing()
    run("text", f"{PAGE} " * (MOST_CITATIONS + 10))
    run("finish", "stop")
    assert len(run.cited()) == MOST_CITATIONS
    pages = FoundPages()
    pages.add((f"https://a.example/{number}", "t" * 1000) for number in range(MOST_PAGES + 1))
    assert pages.named(f"https://a.example/{MOST_PAGES}") is None
    url, title, _ = pages.named("https://a.example/1") or ("", "", 0)
    assert (url, len(title)) == ("https://a.example/1", 200)


@pytest.mark.untraced
@pytest.mark.parametrize(
    "piece", ["https://", "https://x", "[", f"[{PAGE}](", "https://" + "(" * 50, "a.", PAGE + "." * 9, "h"]
)
@pytest.mark.parametrize("at_once", [True, False])
def test_the_cost_is_linear(piece: str, at_once: bool) -> None:
    def seconds(count: int) -> float:
        stream = Citing().machine
        text = piece * count
        before = process_time()
        if at_once:
            stream.text(text)
        else:
            for begin in range(0, len(text), 8):
                stream.text(text[begin : begin + 8])
        return process_time() - before

    count = 40_000 // len(piece)
    assert_proportional(seconds, count, 8 * count)
