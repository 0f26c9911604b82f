"""Messages of the WebSocket transport (specification, "WebSocket")."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.protocol.request import CreateResponse


class ResponseCreateMessage(
    CreateResponse, frozen=True, kw_only=True, tag="response.create", tag_field="type"
):
    """Schema WebSocketResponseCreateEvent: a request as the client's frame.

    `generate: false` is Codex's prewarm: the turn is recorded and nothing is generated. `stream_id` is
    OpenAI's: the lane of the connection that the turn belongs to.
    """

    type: ClassVar[Literal["response.create"]] = "response.create"
    generate: bool | None = None
    stream_id: str | None = None


class SteerError(Struct, frozen=True, kw_only=True):
    """Why steering failed."""

    code: str
    message: str
    type: Literal["invalid_request_error"] = "invalid_request_error"


class FailedSteer(Struct, frozen=True):
    """What was not taken: the input as it came."""

    previous_response_id: Any
    input: Any


class ResponseSteerFailed(Struct, frozen=True, tag="response.steer.failed", tag_field="type"):
    """OpenAI: input for a response that is being made was not taken."""

    type: ClassVar[Literal["response.steer.failed"]] = "response.steer.failed"
    error: SteerError
    steer: FailedSteer
    sequence_number: int
    stream_id: str | UnsetType = UNSET


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
