"""Converts the steps of an incoming interaction to calls of the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from weakref import proxy

from openresponses_bridge.calls.argument_names import name_of_arguments
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import object_in, other_fields, report_unknown_type
from openresponses_bridge.dialects.interactions import types as t
from openresponses_bridge.dialects.interactions.annotations import MOST, citations_of
from openresponses_bridge.dialects.interactions.hosted import HostedSteps
from openresponses_bridge.dialects.interactions.signatures import CALL, seal_signature
from openresponses_bridge.dialects.interactions.types import Json
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.codec import encode, with_whole_characters
from openresponses_bridge.protocol.events import Event, OutputItemAdded
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.seal import Sealer

_IMAGE: Final = "image/"
_SHOWN: Final = 64
_DELTAS: Final = frozenset(
    {
        *("text", "text_annotation_delta", "arguments_delta", "thought_summary", "thought_signature"),
        *(*t.MEDIA, *t.CALLS, *t.CALLS.values()),
    }
)
"""The types of the deltas of steps."""


class StepReader:
    """Reads the steps of one interaction, in order. One step is open at a time for each index."""

    __slots__ = (
        *("__weakref__", "_calls", "_hosted", "_machine", "_open", "_sealer"),
        *("carried", "diagnostics", "has_steps"),
    )

    def __init__(self, machine: ResponseStream, sealer: Sealer) -> None:
        self._machine = machine
        self._sealer = sealer
        self.diagnostics: Diagnostics = machine.diagnostics
        self._open: dict[int, _Step] = {}
        self._hosted = HostedSteps()
        self._calls = 0
        self.carried: Json = {}
        """Index of an item → the deltas of its step that the protocol can't express."""
        self.has_steps = False
        """True if a step of the model has begun."""

    def start(self, index: int, step: Json) -> list[Event]:
        """Begin a step."""
        if index in self._open:
            self.diagnostics.repair("step.start", f"step {index} is open already, ended before")
            return [*self.stop(index), *self.start(index, step)]
        kind = step.get("type")
        if kind == t.USER:
            self._open[index] = _Ignored(self)
            return []
        if not isinstance(kind, str) or not kind:
            self.diagnostics.loss("step.type", f"can't be read: {type(kind).__name__}")
            self._open[index] = _Ignored(self)
            return []
        self.has_steps = True
        make = _STEPS.get(kind, _Hosted)
        events = [] if make is _Hosted else self._end_hosted()
        opened = self._open[index] = make(self)
        return events + opened.begin(step)

    def delta(self, index: int, delta: Json) -> list[Event]:
        """Read the next delta of a step. A step that has not begun is begun."""
        events: list[Event] = []
        if index not in self._open:
            self.diagnostics.repair("step.delta", f"step {index} is not open, begun")
            kind = delta.get("type")
            begins = {"arguments_delta": t.CALL, "thought_summary": t.THOUGHT, "thought_signature": t.THOUGHT}
            named = kind if kind in (*t.CALLS, *t.CALLS.values()) else begins.get(str(kind), t.MODEL)
            events = self.start(index, {"type": named})
        return events + self._open[index].add(delta)

    def stop(self, index: int) -> list[Event]:
        """End a step."""
        opened = self._open.pop(index, None)
        if opened is None:
            self.diagnostics.ignored("step.stop", f"step {index} is not open")
            return []
        return opened.end()

    def step(self, step: Json) -> list[Event]:
        """Read a whole step."""
        number = -1
        return self.start(number, step) + self.stop(number)

    def close(self) -> list[Event]:
        """Handle the end of the steps."""
        events = [event for index in sorted(self._open) for event in self.stop(index)]
        return events + self._end_hosted()

    def _end_hosted(self) -> list[Event]:
        return [event for item in self._hosted.end() for event in self._machine.item(item)]

    def hosted(self, step: Json) -> list[Event]:
        """Read a step that Google ran, or an unknown one."""
        return [event for item in self._hosted.step(step) for event in self._machine.item(item)]

    def next_call(self) -> int:
        """Return the number of the next call."""
        self._calls += 1
        return self._calls - 1

    def carry(self, index: int | None, deltas: list[Json]) -> list[Event]:
        """Keep what the protocol can't express of the item with this index."""
        if not deltas:
            return []
        if index is None:
            self.diagnostics.loss("step.delta", "has no place in the output")
            return []
        self.carried[str(index)] = deltas
        return self._machine.extension_event(t.STEP, {t.DELTAS: {str(index): deltas}})


class _Step:
    """An open step."""

    def __init__(self, reader: StepReader) -> None:
        self._reader: StepReader = proxy(reader)  # a proxy: the reader has the steps
        self._machine = reader._machine
        self._index: int | None = None  # of the step's item

    def begin(self, step: Json) -> list[Event]:
        raise NotImplementedError

    def add(self, delta: Json) -> list[Event]:
        raise NotImplementedError

    def end(self) -> list[Event]:
        raise NotImplementedError

    def _seen(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, OutputItemAdded):
                self._index = event.output_index
        return events

    def _lose(self, delta: Json) -> list[Event]:
        kind = delta.get("type")
        named = f"step.delta.{kind}" if kind else "step.delta"
        what, is_known = "does not belong to its step", isinstance(kind, str) and kind in _DELTAS
        report_unknown_type(named, delta, self._reader.diagnostics, what, is_known=is_known)
        return []


class _Ignored(_Step):
    """The input, which the client knows, or a step that can't be read."""

    def begin(self, step: Json) -> list[Event]:
        return []

    def add(self, delta: Json) -> list[Event]:
        return []

    def end(self) -> list[Event]:
        return []


class _Output(_Step):
    """Texts, which are messages, and media, which are items of their own."""

    def __init__(self, reader: StepReader) -> None:
        super().__init__(reader)
        self._texts: list[str] = []
        self._annotations: list[Any] = []
        self._error: Any = None

    def begin(self, step: Json) -> list[Event]:
        contents = t.objects_in(step, "content", self._reader.diagnostics)
        if step.get("error") is not None:
            self._reader.diagnostics.loss("step.error", "the output has none")
        return [event for each in contents for event in self._content(each)]

    def _content(self, content: Json) -> list[Event]:
        """Read a whole content."""
        if content.get("type") != "text":
            return self.add(content)
        before = self._end_text() if self._texts else []
        events = self.add(content)
        annotations = content.get("annotations")
        if isinstance(annotations, list):
            self._annotate(annotations)
        return before + events

    def add(self, delta: Json) -> list[Event]:
        kind, text = delta.get("type"), delta.get("text")
        if kind == "text" and isinstance(text, str):
            if not text:
                return []
            self._texts.append(text)
            return self._seen(self._machine.text(text))
        if kind == "text_annotation_delta" and isinstance(delta.get("annotations"), list):
            self._annotate(delta["annotations"])
            return []
        if kind not in t.MEDIA:
            return self._lose(delta)
        data, media = delta.get("data"), delta.get("mime_type")
        events = self._end_text()
        if kind == "image" and isinstance(data, str) and isinstance(media, str) and media.startswith(_IMAGE):
            own = other_fields(delta, ("type", "data", "mime_type"))
            image: Json = {
                "type": "image_generation_call",
                "id": "",
                "status": "completed",
                "result": data,
                "output_format": media.removeprefix(_IMAGE),
            }
            return events + self._machine.item(UnknownItem(image | ({t.STEPS: own} if own else {})))
        return events + self._reader.hosted({"type": t.MODEL, "content": [with_whole_characters(delta)]})

    def _annotate(self, annotations: list[Any]) -> None:
        self._annotations += annotations[: MOST + 1 - len(self._annotations)]

    def _end_text(self) -> list[Event]:
        """Return the citations of the text so far, and its end."""
        text, self._texts = "".join(self._texts), []
        annotations, self._annotations = self._annotations, []
        if not text and not annotations:
            return []
        citations, others = citations_of(annotations, text, self._reader.diagnostics)
        events: list[Event] = []
        for each in citations:
            events += self._seen(self._machine.annotation(each))
        carried = [{"type": "text_annotation_delta", "annotations": others}] if others else []
        index, self._index = self._index, None
        return events + self._reader.carry(index, carried) + self._machine.block_done()

    def end(self) -> list[Event]:
        return self._end_text()


class _Thought(_Step):
    """A summary of thoughts, and their signature."""

    def __init__(self, reader: StepReader) -> None:
        super().__init__(reader)
        self._parts = 0
        self._said = False
        self._signature = ""
        self._others: list[Json] = []

    def begin(self, step: Json) -> list[Event]:
        contents = t.objects_in(step, "summary", self._reader.diagnostics)
        self._sign(step.get("signature"))
        events: list[Event] = []
        for part, content in enumerate(contents):
            self._parts = part
            events += self._summary(content)
        return events

    def _sign(self, signature: Any) -> None:
        if isinstance(signature, str):
            self._signature = signature or self._signature
        elif signature is not None:
            self._reader.diagnostics.loss("signature", f"can't be read: {type(signature).__name__}")

    def _summary(self, content: Json) -> list[Event]:
        text = content.get("text")
        if content.get("type") != "text" or not isinstance(text, str):
            self._others.append({"type": "thought_summary", "content": with_whole_characters(content)})
            return []
        if not text:
            return []
        for name in other_fields(content, ("type", "text")):
            self._reader.diagnostics.loss(f"summary.{name[:_SHOWN]}", "a summary's text has no such field")
        self._said = True
        return self._seen(self._machine.reasoning_summary(text, self._parts))

    def add(self, delta: Json) -> list[Event]:
        kind, content = delta.get("type"), delta.get("content")
        if kind == "thought_signature":
            self._sign(delta.get("signature"))
            return []
        if kind == "thought_summary" and isinstance(content, dict):
            return self._summary(content)
        return self._lose(delta)

    def end(self) -> list[Event]:
        if not (self._said or self._signature or self._others):
            return []
        sealed = seal_signature(self._reader._sealer, self._signature)
        events = self._seen(self._machine.reasoning_encrypted(sealed))
        return events + self._reader.carry(self._index, self._others) + self._machine.block_done()


class _Call(_Step):
    """A call of a function, whose arguments come in pieces or whole."""

    def __init__(self, reader: StepReader) -> None:
        super().__init__(reader)
        self._number = reader.next_call()
        self._given: Any = None
        self._named = self._streamed = False

    def begin(self, step: Json) -> list[Event]:
        self._given = self._arguments_in(step)
        call_id, name = self._word(step, "id"), self._word(step, "name")
        self._named = name is not None
        events: list[Event] = []
        if signature := self._word(step, "signature"):
            sealed = seal_signature(self._reader._sealer, signature, CALL)
            events = self._machine.reasoning_encrypted(sealed) + self._machine.block_done()
        return events + self._machine.tool_call(self._number, call_id, name)

    def _arguments_in(self, fields: Json) -> Any:
        return fields.get(name_of_arguments(fields, "arguments", self._reader.diagnostics))

    def _word(self, step: Json, field: str) -> str | None:
        word = step.get(field)
        if word is not None and not isinstance(word, str):
            self._reader.diagnostics.loss(f"function_call.{field}", f"can't be read: {type(word).__name__}")
            return None
        return word or None

    def add(self, delta: Json) -> list[Event]:
        if delta.get("type") != "arguments_delta":
            return self._lose(delta)
        piece = self._arguments_in(delta)
        if isinstance(piece, dict):
            self._reader.diagnostics.repair("arguments_delta", "an object, taken as JSON text")
            piece = encode(piece).decode()
        if not isinstance(piece, str) or not piece:
            return []
        self._streamed = True
        return self._machine.tool_call(self._number, arguments=piece)

    def end(self) -> list[Event]:
        events: list[Event] = []
        if not self._streamed and self._given not in (None, {}):
            arguments = self._given
            text = arguments if isinstance(arguments, str) else encode(arguments).decode()
            events = self._machine.tool_call(self._number, arguments=text)
        return events + self._machine.tool_call_done(self._number, cut=not self._named)


class _Hosted(_Step):
    """A step of a tool that Google runs, or an unknown one, which is kept whole."""

    def begin(self, step: Json) -> list[Event]:
        self._step = dict(step)
        return []

    def add(self, delta: Json) -> list[Event]:
        kind = delta.get("type")
        if kind != self._step.get("type"):
            return self._lose(delta)
        for name, value in other_fields(delta, ("type",)).items():
            before = self._step.get(name)
            if isinstance(before, list) and isinstance(value, list):
                before += value
            elif isinstance(before, dict) and isinstance(value, dict):
                self._step[name] = object_in(self._step, name) | value
            else:
                self._step[name] = value
        return []

    def end(self) -> list[Event]:
        return self._reader.hosted(with_whole_characters(self._step))


_STEPS: Final[dict[str, Callable[[StepReader], _Step]]] = {
    t.MODEL: _Output,
    t.THOUGHT: _Thought,
    t.CALL: _Call,
    **dict.fromkeys((*t.CALLS, *t.CALLS.values()), _Hosted),
}
