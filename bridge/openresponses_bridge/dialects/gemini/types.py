"""Answers of `generateContent` as structs, for both directions, and the names in its parts.

When written, defaults are left out. When read, Google's servers and clients spell names as `functionCall` or
`function_call`, and may send enums as numbers (`$alt=json;enum-encoding=int`). Parts are plain dictionaries
with names in camelCase; what is in `args` and `response` belongs to the tools and is not changed. Counts are
tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.protocol.codec import encode, plain

SLUG: Final = "gemini:"
"""With the name of a part's kind, the type of the item that has it."""
DATA: Final = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
"""The kinds of parts: a part has one of these fields, or none."""


TIERS: Final = {"default": "standard", "flex": "flex", "priority": "priority"}
"""Service tiers: the protocol's names → Google's."""
TIERS_OF_GOOGLE: Final = {theirs: ours for ours, theirs in TIERS.items()}
USED_TIER: Final = "serviceTier"
"""The field of the counts with the tier that was used."""


class UsageMetadata(Struct, rename="camel", omit_defaults=True):
    """The counts so far. Thoughts and the prompts of server tools are counted separately."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    total_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    thoughts_token_count: int | None = None


ANSWER: Final = "answer"
"""The field of `Response.native` with what is not a candidate's."""
PARTS: Final = "parts"
"""The field with those of parts, by the index of their item."""
PART: Final = "gemini:part"
"""The type of the event with such fields, before the end of the item; and the field with them in an image's
item."""
COUNTS: Final = UsageMetadata.__struct_encode_fields__
"""The names of those counts."""


class Content(Struct, rename="camel", omit_defaults=True):
    """Parts of one role."""

    parts: list[dict[str, Any]] | None = None
    role: str | None = None


class Candidate(Struct, rename="camel", omit_defaults=True):
    """One of the answers, or its next parts. `others` are further fields (see `encode_chunk`)."""

    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None
    grounding_metadata: dict[str, Any] | None = None
    logprobs_result: dict[str, Any] | None = None
    others: dict[str, Any] | None = None


class GenerateContentResponse(Struct, rename="camel", omit_defaults=True):
    """A chunk of a stream, or a whole answer. `others` are further fields."""

    candidates: list[Candidate] | None = None
    prompt_feedback: dict[str, Any] | None = None
    usage_metadata: dict[str, Any] | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: dict[str, Any] | None = None
    others: dict[str, Any] | None = None


def encode_chunk(chunk: GenerateContentResponse) -> bytes:
    """Encode a chunk as JSON, with the other fields of its objects in them."""
    candidates = chunk.candidates or ()
    if chunk.others is None and all(each.others is None for each in candidates):
        return encode(chunk)
    fields: dict[str, Any] = plain(chunk)
    for candidate in fields.get("candidates", ()):
        candidate |= candidate.pop("others", {})
    return encode(fields | fields.pop("others", {}))


FINISH_REASONS: Final = (
    "FINISH_REASON_UNSPECIFIED",
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "OTHER",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MALFORMED_FUNCTION_CALL",
    "IMAGE_SAFETY",
    "UNEXPECTED_TOOL_CALL",
)
"""Finish reasons by their numbers in the Gemini API. Vertex AI numbers those after OTHER differently."""
FILTERED: Final = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)
"""The finish reasons of withheld answers."""
FAILURES: Final = {
    "MALFORMED_FUNCTION_CALL": "the upstream's model made a function call that could not be read",
    "UNEXPECTED_TOOL_CALL": "the upstream's model called a tool it was not given",
    "TOO_MANY_TOOL_CALLS": "the upstream's model called too many tools one after the other",
    "MISSING_THOUGHT_SIGNATURE": "a call in the request had no thought signature",
    "MALFORMED_RESPONSE": "the upstream's model made an answer that could not be read",
}
"""The finish reasons of answers that failed, and their meanings."""
BLOCK_REASONS: Final = (
    "BLOCK_REASON_UNSPECIFIED",
    "SAFETY",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "IMAGE_SAFETY",
)


def enum_name(value: Any, names: tuple[str, ...]) -> str | None:
    """Return the name of an enum's value, which may be a number; a number without a name is returned. None
    for anything else, and for an empty name."""
    if isinstance(value, str):
        return value or None
    if type(value) is not int:
        return None
    return names[value] if 0 <= value < len(names) else str(value)


_SNAKE: Final = re.compile(r"_([a-z])")


def camel(name: str) -> str:
    """Return a field's name in camelCase, from either spelling."""
    return _SNAKE.sub(lambda found: found[1].upper(), name) if "_" in name else name


def spelled(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its own names in camelCase; of two spellings of one name, camelCase takes
    precedence."""
    named = {camel(name): each for name, each in value.items()}
    return named | {name: value[name] for name in value if name in named}


def spelled_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part, and the object in it, with names in camelCase. What a tool gets or returns is not
    changed."""
    return {
        name: spelled(each) if isinstance(each, dict) and name in DATA else each
        for name, each in spelled(part).items()
    }
