"""botocore's own client of Bedrock's runtime, which boto3 wraps, for a server in a test; and folds of its
streams."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.dialects.bedrock_converse import EventStreamDecoder
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.serving import PATIENT, serving
from tests.support.upstream import ScriptedUpstream


def leave_environment(patch: pytest.MonkeyPatch, folder: Path, *prefixes: str) -> None:
    """Hide this machine's own configuration from the SDKs: variables with these prefixes, and Amazon's
    files."""
    for name in [each for each in os.environ if each.startswith(prefixes)]:
        patch.delenv(name)
    patch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@contextmanager
def serving_each(upstream: ScriptedUpstream, models: dict[str, list[str]]) -> Iterator[str]:
    """A server over one upstream of each of these dialects, with the models of each."""
    upstreams = [
        UpstreamSettings(
            name=dialect,
            url=upstream.url.removesuffix("/v1") if dialect == "bedrock" else upstream.url,
            dialect=dialect,
            models=named,
            api_key="key-of-the-upstream",
        )
        for dialect, named in models.items()
    ]
    with serving(Settings(upstreams=upstreams, timeouts=PATIENT, keep_alive=0.1)) as base:
        yield base


def client_of(base: str, **options: Any) -> Any:
    """The unmodified client. It sends the key in AWS_BEARER_TOKEN_BEDROCK, if there is one, to https
    addresses; otherwise it signs its requests."""
    session = pytest.importorskip("botocore.session").get_session()
    config = pytest.importorskip("botocore.config").Config
    session.register_component("data_loader", _loader())
    session.set_credentials("AKIAIOSFODNN7EXAMPLE", "a/secret+of/forty+characters/for+the/tests")
    once = config(retries={"total_max_attempts": 1}, read_timeout=60, connect_timeout=60)
    return session.create_client(
        "bedrock-runtime",
        region_name="eu-west-3",
        endpoint_url=base.removesuffix("/v1"),
        config=once,
        **options,
    )


@cache
def _loader() -> Any:
    """Return the reader of botocore's descriptions of services, a megabyte of JSON, which it caches."""
    return pytest.importorskip("botocore.loaders").create_loader()


def with_header(client: Any, name: str, value: str) -> Any:
    """Add this header to each later request of the client, and return the client."""

    def add(request: Any, **_given: Any) -> None:
        request.headers[name] = value

    client.meta.events.register("before-send.bedrock-runtime", add)
    return client


def streamed(client: Any, **asked: Any) -> Iterator[Any]:
    """The events of `converse_stream`; the connection is closed after the last event or after an
    exception."""
    with closing(client.converse_stream(**asked)["stream"]) as stream:
        yield from stream


def chunks(client: Any, **asked: Any) -> Iterator[Any]:
    """The events of Messages in `invoke_model_with_response_stream`; the connection is closed as in
    `streamed`."""
    with closing(client.invoke_model_with_response_stream(**asked)["body"]) as stream:
        for event in stream:
            yield json.loads(event["chunk"]["bytes"])


def invoked(data: bytes) -> list[Any]:
    """The events of Messages in the bytes of a stream; an exception appears as its `error`."""
    decoder, events = EventStreamDecoder(), []
    for headers, payload in decoder.feed(data):
        if headers.get(":event-type") == "chunk":
            events.append(json.loads(base64.b64decode(json.loads(payload)["bytes"])))
        elif (name := headers.get(":exception-type")) is not None:
            events.append({"type": "error", "error": {"type": name, **json.loads(payload)}})
    decoder.close()
    return events


def text_in(events: Iterable[Any]) -> str:
    """The text of a stream."""
    deltas = (each["contentBlockDelta"]["delta"] for each in events if "contentBlockDelta" in each)
    return "".join(delta.get("text", "") for delta in deltas)


def message_of(events: Iterable[Any]) -> Any:
    """The message that a stream adds up to, in the form in which clients send it back."""
    blocks: dict[int, Any] = {}
    for event in events:
        ((kind, fields),) = event.items()
        if kind == "contentBlockStart":
            block = blocks.setdefault(fields["contentBlockIndex"], dict(fields["start"]))
            if "toolUse" in block:
                block["toolUse"] = {**block["toolUse"], "input": ""}
        elif kind == "contentBlockDelta":
            _grow(blocks.setdefault(fields["contentBlockIndex"], {}), fields["delta"])
    return {"role": "assistant", "content": [_whole(blocks[index]) for index in sorted(blocks)]}


def _grow(block: Any, delta: Any) -> None:
    ((kind, value),) = delta.items()
    if kind == "text":
        block["text"] = block.get("text", "") + value
    elif kind == "toolUse":
        block["toolUse"]["input"] += value["input"]
    elif kind == "reasoningContent":
        inner = block.setdefault(kind, {})
        for name, piece in value.items():
            inner[name] = inner[name] + piece if name in inner else piece


def _whole(block: Any) -> Any:
    if "toolUse" in block:
        block["toolUse"]["input"] = json.loads(block["toolUse"]["input"] or "{}")
    inner = block.get("reasoningContent", {})
    if "text" in inner or "signature" in inner:
        return {"reasoningContent": {"reasoningText": {"text": "", **inner}}}
    return block
