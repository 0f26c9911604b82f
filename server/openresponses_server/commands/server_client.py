"""The HTTP client of the commands that use a Responses server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_server.agents.coding.discovery import is_of_this_user
from openresponses_server.client import OpenResponsesError
from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.dialects import base_url

PORT: Final = 8080
DEFAULT: Final = f"http://127.0.0.1:{PORT}"
MOST_BYTES: Final = 256 * 1024 * 1024
_CONNECT: Final = 10.0  # seconds
_SILENCE: Final = 120.0
_ERROR_BODY: Final = 64 * 1024  # bytes of an error's body that are read
_MASK: Final = "***"


class MissingKey(ValueError):
    """The environment variable with the key is not set."""


def key_from(variable: str | None) -> str | None:
    """The key in this environment variable; None without a variable. Raises MissingKey."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise MissingKey(f"the environment variable {variable} is not set")
    return key


class ServerResponse:
    """A response whose head has arrived. `is_stream`: its body is an event stream."""

    def __init__(self, reply: aiohttp.ClientResponse, address: str) -> None:
        self._reply = reply
        self._address = address
        self.is_stream = reply.content_type == "text/event-stream"

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises OpenResponsesError if it is interrupted or too long."""
        received = 0
        try:
            async for piece in self._reply.content.iter_any():
                received += len(piece)
                if received > MOST_BYTES:
                    raise _failed(f"{self._address} sent more than {MOST_BYTES >> 20} MiB")
                yield piece
        except TimeoutError as error:
            raise _failed(f"{self._address} was silent for {_SILENCE:g} seconds") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _failed(f"the connection to {self._address} broke off: {_reason(error)}") from error

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.chunks()])


class ServerClient:
    """A client, as an asynchronous context, of the server at an address (`http://host:port`, with or without
    `/v1`), by default that of `serve` on this machine.

    The key is sent to an address that the user named. To the default address it is sent only if the server
    there belongs to this user or to root: any user of the machine could listen there.

    Raises ValueError for an invalid address. Redirects are not followed, proxies not used.
    """

    def __init__(self, address: str | None = None, key: str | None = None) -> None:
        self._is_named = address is not None
        address = DEFAULT if address is None else address
        self.base = base_url(address if "://" in address else f"http://{address}")
        self._key = key
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        headers = {} if self._key is None else {"authorization": f"Bearer {self._key}"}
        limit = aiohttp.ClientTimeout(total=None, connect=_CONNECT, sock_read=_SILENCE)
        self._http = aiohttp.ClientSession(timeout=limit, headers=headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    def url_outside_api(self, path: str) -> str:
        """The URL of a path of this server outside the API's `/v1`."""
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
        data = body if body is None or isinstance(body, bytes) else encode(body)
        headers = {} if data is None else {"content-type": "application/json"}
        try:
            reply = await self._http.request(
                method,
                path if "://" in path else self.base + path,
                data=data,
                headers=headers,
                params=query,
                allow_redirects=False,
            )
        except TimeoutError as error:
            raise _failed(f"{self.base} does not answer") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _failed(f"{self.base} can't be reached: {_reason(error)}") from error
        async with reply:
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
        """The first model that the server lists. Raises OpenResponsesError."""
        listed = await self.json("GET", "/models")
        for model in listed.get("data") or [] if isinstance(listed, dict) else []:
            if isinstance(model, dict) and isinstance(model.get("id"), str):
                return str(model["id"])
        raise _failed(f"{self.base} lists no model: say which with --model")

    async def _error_of(self, reply: aiohttp.ClientResponse) -> OpenResponsesError:
        try:
            body = await reply.content.read(_ERROR_BODY)
        except (aiohttp.ClientError, OSError, TimeoutError):
            body = b""
        return OpenResponsesError.from_response(
            reply.status,
            {name.lower(): value for name, value in reply.headers.items()},
            body,
            self._without_key,
        )

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, _MASK) if self._key else text


def _failed(what: str) -> OpenResponsesError:
    return OpenResponsesError(502, what, code=UpstreamError.UNREACHABLE)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
