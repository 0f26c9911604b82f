"""The requests and answers of Converse, for OpenAPI documents.

Docstrings of these classes are descriptions in the document.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ConverseRequest(Struct, frozen=True, kw_only=True):
    """A request of Amazon Bedrock's Converse API. All other fields are as in Amazon's API reference."""

    messages: list[dict[str, Any]]
    system: list[dict[str, Any]] | None = None
    inferenceConfig: dict[str, Any] | None = None  # noqa: N815
    toolConfig: dict[str, Any] | None = None  # noqa: N815
    outputConfig: dict[str, Any] | None = None  # noqa: N815
    additionalModelRequestFields: dict[str, Any] | None = None  # noqa: N815


class ConverseResponse(Struct, frozen=True, kw_only=True):
    """A whole answer of Amazon Bedrock's Converse API."""

    output: dict[str, Any]
    stopReason: str  # noqa: N815
    usage: dict[str, Any]
    metrics: dict[str, Any]
    additionalModelResponseFields: dict[str, Any] | None = None  # noqa: N815


class ConverseError(Struct, frozen=True):
    """An error of Amazon's APIs. The header `x-amzn-errortype` names it."""

    message: str
