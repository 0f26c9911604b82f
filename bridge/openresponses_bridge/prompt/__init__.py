"""The documented name of `openresponses_agent.prompt`; type checkers read its names in `__init__.pyi`."""

from openresponses_agent.prompt import *  # noqa: F403
