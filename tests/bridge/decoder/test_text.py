"""Text, refusals and citations as parts (laws D1–D9)."""

from typing import Any

import pytest

from openresponses_bridge.decoder.prose import link
from tests.support.vscode_parts import (
    Decoded,
    Raw,
    added,
    arguments_done,
    citation,
    completed,
    created,
    done,
    function,
    kinds,
    message,
    output_text,
    reasoning,
    said,
    text_delta,
)


def test_each_delta_is_a_part() -> None:
    decoded = Decoded([text_delta("Hel"), text_delta("lo"), text_delta(" é"), text_delta("🙂")], False)
    assert [part.value for part in decoded.parts] == ["Hel", "lo", " é", "🙂"]  # type: ignore[union-attr]


def test_an_empty_delta_says_nothing() -> None:
    decoded = Decoded(
        [text_delta(""), text_delta("a"), text_delta(""), said("refusal.delta", delta="")], False
    )
    assert kinds(decoded.parts) == ["Text"]


TEXT_EVENTS: dict[str, Raw] = {
    "text.done": said("output_text.done", text="Hello"),
    "part.done": said("content_part.done", part=output_text("Hello")),
    "item.done": done(message(output_text("Hello"))),
    "final": completed(message(output_text("Hello"))),
}


@pytest.mark.parametrize("place", TEXT_EVENTS)
def test_text_without_deltas_comes_from_the_first_event_that_has_it(place: str) -> None:
    assert Decoded([created(), TEXT_EVENTS[place]]).text.startswith("Hello")
    remaining = [
        event
        for name, event in TEXT_EVENTS.items()
        if list(TEXT_EVENTS).index(name) >= list(TEXT_EVENTS).index(place)
    ]
    assert Decoded(remaining).text == "Hello"


@pytest.mark.parametrize("place", TEXT_EVENTS)
def test_text_with_deltas_is_not_sent_again(place: str) -> None:
    assert Decoded([text_delta("Hello"), TEXT_EVENTS[place], completed()]).text == "Hello"


def test_parts_are_distinguished_by_index_when_ids_rotate() -> None:
    events = [
        said("output_text.delta", 0, "a", delta="one"),
        said("output_text.done", 0, "b", text="one"),
        said("output_text.done", 0, "c", text=" two", content_index=1),
        done(message(output_text("one"), output_text(" two"), id="d")),
        done(message(output_text(" three"), id="e"), 1),
    ]
    assert Decoded([*events, completed()]).text == "one two three"


def test_an_item_reports_the_part_that_was_not_streamed() -> None:
    events = [text_delta("one"), done(message(output_text("one"), output_text(" two")))]
    assert Decoded([*events, completed()]).text == "one two"


def test_an_item_whose_parts_are_counted_another_way_is_not_sent_again() -> None:
    events = [text_delta("one", content_index=1), done(message(output_text("one")))]
    assert Decoded([*events, completed()]).text == "one"


def test_a_final_response_whose_items_moved_is_not_sent_again() -> None:
    events = [text_delta("one", 1), done(message(output_text("one")), 1)]
    assert Decoded([*events, completed(message(output_text("one")))]).text == "one"


@pytest.mark.parametrize("breaks", [True, False])
def test_a_paragraph_break_where_the_output_item_changes_is_an_option(breaks: bool) -> None:
    events = [
        text_delta("a"),
        text_delta("b"),
        added(function(1), 1),
        arguments_done("{}", 1),
        text_delta("c", 2),
    ]
    decoded = Decoded([*events, completed()], paragraph_breaks=breaks)
    assert decoded.text == ("ab\n\nc" if breaks else "abc")


def test_other_parts_of_a_message_say_nothing() -> None:
    picture = {"type": "acme:picture", "url": "x"}
    events = [said("content_part.done", part=picture), done(message(picture, output_text("a")))]
    assert Decoded([*events, completed()]).text == "a"


# ── halves of characters ───────────────────────────────────────────────────────────────────────────────


def test_half_a_character_waits_for_its_other_half() -> None:
    decoded = Decoded([text_delta("a"), text_delta("b\ud83d"), text_delta("\ude42c"), text_delta("d")], False)
    assert [part.value for part in decoded.parts] == ["a", "b", "🙂c", "d"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "after", [text_delta("c"), text_delta("é"), said("refusal.delta", delta="no"), completed()]
)
def test_half_a_character_alone_is_replaced(after: Raw) -> None:
    assert Decoded([text_delta("a"), text_delta("\ud83d"), after]).text.startswith("a\ufffd")


def test_a_second_half_alone_is_replaced() -> None:
    assert Decoded([text_delta("a\ude42b"), completed()]).text == "a\ufffdb"


# ── refusals ───────────────────────────────────────────────────────────────────────────────────────────


def refused(*deltas: str, index: int = 0, content_index: int = 0) -> list[Raw]:
    return [said("refusal.delta", index, delta=delta, content_index=content_index) for delta in deltas]


REFUSAL_ENDS: dict[str, Raw] = {
    "refusal.done": said("refusal.done", refusal="I can't."),
    "part.done": said("content_part.done", part={"type": "refusal", "refusal": "I can't."}),
    "item.done": done(message({"type": "refusal", "refusal": "I can't."})),
    "text": text_delta("", 0, 1) | {"delta": " Sorry."},
    "thinking": said("reasoning.delta", 1, delta="hm"),
    "call": done(function(1, "{}"), 1),
    "final": completed(),
    "another refusal": refused("No.", content_index=1)[0],
}


@pytest.mark.parametrize("end", REFUSAL_ENDS)
def test_a_refusal_is_italic_opened_once_and_closed_once(end: str) -> None:
    decoded = Decoded([*refused("I ", "can't", "."), REFUSAL_ENDS[end], completed()])
    assert decoded.text.startswith("*I can't.*")
    assert decoded.text.count("*") == (4 if end == "another refusal" else 2)


@pytest.mark.parametrize("end", ["refusal.done", "part.done", "item.done"])
def test_a_refusal_without_deltas_comes_whole(end: str) -> None:
    assert Decoded([REFUSAL_ENDS[end], completed()]).text == "*I can't.*"
    assert Decoded([*REFUSAL_ENDS.values()][:3]).text.startswith("*I can't.*\n")


def test_a_refusal_closes_at_a_premature_end() -> None:
    assert Decoded(refused("No"), errors="none").text == "*No*"


def test_half_a_character_in_a_refusal_waits() -> None:
    assert Decoded([*refused("a", "\ud83d", "\ude42"), completed()]).text == "*a🙂*"
    assert Decoded([*refused("\ud83d"), completed()]).text == "*\ufffd*"


def test_an_empty_refusal_says_nothing() -> None:
    assert Decoded([said("refusal.done", refusal=""), completed(), *refused("")]).text == ""


# ── citations ──────────────────────────────────────────────────────────────────────────────────────────


def cited(annotation: Raw | None, index: int = 0) -> Raw:
    return said("output_text.annotation.added", index, annotation=annotation, annotation_index=0)


def test_a_citation_is_a_link_right_where_it_comes() -> None:
    decoded = Decoded([text_delta("a"), cited(citation()), text_delta("b"), completed()])
    assert decoded.text == "a [A](https://a.example/)b"


def test_a_citation_is_not_sent_again_by_the_done_events() -> None:
    moved = citation(start_index=7, end_index=9)
    events = [
        text_delta("a"),
        cited(citation()),
        said("content_part.done", part=output_text("a", moved)),
        done(message(output_text("a", moved))),
        completed(message(output_text("a", moved))),
    ]
    assert Decoded(events).text == "a [A](https://a.example/)"


@pytest.mark.parametrize("place", ["part.done", "item.done", "final"])
def test_a_citation_without_its_event_comes_from_the_finished_text(place: str) -> None:
    whole = output_text("a", citation())
    event = {
        "part.done": said("content_part.done", part=whole),
        "item.done": done(message(whole)),
        "final": completed(message(whole)),
    }[place]
    assert Decoded([event, completed()]).text == "a [A](https://a.example/)"


def test_one_address_cited_twice_as_it_streams_is_linked_twice() -> None:
    assert Decoded([cited(citation()), cited(citation()), completed()]).text.count("[A]") == 2


def test_one_address_in_two_items_is_linked_in_both() -> None:
    events = [done(message(output_text("a", citation())), index) for index in (0, 1)]
    assert Decoded([*events, completed()]).text.count("[A]") == 2


def test_citations_can_be_left_out() -> None:
    events = [text_delta("a"), cited(citation()), completed(message(output_text("a", citation())))]
    assert Decoded(events, citations="drop").text == "a"


@pytest.mark.parametrize(
    ("title", "url", "expected"),
    [
        ("A", "https://a.example/", " [A](https://a.example/)"),
        ("", "https://a.example/", " [https://a.example/](https://a.example/)"),
        ("a [b] c", "https://a.example/", r" [a \[b\] c](https://a.example/)"),
        ("a\\", "https://a.example/", r" [a\\](https://a.example/)"),
        ("two\nlines", "https://a.example/", " [two lines](https://a.example/)"),
        ("A", "https://a.example/x_(y)", " [A](https://a.example/x_%28y%29)"),
        ("A", "https://a.example/a b\u2003<c>\\", " [A](https://a.example/a%20b%E2%80%83%3Cc%3E%5C)"),
    ],
)
def test_links_hold_whatever_titles_and_addresses_hold(title: str, url: str, expected: str) -> None:
    assert link(title, url) == expected


@pytest.mark.parametrize(
    "annotation",
    [
        {"type": "file_citation", "file_id": "f", "index": 1, "filename": "a.txt"},
        {
            "type": "container_file_citation",
            "file_id": "f",
            "container_id": "c",
            "start_index": 0,
            "end_index": 1,
        },
        {"type": "acme:source", "page": 3},
    ],
)
def test_a_citation_without_an_address_is_not_shown_but_noted(annotation: dict[str, Any]) -> None:
    decoded = Decoded([text_delta("a"), cited(annotation), completed()])
    assert decoded.text == "a"
    assert decoded.notes("loss") == {f"annotation.{annotation['type']}": "has no address, not shown"}


@pytest.mark.parametrize("annotation", [None, citation(url="")])
def test_a_citation_of_nothing_shows_nothing(annotation: Raw | None) -> None:
    assert Decoded([cited(annotation), completed()]).text == ""


def test_null_positions_of_a_citation_are_tolerated() -> None:
    assert Decoded([cited(citation(start_index=None, end_index=None)), completed()]).text.count("[A]") == 1


def test_a_citation_closes_thinking_and_refusals_like_text() -> None:
    events = [said("reasoning.delta", delta="hm"), *refused("no", index=1), cited(citation(), 1), completed()]
    assert Decoded(events).text == "*no* [A](https://a.example/)"


def test_text_after_thinking_in_the_final_response_keeps_order() -> None:
    decoded = Decoded([completed(reasoning("hm"), message(output_text("a")))])
    assert kinds(decoded.parts) == ["Thinking", "Thinking", "Text", "Data"]


@pytest.mark.parametrize("numbered", [{}, {"sequence_number": 0}, {"sequence_number": 1}])
def test_the_same_delta_twice_is_one_where_its_number_says_so(numbered: Raw) -> None:
    stream = [created(), text_delta("ha"), text_delta("ha"), text_delta("ha"), completed()]
    assert Decoded([event | numbered for event in stream]).text == "hahaha"
    counted = [event | {"sequence_number": at} for at, event in enumerate(stream)]
    assert Decoded([each for event in counted for each in (event, event)]).text == "hahaha"
