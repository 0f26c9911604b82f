"""An answer as it is shown in a chat: text as it comes, thinking in a line, calls that are not run."""

from __future__ import annotations

import time
from typing import Final

from rich.console import Console
from rich.text import Text

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.text import on_one_line, shown
from openresponses_server.agents.panels import thinking_line

_THOUGHTS: Final = (
    ev.ReasoningDelta,
    ev.ReasoningTextDelta,
    ev.ReasoningSummaryTextDelta,
)
_CUT: Final = 300  # characters of a call
_MESSAGE: Final = 1_000


class AnswerView:
    """Shows the events of one response."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._fold = ResponseAccumulator()
        self._thought: list[str] = []
        self._in_line = False
        self._begun = time.monotonic()

    @property
    def response(self) -> Response | None:
        """What the events add up to."""
        return self._fold.response

    def feed(self, event: Event) -> None:
        """The next event."""
        self._fold.feed(event)
        if self._quiet:
            return
        if isinstance(event, _THOUGHTS):
            self._thought.append(event.delta)
        elif isinstance(event, ev.OutputTextDelta | ev.RefusalDelta):
            self._thinking()
            self._console.print(Text(shown(event.delta)), end="", soft_wrap=True)
            self._in_line = not event.delta.endswith("\n") if event.delta else self._in_line
        elif isinstance(event, ev.OutputItemDone) and event.item is not None:
            self._call(event.item)

    def ended(self) -> None:
        """How it ended, and what it took."""
        response = self.response
        if self._quiet or response is None:
            return
        self._thinking()
        self._line()
        if response.error is not None:
            what = f"{response.error.code}: {response.error.message}"
            self._console.print(Text(f"✗ {on_one_line(what, _MESSAGE)}", "red"), soft_wrap=True)
        elif response.status != "completed":
            why = response.incomplete_details.reason if response.incomplete_details else "cut short"
            what = f"{response.status}: {why}"
            self._console.print(Text(f"… {on_one_line(what, _MESSAGE)}", "yellow"), soft_wrap=True)
        counts = f"{time.monotonic() - self._begun:.1f} s"
        if (usage := response.usage) is not None:
            counts = f"{usage.input_tokens} input + {usage.output_tokens} output tokens · {counts}"
        self._console.print(Text(counts, "dim"), soft_wrap=True)

    def _call(self, item: object) -> None:
        given = getattr(item, "arguments", None) or getattr(item, "input", None)
        if isinstance(given, str) and isinstance(name := getattr(item, "name", None), str):
            self._thinking()
            self._line()
            call = f"{name} {given}"
            self._console.print(Text(f"🔧 {on_one_line(call, _CUT)} (not run)", "cyan"), soft_wrap=True)

    def _thinking(self) -> None:
        if self._thought:
            self._line()
            self._console.print(thinking_line("".join(self._thought)), soft_wrap=True)
            self._thought.clear()

    def _line(self) -> None:
        if self._in_line:
            self._console.print()
            self._in_line = False
