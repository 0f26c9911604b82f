"""The documented name of `openresponses_cli.pytest_plugin`; `pytest_plugin.pyi` is for type checkers."""

from openresponses_cli.pytest_plugin import *  # noqa: F403
