"""Messages of the WebSocket transport (specification, "WebSocket")."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

from bridge.protocol.request import CreateResponse


class ResponseCreateMessage(
    CreateResponse, frozen=True, kw_only=True, tag="response.create", tag_field="type"
):
    """Schema WebSocketResponseCreateEvent: a request as the client's frame.

    `generate: false` is Codex's prewarm: the turn is recorded and nothing is generated.
    """

    type: ClassVar[Literal["response.create"]] = "response.create"
    generate: bool | None = None


class WebSocketErrorDetail(Struct, frozen=True):
    """The `error` of a WebSocket error; unlike in a stream, `code` is never null."""

    code: str
    message: str
    type: str | UnsetType = UNSET
    param: str | UnsetType | None = UNSET


class WebSocketError(Struct, frozen=True, tag="error", tag_field="type"):
    """Schema WebSocketErrorEvent. `status` is the HTTP status it would have been."""

    type: ClassVar[Literal["error"]] = "error"
    status: int
    error: WebSocketErrorDetail
