"""Every recorded Gemini stream: valid events on both wires, and the same parts back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openresponses_bridge.dialects.base import native_of
from tests.support.gemini import CheckedGemini, parts_of, recorded, without_made_ids
from tests.support.machines import WIRES
from tests.support.shared import require_shared, shared_files

STREAMS = shared_files("gemini")
WHOLE = [each for each in shared_files("gemini-whole") if each.id != "llm-gemini-models-list.json"]
BROKEN = {
    "aimock-vertex-malformed-function-call.sse": ("failed", "malformed_function_call"),
    "firebase-googleai-streaming-failure-prompt-blocked-safety.txt": ("incomplete", "content_filter"),
    "firebase-vertexai-streaming-failure-error-mid-stream.txt": ("failed", "CANCELLED"),
    "pydantic-gemini15-safety.json": ("incomplete", "content_filter"),
    "pydantic-gemini25-max-tokens-empty.json": ("incomplete", "max_output_tokens"),
    "pydantic-vertex-unexpected-tool-call.json": ("failed", "unexpected_tool_call"),
    "ruby_llm-http429-quota.json": ("failed", "RESOURCE_EXHAUSTED"),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("path", STREAMS + WHOLE)
def test_events_are_valid_and_end_as_the_server_says(path: Path, wire: str) -> None:
    fed = CheckedGemini(recorded(path), wire=wire)
    error, details = fed.response.error, fed.response.incomplete_details
    why = error.code if error is not None else details.reason if details is not None else None
    assert (fed.status, why) == BROKEN.get(path.name, ("completed", None))


@pytest.mark.parametrize("key", [None, b"k" * 32], ids=["plain", "sealed"])
@pytest.mark.parametrize("path", [each for each in STREAMS + WHOLE if each.id not in BROKEN])
def test_the_parts_go_back_as_they_came(path: Path, key: bytes | None) -> None:
    frames = recorded(path)
    fed = CheckedGemini(frames, key=key)
    back, original = fed.returned(), parts_of(frames)
    if "no-args-tool-call" in path.name:  # arguments in pieces go back whole
        calls = [part["functionCall"] for part in back if "functionCall" in part]
        assert [call["args"] for call in calls] == [{}, {"id": "A"}, {"id": "B"}, {"id": "C"}]
        assert back[1]["thoughtSignature"] == original[1]["thoughtSignature"]
    else:
        assert without_made_ids(back, original) == original


@pytest.mark.parametrize("path", STREAMS)
def test_the_last_full_counts_are_the_usage(path: Path) -> None:
    counts = {}
    for value in map(json.loads, recorded(path)):
        for each in value if isinstance(value, list) else [value]:
            counts = (
                each.get("usageMetadata", {})
                if "candidatesTokenCount" in each.get("usageMetadata", {})
                else counts
            )
    usage = CheckedGemini(recorded(path)).response.usage
    if counts:
        assert usage is not None
        assert usage.total_tokens == counts["totalTokenCount"]
        assert usage.output_tokens_details.reasoning_tokens == counts.get("thoughtsTokenCount", 0)
        assert usage.input_tokens_details.cached_tokens == counts.get("cachedContentTokenCount", 0)


def test_sources_are_cited_at_characters() -> None:
    path = require_shared() / "fixtures" / "gemini" / "pydantic-gemini25-google-search.sse"
    frames = recorded(path)
    fed = CheckedGemini(frames, wire="openai")
    message, search = fed.output
    (part,) = message["content"]
    assert search["action"]["query"] == "weather in San Francisco today"
    grounding = json.loads(frames[-1])["candidates"][0]["groundingMetadata"]
    segments = [
        (each["segment"]["text"], grounding["groundingChunks"][index]["web"]["uri"])
        for each in grounding["groundingSupports"]
        for index in each["groundingChunkIndices"]
    ]
    assert segments
    assert [
        (part["text"][each["start_index"] : each["end_index"]], each["url"]) for each in part["annotations"]
    ] == segments
    metadata = native_of(fed.response, "gemini")["groundingMetadata"]
    assert metadata["webSearchQueries"] == grounding["webSearchQueries"]
