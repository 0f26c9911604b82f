"""A backend of your own under Starlette or FastAPI: the outputs of your model, sent in the client's format.

It imports nothing else of the service. `openresponses_bridge.backend` defines what may be yielded, and works
without a framework.
"""

from openresponses_server.backend.response import BackendResponse, ResponseOptions, endpoint

__all__ = ["BackendResponse", "ResponseOptions", "endpoint"]
