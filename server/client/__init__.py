"""A client of any Responses server: its events, or with `process_stream` its parts."""

from server.client.client import OpenResponsesClient
from server.client.errors import OpenResponsesError

__all__ = ["OpenResponsesClient", "OpenResponsesError"]
