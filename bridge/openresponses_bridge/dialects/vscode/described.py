"""The requests of VS Code's chat, for OpenAPI documents.

Docstrings of these classes are descriptions in the document.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A VS Code language-model request: messages of parts, tools and options. Messages may be the result of
    `JSON.stringify` of VS Code's own. Unless `store` is false, the response is stored, and a stateful marker
    names it."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    toolMode: int | str | None = None  # noqa: N815 - VS Code's names
    modelOptions: dict[str, Any] | None = None  # noqa: N815
    modelConfiguration: dict[str, Any] | None = None  # noqa: N815
    includeEncryptedThinking: bool | None = None  # noqa: N815
    store: bool | None = None
