"""The requests and answers of the Messages API, for OpenAPI documents.

Docstrings of these classes are descriptions in the document.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class MessageTokens(Struct, frozen=True):
    """The number of tokens of the input."""

    input_tokens: int


class CountTokensRequest(Struct, frozen=True, kw_only=True):
    """A Messages request without `max_tokens`. All other fields are as in Anthropic's API reference."""

    model: str
    messages: list[dict[str, Any]]


class MessagesRequest(Struct, frozen=True, kw_only=True):
    """A request of Anthropic's Messages API. All other fields are as in Anthropic's API reference."""

    model: str
    max_tokens: int
    messages: list[dict[str, Any]]
    stream: bool | None = None


class AnthropicMessage(Struct, frozen=True, kw_only=True):
    """An answer of Anthropic's Messages API."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None
    usage: dict[str, Any]


class AnthropicError(Struct, frozen=True):
    """An error in the shape of Anthropic's API: `error` has `type` and `message`."""

    type: Literal["error"]
    error: dict[str, Any]
