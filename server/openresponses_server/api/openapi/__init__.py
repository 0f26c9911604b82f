"""Our own OpenAPI document: its schemas are made from the structs, its operations from a table."""

from openresponses_server.api.openapi.document import document

__all__ = ["document"]
