"""Ids. OpenAI's begin with the kind of their item, and its servers refuse others."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

LONGEST_ID: Final = 64
"""The most characters of an item's id and of a call_id that every server accepts (schema
FunctionCallItemParam)."""
TOO_LONG: Final = f"longer than {LONGEST_ID} characters, shortened"
"""The description of the repair of a longer call_id, for diagnostics."""
PREFIXES: Final = {
    "message": "msg",
    "reasoning": "rs",
    "compaction": "cmp",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "shell_call": "sh",
    "local_shell_call": "lsh",
    "apply_patch_call": "apc",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "computer_call": "cu",
    "mcp_list_tools": "mcpl",
    "mcp_call": "mcp",
    "mcp_approval_request": "mcpr",
}
"""Type of an item → the prefix of its id, before `_`."""

_LEGAL: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_ID}}}")
_KINDS: Final = frozenset(PREFIXES.values())
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}")
_DIGITS: Final = 32  # of a hash: 128 bits


def prefix_of(item_type: str) -> str:
    """Return the prefix of the ids of such items: the type itself if OpenAI has no prefix for it."""
    return PREFIXES.get(item_type.removeprefix("openai:"), item_type)


def id_of_kind(item_id: str, prefix: str) -> str:
    """Return the id, with this prefix if it has that of another kind, since the upstream sent its item as
    another, or if it is a bare UUID, since some clients distinguish items by the prefix."""
    if _UUID.fullmatch(item_id):
        return f"{prefix}_{item_id}"
    kind, joint, rest = item_id.partition("_")
    return f"{prefix}_{rest}" if joint and kind != prefix and kind in _KINDS else item_id


def accepted_id(item_id: str, item_type: str) -> str:
    """Return the id if OpenAI accepts it for such an item, else one that is always the same for it. If no
    prefix is known for the type, any id is accepted."""
    prefix = PREFIXES.get(item_type)
    if prefix is None or (item_id.startswith(f"{prefix}_") and _LEGAL.fullmatch(item_id)):
        return item_id
    return f"{prefix}_{digest(item_id)}"


def accepted_call_id(call_id: str) -> str:
    """Return the call_id if every server accepts its length, else one that is always the same for it."""
    return call_id if len(call_id) <= LONGEST_ID else f"call_{digest(call_id)}"


def free_id(taken: dict[str, int], base: str) -> str:
    """Return the base if it is not `taken`, else the base with the first free number. The count of each taken
    id is kept between calls, so that many ids with the same base cost no more than others."""
    candidate = base
    while candidate in taken:
        taken[base] += 1
        candidate = f"{base}_{taken[base]}"
    return candidate


def digest(text: str) -> str:
    """Return hexadecimal digits that are always the same for a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
