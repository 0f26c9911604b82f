"""The requests of the real Codex, from its own description of its protocol: each name has a row."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.dialects.codex.routes import ROUTES
from openresponses_bridge.dialects.codex.types import Generation

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]
FEWEST = {"ServerNotification": 50, "ServerRequest": 5}


def names(schema: dict[str, Any]) -> set[str]:
    """The names of the messages that a schema describes."""
    return {name for message in schema["oneOf"] for name in message["properties"]["method"]["enum"]}


@pytest.fixture(scope="module")
def described(node: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the schemas that the installed Codex writes, including the experimental parts."""
    folder = tmp_path_factory.mktemp("codex")
    command = [node / "node_modules" / ".bin" / "codex", "app-server", "generate-json-schema"]
    environment = {**os.environ, "HOME": str(folder), "CODEX_HOME": str(folder)}
    written = subprocess.run(
        [*command, "--experimental", "--out", folder / "schemas"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert written.returncode == 0, written.stderr[-2000:]
    return folder / "schemas"


@pytest.mark.parametrize("direction", FEWEST)
def test_everything_that_codex_sends_has_a_row(described: Path, direction: str) -> None:
    methods = names(json.loads((described / f"{direction}.json").read_text()))
    assert len(methods) >= FEWEST[direction]
    unknown = sorted(methods - ROUTES[Generation.APP_SERVER].keys())
    assert not unknown, (
        f"without a row in bridge/openresponses_bridge/dialects/codex/routes.py: {', '.join(unknown)}"
    )
