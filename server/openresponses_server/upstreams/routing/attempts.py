"""Retries and failover: a busy upstream is asked again, another route if one fails, until one answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.dialects.base import AnswerWay
from openresponses_bridge.errors import BridgeError
from openresponses_server.errors import FailureFacts, UpstreamError
from openresponses_server.settings import Retries
from openresponses_server.upstreams.base import Upstream, UpstreamReply, UpstreamRequest
from openresponses_server.upstreams.refusals import cleaner, refused_in_stream, seconds_of
from openresponses_server.upstreams.routing.routes import RouteChoice, Tried, tried_header
from openresponses_server.upstreams.targets import Target

# refusals that a retry may avoid
PASSING: Final = frozenset({408, 429, 500, 502, 503, 504, 529})
_log = structlog.get_logger(__name__)


class AnswerPlan(Struct, frozen=True):
    """The plan by which the answer to one attempt gets the format that its client asks for."""

    way: AnswerWay
    schema: dict[str, Any] | None
    """What its text must fit; None: it is not judged."""
    holds: bool
    """True if its text is held until it is judged."""


class Remedy(Struct, frozen=True):
    """A way around one kind of refusal."""

    event: str
    """What the log says when it is used."""
    helps: Callable[[UpstreamError], object]
    """Whether it may help against this refusal."""
    attempt: Callable[[UpstreamError], Awaitable[Attempt | None]]
    """Makes the same request in another form, after this refusal; None if that changes nothing."""
    late: bool = True
    """Whether an upstream may refuse so after it has accepted the request."""


class Attempt(Struct, frozen=True):
    """One request to one upstream."""

    target: Target
    request: UpstreamRequest
    losses: list[Diagnostic]
    """Parts of the client's request that the dialect can't express."""
    remedies: Sequence[Remedy] = ()
    """The remedies. Each leads to an attempt without that remedy, so that a chain of attempts ends. Those
    that are not `late` come first."""
    again: bool = False
    """Whether another attempt was accepted and then refused."""
    images: bool | None = None
    """Whether it has images; None: it has none for another reason than a refusal of them."""
    plan: AnswerPlan | None = None
    """None: its answer is plain text."""
    learn: Callable[[UpstreamError], None] | None = None
    """Called with each refusal of it."""
    refused_fields: frozenset[str] = frozenset()
    """The names of the fields that were refused and have been left out."""

    async def fallback_for(self, error: UpstreamError) -> Attempt | None:
        """The next attempt after this refusal, by the first remedy that changes something, or None."""
        for remedy in self.remedies:
            if remedy.helps(error) and (other := await remedy.attempt(error)) is not None:
                upstream = self.target.upstream
                reason = cleaner(upstream, self.request)(error.message)
                _log.info(remedy.event, upstream=upstream.name, reason=reason)
                return other
        return None

    def refused(self, data: bytes) -> UpstreamError:
        """The refusal that this frame reports instead of an answer."""
        return refused_in_stream(self.target.upstream, self.request, data)


OnAccepted = Callable[[Attempt, UpstreamReply, Sequence[Tried]], None]


def _ignore(_attempt: Attempt, _reply: UpstreamReply, _tried: Sequence[Tried]) -> None:
    return None


class Attempts(Struct, eq=False):
    """Asks the routes of one response until one answers."""

    target: Target
    """The target that accepted; until then the one that is asked first, if it is available."""
    prepare: Callable[[Target], Awaitable[Attempt]] | None
    """Makes the attempt at a target when it is needed; None when none is any more."""
    accepted: OnAccepted
    """Called with the accepted attempt, its reply and what was tried before."""
    observe: Callable[[str, str], None]
    """Called with the upstream and the outcome of each request."""
    choice: RouteChoice
    """That among the routes of the request."""
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    """Returns numbers in [0, 1)."""
    chosen: str = ""
    """The name of the upstream that accepted, "" until then."""
    replaceable: Attempt | None = None
    """The accepted one, whose refusal at the beginning of its reply another request may avoid."""
    was_cut: bool = False
    """True if the reply ended before the answer did."""
    is_asking: bool = False
    """True if an upstream was sent the request and has not refused it: it may be making its answer."""
    opened: AbstractAsyncContextManager[UpstreamReply] | None = None
    """The context of the reply."""

    async def __aenter__(self) -> UpstreamReply:
        """The reply of the first upstream that accepts. If none does, raises the first one's error."""
        try:
            if not self.choice.takes(self.target):
                self.target = await self.choice.first(self.target)
            attempt, reply = await self._first_that_accepts(self.target, [])
            self.observe(attempt.target.upstream.name, "accepted")
            self._accept(attempt, reply)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return reply

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.choice.end(_cut() if error is None and self.was_cut else error)
        opened, self.opened = self.opened, None
        if opened is not None:
            await opened.__aexit__(kind, error, trace)

    async def ask_instead(self, error: UpstreamError) -> UpstreamReply | None:
        """The reply to another request instead of one that was accepted and then refused; None if the refusal
        is the answer. Raises UpstreamError."""
        before, self.replaceable = self.replaceable, None
        if before is None:
            return None
        if before.learn is not None:
            before.learn(error)
        other = await before.fallback_for(error)
        if other is not None:
            await self._close()
            attempt, reply = await self._ask_with_fallbacks(other)
        else:
            self.observe(before.target.upstream.name, str(error.http_status))
            target = await self.choice.after(before.target, error)
            if target is None:
                return None
            await self._close()
            attempt, reply = await self._first_that_accepts(target, [error])
            self.observe(attempt.target.upstream.name, "accepted")
        self._accept(replace(attempt, again=True), reply)
        return reply

    def commit(self) -> None:
        """The answer has begun: drop what is left to ask, so that the request's body can be freed."""
        self.replaceable, self.prepare, self.accepted = None, None, _ignore
        self.choice.begin(self.target)

    async def _close(self) -> None:
        opened, self.opened = self.opened, None
        if opened is not None:
            await opened.__aexit__(None, None, None)

    def _accept(self, accepted: Attempt, reply: UpstreamReply) -> None:
        """Keep the accepted attempt as long as another one may be made instead of it."""
        target = self.target = accepted.target
        self.chosen = target.upstream.name
        choice = self.choice
        self.accepted(accepted, reply, choice.tried)
        has_other = not choice.is_single and choice.has_other(target)
        if has_other or (accepted.remedies and accepted.remedies[-1].late):
            self.replaceable = accepted
        else:
            self.replaceable, self.prepare, self.accepted = None, None, _ignore

    async def _first_that_accepts(
        self, target: Target | None, errors: list[UpstreamError]
    ) -> tuple[Attempt, UpstreamReply]:
        assert self.prepare is not None
        while target is not None:
            try:
                return await self._ask_with_fallbacks(await self.prepare(target))
            except UpstreamError as error:
                errors.append(error)
                target = await self.choice.after(target, error)
            except BridgeError as error:
                # a fallback that can't express the request does not replace the first error
                if not errors:
                    raise
                _log.warning("upstream.fallback_unfit", reason=error.message)
                target = await self.choice.after_unfit(target)
        first = errors[0]
        first.headers = {**first.headers, **tried_header(self.choice.tried)}
        raise first

    async def _ask_with_fallbacks(self, attempt: Attempt) -> tuple[Attempt, UpstreamReply]:
        """Make the attempt, then those that its remedies lead to. Each is retried, unless another key of the
        upstream may do."""
        previous = 0
        while True:
            upstream: Upstream = attempt.target.upstream
            retries = attempt.target.retries
            try:
                opening = upstream.open(attempt.request)
                self.is_asking = True
                reply = await opening.__aenter__()
                self.opened = opening
                return attempt, reply
            except UpstreamError as error:
                self.is_asking = False
                self._record_refusal(attempt, error)
                other = await attempt.fallback_for(error)
                if other is not None:  # before it is asked again: the same request is refused again
                    attempt, previous = other, 0
                    continue
                wait = waiting_time(error, previous, retries, self.jitter())
                if wait is None or previous == retries.times:
                    raise
                if self.choice.has_other_key(attempt.target, error):
                    raise
            previous += 1
            await self.wait(wait)

    def _record_refusal(self, attempt: Attempt, error: UpstreamError) -> None:
        upstream = attempt.target.upstream
        if attempt.learn is not None:
            attempt.learn(error)
        self.observe(upstream.name, str(error.http_status))
        details = {"said": error.said} if error.said else {}
        _log.info(
            "upstream.refused", upstream=upstream.name, status=error.http_status, code=error.code, **details
        )


def _cut() -> UpstreamError:
    """Return the error for a reply that ended before its answer."""
    return UpstreamError(
        502, "the stream was cut", code=UpstreamError.DISCONNECTED, facts=FailureFacts(failover="5xx")
    )


def waiting_time(error: UpstreamError, previous: int, retries: Retries, jitter: float) -> float | None:
    """Return the seconds to wait after `previous` + 1 attempts; None if a retry is useless: the error is
    permanent, the time is used up, or the upstream demands a longer wait than allowed."""
    if error.http_status not in PASSING or error.code == UpstreamError.TIMEOUT or error.permanent:
        return None
    retry_after = seconds_of(error.headers.get("retry-after"))
    wait = retries.first_wait * 2**previous * (0.5 + jitter / 2) if retry_after is None else retry_after
    return wait if retry_after is None or retry_after <= retries.longest_wait else None
