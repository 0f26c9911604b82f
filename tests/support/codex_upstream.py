"""The application in front of a scripted `codex app-server`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openresponses_server.settings import CodexSettings, Settings, Timeouts, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.in_process import InProcess

SCRIPT = Path(__file__).with_name("codex_server.py")
MODEL = "codex"


class Codex:
    """`app` is the application; `log` has how the scripted processes were started, and what they were
    sent."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self._log = folder / "log.jsonl"
        self.settings = settings_of(folder, self._log, **more)
        self.app = InProcess(self.settings)

    @property
    def log(self) -> list[dict[str, Any]]:
        if not self._log.exists():
            return []
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    @property
    def pids(self) -> list[int]:
        """The ids of the started processes, in order."""
        return [line["pid"] for line in self.log if "argv" in line]

    def sent(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the requests with this method."""
        return [line["params"] for line in self.log if line.get("method") == method]

    def ask(self, words: Any, headers: dict[str, str] | None = None, **more: Any) -> Any:
        """The answer to a request of the Responses API: a whole response, or an error with its status."""
        body = {"model": MODEL, "input": words, **more}
        pairs = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        reply = self.app.call("POST", "/v1/responses", body, pairs)
        return {"http": reply.status, "headers": reply.headers, **json.loads(reply.body)}

    def chat(self, *messages: tuple[str, str], **more: Any) -> Any:
        """The answer to a request of the Chat Completions API, as `ask` returns it."""
        history = [{"role": role, "content": content} for role, content in messages]
        reply = self.app.call("POST", "/v1/chat/completions", {"model": MODEL, "messages": history, **more})
        return {"http": reply.status, "headers": reply.headers, **json.loads(reply.body)}


@contextmanager
def codex(folder: Path, **more: Any) -> Iterator[Codex]:
    """The application, which is shut down at the end; after that, none of its processes is left."""
    upstream = Codex(folder, **more)
    try:
        yield upstream
    finally:
        upstream.app.close()
    assert not [pid for pid in upstream.pids if is_alive(pid)]


def settings_of(folder: Path, log: Path, **more: Any) -> Settings:
    """The settings of an application over the scripted Codex. `fault` is what the process does wrong, `idle`
    how long it may be silent, `secret` the value of a variable that it gets, `keys` are the clients' keys.
    With `brief` the log has only the starts. `stored_responses` is as in the settings, and `more` are other
    settings of the process."""
    program = folder / "codex"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{SCRIPT}" "$@"\n')
    program.chmod(0o755)
    environment = {"CODEX_LOG": str(log), "CODEX_FAULT": more.pop("fault", "")}
    environment |= {"OPENAI_API_KEY": more.pop("secret")} if "secret" in more else {}
    environment |= {"CODEX_BRIEF": "1"} if more.pop("brief", False) else {}
    stored = more.pop("stored_responses", 1000)
    idle, keys = more.pop("idle", 20.0), more.pop("keys", [])
    process = CodexSettings(**{"path": str(program), "env": environment, "stop_seconds": 2.0, **more})
    upstream = UpstreamSettings(profile="codex", timeouts=Timeouts(idle=idle), codex=process)
    return Settings(
        store="memory://",
        upstreams=[upstream],
        api_keys=[hashed(key) for key in keys],
        stored_responses=stored,
    )


def is_alive(pid: int) -> bool:
    """Whether this process runs; a process that has ended but was not waited for counts as ended."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def text_of(response: Any) -> str:
    """The text of an answer."""
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)
