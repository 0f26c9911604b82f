"""Reads an upstream's answer to its end: translates it, sends it on, and has it judged if it must fit a
schema."""

from __future__ import annotations

from openresponses_bridge.protocol.events import Event
from openresponses_server.errors import UpstreamError
from openresponses_server.runs.client_stream import ClientStream, SuspendedCoroutine
from openresponses_server.runs.outcome import Outcome
from openresponses_server.runs.schema_workers import Question, SchemaJudge
from openresponses_server.runs.translation import Translation
from openresponses_server.upstreams.base import Resume, UpstreamReply
from openresponses_server.upstreams.whole_answers import WholeReply


class ReplyReader:
    """Reads the answer for one response. The events of each read are sent before the next read, so that a
    slow client slows its own upstream and nothing else (law S4)."""

    __slots__ = (
        "_client_stream",
        "_judge",
        "_outcome",
        "_owner",
        "_pending",
        "_resume_reading",
        "_timing",
        "_translation",
        "_unread",
        "last",
        "waiting",
    )

    def __init__(
        self,
        translation: Translation,
        client_stream: ClientStream,
        judge: SchemaJudge,
        outcome: Outcome,
        owner: str,
    ) -> None:
        self._translation = translation
        self._client_stream = client_stream
        self._judge = judge
        self._outcome = outcome
        self._timing = outcome.timing
        self._owner = owner
        self.waiting = False
        """The run waits for the upstream or the judge."""
        self.last: list[Event] | None = None
        """The last events, if they came in a callback, until `read_to_end` returns them."""
        self._pending: SuspendedCoroutine | None = None
        self._resume_reading: Resume | None = None
        self._unread = b""

    async def read_to_end(self, reply: UpstreamReply) -> list[Event]:
        """The last events of the response, which have not been sent yet. Raises UpstreamError for an empty
        stream."""
        translation = self._translation
        data = await self._read(reply)
        if not data:
            raise UpstreamError(
                502,
                "the upstream answered with an empty stream",
                code=UpstreamError.INVALID_RESPONSE,
                cause="its stream was empty",
            )
        self._outcome.first_bytes_received()
        timing = self._timing = self._outcome.timing
        while data:
            events = translation.feed(data)
            timing.read(events)
            if translation.is_complete:
                break
            if isinstance(reply, WholeReply) and reply.is_read:
                events += translation.end()
                break
            if events:
                await self._send(events)
            data, last = await self._read_next(reply)
            if last is not None:
                events = last
                break
        else:
            events = translation.end()
        return (
            events if translation.question is None else await self._judge_output(events, translation.question)
        )

    async def _judge_output(self, events: list[Event], question: Question) -> list[Event]:
        """Send these events and have the output judged; returns the last events."""
        if events:
            await self._send(events)
        self.waiting = True
        try:
            return self._translation.settle(await self._judge.objection(question, self._owner))
        finally:
            self.waiting = False

    async def _send(self, events: list[Event]) -> None:
        if (pending := self._client_stream.send(events)) is not None:
            await pending

    async def _read(self, reply: UpstreamReply) -> bytes:
        self.waiting = True
        try:
            return await reply.read()
        finally:
            self.waiting = False

    async def _read_next(self, reply: UpstreamReply) -> tuple[bytes, list[Event] | None]:
        """The next bytes that were not handled in the callback, and the last events if they were."""
        while True:
            self.waiting = True
            try:
                data = await reply.read(self._data_received)
            except BaseException:
                self._drop_pending()
                raise
            finally:
                self.waiting = False
            if self.last is not None:
                return b"", self.last
            if self._pending is None:
                held, self._unread = self._unread, b""
                return data or held, None
            pending, self._pending = self._pending, None
            await self._client_stream.drain(pending)

    def _drop_pending(self) -> None:
        """The read was interrupted: what is still unsent is sent with the end."""
        self._resume_reading = None
        if self._pending is not None:
            self._pending.close()
            self._pending = None

    def _data_received(self, data: bytes, resume: Resume) -> bool | None:
        """Send the events of these bytes in the callback in which they arrived, if that needs to wait for
        nothing but the event log. Returns whether more bytes may be given here; None: `resume` is called with
        that."""
        client_stream = self._client_stream
        if not client_stream.can_send_now:
            self._unread = data
            return False
        translation = self._translation
        events = translation.feed(data)
        self._timing.read(events)
        if translation.is_complete:
            self.last = events
            return False
        if events:
            if (pending := client_stream.send(events, self._on_sent)) is not None:
                self._pending = pending
                return False
            if client_stream.waits_for_log:
                self._resume_reading = resume
                return None
        return True

    def _on_sent(self, pending: SuspendedCoroutine | None) -> None:
        """The batch that waited for the event log is sent, or `pending` is what to await."""
        resume, self._resume_reading = self._resume_reading, None
        if resume is not None:
            self._pending = pending
            resume(pending is None)
        elif pending is not None:
            pending.close()  # the read was interrupted meanwhile
