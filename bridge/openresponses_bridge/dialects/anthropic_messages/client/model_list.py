"""The list of models, for clients of Anthropic's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.models.identity import model_identity
from openresponses_bridge.models.information import EnrichedModelData

_DEFAULT_LIMIT: Final = 20
_MOST: Final = 1000
_DIGITS: Final = 4
_WHOLE_DATE: Final = 10  # characters: 2025-09-29
_CLAUDE_CODE: Final = "claude-code/"
_SHOWN: Final = ("claude", "anthropic")
_LONG: Final = "[1m]"
_LONG_WINDOW: Final = 1_000_000
_UNKNOWN_DATE: Final = "1970-01-01"  # the API's value for an unknown date


def model_body(model: EnrichedModelData) -> dict[str, Any]:
    """Return one model. `created_at` is the date in its name; limits are null if they are guesses."""
    date = model_identity(model.id).date
    released = date if len(date) == _WHOLE_DATE else _UNKNOWN_DATE
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name,
        "created_at": f"{released}T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": model.max_input_tokens if model.limits_known else None,
        "max_tokens": model.max_output_tokens if model.limits_known else None,
    }


def for_claude_code(model: EnrichedModelData) -> EnrichedModelData:
    """Return the model under a name that Claude Code shows in its list. Claude Code skips names that begin
    with neither `claude` nor `anthropic`, and assumes a window of 200,000 tokens for names that do not end
    with `[1m]`."""
    shown = model.id.lower().startswith(_SHOWN)
    name = model.id if shown else f"{_CLAUDE_CODE}{model.id}"
    if model.limits_known and model.context_window >= _LONG_WINDOW:
        name += _LONG
    return replace(model, id=name)


def from_claude_code(name: str) -> str:
    """Return the model's own name for a name that `for_claude_code` made."""
    while name.lower().endswith(_LONG):
        name = name[: -len(_LONG)]
    return name.removeprefix(_CLAUDE_CODE)


def model_page(models: Sequence[EnrichedModelData], query: Mapping[str, str]) -> dict[str, Any]:
    """Return the page for a query with `limit` (1 to 1000, default 20), `after_id` and `before_id`. Raises
    InvalidRequestError with the wrong parameter."""
    limit = _limit(query.get("limit"))
    places = {model.id: place for place, model in enumerate(models)}
    after, before = (_place(places, name, query.get(name)) for name in ("after_id", "before_id"))
    low = 0 if after is None else after + 1
    high = len(models) if before is None else before
    backwards = before is not None and after is None
    page = models[max(low, high - limit) : high] if backwards else models[low : min(high, low + limit)]
    return {
        "data": [model_body(model) for model in page],
        "has_more": len(page) < high - low,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }


def _limit(text: str | None) -> int:
    if text is None:
        return _DEFAULT_LIMIT
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    if not is_number or not 1 <= int(text) <= _MOST:
        raise invalid("limit", f"must be from 1 to {_MOST}")
    return int(text)


def _place(places: Mapping[str, int], name: str, model_id: str | None) -> int | None:
    if model_id is None:
        return None
    if model_id not in places:
        raise invalid(name, f"there is no model {model_id[:80]!r}")
    return places[model_id]
