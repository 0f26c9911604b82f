"""What a person at a terminal sees of a loop while it goes on, and is asked."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import anyio
import msgspec
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.status import Status
from rich.text import Text

from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.dialects.copilot import ResponseDelta
from openresponses_bridge.loop import (
    CallEnded,
    CallsBegun,
    LoopEntry,
    LoopResult,
    LoopView,
    RoundMade,
    RoundView,
    ToolResultElement,
    ToolStatus,
)
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.text import shown
from openresponses_bridge.tools.cancellation import CancellationToken

# A loop's view in the terminal: a panel for each call, thinking in one line, usage at the end.
#
# What models and tools wrote is shown without what would move the cursor or ring the bell.

CALLING: Final = "Calling tools…"
_MOST_LINES: Final = 12
_MOST_COLUMNS: Final = 400
_MOST_THINKING: Final = 60  # characters of it that are shown
# status → (sign, words, colour)
SIGNS: Final = {
    ToolStatus.CALLING: ("…", CALLING, "cyan"),
    ToolStatus.PENDING: ("○", "Waiting", "cyan"),
    ToolStatus.RUNNING: ("▶", "Running", "cyan"),
    ToolStatus.COMPLETE: ("✓", "Complete", "green"),
    ToolStatus.FAILED: ("✗", "Failed", "red"),
    ToolStatus.DECLINED: ("✗", "Declined", "yellow"),
    ToolStatus.CANCELLED: ("■", "Cancelled", "yellow"),
}


def panel_of(element: ToolResultElement) -> Panel:
    """A call: its name, input, status, progress, result or error; long texts are cut with a note."""
    sign, words, colour = SIGNS[element.status]
    parts: list[RenderableType] = [
        Text.assemble(("Input: ", "bold"), _cut(input_text(element))),
        Text.assemble(("Status: ", "bold"), (f"{sign} {words}", colour)),
    ]
    if element.notes:
        parts.append(Text(f"({_cut('; '.join(element.notes))})", "dim"))
    if element.progress and element.status is ToolStatus.RUNNING:
        parts.append(Text(_cut("\n".join(element.progress[-3:])), "dim"))
    for heading, text in (("Result:\n", element.result), ("", element.error)):
        if text is not None:
            parts += [Rule(style="dim"), Text.assemble((heading, "bold"), _cut(text))]
    title = Text(f"🔧 {shown(element.name)}")
    return Panel(Group(*parts), title=title, title_align="left", border_style=colour, expand=False)


def thinking_line(thinking: str) -> Text:
    """Thinking, folded: how much, and how it begins."""
    words = shown(" ".join(thinking.split()))
    beginning = words if len(words) <= _MOST_THINKING else f"{words[:_MOST_THINKING]}…"
    return Text(f"▸ Thinking ({_of(len(words.split()), 'word')}): {beginning}", "dim italic")


def usage_line(usage: Usage | None, rounds: int, calls: int) -> Text:
    """What it took."""
    counts = f"{_of(rounds, 'round')}, {_of(calls, 'tool call')}"
    if usage is not None:
        about = "about " if usage.estimated is True else ""
        counts += f" · {about}{usage.input_tokens} input + {usage.output_tokens} output tokens"
        if usage.input_tokens_details.cached_tokens:
            counts += f" ({usage.input_tokens_details.cached_tokens} cached)"
    return Text(counts, "dim")


def render(view: LoopView) -> Group:
    """All of a view, as it stands."""
    parts: list[RenderableType] = [Text(f"❯ {shown(view.query)}", "bold")] if view.query else []
    for made in view.rounds:
        parts += _round(made)
    if view.message:
        parts.append(Text(shown(view.message), "yellow"))
    return Group(*parts)


def input_text(element: ToolResultElement) -> str:
    """A call's input on one line: text as far as it came, else as JSON."""
    given: Any = element.input
    if given is None:
        return ""
    return msgspec.json.encode(given).decode() if isinstance(given, dict | list) else str(given)


def _round(made: RoundView) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"↻ {shown(why)}: asked again", "yellow") for why in made.retries]
    if made.thinking:
        parts.append(thinking_line(made.thinking))
    if made.text.strip():
        parts.append(Text(shown(made.text.strip())))
    if made.is_calling:
        parts.append(Text(CALLING, "cyan"))
    return parts + [panel_of(each) for each in made.elements if each.status is not ToolStatus.CALLING]


def _cut(text: str) -> str:
    lines = shown(text).rstrip("\n").split("\n")
    kept = [
        each if len(each) <= _MOST_COLUMNS else f"{each[:_MOST_COLUMNS]}…" for each in lines[:_MOST_LINES]
    ]
    more = len(lines) - len(kept)
    return "\n".join([*kept, f"… {_of(more, 'more line')}"] if more else kept)


def _narrow(line: str) -> str:
    return line if len(line) <= _MOST_COLUMNS else f"{line[:_MOST_COLUMNS]}…"


def _of(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_LONGEST_ANSWER: Final = 1_000  # bytes typed at a question


class Output(Console):
    """Standard output or errors. When nobody reads it any more nothing more is printed, and `reader_gone` is
    called, which must not raise."""

    reader_gone: Callable[[], object] | None = None

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # what is still buffered is flushed at the end
        os.close(nowhere)
        if self.reader_gone is not None:
            self.reader_gone()


class Screen:
    """Shows text as it comes, a panel for each call, what runs meanwhile. With `quiet` it shows nothing."""

    def __init__(self, console: Output, *, quiet: bool = False) -> None:
        self.view = LoopView()
        self._console = console
        self._quiet = quiet
        self._status: Status | None = None
        self._thought: list[str] = []
        self._in_line = False  # the cursor is behind text

    def on_reader_gone(self, call: Callable[[], object]) -> None:
        """Call it when nobody reads what is shown, as behind `| head`."""
        self._console.reader_gone = call

    def resumed(self, entries: list[LoopEntry]) -> None:
        """What was kept of the question that is gone on with."""
        for entry in entries:
            self.view.entry(entry)
        if not self._quiet and self.view.rounds:
            self._console.print(render(self.view))

    def finished_cb(self, text: object, index: int, delta: ResponseDelta) -> None:
        """For the loop: what the model says."""
        self.view.delta(delta)
        if self._quiet:
            return
        if delta.retry_reason is not None:
            self._thought.clear()
            self._line(Text(f"↻ {shown(str(delta.retry_reason))}: asked again", "yellow"))
        if delta.thinking is not None and delta.thinking.text:
            self._thought.append(delta.thinking.text)
            self._busy("Thinking…")
        if delta.text.strip() or (delta.text and self._in_line):
            self._idle()
            self._thinking()
            self._console.print(Text(shown(delta.text)), end="", soft_wrap=True)
            self._in_line = not delta.text.endswith("\n")
        if delta.begin_tool_calls:
            self._thinking()
            self._end_line()
            self._busy(CALLING)

    def entry(self, entry: LoopEntry) -> None:
        """What was recorded."""
        self.view.entry(entry)
        if self._quiet:
            return
        if isinstance(entry, RoundMade):
            self._idle()
            self._thinking()
            self._end_line()
        elif isinstance(entry, CallsBegun):
            self._running(entry.ids)
        elif isinstance(entry, CallEnded):
            self._idle()
            element = self.view.element(entry.id)
            if element is not None:
                self._console.print(panel_of(element))

    def progress(self, tool_name: str, call_id: str, text: str) -> None:
        """For the tools: what one reports."""
        self.view.progress(call_id, text)
        if not self._quiet:
            self._busy(f"{shown(tool_name)}: {shown(text)}")

    def ended(self, result: LoopResult, notes: Iterable[Diagnostic] = ()) -> None:
        """How it ended, what was repaired or lost on the way, and what it took."""
        if self._quiet:
            return
        self._idle()
        self._end_line()
        if result.message:
            self._console.print(Text(shown(result.message), "yellow"))
        for note in notes:
            self._console.print(Text(shown(str(note)), "dim"))
        self._console.print(
            usage_line(result.usage, len(result.tool_call_rounds), len(result.tool_call_results))
        )

    def asking(self, token: CancellationToken) -> ConfirmationPrompt | None:
        """Asks at this terminal; None when nobody sits there."""
        return ConfirmationPrompt(self, token) if sys.stdin.isatty() else None

    def question(self, question: str) -> None:
        """Show a question; the answer is typed behind it."""
        self._idle()
        self._end_line()
        self._console.print(Text.assemble((shown(question), "bold"), " [y/N] "), end="")

    def _running(self, ids: list[str]) -> None:
        names = [element.name for each in ids if (element := self.view.element(each)) is not None]
        self._busy(f"Running {shown(', '.join(names))}…")

    def _thinking(self) -> None:
        if self._thought:
            self._idle()
            self._console.print(thinking_line("".join(self._thought)))
            self._thought.clear()

    def _line(self, text: Text) -> None:
        self._idle()
        self._end_line()
        self._console.print(text)

    def _end_line(self) -> None:
        if self._in_line:
            self._console.print()
            self._in_line = False

    def _busy(self, what: str) -> None:
        """A line that moves, on a terminal only."""
        if not self._console.is_terminal or self._in_line:
            return
        if self._status is None:
            self._status = self._console.status(Text(what, "cyan"))
            self._status.start()
        else:
            self._status.update(Text(what, "cyan"))

    def _idle(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


class ConfirmationPrompt:
    """Yes or no, typed at the terminal. Cancelling the run answers no. One question at a time."""

    def __init__(self, screen: Screen, token: CancellationToken) -> None:
        self._screen = screen
        self._token = token
        self._one = anyio.Lock()

    async def __call__(self, question: str) -> bool:
        async with self._one:
            with anyio.CancelScope() as waiting:
                dispose: Callable[[], None] = self._token.on_cancellation_requested(waiting.cancel)
                try:
                    self._screen.question(question)
                    with suppress(termios.error):  # what was typed before the question is not its answer
                        termios.tcflush(sys.stdin, termios.TCIFLUSH)
                    await anyio.wait_readable(sys.stdin.fileno())
                    answer = os.read(sys.stdin.fileno(), _LONGEST_ANSWER)
                    return answer.strip().lower() in (b"y", b"yes")
                finally:
                    dispose()
            return False

    async def confirm(self, tool_name: str, question: str) -> bool:
        """For the tools."""
        return await self(f"{tool_name}: {question}")
