"""A client of any Responses server: its events, or with `process_stream` its parts."""

from openresponses_server.client import OpenResponsesClient
from openresponses_server.client_errors import OpenResponsesError

__all__ = ["OpenResponsesClient", "OpenResponsesError"]
