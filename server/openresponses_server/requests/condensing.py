"""Has the conversation of a request condensed when it is beyond its threshold, before its model answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog
from msgspec.structs import replace

from openresponses_bridge.models.tokens import TokenCounter
from openresponses_server.requests.compaction import compaction_id, seal_window
from openresponses_server.requests.context import FIELD, Split, sealable, split
from openresponses_server.requests.outgoing import open_sealed_items, translate_again
from openresponses_server.requests.prepared import Placed, Translated
from openresponses_server.requests.service import Service
from openresponses_server.tasks import on_thread
from openresponses_server.upstreams.routing.attempts import Attempts

_PART: Final = 4  # of the threshold: a summary of less than this part of it would not help
_log = structlog.get_logger(__name__)


class _Measured(NamedTuple):
    conversation: list[Any]
    parts: Split
    tokens: int
    is_due: bool


def _measured(request: Placed, items: Sequence[Any], counter: TokenCounter) -> _Measured:
    assert request.threshold is not None
    target, model = request.target, request.target.model
    earlier, own = open_sealed_items(target, request.history, [*request.own, *items], {})
    conversation = [*earlier, *own]
    parts = split(conversation)
    body = request.body if request.hosted is None else request.hosted.body(request.body)
    condensed = sum(counter.item(item, model) for item in parts.condensed)
    kept = sum(counter.item(item, model) for item in parts.kept)
    tokens = counter.request(replace(body, input=None), request.lead, model) + kept + condensed
    is_due = tokens > request.threshold and condensed * _PART >= request.threshold
    return _Measured(conversation, parts, tokens, is_due)


async def plan_compaction(request: Translated, service: Service) -> Translated:
    """Find out whether the conversation, if it has a threshold, is to be condensed before the request is
    sent. Raises InvalidRequestError for a compaction in it that can't be opened."""
    if request.threshold is None:
        return request
    counter, begun = service.meters.counter(request.owner), request.leased is not None
    measured = await on_thread(lambda: _measured(request, (), counter), begun=begun)
    return replace(request, is_due=measured.is_due)


class ContextCompaction:
    """A `rounds.Compaction`. `ask` makes the attempts of a request for a summary; `condensed` is called with
    the request that has one; `report` reports a loss."""

    def __init__(
        self,
        request: Translated,
        service: Service,
        ask: Callable[[Translated], Attempts],
        condensed: Callable[[Translated], None],
        report: Callable[[str, str], None],
    ) -> None:
        self._request = request
        self._condensed = condensed
        self._counter = service.meters.counter(request.owner)
        self._ask = ask
        self._report = report
        self._parts = Split([], [], 0)
        self._tokens = 0

    async def attempts(self, items: Sequence[Any]) -> Attempts | None:
        """As in `rounds.Compaction`."""
        request = self._request
        if not (items or request.is_due):
            return None  # it was measured when it was prepared
        measured = await on_thread(lambda: _measured(request, items, self._counter), begun=True)
        if not measured.is_due:
            return None
        self._parts, self._tokens = measured.parts, measured.tokens
        return self._ask(
            replace(
                request,
                compacts=True,
                hosted=None,
                truncator=None,
                history=[],
                own=measured.conversation,
                lead=(),
                follows=True,
            )
        )

    async def accept(self, summary: str) -> Mapping[str, Any]:
        """As in `rounds.Compaction`."""
        request, target, own = self._request, self._request.target, self._parts.window(summary)
        body = replace(request.body, input=list(own))
        shorter = replace(request, body=body, history=[], own=own, continuation=None)
        self._request = request = await translate_again(shorter)
        self._condensed(request)
        condensed = len(self._parts.condensed)
        _log.info("context.compacted", request_id=request.id, tokens=self._tokens, items=condensed)
        sealed = seal_window(target.sealer, sealable(request.own))
        return {"type": "compaction", "id": compaction_id(), "encrypted_content": sealed}

    def fail(self, why: str) -> None:
        """As in `rounds.Compaction`."""
        _log.warning("context.not_compacted", request_id=self._request.id, tokens=self._tokens, reason=why)
        self._report(FIELD, f"the conversation was not compacted: {why}")
