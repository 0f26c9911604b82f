"""Stands between a server of ours and an engine, and breaks the connection in the middle of an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def cutting(port: int, after: int) -> Iterator[int]:
    """A port of 127.0.0.1 that leads to another one; each answer breaks off after that many bytes. With 0
    every connection is closed before an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, port, after), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, port: int, after: int) -> None:
    with suppress(OSError):  # it was closed
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_relay, args=(client, port, after), daemon=True).start()


def _relay(client: socket.socket, port: int, after: int) -> None:
    with client, suppress(OSError):
        if not after:
            client.recv(1)
            return
        with socket.create_connection(("127.0.0.1", port)) as engine:
            back = threading.Thread(target=_copy, args=(client, engine), daemon=True)
            back.start()
            left = after
            while left > 0 and (data := engine.recv(65536)):
                client.sendall(data[:left])
                left -= len(data)
            for end in (client, engine):  # closing alone does not end what another thread reads
                end.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            to.sendall(data)
