"""Fields that pass unread ask for no other model, and no reader takes one for another, on any surface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.managed_keys import Managed
from tests.support.serving import call, serving
from tests.support.upstream import Script, ScriptedUpstream, text

MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"model": "m", "input": "Hi", "store": False},
    "/v1/chat/completions": {"model": "m", "messages": MESSAGES},
    "/v1/messages": {"model": "m", "messages": MESSAGES, "max_tokens": 9},
    "/v1beta/models/m:generateContent": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    "/v1/completions": {"model": "m", "prompt": "Hi"},
    "/v1/embeddings": {"model": "m", "input": "Hi"},
}
ROUTING = {"models": ["n"], "route": "fallback", "fallbacks": ["n"], "Models": ["n"], "extra_body": {"a": 1}}
EDIT = (
    b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--x\r\ncontent-disposition: form-data; name="%s"\r\n\r\nn\r\n--x--\r\n'
)
FORM = {"content-type": "multipart/form-data; boundary=x"}
FREE = {"authorization": "Bearer free"}


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Managed, ScriptedUpstream]]:
    store = f"sqlite:///{tmp_path_factory.mktemp('store') / 'keys.db'}"
    with ScriptedUpstream({"m": Script(text("Hi"))}) as upstream:
        settings = Settings(
            upstreams=[UpstreamSettings(url=upstream.url)],
            store=store,
            managed_keys=True,
            api_keys=[hashed("free")],
            forwarding=["completions", "embeddings", "images"],
        )
        with serving(settings) as base:
            yield Managed(base, store), upstream


@pytest.fixture(scope="module")
def limited(managed: tuple[Managed, ScriptedUpstream]) -> dict[str, str]:
    """The header of a key for one model alone."""
    keys, _ = managed
    _, headers = keys.add("--model", "m")
    keys.becomes(headers, 200)
    return headers


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("field", ROUTING)
def test_s7_a_key_for_one_model_names_no_others(
    managed: tuple[Managed, ScriptedUpstream], limited: dict[str, str], path: str, field: str
) -> None:
    keys, upstream = managed
    body = {**BODIES[path], field: ROUTING[field]}
    before = len(upstream.received)
    assert call(keys.base, "POST", path, body, limited).status == 403
    assert len(upstream.received) == before
    assert call(keys.base, "POST", path, BODIES[path], limited).status != 403
    assert call(keys.base, "POST", path, body, FREE).status != 403, "a key for all models may"


@pytest.mark.parametrize("field", ["routingConfig", "modelSelectionConfig", "routing_config"])
def test_s7_nor_does_it_within_geminis_settings(
    managed: tuple[Managed, ScriptedUpstream], limited: dict[str, str], field: str
) -> None:
    keys, upstream = managed
    path = "/v1beta/models/m:generateContent"
    body = {**BODIES[path], "generationConfig": {field: {"manualMode": {"modelName": "n"}}}}
    before = len(upstream.received)
    assert call(keys.base, "POST", path, body, limited).status == 403
    assert len(upstream.received) == before
    assert call(keys.base, "POST", path, body, FREE).status != 403


def test_s7_nor_does_it_in_a_form(managed: tuple[Managed, ScriptedUpstream], limited: dict[str, str]) -> None:
    keys, upstream = managed
    before = len(upstream.received)
    for name in (b"fallbacks", b"Route"):
        reply = call(keys.base, "POST", "/v1/images/edits", EDIT % name, {**limited, **FORM})
        assert reply.status == 403
    assert len(upstream.received) == before


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("field", ["Service_Tier", "N", "MODEL", "Max_Tokens", "Messages", "INPUT"])
def test_a_name_in_another_case_is_refused_with_the_right_one(
    managed: tuple[Managed, ScriptedUpstream], path: str, field: str
) -> None:
    """Some servers take it for the field, and the last one that they read."""
    keys, upstream = managed
    before = len(upstream.received)
    reply = call(keys.base, "POST", path, {**BODIES[path], field: 1}, FREE)
    assert (reply.status, len(upstream.received)) == (400, before)
    assert f"the field is called {field.lower()}" in str(reply.json)
