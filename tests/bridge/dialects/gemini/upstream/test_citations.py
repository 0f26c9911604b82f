"""Sources of a text, which servers name in several chunks, at the end of its message."""

from typing import Any

import pytest

from openresponses_bridge.dialects.gemini.upstream import citations
from openresponses_bridge.dialects.gemini.upstream.inbound import Inbound
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import OutputTextAnnotationAdded


def grounded(end: int, *pages: str) -> dict[str, Any]:
    return {
        "groundingChunks": [{"web": {"uri": f"https://{page}/", "title": page}} for page in pages],
        "groundingSupports": [
            {"segment": {"endIndex": end}, "groundingChunkIndices": list(range(len(pages)))}
        ],
    }


def cited(*pages: str) -> dict[str, Any]:
    return {"citationSources": [{"endIndex": 3, "uri": f"https://{page}/"} for page in pages]}


def chunk(text: str, **more: Any) -> bytes:
    return encode({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **more}]})


CALL = encode({"candidates": [{"content": {"parts": [{"functionCall": {"name": "look", "args": {}}}]}}]})


def sources(*frames: bytes) -> list[list[str]]:
    """The addresses under each message, after all frames."""
    machine = ResponseStreamStateMachine("m")
    inbound = Inbound(machine)
    for frame in frames:
        inbound.feed(frame)
    inbound.close()
    return [
        [each.url for each in item.content[0].annotations]  # type: ignore[union-attr]
        for item in machine.snapshot.output
        if item.type == "message"
    ]


def test_what_is_said_again_is_one_citation() -> None:
    urls = sources(
        chunk("one ", groundingMetadata=grounded(3, "a")),
        chunk("two ", groundingMetadata=grounded(3, "a")),
        chunk("three", groundingMetadata=grounded(8, "a", "b"), finishReason="STOP"),
    )
    assert urls == [["https://a/", "https://b/"]]


def test_citations_of_several_chunks_are_all_kept() -> None:
    urls = sources(
        chunk("one ", citationMetadata=cited("a")),
        chunk("two", citationMetadata=cited("b"), finishReason="STOP"),
    )
    assert urls == [["https://a/", "https://b/"]]


def test_each_message_has_its_own() -> None:
    urls = sources(
        chunk("one", groundingMetadata=grounded(3, "a")),
        CALL,
        chunk("two", groundingMetadata=grounded(3, "b"), finishReason="STOP"),
    )
    assert urls == [["https://a/"], ["https://b/"]]


def test_events_of_citations_stand_before_the_end_of_their_text() -> None:
    machine = ResponseStreamStateMachine("m")
    inbound = Inbound(machine)
    assert not any(
        isinstance(event, OutputTextAnnotationAdded)
        for event in inbound.feed(chunk("one", groundingMetadata=grounded(3, "a")))
    )
    kinds = [event.type for event in inbound.feed(CALL)]
    assert kinds.index("response.output_text.annotation.added") < kinds.index("response.output_text.done")


def test_s10_sources_in_each_chunk_are_placed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    placed = []
    characters = citations._characters

    def counted(text: str, offsets: set[int]) -> dict[int, int]:
        placed.append(len(text))
        return characters(text, offsets)

    monkeypatch.setattr(citations, "_characters", counted)
    sources(*[chunk("word ", groundingMetadata=grounded(4, "a"))] * 200, chunk("", finishReason="STOP"))
    assert placed == [1000]
