"""`context_management`: a conversation beyond its threshold is condensed before its model answers.

The summary takes the place of what it stands for. Instructions, system and developer messages, declared tools
and the user's last messages stay as they are, around it. The response gets a compaction item, in which all of
that is sealed, so that later turns begin with it and need nothing before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import InputTextContent
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.secrets import items_without_secrets
from openresponses_server.requests.abilities import Loss
from openresponses_server.requests.compaction import placeholder_of, summary_item
from openresponses_server.requests.truncation import last_users, stays
from openresponses_server.runs.metering import input_room_of
from openresponses_server.upstreams.targets import Target

SMALLEST_THRESHOLD: Final = 1000
"""Tokens, as in OpenAI's reference."""
FIELD: Final = "context_management"
_TYPE: Final = "compaction"
_ROOM: Final = 3 / 4  # of the model's context, where no threshold is given
_ELSEWHERE: Final = "the upstream that was asked first compacts by itself"
_UNKNOWN: Final = "no threshold is given, and the model's context is not known"
_KEPT_BYTES: Final = 65_536  # of an item in a sealed window; a larger one loses its images and files


def check_context(body: CreateResponse) -> None:
    """Raises InvalidRequestError for an invalid `context_management`."""
    compactions = 0
    for index, entry in enumerate(body.context_management or ()):
        where = f"{FIELD}[{index}]"
        if not isinstance(entry.get("type"), str):
            raise invalid(f"{where}.type", "it must be a string, such as 'compaction'")
        if entry["type"] != _TYPE:
            continue
        compactions += 1
        threshold = entry.get("compact_threshold")
        if threshold is not None and (type(threshold) is not int or threshold < SMALLEST_THRESHOLD):
            raise invalid(
                f"{where}.compact_threshold", f"it must be an integer of {SMALLEST_THRESHOLD} or more"
            )
    if compactions > 1:
        raise invalid(FIELD, "it may have one entry of type 'compaction' at most")


def _entry(body: CreateResponse) -> Mapping[str, Any] | None:
    return next((each for each in body.context_management or () if each["type"] == _TYPE), None)


def threshold_of(body: CreateResponse, target: Target) -> int | None:
    """The tokens of input beyond which the request is compacted here; None if it is not."""
    entry = _entry(body)
    if entry is None or target.traits.compacts:
        return None
    return entry.get("compact_threshold") or int(input_room_of(target) * _ROOM) or None


def context_losses(body: CreateResponse, target: Target, *, compacts_here: bool) -> dict[Loss, None]:
    """Return the losses of this field at this upstream."""
    losses: dict[Loss, None] = {}
    if target.traits.compacts:
        return losses
    for index, entry in enumerate(body.context_management or ()):
        if entry["type"] != _TYPE:
            losses[f"{FIELD}[{index}]", f"{entry['type'][:64]!r} is not known"] = None
        elif not compacts_here:
            losses[FIELD, _ELSEWHERE if threshold_of(body, target) else _UNKNOWN] = None
    return losses


class Split(NamedTuple):
    """A conversation in two: `kept` stays as it is, and the summary of `condensed` goes in after `at` of the
    items that are kept."""

    kept: list[Any]
    condensed: list[Any]
    at: int

    def window(self, summary: str) -> list[Any]:
        """The conversation with this summary."""
        return [*self.kept[: self.at], summary_item(summary), *self.kept[self.at :]]


def split(items: Sequence[Any]) -> Split:
    """Split a conversation. The summary is put where the last item was that it replaces, so that a question
    comes after it, and the calls that a question led to are in it."""
    last = last_users(items)
    kept: list[Any] = []
    condensed: list[Any] = []
    at = 0
    for index, item in enumerate(items):
        if stays(item) or index in last:
            kept.append(item)
        else:
            condensed.append(item)
            at = len(kept)
    return Split(kept, condensed, at)


def sealable(items: Iterable[Any]) -> list[Any]:
    """The items of a window as they are sealed: without secrets of tools, and without the images and files of
    large ones, which later turns would carry."""
    return items_without_secrets([_without_files(item) for item in items])


def _without_files(item: Any) -> Any:
    content = getattr(item, "content", None)
    if not isinstance(content, list) or len(encode(item)) <= _KEPT_BYTES:
        return item
    parts = [
        part if isinstance(getattr(part, "text", None), str) else InputTextContent(placeholder_of(part))
        for part in content
    ]
    return replace(item, content=parts)
