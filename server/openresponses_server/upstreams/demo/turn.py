"""What the demo model understands of a Chat Completions request."""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct

_CAMEL: Final = re.compile(r"([a-z])([A-Z])")
_WORD: Final = re.compile(r"[A-Za-z]+")
_ASKS_FOR_A_TOOL: Final = re.compile(r"\b(call|use|run|invoke|tool|function)\b", re.IGNORECASE)
# words of tool names that say nothing about what the tool is for
_EMPTY_WORDS: Final = frozenset({"get", "set", "the", "a", "an", "to", "of", "in", "do", "current", "tool"})


class Turn(Struct, frozen=True):
    """The newest turn of a conversation. `results` are the outputs that follow the last user message,
    `earlier` the texts of the user messages before it, `messages` how many messages there are."""

    model: str
    text: str
    images: int
    earlier: list[str]
    results: list[str]
    tools: list[dict[str, Any]]
    tool_choice: Any
    parallel: bool
    format: dict[str, Any]
    max_tokens: int | None
    stop: list[str]
    effort: str | None
    usage: bool
    messages: int
    prompt_words: int

    def chosen_tools(self) -> list[dict[str, Any]]:
        """The functions to call now: those the request forces, else those the user's words ask for."""
        if not self.tools or self.tool_choice == "none":
            return []
        if isinstance(self.tool_choice, dict):
            return self._forced(self.tool_choice)
        named = self._named()
        if self.tool_choice == "required":
            return self._as_many_as_allowed(named) or self.tools[:1]
        if self.results:
            return []
        if named:
            return self._as_many_as_allowed(named)
        return self.tools[:1] if _ASKS_FOR_A_TOOL.search(self.text) else []

    def _forced(self, choice: dict[str, Any]) -> list[dict[str, Any]]:
        name = (choice.get("function") or choice).get("name")
        return [tool for tool in self.tools if tool.get("name") == name][:1] or self.tools[:1]

    def _named(self) -> list[dict[str, Any]]:
        """The tools whose names are said, word for word; where none is, the one of which most is said."""
        said = {word.lower() for word in _WORD.findall(self.text)}
        names = [set(_words(str(tool.get("name", "")))) for tool in self.tools]
        whole = [tool for tool, name in zip(self.tools, names, strict=True) if name and name <= said]
        if whole:
            return whole
        most = max((len(name & said) for name in names), default=0)
        nearest = (tool for tool, name in zip(self.tools, names, strict=True) if len(name & said) == most)
        return [next(nearest)] if most else []

    def _as_many_as_allowed(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return tools if self.parallel else tools[:1]


def read_turn(body: dict[str, Any]) -> Turn:
    """The turn that a request's body asks for."""
    messages = [message for message in body.get("messages", []) if isinstance(message, dict)]
    users = [at for at, message in enumerate(messages) if message.get("role") == "user"]
    last = users[-1] if users else -1
    texts = [_text(message.get("content")) for message in messages]
    options = body.get("stream_options") or {}
    return Turn(
        model=str(body.get("model", "")),
        text=texts[last] if users else "",
        images=_images(messages[last].get("content")) if users else 0,
        earlier=[texts[at] for at in users[:-1]],
        results=[texts[at] for at in range(last + 1, len(messages)) if messages[at].get("role") == "tool"],
        tools=[tool["function"] for tool in body.get("tools") or [] if tool.get("type") == "function"],
        tool_choice=body.get("tool_choice"),
        parallel=body.get("parallel_tool_calls") is not False,
        format=body.get("response_format") or {},
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        stop=_stops(body.get("stop")),
        effort=body.get("reasoning_effort"),
        usage=bool(options.get("include_usage")),
        messages=len(messages),
        prompt_words=sum(len(text.split()) for text in texts),
    )


def _words(name: str) -> list[str]:
    spaced = _CAMEL.sub(r"\1 \2", name).replace("_", " ")
    return [word for word in _WORD.findall(spaced.lower()) if word not in _EMPTY_WORDS]


def _stops(given: Any) -> list[str]:
    sequences = given if isinstance(given, list) else [given]
    return [each for each in sequences if isinstance(each, str) and each]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return " ".join(str(part.get("text", "")) for part in parts if part.get("type") in ("text", "input_text"))


def _images(content: Any) -> int:
    parts = content if isinstance(content, list) else []
    return sum(1 for part in parts if part.get("type") in ("image_url", "input_image"))
