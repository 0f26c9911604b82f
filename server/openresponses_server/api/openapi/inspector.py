"""The operations of the inspector's page, below `/inspector/v1/`."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.api.openapi import resources
from openresponses_server.api.openapi.operation import Operation, Parameter
from openresponses_server.observation.recordings.sources import AUTO, DIALECTS

_LINES: Final = "application/x-ndjson"
_OBSERVED: Final = (
    "JSON lines, one an event: `at` (seconds since the first), `event`, `data` as it was sent, `findings` "
    "(what is wrong with it, was repaired or lost: `kind`, `where`, `what`, `rule`, `asks`), `parts` of VS "
    "Code. The last line of a response has `ended`."
)
_ID: Final = Parameter("id", "Id of a stored response.", {"type": "string"}, "path")
_TIME: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_STRING: Final = {"type": "string", "maxLength": 200}
_BODY: Final = (400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 502, 503, 504, 529)
_STORED: Final = (400, 401, 403, 404, 409, 429, 500, 503)

INSPECTOR: Final[dict[tuple[str, str], Operation]] = {
    ("post", "/inspector/v1/responses"): Operation(
        id="inspect_new_response",
        summary="Create a response and observe its stream",
        description=_OBSERVED,
        request=CreateResponse,
        text=_LINES,
        errors=_BODY,
        examples={"text": {"model": "demo", "input": "Hello"}},
    ),
    ("get", "/inspector/v1/responses"): Operation(
        id="list_responses",
        summary="List the key's own stored responses, the newest first",
        answer=resources.ListedResponses,
        parameters=(
            Parameter("status", "Only of this status.", _STRING),
            Parameter("model", "Only of this model.", _STRING),
            Parameter("search", "Only with this in the id or in what was asked last.", _STRING),
            Parameter("since", "Made at this time or later, in Unix seconds.", _TIME),
            Parameter("until", "Made before this time, in Unix seconds.", _TIME),
            Parameter("limit", "Responses per page.", {"type": "integer", "minimum": 1, "maximum": 100}),
            Parameter("after", "Id after which the page begins: `next` of the page before.", _STRING),
            Parameter("conversation", "The turns up to and with this response instead.", _STRING),
        ),
        errors=(400, 401, 403, 429, 500, 503),
    ),
    ("get", "/inspector/v1/responses/{id}"): Operation(
        id="inspect_stored_response",
        summary="Observe the stream of a stored response",
        description=_OBSERVED,
        text=_LINES,
        parameters=(
            _ID,
            Parameter("starting_after", "Only events with a greater sequence_number.", _TIME),
        ),
        errors=_STORED,
    ),
    ("get", "/inspector/v1/responses/{id}/request"): Operation(
        id="retrieve_request",
        summary="The request of a stored response, as far as it is kept",
        answer=CreateResponse,
        parameters=(_ID,),
        errors=_STORED,
    ),
    ("post", "/inspector/v1/captures"): Operation(
        id="inspect_capture",
        summary="Observe a capture of any dialect, a recording or a trace",
        description="The body is the file, as `application/octet-stream`. Nothing of it is kept. Of a "
        "recording or a trace the upstreams' answers are observed, at their times. " + _OBSERVED,
        text=_LINES,
        parameters=(
            Parameter(
                "dialect",
                "What a capture is in, or the answers of a recording; `auto` finds out.",
                {"enum": [AUTO, *DIALECTS]},
            ),
        ),
        errors=(400, 401, 403, 408, 413, 415, 429, 500, 503),
    ),
    ("post", "/inspector/v1/context"): Operation(
        id="measure_context",
        summary="What a request would put into the context, piece by piece",
        request=CreateResponse,
        answer=resources.MeasuredContext,
        errors=_BODY,
        examples={"text": {"model": "demo", "input": "Hello"}},
    ),
}
