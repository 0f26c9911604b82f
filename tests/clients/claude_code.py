"""Claude Code with a home and a folder of its own, over a server."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

_QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"}
MODEL = "claude-opus-5"
USES_BEDROCK = {
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""The variables that make it use Bedrock; ANTHROPIC_BEDROCK_BASE_URL has the address."""


def does_the_task(node: Path, folder: Path, base: str, *flags: str, **variables: str) -> dict[str, Any]:
    """Give it the prompt "Do the task", and return its final output."""
    inherited = {
        each: value for each, value in os.environ.items() if not each.startswith(("ANTHROPIC", "CLAUDE"))
    }
    environment = {
        **inherited,
        **_QUIET,
        "HOME": str(folder),
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_API_KEY": "none",
    }
    program = node / "node_modules" / ".bin" / "claude"
    done = subprocess.run(
        [program, "-p", "Do the task", "--output-format", "json", "--model", MODEL, *flags],
        env=environment | variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result
