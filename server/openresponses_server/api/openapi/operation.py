"""What one method of one path takes and answers."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from openresponses_bridge.protocol.response import ErrorBody


class Parameter(Struct, frozen=True):
    """One parameter of a path or a query."""

    name: str
    description: str
    schema: dict[str, Any]
    place: str = "query"


class Operation(Struct, frozen=True, kw_only=True):
    """What one method of one path does.

    `answer` is the JSON answer, `text` the content type of one that is not JSON, `events` says what a
    streamed answer is. `leads_to` are operations that take this answer's `id`; `errors` are the statuses
    of refusals, in the shape of `error`.
    """

    id: str
    summary: str
    answer: type[Any] | None = None
    text: str = ""
    request: type[Any] | None = None
    parameters: tuple[Parameter, ...] = ()
    events: str = ""
    event_schema: str = ""
    success: int = 200
    errors: tuple[int, ...] = ()
    error: type[Any] = ErrorBody
    leads_to: tuple[str, ...] = ()
    examples: dict[str, Any] = {}
    description: str = ""
