"""What the server needs of each dialect, as one table: where requests go, how they are made, how the
answer is read. A dialect joins by its row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from bridge.diagnostics import Diagnostics
from bridge.dialects import chat_completions
from bridge.dialects.base import Inbound
from bridge.dialects.chat_completions.request import to_chat
from bridge.emitter.machine import ResponseStreamStateMachine
from bridge.protocol.codec import encode
from bridge.protocol.input_items import InputItem
from bridge.protocol.items import Item
from bridge.protocol.request import CreateResponse
from bridge.tools.identity import ToolIdentityMap

History = list[InputItem | Item]


class Outgoing(NamedTuple):
    """A translated request: the body, the tools' names in it, and what could not be said."""

    body: bytes
    identities: ToolIdentityMap
    diagnostics: Diagnostics


class Dialect(NamedTuple):
    """One row: `path` below the upstream's address; `prepare` takes a request, the items of the turns
    before it and the outgoing model name, and asks for a stream; it raises InvalidRequestError for what
    can't be sent."""

    path: str
    prepare: Callable[[CreateResponse, History, str], Outgoing]
    inbound: Callable[[ResponseStreamStateMachine], Inbound]


def _prepare_chat(request: CreateResponse, history: History, model: str) -> Outgoing:
    identities = ToolIdentityMap()
    chat, diagnostics = to_chat(
        replace(request, stream=True), history=history, tool_identities=identities, model=model
    )
    return Outgoing(encode(chat), identities, diagnostics)


CHAT: Final = Dialect("/chat/completions", _prepare_chat, chat_completions.Inbound)
DIALECTS: Final = {"chat": CHAT}
