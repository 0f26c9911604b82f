"""Coding agents of others (Codex, Claude Code) in front of this server, each with a configuration of its
own."""
