"""Retries and failover: a busy upstream is asked again, another route if one fails, until one answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.dialects.base import AnswerWay
from openresponses_bridge.errors import BridgeError, InvalidRequestError, WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.sse import Frame, SSEDecoder
from openresponses_server.errors import UpstreamError, unreadable
from openresponses_server.limits.requests import check_json
from openresponses_server.settings import Limits, Retries
from openresponses_server.upstreams.base import Upstream, UpstreamReply, UpstreamRequest
from openresponses_server.upstreams.refusals import cleaner, refused_by, seconds_of, status_in_band
from openresponses_server.upstreams.routes import RouteChoice, RouteTable, Tried, tried_header
from openresponses_server.upstreams.targets import Target

_PREAMBLE: Final = frozenset(
    {"response.created", "response.queued", "response.in_progress", "message_start", "keepalive", "ping"}
)
_MOST_FRAMES: Final = 100  # of a preamble
_FRAME_LIMITS: Final = Limits(depth=200, json_values=2_000_000)
"""Of the JSON in a frame: what is nested deeper can't be handled everywhere, and the objects of many values
take far more memory than their text."""
SHALLOW: Final = 2 * _FRAME_LIMITS.depth
"""The bytes of a frame that can't be nested deeper than that, and has few values."""
_MOST_ELEMENTS: Final = 5_000
"""Objects in the arrays of a frame, which is translated at once: each may be an item or a part of one, with
several events (0.1 ms)."""
_PASSED_ON: Final = frozenset({"args", "arguments", "input", "logprobs", "logprobsResult", "tools"})
"""Fields whose values are not looked into, or cost little for each element."""
_REFUSED: Final = 400  # the status of an error in a stream
_FRAME_END: Final = b"\n\n"  # a stream with other line ends is read at once


def check_frame(data: bytes) -> None:
    """Raises UpstreamError if a frame's JSON is nested too deeply, or has too many values or elements. For
    frames of more than `SHALLOW` bytes."""
    try:
        check_json(data, _FRAME_LIMITS)
    except InvalidRequestError as error:
        raise unreadable(error.message) from error
    if data.count(b"{") > _MOST_ELEMENTS and _elements_in(data) > _MOST_ELEMENTS:
        raise unreadable(f"An event has more than {_MOST_ELEMENTS} objects in arrays.")


def _elements_in(data: bytes) -> int:
    """The objects in arrays of a frame, without those in `_PASSED_ON`; 0 for what is not JSON."""
    try:
        left = [decode_json(data)]
    except WireError:
        return 0
    elements = 0
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += [each for name, each in value.items() if name not in _PASSED_ON]
        elif isinstance(value, list):
            elements += sum(isinstance(each, dict) for each in value)
            left += value
    return elements


class Preamble:
    """Buffers the beginning of a stream. An upstream may accept a request and then send an error as the first
    event; until the answer begins, the request can still be sent elsewhere. `attempt` is the accepted one."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._frames = SSEDecoder()
        self._seen = 0
        self.over = False
        """Whether the answer has begun."""

    def refusal(self, data: bytes) -> UpstreamError | None:
        """The refusal in these bytes; None if there is none, or not yet. b"" is the end."""
        for frame in self._read(data) if data else self._frames.close():
            self._seen += 1
            try:
                if len(frame.data) > SHALLOW:
                    check_frame(frame.data)
                value = decode_json(frame.data)
            except (WireError, UpstreamError):
                value = None
            fields = value if isinstance(value, dict) else {}
            if not _is_preamble(frame, fields) or self._seen > _MOST_FRAMES:
                self.over = True
                error = _error_in(fields)
                return None if error is None else self._attempt.refused(error)
        return None

    def _read(self, data: bytes) -> Iterator[Frame]:
        """The frames in these bytes, the first one before the others are looked for: mostly it is enough."""
        end = data.find(_FRAME_END) + len(_FRAME_END)
        if len(_FRAME_END) <= end < len(data):
            yield from self._frames.feed(data[:end])
            data = data[end:]
        yield from self._frames.feed(data)


def _error_in(value: dict[str, Any]) -> dict[str, Any] | None:
    """The error that this frame reports, in the format of any dialect; None if it is another frame."""
    response = value.get("response")
    holder: dict[str, Any] = response if isinstance(response, dict) else value
    error = holder.get("error")
    if isinstance(error, dict):
        return error
    if value.get("type") != "error":
        return None
    return {name: value[name] for name in ("code", "message", "param") if name in value}


def _is_preamble(frame: Frame, fields: dict[str, Any]) -> bool:
    kind = fields.get("type") or frame.event
    if not frame.data.strip() or (isinstance(kind, str) and (kind in _PREAMBLE or ":" in kind)):
        return True
    choices = fields.get("choices")
    return isinstance(choices, list) and "error" not in fields and all(map(_is_empty, choices))


def _is_empty(choice: Any) -> bool:
    """Whether a choice of a chunk of Chat Completions has nothing of an answer."""
    delta = choice.get("delta") if isinstance(choice, dict) else None
    if not isinstance(delta, dict) or choice.get("finish_reason") is not None:
        return False
    return not any(map(delta.get, delta.keys() - {"role"}))


# refusals that a retry may avoid
PASSING: Final = frozenset({408, 429, 500, 502, 503, 504, 529})
_log = structlog.get_logger(__name__)


class AnswerPlan(Struct, frozen=True):
    """How the answer to one attempt gets the format that its client asks for."""

    way: AnswerWay
    schema: dict[str, Any] | None
    """What its text has to fit; None: it is not judged."""
    holds: bool
    """Keep its text until it is judged."""


class Remedy(Struct, frozen=True):
    """A way around one kind of refusal."""

    event: str
    """What the log says when it is used."""
    helps: Callable[[UpstreamError], object]
    """Whether it helps against this refusal."""
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
    """Each leads to an attempt without it, so that a chain of attempts ends. Those that are not `late` come
    first."""
    again: bool = False
    """Whether another attempt was accepted and then refused."""
    images: bool | None = None
    """Whether it has images; None: it has none for another reason than a refusal of them."""
    plan: AnswerPlan | None = None
    """None: its answer is plain text."""

    async def fallback_for(self, error: UpstreamError) -> Attempt | None:
        """The next attempt after this refusal, or None."""
        for remedy in self.remedies:
            if remedy.helps(error):
                upstream = self.target.upstream
                reason = cleaner(upstream, self.request)(error.message)
                _log.info(remedy.event, upstream=upstream.name, reason=reason)
                return await remedy.attempt(error)
        return None

    def refused(self, error: Mapping[str, Any]) -> UpstreamError:
        """The refusal that these fields report in the place of an answer."""
        status = status_in_band(error) or _REFUSED
        return refused_by(self.target.upstream, self.request, status, {}, encode({"error": error}))


OnAccepted = Callable[[Attempt, UpstreamReply, Sequence[Tried]], None]


def _ignore(_attempt: Attempt, _reply: UpstreamReply, _tried: Sequence[Tried]) -> None:
    return None


class Attempts:
    """Asks the routes of one response until one answers.

    `prepare` makes the attempt at a target when it is needed; `target` is asked first, if it is in.
    `accepted` is called with the accepted attempt, its reply and what was tried before, `observe` with the
    upstream and the outcome of each request. `choice` is that among the routes of the request; without it the
    `target` is asked as long as nothing has failed, then its fallbacks. `jitter` returns numbers in [0, 1).
    """

    def __init__(
        self,
        target: Target,
        prepare: Callable[[Target], Awaitable[Attempt]],
        accepted: OnAccepted,
        observe: Callable[[str, str], None],
        table: RouteTable,
        choice: RouteChoice | None = None,
        *,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.target = target
        """The target that accepted; until then, the one that is asked first."""
        self._prepare: Callable[[Target], Awaitable[Attempt]] | None = prepare
        self._accepted = accepted
        self._observe = observe
        self._table = table
        self.choice = choice
        """That among its routes; None as long as the first one has not failed."""
        self.chosen = ""
        """The name of the upstream that accepted, "" until then."""
        self._wait = wait
        self._jitter = jitter
        self._open: AbstractAsyncContextManager[UpstreamReply] | None = None
        self.replaceable: Attempt | None = None
        """The accepted one, whose refusal at the beginning of its reply another request may avoid."""
        self.was_cut = False
        """The reply ended before the answer did."""
        self.is_asking = False
        """An upstream was sent the request and has not refused it: it may be making its answer."""

    async def __aenter__(self) -> UpstreamReply:
        """The reply of the first upstream that accepts. If none does, raises the first one's error."""
        routes, name = self._table.routes, self.target.candidate.route.upstream
        if self.choice is None and routes.conditions and self.target.fallbacks:
            self.choice = self._table.choice((self.target, *self.target.fallbacks))
        try:
            if self.choice is None:
                routes.busy[name] = routes.busy.get(name, 0) + 1
            elif not self.choice.takes(self.target):
                self.target = await self._first_target(self.choice)
            attempt, reply = await self._first_that_accepts(self.target, [])
            self._observe(attempt.target.upstream.name, "accepted")
            self._accept(attempt, reply)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return reply

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.choice is None:
            self._table.routes.busy[self.target.candidate.route.upstream] -= 1
        else:
            self.choice.end(_cut() if error is None and self.was_cut else error)
        opened, self._open = self._open, None
        if opened is not None:
            await opened.__aexit__(kind, error, trace)

    async def ask_instead(self, error: UpstreamError) -> UpstreamReply | None:
        """The reply to another request instead of one that was accepted and then refused; None if the refusal
        is the answer. Raises UpstreamError."""
        before, self.replaceable = self.replaceable, None
        if before is None:
            return None
        other = await before.fallback_for(error)
        if other is not None:
            await self._close()
            attempt, reply = await self._ask_with_fallbacks(other)
        else:
            self._observe(before.target.upstream.name, str(error.http_status))
            target = await self._after(before.target, error)
            if target is None:
                return None
            await self._close()
            attempt, reply = await self._first_that_accepts(target, [error])
            self._observe(attempt.target.upstream.name, "accepted")
        self._accept(replace(attempt, again=True), reply)
        return reply

    def commit(self) -> None:
        """The answer has begun: drop what is left to ask, so that the request's body can be freed."""
        self.replaceable, self._prepare, self._accepted = None, None, _ignore
        choice = self.choice
        if choice is None and self._table.routes.conditions:
            choice = self._made_choice()
        if choice is not None:
            choice.begin(self.target)

    async def _close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened.__aexit__(None, None, None)

    def _accept(self, accepted: Attempt, reply: UpstreamReply) -> None:
        """This attempt was accepted: keep it as long as another one may be made instead of it."""
        target = self.target = accepted.target
        self.chosen = target.upstream.name
        self._accepted(accepted, reply, () if self.choice is None else self.choice.tried)
        has_other = bool(target.fallbacks) if self.choice is None else self.choice.has_other(target)
        if has_other or (accepted.remedies and accepted.remedies[-1].late):
            self.replaceable = accepted
        else:
            self.replaceable, self._prepare, self._accepted = None, None, _ignore

    async def _first_target(self, choice: RouteChoice) -> Target:
        """The target to ask first. If all are limited it waits for one as it would for a retry."""
        retries = self.target.retries
        previous = 0
        while True:
            try:
                return await choice.first(self.target)
            except UpstreamError as error:
                wait = waiting_time(error, previous, retries, self._jitter())
                if wait is None or previous == retries.times:
                    raise
            previous += 1
            await self._wait(wait)

    async def _first_that_accepts(
        self, target: Target | None, errors: list[UpstreamError]
    ) -> tuple[Attempt, UpstreamReply]:
        assert self._prepare is not None
        while target is not None:
            try:
                return await self._ask_with_fallbacks(await self._prepare(target))
            except UpstreamError as error:
                errors.append(error)
                target = await self._after(target, error)
            except BridgeError as error:
                # a fallback that can't express the request does not replace the first error
                if not errors:
                    raise
                _log.warning("upstream.fallback_unfit", reason=error.message)
                target = None if self.choice is None else await self.choice.after_unfit(target)
        first = errors[0]
        first.headers = {
            **first.headers,
            **tried_header(self.choice.tried if self.choice is not None else []),
        }
        raise first

    async def _after(self, target: Target, error: UpstreamError) -> Target | None:
        """The target to ask after this refusal; None if that is the answer."""
        return await self._made_choice().after(target, error)

    def _made_choice(self) -> RouteChoice:
        """The choice, which is made for a request that has asked its first route when it is needed."""
        if self.choice is None:
            self.choice = self._table.choice((self.target, *self.target.fallbacks), self.target)
        return self.choice

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
                self._open = opening
                return attempt, reply
            except UpstreamError as error:
                self.is_asking = False
                self._record_refusal(upstream, error)
                other = await attempt.fallback_for(error)
                if other is not None:  # before it is asked again: the same request is refused again
                    attempt, previous = other, 0
                    continue
                wait = waiting_time(error, previous, retries, self._jitter())
                if wait is None or previous == retries.times:
                    raise
                if self.choice is not None and self.choice.has_other_key(attempt.target, error):
                    raise
            previous += 1
            await self._wait(wait)

    def _record_refusal(self, upstream: Upstream, error: UpstreamError) -> None:
        self._observe(upstream.name, str(error.http_status))
        said = {"said": error.said} if error.said else {}
        _log.info(
            "upstream.refused", upstream=upstream.name, status=error.http_status, code=error.code, **said
        )


def _cut() -> UpstreamError:
    """What ended a reply that ended before its answer."""
    return UpstreamError(502, "the stream was cut", code=UpstreamError.DISCONNECTED, failover="5xx")


def waiting_time(error: UpstreamError, previous: int, retries: Retries, jitter: float) -> float | None:
    """Seconds to wait after `previous` + 1 attempts; None if a retry is useless: the error is permanent, the
    time is used up, or the upstream demands a longer wait than allowed."""
    if error.http_status not in PASSING or error.code == UpstreamError.TIMEOUT or error.permanent:
        return None
    asked = seconds_of(error.headers.get("retry-after"))
    wait = retries.first_wait * 2**previous * (0.5 + jitter / 2) if asked is None else asked
    return wait if asked is None or asked <= retries.longest_wait else None
