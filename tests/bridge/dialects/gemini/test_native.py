"""From a client of the Gemini API to an upstream of it nothing is lost (law N1); upstreams of other APIs
refuse a field that changes the meaning of a request (law N3)."""

from copy import deepcopy
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects import chat_completions
from openresponses_bridge.dialects.base import RequestContext
from openresponses_bridge.dialects.gemini import (
    GeminiOptions,
    Inbound,
    Outbound,
    answer,
    encode_chunk,
    from_gemini,
    to_gemini,
)
from openresponses_bridge.dialects.gemini.types import FAILURES, FILTERED
from openresponses_bridge.dialects.table import TABLE, dialects
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_json, decode_request, encode
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.usage import sum_of
from tests.support.gemini_fields import (
    SEALER,
    alike,
    as_answer,
    fields_in_list,
    is_ours,
    missing,
    parts_joined,
    returned,
    sent,
)

Json = dict[str, Any]
FIELDS = fields_in_list()


@pytest.mark.parametrize("field", [each for each in FIELDS["requests"] if not is_ours("requests", each)])
def test_n1_each_field_of_a_request_arrives_as_it_came(field: str) -> None:
    body = FIELDS["requests"][field]
    payload, report = sent(body)
    assert missing(alike(body), payload) == []
    assert report == []


@pytest.mark.parametrize(
    ("mode", "names"),
    [("VALIDATED", ["look"]), ("VALIDATED", []), ("ANY", ["look"]), ("NONE", []), ("NEW", [])],
)
def test_n1_how_functions_are_called_arrives_as_it_came(mode: str, names: list[str]) -> None:
    calling: Json = {"mode": mode} | ({"allowedFunctionNames": names} if names else {})
    declared = [{"name": name, "behavior": "NON_BLOCKING"} for name in ("look", "other")]
    body = asking(
        tools=[{"functionDeclarations": declared}, {"googleSearch": {"searchTypes": {"imageSearch": {}}}}],
        toolConfig={"functionCallingConfig": calling, "includeServerSideToolInvocations": False},
    )
    assert missing(body, sent(body)[0]) == []
    assert sent(body)[0]["toolConfig"] == body["toolConfig"]


@pytest.mark.parametrize("name", ["mcpServers", "ofTomorrow"])
def test_n1_tools_of_googles_arrive_as_they_came(name: str) -> None:
    tools: list[Json] = [{name: [{"name": "a"}]}, {name: {"type": "b"}}, {name: {}}, {"urlContext": {}}]
    payload, report = sent(asking(tools=tools))
    assert (payload["tools"], report) == (tools, [])


@pytest.mark.parametrize("schemas", ["parametersJsonSchema", "parameters"])
@pytest.mark.parametrize("form", ["parametersJsonSchema", "parameters"])
def test_n1_a_schema_arrives_as_it_came_where_the_server_has_its_field(form: Any, schemas: Any) -> None:
    schema = {"type": "object", "$comment": "a", "properties": {"a": {"type": "string", "const": "b"}}}
    function = {"name": "look", "behavior": "BLOCKING", form: schema}
    request, _ = from_gemini(encode(asking(tools=[{"functionDeclarations": [function]}])), SEALER)
    options = GeminiOptions(schemas=schemas, schema_omit=frozenset({"$comment"}))
    body, diagnostics = to_gemini(request, model="gemini-3-pro", options=options)
    ((declared,),) = (each["functionDeclarations"] for each in body["tools"])
    fits = form == "parameters" or schemas == form
    assert declared["behavior"] == "BLOCKING"
    assert (declared == function) is fits
    assert bool(list(diagnostics)) is not fits


def test_n1_an_instruction_that_is_not_text_arrives() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    body = asking(systemInstruction={"role": "system", "parts": [{"text": "Look:"}, image]})
    assert sent(body)[0]["systemInstruction"] == body["systemInstruction"]


def test_n1_the_models_parts_arrive_in_their_order() -> None:
    parts = [
        {"text": "Hm.", "thought": True},
        {"text": "a", "partMetadata": {"n": 1}},
        {"text": "b", "thoughtSignature": "c2ln"},
        {"text": "c", "partMetadata": {"n": 2}, "thoughtSignature": "c2lo"},
        {"audioTranscription": {"text": "said"}},
        {"text": "d"},
    ]
    body: Json = {"contents": [HELLO, {"role": "model", "parts": parts}, HELLO]}
    assert sent(body)[0]["contents"] == body["contents"]


def asking(**fields: Any) -> Json:
    return {"contents": [HELLO], **fields}


HELLO: Json = {"role": "user", "parts": [{"text": "Hello"}]}
KEPT = {"fileData": {"fileUri": "gs://bucket/a.mp4", "mimeType": "video/mp4"}}
MEANT = {
    "cachedContent": asking(cachedContent="cachedContents/1"),
    "continuationToken": asking(continuationToken="dG9rZW4="),
    "contents[1].parts[0].fileData.fileUri": {"contents": [HELLO, {"role": "user", "parts": [KEPT]}]},
    "contents[1].parts[0]": {"contents": [HELLO, {"role": "user", "parts": [{"unheard": {"a": 1}}]}]},
    "systemInstruction.parts[0].fileData": asking(systemInstruction={"parts": [KEPT]}),
    "generationConfig.thinkingConfig.thinkingLevel": asking(
        generationConfig={"thinkingConfig": {"thinkingLevel": "x"}}
    ),
    "toolConfig.functionCallingConfig.mode": asking(toolConfig={"functionCallingConfig": {"mode": "SOME"}}),
}


@pytest.mark.parametrize("param", MEANT)
@pytest.mark.parametrize("dialect", [line.name for line in TABLE if line.upstream and line.name != "gemini"])
def test_n3_what_the_meaning_hangs_on_is_refused_elsewhere(dialect: str, param: str) -> None:
    side = dialects()[dialect].upstream
    assert side is not None
    request, _ = from_gemini(encode(MEANT[param]), SEALER)
    context = RequestContext((), "m", side.options(), SEALER, ToolIdentityMap())
    with pytest.raises(InvalidRequestError) as caught:
        side.request(request, context)
    assert caught.value.param == param
    assert leaves(MEANT[param]) <= leaves(sent(MEANT[param])[0])


def leaves(value: Any) -> set[str]:
    """What stands in a value, whatever it stands in."""
    if isinstance(value, dict | list):
        return {
            each for inner in (value.values() if isinstance(value, dict) else value) for each in leaves(inner)
        }
    return {repr(value)}


def test_files_that_google_keeps_can_be_refused() -> None:
    body = {"contents": [{"role": "user", "parts": [KEPT]}]}
    request, _ = from_gemini(encode(body), SEALER)
    with pytest.raises(InvalidRequestError, match="not read here"):
        to_gemini(request, model="gemini-3-pro", options=GeminiOptions(kept_files="refuse"))


@pytest.mark.parametrize("form", ["wav", "mp3", "l16;rate=24000"])
def test_sounds_arrive_from_every_surface(form: str) -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": form}}
    request_body = {"input": [{"role": "user", "content": [sound]}]}
    if ";" in form:
        with pytest.raises(InvalidRequestError):
            to_gemini(decode_request(encode(request_body)), model="gemini-3-pro")
        return
    body, diagnostics = to_gemini(decode_request(encode(request_body)), model="gemini-3-pro")
    assert body["contents"][0]["parts"] == [{"inlineData": {"mimeType": f"audio/{form}", "data": "AAAA"}}]
    assert list(diagnostics) == []


@pytest.mark.parametrize(
    ("tier", "expected"),
    [("default", "standard"), ("flex", "flex"), ("priority", "priority"), ("auto", None), ("scale", None)],
)
def test_the_service_tier_of_other_clients_arrives(tier: str, expected: str | None) -> None:
    body, diagnostics = to_gemini(
        decode_request(encode({"input": "Hi", "service_tier": tier})), model="gemini-3-pro"
    )
    assert body.get("serviceTier") == expected
    assert [case.where for case in diagnostics] == (["service_tier"] if tier == "scale" else [])


@pytest.mark.parametrize("field", sorted(FIELDS["answers"]))
def test_n1_each_field_of_an_answer_comes_back(field: str) -> None:
    expected = as_answer(deepcopy(FIELDS["answers"][field]))
    streamed, whole, report = returned([expected])
    if ours := is_ours("answers", field):
        assert bool(report) is ours.startswith("a loss")
        return
    assert missing(parts_joined(expected), parts_joined(streamed)) == []
    assert missing(parts_joined(expected), parts_joined(whole)) == []
    assert report == []


def piece(*parts: Json, **candidate: Any) -> Json:
    """A chunk from the middle of a stream."""
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **candidate}]}


def test_n1_what_chunks_from_the_middle_say_comes_back() -> None:
    ratings = [{"category": "HARM_CATEGORY_HATE_SPEECH", "probability": "LOW"}]
    details = [{"modality": "TEXT", "tokenCount": 9}]
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 1, "totalTokenCount": 10}
    usage = {**counts, "promptTokensDetails": details, "trafficType": "ON_DEMAND"}
    frames: list[Json] = [
        piece({"text": "a"}),
        {**piece({"text": "b"}, safetyRatings=ratings), "usageMetadata": usage, "createTime": "2026"},
        {**piece({"text": "c"}), "usageMetadata": {"promptTokenCount": 9}},
        {"candidates": [{"finishReason": "STOP"}]},
    ]
    for response in returned(frames)[:2]:
        assert missing({"usageMetadata": usage, "createTime": "2026"}, response) == []
        assert response["candidates"][0]["safetyRatings"] == ratings
        assert response["candidates"][0]["content"]["parts"] == [{"text": "abc"}]


def test_n1_the_sources_of_all_chunks_come_back() -> None:
    sources = [{"uri": f"https://{name}.example", "startIndex": 0, "endIndex": 1} for name in "abc"]
    frames = [piece({"text": "x"}, citationMetadata={"citationSources": [each]}) for each in sources]
    for response in returned([*frames, {"candidates": [{"finishReason": "STOP"}]}])[:2]:
        assert response["candidates"][0]["citationMetadata"] == {"citationSources": sources}


@pytest.mark.parametrize(
    "reason", [*sorted(FAILURES), "IMAGE_OTHER", "NO_IMAGE", "ESCALATION", "OF_TOMORROW"]
)
def test_n1_every_reason_for_an_end_is_told_as_it_came(reason: str) -> None:
    frame = piece({"text": "a"}, finishReason=reason, finishMessage="Not this.")
    *responses, report = returned([frame])
    for answered in responses:
        (candidate,) = answered["candidates"]
        assert (candidate["finishReason"], candidate["finishMessage"]) == (reason, "Not this.")
    assert [each for each in report if each.startswith("loss")] == []


@pytest.mark.parametrize("reason", sorted(FILTERED))
@pytest.mark.parametrize("parts", [[], [{"text": "So"}]])
def test_n1_each_reason_of_what_was_kept_back_is_its_own(reason: str, parts: list[Json]) -> None:
    frame = piece(*parts, finishReason=reason, finishMessage="Not this.")
    for response in returned([frame])[:2]:
        (candidate,) = response["candidates"]
        assert (candidate["finishReason"], candidate["finishMessage"]) == (reason, "Not this.")
        assert "promptFeedback" not in response


def test_n1_a_blocked_prompt_comes_back_as_one() -> None:
    blocked = {"blockReason": "BLOCKLIST", "blockReasonMessage": "No.", "safetyRatings": [{"blocked": True}]}
    for response in returned([{"promptFeedback": blocked}])[:2]:
        assert response["promptFeedback"] == blocked
        assert "candidates" not in response


def test_n1_the_upstreams_name_of_its_model_is_in_every_chunk() -> None:
    machine = ResponseStreamStateMachine("latest")
    inbound, outbound = Inbound(machine, SEALER), Outbound(SEALER)
    frames = [{**piece({"text": text}), "modelVersion": "gemini-3-001"} for text in "ab"]
    events = [event for frame in frames for event in inbound.feed(encode(frame))] + inbound.close()
    chunks = [chunk for event in events for chunk in outbound.feed(event)]
    assert {chunk.model_version for chunk in chunks if chunk.error is None} == {"gemini-3-001"}


def test_n1_fields_of_parts_come_back_with_their_parts() -> None:
    image = {"mimeType": "image/png", "data": "AAAA", "displayName": "a.png"}
    parts: list[Json] = [
        {"text": "Hm.", "thought": True, "partMetadata": {"n": 0}},
        {"text": "a", "partMetadata": {"n": 1}},
        {"text": "b"},
        {"inlineData": image, "partMetadata": {"n": 2}},
        {"functionCall": {"id": "c1", "name": "look", "args": {}, "of": 3}, "partMetadata": {"n": 3}},
        {"audioTranscription": {"text": "said"}},
    ]
    frame = piece(*parts, finishReason="STOP")
    for response in returned([frame])[:2]:
        assert parts_joined(response)["candidates"][0]["content"]["parts"] == parts


def test_n1_what_is_said_besides_an_error_comes_back() -> None:
    machine = ResponseStreamStateMachine("gemini-3-pro")
    inbound, outbound = Inbound(machine, SEALER), Outbound(SEALER)
    details = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "a"}]}]
    error = {"code": 400, "status": "FAILED_PRECONDITION", "message": "No.", "details": details}
    events = inbound.feed(encode({"error": error})) + inbound.close()
    (last,) = [chunk for event in events for chunk in outbound.feed(event)][-1:]
    assert last.error == error
    assert decode_json(encode_chunk(answer([machine.snapshot], SEALER)))["error"] == error


def test_what_is_said_of_the_counts_of_one_answer_is_not_said_of_several() -> None:
    machine = ResponseStreamStateMachine("m", settle_usage=lambda usage, _: sum_of([usage, usage]))
    inbound, outbound = Inbound(machine, SEALER), Outbound(SEALER)
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 1, "trafficType": "ON_DEMAND"}
    frame = {**piece({"text": "a"}, finishReason="STOP"), "usageMetadata": usage}
    events = inbound.feed(encode(frame)) + inbound.close()
    chunks = [chunk for event in events for chunk in outbound.feed(event)]
    counts = {"promptTokenCount": 18, "candidatesTokenCount": 2, "totalTokenCount": 20}
    assert chunks[-1].usage_metadata == counts


def test_t4_elsewhere_what_is_said_besides_is_lost_by_its_name() -> None:
    outbound = chat_completions.Outbound()
    machine = ResponseStreamStateMachine("gemini-3-pro")
    frame = piece({"text": "a"}, finishReason="STOP", safetyRatings=[{"blocked": False}])
    inbound = Inbound(machine, SEALER)
    for event in inbound.feed(encode(frame)) + inbound.close():
        outbound.feed(event)
    assert [case.where for case in outbound.diagnostics.of("loss")] == ["safetyRatings"]


def test_n1_what_was_counted_before_a_failure_is_known() -> None:
    machine = ResponseStreamStateMachine("gemini-3-pro")
    inbound, outbound = Inbound(machine, SEALER), Outbound(SEALER)
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 1, "trafficType": "ON_DEMAND"}
    events = inbound.feed(encode({**piece({"text": "Hel"}), "usageMetadata": usage}))
    error = ErrorPayload("server_error", "upstream_disconnected", "It was cut.", None)
    events += inbound.flush() + machine.fail(error)
    chunks = [chunk for event in events for chunk in outbound.feed(event)]
    assert missing(usage, chunks[-2].usage_metadata) == []
    assert chunks[-1].error is not None
    assert inbound.flush() == []
