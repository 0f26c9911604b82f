"""A Chat Completions request → a request of ours, with a report of what that can't say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import Fields, body_of, invalid
from openresponses_bridge.dialects.chat_completions.client.messages import MessageReader
from openresponses_bridge.dialects.chat_completions.client.tools import choice_of, text_of, tools_of
from openresponses_bridge.protocol import request as rq

_MOST_CHOICES = 128
_LOGPROBS = "message.output_text.logprobs"
_SAME = {
    "temperature": float,
    "top_p": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "parallel_tool_calls": bool,
    "stream": bool,
    "service_tier": str,
    "safety_identifier": str,
    "prompt_cache_key": str,
    "prompt_cache_retention": str,
    "seed": int,
    "prediction": dict,
    "user": str,
}


class AnswerOptions(Struct, frozen=True):
    """What a client says about the answer's form and not about the answer: `n` choices, the usage
    chunk, calls in the old `function_call` form."""

    n: int = 1
    include_usage: bool = False
    legacy_functions: bool = False


def answer_options(body: bytes | str | Mapping[str, Any]) -> AnswerOptions:
    """Read beside `from_chat`. Raises InvalidRequestError with `param`."""
    fields = body_of(body)
    n = fields.get("n", int)
    if n is not None and not 1 <= n <= _MOST_CHOICES:
        raise invalid("n", f"has to be from 1 to {_MOST_CHOICES}")
    options = fields.maybe_inner("stream_options")
    usage = options is not None and bool(options.get("include_usage", bool))
    return AnswerOptions(n or 1, usage, _is_legacy(fields))


def _is_legacy(fields: Fields) -> bool:
    return "functions" in fields and "tools" not in fields


def from_chat(body: bytes | str | Mapping[str, Any]) -> tuple[rq.CreateResponse, Diagnostics]:
    """(request, what was lost on the way). `n` and the form of the answer are `answer_options`'s.

    Raises InvalidRequestError with `param`, as `messages[0].content[1].image_url`: malformed fields,
    calls without an answer and answers without a call (`unpaired_tool_call`).
    """
    diagnostics = Diagnostics()
    fields = body_of(body)
    reader = MessageReader(diagnostics)
    fields.need("messages", list)
    for message in fields.each("messages"):
        reader.message(message)
    reader.close()
    if not reader.items:
        raise invalid("messages", "at least one message is required")
    same: dict[str, Any] = {name: fields.get(name, kind) for name, kind in _SAME.items()}
    logprobs, top = _logprobs(fields)
    if _is_legacy(fields):
        same["parallel_tool_calls"] = False  # a message has a place for one `function_call`
    request = rq.CreateResponse(
        model=fields.need("model", str),
        input=reader.items,
        tools=tools_of(fields),
        tool_choice=choice_of(fields),
        text=text_of(fields),
        reasoning=_reasoning(fields),
        max_output_tokens=_limit(fields),
        include=[_LOGPROBS] if logprobs else None,
        top_logprobs=top,
        stream_options=_stream_options(fields),
        stop=_stop(fields),
        logit_bias=_biases(fields),
        store=bool(fields.get("store", bool)),
        metadata=_metadata(fields),
        beyond=_for_its_upstream(fields),
        **same,
    )
    fields.skip("n", "function_call")
    if fields.says("modalities", ["text"]):
        fields.skip("modalities")
    for where in fields.unread:
        diagnostics.loss(where, "can't be expressed")
    return request, diagnostics


def _logprobs(fields: Fields) -> tuple[bool, int | None]:
    wanted = bool(fields.get("logprobs", bool))
    top = fields.get("top_logprobs", int)
    if top is not None and not 0 <= top <= 20:
        raise invalid("top_logprobs", "has to be from 0 to 20")
    if top and not wanted:
        raise invalid("top_logprobs", "needs logprobs")
    return wanted, top


def _limit(fields: Fields) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        limit = fields.get(name, int)
        if limit is not None:
            fields.skip("max_tokens")
            if limit < 1:
                raise invalid(name, "has to be 1 or more")
            return limit
    return None


def _reasoning(fields: Fields) -> rq.ReasoningOptions | None:
    effort = fields.get("reasoning_effort", str)
    given = fields.maybe_inner("reasoning")  # OpenRouter's
    if given is not None:
        effort = effort or given.get("effort", str)
    return None if effort is None else rq.ReasoningOptions(effort)


def _metadata(fields: Fields) -> dict[str, str] | None:
    metadata = fields.get("metadata", dict)
    for name, value in (metadata or {}).items():
        if not isinstance(value, str):
            raise invalid(f"metadata.{name}", "expected a string")
    return metadata


def _stop(fields: Fields) -> str | list[str] | None:
    stop: str | list[Any] | None = fields.either("stop", str, list)
    if isinstance(stop, list) and not all(isinstance(each, str) for each in stop):
        raise invalid("stop", "expected strings")
    return stop or None


def _biases(fields: Fields) -> dict[str, float] | None:
    biases = fields.get("logit_bias", dict)
    for token, bias in (biases or {}).items():
        if type(bias) not in (int, float):
            raise invalid(f"logit_bias.{token[:32]}", "expected a number")
    return biases or None


def _for_its_upstream(fields: Fields) -> list[rq.ForeignFields] | UnsetType:
    """What the client wants its upstream to keep, as it came: we keep nothing for it."""
    given = {name: fields.raw(name) for name in ("store", "metadata") if name in fields}
    return [rq.ForeignFields((), given)] if given else UNSET


def _stream_options(fields: Fields) -> rq.StreamOptions | None:
    options = fields.maybe_inner("stream_options")
    if options is None:
        return None
    options.skip("include_usage")
    padding = options.get("include_obfuscation", bool)
    return None if padding is None else rq.StreamOptions(padding)
