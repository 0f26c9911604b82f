"""`demo`: shows a round trip in the terminal: calls → events → parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from openresponses_cli.commands.flags import write_json
from openresponses_cli.commands.terminal import console_options

if TYPE_CHECKING:
    from openresponses_bridge.protocol.events import Event

_WIDTH: Final = 96  # characters of an event or a part that are shown
_PAUSE: Final = 0.12  # seconds between two calls, on a terminal only

# the machine's calls, in order, as a model's stream may cause them
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
_NEXT: Final = (
    ("serve", "this as a server"),
    ("inspect FILE", "such a tree of a stream of yours"),
    ("validate FILE", "what is wrong with it"),
    ("run codex", "a coding agent over any model"),
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print only the final response, as JSON.")
def command(as_json: bool) -> None:
    """Show a streamed round trip: the calls that a model's stream becomes, the events that they cause, the
    parts that VS Code would get, and the response at the end."""
    from rich.console import Console
    from rich.text import Text

    from openresponses_bridge import ResponseStreamStateMachine
    from openresponses_bridge.conformance import StreamValidator
    from openresponses_bridge.decoder import PartDecoder, encode_part
    from openresponses_bridge.protocol.codec import encode
    from openresponses_cli.commands.tree import WatchedResponse, tree

    console = Console(**console_options(), quiet=as_json)

    def show(sign: str, style: str, what: str) -> None:
        console.print(Text.assemble((f"{sign} ", style), (_shortened(what), style)), soft_wrap=True)

    machine = ResponseStreamStateMachine("demo", ids=_counting_ids(), clock=lambda: 1_767_225_600)
    decoder, validator, watched = PartDecoder(), StreamValidator(), WatchedResponse()
    parts, always = 0, True
    console.print("[bold cyan]→ a call[/]  [green]← an event[/]  [magenta]⇒ a part[/]\n")
    for name, arguments in _CALLS:
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        show("→", "bold cyan", f"machine.{name}({shown})")
        events: list[Event] = getattr(machine, name)(**arguments)
        for event in events:
            watched.feed(event)
            watched.add_violations(validator.feed(event))
            show("  ←", "green", encode(event).decode())
            for part in decoder.feed(event):
                parts += 1
                show("    ⇒", "magenta", encode_part(part).decode())
        always = always and watched.response == machine.snapshot
        if console.is_terminal and not as_json:
            time.sleep(_PAUSE)
    watched.add_violations(validator.close())
    if as_json:
        write_json(machine.snapshot)
        return
    console.print("\n[bold]What they add up to[/]")
    console.print(tree(watched))
    console.print(
        f"\n{len(_CALLS)} calls made {watched.events} events and {parts} parts. After each call, folding the "
        f"events so far gave {'exactly' if always else 'not'} machine.snapshot: what a client sees is what "
        "is stored. Reasoning, text and the tool call were opened and closed in order, and the call "
        "became one part once it was complete.\n"
    )
    console.print("[bold]Next[/]")
    for name, what in _NEXT:
        console.print(Text.assemble(("  openresponses-bridge ", "dim"), (f"{name:14}", "cyan"), what))


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


def _counting_ids() -> Callable[[str], str]:
    count = 0

    def make(prefix: str) -> str:
        nonlocal count
        count += 1
        return f"{prefix}_{count}"

    return make
