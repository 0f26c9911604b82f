"""The requests and answers of the Gemini API, for OpenAPI documents.

Docstrings of these classes are descriptions in the document.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class GenerateContentRequest(Struct, frozen=True, kw_only=True):
    """A request of the Gemini API. All other fields are as in Google's API reference, in camelCase or
    snake_case."""

    contents: list[dict[str, Any]]
    systemInstruction: dict[str, Any] | str | None = None  # noqa: N815 - Google's names
    tools: list[dict[str, Any]] | None = None
    generationConfig: dict[str, Any] | None = None  # noqa: N815


class GenerateContentResponse(Struct, frozen=True, kw_only=True):
    """An answer of the Gemini API."""

    candidates: list[dict[str, Any]] | None = None
    promptFeedback: dict[str, Any] | None = None  # noqa: N815
    usageMetadata: dict[str, Any] | None = None  # noqa: N815
    modelVersion: str | None = None  # noqa: N815
    responseId: str | None = None  # noqa: N815


class GeminiCountRequest(Struct, frozen=True, kw_only=True):
    """A request of which the tokens are counted: its contents, or all of it in `generateContentRequest`."""

    contents: list[dict[str, Any]] | None = None
    generateContentRequest: GenerateContentRequest | None = None  # noqa: N815


class GeminiTokens(Struct, frozen=True):
    """The number of tokens of the input."""

    totalTokens: int  # noqa: N815


class GeminiModel(Struct, frozen=True, kw_only=True):
    """A model in the shape of the Gemini API. Limits are in tokens."""

    name: str
    version: str
    displayName: str  # noqa: N815
    description: str
    supportedGenerationMethods: list[str]  # noqa: N815
    inputTokenLimit: int | None = None  # noqa: N815
    outputTokenLimit: int | None = None  # noqa: N815
    thinking: bool | None = None


class GeminiModels(Struct, frozen=True, kw_only=True):
    """A page of models."""

    models: list[GeminiModel]
    nextPageToken: str | None = None  # noqa: N815


class GoogleError(Struct, frozen=True):
    """An error in Google's shape: `error` has `code`, `message`, `status` and `details`."""

    error: dict[str, Any]
