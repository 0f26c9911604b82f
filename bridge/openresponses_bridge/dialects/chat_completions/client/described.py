"""The requests and answers of the Chat Completions API, for OpenAPI documents.

Docstrings of these classes are descriptions in the document.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class ChatCompletionRequest(Struct, frozen=True, kw_only=True):
    """A Chat Completions request. All other fields are as in OpenAI's API reference."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool | None = None


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """A Chat Completions answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any] | None = None
