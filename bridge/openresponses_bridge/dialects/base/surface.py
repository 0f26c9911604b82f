"""A client's API over HTTP: its paths, the places of its clients' keys, the reading of requests, and the
encoding of answers and errors.

It is described once, in the folder of its dialect (`Dialect.surface`). The server and custom backends read it
there and add the I/O.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.native import native_of
from openresponses_bridge.errors import BridgeError, HttpError
from openresponses_bridge.models.information import EnrichedModelData
from openresponses_bridge.protocol.codec import encode, plain
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import ErrorBody, ErrorPayload, Response
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.seal import Sealer
from openresponses_bridge.sse import encode_comment

SSE_TYPE: Final = b"text/event-stream; charset=utf-8"
KEEP_ALIVE: Final = encode_comment("keep-alive")
KEEP_ALIVE_EVENT: Final = "openresponses-bridge:keepalive"
"""The type of the event that keeps streams alive for clients of the protocol that drop comments."""
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
_PARAMETER: Final = re.compile(r"\{(\w+)\}")


class Asks(StrEnum):
    """The kinds of a path."""

    ANSWER = "answer"
    TOKENS = "tokens"
    """The number of tokens of a request."""
    MODELS = "models"
    MODEL = "model"
    STORED = "stored answer"
    """A stored answer, as a whole or as its stream."""
    CANCEL = "cancellation"
    """The end of an answer that is in progress."""
    DELETE = "deletion"
    """The deletion of a stored answer."""


_METHODS: Final = {
    Asks.ANSWER: "POST",
    Asks.TOKENS: "POST",
    Asks.MODELS: "GET",
    Asks.MODEL: "GET",
    Asks.STORED: "GET",
    Asks.CANCEL: "POST",
    Asks.DELETE: "DELETE",
}


class Parameter(Struct, frozen=True):
    """One parameter of a path or a query."""

    name: str
    description: str
    schema: dict[str, Any]
    place: str = "query"


class Description(Struct, frozen=True, kw_only=True):
    """The description of a path in an OpenAPI document."""

    id: str
    summary: str
    request: type[Any] | None = None
    answer: type[Any] | None = None
    """The type of the JSON answer."""
    many: bool = False
    """True if the answer is an array of these."""
    text: str = ""
    """The content type of an answer that is not JSON."""
    events: str = ""
    """The description of a streamed answer."""
    parameters: tuple[Parameter, ...] = ()
    """The parameters of the query."""
    examples: dict[str, Any] = {}


class SurfacePath(Struct, frozen=True, kw_only=True, dict=True):
    """One path of an API."""

    path: str
    """The path, with parameters such as `{model}`, whose values may have slashes; `{id}` is the id of a
    stored answer."""
    asks: Asks = Asks.ANSWER
    stream: bool | None = None
    """True if answers are streamed, False if they never are; None if the body says which."""
    description: Description | None = None

    @property
    def method(self) -> str:
        return _METHODS[self.asks]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """A pattern for the path, with a group for each parameter."""
        pieces = _PARAMETER.split(self.path)
        named = [f"(?P<{piece}>.*)" if at % 2 else re.escape(piece) for at, piece in enumerate(pieces)]
        return re.compile("".join(named), re.DOTALL)


class KeyPlace(NamedTuple):
    """A place of a client's key: a header in lower case, the prefix of the key there, and a parameter of the
    query, "" if there is none."""

    header: str
    prefix: str = ""
    query: str = ""


class RequestHead(Struct, frozen=True, kw_only=True):
    """A request without its body, and what its server knows."""

    stream: bool | None = None
    """As `stream` in `SurfacePath`."""
    fields: Mapping[str, str] = _EMPTY
    """The parameters in the path."""
    query: Mapping[str, str] = _EMPTY
    headers: Mapping[str, str] = _EMPTY
    """The headers, by their names in lower case."""
    sealer: Sealer
    """Opens what clients were given in sealed form."""
    is_model: Callable[[str], bool] = lambda _name: False
    """Return whether there is a model of exactly this name."""
    check_json: Callable[[bytes], None] = lambda _text: None
    """Raises InvalidRequestError for a JSON text that exceeds the server's limits. It is for texts within a
    body, which was itself checked before."""


class FormContext(Struct, frozen=True, kw_only=True):
    """The facts about an answer, besides its request, on which its form depends. They are known when the
    answer begins, since an upstream has accepted the request then."""

    so_far: Callable[[], Response]
    """Return the response so far; of several choices, the first one's."""
    sealer: Sealer
    """Seals what clients carry between turns."""
    identities: ToolIdentityMap | None = None
    """Restores the client's names of tools, if the events do not have them."""
    text_after_tools: bool = True
    """True if clients of Chat Completions also get text that comes after a tool call."""
    input_tokens: Callable[[], int] = lambda: 0
    """Return an estimate of the input's tokens."""
    usage_at_start: Callable[[], Usage | None] = lambda: None
    """Return the usage that was reported before the answer began."""
    trace: Callable[[str], None] | None = None
    """Called with a line about each event, without content."""


EncodeEvents = Callable[[Sequence[Event]], bytes]
EncodeResponses = Callable[..., bytes | None]
"""Encodes the ended response of each choice, one argument each; None if the API has only an error for it."""


class AnswerForm(Protocol):
    """The encoding of one answer."""

    stream_type: bytes
    """The content type of a stream."""
    is_protocol: bool
    """True if a stream consists of the server-sent events themselves, so that frames that are encoded already
    are sent."""
    single_reasoning_form: bool
    """True if there is one field for reasoning, so that `whole` gets only the first form of it."""

    @property
    def encoders(self) -> Sequence[EncodeEvents]:
        """One encoder for the events of each choice."""
        ...

    def end(self) -> bytes:
        """Return the end of a stream, after the events of all choices."""
        ...

    @property
    def whole(self) -> EncodeResponses:
        """The encoder of an answer that is not streamed."""
        ...


class Continuation(NamedTuple):
    """The rest of a conversation after the last part that a stored response has answered."""

    request: CreateResponse
    """The request, with the id of that response."""
    losses: Diagnostics
    before: str
    """The digest of the conversation before it."""
    digest: Callable[[Sequence[Any]], str]
    """Return the digest of items."""


class Asked(Struct, frozen=True, kw_only=True):
    """A client's request, decoded."""

    request: CreateResponse
    form: Callable[[FormContext], AnswerForm]
    losses: Diagnostics | None = None
    """The losses of the translation; None for the protocol's own API, which is not translated."""
    choices: int = 1
    input_param: str = "input"
    """The path of the input in the client's own request."""
    schema_param: str = "text.format.schema"
    """The path of the output's schema in the client's own request."""
    continuation: Continuation | None = None
    """The same request as the continuation of a stored response, which is tried first; None if there is
    none."""
    headers: Mapping[str, str] = _EMPTY
    """Headers in the body, which replace the request's headers of the same names."""


class TokenCount(Struct, frozen=True, kw_only=True):
    """The way to count a request's tokens."""

    read: Callable[[bytes, RequestHead], tuple[CreateResponse, Diagnostics]]
    """Return the request and its losses. Raises InvalidRequestError with `param`."""
    answer: Callable[[int], Any]
    """Return the number of tokens in the form of the API."""
    input_param: str
    """As `input_param` in `Asked`."""


class ModelList(Struct, frozen=True, kw_only=True):
    """The list of models."""

    page: Callable[[Sequence[EnrichedModelData], RequestHead], Any]
    """Return the models that the query asks for. Raises InvalidRequestError with `param`."""
    model: Callable[[EnrichedModelData, str], Any]
    """Return one model, under the name that the client uses for it."""
    named: Callable[[str, RequestHead], str] = lambda name, _head: name
    """Return our name of the model that has this name for the client."""


class ResumedStream(Struct, frozen=True, kw_only=True):
    """The stream of a stored response, from some event on."""

    after: int
    """The number of the last event that the client has seen; -1 if it has seen none."""
    param: str
    """The name of the parameter with that number."""
    form: Callable[[FormContext], AnswerForm]
    """Makes the form, which is fed all events and encodes those that the client has not seen."""


class StoredAnswers(Struct, frozen=True, kw_only=True):
    """The stored responses of an API, which can also be made in the background."""

    resumed: Callable[[RequestHead], ResumedStream | None]
    """Return the requested stream; None if a whole response is requested. Raises InvalidRequestError with
    `param`."""
    whole: Callable[[Response, FormContext], bytes]
    """Encode a response that has ended or is in progress, also one that failed."""
    deleted: Callable[[str], bytes]
    """Encode the answer to the deletion of the response with this id."""


class LimitState(Struct, frozen=True):
    """The state of one limit of one key."""

    name: str
    """`requests` or `tokens`."""
    limit: int
    """The limit per minute."""
    left: int
    """The number that is left."""
    reset: float
    """Seconds until all of the limit is left again."""


def openai_limit_headers(state: LimitState, _now: float) -> Iterator[tuple[str, str]]:
    """Yield `x-ratelimit-…` headers; `reset` is a duration such as `1m3s`, in milliseconds below a minute."""
    yield f"x-ratelimit-limit-{state.name}", str(state.limit)
    yield f"x-ratelimit-remaining-{state.name}", str(state.left)
    yield f"x-ratelimit-reset-{state.name}", _duration(state.reset)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def protocol_error(error: BridgeError, dialect: str) -> bytes:
    """Encode a refusal in the protocol's form, with the further fields of an upstream of this dialect."""
    body = ErrorBody(ErrorPayload(error.error_type, error.code, error.message, error.param))
    native = native_of(error, dialect)
    return encode(plain(body) | {"error": native | plain(body.error)} if native else body)


class Surface(Struct, frozen=True, kw_only=True):
    """One API of clients."""

    paths: Sequence[SurfacePath]
    prefixes: Sequence[str] = ()
    """The prefixes of paths of this API, which decide the form of errors, whether the paths are served or
    not."""
    keys: Sequence[KeyPlace]
    """The places of its clients' keys, the usual one first."""
    why_refused: Callable[[Mapping[str, str]], str] = lambda _headers: ""
    """Return why the credentials in these headers are not a key, and what to send instead; "" if there are
    none."""
    recognises: Callable[[Mapping[str, str]], bool] = lambda _headers: False
    """Return whether these headers are of a client of this API, at a path that several APIs have."""
    read: Callable[[bytes, RequestHead], Asked]
    """Decode a request. Raises InvalidRequestError with `param`."""
    takes_any_type: Callable[[Mapping[str, str]], bool] = lambda _headers: False
    """Return whether a request with these headers is JSON whatever content type it names: it has a header
    that no web page can send without a preflight request (CORS)."""
    error: Callable[[BridgeError], bytes]
    """Encode the body of a refusal."""
    error_headers: Callable[[BridgeError], Mapping[str, str]] = lambda _error: _EMPTY
    """Return the further headers of a refusal."""
    error_type: type[Any] = ErrorBody
    """The type of that body, for the OpenAPI document."""
    count: TokenCount | None = None
    models: ModelList | None = None
    stored: StoredAnswers | None = None
    keep_alive: bytes = KEEP_ALIVE
    """Bytes that clients skip in a stream, between its frames: a comment, or an event of a type that they do
    not know."""
    limit_headers: Callable[[LimitState, float], Iterator[tuple[str, str]]] = openai_limit_headers
    """Return the headers that name one limit of a key; the second argument is the time (Unix seconds)."""
    request_id_header: str | None = None
    """The name of a second header for the id of a request, besides `x-request-id`."""
    needs_client: bool = False
    """True if a stored response is cancelled when its client disconnects; one that nothing can refer to is
    not stored."""
    stores_if_possible: bool = False
    """True if responses are stored unless the request says not to; without a working store they are not."""
    leaving_cancels: bool = False
    """True if clients cancel by disconnecting, even a stored response."""
    cannot_continue: Callable[[str, Mapping[str, str]], HttpError] | None = None
    """Return the refusal after which clients send the whole conversation instead of continuing a stored
    response; with this message, for a client with these headers."""
