"""A request → one of Converse."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from openresponses_bridge.dialects.bedrock_converse import ConverseOptions, to_converse
from openresponses_bridge.dialects.bedrock_converse.reasoning import seal_reasoning
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.seal import Sealer
from tests.support.strict_converse import wrong_fields

SEALER = Sealer()
DATA = b64encode(b"data").decode()
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
POINT = {"cachePoint": {"type": "default"}}
BREAK = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def sent(
    options: ConverseOptions | None = None, model: str = "m", **fields: Any
) -> tuple[dict[str, Any], list[str]]:
    """(body, what is lost); botocore's model of the service has all of its fields."""
    request = decode_request(json.dumps({"model": model, "input": "Hi", **fields}))
    body, losses = to_converse(request, options=options or ConverseOptions(), sealer=SEALER)
    body = json.loads(json.dumps(body))
    assert wrong_fields(body) == ""
    return body, [case.where for case in losses.of("loss")]


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def call(id: str, output: Any = "seen") -> list[dict[str, Any]]:
    item = {"type": "function_call", "call_id": id, "name": "f", "arguments": '{"a":1}'}
    return [item, {"type": "function_call_output", "call_id": id, "output": output}]


def test_a_plain_request() -> None:
    body, lost = sent(
        instructions="Be brief.", max_output_tokens=90, temperature=0.5, top_p=0.5, stop="END", top_k=3
    )
    assert body == {
        "system": [{"text": "Be brief."}],
        "messages": [user({"text": "Hi"})],
        "inferenceConfig": {"maxTokens": 90, "temperature": 0.5, "topP": 0.5, "stopSequences": ["END"]},
        "additionalModelRequestFields": {"top_k": 3},
    }
    assert lost == []


def test_the_order_of_messages_is_the_services() -> None:
    assistant = {"role": "assistant", "content": "I look."}
    first, seen = call("a")
    other, answered = call("b")
    late = {"role": "system", "content": "Hurry."}
    items = [assistant, first, other, {"role": "user", "content": "Well?"}, seen, answered, late, assistant]
    body, _ = sent(input=items, tools=[TOOL])
    assert [message["role"] for message in body["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert [next(iter(block)) for block in body["messages"][2]["content"]] == [
        "toolResult",
        "toolResult",
        "text",
        "text",
    ]
    assert "Hurry." in body["messages"][2]["content"][3]["text"]


def test_ids_of_calls_are_of_the_services_form() -> None:
    items = [{"role": "user", "content": "Hi"}, *call("a b/\u00e9"), *call("x" * 100), *call("a.b:c-d_1")]
    body, _ = sent(input=items, tools=[TOOL])
    blocks = [block for message in body["messages"] for block in message["content"]]
    ids = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
    results = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
    assert ids == results == ["a_b__", "x" * 64, "a.b:c-d_1"]


@pytest.mark.parametrize(
    ("choice", "made"),
    [
        ("auto", {"auto": {}}),
        ("required", {"any": {}}),
        ({"type": "function", "name": "f"}, {"tool": {"name": "f"}}),
        (None, None),
    ],
)
def test_the_choice_of_tools(choice: Any, made: Any) -> None:
    body, lost = sent(tools=[TOOL], **({} if choice is None else {"tool_choice": choice}))
    assert (body["toolConfig"].get("toolChoice"), lost) == (made, [])


def test_no_tool_is_chosen_by_declaring_none() -> None:
    assert "toolConfig" not in sent(tools=[TOOL], tool_choice="none")[0]
    body, lost = sent(input=[{"role": "user", "content": "Hi"}, *call("a")], tools=[TOOL], tool_choice="none")
    assert (len(body["toolConfig"]["tools"]), lost) == (1, ["tool_choice"])
    body, lost = sent(input=[{"role": "user", "content": "Hi"}, *call("a")])
    assert body["toolConfig"]["tools"][0]["toolSpec"]["name"] == "f"


def test_images_and_documents() -> None:
    parts = [
        {"type": "input_text", "text": "See."},
        {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
        {"type": "input_file", "filename": "a_b.c.pdf", "file_data": f"data:application/pdf;base64,{DATA}"},
        {"type": "input_file", "filename": "a_b.c.pdf", "file_data": DATA},
        {"type": "input_video", "video_url": f"data:video/mp4;base64,{DATA}"},
        {"type": "input_image", "image_url": "https://a.example/a.png"},
    ]
    body, lost = sent(input=[{"role": "user", "content": parts}])
    source = {"bytes": DATA}
    assert body["messages"][0]["content"] == [
        {"text": "See."},
        {"image": {"format": "png", "source": source}},
        {"document": {"format": "pdf", "name": "a-b-c", "source": source}},
        {"document": {"format": "pdf", "name": "a-b-c (2)", "source": source}},
        {"video": {"format": "mp4", "source": source}},
    ]
    assert lost == ["content.input_image"]


def test_a_document_alone_gets_a_text() -> None:
    part = {"type": "input_file", "filename": "a.csv", "file_data": DATA}
    body, _ = sent(input=[{"role": "user", "content": [part]}])
    assert [next(iter(block)) for block in body["messages"][0]["content"]] == ["document", "text"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "s3://bucket/a.png"},
        {"type": "input_file", "filename": "a.pdf", "file_url": "s3://bucket/a.pdf"},
        {
            "type": "bedrock:video",
            "block": {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://b/a"}}}},
        },
    ],
)
def test_files_of_the_operators_account_are_read_where_that_is_allowed(part: dict[str, Any]) -> None:
    items = [{"role": "user", "content": [{"type": "input_text", "text": "See."}, part]}]
    with pytest.raises(InvalidRequestError, match="S3") as caught:
        sent(input=items)
    assert (caught.value.param or "").startswith("input[0].content[1]")
    body, _ = sent(ConverseOptions(s3="send"), input=items)
    assert "s3://" in json.dumps(body)


def test_results_with_images_and_failures() -> None:
    output = [
        {"type": "input_text", "text": "Seen."},
        {"type": "input_image", "image_url": f"data:image/jpeg;base64,{DATA}"},
    ]
    call_item, seen = call("a", output)
    empty, none = call("b", "")
    items = [{"role": "user", "content": "Hi"}, call_item, empty, seen, {**none, "status": "incomplete"}]
    body, _ = sent(input=items, tools=[TOOL])
    first, second = (block["toolResult"] for block in body["messages"][2]["content"])
    assert [next(iter(block)) for block in first["content"]] == ["text", "image"]
    assert second["content"] == [{"text": "(no output)"}]


def test_reasoning_goes_back_to_the_byte() -> None:
    thought = {"reasoningText": {"text": "I th\u00efnk.\n", "signature": "a+/=\u00e9"}}
    hidden = {"redactedContent": DATA}
    items = [
        {"role": "user", "content": "Hi"},
        *(
            {"type": "reasoning", "summary": [], "encrypted_content": seal_reasoning(SEALER, each)}
            for each in (thought, hidden)
        ),
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": "And?"},
    ]
    body, lost = sent(input=items)
    assert body["messages"][1]["content"] == [
        {"reasoningContent": thought},
        {"reasoningContent": hidden},
        {"text": "So."},
    ]
    assert lost == []


def test_reasoning_of_others_is_lost() -> None:
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "summary": [], "encrypted_content": SEALER.seal(b"{}", "anthropic-thinking")},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": "And?"},
    ]
    body, lost = sent(input=items)
    assert (body["messages"][1]["content"], lost) == ([{"text": "So."}], ["input[1]", "input[2]"])


def test_cache_points_of_the_client() -> None:
    parts = [{"type": "input_text", "text": "A", **BREAK}, {"type": "input_text", "text": "B"}]
    body, lost = sent(input=[{"role": "user", "content": parts}])
    assert (body["messages"][0]["content"], lost) == ([{"text": "A"}, POINT, {"text": "B"}], [])
    many = [
        {"role": "user", "content": [{"type": "input_text", "text": str(at), **BREAK} for at in range(6)]}
    ]
    content, lost = sent(input=many)[0]["messages"][0]["content"], sent(input=many)[1]
    assert content[:3] == [{"text": "0"}, {"text": "1"}, {"text": "2"}]
    assert (sum(block == POINT for block in content), set(lost)) == (4, {"prompt_cache_breakpoint"})


def test_cache_points_of_the_operator() -> None:
    options = ConverseOptions(cache_points=True)
    body, _ = sent(options, instructions="Be brief.", tools=[TOOL])
    ends = (body["system"][-1], body["toolConfig"]["tools"][-1], body["messages"][-1]["content"][-1])
    assert ends == (POINT, POINT, POINT)
    own = [{"role": "user", "content": [{"type": "input_text", "text": "A", **BREAK}]}]
    assert json.dumps(sent(options, input=own)[0]).count("cachePoint") == 1


ADAPTIVE = {"type": "adaptive", "display": "summarized"}
BUDGET = {"type": "enabled", "budget_tokens": 16384}
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_schema_for_the_answer() -> None:
    form = {"type": "json_schema", "name": "n", "schema": SCHEMA}
    body, lost = sent(text={"format": form})
    text_format = body["outputConfig"]["textFormat"]
    assert text_format["type"] == "json_schema"
    assert json.loads(text_format["structure"]["jsonSchema"]["schema"]) == SCHEMA
    assert lost == []
    assert sent(text={"format": form}, model="amazon.nova-lite-v1:0")[1] == ["text.format"]


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (
            "us.anthropic.claude-opus-4-8-v1:0",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}},
        ),
        (
            "eu.anthropic.claude-3-7-sonnet-20250219-v1:0",
            {"thinking": {"type": "enabled", "budget_tokens": 16384}},
        ),
        ("amazon.nova-2-lite-v1:0", {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        ("openai.gpt-oss-120b-1:0", {"reasoning_effort": "high"}),
        ("meta.llama4-maverick", None),
    ],
)
def test_effort_is_asked_for_as_the_model_wants_it(model: str, fields: Any) -> None:
    body, lost = sent(model=model, reasoning={"effort": "high"})
    assert body.get("additionalModelRequestFields") == fields
    assert lost == ([] if fields else ["reasoning.effort"])


@pytest.mark.parametrize(("temperature", "lost"), [(1.0, []), (1.5, ["temperature"])])
def test_a_temperature_above_the_highest_is_sent_as_that(temperature: float, lost: list[str]) -> None:
    body, losses = sent(temperature=temperature)
    assert (body["inferenceConfig"]["temperature"], losses) == (1.0, lost)


def test_a_budget_leaves_room_for_the_answer_and_takes_no_temperature() -> None:
    model = "anthropic.claude-sonnet-4-5"
    body, lost = sent(model=model, reasoning={"effort": "high"}, max_output_tokens=4000, temperature=0.5)
    assert body["additionalModelRequestFields"]["thinking"]["budget_tokens"] == 4000 - 1024
    assert (body["inferenceConfig"], lost) == ({"maxTokens": 4000}, ["temperature"])
    assert sent(model=model, reasoning={"effort": "high"}, max_output_tokens=1500)[1] == ["reasoning.effort"]
    forced = sent(model=model, reasoning={"effort": "high"}, tools=[TOOL], tool_choice="required")
    assert forced[1] == ["reasoning.effort"]


def test_what_the_operator_passes_on_and_adds() -> None:
    options = ConverseOptions(
        passes=frozenset({"guardrailConfig"}),
        extra={"performanceConfig": {"latency": "optimized"}, "inferenceConfig": {"maxTokens": 7, "topP": 1}},
    )
    guard = {"guardrailIdentifier": "g", "guardrailVersion": "1"}
    body, lost = sent(options, guardrailConfig=guard, promptVariables={}, max_output_tokens=90)
    assert (body["guardrailConfig"], lost) == (guard, ["promptVariables"])
    assert body["performanceConfig"] == {"latency": "optimized"}
    assert body["inferenceConfig"] == {"maxTokens": 90, "topP": 1}


@pytest.mark.parametrize(
    ("tier", "made"), [("default", "default"), ("flex", "flex"), ("priority", "priority")]
)
def test_service_tiers(tier: str, made: str) -> None:
    assert sent(service_tier=tier)[0]["serviceTier"] == {"type": made}
    assert sent(service_tier="scale")[1] == ["service_tier"]
