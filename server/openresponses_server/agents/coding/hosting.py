"""A server for one agent: on a thread of this process, on a free port of this machine, behind a key of its
own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from openresponses_server.api.app import create_app
from openresponses_server.serving.leaving import Pace
from openresponses_server.serving.listening import allow_files, listen
from openresponses_server.serving.server import Server
from openresponses_server.settings import Settings, SettingsError
from openresponses_server.settings.files import hashed

_HOST: Final = "127.0.0.1"
_STARTS_WITHIN: Final = 30.0
_ENDS_WITHIN: Final = 5.0
_LOOK: Final = 0.01


def for_one_agent(settings: Settings, key: str) -> Settings:
    """These settings for a server that only one agent with this key is to reach, and that keeps nothing: the
    agent keeps its conversations itself. Raises SettingsError for an upstream to which clients have to show
    their own key."""
    for number, each in enumerate(settings.upstreams):
        if each.pass_through:
            what = "an agent has no key of its own to pass on: name a variable with api_key_env"
            raise SettingsError(what, f"$.upstreams[{number}].pass_through")
    return replace(
        settings,
        host=_HOST,
        port=0,
        workers=1,
        api_keys=[hashed(key)],
        operator_keys=[],
        cors_origins=[],
        allowed_hosts=[],
        store="memory://",
        event_log="memory://",
    )


@contextmanager
def hosted(settings: Settings) -> Iterator[str]:
    """The address of a server with these settings, which ends with the context, or with the process. Raises
    SettingsError when it can't be started."""
    app = create_app(settings)
    listener, settings = listen(settings)
    allow_files(settings.limits.connections)
    server = Server(app, settings, shared=False)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener.socket]}, name="server", daemon=True
    )
    thread.start()
    try:
        _wait_until_started(server, thread)
        host, port = listener.socket.getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.leaving.ask(Pace.CUT, time.monotonic())
        thread.join(_ENDS_WITHIN)
        listener.socket.close()


def _wait_until_started(server: Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise SettingsError("the server did not start; its log says why")
        time.sleep(_LOOK)
