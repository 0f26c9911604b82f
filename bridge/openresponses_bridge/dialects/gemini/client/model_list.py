"""The list of models, for clients of the Gemini API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.models.information import EnrichedModelData

PREFIX: Final = "models/"
_DEFAULT: Final = 50
_MOST: Final = 1_000
_DIGITS: Final = 6
_METHODS: Final = ("generateContent", "countTokens")


def model_body(model: EnrichedModelData) -> dict[str, Any]:
    """Return one model. Limits are left out if they are guesses."""
    body: dict[str, Any] = {
        "name": f"{PREFIX}{model.id}",
        "version": model.version,
        "displayName": model.name,
        "description": model.upstream,
        "supportedGenerationMethods": list(_METHODS),
    }
    if model.limits_known:
        body |= {"inputTokenLimit": model.max_input_tokens, "outputTokenLimit": model.max_output_tokens}
    return body | ({} if model.reasoning is None else {"thinking": model.reasoning})


def model_page(models: Sequence[EnrichedModelData], query: Mapping[str, str]) -> dict[str, Any]:
    """Return the page for a query with `pageSize` (more than 1000 is 1000, default 50) and `pageToken`, the
    number of the first model. Raises InvalidRequestError with the wrong parameter."""
    size = min(_number(query, "pageSize") or _DEFAULT, _MOST)
    first = _number(query, "pageToken")
    body: dict[str, Any] = {"models": [model_body(model) for model in models[first : first + size]]}
    return body | ({"nextPageToken": str(first + size)} if first + size < len(models) else {})


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise invalid(name, f"expected a number of at most {_DIGITS} digits")
    return int(text or 0)
