"""Decodes bytes to chunks. Before this, `FrameTemplate` handles chunks that are like the one before.

Strict: a chunk from the middle of a stream, with a piece of text, of reasoning or of one call, and nothing
else. Nearly every chunk is one, and needs no check besides its decoding.

Lenient: all others, as `ChatOutput`, with everything that a chunk or a completion may contain. What msgspec
refuses is read field by field, keeping what can be read: numbers as strings, null among list elements, half a
surrogate pair, a field of another type. What can't be read is left out, with a diagnostic.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.chat_completions.types import (
    ChatLogProb,
    ChatOutput,
    ChatToolCall,
    ChatTopLogProb,
    ChatUsage,
    CompletionTokensDetails,
    PromptTokensDetails,
)
from openresponses_bridge.protocol.content import LogProb, TopLogProb
from openresponses_bridge.protocol.usage import Usage

S = TypeVar("S", bound=Struct)


# Each struct has every field of the struct that it is a strict reading of: a field that was missing here
# would be skipped unread beside text.
class StrictDelta(Struct, gc=False):
    """The fields that such a chunk may have; all others that an inbound reads are absent or null."""

    role: str | None = None
    content: str | None = None
    tool_calls: tuple[ChatToolCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: None = None
    reasoning_opaque: None = None
    reasoning_details: None = None
    thinking_blocks: None = None
    refusal: None = None
    function_call: None = None
    annotations: None = None
    audio: None = None
    images: None = None
    executed_tools: None = None
    extra_content: None = None


class StrictChoice(Struct, gc=False):
    """A choice that continues."""

    delta: StrictDelta
    index: int = 0
    message: None = None
    text: None = None
    finish_reason: None = None
    logprobs: None = None
    usage: None = None
    error: None = None


class StrictStatus(Struct, gc=False):
    """MiniMax's status of an answer without a failure."""

    status_code: Literal[0] = 0


class StrictChunk(Struct, gc=False):
    """A chunk with only that choice, and with the counts so far if a server sends them each time."""

    choices: tuple[StrictChoice]
    usage: ChatUsage | None = None
    error: None = None
    citations: None = None
    search_results: None = None
    web_search: None = None
    x_groq: None = None
    base_resp: StrictStatus | None = None


decode_strict = msgspec.json.Decoder(StrictChunk).decode
decode_output = msgspec.json.Decoder(ChatOutput).decode
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def content_of(data: bytes) -> str | None:
    """Return the text of a chunk that is decoded strictly. Raises one of UNDECODABLE for any other chunk."""
    return decode_strict(data).choices[0].delta.content


def arguments_of(data: bytes) -> object:
    """Return the arguments of such a chunk's fragment; None if it has none. Raises as `content_of` does."""
    calls = decode_strict(data).choices[0].delta.tool_calls
    return None if calls is None or calls[0].function is None else calls[0].function.arguments


class _Field(NamedTuple):
    """The types that a field may have unchanged, the struct that it may have, and the type of its
    elements."""

    kinds: frozenset[Any]
    struct: type[Struct] | None
    element: _Field | None


_FIELDS: dict[type[Struct], dict[str, _Field]] = {}

# (received type, expected type) → the converted value; raises ValueError if there is none
_CONVERSIONS: dict[tuple[type, type], Callable[[Any], Any]] = {
    (str, int): int,
    (str, float): float,
    (float, int): lambda value: _whole(value),
    (int, float): float,
    (int, str): str,
    (float, str): str,
}


def read_lenient(struct: type[S], value: dict[str, Any], diagnostics: Diagnostics, where: str = "chunk") -> S:
    """Return `value` as a `struct`, with everything that can be read of it."""
    known: dict[str, Any] = {}
    for name, field in _fields(struct).items():
        raw = value.get(name)
        if raw is not None:
            known[name] = _value(field, raw, diagnostics, f"{where}.{name}")
    return struct(**known)


def _value(field: _Field, raw: Any, diagnostics: Diagnostics, where: str) -> Any:
    if type(raw) is dict and field.struct is not None:
        return read_lenient(field.struct, raw, diagnostics, where)
    if type(raw) is dict and ((field.element is not None and field.element.struct) or list in field.kinds):
        if raw and all(key.isdecimal() for key in raw):
            diagnostics.repair(where, "read an object as an array, by its keys")
            raw = list(raw.values())
        elif dict not in field.kinds:
            diagnostics.repair(where, "read an object as the only one of its array")
            raw = [raw]
    if type(raw) is list and field.element is not None:
        element = field.element
        elements = (_value(element, each, diagnostics, f"{where}[]") for each in raw)
        return [each for each in elements if each is not None]
    if type(raw) in field.kinds or Any in field.kinds:
        return raw
    for kind in field.kinds:
        convert = _CONVERSIONS.get((type(raw), kind))
        if convert is not None:
            try:
                converted = convert(raw)
            except (ValueError, OverflowError):
                continue
            if (type(raw), kind) != (int, float):
                diagnostics.repair(where, f"read {_NAMES[type(raw)]} as {_NAMES[kind]}")
            return converted
    diagnostics.loss(where, f"can't be read: {_NAMES[type(raw)]}")
    return None


def _fields(struct: type[Struct]) -> dict[str, _Field]:
    known = _FIELDS.get(struct)
    if known is None:
        hints = get_type_hints(struct)
        known = _FIELDS[struct] = {name: _field(hints[name]) for name in struct.__struct_fields__}
    return known


def _field(annotation: Any) -> _Field:
    struct: type[Struct] | None = None
    element: _Field | None = None
    kinds: set[Any] = set()
    for member in get_args(annotation) if isinstance(annotation, UnionType) else (annotation,):
        if get_origin(member) is list and get_args(member) != (Any,):
            element = _field(get_args(member)[0])
        elif isinstance(member, type) and issubclass(member, Struct):
            struct = member
        else:
            kinds.add(get_origin(member) or member)
    return _Field(frozenset(kinds), struct, element)


def _whole(value: float) -> int:
    if value.is_integer():
        return int(value)
    raise ValueError(value)


_NAMES: dict[type, str] = {
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
    NoneType: "null",
}


_NO_PROMPT_DETAILS = PromptTokensDetails()
_NO_COMPLETION_DETAILS = CompletionTokensDetails()


def usage_of(usage: ChatUsage, diagnostics: Diagnostics) -> Usage:
    """Return counts in the schema's names; missing ones are 0."""
    details = usage.prompt_tokens_details or usage.input_tokens_details
    prompt = details or _NO_PROMPT_DETAILS
    completion = usage.completion_tokens_details or usage.output_tokens_details or _NO_COMPLETION_DETAILS
    cached = (
        prompt.cached_tokens
        or usage.prompt_cache_hit_tokens
        or usage.cached_tokens
        or usage.num_cached_tokens
        or usage.cache_read_input_tokens
        or 0
    )
    written = (
        prompt.cache_write_tokens or prompt.cache_creation_tokens or usage.cache_creation_input_tokens or 0
    )
    reasoning = completion.reasoning_tokens or usage.reasoning_tokens or 0
    sent, output = usage.prompt_tokens or 0, usage.completion_tokens or usage.output_tokens or 0
    total = usage.total_tokens
    if not sent:
        sent = usage.input_tokens or 0
        if details is None and sent:  # Anthropic's, which counts cached input separately
            sent += (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    if reasoning and total == sent + output + reasoning:
        # xAI counts reasoning separately, the schema within the output
        diagnostics.repair("usage.completion_tokens", "did not include the reasoning tokens, added")
        output += reasoning
    return Usage.of(
        sent,
        output,
        cached_tokens=cached,
        reasoning_tokens=reasoning,
        total_tokens=total,
        cache_write_tokens=written,
        estimated=usage.estimated is True,
    )


def logprobs_of(tokens: list[ChatLogProb], diagnostics: Diagnostics) -> list[LogProb]:
    """Return the schema's LogProb with all fields: `bytes` are those of the token if the upstream gave
    none."""
    logprobs = []
    for each in tokens:
        if each.token is None or each.logprob is None:
            diagnostics.loss("logprobs", "a token without its log probability")
            continue
        alternatives = [
            TopLogProb(_clean(other.token), other.logprob, _bytes(other))
            for other in each.top_logprobs or ()
            if other.token is not None and other.logprob is not None
        ]
        logprobs.append(LogProb(_clean(each.token), each.logprob, _bytes(each), alternatives))
    return logprobs


def _bytes(token: ChatLogProb | ChatTopLogProb) -> list[int]:
    if token.bytes is not None:
        return token.bytes
    return list((token.token or "").encode("utf-8", "replace"))


def _clean(token: str) -> str:
    # half a surrogate pair can't be encoded
    return token.encode("utf-8", "replace").decode()
