"""Stored responses behind one interface."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from bridge.protocol.input_items import InputItem
from bridge.protocol.response import Response


class StoredResponse(Struct, frozen=True):
    """One turn: what its request brought in (not what came before it) and the response.

    `response.previous_response_id` is the link to the turn before.
    """

    response: Response
    input: list[InputItem]


class ResponseStore(Protocol):
    """Where responses are kept. A store may forget the oldest; it never gives a wrong one."""

    async def get(self, response_id: str) -> StoredResponse | None:
        """The turn with this id, None when there is none."""
        ...

    async def put(self, record: StoredResponse) -> None:
        """Keep the turn under its response's id; it is there for `get` when this returns."""
        ...

    async def delete(self, response_id: str) -> bool:
        """Forget the turn; whether there was one."""
        ...
