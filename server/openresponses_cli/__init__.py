"""The command line: commands and their views, the agent in the terminal, coding agents, pytest's plugin."""
