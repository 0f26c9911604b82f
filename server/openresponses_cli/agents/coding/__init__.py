"""Third-party coding agents (Codex, Claude Code) that use this server, each with a configuration of its
own."""
