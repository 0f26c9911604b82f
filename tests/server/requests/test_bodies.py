"""Laws S8 and S10: the checks of a body before it is used, on every endpoint that takes one."""

import asyncio
import base64
import gzip
import http.client
import json
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from starlette.requests import ClientDisconnect, Request

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_server.api.app import _ROUTES
from openresponses_server.errors import HttpError
from openresponses_server.http.encodings import Compressed, decoding, zstd
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.memory import available_for
from openresponses_server.limits.requests import check_json
from openresponses_server.requests.bodies import arriving_body, read_json
from openresponses_server.requests.forwarding import ENDPOINTS
from openresponses_server.requests.service import Service
from openresponses_server.settings import Limits, Settings
from tests.support.cases import case
from tests.support.costs import assert_proportional, seconds
from tests.support.serving import call, serving
from tests.support.sockets import opened_socket

LIMITS = Limits(depth=20, json_values=300, items=12, tools=5)
GEMINI = [
    f"/v1beta/models/demo:{verb}" for verb in ("generateContent", "streamGenerateContent", "countTokens")
]
INTERACTIONS = "/v1beta/interactions"
CONVERSE = [f"/model/demo/{verb}" for verb in ("converse", "converse-stream", "count-tokens")]
INVOKE = [f"/model/demo/{verb}" for verb in ("invoke", "invoke-with-response-stream")]
SEARCH = "/v1/alpha/search"
COST = "/inspector/v1/cost"
USAGE = {
    **{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
ROUTES = [
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/inspector/v1/responses",
    "/inspector/v1/context",
    COST,
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    *GEMINI,
    INTERACTIONS,
    *CONVERSE,
    *INVOKE,
    "/vscode/v1/chat",
    "/vscode/v1/tokens",
    "/v1/conversations",
    SEARCH,
]
# what a body gives that is fine; these servers have no search
FINE = dict.fromkeys(ROUTES, (200, "")) | {
    SEARCH: (404, "No search is configured here ([web_search] in the settings).")
}
BODILESS = {
    "/v1/responses/{id}/cancel",
    *(f"/{version}/interactions/{{id:path}}/cancel" for version in ("v1", "v1beta")),
}
FORWARDED = set(ENDPOINTS)  # tests/server/api/test_forwarding.py
NO_JSON = {"/inspector/v1/captures"}  # a capture of any dialect, whose lines are judged one by one
OWN = ROUTES[:5]
TOOL = {"type": "function", "name": "f", "parameters": {}}
WIDE = Limits(json_values=10**9)


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    with serving(Settings(limits=LIMITS, max_body_bytes=20_000)) as base:
        yield base


def request_of(path: str, **more: Any) -> dict[str, Any]:
    said = {"role": "user", "content": "Hello"}
    if path in OWN:
        return {"model": "demo", "input": [said], **more}
    if path == "/v1/conversations":
        return {"items": [said], **more}
    if path == COST:
        return {"model": "demo", "usage": USAGE, **more}
    if path == SEARCH:
        return {"input": [said], "commands": {"search_query": [{"q": "x"}]}, **more}
    if path == INTERACTIONS:
        return {"model": "demo", "input": "Hello", **more}
    if path in CONVERSE:
        body = {"messages": [{"role": "user", "content": [{"text": "Hello"}]}], **more}
        return {"input": {"converse": body}} if path == CONVERSE[-1] else body
    if path in GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}], **more}
    spoken = {"role": "user", "content": [{"type": "text", "value": "Hello"}]}
    if path == "/vscode/v1/tokens":
        return {"model": "demo", "message": spoken, **more}
    if path in INVOKE:
        return {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [said], **more}
    messages = [spoken] if path.startswith("/vscode") else [said]
    return {"model": "demo", "max_tokens": 9, "messages": messages, **more}


def said(base: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, str]:
    """(status, message): the same place in every surface's shape."""
    reply = call(base, "POST", path, body, headers)
    return reply.status, reply.error["message"] if reply.status >= 400 else ""


def test_every_endpoint_that_takes_a_body_is_here() -> None:
    posted = {
        route.path.replace("{model:path}", "demo")
        for route in _ROUTES
        if "POST" in (getattr(route, "methods", None) or ())
    }
    of_old_version = {path.replace("v1beta", "v1") for path in (*GEMINI, INTERACTIONS)}
    assert posted - BODILESS - NO_JSON - FORWARDED == {*ROUTES, *of_old_version}


# ── types ──────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("path", ROUTES)
def test_s10_json_has_to_be_named(demo: str, path: str) -> None:
    body = json.dumps(request_of(path)).encode()
    for kind in ("text/plain", "text/plain;a=application/json", "multipart/form-data", "json", ""):
        assert said(demo, path, body, {"content-type": kind})[0] == 415
    address = urlsplit(demo)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    connection.request("POST", path, body)
    answer = connection.getresponse()
    assert (answer.status, b"must be given" in answer.read()) == (415, True)
    connection.close()
    assert said(demo, path, body) == FINE[path]


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("path", ROUTES)
def test_s8_the_shape_of_the_json_is_bounded(small: str, path: str) -> None:
    body = json.dumps(request_of(path))[:-1].encode()
    for more, why in (
        (b'"x": [' + b"[]," * 300 + b"0]}", "more values than the limit of 300"),
        (b'"x": [' + b"0," * 300 + b"0]}", "more values than the limit of 300"),
        (b'"x": {' + b",".join(b'"%d":0' % n for n in range(300)) + b"}}", "more values than the limit"),
        (b'"x": ' + b"[" * 30 + b"]" * 30 + b"}", "deeper than the limit of 20"),
    ):
        status, message = said(small, path, body + b"," + more)
        assert (status, why in message) == (400, True), message
    text = ", ".join("[{}]" * 40).encode()
    assert said(small, path, body + b', "x": "' + text + b'"}') == FINE[path]


@pytest.mark.parametrize(
    "path",
    [path for path in ROUTES if path not in ("/vscode/v1/tokens", SEARCH, COST, *GEMINI[1:], CONVERSE[-1])],
)
def test_s8_items_are_bounded(small: str, path: str) -> None:
    body = request_of(path)
    places = {
        "/v1/conversations": "items",
        **dict.fromkeys(OWN, "input"),
        **dict.fromkeys(GEMINI, "contents"),
        INTERACTIONS: "input",
    }
    place = places.get(path, "messages")
    if path == INTERACTIONS:
        body["input"] = [{"type": "user_input", "content": [{"type": "text", "text": "Hello"}]}]
    if path in GEMINI:  # adjacent contents of one role are one item
        body[place] += [{**body[place][0], "role": "model"}]
    body[place] = (body[place] * 13)[:13]
    reply = call(small, "POST", path, body)
    assert (reply.status, "13 items; the limit is 12" in reply.error["message"]) == (400, True)
    assert reply.error.get("param", place) == place


def test_s8_items_of_the_turns_before_count(small: str) -> None:
    link: str | None = None
    for _ in range(6):
        reply = call(
            small, "POST", "/v1/responses", {"model": "demo", "input": "x", "previous_response_id": link}
        )
        assert reply.status == 200
        link = reply.json["id"]
    for path in OWN:
        reply = call(small, "POST", path, {"model": "demo", "input": "x", "previous_response_id": link})
        assert (reply.status, reply.error["param"]) == (400, "previous_response_id")
        assert "has 1" in reply.error["message"]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens"])
def test_s8_tools_count_wherever_they_are_declared(small: str, path: str) -> None:
    tools = [{**TOOL, "name": f"f{number}"} for number in range(5)]
    within = {"type": "namespace", "name": "n", "tools": tools}
    brought = {"type": "additional_tools", "role": "developer", "tools": tools[:3]}
    unknown = {"type": "acme:tools", "tools": tools}
    for fields in (
        {"tools": [within]},
        {"tools": [unknown]},
        {"tools": tools[:3], "input": [brought, {"role": "user", "content": "x"}]},
    ):
        reply = call(small, "POST", path, request_of(path, **fields))
        assert (reply.status, reply.error["param"]) == (400, "tools")
        assert "6 tools; the limit is 5" in reply.error["message"]


def test_s8_a_websocket_has_the_same_limits(small: str) -> None:
    message = {"type": "response.create", "model": "demo", "input": "x"}
    tools = [{"type": "namespace", "name": "n", "tools": [{**TOOL, "name": f"f{n}"} for n in range(5)]}]
    with opened_socket(small) as socket:
        for more, why in (
            ({"x": [0] * 300}, "more values"),
            ({"x": json.loads("[" * 30 + "]" * 30)}, "deeper"),
            ({"input": [{"role": "user", "content": "x"}] * 13}, "13 items"),
            ({"tools": tools}, "6 tools"),
        ):
            for generate in (True, False):
                error = socket.raw(json.dumps({**message, **more, "generate": generate})).error
                assert (error["status"], why in error["error"]["message"]) == (400, True)
        assert socket.turn(input="Hello").final["status"] == "completed"


def test_s8_json_within_a_body_in_base64_has_the_same_limits(small: str) -> None:
    for more, why in (
        ({"x": [0] * 300}, "more values"),
        ({"x": json.loads("[" * 30 + "]" * 30)}, "deeper"),
        ({}, ""),
    ):
        counted = base64.b64encode(json.dumps(request_of(INVOKE[0], **more)).encode()).decode()
        reply = call(small, "POST", CONVERSE[-1], {"input": {"invokeModel": {"body": counted}}})
        assert (reply.status, why in reply.body.decode()) == (400 if why else 200, True)


# ── the scan ───────────────────────────────────────────────────────────────────────────────────────────
def nested(value: Any) -> tuple[int, int]:
    """(values, depth), the slow way."""
    within = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    if within is None:
        return 1, 0
    parts = [nested(each) for each in within]
    return 1 + sum(each[0] for each in parts), 1 + max((each[1] for each in parts), default=0)


def some_json(source: random.Random, depth: int) -> Any:
    kind = source.randrange(6 if depth else 4)
    text = "".join(source.choice(r'[]{},:"\xé' + "\n") for _ in range(source.randrange(8)))
    if kind < 4:
        return (text, 1.5, None, text)[kind]
    children = [some_json(source, depth - 1) for _ in range(source.randrange(5))]
    return children if kind == 4 else {f"{number}{text}": each for number, each in enumerate(children)}


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 65536])
def test_s8_values_and_depth_are_counted_as_a_decoder_finds_them(
    monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr("openresponses_server.limits.requests._PIECE", piece)
    source = random.Random(piece)
    for _ in range(150):
        value = [some_json(source, 9)]
        text = json.dumps(value, ensure_ascii=source.random() < 0.5).encode()
        values, depth = nested(value)
        empty = text.count(b"[") + text.count(b"{") + 2  # an empty container counts its absent first value
        check_json(text, Limits(depth=max(depth, 8), json_values=values + empty))
        with pytest.raises(InvalidRequestError, match="values"):
            check_json(text, Limits(json_values=max(values - 1, 1)))
        if depth > 8:
            with pytest.raises(InvalidRequestError, match="deeper"):
                check_json(text, Limits(depth=depth - 1))


GROWING: dict[str, Callable[[int], bytes]] = {
    "unclosed after brackets": lambda n: b"[" * 130 + b'"' + b"x" * n,
    "quotes and backslashes": lambda n: b"[" * 200 + rb"\"" * (n // 2),
    "escaped quotes in an unclosed string": lambda n: b"[" * 200 + b'"' + rb"\"" * (n // 2),
    "backslashes": lambda n: b"[" * 200 + b'"' + b"\\" * n,
    "quotes": lambda n: b"[" * 200 + b'"' * n,
    "open": lambda n: b"[" * n,
    "closed": lambda n: b"]" * n,
    "empty lists": lambda n: b"[" + b"[]," * (n // 3) + b"0]",
    "combs": lambda n: b"[" + (b"[" * 120 + b"]" * 120 + b",") * (n // 241) + b"0]",
    "unclosed objects": lambda n: b'{"a":[' * (n // 6),
    "strings of brackets": lambda n: b'["[[[[",' * (n // 8),
}


@pytest.mark.parametrize("kind", GROWING)
def test_s10_the_scan_is_linear(kind: str) -> None:
    def spent(size: int) -> float:
        body = GROWING[kind](size)
        return seconds(lambda: check_json(body, WIDE))

    assert_proportional(spent, 600_000, 4_800_000)


def test_s10_160_bytes_do_not_stop_the_server(demo: str) -> None:
    body = b'{"model":"demo","input":"' + b"[" * 130 + b'""' + b"x" * 60
    for path in ROUTES:
        assert said(demo, path, body)[0] == 400
    with opened_socket(demo) as socket:
        assert socket.raw(body.decode()).error["status"] == 400


def test_json_in_another_encoding_is_not_json() -> None:
    """Its bytes can't be scanned: half of a character may look like a quote."""
    for encoding in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig"):
        with pytest.raises(Exception, match="malformed"):
            decode_json('{"x": "\\ud800畜"}'.encode(encoding))


# ── encodings ──────────────────────────────────────────────────────────────────────────────────────────
def wide_window(data: bytes) -> bytes:
    parameter = zstd.CompressionParameter
    options = {parameter.window_log: 24, parameter.content_size_flag: 0}
    packer = zstd.ZstdCompressor(options=options)
    return packer.compress(data) + packer.flush()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP ": gzip.compress,
    "zstd": zstd.compress,
    "identity": bytes,
    "identity, gzip": gzip.compress,
}


@pytest.mark.parametrize("path", ROUTES)
def test_compressed_bodies_are_read(demo: str, path: str) -> None:
    body = json.dumps(request_of(path)).encode()
    for encoding, pack in PACKED.items():
        for packed in (pack(body), pack(body[:9]) + pack(body[9:])):
            with case(encoding, packed):
                assert said(demo, path, packed, {"content-encoding": encoding}) == FINE[path]


@pytest.mark.parametrize("path", ROUTES)
def test_other_encodings_are_a_415_that_names_what_is_taken(demo: str, path: str) -> None:
    for encoding in ("br", "deflate", "compress", "gzip, gzip", "gzip, zstd", "x" * 500, "*"):
        with case(encoding):
            reply = call(demo, "POST", path, b"{}", {"content-encoding": encoding})
            assert (reply.status, reply.headers["accept-encoding"]) == (415, "gzip, zstd")
            assert "one of gzip, zstd" in reply.error["message"]


BROKEN: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "truncated gzip": ("gzip", lambda body: gzip.compress(body)[:-1]),
    "truncated zstd": ("zstd", lambda body: zstd.compress(body)[:-1]),
    "garbage after gzip": ("gzip", lambda body: gzip.compress(body) + b"garbage"),
    "garbage after zstd": ("zstd", lambda body: zstd.compress(body) + b"garbage"),
    "a second member cut": ("gzip", lambda body: gzip.compress(body) + gzip.compress(body)[:9]),
    "bad checksum": ("gzip", lambda body: gzip.compress(body)[:-8] + b"\0" * 8),
    "not gzip": ("gzip", lambda body: body),
    "not zstd": ("zstd", lambda body: body),
    "zlib for gzip": ("gzip", zlib.compress),
    "a window of 16 MB": ("zstd", wide_window),
    "empty members": ("gzip", lambda body: gzip.compress(b"") * 2000),
    "empty frames": ("zstd", lambda body: zstd.compress(b"") * 2000),
    "skippable frames": ("zstd", lambda body: b"\x50\x2a\x4d\x18\0\0\0\0" * 2000),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_compressed_bodies_are_a_400(demo: str, case: str) -> None:
    encoding, make = BROKEN[case]
    body = make(json.dumps(request_of("/v1/responses")).encode())
    reply = call(demo, "POST", "/v1/responses", body, {"content-encoding": encoding})
    assert (reply.status, reply.error["code"]) == (400, "invalid_content_encoding"), reply.body
    assert encoding in reply.error["message"]


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_s10_a_bomb_is_a_413_and_no_more_than_the_limit_is_made_of_it(encoding: str) -> None:
    """100 MB in a few bytes; of what comes out nothing beyond the limit is kept or made."""
    bomb = PACKED[encoding](b" " * 100_000_000)
    total = 0
    feed = Compressed.feed

    def counted(self: Compressed, data: bytes) -> Iterator[bytes]:
        nonlocal total
        for piece in feed(self, data):
            total += len(piece)
            yield piece

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compressed, "feed", counted)
        with pytest.raises(HttpError) as refused:
            asyncio.run(received(bomb, encoding, 1_000_000))
    assert refused.value.http_status == 413
    assert total < 1_500_000


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "identity"])
def test_s10_a_body_may_be_as_large_as_the_limit(encoding: str) -> None:
    body = b'"%b"' % (b"x" * 998)
    assert asyncio.run(received(PACKED[encoding](body), encoding, 1000)) == body
    with pytest.raises(HttpError):
        asyncio.run(received(PACKED[encoding](body), encoding, 999))


def test_s10_compressed_bytes_count_too() -> None:
    """Such as stand for nothing."""
    skipped = b"\x50\x2a\x4d\x18" + (50_000).to_bytes(4, "little") + b"x" * 50_000
    with pytest.raises(HttpError) as refused:
        asyncio.run(received(skipped, "zstd", 10_000))
    assert refused.value.http_status == 413


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_any_split_of_a_compressed_body_is_the_same(encoding: str) -> None:
    body = bytes(random.Random(1).randbytes(3000)) * 200
    packed = PACKED[encoding](body) + PACKED[encoding](b"end")
    for size in (1, 7, 1000, len(packed)):
        reading = decoding([encoding])
        pieces = [
            piece for at in range(0, len(packed), size) for piece in reading.feed(packed[at : at + size])
        ]
        reading.close()
        assert b"".join(pieces) == body + b"end"


async def received(body: bytes, encoding: str, limit: int) -> bytes:
    """What `read_json` makes of it, without a server."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return await read_json(*without_server(receive, encoding, limit), bytes)


def without_server(receive: Any, encoding: str, limit: int = 1_000_000) -> tuple[Request, Service]:
    headers = [(b"content-type", b"application/json"), (b"content-encoding", encoding.encode())]
    scope = {"type": "http", "method": "POST", "headers": headers, "state": {"owner": ""}}
    settings = Settings(max_body_bytes=limit)
    service = SimpleNamespace(
        settings=settings, available=available_for(settings.limits), gate=Gate(settings.limits)
    )
    return Request(scope, receive), cast(Service, service)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_reading_a_body_leaves_no_generator_that_takes_a_task_to_be_closed(encoding: str) -> None:
    begun: list[object] = []

    async def read() -> bytes:
        sys.set_asyncgen_hooks(firstiter=begun.append)
        return await received(PACKED[encoding](b"{}"), encoding, 100)

    assert asyncio.run(read()) == b"{}"
    assert not begun


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_read_that_was_cancelled_is_made_again_and_was_no_end(encoding: str) -> None:
    """At each of its awaits, and twice; so is one whose client has disconnected."""
    whole = bytes(random.Random(1).randbytes(2000)) * 300
    packed = PACKED[encoding](whole)

    async def read_all() -> tuple[bytes, int]:
        pieces = [packed[at : at + 40_000] for at in range(0, len(packed), 40_000)]
        arrived, cancelled, got = asyncio.Event(), 0, b""

        async def receive() -> dict[str, Any]:
            await arrived.wait()
            arrived.clear()
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        request, service = without_server(receive, encoding)
        body = arriving_body(request, fields_of(request.scope), service)
        while not body.ended:
            for _ in range(2):
                reading = asyncio.ensure_future(body.read())
                await asyncio.sleep(0)
                reading.cancel()
                try:
                    got += await reading
                except asyncio.CancelledError:
                    cancelled += 1
            if pieces:
                arrived.set()
            got += await body.read()
        return got, cancelled

    got, cancelled = asyncio.run(read_all())
    assert got == whole
    assert cancelled >= 2 * len(packed) // 40_000

    async def leave() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        request, service = without_server(receive, encoding)
        body = arriving_body(request, fields_of(request.scope), service)
        for _ in range(2):
            with pytest.raises(ClientDisconnect):
                await body.read()

    asyncio.run(leave())


# ── values that are awkward to handle ──────────────────────────────────────────────────────────────────
AWKWARD = {
    "lone surrogate": rb'"\ud800"',
    "lone surrogate as a name": rb'{"\udfff": 1}',
    "huge integer": b"1" + b"0" * 400,
    "negative zero": b"-0",
    "NUL": rb'"\u0000"',
    "duplicate names": b'{"a": 1, "a": {"b": []}}',
}


@pytest.mark.parametrize("path", ROUTES)
def test_awkward_values_are_answered_or_refused(demo: str, path: str) -> None:
    prefix = json.dumps(request_of(path))[:-1].encode()
    for kind, value in AWKWARD.items():
        tool = b'{"type": "function", "name": "f", "description": "d", "parameters": {"x": ' + value + b"}}"
        for more in (
            b'"x": ' + value,
            b'"tools": [' + tool + b"]",
            b'"temperature": ' + value,
            b'"metadata": {"a": ' + value + b"}",
            b'"instructions": ' + value,
        ):
            with case(kind, more):
                reply = call(demo, "POST", path, prefix + b", " + more + b"}")
                assert reply.status in (FINE[path][0], 400), reply.body
                assert b"internal_error" not in reply.body
