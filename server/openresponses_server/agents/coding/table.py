"""The agents by their names, and what is installed of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Final, NamedTuple

from openresponses_server.agents.coding.agents import CODEX
from openresponses_server.agents.coding.base import CodingAgent
from openresponses_server.agents.coding.claude import CLAUDE
from openresponses_server.settings.suggestions import did_you_mean

AGENTS: Final = {agent.name: agent for agent in (CODEX, CLAUDE)}
_VERSION: Final = re.compile(r"(\d{1,6})\.(\d{1,6})\.\d{1,6}")
_PATIENCE: Final = 20.0  # seconds that an agent has to print its version
_READ: Final = 1000  # characters of what it prints


class Installed(NamedTuple):
    """A program that was found. `version` is (major, minor) and `shown` the whole, None and "" when it does
    not say."""

    path: str
    version: tuple[int, int] | None
    shown: str


def agent_named(name: str) -> CodingAgent:
    """Raises ValueError for a name that is not one of an agent, with the one that was probably meant."""
    if name not in AGENTS:
        raise ValueError(f"{name[:40]!r} is not one of: {', '.join(AGENTS)}{did_you_mean(name, AGENTS)}")
    return AGENTS[name]


def program_of(agent: CodingAgent, given: str | None = None) -> str | None:
    """The path of the agent's program, `given` or found as a shell finds it; None when there is none."""
    return shutil.which(given or agent.program)


def installed(agent: CodingAgent, environment: dict[str, str]) -> Installed | None:
    """The agent that is found, asked for its version in this environment; None when there is none."""
    path = program_of(agent)
    if path is None:
        return None
    try:
        asked = subprocess.run(
            [path, "--version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return Installed(path, None, "")
    found = _VERSION.search(asked.stdout.decode(errors="replace")[:_READ])
    if found is None:
        return Installed(path, None, "")
    return Installed(path, (int(found[1]), int(found[2])), found[0])
