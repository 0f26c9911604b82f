"""Law S10: what an endpoint costs, in processor time and in peak memory, is linear in its worst known input.

One row is a route and what makes its input of about so many bytes. A row's cost is taken small and large, in
process; the large one may cost little more than its share. Every route has at least one row.
"""

from __future__ import annotations

import base64
import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any, NamedTuple

import pytest
from starlette.routing import Route, WebSocketRoute

from openresponses_server.requests.forwarding import ENDPOINTS
from openresponses_server.settings import Limits, Settings, Tracing, WebSearchSettings
from tests.support.in_process import InProcess
from tests.support.stores import streamed

SMALL, TIMES = 8_000, 8
LARGE = SMALL * TIMES
HUGE = LARGE * TIMES
# Linear is at most 8 times, quadratic 64: between them is room for a busy machine.
MOST = TIMES * 2.75
TOO_LITTLE_SECONDS = 0.01  # what takes less than that shows nothing
TOO_LITTLE_BYTES = 1_000_000

Ask = Callable[[int], Any]
"""About so many bytes → a body as an object or as bytes, or a path."""


class Row(NamedTuple):
    """`ask` makes the body of a POST or a WebSocket message, and the target of any other request. A target
    `{id}` is that of a response or conversation which was stored from the body that `ask` makes."""

    method: str
    route: str
    name: str
    ask: Ask
    status: int = 200
    query: str = ""


# ── inputs ─────────────────────────────────────────────────────────────────────────────────────────────
_WORD = "a-rather-long-word "  # each of them is a delta of the demo model's answer, which costs most


def _many(make: Callable[[int], Any], size: int) -> list[Any]:
    """As many of these as make about `size` bytes."""
    return [make(at) for at in range(size // len(json.dumps(make(10_000))))]


def _response(size: int, **fields: Any) -> dict[str, Any]:
    return {"model": "demo", "input": "Hi", **fields}


def _text(size: int) -> dict[str, Any]:
    return _response(size, input=_WORD * (size // len(_WORD)))


def _messages(size: int) -> dict[str, Any]:
    return _response(size, input=_many(lambda at: {"role": "user", "content": f"{at}"}, size))


def _parts(size: int) -> dict[str, Any]:
    parts = _many(lambda at: {"type": "input_text", "text": f"{at}"}, size)
    return _response(size, input=[{"role": "user", "content": parts}])


def _calls(size: int) -> dict[str, Any]:
    def pair(at: int) -> list[dict[str, Any]]:
        call = {"type": "function_call", "call_id": f"c{at}", "name": "f", "arguments": "{}"}
        return [call, {"type": "function_call_output", "call_id": f"c{at}", "output": "1"}]

    return _response(size, input=[*(each for both in _many(pair, size) for each in both), _USER])


def _unpaired(size: int) -> dict[str, Any]:
    return _response(
        size,
        input=_many(lambda at: {"type": "function_call_output", "call_id": f"c{at}", "output": "1"}, size),
    )


def _tool(size: int) -> dict[str, Any]:
    properties = {f"p{at}": {"type": "string"} for at in range(size // 24)}
    return _response(
        size,
        tools=[{"type": "function", "name": "f", "parameters": {"type": "object", "properties": properties}}],
    )


def _metadata(size: int) -> dict[str, Any]:
    return _response(size, metadata={f"k{at}": "v" for at in range(size // 12)})


def _unclosed(size: int) -> bytes:
    """An unclosed string behind many brackets: what a scan for depth has to read."""
    return b'{"model": "demo", "input": ' + b"[" * 129 + b'"' + b"\\a" * (size // 2)


def _siblings(size: int) -> bytes:
    return b'{"model": "demo", "input": "Hi", "x": [' + b"[]," * (size // 3) + b"[]]}"


def _chat(size: int, **fields: Any) -> dict[str, Any]:
    messages = _many(lambda at: {"role": ("user", "assistant")[at % 2], "content": f"{at}"}, size)
    return {"model": "demo", "messages": [*messages, _USER], **fields}


def _chat_calls(size: int) -> dict[str, Any]:
    def pair(at: int) -> list[dict[str, Any]]:
        call = {"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        answer = {"role": "tool", "tool_call_id": f"c{at}", "content": "1"}
        return [{"role": "assistant", "tool_calls": [call]}, answer]

    messages = [each for both in _many(pair, size) for each in both]
    return {"model": "demo", "messages": [*messages, _USER], "stream": True}


def _anthropic(size: int) -> dict[str, Any]:
    blocks = _many(lambda at: {"type": "text", "text": f"{at}"}, size)
    return {"model": "demo", "max_tokens": 99, "messages": [{"role": "user", "content": blocks}]}


def _anthropic_calls(size: int) -> dict[str, Any]:
    def pair(at: int) -> list[dict[str, Any]]:
        call = {"type": "tool_use", "id": f"t{at}", "name": "f", "input": {}}
        answer = {"type": "tool_result", "tool_use_id": f"t{at}", "content": "1"}
        return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]

    messages = [each for both in _many(pair, size) for each in both]
    return {"model": "demo", "max_tokens": 99, "messages": messages, "stream": True}


def _gemini(size: int) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": _many(lambda at: {"text": f"part {at}"}, size)}]}


def _steps(size: int) -> dict[str, Any]:
    content = _many(lambda at: {"type": "text", "text": f"part {at}"}, size)
    return {"model": "demo", "input": [{"type": "user_input", "content": content}]}


def _gemini_calls(size: int) -> dict[str, Any]:
    def pair(at: int) -> list[dict[str, Any]]:
        return [
            {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"at": at}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"at": at}}}]},
        ]

    return {"contents": [each for two in _many(pair, size) for each in two]}


def _converse(size: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": _many(lambda at: {"text": f"block {at}"}, size)}]}


def _converse_counted(size: int) -> dict[str, Any]:
    return {"input": {"converse": _converse(size)}}


def _converse_calls(size: int) -> dict[str, Any]:
    def pair(at: int) -> list[dict[str, Any]]:
        called = {"toolUse": {"toolUseId": f"c{at}", "name": "look", "input": {"at": at}}}
        seen = {"toolResult": {"toolUseId": f"c{at}", "content": [{"json": {"at": at}}]}}
        return [{"role": "assistant", "content": [called]}, {"role": "user", "content": [seen]}]

    return {"messages": [each for two in _many(pair, size) for each in two]}


def _invoked(size: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": _many(lambda at: {"type": "text", "text": f"block {at}"}, size)}]
    return {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": messages}


def _invoked_counted(size: int) -> dict[str, Any]:
    body = base64.b64encode(json.dumps(_invoked(size)).encode()).decode()
    return {"input": {"invokeModel": {"body": body}}}


def _vscode(size: int) -> dict[str, Any]:
    parts = _many(lambda at: {"type": "LanguageModelTextPart", "value": f"{at}"}, size)
    return {"model": "demo", "messages": [{"role": 1, "content": parts}]}


def _marked(size: int) -> dict[str, Any]:
    """A chat whose every answer names a response that is not there."""

    def turn(at: int) -> list[dict[str, Any]]:
        marker = {"mimeType": "stateful_marker", "data": "ZGVtb1xyZXNwXzA="}
        return [
            {"role": 1, "content": [{"value": f"{at}"}]},
            {"role": 2, "content": [{"value": "x"}, marker]},
        ]

    return {
        "model": "demo",
        "messages": [*(each for both in _many(turn, size) for each in both), {"role": 1, "content": "Hi"}],
    }


def _commands(size: int) -> dict[str, Any]:
    pages = _many(lambda at: {"ref_id": f"http://127.0.0.1/{at}", "pattern": "x"}, size // 3)
    searches = _many(lambda at: {"q": f"{at}", "domains": ["a.example"]}, size // 3)
    return {"commands": {"search_query": searches, "open": pages, "find": pages}}


def _searched(size: int) -> dict[str, Any]:
    return {"input": _messages(size)["input"], "commands": {"time": [{"utc_offset": "+01:00"}]}}


def _items(size: int) -> dict[str, Any]:
    return {"items": _messages(size)["input"]}


def _counted(size: int) -> dict[str, Any]:
    return {"model": "demo", "text": _WORD * (size // len(_WORD))}


def _rounds(size: int) -> dict[str, Any]:
    counts = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    details = {"cached_tokens": 0, "reasoning_tokens": 0, "cache_write_tokens": 0}
    usage = {
        **counts,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
        "openresponses-bridge:rounds": _many(lambda _: {**counts, **details}, size),
    }
    return {"model": "demo", "usage": usage}


def _forwarded(size: int) -> dict[str, Any]:
    return {"model": "demo", "input": _many(lambda at: f"{at}", size)}


def _form(size: int) -> bytes:
    """A form with nearly as many parts as a form may have, each full of what looks like its end."""
    content = b"\r\n--\r\n-" * (size // 1600)
    part = b'--b\r\ncontent-disposition: form-data; name="%d"\r\n\r\n%b\r\n'
    model = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\ndemo\r\n'
    return b"".join(part % (at, content) for at in range(200)) + model + b"--b--"


def _capture(size: int) -> bytes:
    return streamed("word ", size // 160)[1].data


def _long_line(size: int) -> bytes:
    return b'{"type":"response.created","x":' + b"[" * size


def _message(size: int) -> dict[str, Any]:
    return {"type": "response.create", **_messages(size)}


def _target(path: str, most: int = 60_000) -> Ask:
    """A path with a long end: servers of HTTP bound it, and so do the headers' limit."""
    return lambda size: path + "x" * min(size, most)


_USER = {"role": "user", "content": "Hi"}
_STORED = "/v1/responses/{id}"
_KEPT = "/v1/conversations"
ROWS = (
    Row("POST", "/v1/responses", "text", _text),
    Row("POST", "/v1/responses", "messages", _messages),
    Row("POST", "/v1/responses", "parts", _parts),
    Row("POST", "/v1/responses", "calls", _calls),
    Row("POST", "/v1/responses", "unpaired outputs", _unpaired, 400),
    Row("POST", "/v1/responses", "one large tool", _tool),
    Row("POST", "/v1/responses", "metadata", _metadata, 400),
    Row("POST", "/v1/responses", "an unclosed string", _unclosed, 400),
    Row("POST", "/v1/responses", "empty arrays", _siblings),
    Row("POST", "/v1/responses/compact", "messages", _messages),
    Row("POST", "/v1/responses/input_tokens", "messages", _messages),
    Row("POST", "/v1/responses/input_tokens", "calls", _calls),
    Row("POST", "/v1/alpha/search", "commands", _commands),
    Row("POST", "/v1/alpha/search", "messages", _searched),
    Row("POST", "/v1/chat/completions", "messages", _chat),
    Row("POST", "/v1/chat/completions", "calls", _chat_calls),
    Row("POST", "/v1/messages", "blocks", _anthropic),
    Row("POST", "/v1/messages", "calls", _anthropic_calls),
    Row("POST", "/v1/messages/count_tokens", "blocks", _anthropic),
    *(
        Row("POST", f"/v1beta/models/{{model:path}}:{verb}", "contents", _gemini)
        for verb in ("generateContent", "streamGenerateContent", "countTokens")
    ),
    Row("POST", "/v1beta/models/{model:path}:generateContent", "calls", _gemini_calls),
    Row("GET", "/v1beta/models", "a long query", _target("/v1beta/models?")),
    Row("GET", "/v1beta/models/{model:path}", "a long name", _target("/v1beta/models/"), 404),
    Row("POST", "/v1beta/interactions", "steps", _steps),
    Row("GET", "/v1beta/interactions/{id:path}", "a long id", _target(""), 404),
    Row("DELETE", "/v1beta/interactions/{id:path}", "a long id", _target(""), 404),
    Row("POST", "/v1beta/interactions/{id:path}/cancel", "a long id", _target(""), 404),
    Row("POST", "/model/{model:path}/converse", "blocks", _converse),
    Row("POST", "/model/{model:path}/converse-stream", "blocks", _converse),
    Row("POST", "/model/{model:path}/count-tokens", "blocks", _converse_counted),
    Row("POST", "/model/{model:path}/converse", "calls", _converse_calls),
    Row("POST", "/model/{model:path}/invoke", "blocks", _invoked),
    Row("POST", "/model/{model:path}/invoke-with-response-stream", "blocks", _invoked),
    Row("POST", "/model/{model:path}/count-tokens", "blocks in base64", _invoked_counted),
    *(Row("POST", path, "texts", _forwarded, 404) for path in ENDPOINTS),
    *(Row("POST", path, "a form", _form, 404) for path, each in ENDPOINTS.items() if each.forms),
    Row("GET", "/v1/usage", "a long query", _target("/v1/usage?")),
    Row("POST", "/vscode/v1/chat", "parts", _vscode),
    Row("POST", "/vscode/v1/chat", "markers", _marked),
    Row("POST", "/vscode/v1/tokens", "text", _counted),
    Row("GET", "/vscode/v1/models", "a long version", _target("/vscode/v1/models?since=")),
    Row("WEBSOCKET", "/v1/responses", "messages", _message),
    Row("GET", "/v1/responses", "a long query", _target("/v1/responses?"), 426),
    Row("GET", _STORED, "a long answer", _text),
    Row("GET", _STORED, "its stream", _text, query="?stream=true"),
    Row("GET", _STORED + "/input_items", "messages", _messages, query="?limit=100"),
    Row("GET", _STORED + "/trace", "messages", _messages),
    Row("POST", _STORED + "/cancel", "one that has ended", _text, 400),
    Row("DELETE", _STORED, "messages", _messages),
    Row("POST", _KEPT, "messages", _items),
    Row("POST", _KEPT + "/{id}", "metadata", _metadata, 400),
    Row("GET", _KEPT + "/{id}", "many items", _items),
    Row("DELETE", _KEPT + "/{id}", "many items", _items),
    Row("POST", _KEPT + "/{id}/items", "messages", _items),
    Row("GET", _KEPT + "/{id}/items", "many items", _items, query="?limit=100"),
    Row("GET", _KEPT + "/{id}/items/{item_id:path}", "a long id", _items, 404),
    Row("DELETE", _KEPT + "/{id}/items/{item_id:path}", "a long id", _items, 404),
    Row("GET", "/v1/models", "a long query", _target("/v1/models?")),
    Row("GET", "/v1/models/{model:path}", "a long name", _target("/v1/models/"), 404),
    Row("POST", "/inspector/v1/responses", "text", _text),
    Row("GET", "/inspector/v1/responses", "a long query", _target("/inspector/v1/responses?search="), 400),
    Row("GET", "/inspector/v1/responses/{id}", "a long answer", _text),
    Row("GET", "/inspector/v1/responses/{id}/request", "a long request", _messages),
    Row("POST", "/inspector/v1/captures", "a stream", _capture),
    Row("POST", "/inspector/v1/captures", "one long line", _long_line, 400),
    Row("POST", "/inspector/v1/context", "messages", _messages),
    Row("POST", "/inspector/v1/cost", "rounds", _rounds),
    Row("GET", "/", "a long query", _target("/?"), 404),
    Row("GET", "/inspector", "a long query", _target("/inspector?"), 307),
    Row("GET", "/inspector/{file:path}", "a long name", _target("/inspector/"), 404),
    Row("GET", "/healthz", "a long query", _target("/healthz?")),
    Row("GET", "/readyz", "a long query", _target("/readyz?")),
    Row("GET", "/metrics", "a long query", _target("/metrics?")),
    Row("GET", "/v1/routes", "a long query", _target("/v1/routes?")),
    Row("GET", "/openapi.json", "a long query", _target("/openapi.json?")),
)


# ── the measure ────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    trace = Tracing(folder=str(tmp_path_factory.mktemp("traces")), when="asked")
    search = WebSearchSettings(provider="searxng", url="http://127.0.0.1:9")  # nothing is there
    limits = Limits(tools=4_000, items=100_000)
    forwarding = sorted({each.setting for each in ENDPOINTS.values()})
    running = InProcess(Settings(limits=limits, trace=trace, web_search=search, forwarding=forwarding))
    yield running
    running.close()


def prepared(app: InProcess, row: Row, size: int) -> Callable[[], None]:
    """The request, ready to be made once; it checks that it was answered as the row says."""
    request = row.ask(size)
    if row.method == "WEBSOCKET":
        message = json.dumps(request).encode()
        return lambda: _ended(app.turns([message])[0])
    target, body = row.route.replace("{model:path}", "demo"), request
    if row.route.startswith(_KEPT):
        resource = app.call("POST", _KEPT, {"metadata": {}} if row.method == "POST" else request)
        target = (
            row.route.replace("{id}", resource.json["id"]).replace("{item_id:path}", "x" * size) + row.query
        )
        body = request if row.method == "POST" else b""
    elif "{id:path}" in row.route:
        target, body = row.route.replace("{id:path}", request), b""
    elif "{id}" in row.route:
        traced = [(b"openresponses-trace", b"1")] if row.route.endswith("/trace") else []
        resource = app.call("POST", "/v1/responses", request, traced)
        target, body = row.route.replace("{id}", resource.json["id"]) + row.query, b""
    elif row.method != "POST":
        target, body = request, b""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    captured = row.route.endswith("/captures")
    headers = [(b"content-type", b"application/octet-stream")] if captured else []
    if row.name == "a form":
        headers = [(b"content-type", b"multipart/form-data; boundary=b")]

    def make() -> None:
        reply = app.call(row.method, target, payload, headers)
        assert reply.status == row.status, (reply.status, reply.body[:400])

    return make


def _ended(events: list[dict[str, Any]]) -> None:
    assert events[-1]["type"] == "response.completed", events[-1]


def seconds(app: InProcess, row: Row, size: int, runs: int) -> float:
    spent = []
    for _ in range(runs):
        make = prepared(app, row, size)
        gc.disable()  # it would look through what other tests left
        try:
            before = process_time()
            make()
            spent.append(process_time() - before)
        finally:
            gc.enable()
    return min(spent)


def peak(app: InProcess, row: Row, size: int) -> int:
    make = prepared(app, row, size)
    tracemalloc.start()
    try:
        make()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def held(app: InProcess, row: Row, small: int, large: int) -> None:
    """Raises AssertionError when the row grows faster than its input."""
    prepared(app, row, small)()  # what is made once is not counted
    few, many = seconds(app, row, small, 2), seconds(app, row, large, 1)
    if many > max(TOO_LITTLE_SECONDS, few * MOST):
        few, many = seconds(app, row, small, 3), seconds(app, row, large, 3)  # once more before it counts
    assert many < max(TOO_LITTLE_SECONDS, few * MOST), f"{few:.4f} s became {many:.4f} s"
    # of half the input: what traces memory is slow, and a square of a million is still seen
    if (most := peak(app, row, large // 2)) >= TOO_LITTLE_BYTES:
        least = peak(app, row, small // 2)
        assert most < least * MOST, f"{least} bytes became {most}"


def test_every_route_has_a_row(app: InProcess) -> None:
    """A path of Gemini's version 1 has that of `v1beta`, whose surface it is."""
    routes: dict[tuple[str, str], Any] = {}
    for route in app.app.routes:
        if isinstance(route, WebSocketRoute):
            routes["WEBSOCKET", route.path] = route.endpoint
            continue
        assert isinstance(route, Route)
        methods = route.methods or {
            each.upper() for each in ("get", "post", "delete") if hasattr(route.endpoint, each)
        }
        routes |= {(method, route.path): route.endpoint for method in methods - {"HEAD"}}
    rows = {(row.method, row.route) for row in ROWS}
    assert rows <= routes.keys()
    for method, path in routes.keys() - rows:
        newer = method, path.replace("/v1/", "/v1beta/", 1)
        assert newer in rows, f"{method} {path}"
        one, other = routes[method, path], routes[newer]
        assert one.func is other.func
        assert one.args[0].surface is other.args[0].surface


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.route}: {row.name}")
def test_s10_cost_is_linear(app: InProcess, row: Row) -> None:
    held(app, row, SMALL, LARGE)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.route}: {row.name}")
def test_s10_cost_is_linear_for_megabytes_too(app: InProcess, row: Row) -> None:
    held(app, row, 2 * LARGE, 2 * HUGE)


def test_a_quadratic_endpoint_would_be_seen(app: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure itself: work that grows with the square of its input fails a row."""
    row = Row("POST", "/v1/responses/input_tokens", "text", _text)
    call = app.call

    def quadratic(method: str, target: Any, body: Any = b"", headers: Any = ()) -> Any:
        for _ in range(len(body) // 8):
            body.count(b"\0")
        return call(method, target, body, headers)

    monkeypatch.setattr(app, "call", quadratic)
    with pytest.raises(AssertionError, match="s became"):
        held(app, row, SMALL, LARGE)
