"""Codex CLI as a client of a server: one prompt with `codex exec`."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

CONFIG = """
model = "{model}"
model_provider = "bridge"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.bridge]
name = "bridge"
base_url = "{base}"
wire_api = "responses"
request_max_retries = {retries}
stream_max_retries = {retries}
supports_websockets = {websockets}
"""


class Codex:
    """`codex exec` in a folder of its own; `events` are those that the last run printed."""

    def __init__(self, node: Path, base: str, folder: Path) -> None:
        self._program = node / "node_modules" / ".bin" / "codex"
        self._base = base
        self._home = folder / "home"
        self.work = folder / "work"
        self._home.mkdir()
        self.work.mkdir()
        self.events: list[dict[str, Any]] = []

    def run(self, prompt: str, model: str = "gpt-5.5", websockets: bool = False, retries: int = 0) -> int:
        config = CONFIG.format(
            model=model, base=self._base, websockets=str(websockets).lower(), retries=retries
        )
        (self._home / "config.toml").write_text(config)
        flags = ["--json", "--skip-git-repo-check", "-C", str(self.work)]
        command = [str(self._program), "exec", *flags, prompt]
        environment = {**os.environ, "CODEX_HOME": str(self._home), "HOME": str(self._home)}
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=90, check=False
        )
        self.events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
        return done.returncode

    def items(self, kind: str) -> list[dict[str, Any]]:
        done = [event["item"] for event in self.events if event["type"] == "item.completed"]
        return [item for item in done if item["type"] == kind]
