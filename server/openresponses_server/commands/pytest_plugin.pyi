from openresponses_cli.pytest_plugin import *  # noqa: F403
