"""The answers that one response is made of: what they add to the conversation, and their usage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from openresponses_bridge.calls.answered import is_answered_by_client
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.hosted import kind_of
from openresponses_bridge.protocol.input_items import FunctionCallOutputParam, FunctionCallParam, MessageParam
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.usage import Usage, sum_of
from openresponses_bridge.random_ids import random_id
from openresponses_server.hosted.base import HostedCall

Count = Callable[[Usage | None, Sequence[Any], Sequence[Any]], Usage | None]
"""The usage of one answer: from what its upstream reported, what it wrote, and the items in its request that
were not in the first one. What was not reported is estimated."""


class AnswerLog:
    """The answers of one response so far.

    `count` completes the usage of one answer, `model` names the upstream's model of the latest one. `reserve`
    counts bytes that are in memory until the response ends, and raises HttpError if they are too many.
    """

    def __init__(self, count: Count, model: Callable[[], str], reserve: Callable[[int], None]) -> None:
        self._count = count
        self._model = model
        self._reserve = reserve
        self.ended: Callable[[Usage], None] | None = None
        """Called with the usage of each answer but the last."""
        self.reported: Usage | None = None
        """The usage of the latest answer, as far as its upstream has reported it."""
        self.usage: list[Usage] = []
        """The usage of each answer that has ended."""
        self._models: list[str] = []  # those of the upstreams that gave these answers
        self.items: list[Any] = []
        """What follows the request's own input in the conversation."""
        self._given = 0  # of them, to the answer that is made
        self._seen = 0  # items of the output in them
        self._call_ids: set[str] = set()
        self.is_whole = True
        """True if all output is one answer of one upstream to the request as it was sent."""

    def add(self, output: Sequence[Item], pairs: Sequence[tuple[HostedCall, str]] = ()) -> bool:
        """Add the new items of the response's output to the conversation, then these calls with their
        outputs. Returns whether the new items have calls for the client to answer."""
        new = [item for item in output[self._seen :] if not kind_of(item)]
        self._seen = len(output)
        named = [(self._unique(call.call_id), call, result) for call, result in pairs]
        calls = [FunctionCallParam(call_id, call.name, call.arguments or "{}") for call_id, call, _ in named]
        self._keep(
            [*new, *calls, *(FunctionCallOutputParam(call_id, result) for call_id, _, result in named)]
        )
        return any(map(is_answered_by_client, new))

    def add_calls_before(self) -> None:
        """The items so far come from calls of another response and belong to no answer of this one."""
        self._given = len(self.items)

    def end(self) -> None:
        """Count the latest answer, which another one follows."""
        self._end(self._written(()), self.items[: self._given])

    def end_unfit(self, items: Sequence[Any]) -> None:
        """Count the latest answer, which did not fit its format. `items` are the items that ask for another
        one: the answer itself, then what was wrong with it."""
        written, context = [*self._written(()), *items[:-1]], self.items[: self._given]
        self._keep(items)
        self.is_whole = False
        self._end(written, context)

    def end_summary(self, summary: str) -> None:
        """Count an answer that was the summary of the conversation; "" if none of it was received."""
        self._end([MessageParam("assistant", summary)] if summary else [], self.items)

    def condense(self, output: Sequence[Item]) -> None:
        """The summary stands for all items so far, those of the output among them."""
        self.items.clear()
        self._given, self._seen = 0, len(output)
        self.is_whole = False

    def settle(self, usage: Usage | None, output: Sequence[Any]) -> Usage | None:
        """Return the usage of the whole response. `usage` is what its latest answer has reported."""
        if not self.usage:
            return self._count(usage, output, ())
        self._end(self._written(output), self.items[: self._given], last=True)
        return _sum(self.usage)

    def used(self, output: Sequence[Any]) -> Usage | None:
        """Return the usage of a response that did not reach its end: of its answers, and of what was received
        of the latest."""
        if not self.usage:
            return self._count(self.reported, output, ())
        latest_one = self._counted(self._written(output), self.items[: self._given])
        return _sum(self.usage if latest_one is None else [*self.usage, latest_one])

    def models_of(self, usage: Usage) -> list[str]:
        """Return the upstream's model of each answer that this usage is the sum of; the latest may not be
        over."""
        number = 1 if usage.rounds is UNSET else len(usage.rounds)
        return [*self._models, self._model()][:number]

    def _written(self, output: Sequence[Any]) -> list[Any]:
        """Return what the latest answer wrote: its items in the conversation, and the output after those."""
        items = [each for each in self.items[self._given :] if not isinstance(each, FunctionCallOutputParam)]
        return items + [each for each in output[self._seen :] if not kind_of(each)]

    def _end(self, written: Sequence[Any], context: Sequence[Any], *, last: bool = False) -> None:
        """Count the latest answer, unless none of it was received. `context` are the items that were sent
        after those of the request."""
        self._given = len(self.items)
        if (counted := self._counted(written, context)) is not None:
            self.usage.append(counted)
            self._models.append(self._model())
            if self.ended is not None and not last:
                self.ended(counted)

    def _counted(self, written: Sequence[Any], context: Sequence[Any]) -> Usage | None:
        return None if self.reported is None and not written else self._count(self.reported, written, context)

    def _keep(self, items: Sequence[Any]) -> None:
        self.items += items
        self._reserve(sum(len(encode(each)) for each in items))

    def _unique(self, call_id: str) -> str:
        if not call_id or call_id in self._call_ids:
            call_id = random_id("call")
        self._call_ids.add(call_id)
        return call_id


def _sum(answers: Sequence[Usage]) -> Usage:
    return answers[0] if len(answers) == 1 else sum_of(answers)
