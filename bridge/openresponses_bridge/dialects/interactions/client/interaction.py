"""Encodes a response as an interaction, by folding its stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.json_text import WRAPPED, is_wrapped, tool_input
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import native_of
from openresponses_bridge.dialects.interactions import types as t
from openresponses_bridge.dialects.interactions.client import ending
from openresponses_bridge.dialects.interactions.client.outbound import (
    Outbound,
    interaction_end,
    interaction_head,
)
from openresponses_bridge.emitter.finished import events_of
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer
from openresponses_bridge.state import TERMINAL_EVENT

Json = t.Json


def interaction(
    response: Response,
    sealer: Sealer | None = None,
    tool_identities: ToolIdentityMap | None = None,
    *,
    thoughts: bool | None = None,
    diagnostics: Diagnostics | None = None,
) -> Json:
    """Return the response as it ended or so far. A call that was cut off is left out, since clients run every
    call of an answer."""
    losses = diagnostics if diagnostics is not None else Diagnostics()
    outbound = Outbound(sealer, tool_identities, thoughts=thoughts)
    folding = Folding(losses)
    for event in events_of(response if response.status in TERMINAL_EVENT else _so_far(response)):
        folding.feed(outbound.feed(event))
    losses.extend(outbound.diagnostics)
    fields = interaction_head(response, Diagnostics()) | {"steps": folding.steps}
    if response.previous_response_id is not None:
        fields["previous_interaction_id"] = response.previous_response_id
    if response.instructions is not None:
        fields["system_instruction"] = response.instructions
    if response.metadata:
        fields["labels"] = response.metadata
    if response.error is not None:
        error, native = response.error, native_of(response.error, t.DIALECT)
        fields["errors"] = [ending.error_fields(error.code, error.message, native)]
    return fields | interaction_end(response, Diagnostics())


def _so_far(response: Response) -> Response:
    return replace(response, status="incomplete")


class Folding:
    """Folds the events of an interaction into its steps."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._steps: dict[int, _Step] = {}

    def feed(self, events: Iterable[Json]) -> None:
        """Feed the next events."""
        for event in events:
            if event["event_type"] == t.START:
                self._steps[event["index"]] = _Step(event["step"])
            elif event["event_type"] == t.DELTA:
                self._steps[event["index"]].add(event["delta"])

    @property
    def steps(self) -> list[Json]:
        """The steps so far."""
        return [each.whole(self._diagnostics) for each in self._steps.values()]


class _Step:
    def __init__(self, step: Json) -> None:
        self._step = dict(step)
        self._contents: list[tuple[Json, list[str]]] = []
        self._arguments: list[str] = []

    def add(self, delta: Json) -> None:
        """Add the next delta of the step."""
        add = _DELTAS.get(delta["type"])
        if add is not None:
            add(self, delta)
        else:
            self._contents.append((delta, []))

    def _text(self, delta: Json) -> None:
        if self._contents and self._contents[-1][1]:
            self._contents[-1][1].append(delta["text"])
        else:
            self._contents.append(({"type": "text"}, [delta["text"]]))

    def _annotate(self, delta: Json) -> None:
        if self._contents:
            self._contents[-1][0].setdefault("annotations", []).extend(delta["annotations"])

    def _summary(self, delta: Json) -> None:
        content = delta["content"]
        if isinstance(content.get("text"), str):
            self._text(content)
        else:
            self._contents.append((content, []))

    def _signature(self, delta: Json) -> None:
        self._step["signature"] = delta["signature"]

    def _argue(self, delta: Json) -> None:
        self._arguments.append(delta["arguments"])

    def whole(self, diagnostics: Diagnostics) -> Json:
        """Return the step with everything that was added."""
        step = self._step
        contents = [
            content | ({"text": "".join(texts)} if texts else {}) for content, texts in self._contents
        ]
        if step["type"] == t.CALL and self._arguments:
            text = "".join(self._arguments)
            arguments = tool_input(text)
            if is_wrapped(arguments, text):
                diagnostics.repair("arguments", WRAPPED)
            return step | {"arguments": arguments}
        if step["type"] == t.THOUGHT:
            return step | ({"summary": contents} if contents else {})
        return step | ({"content": contents} if step["type"] == t.MODEL else {})


_DELTAS: Final[dict[str, Callable[[_Step, Json], None]]] = {
    "text": _Step._text,
    "text_annotation_delta": _Step._annotate,
    "thought_summary": _Step._summary,
    "thought_signature": _Step._signature,
    "arguments_delta": _Step._argue,
}
