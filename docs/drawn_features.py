"""Draws where a feature that several APIs have arrives, from a client of each at every upstream: each request
is translated, and what goes out is looked at. Gemini's are drawn by `drawn_across.py`."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import RequestContext, RequestHead
from openresponses_bridge.dialects.table import dialects, surfaces
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer

Json = dict[str, Any]
CLIENTS = {
    "responses": "Responses",
    "chat": "Chat",
    "anthropic": "Messages",
    "gemini": "Gemini",
    "interactions": "Interactions",
    "bedrock": "Converse",
}
"""Dialects by their names, as the table calls them."""
MODELS = {
    "responses": "gpt-6",
    "chat": "m",
    "anthropic": "claude-opus-4-5",
    "gemini": "gemini-3-pro",
    "interactions": "gemini-3-pro",
    "bedrock": "anthropic.claude-opus-4-5",
}
_SEALER = Sealer()


class Feature(NamedTuple):
    """`said` has a request for each API that has the feature: what its user says, and the fields beside that.
    It has arrived where `found` is found in what goes out."""

    title: str
    found: str
    said: dict[str, Json]


def _user(*parts: Json) -> Json:
    return {"parts": list(parts)}


_SOUND, _FILE, _IMAGE = "QVVESU8=", "https://files.example/a.pdf", "https://files.example/a.png"
FEATURES = (
    Feature(
        "audio",
        _SOUND,
        {
            "responses": _user({"type": "input_audio", "input_audio": {"data": _SOUND, "format": "wav"}}),
            "chat": _user({"type": "input_audio", "input_audio": {"data": _SOUND, "format": "wav"}}),
            "interactions": _user({"type": "audio", "data": _SOUND, "mime_type": "audio/wav"}),
            "bedrock": _user({"audio": {"format": "wav", "source": {"bytes": _SOUND}}}),
        },
    ),
    Feature(
        "an image by its address",
        _IMAGE,
        {
            "responses": _user({"type": "input_image", "image_url": _IMAGE}),
            "chat": _user({"type": "image_url", "image_url": {"url": _IMAGE}}),
            "anthropic": _user({"type": "image", "source": {"type": "url", "url": _IMAGE}}),
            "interactions": _user({"type": "image", "uri": _IMAGE}),
        },
    ),
    Feature(
        "a file by its address",
        _FILE,
        {
            "responses": _user({"type": "input_file", "file_url": _FILE}),
            "anthropic": _user({"type": "document", "source": {"type": "url", "url": _FILE}}),
            "interactions": _user({"type": "document", "uri": _FILE}),
        },
    ),
    Feature(
        "a cache breakpoint",
        r"cache_control|prompt_cache_breakpoint|cachePoint",
        {
            "responses": _user(
                {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}
            ),
            "chat": _user({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}),
            "anthropic": _user({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}),
            "bedrock": _user({"text": "a"}, {"cachePoint": {"type": "default"}}),
        },
    ),
    Feature(
        "a service tier",
        r"service_?[tT]ier",
        {
            "responses": {"service_tier": "default"},
            "chat": {"service_tier": "default"},
            "anthropic": {"service_tier": "standard_only"},
            "interactions": {"service_tier": "standard"},
            "bedrock": {"serviceTier": {"type": "default"}},
        },
    ),
    Feature(
        "stop sequences",
        "ENOUGH",
        {
            "chat": {"stop": ["ENOUGH"]},
            "anthropic": {"stop_sequences": ["ENOUGH"]},
            "interactions": {"generation_config": {"stop_sequences": ["ENOUGH"]}},
            "bedrock": {"inferenceConfig": {"stopSequences": ["ENOUGH"]}},
        },
    ),
    Feature(
        "log probabilities",
        r"[lL]ogprobs",
        {
            "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
            "chat": {"logprobs": True, "top_logprobs": 2},
        },
    ),
    Feature(
        "a tool that runs code",
        r"code_interpreter|code_execution|codeExecution",
        {
            "responses": {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
            "anthropic": {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]},
            "interactions": {"tools": [{"type": "code_execution"}]},
        },
    ),
    Feature(
        "the end user's id, for safety",
        "user-1",
        {
            "responses": {"safety_identifier": "user-1"},
            "chat": {"safety_identifier": "user-1"},
            "anthropic": {"metadata": {"user_id": "user-1"}},
        },
    ),
    Feature(
        "a schema for the answer",
        "answer_field",
        {
            "responses": {
                "text": {"format": {"type": "json_schema", "name": "a", "strict": True, "schema": {
                    "type": "object", "properties": {"answer_field": {"type": "string"}},
                    "required": ["answer_field"], "additionalProperties": False}}}
            },
            "chat": {
                "response_format": {"type": "json_schema", "json_schema": {
                    "name": "a", "strict": True, "schema": {
                        "type": "object", "properties": {"answer_field": {"type": "string"}},
                        "required": ["answer_field"], "additionalProperties": False}}}
            },
            "anthropic": {
                "output_config": {"format": {"type": "json_schema", "schema": {
                    "type": "object", "properties": {"answer_field": {"type": "string"}},
                    "required": ["answer_field"], "additionalProperties": False}}}
            },
            "interactions": {
                "response_format": {"type": "text", "mime_type": "application/json", "schema": {
                    "type": "object", "properties": {"answer_field": {"type": "string"}}}}
            },
            "bedrock": {
                "outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {
                    "schema": '{"type":"object","properties":{"answer_field":{"type":"string"}}}'}}}}
            },
        },
    ),
)  # fmt: skip


def _request(client: str, said: Json) -> tuple[CreateResponse, Diagnostics]:
    """Such a request of a client's, as ours."""
    rest = {name: value for name, value in said.items() if name != "parts"}
    parts = said.get("parts")
    if client == "responses":
        content = [*(parts or ()), {"type": "input_text", "text": "Hi"}]
        body = {"model": "m", "input": [{"type": "message", "role": "user", "content": content}], **rest}
        return decode_request(encode(body)), Diagnostics()
    if client == "bedrock":
        body = {"messages": [{"role": "user", "content": [*(parts or ()), {"text": "Hi"}]}], **rest}
        return _read(client, body)
    content = [*(parts or ()), {"type": "text", "text": "Hi"}]
    if client == "interactions":
        return _read(client, {"model": "m", "input": content, **rest})
    body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": content}], **rest}
    return _read(client, body)


def _read(client: str, body: Json) -> tuple[CreateResponse, Diagnostics]:
    request = surfaces()[client].read(encode(body), RequestHead(sealer=_SEALER))
    return request.request, request.losses or Diagnostics()


def outcome(feature: Feature, client: str, upstream: str) -> str:
    """What becomes of the feature between these APIs: `sent`, or why not."""
    side = dialects()[upstream].upstream
    assert side is not None
    try:
        request, read = _request(client, feature.said[client])
        context = RequestContext((), MODELS[upstream], side.options(), _SEALER, ToolIdentityMap())
        outgoing = side.request(request, context)
    except InvalidRequestError as error:
        return f"refused: {error.message.partition(': ')[2] or error.message}"
    if re.search(feature.found, outgoing.body.decode()):
        return "sent"
    lost = [case.what for each in (read, outgoing.diagnostics) for case in each.of("loss")]
    if lost:
        return f"loss: {lost[0]}"
    return "honoured here" if feature.title == "stop sequences" else "loss, untold"


def feature_lines() -> list[str]:
    """The section of the page."""
    lines = [
        "## Features of several APIs",
        "",
        "Each row is a feature that several APIs have; each cell says how it arrives at upstreams with their",
        "default options. The table comes from translating such a request.",
        "",
        "| feature | from | " + " | ".join(f"at {title}" for title in CLIENTS.values()) + " |",
        "| --- | --- |" + " --- |" * len(CLIENTS),
    ]
    for feature in FEATURES:
        for client in feature.said:
            cells = [outcome(feature, client, upstream) for upstream in CLIENTS]
            lines.append(f"| {feature.title} | {CLIENTS[client]} | " + " | ".join(cells) + " |")
    return [*lines, ""]
