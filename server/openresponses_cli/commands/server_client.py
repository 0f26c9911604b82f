"""The HTTP client of the commands that use a Responses server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_cli.agents.coding.discovery import is_of_this_user
from openresponses_server.client import OpenResponsesError
from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.connection import Http1Response
from openresponses_server.http.client.failures import cause_of
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.flow import BodyReader
from openresponses_server.settings import Timeouts
from openresponses_server.upstreams.dialects import base_url

PORT: Final = 8080
DEFAULT: Final = f"http://127.0.0.1:{PORT}"
MOST_BYTES: Final = 256 * 1024 * 1024
_SILENCE: Final = 120.0  # seconds
_ERROR_BODY: Final = 64 * 1024  # bytes of an error's body that are read
_MASK: Final = "***"


class MissingKey(ValueError):
    """The environment variable with the key is not set."""


def key_from(variable: str | None) -> str | None:
    """Return the key in this environment variable; None without a variable. Raises MissingKey."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise MissingKey(f"the environment variable {variable} is not set")
    return key


class ServerResponse:
    """A response whose head has arrived. `is_stream` is True if its body is an event stream."""

    def __init__(self, reply: Http1Response, address: str) -> None:
        self._reader = BodyReader(reply.content)
        self._address = address
        kind, _, _ = reply.headers.get("content-type", "").partition(";")
        self.is_stream = kind.strip().lower() == "text/event-stream"

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises OpenResponsesError if it is interrupted or too long."""
        received = 0
        try:
            while piece := await _next(self._reader):
                received += len(piece)
                if received > MOST_BYTES:
                    raise _failed(f"{self._address} sent more than {MOST_BYTES >> 20} MiB")
                yield piece
        except TimeoutError as error:
            raise _failed(f"{self._address} was silent for {_SILENCE:g} seconds") from error
        except OSError as error:
            raise _failed(f"the connection to {self._address} broke off: {cause_of(error)}") from error

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.chunks()])


class ServerClient:
    """A client, as an asynchronous context, of the server at an address (`http://host:port`, with or without
    `/v1`), by default that of `serve` on this machine.

    The key is sent to an address that the user named. To the default address it is sent only if the server
    there belongs to this user or to root: any user of the machine could listen there.

    It is reached like an upstream, through a proxy if the environment names one. Raises ValueError for an
    invalid address. Redirects are not followed.
    """

    def __init__(self, address: str | None = None, key: str | None = None) -> None:
        self._is_named = address is not None
        address = DEFAULT if address is None else address
        self.base = base_url(address if "://" in address else f"http://{address}")
        self._key = key
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._http: ConnectionPool

    async def __aenter__(self) -> Self:
        self._http = ConnectionPool("", Timeouts(first_byte=_SILENCE))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    def url_outside_api(self, path: str) -> str:
        """Return the URL of a path of this server outside the API's `/v1`."""
        return f"{urlsplit(self.base)._replace(path='').geturl()}{path}"

    @asynccontextmanager
    async def open(
        self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[ServerResponse]:
        """Send a request for a path of the API, or for a `url_outside_api`; `body` is sent as JSON, bytes
        unchanged. Raises OpenResponsesError if the server is unreachable or answers with an error."""
        if self._key is not None and not self._is_named and not is_of_this_user(PORT):
            raise _failed(
                f"no server of yours listens at {DEFAULT}, so the key is not sent: "
                "name the server with --server"
            )
        url = path if "://" in path else self.base + path
        if query:
            url += f"?{urlencode(query)}"
        headers = self._headers if body is None else {**self._headers, "content-type": "application/json"}
        data = b"" if body is None else body if isinstance(body, bytes) else encode(body)
        try:
            reply = await self._http.request(method, url, headers=headers, data=data)
        except TimeoutError as error:
            raise _failed(f"{self.base} does not answer") from error
        except OSError as error:
            raise _failed(f"{self.base} can't be reached: {cause_of(error)}") from error
        with closing(reply):
            if not 200 <= reply.status < 300:
                raise await self._error_of(reply)
            yield ServerResponse(reply, self.base)

    async def json(
        self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None
    ) -> Any:
        """Send a request and decode the JSON of its response. Raises OpenResponsesError."""
        async with self.open(method, path, body, query) as reply:
            data = await reply.body()
        try:
            return decode_json(data)
        except WireError as error:
            raise _failed(f"{self.base}{path} answered without valid JSON: {error.message}") from error

    async def first_model(self) -> str:
        """Return the first model that the server lists. Raises OpenResponsesError."""
        listed = await self.json("GET", "/models")
        for model in listed.get("data") or [] if isinstance(listed, dict) else []:
            if isinstance(model, dict) and isinstance(model.get("id"), str):
                return str(model["id"])
        raise _failed(f"{self.base} lists no models: name one with --model")

    async def _error_of(self, reply: Http1Response) -> OpenResponsesError:
        try:
            body = await BodyReader(reply.content).collect(_ERROR_BODY, _SILENCE)
        except OSError:
            body = b""
        return OpenResponsesError.from_response(reply.status, reply.headers, body, self._without_key)

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, _MASK) if self._key else text


async def _next(reader: BodyReader) -> bytes:
    async with asyncio.timeout(_SILENCE):
        return await reader.read()


def _failed(what: str) -> OpenResponsesError:
    return OpenResponsesError(502, what, code=UpstreamError.UNREACHABLE)
