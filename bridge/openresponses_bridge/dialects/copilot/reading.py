"""What Copilot writes, read without trusting its shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from openresponses_bridge.dialects.base import number_of


class _PlainDelta(Struct, forbid_unknown_fields=True):
    text: str


class _PlainChunk(Struct, forbid_unknown_fields=True):
    text: str
    index: int
    delta: _PlainDelta


_decode_plain = msgspec.json.Decoder(_PlainChunk).decode


def plain_text(data: bytes, index: int) -> str | None:
    """The text of the common chunk, which holds nothing else; None for any other."""
    try:
        chunk = _decode_plain(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return chunk.delta.text if chunk.index == index else None


def text_of(value: Any) -> str:
    """A string or a list of strings as one string; anything else is empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(piece for piece in value if isinstance(piece, str))
    return ""


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; anything else is left out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def logprobs_of(value: Any) -> list[dict[str, Any]]:
    """`{content: [{token, logprob, bytes, top_logprobs}]}` with what may be missing filled in."""
    given = objects(value.get("content")) if isinstance(value, dict) else []
    return [{**_probability(each), "top_logprobs": _alternatives(each)} for each in given]


def _alternatives(each: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_probability(top) for top in objects(each.get("top_logprobs"))]


def _probability(each: Mapping[str, Any]) -> dict[str, Any]:
    token, logprob = text_of(each.get("token")), each.get("logprob")
    return {
        "token": token,
        "logprob": (number_of(logprob) or 0.0),
        "bytes": list(token.encode("utf-8", "replace")),
    }


def _count(value: Mapping[str, Any], *names: str) -> int | None:
    counts = [value[name] for name in names if type(value.get(name)) is int]
    return max(counts[0], 0) if counts else None


def failure_of(value: Any) -> dict[str, Any]:
    """One error of Copilot's (`{type, code, message, agent, identifier}`) or of the API's."""
    given = value if isinstance(value, dict) else {}
    return {
        "code": text_of(given.get("code")) or "server_error",
        "message": text_of(given.get("message")) or "the upstream reported an error without a message",
        "param": text_of(given.get("identifier") or given.get("param")) or None,
    }


def url_citation_of(reference: Mapping[str, Any]) -> dict[str, Any] | None:
    """The citation in a reference that names a URL; None for references to anything else."""
    given = reference.get("data")
    data = given if isinstance(given, dict) else {}
    metadata = reference.get("metadata")
    shown = metadata if isinstance(metadata, dict) else {}
    url = text_of(data.get("url") or shown.get("display_url"))
    if not url:
        return None
    return {
        "type": "url_citation",
        "url": url,
        "title": text_of(data.get("title") or shown.get("display_name")),
        "start_index": _count(data, "start_index") or 0,
        "end_index": _count(data, "end_index") or 0,
    }
