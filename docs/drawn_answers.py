"""Draws where what an answer says arrives, from each upstream at a client of each API: such an answer is
read, whole and as a stream, and what the client gets is looked at, whole and as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import AnswerContext
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import PROTOCOL, Response
from openresponses_bridge.protocol.unknown import OURS
from openresponses_bridge.seal import Sealer
from openresponses_bridge.state import WIRES

Json = dict[str, Any]
UPSTREAMS: Final = {
    "responses": "Responses",
    "chat": "Chat",
    "anthropic": "Messages",
    "gemini": "Gemini",
    "interactions": "Interactions",
    "bedrock": "Converse",
}
"""Dialects by their names, as the table calls them."""
CLIENTS: Final = {"openai": "Responses (`openai`)", "openresponses": "Responses (`openresponses`)"} | {
    name: title for name, title in UPSTREAMS.items() if name != PROTOCOL
}
"""Dialects of clients by their names, and the two wires of Responses."""
_SEALER: Final = Sealer()
_TEXT: Final = "Said here."
_ANSWERS: Final[dict[str, Json]] = {
    "responses": {
        "id": "resp_9", "object": "response", "created_at": 1, "status": "completed", "model": "m",
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {},
        "output": [
            {
                "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": _TEXT, "annotations": []}],
            }
        ],
        "usage": {"input_tokens": 9000, "output_tokens": 9000, "total_tokens": 18000},
    },
    "chat": {
        "id": "chatcmpl-9", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": _TEXT}}
        ],
        "usage": {"prompt_tokens": 9000, "completion_tokens": 9000, "total_tokens": 18000},
    },
    "anthropic": {
        "id": "msg_9", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": _TEXT}], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 9000, "output_tokens": 9000},
    },
    "gemini": {
        "modelVersion": "m",
        "candidates": [
            {"finishReason": "STOP", "content": {"role": "model", "parts": [{"text": _TEXT}]}}
        ],
        "usageMetadata": {"promptTokenCount": 9000, "candidatesTokenCount": 9000, "totalTokenCount": 18000},
    },
    "interactions": {
        "id": "v1_9", "object": "interaction", "status": "completed", "model": "m",
        "steps": [{"type": "model_output", "content": [{"type": "text", "text": _TEXT}]}],
        "usage": {"total_input_tokens": 9000, "total_output_tokens": 9000, "total_tokens": 18000},
    },
    "bedrock": {
        "output": {"message": {"role": "assistant", "content": [{"text": _TEXT}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 9000, "outputTokens": 9000, "totalTokens": 18000},
        "metrics": {"latencyMs": 1},
    },
}  # fmt: skip
"""A plain answer of each API."""


def _with(whole: Any, change: Any) -> Any:
    """The answer with these fields, those of inner objects too, and of the only object of a list, unless one
    of a type takes its place."""
    if isinstance(whole, dict) and isinstance(change, dict):
        return whole | {name: _with(whole.get(name), each) for name, each in change.items()}
    if isinstance(whole, list) and isinstance(change, list) and len(whole) == len(change) == 1:
        return [_with(whole[0], change[0])] if "type" not in change[0] else change
    return change


class Feature(NamedTuple):
    """`said` has for each API that has the feature what an answer says of it, beside a plain one; or the
    frames of a stream that fails. It has arrived where `found` is, or what it is `called` in the client's
    API. `ours`: by clients' dialects, what they are answered instead."""

    title: str
    found: Any
    said: Mapping[str, Json | list[Json]]
    called: Mapping[str, Any] = MappingProxyType({})
    ours: Mapping[str, str] = MappingProxyType({})


def _part(**fields: Any) -> Json:
    """Of Responses: fields of the text."""
    return {"output": [{"content": [fields]}]}


def _message(**fields: Any) -> Json:
    return {"choices": [{"message": fields}]}


def _step(**fields: Any) -> Json:
    """Of Interactions: fields of the text."""
    return {"steps": [{"type": "model_output", "content": [{"type": "text", "text": _TEXT, **fields}]}]}


def _blocks(*blocks: Json) -> Json:
    return {"output": {"message": {"content": list(blocks)}}}


def _cited(**citation: Any) -> Json:
    """Of Converse: the text with this citation."""
    cited = {"citationsContent": {"content": [{"text": _TEXT}], "citations": [citation]}}
    return _blocks(cited, {"text": "Said too."})


_PAGE, _QUOTED = "https://pages.example/a", "Title of a document"
_RATED = "HARM_CATEGORY_HATE_SPEECH"
_IMAGE, _SIGNATURE = "aW1hZ2U=", "c2lnbmVk"
_CATEGORY, _EXPLAINED = "frontier_llm", "Explained by the API."
FEATURES: Final = (
    Feature(
        "a citation of a web page",
        _PAGE,
        {
            "responses": _part(annotations=[
                {"type": "url_citation", "url": _PAGE, "title": "t", "start_index": 0, "end_index": 4}
            ]),
            "chat": _message(annotations=[{"type": "url_citation", "url_citation": {
                "url": _PAGE, "title": "t", "start_index": 0, "end_index": 4}}]),
            "anthropic": {"content": [{"citations": [{
                "type": "web_search_result_location", "url": _PAGE, "title": "t", "cited_text": "Said",
                "encrypted_index": "x"}]}]},
            "gemini": {"candidates": [{"groundingMetadata": {
                "groundingChunks": [{"web": {"uri": _PAGE, "title": "t"}}],
                "groundingSupports": [
                    {"segment": {"startIndex": 0, "endIndex": 4}, "groundingChunkIndices": [0]}
                ]}}]},
            "interactions": _step(annotations=[
                {"type": "url_citation", "url": _PAGE, "title": "t", "start_index": 0, "end_index": 10}]),
            "bedrock": _cited(title="t", location={"web": {"url": _PAGE}}),
        },
    ),
    Feature(
        "a citation of a document",
        _QUOTED,
        {
            "responses": _part(annotations=[
                {"type": "file_citation", "file_id": "file-1", "filename": _QUOTED, "index": 0}
            ]),
            "anthropic": {"content": [{"citations": [{
                "type": "char_location", "cited_text": "Said", "document_index": 0, "document_title": _QUOTED,
                "start_char_index": 0, "end_char_index": 4, "file_id": None}]}]},
            "gemini": {"candidates": [{"groundingMetadata": {
                "groundingChunks": [{"retrievedContext": {"uri": "gs://a/b", "title": _QUOTED}}],
                "groundingSupports": [
                    {"segment": {"startIndex": 0, "endIndex": 4}, "groundingChunkIndices": [0]}
                ]}}]},
            "bedrock": _cited(
                title=_QUOTED, location={"documentChar": {"documentIndex": 0, "start": 0, "end": 4}}),
        },
    ),
    Feature(
        "reasoning",
        "Thought of.",
        {
            "responses": {"output": [
                {"type": "reasoning", "id": "rs_1", "summary": [],
                 "content": [{"type": "reasoning_text", "text": "Thought of."}]},
                *_ANSWERS["responses"]["output"]]},
            "chat": _message(reasoning_content="Thought of."),
            "anthropic": {"content": [
                {"type": "thinking", "thinking": "Thought of.", "signature": _SIGNATURE},
                {"type": "text", "text": _TEXT}]},
            "gemini": {"candidates": [{"content": {"parts": [
                {"text": "Thought of.", "thought": True}, {"text": _TEXT}]}}]},
            "interactions": {"steps": [
                {"type": "thought", "summary": [{"type": "text", "text": "Thought of."}]},
                *_ANSWERS["interactions"]["steps"]]},
            "bedrock": _blocks(
                {"reasoningContent": {"reasoningText": {"text": "Thought of.", "signature": _SIGNATURE}}},
                {"text": _TEXT}),
        },
    ),
    Feature(
        "an image",
        _IMAGE,
        {
            "responses": {"output": [
                {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": _IMAGE}]},
            "chat": _message(images=[
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_IMAGE}"}}]),
            "gemini": {"candidates": [{"content": {"parts": [
                {"text": _TEXT}, {"inlineData": {"mimeType": "image/png", "data": _IMAGE}}]}}]},
            "interactions": {"steps": [{"type": "model_output", "content": [
                {"type": "text", "text": _TEXT},
                {"type": "image", "mime_type": "image/png", "data": _IMAGE}]}]},
        },
        {"chat": f"data:image/png;base64,{_IMAGE}"},
    ),
    Feature(
        "audio",
        _IMAGE,
        {
            "chat": _message(content=None, audio={
                "id": "audio_1", "data": _IMAGE, "transcript": "Said here.", "expires_at": 1}),
            "gemini": {"candidates": [{"content": {"parts": [
                {"text": _TEXT}, {"inlineData": {"mimeType": "audio/wav", "data": _IMAGE}}]}}]},
            "interactions": {"steps": [{"type": "model_output", "content": [
                {"type": "text", "text": _TEXT},
                {"type": "audio", "mime_type": "audio/wav", "data": _IMAGE}]}]},
        },
    ),
    Feature(
        "log probabilities",
        -0.125,
        {
            "responses": _part(logprobs=[
                {"token": _TEXT, "logprob": -0.125, "bytes": [], "top_logprobs": []}
            ]),
            "chat": {"choices": [{"logprobs": {"content": [
                {"token": _TEXT, "logprob": -0.125, "bytes": [], "top_logprobs": []}
            ]}}]},
            "gemini": {"candidates": [{"logprobsResult": {
                "chosenCandidates": [{"token": _TEXT, "logProbability": -0.125}]}}]},
        },
    ),
    Feature(
        "log probabilities of a refusal",
        -0.125,
        {
            "chat": {"choices": [{"message": {"content": None, "refusal": "No."}, "logprobs": {"refusal": [
                {"token": "No.", "logprob": -0.125, "bytes": [], "top_logprobs": []}
            ]}}]},
        },
    ),
    Feature(
        "a refusal, in the model's words",
        "No.",
        {
            "responses": {"output": [{"content": [{"type": "refusal", "refusal": "No."}]}]},
            "chat": _message(content=None, refusal="No."),
        },
    ),
    Feature(
        "the API's explanation of a refusal",
        _EXPLAINED,
        {
            "anthropic": {"content": [], "stop_reason": "refusal", "stop_details": {
                "type": "refusal", "category": None, "explanation": _EXPLAINED}},
            "gemini": {"candidates": [{
                "finishReason": "SAFETY", "finishMessage": _EXPLAINED, "content": {"parts": []}}]},
        },
    ),
    Feature(
        "the category of a refusal",
        _CATEGORY,
        {
            "anthropic": {"content": [], "stop_reason": "refusal", "stop_details": {
                "type": "refusal", "category": _CATEGORY, "explanation": _EXPLAINED}},
        },
    ),
    Feature(
        "an end at the token limit",
        "max_output_tokens",
        {
            "responses": {
                "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"},
                "output": [{"status": "incomplete"}],
            },
            "chat": {"choices": [{"finish_reason": "length"}]},
            "anthropic": {"stop_reason": "max_tokens"},
            "gemini": {"candidates": [{"finishReason": "MAX_TOKENS"}]},
            "interactions": {"status": "incomplete"},
            "bedrock": {"stopReason": "max_tokens"},
        },
        {"chat": "length", "anthropic": "max_tokens", "gemini": "MAX_TOKENS"}
        | {"interactions": "incomplete", "bedrock": "max_tokens"},
    ),
    Feature(
        "an end by a content filter",
        "content_filter",
        {
            "responses": {
                "status": "incomplete", "incomplete_details": {"reason": "content_filter"},
                "output": [{"status": "incomplete"}],
            },
            "chat": {"choices": [{"finish_reason": "content_filter"}]},
            "anthropic": {"stop_reason": "refusal"},
            "gemini": {"candidates": [{"finishReason": "SAFETY"}]},
            "bedrock": {"stopReason": "content_filtered"},
        },
        {"anthropic": "refusal", "gemini": "SAFETY", "bedrock": "content_filtered"},
    ),
    Feature(
        "a stop reason of Anthropic's own",
        "pause_turn",
        {
            "anthropic": {"stop_reason": "pause_turn"},
        },
    ),
    Feature(
        "a finish reason of Google's own",
        "RECITATION",
        {"gemini": {"candidates": [{"finishReason": "RECITATION"}]}},
    ),
    Feature(
        "a finish reason of a server's own",
        "eos",
        {"chat": {"choices": [{"finish_reason": "eos"}]}},
        ours=dict.fromkeys(CLIENTS, "the reason that the client's API has for it"),
    ),
    Feature(
        "the stop sequence that ended the answer",
        "ENOUGH",
        {"anthropic": {"stop_reason": "stop_sequence", "stop_sequence": "ENOUGH"}},
    ),
    Feature(
        "safety ratings",
        _RATED,
        {
            "responses": {"moderation": {"output": {"type": _RATED}}},
            "chat": {"choices": [{"content_filter_results": {"hate": {"found": _RATED}}}]},
            "anthropic": {"safeguard_results": [{"type": _RATED}]},
            "gemini": {"candidates": [{"safetyRatings": [
                {"category": _RATED, "probability": "LOW"}]}]},
            "bedrock": {"trace": {"guardrail": {"actionReason": _RATED}}},
        },
    ),
    Feature(
        "the service tier",
        "priority",
        {
            "responses": {"service_tier": "priority"},
            "chat": {"service_tier": "priority"},
            "anthropic": {"usage": {"service_tier": "priority"}},
            "gemini": {"usageMetadata": {"serviceTier": "priority"}},
            "interactions": {"service_tier": "priority"},
            "bedrock": {"serviceTier": {"type": "priority"}},
        },
    ),
    Feature(
        "input tokens read from the cache",
        1234,
        {
            "responses": {"usage": {"input_tokens_details": {"cached_tokens": 1234}}},
            "chat": {"usage": {"prompt_tokens_details": {"cached_tokens": 1234}}},
            "anthropic": {"usage": {"cache_read_input_tokens": 1234}},
            "gemini": {"usageMetadata": {"cachedContentTokenCount": 1234}},
            "interactions": {"usage": {"total_cached_tokens": 1234}},
            "bedrock": {"usage": {"cacheReadInputTokens": 1234}},
        },
    ),
    Feature(
        "input tokens written to the cache",
        1234,
        {
            "responses": {"usage": {"input_tokens_details": {"cache_write_tokens": 1234}}},
            "chat": {"usage": {"prompt_tokens_details": {"cache_write_tokens": 1234}}},
            "anthropic": {"usage": {"cache_creation_input_tokens": 1234}},
            "bedrock": {"usage": {"cacheWriteInputTokens": 1234}},
        },
    ),
    Feature(
        "input tokens written to the cache, by time to live",
        1234,
        {"anthropic": {"usage": {
            "cache_creation_input_tokens": 1300,
            "cache_creation": {"ephemeral_1h_input_tokens": 1234, "ephemeral_5m_input_tokens": 66},
        }}},
    ),
    Feature(
        "reasoning tokens",
        1234,
        {
            "responses": {"usage": {"output_tokens_details": {"reasoning_tokens": 1234}}},
            "chat": {"usage": {"completion_tokens_details": {"reasoning_tokens": 1234}}},
            "anthropic": {"usage": {"output_tokens_details": {"thinking_tokens": 1234}}},
            "gemini": {"usageMetadata": {"thoughtsTokenCount": 1234, "totalTokenCount": 19234}},
            "interactions": {"usage": {"total_thought_tokens": 1234}},
        },
    ),
    Feature(
        "other token counts",
        1234,
        {
            "responses": {"usage": {"input_tokens_details": {"audio_tokens": 1234}}},
            "chat": {"usage": {"completion_tokens_details": {"audio_tokens": 1234}}},
            "anthropic": {"usage": {"server_tool_use": {"web_fetch_requests": 1234}}},
            "gemini": {"usageMetadata": {"promptTokensDetails": [
                {"modality": "AUDIO", "tokenCount": 1234}]}},
            "interactions": {"usage": {"input_tokens_by_modality": [{"modality": "audio", "tokens": 1234}]}},
            "bedrock": {"usage": {"cacheDetails": [{"ttl": "1h", "inputTokens": 1234}]}},
        },
    ),
    Feature(
        "the id of the answer",
        "id-of-it",
        {
            "responses": {"id": "id-of-it"},
            "chat": {"id": "id-of-it"},
            "anthropic": {"id": "id-of-it"},
            "gemini": {"responseId": "id-of-it"},
        },
        ours=dict.fromkeys(CLIENTS, "the response's own"),
    ),
    Feature(
        "the time at which it began",
        1_600_000_000,
        {
            "responses": {"created_at": 1_600_000_000},
            "chat": {"created": 1_600_000_000},
            "gemini": {"createTime": "2020-09-13T12:26:40Z"},
        },
        {"gemini": "2020-09-13T12:26:40Z"},
        ours=dict.fromkeys(("openai", "openresponses", "chat"), "the time at which it began here")
        | dict.fromkeys(("anthropic", "gemini", "bedrock"), "nothing, as the API itself does")
        | {"interactions": "the time at which it began here"},
    ),
    Feature(
        "the upstream's name for the model",
        "m-2026",
        {
            "responses": {"model": "m-2026"},
            "chat": {"model": "m-2026"},
            "anthropic": {"model": "m-2026"},
            "gemini": {"modelVersion": "m-2026"},
            "interactions": {"model": "m-2026"},
        },
        ours=dict.fromkeys(("chat", "anthropic"), "the requested name")
        | {"bedrock": "nothing, as the API itself does"},
    ),
    Feature(
        "the version of the upstream's system",
        "fp_1",
        {
            "chat": {"system_fingerprint": "fp_1"},
        },
    ),
    Feature(
        "code that the API ran",
        "print(1)",
        {
            "responses": {"output": [
                {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "print(1)",
                 "container_id": "c", "outputs": [{"type": "logs", "logs": "1"}]}]},
            "anthropic": {"content": [
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution",
                 "input": {"code": "print(1)"}},
                {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {
                    "type": "code_execution_result", "stdout": "1", "stderr": "", "return_code": 0,
                    "content": []}}]},
            "gemini": {"candidates": [{"content": {"parts": [
                {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}]}}]},
            "interactions": {"steps": [
                {"type": "code_execution_call", "id": "c", "arguments": {"code": "print(1)"}},
                {"type": "code_execution_result", "call_id": "c", "result": "1"}]},
        },
    ),
    Feature(
        "a field of the message that no SDK has",
        "of tomorrow",
        {"chat": _message(grade="of tomorrow")},
    ),
    Feature(
        "a container",
        "container_1",
        {
            "responses": {"output": [
                {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1",
                 "container_id": "container_1", "outputs": []}]},
            "anthropic": {"container": {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}},
        },
    ),
    Feature(
        "details of an error",
        "detail_1",
        {
            "responses": [{"type": "response.failed", "sequence_number": 0, "response": {
                "id": "resp_9", "object": "response", "created_at": 1, "status": "failed", "model": "m",
                "output": [], "error": {"code": "server_error", "message": "Failed.", "more": "detail_1"}}}],
            "chat": [
                {"error": {"message": "Failed.", "type": "server_error", "metadata": {"a": "detail_1"}}}],
            "anthropic": [
                {"type": "error", "error": {
                    "type": "api_error", "message": "Failed.", "details": {"error_code": "detail_1"}}}],
            "gemini": [{"error": {"code": 500, "message": "Failed.", "status": "INTERNAL", "details": [
                {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "detail_1"}]}}],
            "bedrock": [{"modelStreamErrorException": {"message": "Failed.", "originalMessage": "detail_1"}}],
        },
    ),
)  # fmt: skip


_HEADS: Final = ("id", "model", "created", "created_at", "modelVersion", "responseId", "createTime")


class Received(NamedTuple):
    """What a client gets: the whole answer, None for a failure; the frames of a stream; what was lost."""

    whole: Json | None
    frames: list[Json]
    lost: list[tuple[str, str]]
    """Where, and what of it."""


def received(frames: Iterable[Json], upstream: str, client: str) -> Received:
    """What a client gets of such frames of an upstream."""
    speaks = client in WIRES
    machine = ResponseStreamStateMachine(
        "m", response_id="resp_0", wire=client if speaks else "openresponses", unknown_fields=speaks
    )
    side = dialects()[upstream].upstream
    assert side is not None
    inbound = side.inbound(machine, AnswerContext(side.options(), _SEALER, ToolIdentityMap()))
    events = [event for frame in frames for event in inbound.feed(encode(frame), str(frame.get("type", "")))]
    events += inbound.close()
    if speaks:
        whole, sent, lost = encode(machine.snapshot), [encode(event) for event in events], Diagnostics()
    else:
        whole, sent, lost = _translated(events, machine.snapshot, client)
    losses = [(case.where, case.what) for each in (machine.diagnostics, lost) for case in each.of("loss")]
    return Received(decode_json(whole) if whole else None, [decode_json(each) for each in sent], losses)


def _translated(
    events: list[Event], response: Response, client: str
) -> tuple[bytes | None, list[bytes], Diagnostics]:
    """The whole answer, the payloads of the stream, and what was lost."""
    side = dialects()[client].client
    assert side is not None
    assert side.whole is not None
    outbound = side.outbound()
    chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
    lines = side.encode(chunks).splitlines()
    payloads = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: {")]
    return side.whole(response, _SEALER), payloads, outbound.diagnostics


def forms(upstream: str, said: Json | list[Json]) -> dict[str, list[Json]]:
    """The frames of such an answer: whole, and the stream that the bridge itself makes of it for a client of
    the same API, to which nothing is lost."""
    if isinstance(said, list):
        return {"streamed": said}
    whole = _with(_ANSWERS[upstream], said)
    same = "openai" if upstream == PROTOCOL else upstream
    heads = {name: whole[name] for name in _HEADS if name in whole}
    return {
        "whole": [whole],
        "streamed": [_renamed(frame, heads) for frame in received([whole], upstream, same).frames],
    }


def _renamed(frame: Json, heads: Json) -> Json:
    """The frame with the upstream's own names, in the place of ours."""
    within = {name: frame[name] for name in ("message", "response", "interaction") if name in frame}
    changed = {name: each | {key: heads[key] for key in heads.keys() & each} for name, each in within.items()}
    return {**frame, **changed, **{key: heads[key] for key in heads.keys() & frame}}


def places(value: Any, found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths at which this stands, without the indexes of lists."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from places(each, found, (*path, name))
    elif isinstance(value, list):
        for each in value:
            yield from places(each, found, path)
    elif value == found and type(value) is type(found):
        yield path
    elif isinstance(value, str) and value.startswith("{") and isinstance(found, str) and found in value:
        yield path  # of JSON in a text


def _is_ours(path: tuple[str, ...]) -> bool:
    return any(name.startswith(OURS) for name in path)


def _places(value: Any, found: Any) -> list[str]:
    """Where this stands: in fields of the client's API, else in one of ours."""
    at = sorted(set(places(value, found)))
    native = [path for path in at if not _is_ours(path)]
    return [".".join(path) for path in native] or [".".join(_until_ours(path)) for path in at][:1]


def _until_ours(path: tuple[str, ...]) -> tuple[str, ...]:
    return path[: next(index for index, name in enumerate(path) if name.startswith(OURS)) + 1]


@cache
def _usual_losses(upstream: str, client: str) -> frozenset[tuple[str, str]]:
    return frozenset(received([_ANSWERS[upstream]], upstream, client).lost)


def outcome(feature: Feature, upstream: str, client: str, answers: Mapping[str, list[Json]]) -> str:
    """What becomes of the feature of these answers, by their forms, at this client, in whatever form it gets
    them: where it is sent, how it is answered, why it is lost."""
    expected, usual = feature.called.get(client, feature.found), _usual_losses(upstream, client)
    fates: dict[str, str] = {}
    for form, frames in answers.items():
        answer = received(frames, upstream, client)
        lost = [what for where, what in answer.lost if (where, what) not in usual]
        for to, value in (("whole", answer.whole), ("streamed", answer.frames)):
            if value is not None:
                fate = _fate(_places(value, expected), lost, feature.ours.get(client))
                fates[f"{form} to {to}"] = fate
    kinds = {each.partition(" ")[0] for each in fates.values()}
    if len(kinds) == 1:
        return next(iter(fates.values()))
    return "; ".join(f"{form}: {each}" for form, each in fates.items())


def _fate(at: list[str], lost: list[str], ours: str | None) -> str:
    if at:
        return "sent as " + ", ".join(f"`{each}`" for each in at)
    if lost:
        return f"loss: {lost[0]}"
    return f"answered: {ours}" if ours else "loss, untold"


def answer_lines() -> list[str]:
    """The section of the page."""
    lines = [
        "## Features of answers",
        "",
        "Each row is a feature of answers; each cell says how it arrives at a client, from upstreams with",
        "their default options. *Answered* means that the bridge gives its own value. The table comes from",
        "translating such an answer, whole and as a stream, for each client; a cell lists the cases",
        "separately if they differ.",
        "",
        "| feature | from | " + " | ".join(f"to {title}" for title in CLIENTS.values()) + " |",
        "| --- | --- |" + " --- |" * len(CLIENTS),
    ]
    for feature in FEATURES:
        for upstream, content in feature.said.items():
            answers = forms(upstream, content)
            cells = [outcome(feature, upstream, client, answers) for client in CLIENTS]
            lines.append(f"| {feature.title} | {UPSTREAMS[upstream]} | " + " | ".join(cells) + " |")
    return [*lines, ""]
