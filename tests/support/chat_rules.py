"""The API's rules for a Chat Completions request: the order of roles, an answer for each call, no blank text,
valid names. Imports nothing of the code that it tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "file", "input_audio"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


def violations(body: Json) -> list[str]:
    """The violations of a request, one line each."""
    return [*_messages(body), *_pairing(body), *_tools(body)]


def _messages(body: Json) -> Iterator[str]:
    if not body.get("messages"):
        yield "there is no message"
    for at, message in enumerate(body.get("messages", [])):
        role = message.get("role")
        if role not in _ROLES:
            yield f"messages[{at}]: {role} is not a role"
            continue
        content = message.get("content")
        if content is None:
            if role != "assistant" or not message.get("tool_calls"):
                yield f"messages[{at}]: has no content"
        elif isinstance(content, str):
            if not content.strip() and role != "tool":
                yield f"messages[{at}]: is blank"
        else:
            yield from _parts(f"messages[{at}]", role, content)


def _parts(where: str, role: str, parts: list[Json]) -> Iterator[str]:
    if not parts:
        yield f"{where}: has no part"
    for at, part in enumerate(parts):
        kind = part.get("type")
        if kind not in _PARTS[role]:
            yield f"{where}.content[{at}]: {kind} is not for {role}"
        elif kind == "text" and not part.get("text", "").strip():
            yield f"{where}.content[{at}]: is blank"
        elif kind == "image_url" and not part["image_url"]["url"].startswith(
            ("https://", "http://", "data:image/")
        ):
            yield f"{where}.content[{at}]: is not an image"


def _pairing(body: Json) -> Iterator[str]:
    waiting: dict[str, int] = {}
    for at, message in enumerate(body.get("messages", [])):
        if message.get("role") == "tool":
            if waiting.pop(message.get("tool_call_id"), None) is None:
                yield f"messages[{at}]: answers no call of the message before"
            continue
        if waiting:
            yield f"messages[{at}]: comes before {sorted(waiting)} were answered"
            waiting = {}
        for call in message.get("tool_calls") or ():
            if call["id"] in waiting:
                yield f"messages[{at}]: two calls are {call['id']}"
            waiting[call["id"]] = at
            yield from _call(f"messages[{at}]", call, _names(body))
    if waiting:
        yield f"{sorted(waiting)} are never answered"


def _call(where: str, call: Json, offered: set[str]) -> Iterator[str]:
    function = call.get("function", {})
    if not _NAME.fullmatch(function.get("name", "")):
        yield f"{where}: {function.get('name')!r} is not a legal name"
    elif offered and function["name"] not in offered:
        yield f"{where}: {function['name']} is not among the tools"
    try:
        json.loads(function.get("arguments", ""))
    except ValueError:
        yield f"{where}: arguments are not JSON"


def _names(body: Json) -> set[str]:
    return {tool["function"]["name"] for tool in body.get("tools") or ()}


def _tools(body: Json) -> Iterator[str]:
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    if len(set(names)) < len(names):
        yield "two tools have one name"
    for name in names:
        if not _NAME.fullmatch(name):
            yield f"tools: {name!r} is not a legal name"
    choice = body.get("tool_choice")
    if choice is not None and not names:
        yield "tool_choice without tools"
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        yield "tool_choice names a tool that is not there"
