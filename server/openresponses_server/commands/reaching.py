"""A Responses server as the commands of the terminal ask it: with a key that goes to its address alone."""

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
from openresponses_server.agents.coding.reaching import is_of_this_user
from openresponses_server.client import OpenResponsesError
from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.dialects import base_url

PORT: Final = 8080
DEFAULT: Final = f"http://127.0.0.1:{PORT}"
MOST_BYTES: Final = 256 * 1024 * 1024
_CONNECT: Final = 10.0  # seconds
_SILENCE: Final = 120.0
_REFUSAL: Final = 64 * 1024  # bytes of one that are read
_HIDDEN: Final = "***"


class MissingKey(ValueError):
    """The environment variable that should have the key is not set."""


def key_in(variable: str | None) -> str | None:
    """The key in this environment variable, None without a variable. Raises MissingKey."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise MissingKey(f"the environment variable {variable} is not set")
    return key


class Reply:
    """An answer that has begun: `is_stream` says whether it is one of events."""

    def __init__(self, reply: aiohttp.ClientResponse, address: str) -> None:
        self._reply = reply
        self._address = address
        self.is_stream = reply.content_type == "text/event-stream"

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its bytes as they come. Raises OpenResponsesError when it breaks off or is too long."""
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
            raise _failed(f"the connection to {self._address} broke off: {_why(error)}") from error

    async def body(self) -> bytes:
        """All of it."""
        return b"".join([piece async for piece in self.pieces()])


class Server:
    """The server at an address (`http://host:port`, with or without `/v1`), as an asynchronous context;
    without an address that of `serve` on this machine.

    The key goes to an address that the user named, whoever is there. At the usual one it goes to a server of
    this user or of root alone: anybody on the machine may listen there while no server runs.

    Raises ValueError for what is not an address. Redirects are not followed, no proxy is asked.
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
        """The URL of a path of this server that is not below its API's `/v1`."""
        return f"{urlsplit(self.base)._replace(path='').geturl()}{path}"

    @asynccontextmanager
    async def open(
        self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[Reply]:
        """The response to a request for a path below the API, or for a `url_outside_api`; `body` goes out as
        JSON, or as it is when it is bytes. Raises OpenResponsesError for what can't be reached or refuses."""
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
            raise _failed(f"{self.base} can't be reached: {_why(error)}") from error
        async with reply:
            if not 200 <= reply.status < 300:
                raise await self._refusal(reply)
            yield Reply(reply, self.base)

    async def json(
        self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None
    ) -> Any:
        """The JSON of an answer. Raises OpenResponsesError."""
        async with self.open(method, path, body, query) as reply:
            data = await reply.body()
        try:
            return decode_json(data)
        except WireError as error:
            raise _failed(f"{self.base}{path} did not answer with JSON: {error.message}") from error

    async def first_model(self) -> str:
        """The first model that it lists. Raises OpenResponsesError."""
        listed = await self.json("GET", "/models")
        for model in listed.get("data") or [] if isinstance(listed, dict) else []:
            if isinstance(model, dict) and isinstance(model.get("id"), str):
                return str(model["id"])
        raise _failed(f"{self.base} lists no model: say which with --model")

    async def _refusal(self, reply: aiohttp.ClientResponse) -> OpenResponsesError:
        try:
            body = await reply.content.read(_REFUSAL)
        except (aiohttp.ClientError, OSError, TimeoutError):
            body = b""
        return OpenResponsesError.from_response(
            reply.status, {name.lower(): value for name, value in reply.headers.items()}, body, self._clean
        )

    def _clean(self, text: str) -> str:
        return text.replace(self._key, _HIDDEN) if self._key else text


def _failed(what: str) -> OpenResponsesError:
    return OpenResponsesError(502, what, code=UpstreamError.UNREACHABLE)


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
