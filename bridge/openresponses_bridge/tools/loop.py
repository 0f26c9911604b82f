"""A documented name of `openresponses_agent.loop`; type checkers read its names in `loop.pyi`."""

from openresponses_agent.loop import *  # noqa: F403
