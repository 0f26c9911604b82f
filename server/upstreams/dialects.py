"""What the server needs of each dialect, as one table: where requests go and with which headers, how
they are made, how the answer is read. A dialect joins by its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from bridge.diagnostics import Diagnostics
from bridge.dialects import anthropic_messages, chat_completions, responses
from bridge.dialects.base import Inbound
from bridge.emitter.stream import ResponseStream
from bridge.protocol.codec import encode
from bridge.protocol.input_items import InputItem
from bridge.protocol.items import Item
from bridge.protocol.request import CreateResponse
from bridge.seal import Sealer
from bridge.tools.identity import ToolIdentityMap
from server.upstreams.addresses import base_url, versioned_base_url

History = list[InputItem | Item]


class Manners(NamedTuple):
    """How one upstream wants it: the options of its dialect, and what seals opaque reasoning."""

    options: Any
    sealer: Sealer


class Outgoing(NamedTuple):
    """A translated request: the body, and what could not be said."""

    body: bytes
    diagnostics: Diagnostics


class KeyHeader(NamedTuple):
    """Where a key goes, and what stands before it."""

    name: str
    prefix: str = ""


class Dialect(NamedTuple):
    """One row. `path` is below the upstream's address, which `address` makes of what the user wrote.
    `prepare` takes a request, the items of the turns before it, the outgoing model name, the upstream's
    manners and the map that learns the tools; it asks for a stream, and raises InvalidRequestError for
    what can't be sent. `options` is the type of the manners' options. With `event_names` the inbound
    takes the SSE event's name too; with `compacts` the upstream makes compaction items of its own."""

    path: str
    prepare: Callable[[CreateResponse, History, str, Manners, ToolIdentityMap], Outgoing]
    inbound: Callable[[ResponseStream, Manners], Inbound]
    options: type[Struct]
    address: Callable[[str], str] = base_url
    key_header: KeyHeader = KeyHeader("authorization", "Bearer ")
    headers: Mapping[str, str] = MappingProxyType({})
    event_names: bool = False
    compacts: bool = False


def _to_chat(
    request: CreateResponse, history: History, model: str, manners: Manners, identities: ToolIdentityMap
) -> Outgoing:
    body, diagnostics = chat_completions.to_chat(
        replace(request, stream=True),
        history=history,
        tool_identities=identities,
        model=model,
        options=manners.options,
    )
    return Outgoing(encode(body), diagnostics)


def _to_messages(
    request: CreateResponse, history: History, model: str, manners: Manners, identities: ToolIdentityMap
) -> Outgoing:
    body, diagnostics = anthropic_messages.to_messages(
        request,
        history=history,
        tool_identities=identities,
        model=model,
        sealer=manners.sealer,
        options=manners.options,
    )
    return Outgoing(encode(body), diagnostics)


def _to_responses(
    request: CreateResponse, history: History, model: str, manners: Manners, identities: ToolIdentityMap
) -> Outgoing:
    body, diagnostics = responses.to_responses(
        replace(request, stream=True),
        history=history,
        tool_identities=identities,
        model=model,
        options=manners.options,
    )
    return Outgoing(encode(body), diagnostics)


CHAT: Final = Dialect(
    "/chat/completions",
    _to_chat,
    lambda machine, _manners: chat_completions.Inbound(machine),
    chat_completions.ChatOptions,
)
DIALECTS: Final = {
    "chat": CHAT,
    "anthropic": Dialect(
        "/messages",
        _to_messages,
        lambda machine, manners: anthropic_messages.Inbound(machine, manners.sealer),
        anthropic_messages.MessagesOptions,
        address=versioned_base_url,
        key_header=KeyHeader("x-api-key"),
        headers=MappingProxyType({"anthropic-version": "2023-06-01"}),
        event_names=True,
        compacts=True,
    ),
    "responses": Dialect(
        "/responses",
        _to_responses,
        lambda machine, _manners: responses.Inbound(machine),
        responses.ResponsesOptions,
        event_names=True,
        compacts=True,
    ),
}
