"""The WebSocket transport: one connection with several lanes, each of which makes one response after the
other."""

from openresponses_server.http.websocket import PATH

__all__ = ["PATH"]
