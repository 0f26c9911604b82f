"""Paths as other servers' clients spell them, and the key of Azure's."""

import json
from typing import Any

import pytest

from openresponses_server.api.spellings import respell
from openresponses_server.settings import Settings
from openresponses_server.settings.files import hashed
from tests.support import sdks
from tests.support.serving import call, serving

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
ASKED = {"model": "demo", "input": "Hi"}
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


@pytest.fixture(scope="module")
def base() -> Any:
    with serving(Settings(api_keys=[hashed("mine")], default_model="demo")) as address:
        yield address


@pytest.mark.parametrize(
    ("path", "meant", "model"),
    [
        ("/openai/deployments/m1/chat/completions", "/v1/chat/completions", "m1"),
        ("/openai/deployments/a b/embeddings", "/v1/embeddings", "a b"),
        ("/openai/responses", "/v1/responses", None),
        ("/openai/responses/resp_1/input_items", "/v1/responses/resp_1/input_items", None),
        ("/openai/v1/responses", "/v1/responses", None),
        ("//v1///responses", "/v1/responses", None),
        ("/openai//deployments/m1//chat/completions", "/v1/chat/completions", "m1"),
        ("/models/m:generateContent", "/v1beta/models/m:generateContent", None),
        ("/v1/models/hf://a//b", "/v1/models/hf://a//b", None),
        ("/v1//models/m", "/v1/models/m", None),
        ("//v1beta//models/hf://a//b:countTokens", "/v1beta/models/hf://a//b:countTokens", None),
        ("//models/m:generateContent", "/v1beta/models/m:generateContent", None),
        ("/openai//models/m", "/v1/models/m", None),
        ("/models/m", "/models/m", None),
        ("//evil.example", "//evil.example", None),
        ("/inspector//index.html", "/inspector//index.html", None),
        ("/openai/deployments/", "/v1/deployments/", None),
    ],
)
def test_what_a_path_stands_for(path: str, meant: str, model: str | None) -> None:
    scope: dict[str, Any] = {"path": path}
    respell(scope)
    assert scope == {"path": meant} | ({} if model is None else {"openresponses.deployment": model})
    respell(scope)
    assert scope["path"] == meant


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/openai/deployments/demo/chat/completions?api-version=2031-01-01", CHAT),
        ("/openai/deployments/other/chat/completions", CHAT | {"model": "demo"}),
        ("/openai/responses?api-version=2031-01-01", ASKED),
        ("/openai/v1/responses", ASKED),
        ("/openai/v1/chat/completions", CHAT | {"model": "demo"}),
        ("//v1//responses", ASKED),
        ("/models/demo:generateContent", GEMINI),
    ],
)
def test_they_are_served_with_azures_key_and_refused_without_one(base: str, path: str, body: Any) -> None:
    served = call(base, "POST", path, body, {"api-key": "mine"})
    assert served.status == 200
    assert "You said: Hi" in json.dumps(served.json, ensure_ascii=False)
    for headers in ({}, {"api-key": "other"}):
        assert call(base, "POST", path, body, headers).status == 401


def test_azures_client_asks_a_deployment(base: str) -> None:
    azure: Any = sdks.openai.AzureOpenAI
    client = azure(azure_endpoint=base, api_key="mine", api_version="2031-01-01", max_retries=0)
    answer = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "Hi"}])
    assert answer.choices[0].message.content == "You said: Hi"
    client.close()


@pytest.mark.parametrize("path", ["/", "/api/hello"])
def test_who_asks_for_a_head_only_is_told_that_a_server_is_here(base: str, path: str) -> None:
    assert call(base, "HEAD", path).status == 200
    assert call(base, "GET", path).status in (404, 405)
