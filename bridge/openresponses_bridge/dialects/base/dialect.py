"""The interface of a dialect: one entry, which its package exports as `DIALECT`.

A server, the reader of a capture and a command take all that they need of a dialect from its entry, and
describe none themselves. `openresponses_bridge.dialects.table` lists the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

from msgspec import Struct

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.entries import AnyItem
from openresponses_bridge.dialects.base.fields import invalid
from openresponses_bridge.dialects.base.inbound import FrameTemplate
from openresponses_bridge.dialects.base.outcomes import Outcomes
from openresponses_bridge.dialects.base.socket import SocketFraming
from openresponses_bridge.dialects.base.surface import Surface
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.codec import with_whole_characters
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, Response
from openresponses_bridge.seal import Sealer

# The shape every dialect has: frames in through `Inbound`, events out through `Outbound`.
#
# Both are sans-IO. A frame is one payload (the data of an SSE frame, a JSON line); the transport
# around it is the caller's.

Chunk = TypeVar("Chunk")
MODEL: Final = "{model}"
"""Stands for the name of a model in the path of an endpoint."""
_OTHER_PATHS: Final = (".", "..")


class Inbound(Protocol):
    """Converts a foreign stream to calls of the machine, and so to events.

    It starts the machine itself. After the machine has ended, frames are ignored, with a diagnostic.
    `BaseInbound` has defaults for everything but `feed` and `close`.
    """

    diagnostics: Diagnostics
    template: FrameTemplate
    """The template of frames. Its `sse` is fed those reads that are a single frame, before they are split."""
    kept_id: str | None
    """The id under which the upstream stores the response; None if it does not store it."""

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Translate one frame's payload. Returns the resulting events. `event` is the name of the frame's SSE
        event, for servers that leave the type out of the data."""
        ...

    def read_done(self) -> list[Event]:
        """Handle the end of a read, after all of its frames were fed; this may end the response."""
        ...

    def flush(self) -> list[Event]:
        """Return the events of output that was held back, because the upstream has failed."""
        ...

    def close(self) -> list[Event]:
        """Handle the end of the upstream. A stream that was cut becomes a failure (field case 26)."""
        ...


class Outbound(Protocol[Chunk]):
    """Converts events to a foreign stream's chunks."""

    @property
    def diagnostics(self) -> Diagnostics: ...

    def feed(self, event: Event) -> list[Chunk]: ...

    def close(self) -> list[Chunk]:
        """Return the last chunks of the stream."""
        ...


History = Sequence[AnyItem]


class RequestContext(NamedTuple):
    """The facts that the translation of a request to an upstream needs besides the request."""

    history: History
    """The items of earlier turns."""
    model: str
    """The upstream's name of the model."""
    options: Any
    """The options of the upstream, of the type `UpstreamSide.options`."""
    sealer: Sealer
    """Opens the reasoning in the history."""
    identities: ToolIdentityMap
    """Filled with the request's tools."""
    choices: int = 1
    """The number of answers that the upstream is asked for, if it gives several to one request."""
    stream: bool = True
    """True to ask for a stream, False for one whole answer."""
    reasons: bool = True
    """True if the model may reason."""
    efforts: frozenset[str] | None = None
    """The levels of `reasoning.effort` that the model has, as in `accepted_efforts`; None if they are not
    known."""
    output_room: int | None = None
    """The most tokens of an answer to a request that names no limit, for servers that require one; None if it
    is not known."""


class AnswerContext(NamedTuple):
    """The facts that the translation of an upstream's answer needs besides the answer."""

    options: Any
    """The options of the upstream, of the type `UpstreamSide.options`."""
    sealer: Sealer
    """Seals what only the upstream can read."""
    identities: ToolIdentityMap
    """The tools of the request."""


class Outgoing(NamedTuple):
    """A translated request: the body as JSON, and what could not be expressed."""

    body: bytes
    diagnostics: Diagnostics


class FrameReader(Protocol):
    """Converts the bytes of one stream to server-sent events."""

    def feed(self, data: bytes) -> bytes:
        """Feed the next bytes. Returns the events that they complete. Raises WireError for bytes that can't
        belong to such a stream, at once and without waiting for a whole message."""
        ...

    def close(self) -> None:
        """End the stream. Raises WireError if it ended within an event."""
        ...


class Framing(NamedTuple):
    """The form of a stream whose bytes are not server-sent events."""

    content_type: str
    """The content type of such a stream. An answer with another content type is read as that."""
    reader: Callable[[], FrameReader]
    """Makes the reader of a stream."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """The URL and headers of requests over HTTP. Each is a POST; the answer is server-sent events, or what
    its `framing` makes of them, or JSON."""

    path: str
    """Appended to a server's base URL; it may have a query. `{model}` stands for the name of the model."""
    whole_path: str | None = None
    """The path for a request for a whole answer; None if the body says which is asked for."""
    version: str = "/v1"
    """Added to a base URL without a path."""
    versioned: bool = False
    """True if the dialect's own clients add the version to any base URL, so that it may be given with or
    without it."""
    key_header: str = "authorization"
    """The header for the API key, in lower case."""
    key_prefix: str = "Bearer "
    """The prefix of the key in that header."""
    headers: Mapping[str, str] = MappingProxyType({})
    """The headers that are sent with every request."""
    framing: Framing | None = None
    """The form of a stream; None for server-sent events."""
    signature: str = ""
    """The name of the signature that a request without a key has; "" if there is none. `aws:SERVICE` is
    Amazon's version 4 for that service."""
    passed_headers: frozenset[str] = frozenset()
    """The headers, in lower case, that are passed on with the request of a client of the same API, such as
    its betas."""
    socket: SocketFraming | None = None
    """The way to send requests over a WebSocket, which some servers have at the same address; None if the
    dialect has no WebSocket."""

    def path_of(self, model: str, *, stream: bool = True) -> str:
        """Return the path and query of a request to this model, whose name may be any text. Raises
        InvalidRequestError for a name that leads to another path."""
        path = self.path if stream or self.whole_path is None else self.whole_path
        if MODEL not in path:
            return path
        before = path.partition(MODEL)[0].lstrip("/")
        name = model.removeprefix(before)
        if name in _OTHER_PATHS:
            raise invalid("model", f"{name!r} is not a name that an address can have")
        return path.replace(MODEL, quote(with_whole_characters(name), safe="@"))


class Traits(Struct, frozen=True, kw_only=True):
    """The abilities of a server of the dialect with certain options."""

    takes_choices: bool = False
    """True if it gives several answers to one request."""
    takes_betas: bool = False
    """True if it knows the `passed_headers` of its endpoint, and the fields that belong to them."""
    keeps_responses: bool = False
    """True if it can continue a response that it stores."""
    truncates: bool = False
    """True if it shortens a conversation that is too long, when asked to."""
    takes_stops: bool = True
    """True if it ends at stop sequences."""
    names_stops: bool = True
    """True if it reports the stop sequence at which it ended."""
    takes_reasoning: bool = False
    """True if it accepts raw reasoning that it has not signed."""
    takes_cache_keys: bool = False
    """True if it finds its cache of a conversation by `prompt_cache_key`."""
    hosted_tools: frozenset[str] = frozenset()
    """The types of tools, in OpenAI's names, that it runs itself."""
    compacts: bool = False
    """True if it compacts a conversation beyond a threshold, when asked to."""


class AnswerWay(StrEnum):
    """The ways in which an answer gets the format that a request asks for."""

    NATIVE = "native"
    """The server enforces it."""
    FUNCTION = "function"
    """The model is made to call a function, whose arguments are the answer."""
    INSTRUCTED = "instructed"
    """The model is instructed to keep to it."""


AnswerFormat = JsonObjectFormat | JsonSchemaFormatParam
"""What `text.format` may ask for, besides plain text."""


class UpstreamSide(Struct, frozen=True, kw_only=True):
    """The upstream side of a dialect: the bridge is the client of a model."""

    options: type[Struct]
    """The type of the options of a server; all its fields have defaults."""
    request: Callable[[CreateResponse, RequestContext], Outgoing]
    """Translates a request. Raises InvalidRequestError with `param` for a request that can't be sent."""
    inbound: Callable[[ResponseStream, AnswerContext], Inbound]
    """Makes the inbound that reads the answer into this machine."""
    whole: Callable[[Mapping[str, Any]], bool]
    """Returns whether a JSON object is a whole answer, which the inbound reads as the only frame of a
    stream."""
    outcomes: Callable[[Any], Outcomes]
    """Returns the outcome of each field of a request at a server with these options; `request` follows it."""
    compacts: bool = False
    """True if such a server makes compaction items of its own."""
    choice: Callable[[ResponseStream, AnswerContext, int], Inbound] | None = None
    """Makes the inbound that reads one of several choices of an answer; None if an answer has only one."""
    endpoint: Endpoint | None = None
    """The endpoint; None for a process that is started."""
    traits: Callable[[Any], Traits] = lambda _options: Traits()
    """Returns the abilities of a server with these options."""
    answers: Callable[[AnswerFormat, str, Any], AnswerWay] = lambda _format, _model, _options: (
        AnswerWay.NATIVE
    )
    """Returns how this model answers in this format at a server with these options. `request` translates the
    format for the first way only; for the others, its caller changes the request first."""


class ClientSide(Struct, frozen=True, kw_only=True):
    """The client side of a dialect: the bridge answers a client."""

    outbound: Callable[[], Outbound[Any]]
    """An outbound for a stream whose client is unknown; it leaves nothing out."""
    encode: Callable[[Iterable[Any]], bytes]
    """Encodes chunks as bytes."""
    whole: Callable[[Response, Sealer], bytes | None] | None = None
    """Returns the body of an answer that is not streamed, for a response that has ended; None if the dialect
    has only an error for it. The sealer must be the one that sealed the response's reasoning."""
    without_text_after_tools: Callable[[], Outbound[Any]] | None = None
    """An outbound that leaves out text after a tool call; None if the dialect never does."""


class Place(NamedTuple):
    """The place of a payload among several concurrent answers in a capture. Ids are empty if the payload has
    none."""

    thread: str = ""
    """The id of the answer's conversation."""
    turn: str = ""
    """The id of the answer."""
    opens: bool = False
    """True if this payload begins an answer that is not known yet."""


class CaptureFormat(Struct, frozen=True, kw_only=True):
    """The form of a dialect's captures. Their payloads are JSON objects or `[DONE]`."""

    recognises: Callable[[Mapping[str, Any]], bool]
    """Returns whether a capture with this first payload is of this dialect."""
    inbound: Callable[[ResponseStream], Inbound]
    """Reads a capture into this machine, with the options that its producer had."""
    head: Callable[[Mapping[str, Any]], tuple[Any, Any]] = lambda _value: (None, None)
    """Returns the model and the time (Unix seconds) in the first payload, of whatever type they are."""
    concludes: Callable[[Mapping[str, Any]], bool] = lambda _value: False
    """Returns whether a response is complete with this payload, even if its stream continues."""
    begins: Callable[[Mapping[str, Any], Mapping[str, Any] | None], bool] = lambda _value, _before: False
    """Returns whether another response begins with this payload, after a complete one; the second argument is
    the payload before, None for `[DONE]`."""
    place: Callable[[Mapping[str, Any]], Place] = lambda _value: Place()
    """Returns the answer that a payload belongs to, in a dialect with concurrent answers. A payload without a
    place belongs to the current answer, and `begins` applies only there."""


class Dialect(Struct, frozen=True, kw_only=True):
    """A dialect: its two sides, and how its captures are read."""

    name: str
    """The name in settings and commands."""
    title: str
    """The name for people."""
    capture: CaptureFormat
    text_after_tools: bool = True
    """True if clients of Chat Completions, where a call ends the text, also get the text that this dialect's
    models write after a tool call."""
    upstream: UpstreamSide | None = None
    client: ClientSide | None = None
    surface: Surface | None = None
    """The API over HTTP of its clients; None if it has none."""


def type_of(value: Mapping[str, Any]) -> str:
    """Return a payload's `type`; empty if it has none."""
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""
