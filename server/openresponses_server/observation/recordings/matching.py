"""What of a request says which recorded exchange answers it: its model and what was asked last."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2s
from typing import Any, Final, NamedTuple

from openresponses_server.observation.recordings.masking import masked_value

# fields whose strings are names and not what was said; ids differ from run to run
_NOT_SAID: Final = frozenset(
    {"id", "call_id", "tool_call_id", "tool_use_id", "item_id", "type", "role", "status", "cache_control"}
)
_TURNS: Final = ("messages", "input")


class Wanted(NamedTuple):
    """`model` is "" where none is named; `said` a digest of the texts of the last entry of the input, without
    its ids and with all white space alike."""

    model: str
    said: str


def wanted(body: Any) -> Wanted:
    """Of a request's body, in any dialect."""
    fields = body if isinstance(body, dict) else {}
    model = fields.get("model")
    turns = next((fields[name] for name in _TURNS if fields.get(name)), None)
    last = turns[-1] if isinstance(turns, list) else turns
    words = " ".join(" ".join(_texts(masked_value(last))).split())
    digest = blake2s(words.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Wanted(model if isinstance(model, str) else "", digest)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in _NOT_SAID:
                yield from _texts(each)
