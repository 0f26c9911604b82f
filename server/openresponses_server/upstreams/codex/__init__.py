"""Codex as a model: its app-server as a process of ours, JSON-RPC lines over its standard streams."""
