from openresponses_agent.prompt.raw import *  # noqa: F403
