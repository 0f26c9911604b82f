"""Draws pages from what the code itself uses: `make docs`. docs/states.md is drawn from
bridge/openresponses_bridge/state.py, docs/rules.md from the register of rules, docs/fields.md from what each
dialect makes of a request's fields, docs/settings.md from the settings of the server, the flags of `serve`
and the options of dialects, docs/upstreams.md from profiles, docs/errors.md from where errors are made,
docs/conformance.md from the scenarios, the plots in docs/benchmarks and the table of docs/benchmarks.md from
benchmarks/results.json, docs/engines.md from engines.json, the plots in docs/capacity and the tables of
docs/capacity.md from the figures there.

The pages are committed; a test regenerates them and fails when what they are drawn from has moved on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from drawn_across import across
from drawn_answers import answer_lines
from drawn_benchmarks import benchmarks_page
from drawn_benchmarks import plots as benchmark_plots
from drawn_capacity import capacity_page, capacity_plots
from drawn_conformance import conformance_page
from drawn_engines import engines_page
from drawn_errors import errors_page
from drawn_features import feature_lines
from drawn_settings import settings_page
from drawn_upstreams import upstreams_page

from openresponses_bridge import Event, ResponseStreamStateMachine, state
from openresponses_bridge.conformance import RULES
from openresponses_bridge.conformance.examples import explanation
from openresponses_bridge.dialects import (
    anthropic_messages,
    bedrock_converse,
    chat_completions,
    codex,
    gemini,
    interactions,
    responses,
)
from openresponses_bridge.dialects.base import OTHER, Outcome, Outcomes

FOLDER = Path(__file__).parent


def _diagram(start: str, edges: list[tuple[str, str, str]]) -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start}"]
    lines += [f"    {source} --> {target}: {label}" for source, target, label in edges]
    return [*lines, "```", ""]


def _methods() -> list[tuple[str, str, str]]:
    """The machine's methods, those that lead the same way on one edge."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for phase, methods in state.METHODS.items():
        for method, ways in sorted(methods.items()):
            for target in sorted(set(ways.values())):
                grouped.setdefault((phase, target), []).append(method)
    return [(source, target, ", ".join(methods)) for (source, target), methods in grouped.items()]


def _table(transitions: dict[str, dict[str, str]]) -> list[tuple[str, str, str]]:
    return [(source, target, label) for source, ways in transitions.items() for label, target in ways.items()]


def _strings(table: object) -> dict[str, dict[str, str]]:
    assert isinstance(table, dict)
    return {str(source): {str(k): str(v) for k, v in ways.items()} for source, ways in table.items()}


def _roles() -> list[str]:
    lines = ["| event | block | does |", "| --- | --- | --- |"]
    lines += [f"| `{event}` | {role.subject} | {role.verb} |" for event, role in state.ROLES.items()]
    return [*lines, ""]


def _stream() -> list[str]:
    """A stream, call by call, as the machine makes it."""
    machine = ResponseStreamStateMachine(model="m")
    calls: list[tuple[str, Callable[[], list[Event]]]] = [
        ("start()", machine.start),
        ('reasoning("Rain?")', lambda: machine.reasoning("Rain?")),
        ('text("Let me look.")', lambda: machine.text("Let me look.")),
        ('tool_call(0, id="c", name="weather")', lambda: machine.tool_call(0, id="c", name="weather")),
        ('tool_call(0, arguments="{}")', lambda: machine.tool_call(0, arguments="{}")),
        ('finish("tool_calls")', lambda: machine.finish("tool_calls")),
    ]
    lines = ["| call | number | event | index |", "| --- | --- | --- | --- |"]
    for name, call in calls:
        for event in call():
            index = getattr(event, "output_index", "")
            lines.append(
                f"| {f'`{name}`' if name else ''} | {event.sequence_number} | `{event.type}` | {index} |"
            )
            name = ""
    return [*lines, ""]


def page() -> str:
    """The whole page."""
    sections = [
        "# The protocol on one page",
        "",
        "For backend authors and maintainers: the protocol as tables.",
        "",
        "Drawn from the tables in `bridge/openresponses_bridge/state.py` by `make docs`; the machine, the",
        "validator and this page read the same tables. [rules.md](rules.md) has every clause,",
        "[snapshots](../snapshots/README.md) whole streams.",
        "",
        "A response is a list of items (messages, reasoning, calls), an item has parts, a part has text",
        "that comes in deltas. Events of a stream are numbered from 0; `output_index` says which item one",
        "belongs to. Each item is opened, filled and closed, and one terminal event with the whole",
        "response ends the stream: `response.completed`, `response.incomplete` or `response.failed`.",
        "",
        "## A stream, call by call",
        "",
        *_stream(),
        "## The machine's methods",
        "",
        *_diagram("idle", _methods()),
        "## A stream as its reader sees it",
        "",
        *_diagram("expecting", _table(_strings(state.STREAM))),
        "## An item",
        "",
        *_diagram("absent", _table(_strings(state.ITEM))),
        "## A content or summary part",
        "",
        *_diagram("absent", _table(_strings(state.PART))),
        "## A call's arguments",
        "",
        *_diagram("absent", _table(_strings(state.ARGUMENTS))),
        "## What each event does",
        "",
        *_roles(),
    ]
    return "\n".join(sections).rstrip() + "\n"


def _subject(docstring: str) -> str:
    subject = docstring.partition("\n")[0].partition(". ")[0].removeprefix("Rules about ").rstrip(".")
    return subject[:1].upper() + subject[1:]


def rules_page() -> str:
    """The page of rules: what each asks, where that is said, and a stream that breaks it."""
    lines = [
        "# Rules",
        "",
        "For backend authors: what a stream must fulfil, rule by rule.",
        "",
        "Drawn by `make docs` from the register in `bridge/openresponses_bridge/conformance/`;",
        "`validate --explain RULE` shows one of them. Each example is one change of a clean stream, and",
        "below it what `validate` says of it on the wire `openresponses`.",
        "",
        "In a clause, *strict judge* is what an independent validator of streams holds to be an error;",
        "*law* and *field case* are this project's, `state.…` the table in",
        "`bridge/openresponses_bridge/state.py` that decides.",
    ]
    module = ""
    for rule in RULES.values():
        if rule.check.__module__ != module:
            module = rule.check.__module__
            heading = _subject(sys.modules[module].__doc__ or "")
            lines += ["", f"## {heading}"]
        shown = explanation(rule.id)
        lines += ["", f"### `{rule.id}`", "", rule.description, "", f"Clause: {rule.source}.", ""]
        lines += [f"Example: {shown.example}.", "", "```text", *shown.violations[:1], "```"]
    return "\n".join(lines) + "\n"


def tables() -> dict[str, Outcomes]:
    """The tables of the fields, by what the upstream speaks."""
    sides = {
        "chat": (chat_completions.DIALECT.upstream, {}),
        "anthropic": (anthropic_messages.DIALECT.upstream, {}),
        "gemini": (gemini.DIALECT.upstream, {}),
        "bedrock": (bedrock_converse.DIALECT.upstream, {}),
        "interactions": (interactions.DIALECT.upstream, {}),
        "responses": (responses.DIALECT.upstream, {}),
        "codex": (codex.DIALECT.upstream, {}),
        "responses, `supersets = false`": (responses.DIALECT.upstream, {"supersets": False}),
        "responses, `stateful = true`": (responses.DIALECT.upstream, {"stateful": True}),
    }
    found: dict[str, Outcomes] = {}
    for name, (side, options) in sides.items():
        assert side is not None
        found[name] = side.outcomes(side.options(**options))
    return found


_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")  # of a field, which may break where words do not


def _cell(outcome: Outcome) -> str:
    if outcome.kind == "sent":
        return f"sent: {outcome.what}" if " " in outcome.what else f"sent as `{outcome.what}`"
    what = _NAME.sub(r"`\g<0>`", outcome.what)
    return f"{outcome.kind}: {what}"


def _cells(head: Sequence[str], *rows: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def fields_page() -> str:
    """The page of the fields."""
    columns = tables()
    names = sorted({name for table in columns.values() for name in table} - {OTHER})
    lines = [
        "# What becomes of each field",
        "",
        "For client users and backend authors: what becomes of a request's field at each upstream.",
        "",
        "Drawn by `make docs` from the tables that the translation of requests uses. A field of a request is",
        "*sent* to the upstream, *honoured* on this side of it, *refused* with 400 and `param`, or a *loss*:",
        "a line in the log and in the header `openresponses-losses`, which also carries what an upstream",
        "reports in a header of that name. What can't be kept of one value (an `include`, a tool, a level)",
        "is a loss or refused too; a field that asks for nothing, such as `truncation: disabled`, never is.",
        "What the server does itself before is not a loss: it fills in [prompts](requests.md#prompts) of its",
        "own folder, and where the model's limit is known it",
        "[shortens](requests.md#conversations-that-are-too-long) a conversation with `truncation: auto`.",
        "A level of `reasoning.effort` that the model is known not to have goes out as the nearest. A",
        "`file_url` is a loss at Chat Completions unless the upstream's `fetch` has `files`.",
        "A `prompt_cache_key` that is left out is made of the session that the client names, in Claude",
        "Code's `metadata.user_id` or Codex's header `session_id`, and of its owner, for upstreams of",
        "Responses with `supersets`.",
        "",
        "| field | " + " | ".join(columns) + " |",
        "| --- |" + " --- |" * len(columns),
    ]
    for name in [*names, OTHER]:
        title = name if " " in name else f"`{name}`"
        cells = (_cell(table[name]) for table in columns.values())
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Within items, and in answers",
        "",
        "Fields that the protocol does not have are kept with their object: with an item, a part of it, a",
        "citation, the response, its `usage`, `reasoning` and `text`. They are stored, streamed again and",
        "sent back in later turns. Of what an upstream sends, each object keeps 32, of at most 64 KB and 32",
        "levels; secrets in them are left out of all but what goes to an upstream.",
        "",
        *_cells(
            (
                "what",
                "to Responses, `supersets`",
                "to any other",
                "to the wire `openai`",
                "to any other client",
            ),
            ("unknown fields of items and parts (`caller`)", "sent", "loss", "kept", "loss"),
            (
                "an explicit `prompt_cache_breakpoint` of a part, or another client's `cache_control`",
                "sent",
                "Anthropic: `cache_control`, the last four; Chat with `cache_breakpoints`; else loss",
                "",
                "",
            ),
            ("of the response (`moderation`, `tool_usage`, `conversation`)", "", "", "kept", "loss"),
            ("of its usage, and how it reasoned (`reasoning.context`)", "", "", "kept", "loss"),
            ("the real `service_tier`, the effort that was used", "", "", "kept", "kept"),
            ("the upstream's name of its model", "", "", *["`openresponses-bridge:upstream_model`"] * 2),
            (
                "what else an answer or its error says in the upstream's own API",
                "",
                "",
                "`openresponses-bridge:native`",
                "as it came to clients of that API, else loss",
            ),
        ),
        "",
        "A loss is reported once for each name: of a request as above; of an answer it is counted in the",
        "metrics, and in its trace.",
        "Of a stream of Chat Completions the first chunk and those that end it are read for what else they",
        "say; what stands alone in those between is not kept, since reading each would slow down each token.",
        "",
        *feature_lines(),
        *answer_lines(),
        "## Between Gemini and other APIs",
        "",
        "Drawn by translating a request with each field. What is *refused* would change what the rest of the",
        "request means. Of an answer, sources become citations in both directions, as do thoughts, calls,",
        "images, token counts, log probabilities and the reasons of an end; ratings, details of counts,",
        "times and what its own tools did are losses elsewhere.",
        "",
        *across(),
    ]
    return "\n".join(lines) + "\n"


PAGES = {
    "states.md": page,
    "rules.md": rules_page,
    "fields.md": fields_page,
    "settings.md": settings_page,
    "upstreams.md": upstreams_page,
    "errors.md": errors_page,
    "conformance.md": conformance_page,
    "benchmarks.md": benchmarks_page,
    "capacity.md": capacity_page,
    "engines.md": engines_page,
}


def plots() -> dict[str, str]:
    """All pictures that are drawn from figures, by their names in docs/."""
    return {**benchmark_plots(), **capacity_plots()}


if __name__ == "__main__":
    for name, draw in PAGES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
    for name, drawn in plots().items():
        (FOLDER / name).write_text(drawn, encoding="utf-8")
