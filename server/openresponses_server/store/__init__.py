"""Stored responses and the conversations that they chain into."""

from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer

__all__ = ["ResponseSessionPersistenceTransformer"]
