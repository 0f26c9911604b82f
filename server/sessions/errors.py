"""What can go wrong with stored responses, and what the client is told."""

from __future__ import annotations

from server.errors import HttpError


class StoreError(HttpError):
    """The store failed: 503, and nothing of the call that raised it counts as stored."""

    UNAVAILABLE = "store_unavailable"
    FULL = "store_full"
    BUSY = "store_busy"
    OUTDATED = "store_outdated"
    CONFLICT = "store_conflict"
    FAILED = "store_failed"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(503, message, code=code)


class LeaseLost(Exception):
    """The run no longer holds its record: its lease went to another worker, or the response was
    deleted. What the run still has to say must not be stored."""

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


class CursorError(HttpError):
    """A page was asked for from an item that the response does not have: 400."""

    def __init__(self, param: str, item_id: str) -> None:
        super().__init__(
            400, f"No input item has the id '{item_id[:80]}'.", code="invalid_value", param=param
        )
