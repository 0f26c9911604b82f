"""What a dialect is to everybody else: one entry that its package exports as `DIALECT`.

A server, the reader of a capture and a command take all they need of a dialect from its entry, and describe
none themselves. `openresponses_bridge.dialects.table` lists the entries.
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
    """A foreign stream → machine calls → events.

    It starts the machine by itself. After the machine has ended, frames are ignored, with a diagnostic.
    `BaseInbound` has defaults for everything but `feed` and `close`.
    """

    diagnostics: Diagnostics
    template: FrameTemplate
    """Its `sse` is fed the reads that are a single frame, before they are split."""
    kept_id: str | None
    """The id under which the upstream stores the response; None if it does not store it."""

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        """Translate one frame's payload; returns the events that it caused. `event` is the name of the
        frame's SSE event, for servers that leave the type out of the data."""
        ...

    def read_done(self) -> list[Event]:
        """Handle the end of a read, whose frames were all fed; this may end the response."""
        ...

    def flush(self) -> list[Event]:
        """Give what is held back of the output, because the upstream has failed."""
        ...

    def close(self) -> list[Event]:
        """The upstream has ended. A stream that was cut becomes a failure (field case 26)."""
        ...


class Outbound(Protocol[Chunk]):
    """Events → a foreign stream's chunks."""

    @property
    def diagnostics(self) -> Diagnostics: ...

    def feed(self, event: Event) -> list[Chunk]: ...

    def close(self) -> list[Chunk]:
        """The last chunks of the stream."""
        ...


History = Sequence[AnyItem]


class RequestContext(NamedTuple):
    """The facts that the translation of a request to an upstream needs besides the request."""

    history: History
    """The items of the turns before."""
    model: str
    """The name that the upstream knows."""
    options: Any
    """Of the type that `UpstreamSide.options` names."""
    sealer: Sealer
    """Opens the reasoning in the history."""
    identities: ToolIdentityMap
    """Is filled with the request's tools."""
    choices: int = 1
    """How many answers the upstream is asked for, where it gives several to one request."""
    stream: bool = True
    """Ask for a stream; else for one whole answer."""
    reasons: bool = True
    """Whether the model may reason."""
    efforts: frozenset[str] | None = None
    """The levels of `reasoning.effort` that the model has, as in `accepted_efforts`; None if not known."""
    output_room: int | None = None
    """The most tokens of an answer to a request that names no limit, where its server wants one; None if not
    known."""


class AnswerContext(NamedTuple):
    """The facts that the translation of an upstream's answer needs besides the answer."""

    options: Any
    """Of the type that `UpstreamSide.options` names."""
    sealer: Sealer
    """Seals what only the upstream can read."""
    identities: ToolIdentityMap
    """The tools of the request."""


class Outgoing(NamedTuple):
    """A translated request: the body as JSON, and what could not be expressed."""

    body: bytes
    diagnostics: Diagnostics


class FrameReader(Protocol):
    """Turns the bytes of one stream into server-sent events."""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; return the events that they complete. Raises WireError for bytes that can't
        belong to such a stream, at once and not when all of a message was waited for."""
        ...

    def close(self) -> None:
        """The stream has ended. Raises WireError if that was within an event."""
        ...


class Framing(NamedTuple):
    """The form of a stream whose bytes are not server-sent events."""

    content_type: str
    """The content type of such a stream. An answer of another one is taken for what that says."""
    reader: Callable[[], FrameReader]
    """Makes the reader of a stream."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """The URL and headers of requests over HTTP. Each is a POST; the answer is server-sent events, or what
    its `framing` makes of them, or JSON."""

    path: str
    """Appended to a server's base URL; it may have a query. `{model}` stands for the name of the model."""
    whole_path: str | None = None
    """The same for a request for a whole answer; None if the body says which."""
    version: str = "/v1"
    """Added to a base URL without a path."""
    versioned: bool = False
    """Whether the dialect's own clients add the version to any base URL, so that it may be given with or
    without."""
    key_header: str = "authorization"
    """The header for the API key, in lower case."""
    key_prefix: str = "Bearer "
    """Comes before the key in that header."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Sent with every request."""
    framing: Framing | None = None
    """The form of a stream; None for server-sent events."""
    signature: str = ""
    """The name of the signature of a request without a key, as a server may know it; "" if there is none.
    `aws:SERVICE`: Amazon's version 4, for that service."""
    passed_headers: frozenset[str] = frozenset()
    """Those of a client of the same API that go on with its request, in lower case: its betas, say."""
    socket: SocketFraming | None = None
    """How requests are sent over a WebSocket, which some servers have at the same address; None if the
    dialect has no WebSocket."""

    def path_of(self, model: str, *, stream: bool = True) -> str:
        """The path and query of a request to this model, whose name may be any text. Raises
        InvalidRequestError for one that leads to another path."""
        path = self.path if stream or self.whole_path is None else self.whole_path
        if MODEL not in path:
            return path
        before = path.partition(MODEL)[0].lstrip("/")
        name = model.removeprefix(before)
        if name in _OTHER_PATHS:
            raise invalid("model", f"{name!r} is not a name that an address can have")
        return path.replace(MODEL, quote(with_whole_characters(name), safe="@"))


class Traits(Struct, frozen=True, kw_only=True):
    """The abilities of a server of the dialect with certain options, where servers differ."""

    takes_choices: bool = False
    """Gives several answers to one request."""
    takes_betas: bool = False
    """Knows the `passed_headers` of its endpoint, and the fields that belong to them."""
    keeps_responses: bool = False
    """Can continue a response that it stores."""
    truncates: bool = False
    """Shortens a conversation that is too long, when asked to."""
    takes_stops: bool = True
    """Ends at stop sequences."""
    names_stops: bool = True
    """Reports the stop sequence that it met."""
    takes_reasoning: bool = False
    """Accepts raw reasoning that it has not signed."""
    takes_cache_keys: bool = False
    """Finds what it has cached of a conversation by `prompt_cache_key`."""
    hosted_tools: frozenset[str] = frozenset()
    """The types of tools, in OpenAI's names, that it runs itself."""
    compacts: bool = False
    """Compacts a conversation that is beyond a threshold, when asked to."""


class AnswerWay(StrEnum):
    """The ways by which an answer gets the format that a request asks for."""

    NATIVE = "native"
    """The server enforces it."""
    FUNCTION = "function"
    """The model is made to call a function, whose arguments are the answer."""
    INSTRUCTED = "instructed"
    """The model is instructed to keep it."""


AnswerFormat = JsonObjectFormat | JsonSchemaFormatParam
"""What `text.format` may ask for, besides plain text."""


class UpstreamSide(Struct, frozen=True, kw_only=True):
    """The upstream side of a dialect: the bridge is the client of a model."""

    options: type[Struct]
    """The type of the options of a server; all its fields have defaults."""
    request: Callable[[CreateResponse, RequestContext], Outgoing]
    """Translates a request. Raises InvalidRequestError with `param` for one that can't be sent."""
    inbound: Callable[[ResponseStream, AnswerContext], Inbound]
    """Reads the answer into this machine."""
    whole: Callable[[Mapping[str, Any]], bool]
    """Whether a JSON object is a whole answer; the inbound reads it as the only frame of a stream."""
    outcomes: Callable[[Any], Outcomes]
    """The outcome of each field of a request at a server with these options; `request` follows it."""
    compacts: bool = False
    """Whether such a server makes compaction items of its own."""
    choice: Callable[[ResponseStream, AnswerContext, int], Inbound] | None = None
    """Reads one of several choices of an answer; None if an answer has only one."""
    endpoint: Endpoint | None = None
    """None for a process that is started."""
    traits: Callable[[Any], Traits] = lambda _options: Traits()
    """What a server with these options does."""
    answers: Callable[[AnswerFormat, str, Any], AnswerWay] = lambda _format, _model, _options: (
        AnswerWay.NATIVE
    )
    """How this model answers in this format at a server with these options. `request` translates the format
    for the first way only; for the others, whoever calls it changes the request first."""


class ClientSide(Struct, frozen=True, kw_only=True):
    """The client side of a dialect: the bridge answers a client."""

    outbound: Callable[[], Outbound[Any]]
    """An outbound for a stream whose client is unknown; it leaves nothing out."""
    encode: Callable[[Iterable[Any]], bytes]
    """Its chunks → bytes."""
    whole: Callable[[Response, Sealer], bytes | None] | None = None
    """A response that has ended → the body of an answer that is not streamed; None if the dialect has only an
    error for it. The sealer must be the one that sealed the response's reasoning."""
    without_text_after_tools: Callable[[], Outbound[Any]] | None = None
    """An outbound that leaves out text after a tool call; None if the dialect never does."""


class Place(NamedTuple):
    """The place of a payload among several concurrent answers in a capture. Ids are empty where the payload
    has none."""

    thread: str = ""
    """The id of the answer's conversation."""
    turn: str = ""
    """The id of the answer."""
    opens: bool = False
    """Whether a payload of an answer that is unknown so far begins one."""


class CaptureFormat(Struct, frozen=True, kw_only=True):
    """The form of a dialect's captures. Their payloads are JSON objects or `[DONE]`."""

    recognises: Callable[[Mapping[str, Any]], bool]
    """Whether a capture with this first payload is of this dialect."""
    inbound: Callable[[ResponseStream], Inbound]
    """Reads a capture into this machine, with the options that its producer had."""
    head: Callable[[Mapping[str, Any]], tuple[Any, Any]] = lambda _value: (None, None)
    """The model and the time (Unix seconds) that the first payload contains, of whatever type they are."""
    concludes: Callable[[Mapping[str, Any]], bool] = lambda _value: False
    """Whether a response is complete with this payload, even if its stream continues."""
    begins: Callable[[Mapping[str, Any], Mapping[str, Any] | None], bool] = lambda _value, _before: False
    """Whether another response begins with this payload, after one that is complete; the second argument is
    the payload before, None for `[DONE]`."""
    place: Callable[[Mapping[str, Any]], Place] = lambda _value: Place()
    """The answer that a payload belongs to, in a dialect with concurrent answers. A payload without a place
    belongs to the current answer, and only there `begins` applies."""


class Dialect(Struct, frozen=True, kw_only=True):
    """A dialect: its two sides, and how its captures are read."""

    name: str
    """The name in settings and commands."""
    title: str
    """The name for people."""
    capture: CaptureFormat
    text_after_tools: bool = True
    """Whether clients of Chat Completions, where a call ends the text, are sent the text that its models
    write after a tool call."""
    upstream: UpstreamSide | None = None
    client: ClientSide | None = None
    surface: Surface | None = None
    """The API by which its clients ask over HTTP."""


def type_of(value: Mapping[str, Any]) -> str:
    """A payload's `type`; empty when it has none."""
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""
