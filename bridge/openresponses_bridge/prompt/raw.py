"""The documented name of `openresponses_agent.prompt.raw`; type checkers read its names in `raw.pyi`."""

from openresponses_agent.prompt.raw import *  # noqa: F403
