"""Spans for OpenTelemetry, through its API alone: what collects them is configured outside of this server."""
