"""The Interactions API over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from openresponses_bridge.dialects.base import (
    AnswerForm,
    Asked,
    Asks,
    Description,
    Encoding,
    FormContext,
    KeyPlace,
    OutboundForm,
    Parameter,
    RequestHead,
    ResumedStream,
    StoredAnswers,
    Surface,
    SurfacePath,
    invalid,
    native_of,
)
from openresponses_bridge.dialects.interactions.client import described, ending
from openresponses_bridge.dialects.interactions.client.interaction import interaction
from openresponses_bridge.dialects.interactions.client.outbound import EventPlace, Outbound, event_place
from openresponses_bridge.dialects.interactions.client.request import from_interactions
from openresponses_bridge.dialects.interactions.types import DIALECT, encode_sse, sse_end
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.response import Response

_KEY: Final = "x-goog-api-key"
_BEFORE_FIRST: Final = (-1, 0)
_STREAM: Final = "stream"
_LAST: Final = "last_event_id"
_INPUT: Final = "include_input"
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


def _form(after: EventPlace, context: FormContext) -> AnswerForm:
    outbound = Outbound(context.sealer, context.identities, after=after)
    encoding = Encoding(encode_sse, end=sse_end)
    return OutboundForm(outbound, encoding, partial(_created, context=context))


def _created(response: Response, context: FormContext) -> bytes | None:
    """Encode the answer to a request; None for one that failed without output, which is a refusal."""
    return None if response.error is not None and not response.output else _whole(response, context)


def _whole(response: Response, context: FormContext) -> bytes:
    return encode(interaction(response, context.sealer, context.identities))


def _read(body: bytes, head: RequestHead) -> Asked:
    request, losses = from_interactions(body, head.sealer)
    return Asked(
        request=request,
        form=partial(_form, _BEFORE_FIRST),
        losses=losses,
        schema_param="response_format.schema",
    )


def _resumed(head: RequestHead) -> ResumedStream | None:
    if _flag(head, _INPUT):
        raise invalid(_INPUT, "the input is not sent back: GET /v1/responses/{id}/input_items has it")
    last = head.query.get(_LAST)
    if not _flag(head, _STREAM):
        if last is not None:
            raise invalid(_LAST, "needs stream=true")
        return None
    after = _BEFORE_FIRST if last is None else event_place(last)
    return ResumedStream(after=after[0], param=_LAST, form=partial(_form, after))


def _flag(head: RequestHead, name: str) -> bool:
    text = head.query.get(name, "false")
    truth = _BOOLEANS.get(text.lower())
    if truth is None:
        raise invalid(name, f"it must be true or false, not {text[:40]!r}")
    return truth


def _paths(version: str) -> list[SurfacePath]:
    interactions, named = f"/{version}/interactions", "" if version == "v1beta" else f"_{version}"
    one: dict[str, Any] = {"answer": described.Interaction}
    events = "Server-sent events of the Interactions API."
    create = Description(
        id=f"create_interaction{named}",
        summary="Create an interaction, in Google's shape",
        request=described.CreateInteraction,
        events=events,
        examples={"text": {"model": "demo", "input": "Hello"}},
        **one,
    )
    stream = Parameter(_STREAM, "Whether its events are sent again.", {"type": "boolean"})
    last = Parameter(_LAST, "Only the events behind this one.", {"type": "string", "maxLength": 30})
    get = Description(
        id=f"get_interaction{named}",
        summary="Retrieve an interaction, in Google's shape",
        events=events,
        parameters=(stream, last),
        **one,
    )
    cancel = Description(
        id=f"cancel_interaction{named}", summary="Cancel an interaction that is being made", **one
    )
    delete = Description(
        id=f"delete_interaction{named}", summary="Delete an interaction", answer=described.NoContent
    )
    return [
        SurfacePath(path=interactions, description=create),
        SurfacePath(path=f"{interactions}/{{id}}/cancel", asks=Asks.CANCEL, description=cancel),
        SurfacePath(path=f"{interactions}/{{id}}", asks=Asks.STORED, description=get),
        SurfacePath(path=f"{interactions}/{{id}}", asks=Asks.DELETE, description=delete),
    ]


SURFACE: Final = Surface(
    paths=(*_paths("v1beta"), *_paths("v1")),
    keys=(KeyPlace(_KEY, query="key"),),
    read=_read,
    error=lambda error: encode(ending.error_body(error, native_of(error, DIALECT))),
    error_type=described.InteractionError,
    stored=StoredAnswers(resumed=_resumed, whole=_whole, deleted=lambda _id: b"{}"),
)
