"""A backend of your own under Starlette or FastAPI: what your model yields, sent to the client that asked.

Stands alone: nothing of the service is imported. `openresponses_bridge.backend` has what may be yielded, and
the same without a framework.
"""

from openresponses_server.backend.response import BackendResponse, ResponseOptions, endpoint

__all__ = ["BackendResponse", "ResponseOptions", "endpoint"]
