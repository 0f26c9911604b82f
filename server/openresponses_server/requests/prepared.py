"""A request on its way from its body to its run, as one struct for each part of that way.

Each has what the one before it has and more, and is complete when it exists. `prepare.PASSES` lead from one
to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
from openresponses_bridge.dialects.base import History, Outgoing, openai_limit_headers
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.wire import AUTO
from openresponses_server.errors import UpstreamError
from openresponses_server.hosted.base import HostedProvider
from openresponses_server.http.auth import NOBODY
from openresponses_server.limits.memory import Reservation
from openresponses_server.limits.quotas import Form
from openresponses_server.requests.hosted_tools import HostedTools
from openresponses_server.requests.refused_fields import FieldRefusals
from openresponses_server.requests.truncation import Truncator
from openresponses_server.runs.metering import MeasuredInput
from openresponses_server.store.base import UpstreamResponse
from openresponses_server.store.history import Continued, Conversation
from openresponses_server.store.idempotency import IdempotencyKey
from openresponses_server.upstreams.routing.attempts import AnswerPlan
from openresponses_server.upstreams.routing.routes import RouteChoice
from openresponses_server.upstreams.targets import Target


class ClientTraits(Struct, frozen=True):
    """The traits of a client, from the headers of its request."""

    key: str | None
    """The API key; None without one."""
    is_codex: bool
    """True if SSE comments do not keep it from timing out, so that it needs data events. It does not retry
    after the code `server_is_overloaded`."""
    passed_headers: Mapping[str, str]
    """The headers that are passed on to an upstream of the same API, for instance its betas."""
    reasoning_as: str | None
    """The requested form of raw reasoning, None for the upstream's."""
    conversation: str = ""
    """The client's id of its conversation, "" without one."""
    wire: str = AUTO
    """The wire that the header names, else the client's key, else the settings; or `auto`."""
    shows_only_summaries: bool = False
    """True if it shows no raw reasoning."""


class LeasedResponse(NamedTuple):
    """A stored response that this worker has claimed and runs."""

    response: Response
    worker: str
    """The worker's name in the lease."""
    wire: str
    previous_attempts: int


LeftOut = Literal[
    "a part of the answer", "older items", "encrypted reasoning", "images", "the format", "the forced call"
]
"""What a request can do without when an upstream has refused it."""

_NOTHING_KNOWN: Final = ClientTraits(None, False, {}, None)


class Received(Struct, frozen=True, eq=False):
    """A request as a client has sent it."""

    body: CreateResponse
    """The decoded body; later with references replaced by the items themselves, and with the settings that
    its conversation changes."""
    headers: Mapping[str, str]
    """The headers of the HTTP request, by their names in lower case."""
    id: str
    owner: str = NOBODY
    """The owner of the response, and of the responses that it may refer to."""
    losses: Diagnostics | None = None
    """The losses of translating the client's own dialect."""
    continued: Continued | None = None
    """The conversation that it continues; None: it is loaded from the store."""
    leased: LeasedResponse | None = None
    """The background response that this worker has claimed and is to make."""
    input_param: str = "input"
    """The path of the input in the client's own request."""
    schema_param: str = "text.format.schema"
    """The path of the output's schema in the client's own request."""
    needs_client: bool = False
    """True if it is cancelled when its client disconnects, although it is stored."""
    streams: bool = False
    """True if its answer is streamed, even if its body does not say so."""
    key: IdempotencyKey | None = None
    """The idempotency key of its response, if that is stored."""
    choices: int = 1
    limits_form: Form = openai_limit_headers
    """The names of the rate-limit headers."""
    client: ClientTraits = _NOTHING_KNOWN
    lead: Sequence[InputItem] = ()
    """The messages of its prompt, which come before all items and hold for this request alone."""
    has_template: bool = False
    """True if its prompt is one of this server."""


class Addressed(Received, frozen=True, kw_only=True, eq=False):
    """A request for a model that is served."""

    target: Target
    """The upstream that is asked first."""
    learn: Callable[[UpstreamError], None]
    """Called with each refusal of its attempts."""
    field_refusals: FieldRefusals | None
    """The fields that upstreams have refused lately; None: they have refused none."""
    providers: Sequence[HostedProvider]
    """What runs tools that the server runs itself."""
    answer_headers: dict[str, str] = field(default_factory=dict)
    """The headers of the answer; final when an upstream has accepted, whose losses they report."""


class Placed(Addressed, frozen=True, kw_only=True, eq=False):
    """A request in its conversation. When an upstream refuses something, or an answer adds something, another
    `Placed` is made of it and translated again."""

    history: History
    """The items before the input."""
    own: Sequence[InputItem]
    """The items of the input."""
    before: Conversation
    """The conversation as it was read."""
    upstream_response: UpstreamResponse | None
    """The last response of the history, as its upstream stores it."""
    reservation: Reservation
    """The memory that the request takes."""
    compacts: bool
    """True if it asks for a summary of its conversation."""
    identities: ToolIdentityMap
    truncator: Truncator | None
    """Shortens the conversation for an upstream, where the request allows that."""
    chosen: RouteChoice | None = None
    """The choice among several routes; None: it is made when the first one has failed."""
    hosted: HostedTools | None = None
    """The tools that the server runs, None without any."""
    threshold: int | None = None
    """The tokens of input beyond which the conversation is condensed here; None: it is not."""
    follows: bool = False
    """True if it asks for another answer within the same response."""
    unreadable_patterns: bool = False
    """True if the schema of its format has patterns that can't be matched here."""
    left_out: frozenset[LeftOut] = frozenset()
    """What its upstream has refused, which is not sent again."""
    dropped_fields: frozenset[str] = frozenset()
    """The fields of its body that its upstream has refused."""
    output_room: int | None = None
    """The most tokens of an answer, known from an upstream's refusal of more."""
    response_id: str = ""
    """The id of its response, if an upstream wants to know the session."""


class UpstreamForm(Struct, frozen=True):
    """A request in the form of one upstream."""

    outgoing: Outgoing
    losses: list[Diagnostic]
    """The losses of the client's dialect, then those of the upstream's."""
    plan: AnswerPlan | None = None
    """How its answer gets the format of `text.format`."""
    stream: bool = True
    """False for a model that can call tools only in a response that is not streamed."""
    remaining_items: History | None = None
    """The items of the conversation after truncation; None when it was not truncated."""


class Translated(Placed, frozen=True, kw_only=True, eq=False):
    """A request that can be sent to its upstream."""

    form: UpstreamForm
    """The body with the whole history."""
    measured: MeasuredInput
    """The input from which tokens are estimated."""
    is_due: bool = False
    """True if the conversation is beyond its threshold."""
    previous_id: str = ""
    """The upstream's id of the previous response, if the upstream needs only the new input."""
    continuation: UpstreamForm | None = None
    """The body with the new input only."""
    reported: dict[str, None] = field(default_factory=dict)
    """The losses in `answer_headers` that upstreams caused."""
