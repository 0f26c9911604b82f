"""The listening socket: bound here, or inherited from systemd."""

from __future__ import annotations

import errno
import os
import resource
import socket
from typing import Final, NamedTuple

from msgspec.structs import replace

from openresponses_server.settings import Settings, SettingsError

_BACKLOG: Final = 2048
_OTHER_FILES: Final = 256  # files that the process has open in addition to connections
_FIRST_INHERITED: Final = 3  # sd_listen_fds(3)
_LISTENING: Final = (socket.AF_INET, socket.AF_INET6)


class Listener(NamedTuple):
    """A listening socket."""

    socket: socket.socket
    shared: bool
    """True if another process keeps the socket open and accepts the connections that this one does not."""


def listen(settings: Settings) -> tuple[Listener, Settings]:
    """Return the socket to accept from, and the settings with its address. Raises SettingsError."""
    inherited = _inherited_socket()
    if inherited is None:
        return Listener(_bind(settings.host, settings.port), shared=False), settings
    host, port = inherited.getsockname()[:2]
    return Listener(inherited, shared=True), replace(settings, host=host, port=port)


def raise_file_limit(connections: int) -> None:
    """Raise the limit of open files, within the hard limit, for this many client connections, each with one
    to an upstream."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = 2 * connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < target:
        most = target if hard == resource.RLIM_INFINITY else min(target, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _inherited_socket() -> socket.socket | None:
    """Return the socket that systemd passes to this process (`LISTEN_FDS`), or None."""
    count, whose = os.environ.pop("LISTEN_FDS", ""), os.environ.pop("LISTEN_PID", "")
    if not count or whose != str(os.getpid()):
        return None
    if count != "1":
        raise SettingsError(f"LISTEN_FDS: expected one socket, got {count[:20]}")
    try:
        listener = socket.socket(fileno=_FIRST_INHERITED)
        usable = listener.family in _LISTENING and listener.getsockopt(
            socket.SOL_SOCKET, socket.SO_ACCEPTCONN
        )
    except OSError as error:
        raise SettingsError(f"LISTEN_FDS: the socket can't be used: {error.strerror}") from error
    if not usable:
        raise SettingsError("LISTEN_FDS: the socket is not one that listens on a TCP port")
    listener.set_inheritable(False)
    return listener


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # Not SO_REUSEPORT: a second server would silently get half of the connections, and connections in a
    # closed queue are lost.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        other = "; --port takes another one" if error.errno == errno.EADDRINUSE else ""
        raise SettingsError(f"can't listen on {host}:{port}: {error.strerror}{other}") from error
    return listener
