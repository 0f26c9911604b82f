"""Each field of google-genai's own types: google-genai sends it to a Gemini upstream, whole and streamed, and
reads it in the answers. A version with a new field fails here with the name of the field; `python -m
tests.support.gemini_fields` adds it to the list."""

import json
from collections.abc import Iterator
from copy import deepcopy
from importlib.metadata import version
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.gemini_fields import (
    OF_CLIENT,
    alike,
    as_answer,
    fields_in_list,
    fields_of_sdk,
    is_ours,
    missing,
    parts_joined,
)
from tests.support.serving import serving
from tests.support.upstream import JSON, Script, ScriptedUpstream

genai = pytest.importorskip("google.genai")
types = pytest.importorskip("google.genai.types")
models = pytest.importorskip("google.genai.models")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
Json = dict[str, Any]
LISTED = fields_in_list()
HELLO: Json = {"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}]}


@pytest.fixture
def client(upstream: ScriptedUpstream) -> Iterator[Any]:
    reached = UpstreamSettings(name="g", url=upstream.url, dialect="gemini", models=["gemini-*"])
    with serving(Settings(store="memory://", upstreams=[reached])) as base:
        options = types.HttpOptions(base_url=base.removesuffix("/v1"))
        yield genai.Client(api_key="none", http_options=options)


def script(said: Json, streamed: bool) -> Script:
    """An upstream's answer in the form that the request asks for."""
    if streamed:
        return Script([f"data: {json.dumps(said)}\n\n".encode()])
    return Script([json.dumps(said).encode()], 200, JSON)


def test_n1_the_list_is_that_of_the_newest_types() -> None:
    sections = fields_of_sdk()
    for section, fields in sections.items():
        unlisted = sorted(fields.keys() - LISTED[section].keys())
        assert unlisted == [], f"google-genai {version('google-genai')} has fields that no test sends"
    assert sections == LISTED
    for field in OF_CLIENT:
        kind, _, name = field.partition(".")
        aliases = {each.alias or own for own, each in getattr(types, kind).model_fields.items()}
        assert name in aliases, f"{field} is not the client's any more"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_n1_each_field_that_the_client_sends_arrives(
    client: Any, upstream: ScriptedUpstream, streamed: bool
) -> None:
    kind = "streamGenerateContent?alt=sse" if streamed else "generateContent"
    upstream.scripts["gemini-3-pro"] = script(HELLO, streamed)
    lost: dict[str, list[str]] = {}
    for field, body in LISTED["requests"].items():
        if is_ours("requests", field):
            continue
        response = client._api_client.request("post", f"models/gemini-3-pro:{kind}", deepcopy(body))
        paths = missing(alike(body), alike(upstream.last("gemini-3-pro").body))
        losses = response.headers.get("openresponses-losses")
        if paths or losses:
            lost[field] = [*paths, *([losses] if losses else [])]
    assert lost == {}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_n1_each_field_of_an_answer_is_read_by_the_client(
    client: Any, upstream: ScriptedUpstream, streamed: bool
) -> None:
    lost: dict[str, list[str]] = {}
    for field, sample in LISTED["answers"].items():
        if is_ours("answers", field):
            continue
        answer = as_answer(deepcopy(sample))
        upstream.scripts["gemini-3-pro"] = script(answer, streamed)
        direct = models._GenerateContentResponse_from_mldev(deepcopy(answer))
        expected = types.GenerateContentResponse._from_response(response=direct, kwargs={})
        config = {"thinking_config": {"include_thoughts": True}}
        ask = {"model": "gemini-3-pro", "contents": "Hello", "config": config}
        if streamed:
            actual = _folded(list(client.models.generate_content_stream(**ask)))
        else:
            actual = _read(client.models.generate_content(**ask))
        if paths := missing(parts_joined(_read(expected)), parts_joined(actual)):
            lost[field] = paths
    assert lost == {}


def _read(answer: Any) -> Json:
    left_out = {"sdk_http_response", "automatic_function_calling_history", "parsed", "response_id"}
    fields: Json = answer.model_dump(mode="json", exclude_none=True, by_alias=True, exclude=left_out)
    return fields


def _folded(chunks: list[Any]) -> Json:
    """The answer as the reader of a stream has it at the end: the last value of each field, and all parts."""
    whole: Json = {}
    candidate: Json = {}
    parts: list[Json] = []
    for chunk in map(_read, chunks):
        for each in chunk.pop("candidates", ()):
            parts += [part for part in each.get("content", {}).get("parts", []) if part != {"text": ""}]
            tokens = {**candidate.get("logprobsResult", {}), **each.get("logprobsResult", {})}
            candidate |= each | ({"logprobsResult": tokens} if tokens else {})
        whole |= chunk
    if candidate:
        whole["candidates"] = [candidate | {"content": {"role": "model", "parts": parts}}]
    return whole
