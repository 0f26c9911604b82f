"""Our own OpenAPI document: the schemas out of the structs, the operations out of a table."""

from openresponses_server.api.openapi.document import document

__all__ = ["document"]
