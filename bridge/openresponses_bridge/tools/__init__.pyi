from openresponses_agent.tools import *  # noqa: F403
