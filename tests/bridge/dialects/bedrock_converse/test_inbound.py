"""An answer of Converse → events."""

from typing import Any

import pytest

from openresponses_bridge.dialects.bedrock_converse import Inbound
from openresponses_bridge.dialects.bedrock_converse.reasoning import open_reasoning
from openresponses_bridge.protocol.codec import plain
from openresponses_bridge.seal import Sealer
from tests.support import converse
from tests.support.checked_inbound import CheckedInbound
from tests.support.converse import Json, call, delta, end, reasoning, start, stop, text

SEALER = Sealer()


class Read:
    """An answer that was read: its response as JSON, and as it is."""

    def __init__(self, *events: Json) -> None:
        checked = CheckedInbound(lambda machine: Inbound(machine, SEALER), events, "openai")
        self.response = checked.response
        self.final: dict[str, Any] = plain(checked.response)
        self.output: list[Any] = self.final["output"]


def test_a_text_and_two_calls() -> None:
    run = Read(
        start(),
        *text(0, "Hel", "lo"),
        *call(1, "tooluse_1", "f", '{"a"', ":1}"),
        *call(2, "tooluse_2", "g"),
        *end("tool_use", {**converse.USAGE, "cacheReadInputTokens": 4, "cacheWriteInputTokens": 2}),
    )
    message, first, second = run.output
    assert message["content"][0]["text"] == "Hello"
    assert (first["call_id"], first["name"], first["arguments"]) == ("tooluse_1", "f", '{"a":1}')
    assert second["arguments"] == "{}"
    usage = run.final["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (9, 2, 11)
    assert usage["input_tokens_details"]["cached_tokens"] == 4


@pytest.mark.parametrize("signature", ["c2ln", "\u00e9\U0001f600==", "a\\u0000\n"])
def test_reasoning_comes_back_to_the_byte(signature: str) -> None:
    run = Read(start(), *reasoning(0, "I th\u00efnk.", signature), *text(1, "So."), *end())
    item = run.output[0]
    assert item["content"][0]["text"] == "I th\u00efnk."
    assert open_reasoning(SEALER, item["encrypted_content"]) == {
        "reasoningText": {"text": "I th\u00efnk.", "signature": signature}
    }


def test_redacted_content_in_pieces_is_one() -> None:
    pieces = [delta(0, reasoningContent={"redactedContent": each}) for each in ("aGVs", "bG8=")]
    run = Read(start(), *pieces, stop(0), *text(1, "So."), *end())
    sealed = run.output[0]["encrypted_content"]
    assert open_reasoning(SEALER, sealed) == {"redactedContent": "aGVsbG8="}


def test_reasoning_without_a_signature_is_an_item_of_its_own() -> None:
    run = Read(start(), delta(0, reasoningContent={"text": "Hm."}), stop(0), *text(1, "So."), *end())
    assert [item["type"] for item in run.output] == ["reasoning", "message"]


@pytest.mark.parametrize(
    ("reason", "status", "why"),
    [
        ("end_turn", "completed", None),
        ("stop_sequence", "completed", None),
        ("max_tokens", "incomplete", "max_output_tokens"),
        ("model_context_window_exceeded", "incomplete", "max_output_tokens"),
        ("content_filtered", "incomplete", "content_filter"),
        ("guardrail_intervened", "incomplete", "content_filter"),
        ("of_tomorrow", "incomplete", "of_tomorrow"),
    ],
)
def test_how_it_ends(reason: str, status: str, why: str | None) -> None:
    run = Read(start(), *text(0, "Hi"), *end(reason))
    details = run.final["incomplete_details"]
    assert (run.final["status"], details and details["reason"]) == (status, why)


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_an_answer_that_the_model_spoiled_fails(reason: str) -> None:
    run = Read(start(), *text(0, "Hi"), *end(reason))
    assert (run.final["status"], run.final["error"]["code"]) == ("failed", reason)


def test_a_call_that_is_cut_is_incomplete() -> None:
    begun = call(0, "tooluse_1", "f", '{"a"')[:-1]
    run = Read(start(), *begun, *end("max_tokens"))
    assert (run.final["status"], run.output[0]["status"]) == ("incomplete", "incomplete")


def test_what_only_clients_of_the_api_know_is_kept() -> None:
    trace = {"guardrail": {"actionReason": "Because."}}
    details = [{"ttl": "5m", "inputTokens": 3}]
    last = end(
        "guardrail_intervened",
        {**converse.USAGE, "cacheDetails": details},
        trace=trace,
        performanceConfig={"latency": "optimized"},
        serviceTier={"type": "priority"},
    )
    last[0]["messageStop"]["additionalModelResponseFields"] = {"stop_sequence": "END"}
    run = Read(start(), *text(0, "Hi"), *last)
    assert (run.response.native or {})["bedrock"] == {
        "stopReason": "guardrail_intervened",
        "additionalModelResponseFields": {"stop_sequence": "END"},
        "metrics": {"latencyMs": 7},
        "trace": trace,
        "performanceConfig": {"latency": "optimized"},
        "usage": {"cacheDetails": details},
        "service_tier": "priority",
    }
    assert run.final["service_tier"] == "priority"


def test_citations_are_of_the_text_of_their_block() -> None:
    web = {"title": "T", "location": {"web": {"url": "https://a.example"}}}
    page = {"location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}}}
    block = [delta(1, text="It is."), delta(1, citation=web), delta(1, citation=page), stop(1)]
    run = Read(start(), *text(0, "So. "), *block, *end())
    first, second = run.output[0]["content"][0]["annotations"]
    assert (first["url"], first["start_index"], first["end_index"]) == ("https://a.example", 4, 10)
    assert second["citation"] == page


def test_a_tool_that_the_service_ran_is_an_item_of_its_own() -> None:
    used = {"toolUse": {"toolUseId": "t", "name": "code", "type": "server_tool_use"}}
    tool_result = {"toolResult": {"toolUseId": "t", "type": "code_result"}}
    run = Read(
        start(),
        {"contentBlockStart": {"contentBlockIndex": 0, "start": used}},
        delta(0, toolUse={"input": '{"snippet":'}),
        delta(0, toolUse={"input": '"1"}'}),
        stop(0),
        {"contentBlockStart": {"contentBlockIndex": 1, "start": tool_result}},
        delta(1, toolResult=[{"json": {"out": 1}}]),
        stop(1),
        *text(2, "1"),
        *end(),
    )
    call_item, result, message = run.output
    assert call_item["block"]["toolUse"]["input"] == {"snippet": "1"}
    assert result["block"]["toolResult"]["content"] == [{"json": {"out": 1}}]
    assert (call_item["type"], result["type"], message["type"]) == (
        "bedrock:toolUse",
        "bedrock:toolResult",
        "message",
    )


def test_a_whole_answer_is_read_as_its_stream() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
        {"text": "Hello"},
        {"citationsContent": {"content": [{"text": " there"}], "citations": [{"title": "T"}]}},
        {"toolUse": {"toolUseId": "tooluse_1", "name": "f", "input": {"a": [1]}}},
        {"toolUse": {"toolUseId": "tooluse_2", "name": "g", "input": {}}},
    ]
    answer = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "tool_use"}
    run = Read({**answer, "usage": converse.USAGE, "metrics": {"latencyMs": 1}})
    assert [item["type"] for item in run.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert run.output[1]["content"][0]["text"] == "Hello there"
    assert [item["arguments"] for item in run.output[2:]] == ['{"a":[1]}', "{}"]


def test_an_exception_of_an_sdk_is_a_failure() -> None:
    run = Read(start(), *text(0, "Hi")[:1], {"throttlingException": {"message": "Slow down."}})
    assert (run.final["status"], run.final["error"]["message"]) == ("failed", "Slow down.")


def test_a_stream_without_an_end_was_cut() -> None:
    run = Read(start(), *text(0, "Hi"))
    assert run.final["error"]["code"] == "upstream_cut"


def test_a_stream_without_metadata_ends_all_the_same() -> None:
    run = Read(start(), *text(0, "Hi"), end()[0])
    assert run.final["status"] == "completed"
