"""Invariant: every HTTP request and every WebSocket message of one key gets a complete answer in the form of
its surface, never `internal_error`, and never anything that another key has stored."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any, NamedTuple

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.protocol.codec import event_from
from openresponses_bridge.sse import SSEDecoder, is_done
from openresponses_server.settings import Limits, Settings
from openresponses_server.settings.files import hashed
from tests.fuzz.core import Target
from tests.support.in_process import InProcess
from tests.support.serving import Reply

SECRET = "the plan of alice"
ALICE = [(b"authorization", b"Bearer key-of-alice")]
BOB = [(b"authorization", b"Bearer key-of-bob")]
_RESPONSE, _ITEM, _SEAL = b"resp_of_alice", b"item_of_alice", b"seal_of_alice"
_NOT_FUZZED = frozenset({b"authorization", b"x-api-key"})  # otherwise the input might contain Alice's key


class Stage(NamedTuple):
    """A server on which Alice has stored a response and received a sealed history."""

    app: InProcess
    hers: dict[bytes, bytes]

    def named(self, data: bytes) -> bytes:
        """The input with Alice's real ids instead of their placeholders."""
        for word, value in self.hers.items():
            data = data.replace(word, value)
        return data


@cache
def stage() -> Stage:
    """The stage, made once; `close` ends it."""
    app = InProcess(
        Settings(
            api_keys=[hashed("key-of-alice"), hashed("key-of-bob")],
            default_model="demo",
            stored_responses=100,
            max_body_bytes=200_000,
            limits=Limits(output_bytes=1_000_000),
        )
    )
    response = app.call("POST", "/v1/responses", {"input": SECRET}, ALICE).json
    item = app.call("GET", f"/v1/responses/{response['id']}/input_items", headers=ALICE).json["data"][0]
    window = app.call("POST", "/v1/responses/compact", {"model": "demo", "input": SECRET}, ALICE).json
    (seal,) = [each["encrypted_content"] for each in window["output"] if each["type"] == "compaction"]
    return Stage(app, {_RESPONSE: response["id"].encode(), _ITEM: item["id"].encode(), _SEAL: seal.encode()})


def close() -> None:
    """End the server, if there is one."""
    if stage.cache_info().currsize:
        stage().app.close()
        stage.cache_clear()


def any_request(data: bytes) -> None:
    """Send the input as a request: a line with method and target, headers, a blank line, the body."""
    on = stage()
    head, _, body = on.named(data).partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, target = first.partition(b" ")
    fields = [line.partition(b": ") for line in lines]
    headers = [(name.lower(), value) for name, _, value in fields if name.lower() not in _NOT_FUZZED]
    middle = len(body) // 2
    reply = on.app.call(
        method.decode("latin-1") or "GET",
        target if target.startswith(b"/") else b"/" + target,
        [body[:middle], body[middle:]],
        [*headers, *BOB],
    )
    _is_an_answer(reply)


def any_messages(data: bytes) -> None:
    """Send each line as a message."""
    on = stage()
    messages = on.named(data).split(b"\n")[:12]
    for events in on.app.turns(messages, BOB):
        _is_clean(json.dumps(events).encode())
        if events and events[-1]["type"] == "error":
            error = events[-1]["error"]
            assert error["code"] != "internal_error"
            assert events[-1]["status"] < 500 or _is_asked_for(error["message"].encode())
        else:
            validator = StreamValidator()
            broken = [bad for event in events for bad in validator.feed(event_from(event))]
            assert not (broken := broken + validator.close()), [str(each) for each in broken]


def _is_asked_for(answer: bytes) -> bool:
    """Whether a failure is the demo model's, which fails on request."""
    return any(words in answer for words in (b"as asked", b"upstream"))


def _is_an_answer(reply: Reply) -> None:
    assert 200 <= reply.status < 600, reply
    assert reply.status < 500 or _is_asked_for(reply.body), reply
    _is_clean(reply.body)
    kind = reply.headers.get("content-type", "").partition(";")[0]
    if kind == "application/json":
        value = reply.json
        if reply.status >= 400:
            assert isinstance(value["error"]["message"], str)
    elif kind == "text/event-stream":
        decoder = SSEDecoder()
        for frame in decoder.feed(reply.body) + decoder.close():
            assert is_done(frame) or isinstance(json.loads(frame.data), dict)
    elif kind == "application/jsonl":
        for line in reply.body.splitlines():
            assert not line or isinstance(json.loads(line), dict)


def _is_clean(answer: bytes) -> None:
    assert b"internal_error" not in answer
    assert SECRET.encode() not in answer


def _request(method: str, target: str, body: Any = None, **headers: str) -> bytes:
    lines = [f"{method} {target}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\n".join(lines).encode() + b"\n\n" + (b"" if body is None else json.dumps(body).encode())


_INPUT = [{"type": "item_reference", "id": "item_of_alice"}, {"role": "user", "content": "Hi"}]
_FUNCTION = {
    "type": "function",
    "name": "f",
    "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
}
_FORMAT = {
    "type": "json_schema",
    "name": "n",
    "schema": {"type": "object", "properties": {"a": {"enum": [1]}}},
}
REQUESTS = (
    _request("POST", "/v1/responses", {"input": "Hi", "stream": True}),
    _request("POST", "/v1/responses", {"input": _INPUT, "previous_response_id": "resp_of_alice"}),
    _request("POST", "/v1/responses", {"input": "Hi", "tools": [_FUNCTION], "text": {"format": _FORMAT}}),
    _request(
        "POST", "/v1/responses", {"input": [{"type": "compaction", "encrypted_content": "seal_of_alice"}]}
    ),
    _request("POST", "/v1/responses/compact", {"model": "demo", "input": "Hi"}),
    _request("POST", "/v1/responses/input_tokens", {"model": "demo", "input": "Hi", "tools": [_FUNCTION]}),
    _request("GET", "/v1/responses/resp_of_alice?stream=true&starting_after=1"),
    _request("GET", "/v1/responses/resp_of_alice/input_items?limit=5&order=asc&after=item_of_alice"),
    _request("POST", "/v1/responses/resp_of_alice/cancel"),
    _request("DELETE", "/v1/responses/resp_of_alice"),
    _request(
        "POST",
        "/v1/chat/completions",
        {
            "model": "demo",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
    ),
    _request(
        "POST",
        "/v1/messages",
        {"model": "demo", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
        anthropic_version="2023-06-01",
    ),
    _request(
        "POST",
        "/vscode/v1/chat",
        {
            "model": "demo",
            "messages": [{"role": 1, "content": [{"type": "LanguageModelTextPart", "value": "Hi"}]}],
        },
    ),
    _request("GET", "/v1/models/demo", x_request_id="a b", origin="http://[", host="example.com"),
    _request("GET", "/v1/responses", upgrade="websocket", connection="Upgrade", sec_websocket_key="x"),
    b"POST /v1/responses\ncontent-encoding: gzip\n\n" + gzip.compress(b'{"input": "Hi"}', mtime=0),
    _request("GET", "/metrics"),
    _request("GET", "/openapi.json", accept="*/*"),
)
MESSAGES = (
    b'{"type": "response.create", "input": ""}\n{"type": "response.create", "generate": false}',
    b'{"type": "response.create", "input": "a", "previous_response_id": "resp_of_alice", "store": false}\n{}',
    json.dumps(
        {"type": "response.create", "input": _INPUT, "tools": [_FUNCTION], "text": {"format": _FORMAT}}
    ).encode(),
)
WORDS = (
    *(
        _RESPONSE,
        _ITEM,
        _SEAL,
        b"/v1/responses/",
        b"GET ",
        b"POST ",
        b"DELETE ",
        b"PUT ",
        b"%00",
        b"%ff",
        b"../",
    ),
    *(
        b"?limit=-1",
        b"&stream=true",
        b"content-type: ",
        b"content-length: 1",
        b"expect: 100-continue",
        b"\ncookie: a",
    ),
    *(
        b"demo-cut",
        b"content-encoding: gzip",
        b'"background": true,',
        b'"store": false,',
        b'"$ref": "#",',
    ),
)
TARGETS = [Target("http", any_request, REQUESTS, WORDS), Target("websocket", any_messages, MESSAGES, WORDS)]
