"""Stored responses behind one interface.

A response belongs to the key that made it (`owner`, law S7): every look-up names the owner, and what
belongs to another is not found. Times are Unix seconds as floats.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from typing import Final, Literal, Protocol

from msgspec import Struct

from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError, Outage
from openresponses_server.store.frames import Frames, Piece
from openresponses_server.store.listing import ListingStore
from openresponses_server.store.presence import Presence
from openresponses_server.store.usage import UsageStore

Order = Literal["asc", "desc"]
NOBODY = ""
"""The worker of a run that waits for one."""
ANY_SIZE = 2**62
"""More bytes than there are anywhere."""
NO_ID = "resp_0"
"""No response has it: asking for it shows whether the store answers."""


class Lease(Struct, frozen=True):
    """The worker that makes the response, and until when it counts as alive without a renewal. `worker` is
    unique to one run of one process, whose name and a hyphen it begins with, or `NOBODY` while the run waits
    in a queue."""

    worker: str
    until: float


class StoredResponse(Struct, frozen=True):
    """One turn: what its request brought in (not what came before it) and the response.

    `response.previous_response_id` is the link to the turn before. `request` is the request's body as
    JSON. `lease` is there as long as the run is, from `queued` to its end; `last_sequence` is the number of
    the last event whose frame is stored, -1 when none is. The store keeps `last_sequence` and
    `updated_at` itself; 0 as `created_at` means now.
    """

    response: Response
    input: list[InputItem]
    owner: str = ""
    request: bytes | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    expires_at: float | None = None
    lease: Lease | None = None
    last_sequence: int = -1


class ResponseProgress(Struct, frozen=True):
    """How far a stored response is, without what it holds; the names are those of `StoredResponse`."""

    id: str
    owner: str
    lease: Lease | None
    last_sequence: int


class UpstreamResponse(Struct, frozen=True):
    """A response as the upstream itself keeps it, under its own `id`: with the same `account` (see
    `Upstream`) and the same `model` there a later turn may go on from it."""

    account: str
    model: str
    id: str


class StoredTurn(Struct, frozen=True):
    """One link of a chain; `upstream` is its response where the upstream keeps that."""

    response: Response
    input: list[InputItem]
    upstream: UpstreamResponse | None = None


class ListedItem(Struct, frozen=True):
    """An input item under the id that pages are asked for with: its own, or one given by the store."""

    id: str
    item: InputItem


class InputPage(Struct, frozen=True):
    """Some input items in the order asked for; `has_more` looks on in the direction of the paging."""

    items: list[ListedItem]
    has_more: bool


class ResponseStore(Protocol):
    """Where responses are kept. A store may forget the oldest; it never gives a wrong one.

    What a call wrote is durable when it returns. Every method raises StoreError when the store can't be
    reached or is full, and then nothing of that call may be relied on; each may be called again. What has
    expired and ended is not found, swept or not, except by `delete` and `export`. A record that can't be read
    raises UnreadableRecord.
    """

    name: str
    """The same for all stores at the same address, and no other's: what goes by it is shared by those who
    share the responses. It contains no password."""

    is_loaded: bool
    """False where the first calls wait until its code is loaded: nothing else is to wait for them."""

    @property
    def usage(self) -> UsageStore:
        """What the keys of these responses spent."""
        ...

    @property
    def listing(self) -> ListingStore:
        """These responses as lists."""
        ...

    async def now(self) -> float:
        """The time that decides whether leases in this store are over: the same for all workers that share
        it, whatever their machines' clocks say."""
        ...

    async def get(self, response_id: str, owner: str = "") -> StoredResponse | None:
        """The turn with this id, None when this owner has none."""
        ...

    async def standing(self, response_id: str, owner: str = "") -> ResponseProgress | None:
        """How far that turn is, None when this owner has none. As cheap however long the record is."""
        ...

    async def put(self, record: StoredResponse, frames: Frames | None = None) -> None:
        """Keep the turn under its response's id, with the frames sent so far; what the owner had under
        that id is replaced as a whole.

        Raises StoreError `store_conflict` when the id is another owner's or can't be an id.
        """
        ...

    async def checkpoint(
        self,
        response_id: str,
        lease: Lease,
        response: Response | None = None,
        frames: Frames | None = None,
    ) -> None:
        """Renew the lease of a run and store its snapshot and the frames since the last checkpoint.

        Frames that begin where stored ones began replace them, so that a checkpoint that failed can be made
        again with what came since. Raises LeaseLost when `lease.worker` does not hold the run.
        """
        ...

    async def renew(self, held: Mapping[str, str], until: float) -> set[str]:
        """Renew the leases of many runs at once: response id → the worker that holds it. Those among them
        that it does not hold (any more)."""
        ...

    async def finish(
        self, response_id: str, worker: str, response: Response, frames: Frames | None = None
    ) -> None:
        """The run has ended: store what it ended as and give up the lease. May be repeated: the first end
        stands, since others may have read it.

        Raises LeaseLost when `worker` does not hold the run.
        """
        ...

    async def acquire(self, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
        """Take the run if it waits for a worker or its lease was over at `now`; None when not. Of any
        number of workers that try, one succeeds."""
        ...

    async def claim_orphans(
        self, lease: Lease, now: float, limit: int = 100, *, waiting: bool = True
    ) -> list[StoredResponse]:
        """Take runs whose lease was over at `now`, to settle them; each goes to one caller only. Of
        every owner; without `waiting` not those that wait for any worker. One that can't be read is ended as
        it is and handed to no caller; so too when it is acquired."""
        ...

    async def claim_of(self, process: str, lease: Lease, limit: int = 100) -> list[StoredResponse]:
        """The same of runs whose workers are this process', which has stopped, however long their leases."""
        ...

    async def release(self, held: Mapping[str, str], until: float) -> None:
        """Let runs that have not begun wait for any worker: response id → the worker that holds it. `until`
        as in `claim_waiting`."""
        ...

    def presence(self, process: str, lease: float) -> Presence:
        """What shows the processes that share this store that `process` is alive, and it the others. Living
        workers renew their leases of `lease` seconds every quarter of that."""
        ...

    async def claim_waiting(
        self, lease: Lease, before: float, limit: int = 1, not_of: Collection[str] = ()
    ) -> list[StoredResponse]:
        """Take runs that wait for a worker and whose lease is over before that time, which may be to come;
        each goes to one caller only. Of every owner but those in `not_of`."""
        ...

    async def waiting(self, owner: str, most: int) -> tuple[int, int]:
        """How many runs wait for a worker: of every owner, and of this one. They are counted up to `most`,
        over an index of those that wait."""
        ...

    def frames(self, response_id: str, owner: str = "", after: int = -1) -> AsyncIterator[Piece]:
        """The stored frames with a number above `after`, in order; none when this owner has none.

        They come in pieces, so that a reader holds about `PIECE_BYTES` at once, whatever a checkpoint stored.
        They end early, within a frame, when the response is deleted meanwhile."""
        ...

    async def chain(self, response_id: str, owner: str = "") -> list[StoredTurn]:
        """The turns up to and with this one, oldest first. Turns before it that were deleted or have
        expired are among them (see `delete`).

        Raises ChainError when a link is missing (or another owner's) and when the chain is a circle.
        """
        ...

    async def size(self, response_id: str, owner: str = "") -> int:
        """How many bytes of JSON `chain` would read, without reading them; 0 when this owner has no such
        response. What lies behind a link that is missing does not count."""
        ...

    async def stock(self) -> dict[str, int]:
        """How many bytes are stored of each owner: requests, responses, input and frames, and what was
        deleted and is kept for later turns. They are measured without being read; it takes as long as there
        are records."""
        ...

    async def missing(
        self, response_ids: Collection[str], owner: str = "", *, before: Collection[str] = ()
    ) -> set[str]:
        """Those among these responses that this owner has not (any more), and those among the turns `before`
        them of which nothing is kept: what was deleted and is kept for later turns counts as there."""
        ...

    async def input_items(
        self,
        response_id: str,
        owner: str = "",
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> InputPage | None:
        """A page of what the request brought in; None when this owner has no such response.

        `after` and `before` are ids of items and bound the page in the order asked for; with `before` alone
        the page ends there. Raises CursorError when there is no such item.
        """
        ...

    async def items(
        self, item_ids: Collection[str], owner: str = "", *, most: int = ANY_SIZE
    ) -> dict[str, InputItem]:
        """The items that have these ids, as input, by id; what this owner has not is left out.

        Raises TooLarge, before they are read, when they have more than `most` bytes of JSON together; items
        of an output count as the whole response, since that is what has to be read for them.

        Looked for in the output of responses that have ended, then in the input of all, under the ids that
        `input_items` lists; of several under one id it is the newest response's.
        """
        ...

    async def delete(self, response_id: str, owner: str = "") -> bool:
        """Forget the turn; whether this owner had one. A run that is making it will lose its lease.

        If later turns stand on it, its input and output are kept for them and shown by `chain` alone, and go
        with the last of those. So it is with `sweep`.
        """
        ...

    async def sweep(self, now: float) -> int:
        """Forget what expired at `now` or before; how many. Runs in progress stay."""
        ...

    def export(self) -> AsyncIterator[bytes]:
        """Every record of every owner as lines of JSON (see `export_lines`), line ends included."""
        ...

    async def probe(self) -> None:
        """Find out whether it answers and, now and then and whenever it was full lately, whether it takes
        what is written. Nothing of that stays."""
        ...

    async def close(self) -> None:
        """Close connections; the store is not used after that."""
        ...


# What can go wrong with stored responses, and the error that the client gets.


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
