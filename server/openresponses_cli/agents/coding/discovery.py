"""Finds the server for an agent: whether it is one of ours, to whom it belongs, and which models it has."""

from __future__ import annotations

import json
import os
import socket
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.dialects.base import http_failure
from openresponses_bridge.protocol.events import (
    ErrorEvent,
    ResponseCreated,
    ResponseFailed,
    ResponseInProgress,
    ResponseQueued,
)
from openresponses_bridge.protocol.response import ResponseError
from openresponses_server.client import OpenResponsesClient, OpenResponsesError
from openresponses_server.errors import HttpError
from openresponses_server.http.client.connection import request_target_of
from openresponses_server.http.client.failures import LocalProtocolError, cause_of
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.flow import BodyReader
from openresponses_server.settings import Retries, Timeouts

_TIMEOUT: Final = 10.0  # seconds
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_ROUTES: Final = 20
_PROBE_SECONDS: Final = 10.0
_LEAST_OUTPUT: Final = 16  # tokens; OpenAI refuses a lower limit
_BEFORE_OUTPUT: Final = (ResponseCreated, ResponseQueued, ResponseInProgress)
_LISTENING: Final = "0A"  # /proc/net/tcp


class UnusableServer(Exception):
    """A server that can't be used, with the reason. `is_ours` is True if it is one of ours and refuses the
    key."""

    def __init__(self, message: str, *, is_ours: bool = False) -> None:
        super().__init__(message)
        self.is_ours = is_ours


class ServerModels(Struct, frozen=True):
    """The models of a server: `listed` in the format of `/v1/models`, `catalog` in Codex's."""

    listed: list[dict[str, Any]]
    catalog: list[dict[str, Any]]


async def models_of(base: str, key: str | None) -> ServerModels:
    """Return the models of the server at this address. Raises UnusableServer if it does not answer, refuses
    the key, or is not one of ours."""
    status, body = await _get(base, "/v1/models?client_version=1", key)
    try:
        decoded = json.loads(body)
    except ValueError:
        decoded = None
    if not isinstance(decoded, dict):
        raise UnusableServer(f"what answers at {base} is not openresponses-bridge")
    if status == 401 and isinstance(decoded.get("error"), dict):
        what = (
            f"the server at {base} asks for a key, or refuses this one: "
            "name the variable of its key with --key-env"
        )
        raise UnusableServer(what, is_ours=True)
    data, models = decoded.get("data"), decoded.get("models")
    if status != 200 or not isinstance(data, list) or not isinstance(models, list):
        raise UnusableServer(
            f"what answers at {base} is not openresponses-bridge, or an older one (status {status})"
        )
    return ServerModels(
        [each for each in data if isinstance(each, dict)], [each for each in models if isinstance(each, dict)]
    )


async def routes_left_out(base: str) -> list[str]:
    """Return the routes that the server at this address does not use now, each with the cause; none if only
    operators may know them."""
    try:
        status, body = await _get(base, "/v1/routes", None)
        rows = json.loads(body)["data"] if status == 200 else []
    except (UnusableServer, ValueError, TypeError, KeyError):
        return []
    outs = [row for row in rows if isinstance(row, dict) and row.get("state") not in (None, "closed")]
    return [
        f"{row.get('upstream')} with key {row.get('key')} is {row.get('state')} ({row.get('cause')})"
        for row in outs[:_MOST_ROUTES]
    ]


async def refusal_of(base: str, key: str | None, model: str) -> HttpError | None:
    """Ask the server at this address for an answer of the model, and disconnect when its output begins.
    Returns the refusal or the failure; None if there is none. The response is not stored, and costs a few
    tokens. A slow answer is a failure of its own."""
    seconds = _PROBE_SECONDS
    times = Timeouts(connect=seconds, first_byte=seconds, idle=seconds, total=seconds)
    request = {"model": model, "input": "Hi", "max_output_tokens": _LEAST_OUTPUT, "store": False}
    async with OpenResponsesClient(base, key, timeouts=times, retries=Retries()) as client:
        try:
            async with aclosing(client.stream(request)) as events:
                async for event in events:
                    if isinstance(event, ResponseFailed) and event.response.error is not None:
                        return http_failure(event.response.error)
                    if isinstance(event, ErrorEvent):
                        payload = event.payload
                        return http_failure(ResponseError(payload.code or payload.type, payload.message))
                    if not isinstance(event, _BEFORE_OUTPUT):
                        break
        except OpenResponsesError as error:
            return error
    return None


async def _get(base: str, target: str, key: str | None) -> tuple[int, bytes]:
    """GET without following redirects."""
    try:
        request_target_of(base)
    except LocalProtocolError as error:
        raise UnusableServer(f"{base!r} is not an address such as http://HOST:PORT") from error
    connections = ConnectionPool("", Timeouts(connect=_TIMEOUT, first_byte=_TIMEOUT))
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        reply = await connections.request("GET", base + target, headers=headers)
        return reply.status, await BodyReader(reply.content).collect(_MOST_BYTES, _TIMEOUT)
    except OSError as error:
        raise UnusableServer(f"the server at {base} does not answer: {cause_of(error)}") from error
    finally:
        await connections.close()


def is_listening(host: str, port: int) -> bool:
    """Return True if anything accepts connections at this address."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def is_of_this_user(port: int, tables: Path = Path("/proc/net")) -> bool:
    """Return True if the process that listens on this port of 127.0.0.1 belongs to this user or to root. It
    is sent keys and the user's files, and any user of the machine could listen there. True on systems that do
    not report the owner (Linux does); False if nothing listens."""
    owners, decoded = set(), False
    for table in ("tcp", "tcp6"):
        try:
            lines = (tables / table).read_text().splitlines()[1:]
        except OSError:
            continue
        decoded = True
        for line in lines:
            fields = line.split()
            if len(fields) > 7 and fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                owners.add(int(fields[7]))
    return not decoded or (bool(owners) and owners <= {os.getuid(), 0})
