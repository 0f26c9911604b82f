"""The requests of InvokeModel, and of the path that counts tokens, for OpenAPI documents.

Docstrings of these classes are descriptions in the document.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class InvokeModelRequest(Struct, frozen=True, kw_only=True):
    """A request of Anthropic's Messages API without `model` and `stream`, which the path says. All other
    fields are as in Anthropic's API reference."""

    anthropic_version: str
    max_tokens: int
    messages: list[dict[str, Any]]
    anthropic_beta: list[str] | None = None
    """What elsewhere is in the header `anthropic-beta`."""


class BedrockCountRequest(Struct, frozen=True):
    """`input` has `converse`, the fields of a request of Converse, or `invokeModel`, whose `body` is the
    base64 of a request of InvokeModel."""

    input: dict[str, Any]


class BedrockTokens(Struct, frozen=True):
    """An estimate of a request's input tokens."""

    inputTokens: int  # noqa: N815
