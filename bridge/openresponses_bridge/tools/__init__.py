"""The documented name of `openresponses_agent.tools`; type checkers read its names in `__init__.pyi`."""

from openresponses_agent.tools import *  # noqa: F403
