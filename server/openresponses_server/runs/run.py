"""A run: one response being made, from the queue to its end.

What its upstream sends passes a `Pipeline`, whose end the run waits for. A stored response is made in a task
of its own, so that it continues when its client disconnects (law S3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from openresponses_server.errors import HttpError, error_for_codex, shutting_down, too_slow
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.memory import Reservation
from openresponses_server.runs.client import Client, Deliver
from openresponses_server.runs.exchange import Outflow, Translation, Wakeup
from openresponses_server.runs.keeper import Keeper
from openresponses_server.runs.outcome import RunOutcome
from openresponses_server.runs.pipeline import Pipeline
from openresponses_server.runs.rounds import Rounds
from openresponses_server.runs.schema_workers import SchemaJudge
from openresponses_server.settings import Settings
from openresponses_server.store.base import LeaseLost
from openresponses_server.store.endings import lost
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.tasks import expire
from openresponses_server.upstreams.routing.attempts import Attempts


class ActiveRuns:
    """The runs of this process, by the ids of their responses."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[str, Run]] = {}

    def add(self, response_id: str, owner: str, run: Run) -> None:
        """List the run, until it is removed."""
        self._runs[response_id] = owner, run

    def remove(self, response_id: str, run: Run) -> None:
        """Remove a run that has ended, but not another one that makes the response by now."""
        if response_id in self._runs and self._runs[response_id][1] is run:
            del self._runs[response_id]

    def get(self, response_id: str, owner: str) -> Run | None:
        """The run that makes this response; None if none does here for this owner (law S7)."""
        whose, run = self._runs.get(response_id, (owner, None))
        return run if whose == owner else None

    def find(self, response_id: str) -> Run | None:
        """The run that makes this response, whoever its owner is."""
        _, run = self._runs.get(response_id, (None, None))
        return run

    def is_queued(self) -> list[Run]:
        """The background runs that wait for a slot."""
        return [run for _, run in self._runs.values() if run.is_queued]

    def __len__(self) -> int:
        return len(self._runs)


class RunRequest(Struct, frozen=True):
    """A request for one run."""

    owner: str
    translation: Translation
    attempts: Attempts
    outcome: RunOutcome
    reservation: Reservation
    """The memory that it takes, until it ends."""
    persistence: ResponseSessionPersistenceTransformer | None
    """None: it is not stored."""
    background: bool
    """True if the client already has the queued response, so that even a failure is reported by events."""
    personal: bool
    """True if it needs the client's own key, secrets of its tools or fields of its API. These are not stored,
    so that no other worker can make it."""
    for_codex: bool
    """True if SSE comments do not keep its client from timing out; it then reads errors as
    `error_for_codex`."""
    slot_reserved: bool
    """True if the gate's slot is already acquired."""
    previous_attempts: int
    """How many runs came before this one, whose output no client has seen."""
    check: Callable[[], Awaitable[None]]
    """Called after it has waited for a slot; raises HttpError if it may no longer be made."""
    needs_client: bool = False
    """True if it is cancelled when its client disconnects, although it is stored."""
    rounds: Rounds | None = None
    """Runs the calls of hosted tools; None: it has no such tools."""


class RunService(Protocol):
    """The part that all runs of an application share."""

    @property
    def settings(self) -> Settings: ...

    @property
    def gate(self) -> Gate: ...

    @property
    def keeper(self) -> Keeper: ...

    @property
    def judge(self) -> SchemaJudge: ...

    @property
    def running(self) -> ActiveRuns: ...


class Run:
    """One response, ready to be made."""

    def __init__(self, request: RunRequest, service: RunService) -> None:
        self._request = request
        self._service = service
        self.owner = request.owner
        self.translation = request.translation
        self.persistence = request.persistence
        self.personal = request.personal
        self._outcome = request.outcome
        self._background = request.background
        self._needs_client = request.needs_client
        self._total = service.settings.timeouts.total  # seconds for all of it
        self.client = Client(may_leave=request.persistence is not None)
        self._pipeline = Pipeline(
            request.translation,
            Outflow(self.client, request.persistence, Wakeup()),
            service.judge,
            request.outcome,
            request.owner,
            request.rounds,
        )
        self._deadline: asyncio.Timeout | None = None
        self._stopped = False
        self._has_ended = False  # the end is known and, if it is stored, durable
        self._end_event: asyncio.Event | None = None  # created by whoever waits for the end
        self.is_queued = False
        """True if it runs in the background and waits for a slot."""

    async def generate(self, deliver: Deliver | None, *, may_fall_behind: bool = False) -> None:
        """Run to the end and send the events of each read together; without `deliver` nothing is sent before
        the end. When this is cancelled, a stored response goes on without its client, and any other is
        aborted. For `may_fall_behind` see `Client.attach`; when the client is too slow, this returns early
        and `client.is_behind` is set.

        Raises UpstreamError if the upstream fails before anything was sent (law S5), and StoreError if not
        even the beginning can be stored; after that a failure is sent as events.
        """
        if deliver is not None:
            self.client.attach(deliver, may_fall_behind=may_fall_behind)
        elif self.persistence is not None:
            self.persistence.sends_only_at_end = True
        try:
            await (self._run() if self.persistence is None else self.client.wait(self.start()))
        finally:
            self.client.detach()

    def start(self) -> asyncio.Task[None]:
        """Start a task that runs to the end."""
        if self.persistence is not None:
            self._service.keeper.add(self.persistence, self.on_lost)
        if self._background:
            self._service.gate.waiting.acquire(self.owner)
            self.is_queued = True
        self.task = self._service.keeper.start(self._run())
        return self.task

    async def abandon(self) -> None:
        """The client has disconnected, and `generate` was cancelled."""
        if self.persistence is None:
            self.translation.cancel()
        elif self._needs_client:
            self.stop()

    async def cancel(self) -> Response:
        """End the response as cancelled, send that to the client, and wait until it is done."""
        self.stop()
        await self.wait_for_end()
        return self.translation.snapshot

    async def wait_for_end(self) -> None:
        """Wait until the end is known and, if the response is stored, durable."""
        if self._has_ended:
            return
        if self._end_event is None:
            self._end_event = asyncio.Event()
        await self._end_event.wait()

    def refuse(self, error: BridgeError) -> list[Event]:
        """The events of the end of a run whose `generate` raised this error, for a client whose other choices
        go on."""
        events = self.translation.fail(error)
        self._outcome.refused()
        return events

    def stop(self) -> None:
        """Cancel the response without waiting for its end."""
        self._stopped = True
        self._interrupt()

    def on_lost(self) -> None:
        """The record now belongs to another worker: end the response here as failed."""
        self._interrupt()

    def _interrupt(self) -> None:
        if self._deadline is not None:
            expire(self._deadline)

    @property
    def visible_response(self) -> Response | None:
        """The response as it is now; None if the stored one is to be shown instead, because the run has ended
        or none of its output is stored, so that it may be made again."""
        has_shown = self.persistence is not None and self.persistence.seen and not self.translation.ended
        return self.translation.snapshot if has_shown else None

    @property
    def last_persisted(self) -> int | None:
        """The sequence number of the last event that was passed to the store, -1 before the first; None if
        the response is not stored."""
        return None if self.persistence is None else self.persistence.batch.last

    @property
    def draining(self) -> bool:
        """True if the run waits for its client, and not for the upstream, the store or the judge."""
        return self._pipeline.draining

    def send_keepalive(self) -> bool:
        """Send an event to a client that has been sent nothing for a while: the first events, later a
        keep-alive event if the client needs them. Returns whether something was sent; nothing is before the
        status is known (law S6)."""
        return self._pipeline.send_keepalive(as_event=self._request.for_codex)

    async def _run(self) -> None:
        response_id = self.translation.response_id
        try:
            with self._outcome:
                self._service.running.add(response_id, self.owner, self)
                try:
                    last = await self._run_to_end()
                    if last:
                        await self._pipeline.finish(last, self._total, self._on_end)
                except BridgeError:
                    if self.persistence is not None and self.persistence.only_reserves:
                        await self.persistence.withdraw()
                    raise
                finally:
                    self._service.running.remove(response_id, self)
        finally:
            if self.is_queued:
                self._leave_queue()
            self._request.reservation.release()
            if not self._has_ended:
                self._set_ended()
            if self.persistence is not None:
                self._service.keeper.remove(self.persistence, ended=self.translation.ended)

    async def _run_to_end(self) -> list[Event]:
        """The last events, which have not been sent yet. Raises HttpError if the run fails before anything
        was sent."""
        gate = self._service.gate
        try:
            # the time of a queued run begins when it has a slot
            async with asyncio.timeout(None if self._background else self._total) as deadline:
                self._deadline = deadline
                if self._stopped:
                    return self.translation.cancel()
                # A background run waits for a slot instead of being refused.
                is_reserved = self._request.slot_reserved
                async with gate.slot(self.owner, waits=self._background, held=is_reserved):
                    if self.is_queued:
                        self._leave_queue()
                    if deadline.when() is None:  # it was not interrupted
                        deadline.reschedule(asyncio.get_running_loop().time() + self._total)
                    gate.deadlines.add(deadline)
                    try:
                        if self._background:
                            await self._request.check()
                            if not await self._store_beginning():
                                return self.translation.fail(lost())
                        return await self._pipeline.follow(self._request.attempts)
                    finally:
                        gate.deadlines.discard(deadline)
        except TimeoutError:
            return self._pipeline.last or await self._after_timeout()
        except LeaseLost:
            return self.translation.fail(lost())  # unless there is a stored end to send instead
        except HttpError as error:
            return self._failed(error)
        finally:
            self._deadline = None

    async def _store_beginning(self) -> bool:
        """Store that this attempt begins, so that it counts even if it crashes the worker. Returns whether
        the record still belongs to this run. The first attempt has no event yet, because the upstream's
        answer may change what `response.created` shows."""
        persistence = self.persistence
        if persistence is None:
            return True
        if self._request.previous_attempts:
            await self._pipeline.send(self.translation.restart(self._request.previous_attempts))
        else:
            await persistence.begin()
        return not persistence.lost

    def _leave_queue(self) -> None:
        self.is_queued = False
        self._service.gate.waiting.release(self.owner)

    async def _after_timeout(self) -> list[Event]:
        if self._stopped:
            return self.translation.cancel()
        if self._service.gate.cut.is_set() and await self._release_record():
            return []
        if self.persistence is not None and self.persistence.lost:
            return self.translation.fail(lost())  # unless there is a stored end to send instead
        return self._failed(shutting_down() if self._service.gate.cut.is_set() else too_slow(self._total))

    async def _release_record(self) -> bool:
        """Release the response, of which nobody has seen anything, to other workers. Returns whether that was
        possible."""
        return self.persistence is not None and not self.personal and await self.persistence.release()

    def _failed(self, error: HttpError) -> list[Event]:
        if not self._needs_end:
            raise error_for_codex(error) if self._request.for_codex else error
        return self.translation.fail(error)

    @property
    def _needs_end(self) -> bool:
        """Something of the response was sent or stored, so that its end is sent or stored too."""
        persistence = self.persistence
        is_held = persistence is not None and persistence.held and not persistence.only_reserves
        return self.client.has_sent or self._background or is_held

    def _on_end(self, instead: Event | None) -> None:
        if instead is not None:
            self._replace_end(instead)
        self._set_ended()

    def _set_ended(self) -> None:
        self._has_ended = True
        if self._end_event is not None:
            self._end_event.set()

    def _replace_end(self, last: Event) -> None:
        """Send this end instead. Raises HttpError if it is a failure and nothing was sent yet."""
        self.translation.replace_end(last)
        may_raise = self._is_unseen or not self._needs_end
        if may_raise and self.translation.failure is not None:
            raise self.translation.failure

    @property
    def _is_unseen(self) -> bool:
        """Nothing of it was sent or stored, however much was made."""
        return (
            self.persistence is not None and self.persistence.sends_only_at_end and not self.persistence.held
        )
