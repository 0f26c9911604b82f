"""The history of a request: the chain that `previous_response_id` refers to, or the items of its
`conversation`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import InputTextContent, OutputTextParam
from openresponses_bridge.protocol.input_items import InputItem, ItemReference, MessageParam, items_of
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import CreateResponse, conversation_of
from openresponses_bridge.protocol.tools import Tool
from openresponses_server.errors import HttpError
from openresponses_server.limits.memory import Available, Reservation
from openresponses_server.store.base import ResponseStore, StoredTurn, TooLarge, UpstreamResponse
from openresponses_server.store.conversations import unknown_conversation
from openresponses_server.store.records import decode_input, listed_ids

_CONVERSATION: Final = "conversation"
_UNENDED: Final = ("queued", "in_progress")


class Conversation(Struct, frozen=True):
    """The items of earlier turns in order. `named` has those with an id, by their ids; `responses` the ids of
    their responses, oldest first; `size` is the number of bytes of their JSON. `upstream` is the upstream's
    own record of the last response, if it keeps one."""

    items: list[InputItem | Item] = []
    named: dict[str, InputItem | Item] = {}
    responses: list[str] = []
    size: int = 0
    upstream: UpstreamResponse | None = None
    instructions: str | None = None
    """The instructions of the last response; except in a thread they are for that response only."""
    tools: Sequence[Tool] = ()
    """The tools of the last response, which are also for that response only."""

    def with_turns(self, turns: Iterable[StoredTurn], size: int) -> Conversation:
        """Return this conversation followed by these turns, oldest first, which have `size` bytes: the input
        of each, then its output (specification, `previous_response_id`). Their instructions are not carried
        over (field case 37)."""
        items, named, responses = list(self.items), dict(self.named), list(self.responses)
        upstream, last = self.upstream, None
        for turn in turns:
            last = turn.response
            output = turn.response.output
            items += (*turn.input, *output)
            responses.append(turn.response.id)
            upstream = turn.upstream
            named.update(zip(listed_ids(turn.response.id, turn.input), turn.input, strict=True))
            named.update((item.id, item) for item in output if item.id)
        settings: tuple[Any, ...] = () if last is None else (last.instructions, last.tools)
        return Conversation(items, named, responses, self.size + size, upstream, *settings)


def own_input(request: CreateResponse) -> list[InputItem]:
    """Return the request's own input as items."""
    items = items_of(request.input)
    for index, item in enumerate(items):
        if type(item) is MessageParam and type(item.content) is not str:
            items[index] = _with_input_parts(item)
    return items


def _with_input_parts(item: MessageParam) -> MessageParam:
    """Return the message with `input_text` parts unless it is the assistant's. In a compacted window, which
    clients send back, all texts are `output_text`; model servers refuse those in a user's message."""
    if item.role == "assistant" or isinstance(item.content, str):
        return item
    if not any(isinstance(part, OutputTextParam) for part in item.content):
        return item
    parts = [
        InputTextContent(part.text) if isinstance(part, OutputTextParam) else part for part in item.content
    ]
    return replace(item, content=parts)


async def history_of(
    store: ResponseStore, previous_id: str, owner: str, available: Available, reservation: Reservation
) -> Conversation:
    """Return The conversation up to and including this response. `reservation` grows by their size before
    they are read.

    Raises HttpError `previous_response_not_found` if a turn is missing or another owner's (field case 39),
    `previous_response_in_progress` if this response has not ended, since an unfinished call can't be answered
    (law E7), TooLarge, and 429 if too much is in memory.
    """
    size = await store.size(previous_id, owner)
    if size > available.conversation:
        raise TooLarge(TooLarge.CONVERSATION, size, available.conversation)
    reservation.grow(size)
    turns = await store.chain(previous_id, owner)
    if turns[-1].response.status in _UNENDED:
        raise HttpError(
            400,
            f"Response '{turns[-1].response.id}' is still in progress: continue it when it has ended.",
            code="previous_response_in_progress",
            param="previous_response_id",
        )
    if turns[-1].conversation is not None:  # the turns before it are there, and may have changed
        raise HttpError(
            400,
            f"Response '{turns[-1].response.id}' was made in conversation '{turns[-1].conversation}': name "
            "that as `conversation` to continue it.",
            code="response_in_conversation",
            param="previous_response_id",
        )
    return await with_usable_upstream(store, Conversation().with_turns(turns, size), owner)


async def items_of_conversation(
    store: ResponseStore,
    request: CreateResponse,
    owner: str,
    available: Available,
    reservation: Reservation,
) -> Conversation:
    """Return the items of the conversation that the request names. `reservation` grows by their size before
    they are read.

    Raises HttpError `conversation_not_found` if it does not exist or is another owner's, TooLarge, and 429 if
    too much is in memory.
    """
    conversation_id = conversation_of(request) or ""
    size = await store.conversations.size(conversation_id, owner)
    if size is None:
        raise unknown_conversation(conversation_id, _CONVERSATION)
    if size.bytes > available.conversation:
        raise TooLarge(TooLarge.CONVERSATION, size.bytes, available.conversation, _CONVERSATION)
    reservation.grow(size.bytes)
    entries = await store.conversations.items(conversation_id, owner)
    if entries is None:
        raise unknown_conversation(conversation_id, _CONVERSATION)
    items: list[InputItem | Item] = [each.item for each in entries]
    return Conversation(items, {each.id: each.item for each in entries}, size=size.bytes)


async def with_usable_upstream(store: ResponseStore, before: Conversation, owner: str) -> Conversation:
    """Return the conversation, without its `upstream` if one of its turns was deleted or has expired: the
    upstream still has that turn, so that all items have to be sent instead."""
    if before.upstream is None or not await store.missing(before.responses, owner):
        return before
    return replace(before, upstream=None)


# Clients also send references to items of earlier turns or of the same input. Such an item is in the context
# already and is not added again, since a tool call that is given twice would have only one output.

_NOT_FOUND: Final = "item_not_found"
_SHOWN: Final = 80  # characters of an id
_NOTHING: Final[Mapping[str, InputItem | Item]] = MappingProxyType({})


class Continued(NamedTuple):
    """A request whose references are replaced by their items, the conversation before it, and the bytes
    reserved for that conversation."""

    request: CreateResponse
    before: Conversation
    reservation: Reservation


async def continued(
    store: ResponseStore, request: CreateResponse, owner: str, available: Available, *, accepted: bool = False
) -> Continued:
    """Return the request with what came before it, which is read from the store. A request that was
    `accepted` before is not refused for lack of memory.

    Raises HttpError `previous_response_not_found`, `conversation_not_found` and `item_not_found`, also for
    what belongs to another owner, TooLarge, and 429 if too much is in memory.
    """
    reservation = Reservation(available.budget, owner, accepted=accepted)
    before, previous_id = Conversation(), request.previous_response_id
    if request.conversation is not None:
        before = await items_of_conversation(store, request, owner, available, reservation)
    elif previous_id is not None:
        before = await history_of(store, previous_id, owner, available, reservation)
    return Continued(await resolved(store, request, owner, before, available), before, reservation)


async def resolved(
    store: ResponseStore,
    request: CreateResponse,
    owner: str,
    before: Conversation,
    available: Available,
    remembered: Mapping[str, InputItem | Item] = _NOTHING,
) -> CreateResponse:
    """Return the request with each reference replaced by its item; references to items in the context are
    removed. Items are looked up in `remembered`, then in everything that the owner has stored.

    Raises HttpError `item_not_found` with the path of the reference, and TooLarge, since each request holds
    copies of the items that it refers to.
    """
    entries = request.input
    if not isinstance(entries, list) or ItemReference not in set(map(type, entries)):
        return request
    known = before.named.keys() | {_id(item) for item in entries if not isinstance(item, ItemReference)}
    unresolved = {item.id for item in entries if isinstance(item, ItemReference)} - known
    by_id = {each: _as_input(remembered[each]) for each in unresolved & remembered.keys()}
    size = sum(len(encode(item)) for item in by_id.values())
    if size > available.references:
        raise TooLarge(TooLarge.REFERENCES, size, available.references)
    if rest := unresolved - by_id.keys():
        by_id |= await store.items(rest, owner, most=available.references - size)
    items: list[InputItem] = []
    for index, item in enumerate(entries):
        if not isinstance(item, ItemReference):
            items.append(item)
        elif item.id in unresolved:
            unresolved.remove(item.id)
            items.append(by_id[item.id] if item.id in by_id else _missing(item.id, index))
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
