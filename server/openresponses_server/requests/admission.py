"""Whether a request is accepted: its fields and conversation are within the limits, its key has quota left,
and there is room in memory."""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.anthropic_messages import is_native
from openresponses_bridge.dialects.anthropic_messages.carried import carried_by
from openresponses_bridge.dialects.base import configured
from openresponses_bridge.errors import BridgeError, InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import RESTART, CreateResponse
from openresponses_bridge.protocol.tools import FunctionTool, FunctionToolParam, Tool, ToolParam
from openresponses_bridge.protocol.usage import Usage
from openresponses_server.errors import HttpError
from openresponses_server.limits.memory import release_received
from openresponses_server.limits.owners import WITHOUT_KEY
from openresponses_server.limits.requests import check_conversation, check_request
from openresponses_server.observation.responses import EndedRun, LoggedEnd, Watch
from openresponses_server.requests.answer_format import check_format
from openresponses_server.requests.compaction import asks_for_compaction
from openresponses_server.requests.constraints import check_stops
from openresponses_server.requests.context import check_context
from openresponses_server.requests.passed_fields import check_names, passed_by, priced_apart
from openresponses_server.requests.prepared import Addressed, Placed, Received, Translated
from openresponses_server.requests.prompts import expanded, unknown_prompt
from openresponses_server.requests.service import Service
from openresponses_server.requests.truncation import Truncator
from openresponses_server.runs.metering import Used
from openresponses_server.settings import Limits
from openresponses_server.store.base import StoreError, TooLarge
from openresponses_server.store.history import continued, own_input
from openresponses_server.upstreams.targets import Target

_COPIED: Final = 32  # bytes of referenced items that may be stored for each byte of the input


def expand_prompt(request: Received, service: Service) -> Received:
    """Add what the prompt gives that the request names. Raises InvalidRequestError with the path of a
    variable, and HttpError 404 for an unknown prompt or version."""
    expansion = expanded(service.prompts, request.body, service.settings.max_body_bytes)
    if expansion is not None:
        body, lead = expansion
        return replace(request, body=body, lead=lead, has_template=True)
    if request.body.model is None and service.settings.default_model is None:
        raise unknown_prompt(request.body)  # an upstream may have it, but which one?
    return request


def check_fields(request: Received, service: Service) -> Received:
    """Raises InvalidRequestError for fields that exceed a limit or are mutually exclusive, whatever the
    upstream, and what `check_name` raises."""
    body, limits = request.body, service.settings.limits
    if body.beyond or body.native is not UNSET:
        check_names(passed_by(body))
    if body.background or body.restart:
        _check_background(body)
    check_request(body, limits, param=request.input_param)
    if body.stop:
        check_stops(body)
    if body.context_management is not None:
        check_context(body)
    if body.text is not None:
        check_format(body, limits, request.schema_param)
    return request


def _check_background(body: CreateResponse) -> None:
    """Raises InvalidRequestError for a background response that is not stored, and for `restart: always` in
    the foreground: the client has seen the output that would be replaced."""
    if body.background and body.store is False:
        what = "a response in the background must be stored"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="background")
    if body.restart == "always" and not body.background:
        what = f"{RESTART}: 'always' is for responses with background: true"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=RESTART)


async def check_store(request: Received, service: Service) -> Received:
    """Raises StoreError if the response is to be stored and the store can't be reached. A message of a thread
    is then not stored, as when its key has reached its limit of stored bytes: its thread can't be
    continued."""
    if request.body.store is False or request.leased is not None:
        return request
    try:
        await service.runs.check_store()
        is_stored = not request.needs_client or _may_store(request, service)
    except StoreError:
        if not request.needs_client or request.body.previous_response_id is not None:
            raise
        is_stored = False
    return request if is_stored else replace(request, body=replace(request.body, store=False))


def _may_store(request: Received, service: Service) -> bool:
    return service.quotas.may_store(request.owner, lambda: len(encode(own_input(request.body))))


async def count_request(request: Addressed, service: Service) -> Addressed:
    """Count the request against the quotas of its key. Raises HttpError 429, and 400 for a model without a
    price where there is a budget in money."""
    if request.owner == WITHOUT_KEY:
        return request  # there are no quotas
    if request.leased is not None:  # it was counted when it was queued
        return request
    body, target = request.body, request.target
    size = None if body.store is False else lambda: len(encode(own_input(body)))
    headers = await service.quotas.accept(
        request.owner,
        model=body.model or target.model,
        target=target,
        size=size,
        form=request.limits_form,
        apart=partial(_priced_apart, body, target),
    )
    return replace(request, answer_headers=headers)


async def count_unanswered(request: Received, service: Service) -> None:
    """Count a request that needs no model. Raises HttpError 429."""
    body = request.body
    size = None if body.store is False else lambda: len(encode(own_input(body)))
    await service.quotas.accept(
        request.owner, model=None, target=None, size=size, form=request.limits_form, apart=None
    )


def _priced_apart(body: CreateResponse, target: Target) -> str | None:
    """The field with which a request asks its upstream, or one that may replace it, for something that is not
    charged by the model's price of tokens; None without one."""
    targets = (target, *target.fallbacks)
    tier = {"service_tier": body.service_tier} if any(map(_takes_tiers, targets)) else {}
    return priced_apart({**passed_by(body, targets), **tier})


def _takes_tiers(target: Target) -> bool:
    return target.dialect.side.outcomes(target.options)["service_tier"].kind != "loss"


async def load_history(request: Addressed, service: Service) -> Placed:
    """Load the conversation that the request continues and the items that it refers to. A request whose
    response was claimed is not refused for lack of memory.

    Raises HttpError 400 for what does not exist or exceeds a limit, and 429 for lack of memory.
    """
    leased = request.leased is not None
    continuation = request.continued or await continued(
        service.store, request.body, request.owner, service.available, accepted=leased
    )
    original, (body, before, reservation) = request.body, continuation
    try:
        if body is not original and not leased:
            check_references(original, body, service.settings.limits)
            _count_references(service, original, body, request.owner)
        check_conversation(body, len(before.items) + len(request.lead), service.settings.limits)
    except BridgeError:
        reservation.release()
        raise
    return Placed(
        **{**asdict(request), "body": body},
        history=before.items,
        own=own_input(body),
        before=before,
        upstream_response=before.upstream,
        reservation=reservation,
        compacts=isinstance(body.input, list) and asks_for_compaction(body.input),
        identities=ToolIdentityMap(),
        truncator=Truncator(service.meters.counter(request.owner)) if body.truncation == "auto" else None,
    )


def restore_thread(request: Placed, _service: Service) -> Placed:
    """A message of a thread comes without the system prompt and the tools, which are those of the message
    before it."""
    body, before = request.body, request.before
    if not is_native(body):
        return request
    if carried_by(body).changes_tools:
        what = "Tools that are added or removed within a conversation need the whole conversation in `input`."
        raise HttpError(400, what, param="previous_response_id")
    if body.tools is None:
        body = replace(body, tools=[_as_param(tool) for tool in before.tools] or None)
    if body.instructions is None:
        body = replace(body, instructions=before.instructions)
    return replace(request, body=body)


def _as_param(tool: Tool) -> ToolParam:
    if not isinstance(tool, FunctionTool):
        return tool
    description, parameters = tool.description, tool.parameters
    return FunctionToolParam(tool.name, description, parameters, tool.strict)


def check_references(original: CreateResponse, resolved: CreateResponse, limits: Limits) -> None:
    """Raises HttpError 400 when a request that is stored refers to items of more bytes than its own input
    allows: they are stored with it."""
    if resolved is original or original.store is False:
        return
    own = len(encode(original.input))
    copied = len(encode(resolved.input)) - own
    most = limits.stored_reference_bytes + _COPIED * own
    if copied > most:
        raise HttpError(
            400,
            f"What the item references stand for is stored with the response: {copied} bytes more. With an "
            f"input of {own} bytes the limit is {most} (limits.stored_reference_bytes, and {_COPIED} times "
            "the input). Send the items themselves, continue with previous_response_id, or ask with store: "
            "false.",
            code=TooLarge.REFERENCES,
            param="input",
        )


def _count_references(
    service: Service, original: CreateResponse, resolved: CreateResponse, owner: str
) -> None:
    """Count the items that a stored request refers to, which are stored with it, against the quota of stored
    bytes. Raises HttpError 429."""

    def more() -> int:
        return max(len(encode(own_input(resolved))) - len(encode(own_input(original))), 0)

    if original.store is not False:
        service.quotas.store(owner, more)


def apply_updates(request: Placed, service: Service) -> Placed:
    """Apply the settings that items of the conversation change. Raises InvalidRequestError for settings that
    can't be used."""
    updated = configured(request.body, request.history)
    if updated is request.body:
        return request
    check_format(updated, service.settings.limits, request.input_param)
    counter = service.meters.counter(request.owner)
    truncator = Truncator(counter) if updated.truncation == "auto" else None
    return replace(request, body=updated, schema_param=request.input_param, truncator=truncator)


def reserve(request: Translated, _service: Service) -> Translated:
    """Reserve the memory of what is sent upstream, and release that of what was received. Raises HttpError
    429."""
    release_received()
    continuation = request.continuation
    more = 0 if continuation is None else len(continuation.outgoing.body)
    if request.is_due:  # the request for a summary has all of it too
        more += len(request.form.outgoing.body)
    request.reservation.grow(len(request.form.outgoing.body) + more)
    return request


class QuotaCount(Watch, Struct):
    """Counts a response against the quotas of its key, however it ended, if an upstream began it, or its
    client gave up before that."""

    service: Service
    owner: str
    used: Used
    stored: bool

    def end(self, ended: EndedRun, logged_end: LoggedEnd) -> None:
        if not ended.counts:
            return
        response = ended.response
        self.service.quotas.ended(
            self.owner,
            response,
            lambda: self.used(response.output) or Usage.of(0, 0),
            stored=self.stored,
            cost=ended.cost,
        )
