"""A server of files at an address that the tested code takes for a public one."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from openresponses_server.http.client import fetching
from openresponses_server.http.client.fetching import is_public
from openresponses_server.http.client.pool import Connector

PUBLIC = "127.0.0.2"
"""An address that counts as public in these tests; 127.0.0.1 does not."""


class Files:
    """A server of files at the public address; `answers` has the answers by path."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.seen: list[tuple[str, str]] = []
        files = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                files.seen.append((self.path, str(self.headers)))
                files.answers[self.path.partition("?")[0]](self)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer((PUBLIC, 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, path: str, host: str = "files.example") -> str:
        return f"http://{host}:{self.port}{path}"

    def serve(self, path: str, body: bytes, kind: str = "application/pdf", **headers: str) -> str:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("content-type", kind)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.end_headers()
            handler.wfile.write(body)

        self.answers[path] = answer
        return self.url(path)

    def redirect(self, path: str, to: str) -> str:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("location", to)
            handler.send_header("content-length", "0")
            handler.end_headers()

        self.answers[path] = answer
        return self.url(path)


@contextmanager
def public_files(lookups: dict[str, list[list[str]]]) -> Iterator[Files]:
    """A server of files under the names in `lookups`; each name has the addresses that the first look-up
    finds and those that later ones find."""

    async def look_up(_self: Connector, host: str, port: int) -> list[Any]:
        if host not in lookups:
            raise ValueError("embedded null character")  # as the look-up of the system does
        answers = lookups[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetching, "is_public", lambda address: address == PUBLIC or is_public(address))
        patch.setattr(Connector, "_look_up", look_up)
        served = Files()
        yield served
        served.server.shutdown()
        served.server.server_close()
