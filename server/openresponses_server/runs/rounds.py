"""The rounds of one response: a model's answer, the calls in it that the server runs, the next answer.

`hosted_stream.py` keeps back those calls and the end of an answer, `calls.py` runs the calls, `answers.py`
records the answers; this module decides what is asked next. The run's `Pipeline` sends the events of all
that.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol

from openresponses_bridge.protocol.events import Event
from openresponses_server.hosted.base import HostedCall
from openresponses_server.runs.answers import AnswerLog
from openresponses_server.runs.calls import CalledTools, CallRunner
from openresponses_server.runs.hosted_stream import CallsToRun, Condensed, HostedStream
from openresponses_server.upstreams.routing.attempts import Attempts

Ask = Callable[[Sequence[Any], bool], Attempts]
"""The attempts for the next answer: the items that follow the request's own, and whether it is the last, in
which the model may call no hosted tool."""

COMPACTING: Final = "response.compaction.compacting"


class Compaction(Protocol):
    """Compacts the conversation of one request, once."""

    async def attempts(self, items: Sequence[Any]) -> Attempts | None:
        """Return the attempts for a summary of the request's conversation followed by these items; None while
        no summary is due."""
        ...

    async def accept(self, summary: str) -> Mapping[str, Any]:
        """Return the item of the compaction. In the request the summary now replaces what it summarises.
        Raises InvalidRequestError."""
        ...

    def fail(self, why: str) -> None:
        """Abandon the summary: the request is not changed."""
        ...


class Rounds:
    """Asks for the next answer when the calls in one have run; and, with `may_correct`, once for another
    answer instead of one that does not fit its format.

    `released` are approved calls, which run first, by the names that the model is shown. `compaction` comes
    before the first answer for which it is due.
    """

    def __init__(
        self,
        stream: HostedStream,
        calls: CallRunner,
        answers: AnswerLog,
        ask: Ask,
        *,
        released: Sequence[HostedCall] = (),
        compaction: Compaction | None = None,
        may_correct: bool = True,
    ) -> None:
        self._stream = stream
        self._calls = calls
        self._answers = answers
        self._ask = ask
        self.released = CallsToRun(list(released)) if released else None
        """Calls that run before the model is asked."""
        self._compaction = compaction
        self._may_correct = may_correct
        self._asked = 1  # answers
        self._is_last = False
        self.next: Attempts | None = None
        """The attempts for the next answer, when the calls have run; None: the response ends."""
        self._waiting: Attempts | None = None  # until there is a summary
        self.is_compacting = False
        """The next answer is a summary, without which the response can go on."""

    async def before(self, attempts: Attempts) -> Attempts:
        """Return what is asked first: a summary if one is due, else these attempts."""
        summary = None if self._compaction is None else await self._compaction.attempts(self._answers.items)
        if summary is None:
            return attempts
        self._waiting, self.is_compacting = attempts, True
        return summary

    async def go_on(self, condensed: Condensed) -> AsyncGenerator[list[Event], None]:
        """Continue after a compaction, with or without the summary; return its events."""
        stream, compaction = self._stream, self._compaction
        assert compaction is not None
        self._compaction, self.is_compacting = None, False
        self._answers.end_summary(condensed.summary)
        stream.next_answer()
        self.next = self._waiting
        if not condensed.summary:
            compaction.fail(condensed.why)
            return
        item = await compaction.accept(condensed.summary)
        events, item_id = stream.announce_item({**item, "encrypted_content": ""})
        events += stream.item_event(item_id, COMPACTING, {})
        yield events + stream.complete_item(item)
        self._answers.condense(stream.snapshot.output)
        if self._asked > 1:
            self.next = self._ask([], self._is_last)

    async def answer(self, batch: CallsToRun) -> AsyncGenerator[list[Event], None]:
        """Run the calls; gives the events of each step, which are stored and sent before the next one."""
        self.next = None
        stream, answers, called = self._stream, self._answers, CalledTools()
        if events := stream.block_done():
            yield events
        async with aclosing(self._calls.run(batch.calls, called, may_run=not self._is_last)) as steps:
            async for events in steps:
                yield events
        has_others = answers.add(stream.snapshot.output, called.outputs)
        if called.waits_for_user or has_others or self._is_last:
            return
        if batch is self.released:
            answers.add_calls_before()
        else:
            answers.end()
        self._asked += 1
        self._is_last = self._calls.left <= 0 or self._asked >= self._calls.limits.rounds
        stream.next_answer()
        self.next = await self.before(self._ask(answers.items, self._is_last))

    async def correct(self, objection: str) -> Attempts | None:
        """Return the attempts for another answer instead of the last one; None if that one is final."""
        correction = self._stream.corrected(objection) if self._may_correct else None
        if correction is None:
            return None
        self._may_correct = False
        self._answers.add(self._stream.snapshot.output)
        self._answers.end_unfit(correction)
        self._asked += 1
        self._stream.next_answer()
        return await self.before(self._ask(self._answers.items, self._is_last))
