"""What a server imports before it listens is all that its requests need."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from starlette.routing import Route

from openresponses_server.api.app import _ROUTES
from tests.support.processes import base_of, with_tables
from tests.support.serving import call, ready
from tests.support.shared import REPOSITORY
from tests.support.upstream import ScriptedUpstream

_IMPORTED: Final = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)
_ASKED: Final[dict[str, Any]] = {"model": "demo", "input": "Hello"}
_SAID: Final[dict[str, Any]] = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}
_FORMAT: Final = {"type": "json_schema", "name": "a", "schema": {"type": "object"}}
# a request to each route that makes or shows something; compaction seals, for which cryptography is imported
_REQUESTS: Final[list[tuple[str, str, Any]]] = [
    ("POST", "/v1/responses", {**_ASKED, "stream": True}),
    ("POST", "/v1/responses", _ASKED),
    ("POST", "/v1/responses", {**_ASKED, "background": True}),
    ("POST", "/v1/responses", {**_ASKED, "text": {"format": _FORMAT}}),
    ("POST", "/v1/responses/input_tokens", _ASKED),
    ("POST", "/v1/chat/completions", {**_SAID, "stream": True}),
    ("POST", "/v1/chat/completions", _SAID),
    ("POST", "/v1/messages", {**_SAID, "max_tokens": 9, "stream": True}),
    ("POST", "/v1/messages", {**_SAID, "max_tokens": 9}),
    ("POST", "/v1/messages/count_tokens", _SAID),
    ("POST", "/vscode/v1/chat", _SAID),
    ("POST", "/vscode/v1/tokens", {"model": "demo", "text": "Hello"}),
    ("POST", "/inspector/v1/captures", {}),
    ("POST", "/inspector/v1/context", {}),
    ("POST", "/inspector/v1/responses", _ASKED),
    *(
        ("GET", route.path.partition("{")[0] + "x" * ("{" in route.path), None)
        for route in _ROUTES
        if isinstance(route, Route) and (route.methods is None or "GET" in route.methods)
    ),
]
# by servers with these settings
_UNUSED: Final = {"alembic", "attr", "cryptography", "pygments", "redis", "tokenizers"}


class Served(NamedTuple):
    base: str
    log: Path

    def imported(self) -> list[str]:
        """The modules that were imported so far, in this order."""
        return _IMPORTED.findall(self.log.read_text())


@contextmanager
def served(folder: Path, *flags: str) -> Iterator[Served]:
    log = folder / "log"
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "openresponses_server",
        "serve",
        "--port",
        "0",
        *flags,
    ]
    with (
        log.open("w") as written,
        subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "XDG_DATA_HOME": str(folder)},
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
        ) as process,
    ):
        try:
            base = base_of(process)
            assert call(base, "GET", "/healthz").status == 200
            yield Served(base, log)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.mark.parametrize("store", ["memory://", "sqlite:", "sqlite: in order"])
@pytest.mark.parametrize("upstream_at", ["", "/v1"], ids=["demo", "chat"])
def test_no_request_imports_anything(
    tmp_path: Path, upstream: ScriptedUpstream, store: str, upstream_at: str
) -> None:
    """What a server has before it listens is enough, and no more than its settings need."""
    flags = ["--upstream", upstream.url] if upstream_at else []
    address, _, in_order = store.partition(" ")
    if in_order:
        with_tables(tmp_path)  # otherwise they are made in a process of their own
    with served(tmp_path, "--store", address, *flags) as server:
        ready(server.base)
        imported = server.imported()
        assert len(imported) > 300
        for method, path, body in _REQUESTS:
            call(server.base, method, path, body)
            assert server.imported()[len(imported) :] == [], f"{method} {path}"
    loaded = {name.partition(".")[0] for name in imported}
    assert loaded & _UNUSED == set()
    assert "rich.console" not in imported  # rich itself is logged where it is refused, too
    assert {"structlog", "starlette", "uvicorn"} <= loaded
    assert ("sqlalchemy" in loaded) == (address != "memory://")
    assert not {"sqlalchemy.orm", "sqlalchemy.ext.asyncio"} & set(imported)
