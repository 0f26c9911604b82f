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
        "`make docs` generates this page from the tables in `bridge/openresponses_bridge/state.py`, which",
        "the machine and the validator use too. [rules.md](rules.md) has every rule,",
        "[snapshots](../snapshots/README.md) complete streams.",
        "",
        "A response is a list of items (messages, reasoning, calls). An item has parts, and a part has text,",
        "which is sent in deltas. The events of a stream are numbered from 0, and `output_index` says which",
        "item an event belongs to. Each item is opened, filled and closed. One terminal event with the whole",
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
        "For backend authors: the rules that every stream must follow.",
        "",
        "`make docs` generates this page from the register in `bridge/openresponses_bridge/conformance/`;",
        "`validate --explain RULE` shows one rule. Each example is a valid stream with one change, followed",
        "by the output of `validate` for it on the wire `openresponses`.",
        "",
        "A clause names the source of the rule: *strict judge* is an independent validator of streams that",
        "reports this as an error, *law* and *field case* are [this project's](laws.md), and `state.…` is a",
        "table in `bridge/openresponses_bridge/state.py`.",
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
    outcomes: dict[str, Outcomes] = {}
    for name, (side, options) in sides.items():
        assert side is not None
        outcomes[name] = side.outcomes(side.options(**options))
    return outcomes


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
        "For client users and backend authors: how each upstream treats each field of a request.",
        "",
        "`make docs` generates this page from the tables that the translation of requests uses. Each field",
        "of a request is *sent* to the upstream, *honoured* by the server itself, *refused* with 400 and",
        "`param`, or a *loss*. Losses are in the log and in the header `openresponses-losses`, together with",
        "those that an upstream reports in a header of that name. A single value that can't be kept (an",
        "`include`, a tool, a level) is a loss or refused too. A field that asks for nothing, such as",
        "`truncation: disabled`, never is.",
        "",
        "The server handles some fields before the translation. It fills in [prompts](requests.md#prompts)",
        "from its own folder, and with `truncation: auto` it",
        "[shortens](requests.md#conversations-that-are-too-long) a conversation if it knows the model's",
        "limit. A level of `reasoning.effort` that the model is known to lack is sent as the nearest one. A",
        "`file_url` is a loss at Chat Completions unless the upstream's `fetch` has `files`. For upstreams",
        "of Responses with `supersets`, a missing `prompt_cache_key` is derived from the request's owner and",
        "the client's session (Claude Code's `metadata.user_id`, Codex's header `session_id`).",
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
        "Fields that the protocol does not have are kept with their object: an item, a part of it, a",
        "citation, the response, its `usage`, `reasoning` and `text`. They are stored, replayed and sent",
        "back in later turns. Each object keeps at most 32 of the fields that an upstream sends, each of at",
        "most 64 KB and 32 levels. Secrets in them are sent to upstreams and left out everywhere else.",
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
            ("the upstream's name for the model", "", "", *["`openresponses-bridge:upstream_model`"] * 2),
            (
                "what else an answer or its error says in the upstream's own API",
                "",
                "",
                "`openresponses-bridge:native`",
                "as it came to clients of that API, else loss",
            ),
        ),
        "",
        "A loss is reported once for each name: losses of a request as described above, losses of an answer",
        "in the metrics and in its trace. In a stream of Chat Completions, unknown fields are read from the",
        "first chunk and from the chunks that end it; in other chunks they are dropped, since reading them",
        "would slow down each token.",
        "",
        *feature_lines(),
        *answer_lines(),
        "## Between Gemini and other APIs",
        "",
        "This table comes from translating a request with each field. A *refused* field would change the",
        "meaning of the rest of the request. In answers, sources become citations in both directions;",
        "thoughts, calls, images, token counts, log probabilities and finish reasons are kept too. Ratings,",
        "detailed counts, times and the actions of Gemini's own tools are losses in other APIs.",
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
