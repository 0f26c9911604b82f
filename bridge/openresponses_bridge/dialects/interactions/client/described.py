"""The requests and answers of the Interactions API, for OpenAPI documents.

Docstrings of these classes are descriptions in the document.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class CreateInteraction(Struct, frozen=True, kw_only=True):
    """A request of Google's Interactions API. All other fields are as in Google's API reference."""

    input: str | dict[str, Any] | list[dict[str, Any]]
    model: str | None = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    previous_interaction_id: str | None = None
    system_instruction: str | None = None
    tools: list[dict[str, Any]] | None = None
    generation_config: dict[str, Any] | None = None
    response_format: dict[str, Any] | list[dict[str, Any]] | None = None


class Interaction(Struct, frozen=True, kw_only=True):
    """An interaction as it ended or so far: a response under the same id."""

    id: str
    object: str
    status: str
    model: str
    created: str
    updated: str
    steps: list[dict[str, Any]]
    usage: dict[str, Any] | None = None
    previous_interaction_id: str | None = None
    errors: list[dict[str, Any]] | None = None


class NoContent(Struct, frozen=True):
    """Nothing."""


class InteractionError(Struct, frozen=True):
    """An error of the Interactions API: `error` has `code` and `message`."""

    error: dict[str, Any]
