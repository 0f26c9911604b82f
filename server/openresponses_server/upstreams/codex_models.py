"""Models as Codex CLI describes them to itself (its `ModelInfo`), so that it offers the tools that fit.

Codex asks for them as `models` in the answer to `GET /v1/models?client_version=…`, and takes the same from a
file (`model_catalog_json`). Its versions want different fields: all of those that any wants are there."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Final

from openresponses_bridge.models.information import EnrichedModelData

MOST_MODELS: Final = 500
"""Models that are described: each has its instructions with it."""
_INSTRUCTIONS: Final = "codex_instructions.md"
_TOOL_OUTPUT: Final = 10_000  # tokens of a command's output that are shown to the model
_USABLE_PERCENT: Final = 95  # of the context window, before Codex makes room
_FULL_PERCENT: Final = 90  # of it, when Codex summarises what was said
_EFFORTS: Final = {
    "low": "Quick answers with little reasoning",
    "medium": "Reasoning as the task needs it",
    "high": "More reasoning for hard tasks",
}


def codex_model(model: EnrichedModelData, priority: int) -> dict[str, Any]:
    """A model as an entry of Codex's catalogue; a lower `priority` stands before others in its list.

    Patches are a tool with free text, which the bridge makes a function of where a model has only those.
    Tools of MCP servers are offered with the others and not behind a search, which models have to be trained
    for. A model that calls no tools can be asked for by name and is not shown in the list."""
    window = model.context_window
    efforts = _EFFORTS if model.reasoning else {}
    return {
        "slug": model.id,
        "display_name": model.name,
        "description": f"{model.id}, served by {model.upstream}",
        "default_reasoning_level": "medium" if efforts else None,
        "supported_reasoning_levels": [
            {"effort": effort, "description": what} for effort, what in efforts.items()
        ],
        "shell_type": "unified_exec",
        "visibility": "list" if model.tools else "hide",
        "supported_in_api": True,
        "priority": priority,
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": _instructions(),
        "supports_reasoning_summaries": bool(efforts),
        "default_reasoning_summary": "auto" if efforts else "none",
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",
        "web_search_tool_type": "text",
        "truncation_policy": {"mode": "tokens", "limit": _TOOL_OUTPUT},
        "supports_parallel_tool_calls": True,
        "supports_image_detail_original": False,
        "context_window": window,
        "max_context_window": window,
        "auto_compact_token_limit": min(window * _FULL_PERCENT // 100, model.max_input_tokens),
        "effective_context_window_percent": _USABLE_PERCENT,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"] if model.images else ["text"],
        "supports_search_tool": False,
    }


@cache
def _instructions() -> str:
    return resources.files(__package__).joinpath(_INSTRUCTIONS).read_text("utf-8")
