"""A loop in the terminal: its progress, and questions to the user."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
import msgspec
from rich.cells import cell_len, chop_cells
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.status import Status
from rich.text import Text

from openresponses_agent.loop import (
    ApprovalRequest,
    CallEnded,
    CallsBegun,
    Citation,
    LoopEntry,
    LoopResult,
    LoopView,
    RoundMade,
    RoundView,
    ToolResultElement,
    ToolStatus,
)
from openresponses_agent.tools.errors import CancellationToken
from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.dialects.copilot import ResponseDelta
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.text import counted, cut, on_one_line, shown

# A loop's view in the terminal: a panel for each call, thinking in one line, usage at the end. Text of models
# and tools is shown without control characters, which could move the cursor or ring the bell.

CALLING: Final = "Calling tools…"
_MOST_LINES: Final = 12
_MOST_COLUMNS: Final = 400
_MOST_THINKING: Final = 60  # characters that are shown
_MOST_LABEL: Final = 100
_MOST_ARGUMENTS: Final = 8_000  # of a call that needs approval
_MOST_CITATIONS: Final = 50
_MOST_TITLE: Final = 200
_MOST_URL: Final = 2_000
# status → (sign, words, colour)
SIGNS: Final = {
    ToolStatus.CALLING: ("…", CALLING, "cyan"),
    ToolStatus.PENDING: ("○", "Waiting", "cyan"),
    ToolStatus.RUNNING: ("▶", "Running", "cyan"),
    ToolStatus.COMPLETE: ("✓", "Complete", "green"),
    ToolStatus.APPROVED: ("✓", "Approved", "green"),
    ToolStatus.FAILED: ("✗", "Failed", "red"),
    ToolStatus.DECLINED: ("✗", "Declined", "yellow"),
    ToolStatus.CANCELLED: ("■", "Cancelled", "yellow"),
}
NOT_RUN: Final = ("○", "Not run", "cyan")
"""The sign, words and colour of a call that is not run."""


def panel_of(element: ToolResultElement, *, is_run: bool = True) -> Panel:
    """Return a panel of a call: its name, input, status, progress, result or error. Long texts are shortened
    with a note. `is_run` is True if it is run here."""
    sign, words, colour = SIGNS[element.status] if is_run else NOT_RUN
    if element.seconds is not None:
        words += f" in {element.seconds:.1f} s"
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
    title = Text(f"🔧 {name_of(element)}")
    return Panel(Group(*parts), title=title, title_align="left", border_style=colour, expand=False)


def name_of(element: ToolResultElement) -> str:
    """Return the name of a call, and who runs it if that is not this process."""
    name = on_one_line(element.name, _MOST_COLUMNS)
    if element.runner is None:
        return name
    where = f"the MCP server {on_one_line(element.runner, _MOST_LABEL)}" if element.runner else "the server"
    return f"{name} (run by {where})"


def approval_panel(request: ApprovalRequest) -> Panel:
    """Return a panel of what the user is asked to approve, each text on a line of its own, so that none can
    be mistaken for another."""
    arguments = on_one_line(request.arguments, _MOST_ARGUMENTS)
    fields = [
        ("MCP server", on_one_line(request.server_label, _MOST_COLUMNS)),
        ("Tool", on_one_line(request.name, _MOST_COLUMNS)),
        ("Arguments", arguments),
    ]
    parts: list[RenderableType] = [Text.assemble((f"{name}: ", "bold"), text) for name, text in fields]
    if len(request.arguments) > _MOST_ARGUMENTS:
        more = counted(len(request.arguments) - _MOST_ARGUMENTS, "more character")
        parts.append(Text(f"The arguments are longer than shown: there are {more}.", "bold red"))
    title = Text("The model's server asks to run this call")
    return Panel(Group(*parts), title=title, title_align="left", border_style="yellow", expand=False)


def citation_lines(citations: Sequence[Citation]) -> list[Text]:
    """Return the pages that an answer cites, numbered. Only addresses of the web are shown as addresses."""
    lines = []
    for number, each in enumerate(citations[:_MOST_CITATIONS], 1):
        title = on_one_line(each.title.strip(), _MOST_TITLE)
        url = on_one_line(each.url, _MOST_URL)
        is_link = each.url.startswith(("https://", "http://"))
        lines.append(
            Text.assemble(
                (f"[{number}] ", "bold"), title, " " if title else "", (url, "cyan" if is_link else "dim")
            )
        )
    if len(citations) > _MOST_CITATIONS:
        lines.append(Text(f"… {counted(len(citations) - _MOST_CITATIONS, 'more page')}", "dim"))
    return lines


def notes_of(view: RoundView) -> list[RenderableType]:
    """Return the notes under an answer: the pages that it cites, and a limit that it reached."""
    notes: list[RenderableType] = [*citation_lines(view.citations)]
    if view.max_tool_calls is not None:
        note = f"The server's tools were called as often as allowed: {view.max_tool_calls} (max_tool_calls)."
        notes.append(Text(note, "yellow"))
    return notes


def thinking_line(thinking: str) -> Text:
    """Return thinking in one line: its length and its beginning."""
    words = shown(" ".join(thinking.split()))
    beginning = words if len(words) <= _MOST_THINKING else f"{words[:_MOST_THINKING]}…"
    return Text(f"▸ Thinking ({counted(len(words.split()), 'word')}): {beginning}", "dim italic")


class AnswerLines:
    """Prints an answer as it arrives: its text, its thinking on one line before what follows, and its
    calls."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._thinking: list[str] = []
        self.mid_line = False
        """True if the cursor is not at the beginning of a line."""

    @property
    def has_thinking(self) -> bool:
        """True if there is thinking that has not been printed."""
        return bool(self._thinking)

    def add_thinking(self, text: str) -> None:
        """Add thinking, which is printed when something else follows."""
        self._thinking.append(text)

    def discard_thinking(self) -> None:
        """Discard thinking that has not been printed."""
        self._thinking.clear()

    def print_thinking(self) -> None:
        """Print the thinking so far."""
        if self._thinking:
            self.end_line()
            self._console.print(thinking_line("".join(self._thinking)), soft_wrap=True)
            self._thinking.clear()

    def print_text(self, text: str) -> None:
        """Print a piece of the text."""
        self.print_thinking()
        self._console.print(Text(shown(text)), end="", soft_wrap=True)
        self.mid_line = not text.endswith("\n") if text else self.mid_line

    def print_call(self, element: ToolResultElement, *, is_run: bool = True) -> None:
        """Print a call in a panel."""
        self.print_thinking()
        self.end_line()
        self._console.print(panel_of(element, is_run=is_run))

    def end_line(self) -> None:
        """Move to the beginning of a line, unless the cursor is there."""
        if self.mid_line:
            self._console.print()
            self.mid_line = False


def usage_line(usage: Usage | None, rounds: int, calls: int) -> Text:
    """Return the line with rounds, tool calls and tokens."""
    counts = f"{counted(rounds, 'round')}, {counted(calls, 'tool call')}"
    return Text(counts if usage is None else f"{counts} · {tokens_of(usage)}", "dim")


def tokens_of(usage: Usage) -> str:
    """Return the tokens in words, with those that came from a cache."""
    about = "about " if usage.estimated is True else ""
    cached = usage.input_tokens_details.cached_tokens
    counts = f"{about}{usage.input_tokens} input + {usage.output_tokens} output tokens"
    return f"{counts} ({cached} cached)" if cached else counts


def render(view: LoopView) -> Group:
    """The whole view."""
    parts: list[RenderableType] = [Text(f"❯ {shown(view.query)}", "bold")] if view.query else []
    for round_view in view.rounds:
        parts += _round(round_view)
    if view.message:
        parts.append(Text(shown(view.message), "yellow"))
    return Group(*parts)


def input_text(element: ToolResultElement) -> str:
    """Return a call's input on one line: incomplete input as text, else JSON."""
    arguments: Any = element.input
    if arguments is None:
        return ""
    return msgspec.json.encode(arguments).decode() if isinstance(arguments, dict | list) else str(arguments)


def _round(view: RoundView) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"↻ {shown(why)}: asked again", "yellow") for why in view.retries]
    if view.thinking:
        parts.append(thinking_line(view.thinking))
    if view.text.strip():
        parts.append(Text(shown(view.text.strip())))
    if view.is_calling:
        parts.append(Text(CALLING, "cyan"))
    parts += [panel_of(each) for each in view.elements if each.status is not ToolStatus.CALLING]
    return parts + notes_of(view)


def _cut(text: str) -> str:
    return cut(text.rstrip("\n"), _MOST_LINES, _MOST_COLUMNS)


_LONGEST_ANSWER: Final = 1_000  # bytes of a typed answer
_GOES_ON: Final = "↪ "


class OutputStream(Console):
    """Standard output or standard error. When its reader has closed it, nothing more is printed, and
    `reader_gone` is called, which must not raise."""

    reader_gone: Callable[[], object] | None = None

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # buffered data are flushed at exit
        os.close(nowhere)
        if self.reader_gone is not None:
            self.reader_gone()


class Screen:
    """Shows text as it arrives, a panel for each call and a status line. With `quiet` it shows nothing."""

    def __init__(self, console: OutputStream, *, quiet: bool = False) -> None:
        self.view = LoopView()
        self._console = console
        self._quiet = quiet
        self._status: Status | None = None
        self._lines = AnswerLines(console)

    def on_reader_gone(self, call: Callable[[], object]) -> None:
        """Call this when the reader of the output has closed it, like `head`."""
        self._console.reader_gone = call

    def show_resumed(self, entries: list[LoopEntry]) -> None:
        """Show the entries of a run that is resumed."""
        for entry in entries:
            self.view.entry(entry)
        if not self._quiet and self.view.rounds:
            self._console.print(render(self.view))

    def show_delta(self, text: object, index: int, delta: ResponseDelta) -> None:
        """Show a delta of the model's answer (the loop's `finished_cb`)."""
        self.view.delta(delta)
        if self._quiet:
            return
        if delta.retry_reason is not None:
            self._lines.discard_thinking()
            self._print_line(Text(f"↻ {shown(str(delta.retry_reason))}: asked again", "yellow"))
        if delta.thinking is not None and delta.thinking.text:
            self._lines.add_thinking(delta.thinking.text)
            self._show_status("Thinking…")
        if delta.text.strip() or (delta.text and self._lines.mid_line):
            self._hide_status()
            self._lines.print_text(delta.text)
        if delta.begin_tool_calls:
            self._print_thinking()
            self._lines.end_line()
            self._show_status(CALLING)

    def show_hosted(self, item: UnknownItem, is_done: bool) -> None:
        """Show an item of a tool that the model's server runs (the loop's `hosted_cb`)."""
        element = self.view.hosted(item, is_done)
        if self._quiet or element is None:
            return
        if is_done:
            self._hide_status()
            self._lines.print_call(element)
        else:
            self._show_status(f"Running {name_of(element)}…")

    async def decline(self, request: ApprovalRequest) -> bool:
        """Decline a call for which nobody can be asked, and report that."""
        self.show_approval(request)
        self._console.print(
            Text("Declined, since there is no terminal to ask at; --yes allows every call.", "yellow")
        )
        return False

    def show_approval(self, request: ApprovalRequest) -> None:
        """Show what needs approval."""
        self._hide_status()
        self._lines.end_line()
        self._console.print(approval_panel(request))

    def show_entry(self, entry: LoopEntry) -> None:
        """Show an entry that was recorded."""
        self.view.entry(entry)
        if self._quiet:
            return
        if isinstance(entry, RoundMade):
            self._hide_status()
            self._print_thinking()
            self._lines.end_line()
            for note in notes_of(self.view.rounds[-1]):
                self._console.print(note, soft_wrap=True)
        elif isinstance(entry, CallsBegun):
            self._show_running(entry.ids)
        elif isinstance(entry, CallEnded):
            self._hide_status()
            element = self.view.element(entry.id)
            if element is not None:
                self._lines.print_call(element)

    def show_progress(self, tool_name: str, call_id: str, text: str) -> None:
        """Show the progress that a tool reports."""
        self.view.progress(call_id, text)
        if not self._quiet:
            self._show_status(f"{shown(tool_name)}: {shown(text)}")

    def show_result(self, result: LoopResult, notes: Iterable[Diagnostic] = ()) -> None:
        """Show how the run ended, its repairs and losses, and its usage."""
        if self._quiet:
            return
        self._hide_status()
        self._lines.end_line()
        if result.message:
            self._console.print(Text(shown(result.message), "yellow"))
        for note in notes:
            self._console.print(Text(shown(str(note)), "dim"))
        self._console.print(
            usage_line(result.usage, len(result.tool_call_rounds), len(result.tool_call_results))
        )

    def confirmation_prompt(self, token: CancellationToken) -> ConfirmationPrompt | None:
        """Return a prompt at this terminal; None if standard input is not a terminal."""
        return ConfirmationPrompt(self, token) if sys.stdin.isatty() else None

    def show_question(self, question: str) -> None:
        """Show a question, which is answered on the same line. A line that is wider than the screen is
        continued after a sign; otherwise its rest could be mistaken for a line of its own."""
        self._hide_status()
        self._lines.end_line()
        lines = shown(f"{question} [y/N] ").split("\n")
        pieces = [piece for line in lines for piece in _wrapped(line, self._console.width)]
        text = Text("\n".join(pieces), "bold", no_wrap=True, overflow="ignore")
        self._console.print(text, end="", crop=False)

    def _show_running(self, ids: list[str]) -> None:
        names = [element.name for each in ids if (element := self.view.element(each)) is not None]
        self._show_status(f"Running {shown(', '.join(names))}…")

    def _print_thinking(self) -> None:
        if self._lines.has_thinking:
            self._hide_status()
            self._lines.print_thinking()

    def _print_line(self, text: Text) -> None:
        self._hide_status()
        self._lines.end_line()
        self._console.print(text)

    def _show_status(self, what: str) -> None:
        """Show an animated status line, on terminals only."""
        if not self._console.is_terminal or self._lines.mid_line:
            return
        if self._status is None:
            self._status = self._console.status(Text(what, "cyan"))
            self._status.start()
        else:
            self._status.update(Text(what, "cyan"))

    def _hide_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def _wrapped(line: str, width: int) -> list[str]:
    """Return the pieces of a line that fit the width, each but the first one after a sign."""
    line = line.expandtabs()
    if cell_len(line) <= width:
        return [line]
    first, *others = chop_cells(line, max(2, width - cell_len(_GOES_ON)))
    return [first, *(f"{_GOES_ON}{each}" for each in others)]


class ConfirmationPrompt:
    """Asks for yes or no at the terminal, one question at a time. Cancelling the run answers no."""

    def __init__(self, screen: Screen, token: CancellationToken) -> None:
        self._screen = screen
        self._token = token
        self._lock = anyio.Lock()

    async def __call__(self, question: str) -> bool:
        async with self._lock:
            with anyio.CancelScope() as waiting:
                dispose: Callable[[], None] = self._token.on_cancellation_requested(waiting.cancel)
                try:
                    self._screen.show_question(question)
                    with suppress(termios.error):  # discard what was typed before the question
                        termios.tcflush(sys.stdin, termios.TCIFLUSH)
                    await anyio.wait_readable(sys.stdin.fileno())
                    answer = os.read(sys.stdin.fileno(), _LONGEST_ANSWER)
                    return answer.strip().lower() in (b"y", b"yes")
                finally:
                    dispose()
            return False

    async def approve(self, request: ApprovalRequest) -> bool:
        """Ask whether the model's server may run a call (the driver's `approve`)."""
        self._screen.show_approval(request)
        return await self("Allow this call?")

    async def confirm(self, tool_name: str, question: str) -> bool:
        """Ask whether a tool may run (the tools' `confirm`)."""
        return await self(f"{tool_name}: {question}")
