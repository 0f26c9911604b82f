"""The rounds of one response: a model's answer, the calls in it that the server runs, the next answer.

`HostedStream` keeps those calls and the end of an answer back from the machine, so that one response spans
all answers. `Rounds` runs the calls and asks again; the run's `Pipeline` passes on what happens meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import structlog
from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.emitter.arguments import usage_of
from openresponses_bridge.emitter.citing import FoundPages
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.emitter.stopping import STOP_SEQUENCE
from openresponses_bridge.emitter.stream import HoldingFilter, ResponseStream
from openresponses_bridge.emitter.tool_call import is_another
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import LogProb
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.hosted import OUTPUT, PROGRESS_EVENTS, kind_of
from openresponses_bridge.protocol.ids import prefix_of
from openresponses_bridge.protocol.input_items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    MessageParam,
)
from openresponses_bridge.protocol.items import FunctionCall, Item, MessagePhase
from openresponses_bridge.protocol.unknown import Extra
from openresponses_bridge.protocol.usage import Usage, latest, sum_of
from openresponses_bridge.random_ids import random_id
from openresponses_server.hosted.base import (
    HostedCall,
    HostedResult,
    HostedTool,
    HostedToolError,
    bounded,
)
from openresponses_server.runs.schema_workers import SchemaCheck
from openresponses_server.settings import HostedLimits
from openresponses_server.store.endings import lost
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.upstreams.attempts import Attempts

_MOST_ARGUMENTS: Final = 1_000_000  # characters of a call; what follows is dropped, so that it is malformed
_log = structlog.get_logger(__name__)


class HostedNames(Struct, frozen=True):
    """The functions of hosted tools that one request shows the model."""

    tools: Mapping[str, tuple[HostedTool, str]]
    """The name that the model is shown → the tool, and the name that the tool itself has for it."""
    identities: ToolIdentityMap
    excluded: frozenset[str] = frozenset()
    """Those of them that the request leaves out: they run if they were approved, and are else not called."""

    def find(self, upstream_name: str) -> str | None:
        """The shown name of the function that the model calls by this name; None for a client's."""
        identity = self.identities.resolve(upstream_name)
        if identity is not None:
            ours = identity.kind is ToolKind.FUNCTION and identity.namespace is None
            return identity.name if ours and self._is_called(identity.name) else None
        return upstream_name if self._is_called(upstream_name) else None

    def _is_called(self, name: str) -> bool:
        return name in self.tools and name not in self.excluded


class CallsToRun(NamedTuple):
    """The calls of hosted tools in one answer, by the names that the model was shown."""

    calls: list[HostedCall]


class Condensed(NamedTuple):
    """The summary of a conversation, or why there is none: one of the two is empty."""

    summary: str
    why: str = ""


Unsettled = SchemaCheck | CallsToRun | Condensed
"""What has to be judged, run or continued before a response can end."""


class EndHolder(Protocol):
    """Keeps back the end of the output while there is a `question`, until `settle` is called, with the
    judge's objection or None, and returns the last events."""

    @property
    def question(self) -> Unsettled | None: ...

    def settle(self, objection: str | None) -> list[Event]: ...


class AnswerHolder(EndHolder, Protocol):
    """Holds an answer to its format."""

    def corrected(self, objection: str) -> list[Any] | None:
        """The items that ask for another answer in the place of this one, which has met this objection; None
        if this one is final."""
        ...

    def next_answer(self) -> None:
        """Another answer follows."""
        ...


class _KeptCall(Struct):
    """A call at an upstream's index. `name` is that of a hosted function, None for a client's call or until
    the name has come."""

    id: str
    name: str | None = None
    is_known: bool = False
    done: bool = False
    size: int = 0
    pieces: list[str] = field(default_factory=list)
    waiting: list[dict[str, Any]] = field(default_factory=list)


class HostedStream(HoldingFilter):
    """Keeps back the calls of hosted tools, and the end of an answer that has some: `question` then has the
    calls. `judged` is the filter behind it that may have a question of its own."""

    def __init__(self, stream: ResponseStream, names: HostedNames, judged: AnswerHolder | None) -> None:
        super().__init__(stream)
        self._names = names
        self._judged = judged
        self._calls: dict[int, _KeptCall] = {}
        self._kept: list[_KeptCall] = []  # of hosted tools, in order
        self._asked: CallsToRun | Condensed | None = None
        self._reason: str | None = None
        self._deferred: str | None = None
        self._expected: Callable[[], list[Event]] | None = None
        self._usage: Usage | None = None
        self._opening: Sequence[Mapping[str, Any]] = ()

    @property
    def question(self) -> Unsettled | None:
        if self._asked is not None:
            return self._asked
        return None if self._judged is None else self._judged.question

    def settle(self, objection: str | None) -> list[Event]:
        """End the response: the calls were answered and nothing is asked again, or it was judged."""
        if self._asked is not None:
            self._asked = None
            return super().finish(self._reason)
        return [] if self._judged is None else self._judged.settle(objection)

    def corrected(self, objection: str) -> list[Any] | None:
        """As in `AnswerHolder`."""
        return None if self._judged is None else self._judged.corrected(objection)

    def open_with(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Begin the output with these whole items."""
        self._opening = items

    def condensed(self, found: Condensed, usage: Usage | None) -> None:
        """An answer was the summary of a conversation, or should have been."""
        self._asked, self._usage = found, usage

    @property
    def reported(self) -> Usage | None:
        """The usage of the latest answer, as far as its upstream reported it."""
        return self._usage

    def next_answer(self) -> None:
        """Another answer follows."""
        if self._judged is not None:
            self._judged.next_answer()
        self._asked = None
        self._calls.clear()
        self._expected = None
        self._usage = None

    def start(self) -> list[Event]:
        events = super().start()
        for item in self._opening:
            events += self._whole(item)
        return events

    def _whole(self, item: Mapping[str, Any]) -> list[Event]:
        kind = str(item["type"])
        began = f"response.{kind}.in_progress"
        if began not in PROGRESS_EVENTS:
            return self.run_item(item)[0]
        empty = {name: [] if isinstance(value, list) else value for name, value in item.items()}
        events, item_id = self.announce_item(empty)
        events += super().item_event(item_id, began, {})
        verb = "failed" if item.get("error") else "completed"
        events += super().item_event(item_id, f"response.{kind}.{verb}", {})
        return events + super().item({**item, "id": item_id})

    # What the rounds add to the output; it does not pass through the filters before this one.
    def run_item(self, item: Mapping[str, Any]) -> tuple[list[Event], str]:
        """A whole item of the server's own, which may have an id; its events and its id."""
        item_id = str(item.get("id") or random_id(prefix_of(str(item["type"]))))
        return super().item({**item, "id": item_id}), item_id

    def announce_item(self, item: Mapping[str, Any]) -> tuple[list[Event], str]:
        """An item that `super().item` with its id completes, and that may have one; its events and its id."""
        item_id = str(item.get("id") or random_id(prefix_of(str(item["type"]))))
        return self._stream.item_added({**item, "id": item_id}), item_id

    def complete_item(self, item: Mapping[str, Any]) -> list[Event]:
        """The announced item with this id is done."""
        return super().item(item)

    # What comes from the upstream.
    def tool_call(
        self,
        index: int = 0,
        id: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        type: str = "function",
        namespace: str | None = None,
    ) -> list[Event]:
        self.require("tool_call")
        call = self._calls.get(index)
        if call is None or is_another(call.id, call.done, id or "", name or ""):
            call = self._calls[index] = _KeptCall(id or "")
        call.id = call.id or id or ""
        fragment = {"id": id, "name": name, "arguments": arguments, "type": type, "namespace": namespace}
        if not call.is_known:
            call.waiting.append(fragment)
            if not name:
                return []
            call.is_known = True
            if type == "function" and not namespace:
                call.name = self._names.find(name)
            if call.name is not None:
                self._kept.append(call)
                self._expected = None
            waiting, call.waiting = call.waiting, []
        else:
            waiting = [fragment]
        events: list[Event] = []
        for each in waiting:
            if call.name is None:
                events += self._flush() + super().tool_call(index, **each)
            elif (piece := each["arguments"]) and call.size <= _MOST_ARGUMENTS:
                call.pieces.append(piece)
                call.size += len(piece)
        return events

    def tool_call_done(self, index: int, *, cut: bool = False) -> list[Event]:
        self.require("tool_call_done")
        call = self._calls.get(index)
        if call is None or call.name is None:
            return super().tool_call_done(index, cut=cut)
        call.done = True
        return []

    def item_extra(self, extra: Extra, index: int | None = None) -> list[Event]:
        call = None if index is None else self._calls.get(index)
        return [] if call is not None and call.name is not None else super().item_extra(extra, index)

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        call = _whole_call(item)
        name = None if call is None else self._names.find(call.name)
        if call is None or name is None:
            return self._flush() + super().item(item)
        self.require("item")
        self._expected = None
        self._kept.append(_KeptCall(call.call_id, name, True, True, 0, [call.arguments]))
        return []

    def expect_item(
        self,
        item_id: str,
        phase: MessagePhase | None = None,
        *,
        explicit_end: bool = False,
        extra: Extra = UNSET,
    ) -> list[Event]:
        """What is expected may be a call that is kept back, so that it waits for what comes."""
        self.require("expect_item")
        expect = super().expect_item
        self._expected = partial(expect, item_id, phase, explicit_end=explicit_end, extra=extra)
        return []

    def _flush(self) -> list[Event]:
        expected, self._expected = self._expected, None
        return [] if expected is None else expected()

    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        return self._flush() + super().text(delta, logprobs)

    def annotation(self, annotation: Any) -> list[Event]:
        return self._flush() + super().annotation(annotation)

    def usage(self, usage: Usage | Mapping[str, Any]) -> list[Event]:
        """Within one answer the last report counts; `Rounds.settle` makes the sum over all."""
        self.require("usage")
        self._usage = latest(self._usage, usage_of(usage, self.diagnostics))
        return super().usage(usage)

    def defer_finish(self, reason: str | None) -> list[Event]:
        self._deferred = reason
        return super().defer_finish(reason)

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        """Finish like the machine, unless there are calls to run. Those of an answer that was cut are not
        run."""
        self.require("finish")
        events: list[Event] = []
        for index, call in self._calls.items():
            for each in call.waiting:
                events += super().tool_call(index, **each)
        kept, self._kept = self._kept, []
        cut = incomplete or outcome(reason or self._deferred)[0] is not None
        if not kept or cut or reason == STOP_SEQUENCE:
            return events + super().finish(reason, incomplete=incomplete)
        self._reason = reason
        self._asked = CallsToRun(
            [HostedCall(each.id, each.name or "", "".join(each.pieces)) for each in kept]
        )
        return events


def _whole_call(item: Item | Mapping[str, Any]) -> FunctionCall | None:
    if isinstance(item, FunctionCall):
        return None if item.namespace else item
    if not isinstance(item, Mapping) or item.get("type") != "function_call" or item.get("namespace"):
        return None
    given = [item.get(name) for name in ("call_id", "name", "arguments")]
    if not all(isinstance(each, str) for each in given):
        return None
    call_id, name, arguments = map(str, given)
    return FunctionCall("", call_id, name, arguments, "completed")


Ask = Callable[[Sequence[Any], bool], Attempts]
"""The attempts for the next answer: the items that follow the request's own, and whether it is the last, in
which the model may call no hosted tool."""

Count = Callable[[Usage | None, Sequence[Any], Sequence[Any]], Usage | None]
"""The usage of one answer from what its upstream reported, what it wrote, and the items that its request had
after the first one's. What was not reported is estimated."""

OURS_TO_ANSWER: Final = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "shell_call",
        "local_shell_call",
        "apply_patch_call",
        "tool_search_call",
        "computer_call",
    }
)
"""The types of items that the client answers."""
_BEYOND: Final = "The limit of tool calls is reached: this call was not run. Answer with what is known."
_SPENT: Final = "The day's budget of tool calls is used up: this call was not run. Answer with what is known."


COMPACTING: Final = "response.compaction.compacting"


class Compaction(Protocol):
    """Compacts the conversation of one request, once."""

    async def attempts(self, items: Sequence[Any]) -> Attempts | None:
        """The attempts for a summary of the request's conversation with these items behind it; None as long
        as that is not due."""
        ...

    async def accept(self, summary: str) -> Mapping[str, Any]:
        """The item of the compaction. From now on the request has the summary in the place of what it stands
        for. Raises InvalidRequestError."""
        ...

    def fail(self, why: str) -> None:
        """There is no summary: the request stays as it is."""
        ...


class _Running(NamedTuple):
    call: HostedCall
    tool: HostedTool
    item: dict[str, Any]
    task: asyncio.Task[HostedResult]


class Rounds:
    """Runs the calls of a response's answers and asks for the next one; and once for another answer in the
    place of one that does not fit its format, if `may_correct`. What calls find is added to `pages`;
    `most_calls` is the request's `max_tool_calls`; `spend` counts a call against the budget of its key and
    says whether there was one left; `reserve` counts bytes that are in memory until the response ends, and
    raises HttpError if they are too many; `ended` is called with the usage of each answer that another
    follows; `model` names the upstream's model of the latest answer; `released` are approved calls, which run
    first, by the names that the model is shown.
    `compaction` comes before the first answer for which it is due."""

    def __init__(
        self,
        stream: HostedStream,
        names: HostedNames,
        limits: HostedLimits,
        ask: Ask,
        pages: FoundPages | None,
        *,
        most_calls: int | None = None,
        spend: Callable[[], Awaitable[bool]],
        reserve: Callable[[int], None],
        count: Count,
        model: Callable[[], str],
        ended: Callable[[Usage], None] | None = None,
        released: Sequence[HostedCall] = (),
        compaction: Compaction | None = None,
        may_correct: bool = True,
    ) -> None:
        self._stream = stream
        self._may_correct = may_correct
        self.has_corrected = False
        """Another answer was asked for in the place of one that did not fit."""
        self._names = names
        self._limits = limits
        self._ask = ask
        self._pages = pages
        self._calls_left = limits.calls if most_calls is None else min(limits.calls, most_calls)
        self._spend = spend
        self._reserve = reserve
        self._count = count
        self._model = model
        self._ended = ended
        self.released = CallsToRun(list(released)) if released else None
        """Calls that run before the model is asked."""
        self.usage: list[Usage] = []
        """Of each answer that is over."""
        self._models: list[str] = []  # those of the upstreams that gave these answers
        self._items: list[Any] = []  # since the request
        self._given = 0  # of them, to the answer that is made
        self._seen = 0  # items of the output in them
        self._answers = 1
        self._is_last = False
        self._call_ids: set[str] = set()
        self.persistence: ResponseSessionPersistenceTransformer | None = None
        """Stores the response. Before a call that must not run twice, what was made so far is made durable,
        and what follows is stored as it comes, so that nobody makes the response again."""
        self.next: Attempts | None = None
        """The attempts for the next answer, when the calls have run; None: the response ends."""
        self._compaction = compaction
        self._waiting: Attempts | None = None  # until there is a summary
        self.is_compacting = False
        """The next answer is a summary, without which the response can go on."""

    async def before(self, attempts: Attempts) -> Attempts:
        """What is asked first: for a summary if one is due, else these attempts."""
        found = None if self._compaction is None else await self._compaction.attempts(self._items)
        if found is None:
            return attempts
        self._waiting, self.is_compacting = attempts, True
        return found

    async def go_on(self, condensed: Condensed) -> AsyncGenerator[list[Event], None]:
        """Go on after a compaction, with the summary or without; gives its events."""
        stream, compaction = self._stream, self._compaction
        assert compaction is not None
        self._compaction, self.is_compacting = None, False
        self._end_answer(
            [MessageParam("assistant", condensed.summary)] if condensed.summary else [], self._items
        )
        stream.next_answer()
        self.next = self._waiting
        if not condensed.summary:
            compaction.fail(condensed.why)
            return
        item = await compaction.accept(condensed.summary)
        events, item_id = stream.announce_item({**item, "encrypted_content": ""})
        events += stream.item_event(item_id, COMPACTING, {})
        yield events + stream.complete_item(item)
        self._items.clear()
        self._given = 0
        self._seen = len(stream.snapshot.output)
        if self._answers > 1:
            self.next = self._ask([], self._is_last)

    async def answer(self, asked: CallsToRun) -> AsyncGenerator[list[Event], None]:
        """Run the calls; gives the events of each step, which are stored and sent before the next one."""
        self.next = None
        stream = self._stream
        if events := stream.block_done():
            yield events
        pairs: list[tuple[HostedCall, str]] = []
        running: list[_Running] = []
        waits_for_user = False
        planned: list[tuple[HostedCall, HostedTool, HostedCall]] = []
        for call in asked.calls:
            tool, name = self._names.tools[call.name]
            inner = HostedCall(call.call_id, name, call.arguments, call.approval_id)
            question = None if call.approval_id else tool.approval(inner)
            if question is not None:
                waits_for_user = True
                yield stream.run_item(question)[0]
            elif (refused := await self._refusal()) is not None:
                pairs.append((call, refused))
            else:
                planned.append((call, tool, inner))
        # an approval is used up by its first call, whatever that call does
        once = any(inner.approval_id or not tool.is_repeatable(inner) for _, tool, inner in planned)
        if once and self.persistence is not None:
            self.persistence.show()
        items: list[dict[str, Any]] = []
        for _, tool, inner in planned:
            announced = tool.announce(inner)
            events, item_id = stream.announce_item(announced)
            for kind, fields in tool.progress(inner):
                events += stream.item_event(item_id, kind, fields)
            yield events
            items.append({**announced, "id": item_id})
        if once and self.persistence is not None and not await self.persistence.make_durable():
            raise lost()
        try:
            for (call, tool, inner), item in zip(planned, items, strict=True):
                running.append(_Running(call, tool, item, asyncio.create_task(self._run(tool, inner))))
            for each in running:
                result = await each.task
                if self._pages is not None:
                    self._pages.add(result.pages)
                pairs.append((each.call, result.output))
                events = []
                if (ending := each.tool.ending(result)) is not None:
                    events += stream.item_event(each.item["id"], ending, {})
                yield events + stream.complete_item({**each.item, **result.item})
        finally:
            for each in running:
                each.task.cancel()
            await asyncio.gather(*(each.task for each in running), return_exceptions=True)
        made = self._remember(pairs)
        if waits_for_user or made or self._is_last:
            return
        if asked is self.released:  # of another response
            self._given = len(self._items)
        else:
            self._end_answer(self._written([]), self._items[: self._given])
        self._answers += 1
        self._is_last = self._calls_left <= 0 or self._answers >= self._limits.rounds
        stream.next_answer()
        self.next = await self.before(self._ask(self._items, self._is_last))

    async def correct(self, objection: str) -> Attempts | None:
        """The attempts for another answer in the place of the last one; None if that is final."""
        may = self._may_correct and not self.has_corrected
        asked = self._stream.corrected(objection) if may else None
        if asked is None:
            return None
        self.has_corrected = True
        self._remember([])
        written, given = [*self._written([]), *asked[:-1]], self._items[: self._given]
        self._keep(asked)
        self._end_answer(written, given)
        self._answers += 1
        self._stream.next_answer()
        return await self.before(self._ask(self._items, self._is_last))

    def _written(self, output: Sequence[Any]) -> list[Any]:
        """What the latest answer wrote: in the conversation, and in the output behind that."""
        found = [each for each in self._items[self._given :] if not isinstance(each, FunctionCallOutputParam)]
        return found + [each for each in output[self._seen :] if not kind_of(each)]

    def _end_answer(self, written: Sequence[Any], given: Sequence[Any], *, last: bool = False) -> None:
        """Count the latest answer, unless nothing of it came. `given` are the items that it was asked with,
        after those of the request."""
        self._given = len(self._items)
        if (counted := self._counted(written, given)) is not None:
            self.usage.append(counted)
            self._models.append(self._model())
            if self._ended is not None and not last:
                self._ended(counted)

    def _counted(self, written: Sequence[Any], given: Sequence[Any]) -> Usage | None:
        reported = self._stream.reported
        return None if reported is None and not written else self._count(reported, written, given)

    def settle(self, usage: Usage | None, output: Sequence[Any]) -> Usage | None:
        """The usage that the response ends with, of which its latest answer has reported this."""
        if not self.usage:
            return self._count(usage, output, ())
        self._end_answer(self._written(output), self._items[: self._given], last=True)
        return _sum(self.usage)

    def used(self, output: Sequence[Any]) -> Usage | None:
        """The usage of a response without an end: of its answers, and of what has come of the latest."""
        if not self.usage:
            return self._count(self._stream.reported, output, ())
        latest_one = self._counted(self._written(output), self._items[: self._given])
        return _sum(self.usage if latest_one is None else [*self.usage, latest_one])

    def answered_by(self, usage: Usage) -> list[str]:
        """The upstream's model of each answer that this usage is the sum of; the latest may not be over."""
        number = 1 if usage.rounds is UNSET else len(usage.rounds)
        return [*self._models, self._model()][:number]

    async def _refusal(self) -> str | None:
        """Why another call may not run; None if it may, which counts it."""
        if self._is_last or self._calls_left <= 0:
            return _BEYOND
        self._calls_left -= 1
        return None if await self._spend() else _SPENT

    async def _run(self, tool: HostedTool, call: HostedCall) -> HostedResult:
        """The result, whatever happens; its output is bounded."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                result = await tool.run(call)
        except HostedToolError as error:
            result = failure(error.message)
        except TimeoutError:
            result = failure(f"The tool did not answer within {self._limits.seconds:g} seconds.")
        except Exception:
            _log.exception("hosted.failed", tool=call.name)
            result = failure("The tool failed.")
        output = bounded(result.output, self._limits.result_bytes)
        kept = result.item if "output" in result.item or "error" in result.item else {OUTPUT: output}
        return replace(result, output=output, item={**result.item, **kept})

    def _remember(self, pairs: Sequence[tuple[HostedCall, str]]) -> bool:
        """Add what this answer has brought to the conversation; whether it has calls for the client."""
        output = self._stream.snapshot.output
        new = [item for item in output[self._seen :] if not kind_of(item)]
        self._seen = len(output)
        named = [(self._unique(call.call_id), call, said) for call, said in pairs]
        calls = [FunctionCallParam(call_id, call.name, call.arguments or "{}") for call_id, call, _ in named]
        self._keep([*new, *calls, *(FunctionCallOutputParam(call_id, said) for call_id, _, said in named)])
        return any(item.type in OURS_TO_ANSWER for item in new)

    def _keep(self, items: Sequence[Any]) -> None:
        """Add items to the conversation. Raises HttpError if they are too many to be in memory."""
        self._items += items
        self._reserve(sum(len(encode(each)) for each in items))

    def _unique(self, call_id: str) -> str:
        if not call_id or call_id in self._call_ids:
            call_id = random_id("call")
        self._call_ids.add(call_id)
        return call_id


def _sum(answers: Sequence[Usage]) -> Usage:
    return answers[0] if len(answers) == 1 else sum_of(answers)


def failure(message: str) -> HostedResult:
    """The result of a call that failed."""
    return HostedResult(message, {"status": "failed"}, failed=True)
