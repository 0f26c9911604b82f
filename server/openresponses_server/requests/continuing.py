"""Going on from a response that the upstream keeps itself: only what is new is sent there.

The upstream then has to know all that the client means: the same server, credentials and model as before, and
nothing in the history that is made anew for each request (condensed history, tools that came in it).
"""

from __future__ import annotations

from openresponses_bridge.calls.declarations import active_tools
from openresponses_bridge.dialects.base import History
from openresponses_bridge.protocol.input_items import CompactionParam
from openresponses_bridge.protocol.items import CompactionItem
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.requests.compaction import asks_for_compaction
from openresponses_server.store.base import UpstreamResponse
from openresponses_server.store.history import own_input
from openresponses_server.store.records import can_be_id
from openresponses_server.upstreams.targets import Target


def keeps_responses(target: Target) -> bool:
    """Whether this upstream keeps responses and can be asked to go on from one."""
    return target.traits.keeps_responses


def kept_by(target: Target, response_id: str | None, key: str | None) -> UpstreamResponse | None:
    """The response that this upstream keeps under this id for whoever shows this key; None when it keeps
    none, and when the id is longer than any real one."""
    if response_id is None or not can_be_id(response_id) or not keeps_responses(target):
        return None
    return UpstreamResponse(target.upstream.account(key), target.model, response_id)


def continued_there(
    target: Target,
    request: CreateResponse,
    history: History,
    before: UpstreamResponse | None,
    key: str | None,
) -> str | None:
    """The upstream's id of the response `before` this request, where what is new is enough for it; None where
    the whole history has to be sent."""
    if before is None or before != kept_by(target, before.id, key) or asks_for_compaction(request):
        return None
    own = own_input(request)
    condensed = any(isinstance(item, CompactionParam | CompactionItem) for item in (*history, *own))
    if not own or condensed or active_tools((), history):
        return None
    return before.id
