"""The history of a request: the chain that `previous_response_id` refers to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import InputTextContent, OutputTextParam
from openresponses_bridge.protocol.input_items import InputItem, ItemReference, MessageParam, items_of
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.errors import HttpError
from openresponses_server.limits.memory import Available, Reservation
from openresponses_server.store.base import ResponseStore, StoredTurn, TooLarge, UpstreamResponse
from openresponses_server.store.records import decode_input, listed_ids

_UNENDED: Final = ("queued", "in_progress")


class Conversation(Struct, frozen=True):
    """Items in order, those among them that have an id, by it, the ids of the responses that they come from,
    oldest first, and how many bytes of JSON they are. `upstream` is the last response where its upstream
    keeps it."""

    items: list[InputItem | Item]
    named: dict[str, InputItem | Item]
    responses: list[str]
    size: int = 0
    upstream: UpstreamResponse | None = None

    def with_turns(self, turns: Iterable[StoredTurn], size: int) -> Conversation:
        """This one and then these turns of so many bytes, oldest first: each one's input, then its output
        (specification, `previous_response_id`). Their instructions are not carried over (field case 37)."""
        items, named, responses = list(self.items), dict(self.named), list(self.responses)
        upstream = self.upstream
        for turn in turns:
            output = turn.response.output
            items += (*turn.input, *output)
            responses.append(turn.response.id)
            upstream = turn.upstream
            named.update(zip(listed_ids(turn.response.id, turn.input), turn.input, strict=True))
            named.update((item.id, item) for item in output if item.id)
        return Conversation(items, named, responses, self.size + size, upstream)


def empty_conversation() -> Conversation:
    """The beginning of a conversation."""
    return Conversation([], {}, [])


def own_input(request: CreateResponse) -> list[InputItem]:
    """The request's own input as items."""
    return [
        item if type(item) is not MessageParam or type(item.content) is str else _spoken(item)
        for item in items_of(request.input)
    ]


def _spoken(item: InputItem) -> InputItem:
    """What a user said has the parts of an input again where it comes back from a compacted window, whose
    texts are `output_text`: servers of models refuse those in a user's message."""
    if not isinstance(item, MessageParam) or item.role == "assistant" or isinstance(item.content, str):
        return item
    if not any(isinstance(part, OutputTextParam) for part in item.content):
        return item
    parts = [
        InputTextContent(part.text) if isinstance(part, OutputTextParam) else part for part in item.content
    ]
    return replace(item, content=parts)


async def history_of(
    store: ResponseStore, request: CreateResponse, owner: str, available: Available, reservation: Reservation
) -> Conversation:
    """The turns before. They are not read before there is room for them, and are in `reservation` then.

    Raises HttpError `previous_response_not_found` when a link is missing or another owner's (field case
    39), `previous_response_in_progress` when the one before has not ended: an unfinished call can't be
    answered (law E7), TooLarge, and 429 when too much is in memory.
    """
    if request.previous_response_id is None:
        return empty_conversation()
    size = await store.size(request.previous_response_id, owner)
    if size > available.conversation:
        raise TooLarge(TooLarge.CONVERSATION, size, available.conversation)
    reservation.grow(size)
    turns = await store.chain(request.previous_response_id, owner)
    if turns[-1].response.status in _UNENDED:
        raise HttpError(
            400,
            f"Response '{turns[-1].response.id}' is still being made: it can be continued when it has ended.",
            code="previous_response_in_progress",
            param="previous_response_id",
        )
    return await shown(store, empty_conversation().with_turns(turns, size), owner)


async def shown(store: ResponseStore, before: Conversation, owner: str) -> Conversation:
    """The conversation, to be sent as a whole when a turn of it was deleted or has expired."""
    if before.upstream is None or not await store.missing(before.responses, owner):
        return before
    return replace(before, upstream=None)


# A client may refer to items that are in the context already, by the turns before or by the input itself.
# Such an item is not sent twice, since a tool call that is sent twice has only one output; clients send such
# references along with `previous_response_id`.

_NOT_FOUND: Final = "item_not_found"
_SHOWN: Final = 80  # characters of an id
_NOTHING: Final[Mapping[str, InputItem | Item]] = MappingProxyType({})


class Continued(NamedTuple):
    """A request whose input is free of references, what came before it, and the bytes that this takes."""

    request: CreateResponse
    before: Conversation
    reservation: Reservation


async def continued(
    store: ResponseStore, request: CreateResponse, owner: str, available: Available, *, accepted: bool = False
) -> Continued:
    """The request and the turns before it, out of the store. One that was `accepted` before is not refused
    now for what is in memory.

    Raises HttpError `previous_response_not_found` and `item_not_found`, also for what is another owner's,
    TooLarge, and 429 when too much is in memory.
    """
    reservation = available.budget.reserve(owner, accepted=accepted)
    before = await history_of(store, request, owner, available, reservation)
    return Continued(await resolved(store, request, owner, before, available), before, reservation)


async def resolved(
    store: ResponseStore,
    request: CreateResponse,
    owner: str,
    before: Conversation,
    available: Available,
    remembered: Mapping[str, InputItem | Item] = _NOTHING,
) -> CreateResponse:
    """The request with the item itself in the place of each reference, and without references to what
    is in context already. Items are looked for among those `remembered`, then among all that the owner has
    stored.

    Raises HttpError `item_not_found` with the path of the reference, and TooLarge: each request keeps a copy
    of what it refers to.
    """
    given = request.input
    if not isinstance(given, list) or ItemReference not in set(map(type, given)):
        return request
    known = before.named.keys() | {_id(item) for item in given if not isinstance(item, ItemReference)}
    wanted = {item.id for item in given if isinstance(item, ItemReference)} - known
    found = {each: _as_input(remembered[each]) for each in wanted & remembered.keys()}
    size = sum(len(encode(item)) for item in found.values())
    if size > available.references:
        raise TooLarge(TooLarge.REFERENCES, size, available.references)
    if rest := wanted - found.keys():
        found |= await store.items(rest, owner, most=available.references - size)
    items: list[InputItem] = []
    for index, item in enumerate(given):
        if not isinstance(item, ItemReference):
            items.append(item)
        elif item.id in wanted:
            wanted.remove(item.id)
            items.append(found[item.id] if item.id in found else _missing(item.id, index))
    return replace(request, input=items)


def _id(item: InputItem) -> str | None:
    own = getattr(item, "id", None)
    return own if isinstance(own, str) else None


def _as_input(item: InputItem | Item) -> InputItem:
    (read,) = decode_input([encode(item)])
    return read


def _missing(item_id: str, index: int) -> InputItem:
    raise HttpError(
        400,
        f"Item with id '{item_id[:_SHOWN]}' not found. Items of a response that is not stored are not kept: "
        "send the item itself.",
        code=_NOT_FOUND,
        param=f"input[{index}].id",
    )
