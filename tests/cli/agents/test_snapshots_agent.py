"""What is kept and shown of a run: rounds, journal, panels, page."""

from collections.abc import Iterable
from io import StringIO
from typing import Any

import pytest
from msgspec import to_builtins
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from openresponses_agent.loop import AskModel, CallsBegun, LoopEntry, LoopView
from openresponses_agent.tools.errors import ToolDeclinedError, ToolFailureEncountered
from openresponses_agent.tools.registry import ToolCallOutcome
from openresponses_agent.tools.results import LanguageModelToolResult
from openresponses_bridge.protocol.usage import Usage
from openresponses_cli.agents.html import html_of
from openresponses_cli.agents.screen import render, usage_line
from tests.support.loops import Answer, Driven, driven, events_of, failing, lines, succeed
from tests.support.snapshots import snapshots

HOSTILE = "<script>alert(1)</script> \x1b[2J\x07 [bold]x[/bold] \u202edlrow"
LONG = "\n".join(f"line {number}" for number in range(40))


@pytest.fixture(scope="module")
def made() -> Driven:
    """A run with a call of every kind, an attempt that was interrupted, and words that mean harm."""
    loop = driven("Change <b>it</b>")
    declined = ToolFailureEncountered("change", ToolDeclinedError("no"), 0)
    outcomes = {
        "c1": succeed,
        "c2": failing,
        "c3": lambda call: ToolCallOutcome(LanguageModelToolResult.failure("Error: Not allowed"), declined),
        "c4": lambda call: None,
        "c5": lambda call: ToolCallOutcome(LanguageModelToolResult.of(LONG)),
        "c6": lambda call: ToolCallOutcome(LanguageModelToolResult.of(HOSTILE)),
    }
    calls: list[Any] = [("c1", "look", {"value": "a"}), ("c2", "change", {"value": "b"})]
    calls += [(f"c{number}", "change", {}) for number in (3, 4, 5)]
    answers = [
        Answer("Half", cut=True),
        Answer("I look first.", calls, thinking="First I look, then I change it.", usage=Usage.of(100, 20)),
        Answer("", [("c6", "look", {"value": HOSTILE})]),
        Answer(f"Done: {HOSTILE}", usage=Usage.of(200, 10, cached_tokens=100)),
    ]
    loop.drive(answers, lambda call: outcomes[call.call_id](call))
    return loop


def view_of(entries: Iterable[LoopEntry]) -> LoopView:
    view = LoopView()
    for entry in entries:
        view.entry(entry)
    return view


def in_progress(made: Driven) -> LoopView:
    """The first round while its first call runs."""
    view = view_of(made.entries[: [type(each) for each in made.entries].index(CallsBegun) + 1])
    view.progress("internal_call_001", "1 of 3 files")
    return view


def calling() -> LoopView:
    """The model is writing a call."""
    view = LoopView()
    loop = driven(finished_cb=lambda text, index, delta: view.delta(delta))
    ask = next(loop.loop.run())
    assert isinstance(ask, AskModel)
    reader = ask.reader()
    for event in events_of(Answer("I look.", [("c1", "look", {"value": "a"})], thinking="Hm.")):
        if event.type == "response.function_call_arguments.done":
            break
        reader.feed(event)
    return view


def terminal(*shown: Any) -> str:
    out = StringIO()
    console = Console(file=out, width=80, highlight=False, color_system=None)
    console.print(*shown, sep="\n")
    return out.getvalue()


@snapshots("rounds.json")
def test_rounds(made: Driven, snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    assert made.result is not None
    assert made.result.as_json() == snapshot


@snapshots("prompt.json")
def test_the_last_prompt(made: Driven, snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    assert to_builtins(made.prompts[-1].prompt.messages) == snapshot


@snapshots("journal.jsonl")
def test_journal(made: Driven, snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    assert lines(made.entries) == snapshot


@snapshots("panels.txt")
def test_panels(made: Driven, snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    assert made.result is not None
    shown = terminal(render(view_of(made.entries)), usage_line(made.result.usage, 3, 6))
    assert "\x1b" not in shown
    assert shown == snapshot


@snapshots("panels-running.txt")
def test_panels_while_it_runs(made: Driven, snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    assert terminal(render(in_progress(made)), render(calling())) == snapshot


@snapshots("run.html")
def test_page(made: Driven, snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    page = html_of(view_of(made.entries))
    assert "<script" not in page
    assert not {"\x1b", "\x07", "\u202e"} & {*page}
    assert page.replace("><", ">\n<") == snapshot


@snapshots("run-running.html")
def test_page_while_it_runs(made: Driven, snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    assert (html_of(in_progress(made)) + html_of(calling())).replace("><", ">\n<") == snapshot
