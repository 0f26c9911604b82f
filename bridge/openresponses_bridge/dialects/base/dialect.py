"""What a dialect is to everybody else: one entry that its package exports as `DIALECT`.

A server, the reader of a capture and a command take all they need of a dialect from its entry, and describe
none themselves. `openresponses_bridge.dialects.table` lists the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.inbound import FrameTemplate
from openresponses_bridge.dialects.base.items import AnyItem
from openresponses_bridge.dialects.base.outcomes import Outcomes
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer

# The shape every dialect has: frames in through `Inbound`, events out through `Outbound`.
#
# Both are sans-IO. A frame is one payload (the data of an SSE frame, a JSON line); the transport
# around it is the caller's.

Chunk = TypeVar("Chunk")


class Inbound(Protocol):
    """A foreign stream → machine calls → events.

    `feed` accepts one frame's payload and returns the events that it caused; it starts the machine by itself.
    `event` is the name of the frame's SSE event, for servers that leave the type out of the data. `close`
    says that the upstream has ended: a stream that was cut becomes a failure (field case 26). After the
    machine has ended, frames are ignored, with a diagnostic.

    `template.sse` is fed the reads that are a single frame, before they are split. `read_done` is called
    after all frames of a read were fed; it may end the response. `kept_id` is the id under which the upstream
    keeps the response, None where it keeps none. `BaseInbound` has defaults for these.
    """

    diagnostics: Diagnostics
    template: FrameTemplate
    kept_id: str | None

    def feed(self, data: bytes, event: str = "") -> list[Event]: ...

    def read_done(self) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class Outbound(Protocol[Chunk]):
    """Events → a foreign stream's chunks. `close` gives what the dialect says at the very end."""

    @property
    def diagnostics(self) -> Diagnostics: ...

    def feed(self, event: Event) -> list[Chunk]: ...

    def close(self) -> list[Chunk]: ...


History = Sequence[AnyItem]


class RequestContext(NamedTuple):
    """What a request needs on its way to an upstream.

    `history`: the items of the turns before. `model`: the name that goes out. `options`: of the type that
    `UpstreamSide.options` is. `sealer`: opens the reasoning in the history. `identities`: learns the tools.
    `choices`: how many answers to ask for, where the upstream gives several to one request. `stream`: ask for
    a stream; else for one whole answer.
    """

    history: History
    model: str
    options: Any
    sealer: Sealer
    identities: ToolIdentityMap
    choices: int = 1
    stream: bool = True


class Outgoing(NamedTuple):
    """A translated request: the body as JSON, and what could not be expressed."""

    body: bytes
    diagnostics: Diagnostics


class Endpoint(Struct, frozen=True, kw_only=True):
    """The URL and headers of requests over HTTP. Each is a POST; the answer is server-sent events, or
    JSON."""

    path: str
    """Appended to a server's base URL."""
    versioned: bool = False
    """Whether the dialect's own clients add `/v1` to the base URL, so that it may be given with or without.
    Otherwise it is given with its version, and `/v1` is added to a URL without a path."""
    key_header: str = "authorization"
    """The header for the API key, in lower case."""
    key_prefix: str = "Bearer "
    """Comes before the key in that header."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Sent with every request."""


class Traits(Struct, frozen=True, kw_only=True):
    """What a server of the dialect does with certain options, where servers differ."""

    takes_choices: bool = False
    """Gives several answers to one request."""
    takes_betas: bool = False
    """Knows the names in `anthropic-beta`."""
    keeps_responses: bool = False
    """Can continue a response that it stores."""
    truncates: bool = False
    """Shortens a conversation that is too long, when asked to."""
    takes_stops: bool = True
    """Ends at stop sequences."""
    names_stops: bool = True
    """Reports the stop sequence that it met."""
    takes_schemas: bool = True
    """Enforces a JSON Schema for the answer, or is instructed to follow it."""
    takes_reasoning: bool = False
    """Accepts raw reasoning that it has not signed."""


class UpstreamSide(Struct, frozen=True, kw_only=True):
    """The upstream side of a dialect: the bridge is the client of a model."""

    options: type[Struct]
    """The type of the options of a server; all its fields have defaults."""
    request: Callable[[CreateResponse, RequestContext], Outgoing]
    """Translates a request. Raises InvalidRequestError with `param` for one that can't be sent."""
    inbound: Callable[[ResponseStream, Sealer], Inbound]
    """Reads the answer into this machine."""
    whole: Callable[[Mapping[str, Any]], bool]
    """Whether a JSON object is a whole answer; the inbound reads it as the only frame of a stream."""
    outcomes: Callable[[Any], Outcomes]
    """The outcome of each field of a request at a server with these options; `request` follows it."""
    compacts: bool = False
    """Whether such a server makes compaction items of its own."""
    choice: Callable[[ResponseStream, int], Inbound] | None = None
    """Reads one of several choices of an answer; None if an answer has only one."""
    endpoint: Endpoint | None = None
    """None for a process that is started."""
    traits: Callable[[Any], Traits] = lambda _options: Traits()
    """What a server with these options does."""


class ClientSide(Struct, frozen=True, kw_only=True):
    """The client side of a dialect: the bridge answers a client."""

    outbound: Callable[[], Outbound[Any]]
    """An outbound for a stream whose client is unknown; it leaves nothing out."""
    encode: Callable[[Iterable[Any]], bytes]
    """Its chunks → bytes."""
    request: Callable[[bytes, Sealer], tuple[CreateResponse, Diagnostics]] | None = None
    """Translates a client's body; returns the request and the losses. Raises InvalidRequestError with
    `param`."""
    whole: Callable[[Response, Sealer], bytes | None] | None = None
    """A response that has ended → the body of an answer that is not streamed; None if the dialect has only an
    error for it. The sealer must be the one that sealed the response's reasoning."""
    without_text_after_tools: Callable[[], Outbound[Any]] | None = None
    """An outbound that leaves out text after a tool call; None if the dialect never does."""


class Place(NamedTuple):
    """Which of several answers that come side by side a payload belongs to: `turn` is the answer's id and
    `thread` that of its conversation, each empty where the payload does not say. `opens`: it is enough to
    know of an answer that was not heard of yet."""

    thread: str = ""
    turn: str = ""
    opens: bool = False


class Recording(Struct, frozen=True, kw_only=True):
    """The dialect in a capture, whose payloads are JSON objects or `[DONE]`.

    `recognises`: whether a capture that begins with this payload is of this dialect.
    `inbound`: reads a capture into this machine: it ended as its producer wanted.
    `head`: the model and the time (Unix seconds) that the first payload names, of whatever type they are.
    `concludes`: whether a response has said all with this payload, though its stream may go on.
    `begins`: whether another response begins with this payload, after one has ended or concluded; the second
    argument is the payload before it, None for `[DONE]`.
    `place`: where a payload belongs, in a dialect whose answers may come side by side; what has none goes to
    the answer that is read, and only there does `begins` count.
    """

    recognises: Callable[[Mapping[str, Any]], bool]
    inbound: Callable[[ResponseStream], Inbound]
    head: Callable[[Mapping[str, Any]], tuple[Any, Any]] = lambda _value: (None, None)
    concludes: Callable[[Mapping[str, Any]], bool] = lambda _value: False
    begins: Callable[[Mapping[str, Any], Mapping[str, Any] | None], bool] = lambda _value, _before: False
    place: Callable[[Mapping[str, Any]], Place] = lambda _value: Place()


class Dialect(Struct, frozen=True, kw_only=True):
    """`name` is what settings and commands call it, `title` what people do; a side that it does not have is
    None.

    `text_after_tools`: whether what its models say after a tool call goes on to clients of Chat Completions,
    where a call ends the text.
    """

    name: str
    title: str
    recording: Recording
    text_after_tools: bool = True
    upstream: UpstreamSide | None = None
    client: ClientSide | None = None


def type_of(value: Mapping[str, Any]) -> str:
    """A payload's `type`; empty when it has none."""
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""
