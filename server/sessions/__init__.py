"""Stored responses and the conversations that they chain into."""

from server.sessions.persistence import ResponseSessionPersistenceTransformer

__all__ = ["ResponseSessionPersistenceTransformer"]
