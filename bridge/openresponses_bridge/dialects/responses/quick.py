"""The quick way of a delta that goes on with what is open: a piece of text, or of a call's arguments.

Nearly every event of a stream is one. Both readers give what the handlers of `items.py` give, with the same
repairs noted; for an event that takes a closer look they give None and have done nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openresponses_bridge.dialects.responses.text import TextFeeder
from openresponses_bridge.dialects.responses.tracks import RENAMED, Tracks
from openresponses_bridge.dialects.responses.types import MANY
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.state import ResponseStreamPhase

_IN_PROGRESS = ResponseStreamPhase.IN_PROGRESS
Reader = Callable[[Any], list[Event] | None]


class QuickDeltas:
    """Takes deltas while the response is in progress. `readers` has one for each event with a quick way."""

    __slots__ = ("_machine", "_note", "_texts", "_tracks", "readers")

    def __init__(self, machine: ResponseStream, tracks: Tracks, texts: TextFeeder) -> None:
        self._machine = machine
        self._note = machine.diagnostics.note
        self._tracks = tracks
        self._texts = texts
        self.readers: dict[type[Any], Reader] = {
            ev.OutputTextDelta: self._text,
            ev.FunctionCallArgumentsDelta: self._arguments,
        }

    def _text(self, event: ev.OutputTextDelta) -> list[Event] | None:
        texts, place = self._texts, self._texts.place
        if place is None or event.logprobs:
            return None
        item_id, output_index, content_index = place
        if event.content_index != content_index or event.output_index != output_index:
            return None
        said, delta, renamed = texts.said, event.delta, event.item_id != item_id
        if renamed and not (delta and self._tracks.renames(texts.open, output_index, event.item_id)):
            return None
        said.recent.append(delta)
        if len(said.recent) >= MANY:
            said.count()
        events = self._machine.text(delta)
        # of what comes after the end, nothing but that is noted
        if renamed and (events or self._machine.phase is _IN_PROGRESS):
            self._note("repair", "item_id", RENAMED)
        return events

    def _arguments(self, event: ev.FunctionCallArgumentsDelta) -> list[Event] | None:
        track, delta = self._tracks.by_index.get(event.output_index), event.delta
        if track is None or track.payload is None or track.pending or not delta:
            return None
        if event.item_id != track.item_id:
            renamed = self._tracks.renames(track, event.output_index, event.item_id)
            if not renamed or self._machine.phase is not _IN_PROGRESS:
                return None
            self._note("repair", "item_id", RENAMED)
        said = track.payload
        said.recent.append(delta)
        if len(said.recent) >= MANY:
            said.count()
        return self._machine.tool_call(track.slot, None, None, delta)
