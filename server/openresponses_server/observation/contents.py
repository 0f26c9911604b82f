"""What people, models and tools have written, for spans: only with the setting `span_content`, in the form of
the conventions, masked as traces are, and limited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import msgspec

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.observation.recordings.masking import (
    MOST_SECRETS,
    Secrets,
    hidden_in,
    masked_value,
    secrets_in,
    without,
)
from openresponses_server.observation.tracing import Attributes

LONGEST_TEXT: Final = 4096
"""The most characters of one text of a span; the rest is cut off."""
MOST_TEXT: Final = 65_536
"""The most characters of the texts of one attribute."""
_LOOKED_AT: Final = 2 * LONGEST_TEXT  # characters of one text that are searched for secrets
_MOST_ITEMS: Final = 16  # of a conversation, the last of them
_MOST_TOOLS: Final = 64


class Contents:
    """The contents of one application. `secrets` are those in its settings."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = Secrets(secrets)
        self._secrets.make_ready()

    def of_request(self, body: CreateResponse, headers: Mapping[str, str], key: str | None) -> Content:
        """Return the contents of one request, whose client has this key."""
        return Content(self._secrets, body, [key or "", *secrets_in(headers)])


class Content:
    """The contents of one request and its response. It does not refer to the request any more once `asked`
    was called."""

    def __init__(self, shared: Secrets, body: CreateResponse, secrets: Sequence[str]) -> None:
        self._shared = shared
        self._body: CreateResponse | None = body
        self._given = secrets
        self._own: Secrets | None = None  # None: nothing is shown

    def asked(self) -> Attributes:
        """Return the attributes of the request. To be called once, before all other methods."""
        body, self._body = self._body, None
        return {} if body is None else _tried(partial(self._asked, body))

    def answered(self, output: Sequence[Any], finish_reason: str) -> Attributes:
        """Return the attributes of an answer with these items; the last of them are shown."""
        own = self._own
        if own is None or not output:
            return {}
        return _tried(lambda: {"gen_ai.output.messages": self._shown(own, _answer(output, finish_reason))})

    def called(self, arguments: str) -> Attributes:
        """Return the attributes of a call of a tool with these arguments, which are JSON or should be."""
        own = self._own
        if own is None:
            return {}
        return _tried(lambda: {"gen_ai.tool.call.arguments": self._shown(own, _arguments(arguments))})

    def gave(self, output: str) -> Attributes:
        """Return the attributes of a tool's output."""
        own = self._own
        return {} if own is None else _tried(lambda: {"gen_ai.tool.call.result": self._shown(own, output)})

    def _asked(self, body: CreateResponse) -> Attributes:
        items = body.input if isinstance(body.input, list) else []
        sent = decode_json(encode(items[-_MOST_ITEMS:]))
        tools = decode_json(encode([*islice(body.tools or (), _MOST_TOOLS)]))
        hidden = list(islice(chain(self._given, hidden_in(sent), hidden_in(tools)), MOST_SECRETS + 1))
        own = Secrets(hidden)
        if len(hidden) > MOST_SECRETS or own.are_many:
            return {"openresponses.content_hidden": True}
        self._own = own
        text = [{"role": "user", "parts": [_text(body.input)]}] if isinstance(body.input, str) else []
        attributes = {
            "gen_ai.input.messages": [*text, *map(_message, sent)],
            "gen_ai.system_instructions": [_text(body.instructions)] if body.instructions else [],
            "gen_ai.tool.definitions": [_tool(each) for each in tools],
        }
        return {name: self._shown(own, value) for name, value in attributes.items() if value}

    def _shown(self, own: Secrets, value: Any) -> str:
        """Return the value as JSON, or a text unchanged, masked and cut."""
        shown = _Room(_Together(self._shared, own)).cut(masked_value(value))
        return shown if isinstance(shown, str) else encode(shown).decode()


def _tried(function: Callable[[], Attributes]) -> Attributes:
    """Return the result of `function`; no attributes if it can't be shown, because it is nested too deeply or
    has incomplete characters."""
    try:
        return function()
    except (WireError, RecursionError, UnicodeError, msgspec.MsgspecError):
        return {}


class _Together(NamedTuple):
    """The secrets of the settings and those of a request, found together. Found one after the other, those of
    the settings could hide parts of the request's, whose rest would be shown."""

    shared: Secrets
    own: Secrets

    @property
    def longest(self) -> int:
        return max(self.shared.longest, self.own.longest)

    def spans(self, text: str) -> list[tuple[int, int]]:
        merged = list[tuple[int, int]]()
        for begin, end in merge(self.shared.spans(text), self.own.spans(text)):
            if merged and begin < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged


class _Room:
    """Masks and cuts the texts of one attribute."""

    def __init__(self, secrets: _Together) -> None:
        self._secrets = secrets
        self._left = MOST_TEXT

    def cut(self, value: Any) -> Any:
        if isinstance(value, str):
            end = _LOOKED_AT
            if len(value) > end:  # including all of a secret at the cut, since a part of it is not found
                spans = self._secrets.spans(value[: end + self._secrets.longest])
                end = max([end, *(last for first, last in spans if first < end)])
            text = without(value[:end], self._secrets)
            text = text[: min(LONGEST_TEXT, self._left)].encode(errors="replace").decode()
            self._left -= len(text)
            return text
        if isinstance(value, list):
            return [self.cut(each) for each in value if self._left > 0]
        if isinstance(value, dict):
            return {self.cut(name): self.cut(each) for name, each in value.items() if self._left > 0}
        self._left -= 1
        return value


def _text(text: Any) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _message(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of a conversation as a message of the convention; for an item without text, only its
    type."""
    kind = item.get("type", "message")
    if kind == "function_call":
        arguments = _arguments(item.get("arguments") or "")
        part = {"id": item.get("call_id"), "name": item.get("name"), "arguments": arguments}
        return {"role": "assistant", "parts": [{"type": "tool_call", **part}]}
    if kind == "function_call_output":
        part = {"id": item.get("call_id"), "response": item.get("output")}
        return {"role": "tool", "parts": [{"type": "tool_call_response", **part}]}
    if kind == "reasoning":
        texts = [*(item.get("summary") or ()), *(item.get("content") or ())]
        thoughts = [{"type": "reasoning", "content": each["text"]} for each in texts if "text" in each]
        return {"role": "assistant", "parts": thoughts}
    if kind != "message":
        return {"role": "assistant", "parts": [{"type": str(kind)}]}
    content = item.get("content")
    parts = [content] if isinstance(content, str) else content or []
    return {"role": item.get("role", "assistant"), "parts": [_part(each) for each in parts]}


def _answer(output: Sequence[Any], finish_reason: str) -> list[dict[str, Any]]:
    """Return the output as the single message that the convention has for an answer."""
    items = decode_json(encode([*output[-_MOST_ITEMS:]]))
    parts = [part for each in items for part in _message(each)["parts"]]
    return [{"role": "assistant", "parts": parts, "finish_reason": finish_reason}]


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return _text(part)
    text = part.get("text", part.get("refusal"))
    return _text(text) if isinstance(text, str) else {"type": str(part.get("type"))}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    names = ("type", "name", "description", "parameters")
    return {name: tool[name] for name in names if name in tool}


def _arguments(text: str) -> Any:
    """Return the arguments as an object, whose fields are masked by their names; as text if they are not an
    object."""
    try:
        return decode_json(text or "{}")
    except (WireError, RecursionError):
        return text
