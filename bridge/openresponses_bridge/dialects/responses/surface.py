"""The Responses API over HTTP: the protocol itself."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.dialects.base import (
    SSE_TYPE,
    Asked,
    FormContext,
    KeyPlace,
    RequestHead,
    Surface,
    SurfacePath,
    protocol_error,
)
from openresponses_bridge.protocol.codec import decode_request, encode, encode_sse
from openresponses_bridge.sse import DONE


class ResponsesForm:
    """Encodes events unchanged, and `[DONE]` at the end."""

    stream_type = SSE_TYPE
    encoders = (encode_sse,)
    whole = staticmethod(encode)
    is_protocol = True
    single_reasoning_form = False

    def end(self) -> bytes:
        """Return `[DONE]`."""
        return DONE


def _form(_context: FormContext) -> ResponsesForm:
    return ResponsesForm()


def _read(body: bytes, _head: RequestHead) -> Asked:
    return Asked(request=decode_request(body), form=_form)


SURFACE: Final = Surface(
    paths=(SurfacePath(path="/v1/responses"),),
    keys=(KeyPlace("authorization", "Bearer "), KeyPlace("api-key")),  # the second is of Azure
    read=_read,
    error=lambda error: protocol_error(error, "responses"),
)
