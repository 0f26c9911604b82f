"""What can go wrong with stored responses, and the error that the client gets."""

from __future__ import annotations

from typing import Final

from openresponses_server.errors import HttpError, Outage


class StoreError(Outage):
    """The store failed: 503, and nothing of the call that raised it counts as stored."""

    UNUSABLE = "store_unusable"
    UNAVAILABLE = "store_unavailable"
    FULL = "store_full"
    BUSY = "store_busy"
    OUTDATED = "store_outdated"
    CONFLICT = "store_conflict"
    FAILED = "store_failed"
    CORRUPT = "store_corrupt"

    def __init__(self, code: str, message: str, details: str = "") -> None:
        super().__init__(code, message, details, lasting=code in _LASTING)


def no_answer() -> StoreError:
    """It was waited for as long as may be."""
    return StoreError(StoreError.UNAVAILABLE, "The session store does not answer.")


_LASTING: Final = frozenset({StoreError.UNUSABLE, StoreError.OUTDATED})


class UnreadableRecord(StoreError):
    """What is stored of this response can't be read: 500, since asking again is of no use."""

    def __init__(self, response_id: str) -> None:
        super().__init__(
            StoreError.CORRUPT, f"What is stored of response '{response_id[:80]}' can't be read."
        )
        self.http_status = 500


class LeaseLost(Exception):
    """The run no longer holds its record: its lease went to another worker, or the response was
    deleted. The run's further events must not be stored."""

    def __init__(self, response_id: str, worker: str) -> None:
        super().__init__(f"worker {worker} no longer holds the run of {response_id}")
        self.response_id = response_id
        self.worker = worker


class ChainError(HttpError):
    """A conversation that can't be read back: 400 with the parameter that led to it (field case 39)."""

    MISSING = "previous_response_not_found"
    CYCLE = "previous_response_cycle"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(400, message, code=code, param="previous_response_id")


class TooLarge(HttpError):
    """What a request refers to has more bytes than are allowed: 400 with the parameter that led to it."""

    CONVERSATION = "conversation_too_large"
    REFERENCES = "references_too_large"

    def __init__(self, code: str, size: int, most: int) -> None:
        what, param = _LARGE[code]
        super().__init__(400, f"{what} {size} bytes; the limit is {most}.", code=code, param=param)


_LARGE: Final = {
    TooLarge.CONVERSATION: ("The conversation before this request has", "previous_response_id"),
    TooLarge.REFERENCES: ("What the item references stand for has", "input"),
}


class CursorError(HttpError):
    """A page was asked for from an item that the response does not have: 400."""

    def __init__(self, param: str, item_id: str) -> None:
        super().__init__(
            400, f"No input item has the id '{item_id[:80]}'.", code="invalid_value", param=param
        )
