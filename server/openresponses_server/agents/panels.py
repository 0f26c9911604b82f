"""A loop's view in the terminal: a panel for each call, thinking in one line, usage at the end.

What models and tools wrote is shown without what would move the cursor or ring the bell.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from openresponses_bridge.loop import LoopView, RoundView, ToolResultElement, ToolStatus
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.text import shown

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
