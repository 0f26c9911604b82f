"""`demo`: a round trip in the terminal, calls → events → parts, and the snapshot beside them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import click

from bridge.protocol.events import Event

_WIDTH: Final = 96  # characters of an event or part that are shown
_PAUSE: Final = 0.12  # seconds between two calls, on a terminal only

# what a model might do: the machine's calls, in order
_CALLS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("start", {}),
    ("reasoning", {"delta": "Weather first, "}),
    ("reasoning", {"delta": "then an answer."}),
    ("text", {"delta": "Let me look"}),
    ("text", {"delta": " that up."}),
    ("tool_call", {"index": 0, "id": "call_1", "name": "get_weather"}),
    ("tool_call", {"index": 0, "arguments": '{"location":'}),
    ("tool_call", {"index": 0, "arguments": ' "Paris"}'}),
    ("usage", {"usage": {"input_tokens": 12, "output_tokens": 20}}),
    ("finish", {"reason": "tool_calls"}),
)


@click.command()
def command() -> None:
    """Show a streamed round trip: the calls a model's stream becomes, the events they cause, the parts
    that VS Code would get, and the snapshot at the end."""
    from rich.console import Console
    from rich.text import Text

    from bridge import ResponseStreamStateMachine
    from bridge.decoder import PartDecoder, encode_part
    from bridge.protocol.codec import encode

    console = Console(highlight=False)

    def show(sign: str, style: str, what: str) -> None:
        console.print(Text.assemble((f"{sign} ", style), (_shortened(what), style)), soft_wrap=True)

    machine = ResponseStreamStateMachine("demo", ids=_counting_ids(), clock=lambda: 1_767_225_600)
    decoder = PartDecoder()
    console.print("[bold cyan]→ a call[/]  [green]← an event[/]  [magenta]⇒ a part[/]\n")
    for name, arguments in _CALLS:
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        show("→", "bold cyan", f"machine.{name}({shown})")
        events: list[Event] = getattr(machine, name)(**arguments)
        for event in events:
            show("  ←", "green", encode(event).decode())
            for part in decoder.feed(event):
                show("    ⇒", "magenta", encode_part(part).decode())
        if console.is_terminal:
            time.sleep(_PAUSE)
    console.print("\n[bold]machine.snapshot[/]")
    console.print_json(encode(machine.snapshot).decode(), indent=2)


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


def _counting_ids() -> Callable[[str], str]:
    made = 0

    def make(prefix: str) -> str:
        nonlocal made
        made += 1
        return f"{prefix}_{made}"

    return make
