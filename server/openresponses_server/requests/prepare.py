"""The passes that prepare a request for its run."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from operator import attrgetter
from typing import Any, Final, NamedTuple

from openresponses_bridge.errors import BridgeError
from openresponses_server.requests.admission import (
    apply_updates,
    check_fields,
    check_store,
    count_request,
    expand_prompt,
    load_history,
    reserve,
    restore_thread,
)
from openresponses_server.requests.answer_format import check_patterns
from openresponses_server.requests.client_traits import read_headers
from openresponses_server.requests.condensing import plan_compaction
from openresponses_server.requests.fetched_files import fetch_addresses
from openresponses_server.requests.hosted import offer_hosted
from openresponses_server.requests.outgoing import (
    continue_upstream,
    find_threshold,
    find_upstream,
    prewarm,
    report_losses,
    translate,
)
from openresponses_server.requests.prepared import Placed, Received, Translated
from openresponses_server.requests.routes import choose_route
from openresponses_server.requests.service import Service

Step = Callable[[Any, Service], Any]
"""One step of preparing a request: returns the request with more in it. Raises HttpError, or
InvalidRequestError with `param`, for a request that can't be fulfilled."""


class Pass(NamedTuple):
    """A step, and the attribute of the request without which it has nothing to do; "" if it always has."""

    step: Step
    needs: Callable[[Any], object] | None
    is_awaited: bool


def _pass(step: Step, needs: str = "") -> Pass:
    return Pass(step, attrgetter(needs) if needs else None, iscoroutinefunction(step))


PASSES: Final = (
    # as it was received
    _pass(read_headers),
    _pass(expand_prompt, "body.prompt"),
    _pass(check_fields),
    _pass(check_store),
    # to its upstream
    _pass(find_upstream),
    _pass(count_request),
    # into its conversation
    _pass(load_history),
    _pass(restore_thread, "body.previous_response_id"),
    _pass(apply_updates),
    _pass(choose_route, "target.fallbacks"),
    _pass(prewarm, "target.prewarms"),
    _pass(find_threshold, "body.context_management"),
    _pass(offer_hosted, "providers"),
    _pass(fetch_addresses, "target.fetches"),
    # into the upstream's dialect
    _pass(translate),
    _pass(check_patterns, "form.plan"),
    _pass(plan_compaction, "threshold"),
    _pass(continue_upstream, "upstream_response"),
    _pass(report_losses),
    _pass(reserve),
)
"""In the order in which they run. Each returns what the next one takes."""


async def prepare(received: Received, service: Service) -> Translated:
    """Pass the request through all of `PASSES`. Raises what a pass raises."""
    request: Any = received
    try:
        for step, needs, is_awaited in PASSES:
            if needs is None or needs(request):
                request = await step(request, service) if is_awaited else step(request, service)
    except BridgeError as error:
        if isinstance(request, Placed):
            request.reservation.release()
        elif received.continued is not None:
            received.continued.reservation.release()
        if error.param == "previous_response_id" and received.body.conversation is not None:
            error.param = "conversation"  # what came before has this name here
        raise
    translated: Translated = request
    return translated
