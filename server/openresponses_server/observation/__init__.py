"""Logs, metrics, spans, traces and recordings of what the server does."""
