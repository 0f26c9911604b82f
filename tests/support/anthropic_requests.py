"""Requests to the Messages API: short ways to write them and to inspect the result."""

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.anthropic_messages import MessagesOptions, to_messages
from openresponses_bridge.errors import BridgeError, InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer
from tests.support.anthropic_rules import violations

Json = dict[str, Any]

PNG = b64encode(b"\x89PNG").decode()
BUDGET = "claude-sonnet-4-5"  # a model that thinks within a budget, and one that thinks by effort
ADAPTIVE = "claude-opus-4-6"
F: Json = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
G: Json = {**F, "name": "g"}


def request(input: Any = "hi", **fields: Any) -> CreateResponse:
    return decode_request(encode({"model": BUDGET, "input": input, **fields}))


def out(
    input: Any = "hi",
    *,
    options: MessagesOptions | None = None,
    sealer: Sealer | None = None,
    history: Sequence[Any] = (),
    identities: ToolIdentityMap | None = None,
    **fields: Any,
) -> tuple[Json, list[str]]:
    """Return (body, places of the losses), after a check of the body against the API's rules."""
    body, noted = to_messages(
        request(input, **fields),
        history=history,
        sealer=sealer,
        tool_identities=identities,
        options=options or MessagesOptions(),
    )
    sent = json.loads(encode(body))
    assert violations(sent) == []
    return sent, [case.where for case in noted if case.kind == "loss"]


def refused(
    input: Any = "hi", options: MessagesOptions | None = None, **fields: Any
) -> tuple[str, str | None]:
    """(code, param) of the error."""
    with pytest.raises(BridgeError) as caught:
        to_messages(request(input, **fields), options=options or MessagesOptions())
    assert isinstance(caught.value, InvalidRequestError)
    assert caught.value.http_status == 400
    return caught.value.code, caught.value.param


def user(*parts: Json) -> Json:
    return {"type": "message", "role": "user", "content": list(parts)}


def words(text: str) -> Json:
    return {"type": "input_text", "text": text}


def said(role: str, text: str) -> Json:
    return {"type": "message", "role": role, "content": text}


def call(call_id: str = "c1", name: str = "f", arguments: str = "{}", **fields: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **fields}


def output(call_id: str = "c1", output: Any = "ok", **fields: Any) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **fields}


def reasoning(**fields: Any) -> Json:
    return {"type": "reasoning", "summary": [], **fields}


def blocks(body: Json) -> list[Json]:
    """Every block of the conversation, in order."""
    return [block for message in body["messages"] for block in message["content"]]


def roles(body: Json) -> list[tuple[str, list[str]]]:
    """Each turn as its role and the kinds of its blocks."""
    return [(turn["role"], [block["type"] for block in turn["content"]]) for turn in body["messages"]]
