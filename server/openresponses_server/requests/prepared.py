"""A request on its way from its body to its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import History, Outgoing
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.wire import AUTO
from openresponses_server.http.auth import NOBODY
from openresponses_server.limits.memory import Reservation
from openresponses_server.limits.quotas import Form, openai_headers
from openresponses_server.requests.hosted_tools import HostedTools
from openresponses_server.requests.truncation import Truncator
from openresponses_server.runs.metering import MeasuredInput
from openresponses_server.store.base import UpstreamResponse
from openresponses_server.store.history import Continued
from openresponses_server.upstreams.attempts import AnswerPlan
from openresponses_server.upstreams.routes import RouteChoice
from openresponses_server.upstreams.targets import Target


class ClientTraits(Struct, frozen=True):
    """What the headers of a request say about its client."""

    key: str | None
    """The API key, None without one."""
    is_codex: bool
    """SSE comments do not keep it from timing out: it needs data events. It does not ask again over the code
    `server_is_overloaded`."""
    betas: list[str]
    """The names in `anthropic-beta`."""
    reasoning_as: str | None
    """The requested form of raw reasoning, None for the upstream's."""
    conversation: str = ""
    """The client's id of its conversation, "" without one."""
    wire: str = AUTO
    """The wire that the header, else the client's key, else the settings say, or `auto`."""
    shows_only_summaries: bool = False
    """It shows no raw reasoning."""


class LeasedResponse(NamedTuple):
    """A stored response that this worker has claimed and runs."""

    response: Response
    worker: str
    """The worker's name in the lease."""
    wire: str
    previous_attempts: int


class TranslatedRequest(Struct, frozen=True):
    """A request translated for one upstream."""

    outgoing: Outgoing
    plan: AnswerPlan | None = None
    """How its answer gets the format of `text.format`."""
    stream: bool = True
    """False for a model that can call tools only in a response that is not streamed."""
    remaining_items: History | None = None
    """The items of the conversation after truncation; None when it was not truncated."""


@dataclass(slots=True, eq=False, repr=False)
class PreparedRequest:
    """One request, from its body to its run, or to its runs when it asks for several choices.

    The first fields are given. Each pass (`prepare.PASSES`) sets some of the others, most of which are not
    readable before.
    """

    body: CreateResponse
    """As decoded; later with the items themselves in the place of references, and with the settings that its
    conversation changes."""
    headers: Mapping[str, str]
    """Of the HTTP request, by their names in lower case."""
    id: str
    owner: str = NOBODY
    """Of the responses that it may refer to, and of its own."""
    losses: Diagnostics | None = None
    """The losses of translating the client's own dialect."""
    continued: Continued | None = None
    """The conversation that it continues; None: it is loaded from the store."""
    leased: LeasedResponse | None = None
    """The background response that is to be made, which this worker has claimed."""
    input_param: str = "input"
    """The path of the input in the client's own request."""
    schema_param: str = "text.format.schema"
    """The path of the output's schema there."""
    streams: bool = False
    """Its answer is sent as it is made, even if its body does not say so."""
    follows: bool = False
    """It asks for another answer within the same response."""
    unreadable_patterns: bool = False
    """The schema of its format has patterns that can't be matched here."""
    choices: int = 1
    limits_form: Form = openai_headers
    """The names of the rate-limit headers."""

    client: ClientTraits = field(init=False)
    lead: Sequence[InputItem] = field(init=False, default=())
    """The messages of its prompt, which come before all items and hold for this request alone."""
    has_template: bool = field(init=False, default=False)
    """Its prompt is one of this server's."""
    target: Target = field(init=False)
    """The upstream that is asked first."""
    chosen: RouteChoice | None = field(init=False)
    """The choice among several routes; None: there is one, or the request is for several choices."""
    answer_headers: dict[str, str] = field(init=False)
    """The headers of the answer; final when an upstream has accepted, whose losses they report."""
    history: History = field(init=False)
    """The items before the input."""
    own: list[InputItem] = field(init=False)
    """The items of the input."""
    upstream_response: UpstreamResponse | None = field(init=False)
    """The last response of the history, as its upstream stores it."""
    reservation: Reservation = field(init=False)
    """The memory that the request takes."""
    hosted: HostedTools | None = field(init=False)
    """The tools that the server runs, None without any."""
    compacts: bool = field(init=False)
    """It asks for a summary of its conversation."""
    threshold: int | None = field(init=False)
    """The tokens of input beyond which the conversation is condensed here; None: it is not."""
    is_due: bool = field(init=False)
    """It is beyond that."""
    identities: ToolIdentityMap = field(init=False)
    truncator: Truncator | None = field(init=False)
    """Shortens the conversation for an upstream, where the request allows that."""
    output_room: int | None = field(init=False)
    """The most tokens of an answer, by an upstream's refusal of more."""
    translated: TranslatedRequest = field(init=False)
    """The request with its whole history, for the first upstream."""
    previous_id: str | None = field(init=False)
    """The upstream's id of the response before, where the new input is enough for it."""
    continuation: TranslatedRequest | None = field(init=False)
    """The request with its new input only, for that upstream."""
    measured: MeasuredInput = field(init=False)
    """What input tokens are estimated from."""
    reported: dict[str, None] = field(init=False)
    """The losses in `answer_headers` that upstreams have been the cause of."""
