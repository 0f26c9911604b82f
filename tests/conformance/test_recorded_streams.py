"""Recorded streams of real servers through the validator: which clauses each one breaks, and why.

None of these servers keeps every clause. The reasons, by rule:

- `schema`: fields the published response requires are missing (OpenAI sent no `presence_penalty`,
  `frequency_penalty`, `completed_at` or `prompt_cache_key` for long; streams from test suites were trimmed
  by hand), `text.verbosity` is null, early events lack `sequence_number`.
- `terminal.output_equals_items`: OpenAI seals `encrypted_content` anew for the terminal event, so it is not
  the item that was done; trimmed streams leave items or fields out.
- `item.id_stable`, `response.same_id`, `response.same_facts`: a gateway gives every event another id, or two
  captures were joined.
- `usage.sum`: the counts were made up for a test.
- `call.arguments_sum`: arguments arrive whole in the done event, no delta before them.
- `call.arguments_done`: the call's input has no done event.
- `sse.event_name`: the frames were kept without their event names.
- `stream.*`: a capture that begins late or leaves `response.in_progress` out.
- `item.unclosed`, `part.*`, `delta.*`, `annotation.*`, `item.added_first`: events left out of the capture.
- `error.followed_by_failed`: the error is the last event.
- `response.incomplete_details_iff`: a failed response has incomplete_details as well.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.conformance import StreamValidator, Violation
from openresponses_bridge.conformance.published import WireName
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import check_event
from openresponses_bridge.sse import Frame, SSEDecoder, is_done
from tests.support.shared import shared_files

FOLDERS = ("responses", "responses-inline", "openresponses")

# file → rules it breaks on the wire `any`
EXPECTED: dict[str, str] = {
    "azure-tool-call.1.chunks.txt": "schema",
    "github-copilot-id-rotation.1.chunks.txt": (
        "schema response.same_id item.id_stable terminal.output_equals_items"
    ),
    "openai-apply-patch-tool.1.chunks.txt": "schema",
    "openai-code-interpreter-tool.1.chunks.txt": "schema",
    "openai-custom-tool.1.chunks.txt": "schema call.arguments_done",
    "openai-error.1.chunks.txt": "schema",
    "openai-file-search-tool.2.chunks.txt": "schema",
    "openai-image-generation-tool.1.chunks.txt": "schema",
    "openai-local-shell-tool.1.chunks.txt": "schema",
    "openai-mcp-tool-approval.1.chunks.txt": "schema",
    "openai-reasoning-encrypted-content.1.chunks.txt": "schema terminal.output_equals_items",
    "openai-tool-search.1.chunks.txt": "",
    "openai-web-search-tool.1.chunks.txt": "schema",
    "pydantic-test_deepseek_responses_function_tool_stream_.1.sse": "schema",
    "pydantic-test_deepseek_responses_text_stream_.1.sse": "schema",
    "pydantic-test_openai_include_raw_annotations_streaming.1.sse": "",
    "pydantic-test_openai_responses_model_file_search_tool_stream.1.sse": "schema",
    "pydantic-test_openai_responses_model_mcp_server_tool_stream.1.sse": (
        "schema terminal.output_equals_items"
    ),
    "pydantic-test_openai_responses_moderation_stream.1.sse": "terminal.output_equals_items",
    "pydantic-test_openai_responses_phase_streamed_on_part_start.1.sse": "terminal.output_equals_items",
    "pydantic-test_openai_responses_phase_streamed_on_part_start.2.sse": "",
    "pydantic-test_reused_tool_call_ids_stream_.1.sse": "",
    "vercel-1-should-close-unfinished-reasoning-items-with-their-original-ids.sse": (
        "schema sse.event_name stream.first_created stream.in_progress_present item.unclosed"
    ),
    "vercel-1-should-stream-text-deltas.sse": (
        "schema sse.event_name item.id_stable response.same_id response.same_facts usage.sum"
        " terminal.output_equals_items"
    ),
    "vercel-11-should-handle-streaming-web-search-without-action.sse": (
        "schema sse.event_name stream.in_progress_present"
    ),
    "vercel-13-should-throw-an-api-error-for-documented-top-level-error-events-before.sse": (
        "schema sse.event_name error.followed_by_failed"
    ),
    "vercel-15-should-expose-raw-finish-reason-from-late-response-failed-incomplete-d.sse": (
        "schema sse.event_name stream.in_progress_present response.incomplete_details_iff"
    ),
    "vercel-17-should-handle-reasoning-with-empty-summary.sse": (
        "schema sse.event_name stream.in_progress_present part.backed part.unclosed delta.sum_item"
        " terminal.output_equals_items"
    ),
    "vercel-19-should-handle-encrypted-content-with-empty-summary.sse": (
        "schema sse.event_name stream.in_progress_present part.backed part.unclosed delta.sum_item"
        " terminal.output_equals_items"
    ),
    "vercel-21-should-handle-both-url-citation-and-file-citation-annotations.sse": (
        "schema sse.event_name stream.first_created stream.in_progress_present item.added_first"
        " part.done_before_closed delta.sum_part annotation.in_part"
    ),
    "vercel-3-should-send-finish-reason-for-incomplete-response.sse": (
        "schema sse.event_name item.id_stable response.same_id response.same_facts delta.sum_text"
        " delta.sum_part terminal.output_equals_items"
    ),
    "vercel-5-should-preserve-namespace-on-streaming-function-call-output.sse": (
        "schema sse.event_name stream.in_progress_present terminal.output_equals_items"
    ),
    "vercel-7-should-expose-reasoning-context-and-cache-writes-when-streaming.sse": (
        "schema sse.event_name stream.in_progress_present"
    ),
    "vercel-9-should-handle-logprobs.sse": "schema sse.event_name",
    "lmstudio-basic.1.chunks.txt": "",
    "lmstudio-tool-call.1.chunks.txt": "call.arguments_sum",
}
# what these streams break besides on the published wire: names that are OpenAI's, no status, no [DONE]
OPENAI_ONLY = {"schema", "event.unknown_type", "item.has_status", "stream.done_marker"}


def frames(path: Path) -> list[Frame]:
    """The frames of a capture; one JSON value in a line is a frame named by its type."""
    data = path.read_bytes()
    if path.suffix == ".sse":
        decoder = SSEDecoder()
        return decoder.feed(data) + decoder.close()
    return [Frame("", line) for line in data.splitlines() if line.strip()]


def turns(path: Path) -> Iterator[list[Frame]]:
    """A capture may hold several responses, one after the other."""
    turn: list[Frame] = []
    for frame in frames(path):
        if turn and b'"type":"response.created"' in frame.data:
            yield turn
            turn = []
        turn.append(frame)
    yield turn


def validate_capture(path: Path, wire: WireName) -> list[Violation]:
    violations = []
    for turn in turns(path):
        validator = StreamValidator(wire)
        for frame in turn:
            validator.feed_frame(frame) if path.suffix == ".sse" else validator.feed(frame.data)
        validator.close()
        violations += validator.violations
    return violations


def recordings() -> list[Any]:
    return [each for folder in FOLDERS for each in shared_files(folder)]


@pytest.mark.parametrize("path", recordings())
def test_each_recording_shows_the_rules_it_breaks(path: Path) -> None:
    assert {each.rule for each in validate_capture(path, "any")} == set(EXPECTED[path.name].split())


@pytest.mark.parametrize("path", recordings())
def test_the_published_wire_adds_only_what_openai_alone_has(path: Path) -> None:
    strict = {each.rule for each in validate_capture(path, "openresponses")}
    assert strict >= set(EXPECTED[path.name].split())
    assert strict - set(EXPECTED[path.name].split()) <= OPENAI_ONLY


@pytest.mark.parametrize("path", recordings())
def test_on_openai_s_wire_they_break_the_same_rules(path: Path) -> None:
    assert {each.rule for each in validate_capture(path, "openai")} == set(EXPECTED[path.name].split())


@pytest.mark.parametrize("path", recordings())
def test_structs_and_bytes_get_the_same_verdict(path: Path) -> None:
    """Structs, where the recording decodes strictly, are judged as its bytes are."""
    for turn in turns(path):
        by_bytes, by_struct = StreamValidator(), StreamValidator()
        for frame in turn:
            if is_done(frame):
                continue
            try:
                event = check_event(frame.data)
            except WireError:
                by_struct.feed(frame.data)
            else:
                by_struct.feed(event)
            by_bytes.feed(frame.data)
        assert [each.rule for each in by_struct.violations] == [each.rule for each in by_bytes.violations]
