"""The APIs that a backend can be reached by: how each reads a request, and the form of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects import anthropic_messages, chat_completions
from openresponses_bridge.dialects.base import Outbound
from openresponses_bridge.errors import BridgeError, InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode, encode_sse
from openresponses_bridge.protocol.errors import ErrorBody, ErrorPayload
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer
from openresponses_bridge.sse import DONE, encode_comment

Dialect = Literal["responses", "chat", "anthropic"]

KEEP_ALIVE: Final = encode_comment("keep-alive")


Streamed = Callable[[Sequence[Event], bool], bytes]


class Form(NamedTuple):
    """How one answer is written. `streamed`: the bytes of events, and whether they are the last. `whole`: the
    body for a response that has ended, None when there is only an error to report."""

    streamed: Streamed
    whole: Callable[[Response], bytes | None]


class Surface(NamedTuple):
    """One API. `read`: the body of a request → the request and the form of the answer; raises
    InvalidRequestError with `param`. `error`: the body of a refusal. `keep_alive`: bytes that clients skip.
    """

    read: Callable[[bytes | str, ToolIdentityMap], tuple[CreateResponse, Form]]
    error: Callable[[BridgeError], bytes]
    keep_alive: bytes = KEEP_ALIVE


def _responses(body: bytes | str, _identities: ToolIdentityMap) -> tuple[CreateResponse, Form]:
    def streamed(events: Sequence[Event], last: bool) -> bytes:
        return encode_sse(events) + DONE if last else encode_sse(events)

    return decode_request(body), Form(streamed, encode)


def _chat(body: bytes | str, _identities: ToolIdentityMap) -> tuple[CreateResponse, Form]:
    request, _losses = chat_completions.from_chat(body)
    options = chat_completions.answer_options(body)
    if options.n > 1:
        what = "n: this backend gives one choice"
        raise InvalidRequestError(InvalidRequestError.UNSUPPORTED, what, param="n")

    def whole(response: Response) -> bytes | None:
        answer = chat_completions.completion(response, legacy_functions=options.legacy_functions)
        return encode(answer) if isinstance(answer, chat_completions.ChatCompletion) else None

    outbound = chat_completions.Outbound(
        include_usage=options.include_usage, legacy_functions=options.legacy_functions
    )
    return request, Form(_through(outbound, chat_completions.encode), whole)


def _anthropic(body: bytes | str, identities: ToolIdentityMap) -> tuple[CreateResponse, Form]:
    sealer = Sealer()
    request, _losses = anthropic_messages.from_messages(_as_bytes(body), sealer)

    def whole(response: Response) -> bytes | None:
        answer = anthropic_messages.message(response, sealer)
        return None if answer.get("type") == "error" else encode(answer)

    outbound = anthropic_messages.Outbound(sealer, identities)
    return request, Form(_through(outbound, anthropic_messages.encode_sse), whole)


def _as_bytes(body: bytes | str) -> bytes:
    return body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body


def _through(
    outbound: Outbound[Any], encode: Callable[[Any], bytes]
) -> Callable[[Sequence[Event], bool], bytes]:
    def streamed(events: Sequence[Event], last: bool) -> bytes:
        chunks = [chunk for event in events for chunk in outbound.feed(event)]
        return encode([*chunks, *outbound.close()] if last else chunks)

    return streamed


def _error(error: BridgeError) -> bytes:
    return encode(ErrorBody(ErrorPayload(error.error_type, error.code, error.message, error.param)))


def _anthropic_error(error: BridgeError) -> bytes:
    return encode(
        anthropic_messages.error_body(error.code, error.error_type, error.message, error.http_status)
    )


SURFACES: Final[dict[str, Surface]] = {
    "responses": Surface(_responses, _error),
    "chat": Surface(_chat, _error),
    "anthropic": Surface(_anthropic, _anthropic_error, b'event: ping\ndata: {"type": "ping"}\n\n'),
}
