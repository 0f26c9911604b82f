"""Compaction items that come back, opened into the context that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.input_items import CompactionParam, MessageParam
from openresponses_bridge.protocol.items import CompactionItem
from openresponses_bridge.seal import Sealed, Sealer, SealError

Item = TypeVar("Item")

KIND: Final = "compaction"
"""What our own summaries are sealed as; dialects seal their upstreams' compactions under other kinds."""
INVALID: Final = "invalid_encrypted_content"
COMPACTIONS: Final[frozenset[Any]] = frozenset({CompactionParam, CompactionItem})
_PREFACE: Final = (
    "The conversation before this point was condensed. This summary stands for it; go on from there:\n\n"
)


def seal_summary(sealer: Sealer, summary: str) -> str:
    """A summary as `encrypted_content`."""
    return sealer.seal(summary.encode("utf-8", "surrogatepass"), KIND)


def open_compactions(
    items: Sequence[Item], sealer: Sealer, place: Callable[[int], str], *, upstream_compacts: bool
) -> list[Any]:
    """The items with each compaction that this server made as a user's message that holds the summary: every
    model reads one at any position.

    With `upstream_compacts` others pass as they are, since the upstream may have made them. Else they
    raise InvalidRequestError `invalid_encrypted_content`; `place` gives the path of the parameter at fault
    for an index.
    """
    if COMPACTIONS.isdisjoint(map(type, items)):  # as almost always
        return list(items)
    return [
        _opened(item, sealer, place(index), upstream_compacts)
        if isinstance(item, CompactionParam | CompactionItem)
        else item
        for index, item in enumerate(items)
    ]


def _opened(
    item: CompactionParam | CompactionItem, sealer: Sealer, place: str, upstream_compacts: bool
) -> Any:
    try:
        sealed = sealer.open(item.encrypted_content)
    except SealError as error:
        if upstream_compacts and error.code == SealError.FOREIGN:
            return item
        raise _invalid(error.message, place) from error
    if sealed.kind == KIND:
        return MessageParam("user", _PREFACE + _summary(sealed))
    if upstream_compacts:
        return item
    raise _invalid(f"the envelope holds {sealed.kind!r}, which this upstream can't read", place)


def _summary(sealed: Sealed) -> str:
    return sealed.payload.decode("utf-8", "surrogatepass")


def _invalid(why: str, place: str) -> InvalidRequestError:
    return InvalidRequestError(INVALID, f"The compaction can't be opened: {why}.", param=place)
