"""The client of an upstream that has WebSockets, without a server around it, and requests for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

from openresponses_server.http.client.connect_options import ConnectOptions
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.flow import BodyReader
from openresponses_server.settings import SocketSettings, Timeouts
from openresponses_server.upstreams.base import HttpClient, SocketCounts
from openresponses_server.upstreams.dialects import RESPONSES
from openresponses_server.upstreams.sockets import over_sockets


def client(
    counts: SocketCounts, limits: SocketSettings | None = None, options: ConnectOptions | None = None
) -> HttpClient:
    framing = RESPONSES.endpoint.socket
    assert framing is not None
    connect = partial(ConnectionPool, options=options)
    return over_sockets(connect, "/responses", framing, limits or SocketSettings(), counts)("", Timeouts())


def body_of(*texts: str, **fields: object) -> bytes:
    items = [{"type": "message", "role": "user", "content": text} for text in texts]
    return json.dumps({"model": "m", "stream": True, "input": items, **fields}).encode()


async def ask(
    requests: HttpClient,
    url: str,
    data: bytes,
    session: str = "",
    headers: Mapping[str, str] | None = None,
) -> str:
    """The whole stream of the answer."""
    answer = await requests.request(
        "POST", f"{url}/responses", headers=headers or {}, data=data, session=session
    )
    try:
        assert answer.status == 200
        return (await BodyReader(answer.content).collect(10**9)).decode()
    finally:
        answer.close()


def text_of(stream: str) -> str:
    """The text of the output at the end of a stream."""
    (last,) = [line for line in stream.splitlines() if '"response.completed"' in line]
    output = json.loads(last.removeprefix("data: "))["response"]["output"]
    return "".join(part["text"] for item in output for part in item["content"])
