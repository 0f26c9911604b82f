"""The interface of response stores.

A response belongs to the key that made it (`owner`, law S7): every look-up names the owner and does not find
another owner's responses. Times are Unix seconds as floats.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

from msgspec import Struct

from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError, Outage
from openresponses_server.store.frames import Frames, Piece
from openresponses_server.store.idempotency import IdempotencyKey, KeyedResponse
from openresponses_server.store.keys import KeyStore
from openresponses_server.store.listing import ListingStore
from openresponses_server.store.presence import Presence
from openresponses_server.store.usage import UsageStore

Order = Literal["asc", "desc"]
NOBODY = ""
"""The worker of a queued run."""
ANY_SIZE = 2**62
"""A limit that no size exceeds."""
NO_ID = "resp_0"
"""An id that no response has: looking it up shows whether the store answers."""
WRITTEN_TOGETHER: Final = 128
"""The most writes that share a transaction: with more, each would cost hardly less."""


class Lease(Struct, frozen=True):
    """The worker that makes the response, and the time until which it counts as alive without a renewal.

    `worker` is unique to one run of one process and begins with the process's name and a hyphen; it is
    `NOBODY` while the run is queued.
    """

    worker: str
    until: float


class StoredResponse(Struct, frozen=True):
    """One turn: the items of its request (not those of earlier turns) and the response.

    `response.previous_response_id` links to the previous turn. `request` is the request's body as JSON.
    `lease` exists as long as the run, from `queued` to its end. `last_sequence` is the number of the last
    event whose frame is stored, or -1. The store itself sets `last_sequence` and `updated_at`; a `created_at`
    of 0 means now. `conversation` is the id of the owner's conversation to which input and output are
    appended at the end.
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
    conversation: str | None = None


class ResponseProgress(Struct, frozen=True):
    """The progress of a stored response, without its contents; the names are those of `StoredResponse`."""

    id: str
    owner: str
    lease: Lease | None
    last_sequence: int


class UpstreamResponse(Struct, frozen=True):
    """The upstream's own record of a response, under the upstream's `id`: a later turn with the same
    `account` (see `Upstream`) and the same `model` may continue it."""

    account: str
    model: str
    id: str


class StoredTurn(Struct, frozen=True):
    """One link of a chain; `upstream` is its response at the upstream, if the upstream keeps it;
    `conversation` is the id of the conversation that it was made in."""

    response: Response
    input: list[InputItem]
    upstream: UpstreamResponse | None = None
    conversation: str | None = None


class ListedItem(Struct, frozen=True):
    """An input item with the id that pages use: its own, or one that the store assigned."""

    id: str
    item: InputItem


class InputPage(Struct, frozen=True):
    """Some input items in the requested order; `has_more` is about the direction of the paging."""

    items: list[ListedItem]
    has_more: bool


class StoredConversation(Struct, frozen=True):
    """A conversation without its items; `metadata` is JSON. It expires when nothing has changed it for the
    time that the server keeps responses."""

    id: str
    owner: str
    created_at: float
    expires_at: float | None
    metadata: bytes


class ConversationSize(Struct, frozen=True):
    """The number of a conversation's items, and the bytes of their JSON."""

    items: int
    bytes: int


class ConversationStore(Protocol):
    """Stores conversations: lists of items under an id, to which responses append what they end with. Calls
    fail as those of `ResponseStore` do. For an id that no conversation of this owner has, or one that has
    expired, they return None or False."""

    async def create(self, conversation: StoredConversation, items: Sequence[ListedItem]) -> None:
        """Store a new conversation with its first items, which have different ids."""
        ...

    async def get(self, conversation_id: str, owner: str) -> StoredConversation | None:
        """Return the conversation."""
        ...

    async def count(self, owner: str, most: int) -> int:
        """Return the number of this owner's conversations; counts up to `most`."""
        ...

    async def update(
        self, conversation_id: str, owner: str, metadata: bytes, expires_at: float | None
    ) -> StoredConversation | None:
        """Replace the metadata. Returns the conversation."""
        ...

    async def delete(self, conversation_id: str, owner: str) -> bool:
        """Delete the conversation with its items; the responses that were made in it stay."""
        ...

    async def add(
        self,
        conversation_id: str,
        owner: str,
        items: Sequence[ListedItem],
        most: ConversationSize,
        expires_at: float | None,
    ) -> bool:
        """Append all of these items, or none; of several writers, one comes after the other. Raises HttpError
        `conversation_full` beyond `most`, and `item_exists` if the conversation has an item with one of the
        ids."""
        ...

    async def page(
        self,
        conversation_id: str,
        owner: str,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> InputPage | None:
        """Return a page of the items, which begins after the item with the id `after`. Raises CursorError if
        there is no such item."""
        ...

    async def item(self, conversation_id: str, item_id: str, owner: str) -> ListedItem | None:
        """Return one item."""
        ...

    async def remove(
        self, conversation_id: str, item_id: str, owner: str, expires_at: float | None
    ) -> StoredConversation | None:
        """Delete one item; the others keep their order. Returns the conversation; None if it has no such
        item."""
        ...

    async def size(self, conversation_id: str, owner: str) -> ConversationSize | None:
        """Return the size, without reading the items."""
        ...

    async def items(self, conversation_id: str, owner: str) -> list[ListedItem] | None:
        """Return all items in order."""
        ...

    async def sweep(self, now: float) -> int:
        """Delete the conversations that had expired at `now`. Returns how many."""
        ...


class ResponseStore(Protocol):
    """Stores responses.

    A store may drop its oldest responses, but never returns a wrong one. When a call returns, what it wrote
    is durable. Every method raises StoreError if the store can't be reached or is full, and it may be called
    again. Then nothing of that call is stored, or will be, unless the error is `uncertain`. Expired responses
    that have ended are not found, swept or not, except by `delete` and `export`. A record that can't be read
    raises UnreadableRecord.
    """

    name: str
    """Identifies the store's address: equal for all stores at the same address, and for no others. Things
    shared under it are shared by the workers that share the responses. It contains no password."""

    is_loaded: bool
    """False if the first calls wait until the store's code is loaded: nothing else should wait for them."""

    @property
    def folder(self) -> Path | None:
        """The folder that the processes of this machine share for this store, which may not exist yet;
        None if only one process can use it."""
        ...

    @property
    def usage(self) -> UsageStore:
        """The usage of the keys of these responses."""
        ...

    @property
    def listing(self) -> ListingStore:
        """The lists of these responses."""
        ...

    @property
    def conversations(self) -> ConversationStore:
        """The conversations that these responses are appended to."""
        ...

    @property
    def keys(self) -> KeyStore | None:
        """The managed keys; None for a store in which no other process can change them."""
        ...

    async def now(self) -> float:
        """Return the time that decides whether leases in this store have expired: the same for all workers
        that share it, whatever their machines' clocks say."""
        ...

    async def get(self, response_id: str, owner: str = "") -> StoredResponse | None:
        """Return the turn with this id; None if this owner has none."""
        ...

    async def standing(self, response_id: str, owner: str = "") -> ResponseProgress | None:
        """Return the progress of that turn; None if this owner has none. The cost does not depend on the
        record's size."""
        ...

    async def put(
        self, record: StoredResponse, frames: Frames | None = None, *, key: IdempotencyKey | None = None
    ) -> None:
        """Store the turn under its response's id, with the frames sent so far, and replace the owner's
        whole record of that id. A turn that has ended is appended to its conversation, if that still exists,
        unless the replaced record was. From then on `key` stands for it: of any number of callers that try
        with one key, one succeeds. Raises StoreError `store_conflict` if the id is another owner's or not a
        valid id, and KeyTaken, when nothing is stored."""
        ...

    async def keyed(self, name: str, owner: str = "") -> KeyedResponse | None:
        """Return the response that the key of this name stands for; None for a key that may be used."""
        ...

    async def checkpoint(
        self,
        response_id: str,
        lease: Lease,
        response: Response | None = None,
        frames: Frames | None = None,
    ) -> None:
        """Renew a run's lease and store its snapshot and the frames since the last checkpoint. Frames replace
        stored ones from their first number on, so a failed checkpoint can be repeated together with later
        frames. Raises LeaseLost if `lease.worker` does not hold the run."""
        ...

    async def renew(self, held: Mapping[str, str], until: float) -> set[str]:
        """Renew the leases of many runs at once: response id → its worker. Returns the ids whose lease the
        worker does not hold (any more)."""
        ...

    async def finish(
        self,
        response_id: str,
        worker: str,
        response: Response,
        frames: Frames | None = None,
        *,
        conversation: str | None = None,
    ) -> None:
        """Store the end of the run, release its lease and, in the same step, append the turn to the record's
        `conversation`, if that still exists. May be repeated: a second end of the same worker replaces the
        first and what that has appended, since a worker that does not know that the first was stored sends
        the second to its client. Raises LeaseLost if `worker` neither holds the run nor has ended it."""
        ...

    async def acquire(self, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
        """Acquire the run if it is queued, its lease had expired at `now`, or this worker has acquired it
        before; None if not. Of any number of workers that try, one succeeds."""
        ...

    async def claim_orphans(
        self, lease: Lease, now: float, limit: int = 100, *, waiting: bool = True
    ) -> list[StoredResponse]:
        """Acquire runs of all owners whose lease had expired at `now`, to settle them; each goes to one
        caller only. Without `waiting`, queued runs are left out. An unreadable run is ended without a change
        and goes to no caller, here and in `acquire`."""
        ...

    async def claim_of(self, process: str, lease: Lease, limit: int = 100) -> list[StoredResponse]:
        """Acquire the runs whose workers belong to this process, which has stopped, whatever the ends of
        their leases."""
        ...

    async def release(self, held: Mapping[str, str], until: float) -> None:
        """Release runs that have not begun, so that any worker may acquire them: response id → its worker.
        `until` is the end of their leases, as in `claim_waiting`."""
        ...

    def presence(self, process: str, lease: float) -> Presence:
        """Return an object that shows the other processes of this store that `process` is alive, and detects
        those that have stopped. Living workers renew their leases of `lease` seconds every quarter of that
        time."""
        ...

    async def claim_waiting(
        self, lease: Lease, before: float, limit: int = 1, not_of: Collection[str] = ()
    ) -> list[StoredResponse]:
        """Acquire queued runs whose lease expires before that time, which may be in the future; each goes to
        one caller only. Runs of the owners in `not_of` are left out."""
        ...

    async def waiting(self, owner: str, most: int) -> tuple[int, int]:
        """Return the numbers of queued runs: of every owner, and of this one. Counts up to `most`, over an
        index of queued runs."""
        ...

    def frames(self, response_id: str, owner: str = "", after: int = -1) -> AsyncIterator[Piece]:
        """Yield the stored frames with a number above `after`, in order; none if this owner has no such
        response. They come in pieces, so that a reader holds about `PIECE_BYTES` at once, however large a
        checkpoint was. They end early, within a frame, if the response is deleted meanwhile."""
        ...

    async def chain(self, response_id: str, owner: str = "") -> list[StoredTurn]:
        """Return the turns up to this one, oldest first, including this one and earlier ones that were
        deleted or have expired (see `delete`). Raises ChainError if a link is missing (or another owner's),
        or if the chain is a circle."""
        ...

    async def size(self, response_id: str, owner: str = "") -> int:
        """Return the bytes of JSON that `chain` would read, without reading them; 0 if this owner has no such
        response. Turns before a missing link don't count."""
        ...

    async def stock(self) -> dict[str, int]:
        """Return the stored bytes of each owner: requests, responses, input and frames, deleted turns kept
        for later ones, and conversations. The sizes are computed without reading the data; the cost grows
        with the number of records."""
        ...

    async def missing(
        self, response_ids: Collection[str], owner: str = "", *, before: Collection[str] = ()
    ) -> set[str]:
        """Return the ids of these responses that this owner does not have (any more), and the ids of the
        turns `before` them that are gone; a deleted turn that is kept for later ones counts as present."""
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
        """Return a page of the request's input items; None if this owner has no such response. `after` and
        `before` are ids of items and bound the page in the requested order; with `before` alone the page ends
        there. Raises CursorError if there is no such item."""
        ...

    async def items(
        self, item_ids: Collection[str], owner: str = "", *, most: int = ANY_SIZE
    ) -> dict[str, InputItem]:
        """Return the items with these ids, as input, by id; ids that this owner does not have are left out.

        Searches the output of ended responses, then the input of all, under the ids that `input_items` lists;
        if several items have an id, the newest response's is used. Raises TooLarge, before reading them, if
        they have more than `most` bytes of JSON together; an output item counts as its whole response, since
        all of that has to be read.
        """
        ...

    async def use_once(self, name: str, until: float) -> bool:
        """Record a name, which is ASCII, until that time (Unix seconds); False if it is recorded already. Of
        any number of callers that try at once, one succeeds."""
        ...

    async def delete(self, response_id: str, owner: str = "") -> bool:
        """Delete the turn. Returns whether this owner had it. A run that makes it will lose its lease. If
        later turns continue it, its input and output are kept for them, visible only to `chain`, and deleted
        with the last of those turns. `sweep` does the same."""
        ...

    async def sweep(self, now: float) -> int:
        """Delete the responses that had expired at `now`; also conversations, names that were used once,
        idempotency keys, and keys that have not been accepted for long. Returns the number of responses. Runs
        in progress stay."""
        ...

    def export(self) -> AsyncIterator[bytes]:
        """Yield every record and conversation of every owner, and every key, as lines of JSON (see
        `export_lines`), line ends included."""
        ...

    async def probe(self) -> None:
        """Check whether the store answers and, now and then and whenever it was full recently, whether it
        accepts writes. The check leaves nothing behind."""
        ...

    async def close(self) -> None:
        """Close connections; the store can't be used after that."""
        ...


class StoreError(Outage):
    """The store failed: 503. Nothing of the failed call is stored, unless it is `uncertain`: then it was sent
    to the store, whose answer is not known."""

    UNUSABLE = "store_unusable"
    UNAVAILABLE = "store_unavailable"
    FULL = "store_full"
    BUSY = "store_busy"
    OUTDATED = "store_outdated"
    CONFLICT = "store_conflict"
    FAILED = "store_failed"
    CORRUPT = "store_corrupt"

    def __init__(self, code: str, message: str, details: str = "", *, uncertain: bool = False) -> None:
        super().__init__(code, message, details, permanent=code in _PERMANENT)
        self.uncertain = uncertain


def no_answer() -> StoreError:
    """Return the error of a store that did not answer in time."""
    return StoreError(StoreError.UNAVAILABLE, "The session store does not answer.", uncertain=True)


_PERMANENT: Final = frozenset({StoreError.UNUSABLE, StoreError.OUTDATED})


class UnreadableRecord(StoreError):
    """The stored response can't be read: 500, since a retry does not help."""

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
    """The conversation can't be read back: 400 with the parameter that refers to it (field case 39)."""

    MISSING = "previous_response_not_found"
    CYCLE = "previous_response_cycle"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(400, message, code=code, param="previous_response_id")


class TooLarge(HttpError):
    """The data that a request refers to has more bytes than allowed: 400 with the parameter."""

    CONVERSATION = "conversation_too_large"
    REFERENCES = "references_too_large"

    def __init__(self, code: str, size: int, most: int, param: str | None = None) -> None:
        what, usual = _LARGE[code]
        super().__init__(400, f"{what} {size} bytes; the limit is {most}.", code=code, param=param or usual)


_LARGE: Final = {
    TooLarge.CONVERSATION: ("The conversation before this request has", "previous_response_id"),
    TooLarge.REFERENCES: ("What the item references stand for has", "input"),
}


class CursorError(HttpError):
    """The page is to begin at an item that the response does not have: 400."""

    def __init__(self, param: str, item_id: str) -> None:
        super().__init__(400, f"No item here has the id '{item_id[:80]}'.", code="invalid_value", param=param)
