"""A watched response as a tree of its items: texts, calls, what is wrong, how quickly it came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text
from rich.tree import Tree

from openresponses_bridge.protocol.unknown import enc_hook
from openresponses_bridge.text import cut, latest, on_one_line
from openresponses_server.commands.watched import WatchedResponse

_COLOURS: Final = {
    "completed": "green",
    "failed": "red",
    "incomplete": "yellow",
    "cancelled": "yellow",
    "in_progress": "cyan",
    "queued": "cyan",
}
_NAME: Final = 120  # characters of a name, an id
_MESSAGE: Final = 600
_HEADS: Final = {"type", "id", "status", "name", "call_id", "role", "namespace"}
_KINDS: Final = {"message": "bold", "reasoning": "bold magenta"}
_MOST_LINES: Final = 20  # of violations and cases


class Space(NamedTuple):
    """How much of each text is shown; `growing`: its end instead of its beginning."""

    lines: int
    columns: int
    growing: bool = False


FINAL: Final = Space(12, 400)
WHOLE: Final = Space(1_000_000, 1_000_000)


def tree(watched: WatchedResponse, space: Space = FINAL, *, judged: bool = True) -> RenderableType:
    """All of a response that is known, as it stands; whether it was `judged` by the rules is said too."""
    response = watched.response
    if response is None:
        return Group(
            Text("no response yet" if not watched.events else "no response", "yellow"),
            *_below(watched, judged),
        )
    root = Tree(_title(response.id or "response", response.model, response.status), guide_style="dim")
    for index, item in enumerate(response.output):
        branch = root.add(_heading(index, item, watched.per_item[index]))
        for kind, text in texts_of(item):
            if text:
                branch.add(_block(kind, text, space))
    return Group(root, *_below(watched, judged))


class Newest:
    """The newest lines of something that is higher than the terminal."""

    def __init__(self, build: Callable[[Space], RenderableType]) -> None:
        self._build = build

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = max(4, (options.height or console.height) - 1)
        shown = self._build(Space(max(3, height // 2), options.max_width, growing=True))
        lines = console.render_lines(shown, options.update(height=None), pad=False)
        if len(lines) > height:
            lines = [lines[0], *lines[len(lines) - height + 1 :]]
        for line in lines:
            yield from line
            yield Segment.line()


def texts_of(item: Any) -> Iterator[tuple[str, str]]:
    """(kind, text) of everything in an item that a person reads."""
    for field in ("summary", "content"):
        parts = getattr(item, field, None)
        for part in parts if isinstance(parts, list) else ():
            yield from _texts_of_part(field, part)
    for field in ("arguments", "input", "output"):
        value = getattr(item, field, None)
        if isinstance(value, str):
            yield field, value
    sealed = getattr(item, "encrypted_content", None)
    if isinstance(sealed, str):
        yield "sealed", f"{len(sealed)} characters of encrypted_content"
    if not any(hasattr(item, field) for field in ("summary", "content", "arguments", "input")):
        fields = msgspec.to_builtins(item, enc_hook=enc_hook)
        rest = {name: value for name, value in fields.items() if name not in _HEADS}
        if rest:
            yield "json", msgspec.json.encode(rest).decode()


def _texts_of_part(field: str, part: Any) -> Iterator[tuple[str, str]]:
    text, refusal = getattr(part, "text", None), getattr(part, "refusal", None)
    if isinstance(text, str):
        yield "summary" if field == "summary" else "text", text
    elif isinstance(refusal, str):
        yield "refusal", refusal
    else:
        yield "json", msgspec.json.encode(msgspec.to_builtins(part, enc_hook=enc_hook)).decode()


def _title(name: str, model: str, status: str) -> Text:
    title = Text(on_one_line(name, _NAME), "bold")
    if model:
        title.append(f" · {on_one_line(model, _NAME)}", "not bold")
    return title.append(f" · {on_one_line(status, _NAME)}", f"not bold {_COLOURS.get(status, '')}".strip())


def _heading(index: int, item: Any, events: int) -> Text:
    kind, status = str(item.type), getattr(item, "status", None)
    heading = Text.assemble((f"{index} ", "dim"), (on_one_line(kind, _NAME), _KINDS.get(kind, "bold blue")))
    for field in ("name", "call_id"):
        value = getattr(item, field, None)
        if isinstance(value, str) and value:
            heading.append(f" {on_one_line(value, _NAME)}", "" if field == "name" else "dim")
    if isinstance(status, str):
        heading.append(f" · {on_one_line(status, _NAME)}", _COLOURS.get(status, ""))
    return heading.append(f" · {_of(events, 'event')}", "dim") if events else heading


def _block(kind: str, text: str, space: Space) -> Text:
    shown = (
        latest(text, space.lines, space.columns) if space.growing else cut(text, space.lines, space.columns)
    )
    style = {"text": "", "summary": "italic", "refusal": "red", "sealed": "dim"}.get(kind, "cyan")
    return Text(shown, style, overflow="fold")


def _below(watched: WatchedResponse, judged: bool) -> Iterator[Text]:
    if (error := watched.error) is not None:
        yield Text(f"✗ {': '.join(on_one_line(each, _MESSAGE) for each in error)}", "red")
    yield from _some([Text(f"✗ {on_one_line(str(each), _MESSAGE)}", "red") for each in watched.violations])
    cases = [(each.event, on_one_line(str(each.case), _MESSAGE)) for each in watched.pinned]
    yield from _some([Text(f"! event {event}: {case}", "yellow") for event, case in cases])
    if watched.not_shown:
        yield Text(f"… and {watched.not_shown} more that were not kept", "yellow")
    yield Text(" · ".join(_counts(watched, judged)), "dim")


def _some(lines: list[Text]) -> list[Text]:
    more = len(lines) - _MOST_LINES
    return lines if more <= 0 else [*lines[:_MOST_LINES], Text(f"… and {more} more", lines[0].style)]


def _counts(watched: WatchedResponse, judged: bool) -> Iterator[str]:
    if watched.events:
        yield _of(watched.events, "event")
    if judged:
        yield _of(len(watched.violations), "violation") if watched.violations else "no violations"
    if (pace := watched.pace) is not None:
        yield f"{pace.seconds:.2f} s"
        if pace.first_output_seconds is not None:
            yield f"first output after {pace.first_output_seconds:.2f} s"
        if pace.tokens_per_second is not None:
            yield f"{pace.tokens_per_second:.1f} tokens/s"
        elif pace.characters_per_second is not None:
            yield f"{pace.characters_per_second:.0f} characters/s"
    usage = watched.response.usage if watched.response is not None else None
    if usage is not None:
        yield f"{usage.input_tokens} input + {usage.output_tokens} output tokens"


def _of(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
