"""Bodies outside the protocol: as OpenAI's API reference has them, and health."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Model(Struct, frozen=True):
    """A model that can be asked for by this id."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Struct, frozen=True):
    """All models that are known by name."""

    object: Literal["list"]
    data: list[Model]


class DeletedResponse(Struct, frozen=True):
    """The response is forgotten."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemList(Struct, frozen=True):
    """A page of a response's input items, each with its id."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(Struct, frozen=True):
    """How many tokens the input has."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class Status(Struct, frozen=True):
    """The state of the process."""

    status: str


class ChatCompletionRequest(Struct, frozen=True, kw_only=True):
    """A Chat Completions request; the fields not named here are OpenAI's API reference's."""

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


class MessagesRequest(Struct, frozen=True, kw_only=True):
    """A request of Anthropic's Messages API; the fields not named here are that API's reference's."""

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
    """An error in that API's shape: `error` holds `type` and `message`."""

    type: Literal["error"]
    error: dict[str, Any]


class ChatRequest(Struct, frozen=True, kw_only=True):
    """A VS Code language-model request: messages of parts, tools and options."""

    model: str
    messages: list[dict[str, Any]]
