from openresponses_agent.prompt import *  # noqa: F403
