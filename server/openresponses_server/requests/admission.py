"""Whether a request is accepted: its fields and conversation are within the limits, its key has quota left,
and there is room in memory."""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec import Struct

from openresponses_bridge.dialects.anthropic_messages.carried import carried_by
from openresponses_bridge.dialects.base import configured
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import RESTART, CreateResponse
from openresponses_bridge.protocol.usage import Usage
from openresponses_server.errors import HttpError
from openresponses_server.limits.memory import release_received
from openresponses_server.limits.requests import check_conversation, check_request
from openresponses_server.observation.responses import EndedRun, LoggedEnd, Watch
from openresponses_server.requests.answer_format import check_format
from openresponses_server.requests.compaction import asks_for_compaction
from openresponses_server.requests.constraints import check_stops
from openresponses_server.requests.context import check_context
from openresponses_server.requests.prepared import PreparedRequest
from openresponses_server.requests.prompts import expanded, unknown_prompt
from openresponses_server.requests.service import Service
from openresponses_server.runs.metering import Used
from openresponses_server.settings import Limits
from openresponses_server.store.base import TooLarge
from openresponses_server.store.history import continued, own_input
from openresponses_server.upstreams.targets import Target

_COPIED: Final = 32  # bytes of referenced items that may be stored for each byte of the input


def expand_prompt(request: PreparedRequest, service: Service) -> None:
    """Add what the prompt gives that the request names. Raises InvalidRequestError with the path of a
    variable, and HttpError 404."""
    found = expanded(service.prompts, request.body, service.settings.max_body_bytes)
    if found is not None:
        request.body, request.lead = found
        request.has_template = True
    elif request.body.model is None and service.settings.default_model is None:
        raise unknown_prompt(request.body)  # an upstream may have it, but which one?


def check_fields(request: PreparedRequest, service: Service) -> None:
    """Raises InvalidRequestError for fields that exceed a limit or exclude each other, whatever the
    upstream."""
    body, limits = request.body, service.settings.limits
    if body.background or body.restart:
        _check_background(body)
    check_request(body, limits, param=request.input_param)
    if body.stop:
        check_stops(body)
    if body.context_management is not None:
        check_context(body)
    if body.text is not None:
        check_format(body, limits, request.schema_param)


def _check_background(body: CreateResponse) -> None:
    """Raises InvalidRequestError for a background response that is not stored, and for `restart: always` in
    the foreground: the client has seen the output that would be replaced."""
    if body.background and body.store is False:
        what = "a response in the background has to be stored"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="background")
    if body.restart == "always" and not body.background:
        what = f"{RESTART}: 'always' is for responses with background: true"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=RESTART)


async def check_store(request: PreparedRequest, service: Service) -> None:
    """Raises StoreError if the response is to be stored and the store is out of reach."""
    if request.body.store is not False and request.leased is None:
        await service.runs.check_store()


async def count_request(request: PreparedRequest, service: Service, *, asks_model: bool = True) -> None:
    """Count the request against the quotas of its key. Raises HttpError 429, and 400 for a model without a
    price where there is a budget in money; not where no model is asked."""
    if request.leased is not None:  # it was counted when it was queued
        request.answer_headers = {}
        return
    body, form = request.body, request.limits_form
    size = None if body.store is False else lambda: len(encode(own_input(body)))
    target = request.target if asks_model else None  # it has none yet
    model = None if target is None else body.model or target.model
    request.answer_headers = await service.quotas.accept(
        request.owner,
        model=model,
        target=target,
        size=size,
        form=form,
        apart=partial(_priced_apart, body, request.target) if asks_model else None,
    )


# Values that ask for a better service at the same price or a lower one.
_USUAL_TIERS: Final = frozenset({None, "auto", "default", "flex"})
_USUAL_VALUES: Final = {"speed": (None, "standard"), "inference_geo": (None, "global")}


def _priced_apart(body: CreateResponse, target: Target) -> str | None:
    """The field by which a request asks its upstream, or one that it may go to instead, for what has another
    price than the model's tokens; None without one."""
    targets = (target, *target.fallbacks)
    if body.service_tier not in _USUAL_TIERS and any(map(_takes_tiers, targets)):
        return "service_tier"
    given = carried_by(body).body
    if any(each.traits.takes_betas for each in targets):
        return next((name for name, usual in _USUAL_VALUES.items() if given.get(name) not in usual), None)
    return None


def _takes_tiers(target: Target) -> bool:
    return target.dialect.side.outcomes(target.options)["service_tier"].kind != "loss"


async def load_history(request: PreparedRequest, service: Service) -> None:
    """Load what the request continues and refers to. If its response was claimed, it is not refused for
    what is in memory.

    Raises HttpError 400 for what does not exist or is too much, and 429.
    """
    leased = request.leased is not None
    found = request.continued or await continued(
        service.store, request.body, request.owner, service.available, accepted=leased
    )
    given, request.continued = request.body, found
    request.body, before, request.reservation = found
    request.history, request.upstream_response = before.items, before.upstream
    if request.body is not given and not leased:
        check_references(given, request.body, service.settings.limits)
        _count_references(service, given, request.body, request.owner)
    check_conversation(request.body, len(request.history) + len(request.lead), service.settings.limits)
    request.own = own_input(request.body)
    request.compacts = isinstance(request.body.input, list) and asks_for_compaction(request.body.input)


def check_references(given: CreateResponse, resolved: CreateResponse, limits: Limits) -> None:
    """Raises HttpError 400 when a request that is stored refers to items of more bytes, which are stored with
    it, than its own input allows."""
    if resolved is given or given.store is False:
        return
    own = len(encode(given.input))
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


def _count_references(service: Service, given: CreateResponse, resolved: CreateResponse, owner: str) -> None:
    """Count the items that a stored request refers to, which are stored with it, against the quota of stored
    bytes. Raises HttpError 429."""

    def more() -> int:
        return max(len(encode(own_input(resolved))) - len(encode(own_input(given))), 0)

    if given.store is not False:
        service.quotas.store(owner, more)


def apply_updates(request: PreparedRequest, service: Service) -> None:
    """Apply the settings that items of the conversation change. Raises InvalidRequestError for settings that
    can't be used."""
    updated = configured(request.body, request.history)
    if updated is not request.body:
        request.body, request.schema_param = updated, request.input_param
        check_format(updated, service.settings.limits, request.schema_param)


def reserve(request: PreparedRequest, _service: Service) -> None:
    """Reserve the memory of what is sent upstream, for that of what was received. Raises HttpError 429."""
    release_received()
    continuation = request.continuation
    more = 0 if continuation is None else len(continuation.outgoing.body)
    if request.is_due:  # the request for a summary has all of it too
        more += len(request.translated.outgoing.body)
    request.reservation.grow(len(request.translated.outgoing.body) + more)


class QuotaCount(Watch, Struct):
    """Counts a response that an upstream has begun, or that its client gave up before, against the quotas of
    its key, however it ended."""

    service: Service
    owner: str
    used: Used
    stored: bool

    def end(self, ended: EndedRun, said: LoggedEnd) -> None:
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
