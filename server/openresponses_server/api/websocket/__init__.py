"""The WebSocket transport: one connection, in each of its lanes one response after the other."""

from openresponses_server.http.websocket import PATH

__all__ = ["PATH"]
