from openresponses_agent.loop import *  # noqa: F403
