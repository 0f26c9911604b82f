"""A watched response, and its tree: items, texts, violations and rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text
from rich.tree import Tree

from openresponses_bridge.conformance import Violation
from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.protocol.events import (
    TERMINAL_EVENTS,
    Event,
    ResponseCreated,
    ResponseInProgress,
    ResponseQueued,
)
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import enc_hook
from openresponses_bridge.text import counted, cut, latest, on_one_line

# A watched response: the response so far, its violations, and its rate.

_OPENING = (ResponseCreated, ResponseQueued, ResponseInProgress)
_MOST_PINNED: Final = 1_000
_SHORTEST: Final = 0.1  # seconds; a shorter stream arrived at once, so that its rate is meaningless


class PinnedDiagnostic(NamedTuple):
    """A repair or loss, and the index (from 0) of the event at which it was noticed."""

    event: int
    case: Diagnostic


class OutputRate(NamedTuple):
    """Seconds from the first event to the last and to the first output; and the rates from there: characters
    per second, and tokens per second if the server has counted them."""

    seconds: float
    first_output_seconds: float | None
    characters_per_second: float | None
    tokens_per_second: float | None


class WatchedResponse:
    """Accumulates the events of one response. `now` returns their times, in seconds."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.events = 0
        self.per_item: Counter[int] = Counter()
        self.violations: list[Violation] = []
        self.pinned: list[PinnedDiagnostic] = []
        self.not_shown = 0
        """The number of violations and diagnostics that exceed the limit and were not kept."""
        self.ended = False
        self._now = now
        self._fold = ResponseAccumulator()
        self._whole: Response | None = None
        self._characters = 0
        self._begun = self._first = self._last = 0.0

    def feed(self, event: Event) -> None:
        """Add the next event."""
        self._fold.feed(event)
        index = getattr(event, "output_index", None)
        if isinstance(index, int):
            self.per_item[index] += 1
        if self._now is not None:
            self._last = self._now()
            self._begun = self._begun or self._last
            if not self._first and not isinstance(event, _OPENING):
                self._first = self._last
            delta = getattr(event, "delta", None)
            self._characters += len(delta) if isinstance(delta, str) else 0
        self.events += 1
        self.ended = self.ended or type(event) in TERMINAL_EVENTS

    def count_unreadable(self) -> None:
        """Count data that are not an event."""
        self.events += 1

    def whole(self, response: Response) -> None:
        """Set the whole response, which was not streamed."""
        self._whole, self.ended = response, True

    def add_violations(self, violations: list[Violation]) -> None:
        """Add violations of the protocol."""
        self._keep(self.violations, violations)

    def add_diagnostics(self, cases: list[Diagnostic]) -> None:
        """Add repairs and losses at the latest event."""
        self._keep(self.pinned, [PinnedDiagnostic(max(0, self.events - 1), case) for case in cases])

    @property
    def response(self) -> Response | None:
        """The response so far."""
        return self._whole or self._fold.response

    @property
    def error(self) -> tuple[str, str] | None:
        """The code and message of the response's error."""
        response, sent = self.response, self._fold.error
        if response is not None and response.error is not None:
            return response.error.code, response.error.message
        return None if sent is None else (str(sent.code or sent.type), str(sent.message))

    @property
    def pace(self) -> OutputRate | None:
        """The rates; None without times."""
        if not self._begun:
            return None
        first = self._first - self._begun if self._first else None
        usage = self.response.usage if self.response is not None else None
        duration = self._last - (self._first or self._begun)
        timed = duration >= _SHORTEST
        characters = self._characters / duration if timed and self._characters else None
        tokens = usage.output_tokens / duration if timed and usage is not None else None
        return OutputRate(self._last - self._begun, first, characters, tokens)

    def as_json(self) -> dict[str, Any]:
        """Return everything except the texts, for scripts."""
        response, pace = self.response, self.pace
        shown: dict[str, Any] = {
            "id": response.id if response else None,
            "model": response.model if response else None,
            "status": response.status if response else None,
            "error": None if self.error is None else dict(zip(("code", "message"), self.error, strict=True)),
            "events": self.events,
            "items": [self._item(index, item) for index, item in enumerate(response.output)]
            if response
            else [],
            "violations": msgspec.to_builtins(self.violations),
            "diagnostics": [{"event": each.event, **each.case._asdict()} for each in self.pinned],
            "not_shown": self.not_shown,
            "usage": msgspec.to_builtins(response.usage, enc_hook=enc_hook) if response else None,
        }
        return shown | ({} if pace is None else _rounded(pace))

    def _item(self, index: int, item: Any) -> dict[str, Any]:
        fields = {name: getattr(item, name, None) for name in ("type", "id", "status", "name")}
        return {
            "output_index": index,
            **{name: value for name, value in fields.items() if isinstance(value, str)},
            "events": self.per_item[index],
        }

    def _keep(self, entries: list[Any], more: list[Any]) -> None:
        room = max(0, _MOST_PINNED - len(entries))
        entries += more[:room]
        self.not_shown += len(more[room:])


def _rounded(pace: OutputRate) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 3) for name, value in pace._asdict().items()}


_COLOURS: Final = {
    "completed": "green",
    "failed": "red",
    "incomplete": "yellow",
    "cancelled": "yellow",
    "in_progress": "cyan",
    "queued": "cyan",
}
_NAME: Final = 120  # characters of a name or an id
_MESSAGE: Final = 600
_HEADS: Final = {"type", "id", "status", "name", "call_id", "role", "namespace"}
_KINDS: Final = {"message": "bold", "reasoning": "bold magenta"}
_MOST_LINES: Final = 20  # of violations and diagnostics


class Space(NamedTuple):
    """The length at which texts are cut. If `growing`, the end is shown instead of the beginning."""

    lines: int
    columns: int
    growing: bool = False


FINAL: Final = Space(12, 400)
WHOLE: Final = Space(1_000_000, 1_000_000)


def tree(watched: WatchedResponse, space: Space = FINAL, *, judged: bool = True) -> RenderableType:
    """Return the tree of a response; `judged` is True if it was checked against the rules."""
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


class NewestLines:
    """The last lines of a renderable that is taller than the terminal."""

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
    """Yield (kind, text) of all readable texts in an item."""
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
    return heading.append(f" · {counted(events, 'event')}", "dim") if events else heading


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
        yield counted(watched.events, "event")
    if judged:
        yield counted(len(watched.violations), "violation") if watched.violations else "no violations"
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
