"""Converts a request to one turn of Codex: an object with everything that is needed to start it.

`{model, instructions, history, input, effort, summary, output_schema, approvals}`: `history` are raw items
for a thread that does not have them yet, `input` the parts of the user's message; Codex decides about what is
null. A request with `approvals` continues a turn that waits, and has no input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    OURS,
    Entry,
    Outcomes,
    Outgoing,
    RequestContext,
    apply,
    built,
    effort_of,
    entries_of,
    honoured,
    invalid,
    is_answered_trigger,
    loss,
)
from openresponses_bridge.dialects.codex.turn import SLUG
from openresponses_bridge.dialects.codex.types import text_of
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.unknown import UnknownItem, enc_hook

# The input of a request in Codex's form: raw items of the Responses API for the history of a thread, and the
# parts of a user's message for the turn that starts.

COMMAND: Final = SLUG + "command_execution"
APPROVAL_RESPONSES: Final = frozenset({SLUG + "approval_response", "mcp_approval_response"})
"""The items that answer Codex's questions: `{approval_request_id, approve}`."""
OWN: Final = "own"
"""The mark on items of the history that Codex made itself: a client may send them back or not."""
_DATA: Final = "data:"
_TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal"})
# items that Codex's history has in the form of the Responses API, without the fields that are named after it
_KEPT: Final = frozenset(
    {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)
_NAMES: Final = frozenset({"id", "status"})
# items that Codex makes anew, or keeps in the thread
_SILENT: Final = frozenset({"reasoning", SLUG + "approval_request", *APPROVAL_RESPONSES})


class TurnInput:
    """Reads entries: `items` are those of the history, in order; `approvals` are the answers."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self.items: list[dict[str, Any]] = []
        self.approvals: list[dict[str, Any]] = []

    def read(self, entries: Iterable[Entry]) -> None:
        """Read the entries. Raises InvalidRequestError for items that Codex can't be given."""
        for entry in entries:
            kind = entry.item.type
            handler = _HANDLERS.get(kind)
            if handler is not None:
                handler(self, entry)
            elif kind in APPROVAL_RESPONSES:
                self._approval(entry)
            elif kind in _KEPT:
                self.items.append({k: v for k, v in plain(entry.item).items() if k not in _NAMES})
            elif kind not in _SILENT:
                self._diagnostics.loss(entry.where, f"Codex has no place for an item of type {kind[:64]!r}")

    def _message(self, entry: Entry) -> None:
        item = plain(entry.item)
        raw = item["content"]
        parts = [{"type": "input_text", "text": raw}] if isinstance(raw, str) else raw
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        content = [turn_part for part in parts if (turn_part := self._part(part, kind, entry)) is not None]
        role = "developer" if item["role"] == "system" else item["role"]
        if content:
            self.items.append({"type": "message", "role": role, "content": content})

    def _part(self, part: dict[str, Any], kind: str, entry: Entry) -> dict[str, Any] | None:
        part_type = text_of(part.get("type"))
        if part_type in _TEXTS:
            text = text_of(part.get("refusal" if part_type == "refusal" else "text"))
            return {"type": kind, "text": text} if text else None
        if part_type != "input_image":
            self._diagnostics.loss(entry.where, f"Codex has no place for a part of type {part_type[:64]!r}")
            return None
        url = text_of(part.get("image_url"))
        if not url.startswith(_DATA):
            raise invalid(entry.at("content"), "Codex takes images as data URLs only")
        return {"type": "input_image", "image_url": url}

    def _command(self, entry: Entry) -> None:
        """Add a command that Codex ran, as the call and the output that its model saw."""
        raw = plain(entry.item)
        call_id = text_of(raw.get("id")) or f"call_{len(self.items)}"
        arguments = encode({"cmd": text_of(raw.get("command"))}).decode()
        output = text_of(raw.get("aggregated_output")) or f"exit code {raw.get('exit_code')}"
        call = {"type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": call_id}
        answer = {"type": "function_call_output", "call_id": call_id, "output": output}
        self.items += [{**call, OWN: True}, {**answer, OWN: True}]

    def _approval(self, entry: Entry) -> None:
        raw = plain(entry.item)
        request_id, approve = raw.get("approval_request_id"), raw.get("approve")
        if not isinstance(request_id, str) or not isinstance(approve, bool):
            raise invalid(entry.param, "an answer has approval_request_id, a string, and approve, a boolean")
        # those of earlier turns were read
        if entry.where.startswith("input"):
            self.approvals.append({"id": request_id, "approve": approve})


_HANDLERS: Final[dict[str, Callable[[TurnInput, Entry], None]]] = {
    "message": TurnInput._message,
    COMMAND: TurnInput._command,
}


def plain(item: Any) -> dict[str, Any]:
    """Return an item as a JSON object."""
    if isinstance(item, UnknownItem):
        return item.raw
    fields: dict[str, Any] = msgspec.to_builtins(item, enc_hook=enc_hook)
    return fields


def split(items: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (the items before, the parts of the turn that starts), which are the messages of the user at the
    end.

    Raises InvalidRequestError when there are none.
    """
    at = len(items)
    while at and items[at - 1].get("role") == "user":
        at -= 1
    parts = [user_input(part) for item in items[at:] for part in item["content"]]
    if not parts:
        what = "Codex answers a user's message, which has to come last"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="input")
    return items[:at], parts


def user_input(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "input_image":
        return {"type": "image", "url": part["image_url"]}
    return {"type": "text", "text": part["text"], "text_elements": []}


# The outcome of each field of a request at Codex, which is an agent with tools of its own.

_UNSAID: Final = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "max_output_tokens",
    "text.verbosity",
    "reasoning.context",
    "reasoning.mode",
    "truncation",
    "service_tier",
    "safety_identifier",
    "user",
    "client_metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "seed",
    "logit_bias",
    "prediction",
    "top_k",
)

FIELDS: Final[Outcomes] = {
    **OURS,
    **{name: loss("a turn of Codex has no such setting") for name in _UNSAID},
    **{name: loss("Codex calls only its own tools") for name in ("tools", "tool_choice")},
    "parallel_tool_calls": loss("Codex decides by itself"),
    "max_tool_calls": loss("Codex's own calls are not counted"),
    "include": loss("Codex chooses what it reports"),
    "model": built("model"),
    "input": built("input"),
    "instructions": built("instructions"),
    "text.format": built("output_schema"),
    "reasoning.effort": built("effort"),
    "reasoning.summary": built("summary"),
    "stop": honoured("the answer ends before the first of them"),
    "stream": honoured("a turn is always a stream"),
    "stream_options.include_obfuscation": loss("answers are not padded"),
}


class CodexOptions(Struct, frozen=True):
    """Options of an installation of Codex."""

    own_model: str = "codex"
    """The model name with which a request asks for the model of Codex's own configuration."""


DEFAULT_OPTIONS: Final = CodexOptions()


_SUMMARIES = frozenset({"auto", "concise", "detailed", "none"})


def to_turn(
    request: CreateResponse,
    *,
    model: str | None = None,
    history: Sequence[Any] = (),
    options: CodexOptions = DEFAULT_OPTIONS,
) -> tuple[dict[str, Any], Diagnostics]:
    """Return (the turn, the losses). `history` are the items of earlier turns; `model` replaces the
    request's.

    Raises InvalidRequestError with `param` for items that Codex can't be given, and if the last item is not a
    user's message.
    """
    diagnostics = Diagnostics()
    name = model or request.model
    turn_input = TurnInput(diagnostics)
    entries = entries_of(request, history)
    turn_input.read(entry for entry in entries if not is_answered_trigger(entry, entries[-1]))
    apply(request, FIELDS, diagnostics)
    body: dict[str, Any] = {
        "model": None if name == options.own_model else name,
        "instructions": request.instructions or None,
        "effort": effort_of(request),
        "summary": _summary(request, diagnostics),
        "output_schema": _schema(request, diagnostics),
        "approvals": turn_input.approvals,
    }
    if turn_input.approvals:
        if any(getattr(item, "role", None) == "user" for item in request.input or ()):
            raise invalid("input", "an approval is answered by itself, without a message")
        return body | {"history": turn_input.items, "input": []}, diagnostics
    before, parts = split(turn_input.items)
    return body | {"history": before, "input": parts}, diagnostics


def to_upstream(request: CreateResponse, context: RequestContext) -> Outgoing:
    """Translate a request as `UpstreamSide.request` does: see `to_turn`."""
    body, diagnostics = to_turn(
        request, model=context.model, history=context.history, options=context.options
    )
    return Outgoing(encode(body), diagnostics)


def _summary(request: CreateResponse, diagnostics: Diagnostics) -> str | None:
    summary = request.reasoning.summary if request.reasoning is not None else None
    if not summary or summary in _SUMMARIES:
        return summary or None
    diagnostics.loss("reasoning.summary", "is not one of auto, concise, detailed, none")
    return None


def _schema(request: CreateResponse, diagnostics: Diagnostics) -> dict[str, Any] | None:
    text_format = request.text.format if request.text is not None else None
    if isinstance(text_format, JsonSchemaFormatParam):
        return text_format.schema or None
    if text_format and text_format.type != "text":
        diagnostics.loss("text.format", "Codex takes a schema only")
    return None
