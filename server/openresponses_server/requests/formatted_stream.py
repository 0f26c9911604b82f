"""Checks an answer against its format: a completed one fits the schema, and one that does not fit can be
asked for once more.

The filter is between the inbound and the filters of other constraints. Text that another answer may replace
is held. Text that was sent can't be taken back, so an answer that was streamed and does not fit fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Final, NamedTuple

from openresponses_bridge.calls.answered import CLIENT_ANSWERS
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.base import AnswerWay
from openresponses_bridge.emitter.failures import Failure, outcome
from openresponses_bridge.emitter.held_calls import CallHoldingFilter, HeldCall
from openresponses_bridge.emitter.stream import CallFragment, ItemHoldingFilter, ResponseStream
from openresponses_bridge.protocol.content import Annotation, LogProb, OutputTextContent
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_bridge.protocol.items import Item, Message
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.unknown import Extra
from openresponses_server.errors import UpstreamError
from openresponses_server.requests.answer_format import ANSWER, FenceFilter, correction, json_in
from openresponses_server.runs.schema_judge import UNJUDGED
from openresponses_server.runs.schema_workers import SchemaCheck
from openresponses_server.upstreams.routing.attempts import AnswerPlan

MOST_JUDGED: Final = 1 << 20
"""Characters of an answer that is judged; more than any model's limit of output."""
_TOO_LONG: Final = f"The answer is longer than the {MOST_JUDGED} characters of one that can be judged."
_WAITS: Final = CLIENT_ANSWERS.keys() | {"mcp_approval_request"}
_PLAIN: Final = AnswerPlan(AnswerWay.NATIVE, None, False)


class _Kind(Enum):
    TEXT = auto()
    ABOUT_TEXT = auto()  # refers to places in it
    OTHER = auto()


class _Held(NamedTuple):
    kind: _Kind
    call: Callable[[], list[Event]]


class FormattedStream(CallHoldingFilter, ItemHoldingFilter):
    """Checks the answer against its format, as the plan of the accepted attempt says. An answer that the
    client must continue (a call, an approval), a refusal and an incomplete answer are not judged. Text before
    a call is not the answer: it is left out if it was held."""

    def __init__(self, stream: ResponseStream, identities: ToolIdentityMap) -> None:
        super().__init__(stream)
        self._identities = identities
        self._plan = _PLAIN
        self.question: SchemaCheck | None = None
        """The answer is complete and must be judged before the response ends: see `settle`."""
        self._reason: str | None = None
        self._deferred: str | None = None
        self._begin()

    def answer_by(self, plan: AnswerPlan | None) -> None:
        """The next answer was asked for in this way."""
        self._plan = plan or _PLAIN

    def next_answer(self) -> None:
        """Begin another answer; what is held of this one is left out."""
        super().next_answer()
        self._begin()
        self._first_item = len(self.snapshot.output)

    def _begin(self) -> None:
        self.question = None
        self._first_item = 0
        self._held: list[_Held] = []
        self._pieces: list[str] = []  # of the held text
        self._size = 0
        self._in_text = False  # what comes belongs to text that is held
        self._is_cut = False  # an item has come since that text, which the upstream made itself
        self._answering: HeldCall | None = None  # the call that is the answer
        self._waits = self._refused = self._sent = False
        self._fence = FenceFilter()

    # What is held and what becomes of it.
    @property
    def _holds_text(self) -> bool:
        plan = self._plan
        return plan.schema is not None and (plan.holds or plan.way is AnswerWay.FUNCTION)

    def _hold(self, piece: str, call: Callable[[], list[Event]]) -> list[Event]:
        if self._is_cut:  # what was said before a search of the upstream's was not the answer, since more is
            self._is_cut = False
            self._leave_out()
        if self._expected is not None:
            self._held.append(_Held(_Kind.OTHER, self._expected))
            self._expected = None
        self._in_text = True
        self._pieces.append(piece)
        self._held.append(_Held(_Kind.TEXT, call))
        return self._grown(piece)

    def _grown(self, piece: str) -> list[Event]:
        self._size += len(piece)
        if self._size > MOST_JUDGED:
            raise UpstreamError(502, _TOO_LONG, code=UpstreamError.TOO_LONG, cause=_TOO_LONG)
        return []

    def _belongs(self, kind: _Kind, call: Callable[[], list[Event]]) -> list[Event]:
        if not self._in_text:
            return call()
        self._held.append(_Held(kind, call))
        return []

    def _release(self, text: str | None = None) -> list[Event]:
        """The events of what is held; with `text` in the place of its own."""
        held, self._held = self._held, []
        self._in_text = False
        same = text is None or text == "".join(self._pieces)
        events: list[Event] = []
        for kind, call in held:
            if same or kind is _Kind.OTHER:
                events += call()
            elif kind is _Kind.TEXT and text:
                events += super().text(text)
                text = ""
        return events

    def _leave_out(self) -> None:
        """The held text is not the answer."""
        if self._held:
            if "".join(self._pieces).strip():
                self.diagnostics.warning("text.format", "text that is not the answer was left out")
            self._held, self._in_text = [], False
        self._pieces.clear()

    def _flush(self) -> list[Event]:
        """End the text, since something else comes, and begin the item that was expected."""
        self._in_text = False
        return super()._flush()

    def _item_follows(self, kind: str) -> list[Event]:
        """An item comes that is not a whole message."""
        self._sent = self._sent or kind == "message"
        if kind.rpartition(":")[2] in _WAITS:
            self._waits = True
            self._leave_out()
        elif kind != "reasoning":
            self._is_cut = True
        return self._flush()

    # What comes from the upstream.
    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        if self._plan.schema is None or not isinstance(delta, str):
            return super().text(delta, logprobs)
        self.require("text")
        if self._answering is not None:
            return []  # said beside the call that is the answer
        if self._holds_text:
            return self._hold(delta, partial(super().text, delta, logprobs)) if delta or logprobs else []
        self._sent = True
        shown = self._fence.feed(delta)
        return super().text(shown, logprobs) if shown else []

    def annotation(self, annotation: Annotation | Mapping[str, Any]) -> list[Event]:
        return self._belongs(_Kind.ABOUT_TEXT, partial(super().annotation, annotation))

    def part_done(self) -> list[Event]:
        return self._belongs(_Kind.OTHER, super().part_done)

    def part_extra(self, extra: Extra, *, summary: bool = False) -> list[Event]:
        return self._belongs(_Kind.OTHER, partial(super().part_extra, extra, summary=summary))

    def item_extra(self, extra: Extra, index: int | None = None) -> list[Event]:
        pass_on = partial(super().item_extra, extra, index)
        return self._belongs(_Kind.OTHER, pass_on) if index is None else pass_on()

    def block_done(self, *, cut: bool = False) -> list[Event]:
        return self._belongs(_Kind.OTHER, partial(super().block_done, cut=cut))

    @property
    def _holds_items(self) -> bool:
        return self._holds_text

    def refusal(self, delta: str) -> list[Event]:
        self._refused = True
        return self._release() + super().refusal(delta)

    def item_added(self, item: Item | Mapping[str, Any]) -> list[Event]:
        return self._item_follows(_type_of(item)) + super().item_added(item)

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        self.require("item")
        kind = _type_of(item)
        if kind != "message":
            answer = self._answer_in(item)
            if answer is not None:
                return self._answer(HeldCall(), answer)
            return self._item_follows(kind) + super().item(item)
        if not self._holds_text:
            self._sent = True
            return super().item(item)
        if self._answering is not None:
            return []  # said beside the call that is the answer
        self._expected = None
        return self._hold(_text_of(item), partial(super().item, item))

    def _keeps(self, call: HeldCall, type: str, namespace: str | None) -> bool:
        return self._plan.way is AnswerWay.FUNCTION and self._is_answer(call.name)

    def _keep(self, call: HeldCall, fragment: CallFragment) -> list[Event]:
        return self._answer(call, fragment.arguments or "")

    def _pass(self, index: int, fragment: CallFragment) -> list[Event]:
        return self._item_follows("function_call") + super()._pass(index, fragment)

    def _is_answer(self, upstream_name: str) -> bool:
        identity = self._identities.resolve(upstream_name)
        return (upstream_name if identity is None else identity.name) == ANSWER

    def _answer_in(self, item: Item | Mapping[str, Any]) -> str | None:
        """The arguments of a whole call that is the answer; None for another item."""
        if self._plan.way is not AnswerWay.FUNCTION or _type_of(item) != "function_call":
            return None
        of = item.get if isinstance(item, Mapping) else partial(getattr, item)
        name, arguments = of("name", None), of("arguments", None)
        is_answer = isinstance(name, str) and isinstance(arguments, str) and self._is_answer(name)
        return arguments if is_answer else None

    def _answer(self, call: HeldCall, piece: str) -> list[Event]:
        """Feed arguments of a call that is an answer; of several the first counts."""
        if self._answering is None:
            self._leave_out()
            events = self._flush()
            self._answering = call
        elif self._answering is not call:
            self.diagnostics.warning("text.format", "another answer beside the first was left out")
            return []
        else:
            events = []
        if not piece:
            return events
        if self._plan.holds:
            return events + self._hold(piece, partial(super().text, piece))
        self._sent = True
        return events + super().text(piece) + self._grown(piece)

    # How it ends.
    def defer_finish(self, reason: str | None) -> list[Event]:
        self._deferred = reason
        return super().defer_finish(reason)

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        """Finish like the machine, unless the answer must be judged first."""
        self.require("finish")
        events = self._pass_nameless()
        if self._plan.schema is None:
            return events + super().finish(reason, incomplete=incomplete)
        if self._answering is not None and not self._size:
            events += self._answer(self._answering, "{}")  # a call without arguments
        if self._sent and self._answering is None and (rest := self._fence.close()):
            events += super().text(rest)
        if incomplete or outcome(reason or self._deferred)[0] is not None or self._refused:
            return events + self._release() + super().finish(reason, incomplete=incomplete)
        if self._waits:
            self._leave_out()
            return events + super().finish(reason)
        text = self._shown() if self._sent else json_in("".join(self._pieces))
        if len(text) > MOST_JUDGED:
            return events + self.fail(_model_error(_TOO_LONG))
        self._reason = reason
        self.question = SchemaCheck(self._plan.schema, text)
        return events

    def settle(self, objection: str | None) -> list[Event]:
        """End the judged response: complete it, or fail it with the objection. What could not be judged
        completes where the upstream has enforced the schema."""
        question, self.question = self.question, None
        if objection is not None and not (self._is_enforced and objection.startswith(UNJUDGED)):
            return self.fail(_model_error(objection))
        return self._release(None if question is None else question.text) + super().finish(self._reason)

    def corrected(self, objection: str) -> list[Any] | None:
        """The items that ask for another answer instead of this one; None if this one was sent or could not
        be judged."""
        plan = self._plan
        if self._sent or plan.schema is None or objection.startswith(UNJUDGED):
            return None
        answer = "".join(self._pieces)
        request = MessageParam("user", correction(objection, plan.schema, plan.way))
        return [MessageParam("assistant", answer), request] if answer.strip() else [request]

    @property
    def _is_enforced(self) -> bool:
        return self._plan.way is AnswerWay.NATIVE

    def _shown(self) -> str:
        """The text of the answer that was sent: the last messages without an item of another kind between
        them."""
        texts: list[str] = []
        for item in reversed(self.snapshot.output[self._first_item :]):
            if isinstance(item, Message):
                texts.append(_text_of(item))
            elif item.type != "reasoning" and any(texts):
                break
        return "".join(reversed(texts))

    def cancel(self) -> list[Event]:
        return self._release() + super().cancel()

    def fail(self, error: Failure) -> list[Event]:
        return self._release() + super().fail(error)


def _model_error(message: str) -> ErrorPayload:
    return ErrorPayload("model_error", "model_error", message, None)


def _type_of(item: Item | Mapping[str, Any]) -> str:
    return str(item.get("type") if isinstance(item, Mapping) else item.type)


def _text_of(item: Item | Mapping[str, Any]) -> str:
    content = item.get("content") if isinstance(item, Mapping) else getattr(item, "content", None)
    texts = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, OutputTextContent):
            texts.append(part.text)
        elif isinstance(part, Mapping) and part.get("type") == "output_text":
            texts.append(str(part.get("text")))
    return "".join(texts)
