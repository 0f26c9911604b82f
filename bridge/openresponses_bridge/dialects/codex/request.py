"""A request of ours → one turn of Codex, as an object that says all that starting it takes.

`{model, instructions, history, input, effort, summary, output_schema, approvals}`: `history` are raw items
for a thread that does not have them yet, `input` the parts of the user's message; what is null is left to
Codex. A request with `approvals` goes on with a turn that waits, and has no input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    Outgoing,
    RequestContext,
    apply,
    effort_of,
    entries_of,
    invalid,
    is_answered_trigger,
)
from openresponses_bridge.dialects.codex.fields import FIELDS
from openresponses_bridge.dialects.codex.options import DEFAULT_OPTIONS, CodexOptions
from openresponses_bridge.dialects.codex.turn_input import TurnInput, split
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam

_SUMMARIES = frozenset({"auto", "concise", "detailed", "none"})


def to_turn(
    request: CreateResponse,
    *,
    model: str | None = None,
    history: Sequence[Any] = (),
    options: CodexOptions = DEFAULT_OPTIONS,
) -> tuple[dict[str, Any], Diagnostics]:
    """(the turn, what was lost on the way). `history` are the items of earlier turns; `model` replaces the
    request's.

    Raises InvalidRequestError with `param` for what Codex can't be shown, and when no user's message comes
    last.
    """
    diagnostics = Diagnostics()
    name = model or request.model
    given = TurnInput(diagnostics)
    entries = entries_of(request, history)
    given.read(entry for entry in entries if not is_answered_trigger(entry, entries[-1]))
    apply(request, FIELDS, diagnostics)
    body: dict[str, Any] = {
        "model": None if name == options.own_model else name,
        "instructions": request.instructions or None,
        "effort": effort_of(request),
        "summary": _summary(request, diagnostics),
        "output_schema": _schema(request, diagnostics),
        "approvals": given.approvals,
    }
    if given.approvals:
        if any(getattr(item, "role", None) == "user" for item in request.input or ()):
            raise invalid("input", "an approval is answered by itself, without a message")
        return body | {"history": given.items, "input": []}, diagnostics
    before, parts = split(given.items)
    return body | {"history": before, "input": parts}, diagnostics


def to_upstream(request: CreateResponse, context: RequestContext) -> Outgoing:
    """The same as the dialect's entry has it."""
    body, diagnostics = to_turn(
        request, model=context.model, history=context.history, options=context.options
    )
    return Outgoing(encode(body), diagnostics)


def _summary(request: CreateResponse, diagnostics: Diagnostics) -> str | None:
    asked = request.reasoning.summary if request.reasoning is not None else None
    if not asked or asked in _SUMMARIES:
        return asked or None
    diagnostics.loss("reasoning.summary", "is not one of auto, concise, detailed, none")
    return None


def _schema(request: CreateResponse, diagnostics: Diagnostics) -> dict[str, Any] | None:
    wanted = request.text.format if request.text is not None else None
    if isinstance(wanted, JsonSchemaFormatParam):
        return wanted.schema or None
    if wanted and wanted.type != "text":
        diagnostics.loss("text.format", "Codex takes a schema only")
    return None
