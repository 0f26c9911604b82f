"""The rules of the Messages API, as far as it refuses requests that break them. The check is strict, reads
plain JSON and does not use the library."""

import re
from base64 import b64decode
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

Json = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
THINKING = ("thinking", "redacted_thinking")
USER_BLOCKS = {"text", "image", "document", "tool_result"}
CLIENT_BLOCKS = {"text", "tool_use", "compaction", *THINKING}


def violations(body: Json) -> list[str]:
    """Return the reasons for which the API would refuse a request; empty for a valid one."""
    checks = (_fields, _turns, _blocks, _pairing, _thinking, _tools, _cache)
    return [f"{check.__name__}: {problem}" for check in checks for problem in check(body)]


def _all(body: Json) -> Iterator[tuple[str, Json]]:
    for message in body["messages"]:
        for block in message["content"]:
            yield message["role"], block


def _fields(body: Json) -> Iterator[str]:
    if not body.get("model"):
        yield "no model"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "no max_tokens"
    if not 0 <= body.get("temperature", 1) <= 1 or not 0 <= body.get("top_p", 1) <= 1:
        yield "temperature or top_p out of range"
    if "temperature" in body and "top_p" in body:
        yield "temperature and top_p together"


def _turns(body: Json) -> Iterator[str]:
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        yield "a user has to begin"
    roles = [message["role"] for message in messages]
    if any(role not in ("user", "assistant") for role in roles):
        yield f"roles {roles}"
    if any(first == second for first, second in pairwise(roles)):
        yield f"roles do not alternate: {roles}"
    if any(not message["content"] for message in messages):
        yield "an empty turn"


def _blocks(body: Json) -> Iterator[str]:
    for block in body.get("system", []):
        if block["type"] != "text" or not block["text"].strip():
            yield "a system block that is not text, or blank"
    for role, block in _all(body):
        kind = block["type"]
        if kind == "text" and not block["text"].strip():
            yield "a blank text block"
        if role == "user" and kind not in USER_BLOCKS:
            yield f"{kind} in a user's turn"
        if role == "assistant" and kind in USER_BLOCKS - {"text"}:
            yield f"{kind} in the assistant's turn"
        if kind in ("image", "document"):
            yield from _source(kind, block["source"])
        if kind == "tool_result":
            for inner in block.get("content", []):
                if inner["type"] == "text" and not inner["text"].strip():
                    yield "a blank text in a tool result"
                if inner["type"] == "image":
                    yield from _source("image", inner["source"])
    last = body["messages"][-1]
    if last["role"] == "assistant" and last["content"][-1].get("text", "x")[-1:].isspace():
        yield "the assistant's last words end with white space"


def _source(kind: str, source: Json) -> Iterator[str]:
    if source["type"] == "url":
        if not source["url"].startswith(("http://", "https://")):
            yield f"{kind} at {source['url'][:20]}"
    elif source["type"] == "base64":
        b64decode(source["data"], validate=True)
        if source["media_type"] not in (IMAGES if kind == "image" else {"application/pdf"}):
            yield f"{kind} of {source['media_type']}"
    elif source["type"] != "text" or kind != "document":
        yield f"{kind} from {source['type']}"


def _pairing(body: Json) -> Iterator[str]:
    messages = body["messages"]
    seen: set[str] = set()
    for index, message in enumerate(messages):
        content = message["content"]
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        following = messages[index + 1]["content"] if index + 1 < len(messages) else []
        sent = [block["tool_use_id"] for block in following if block["type"] == "tool_result"]
        if sorted(calls) != sorted(sent):
            yield f"calls {calls} are answered by {sent}"
        if seen & set(calls) or len(set(calls)) < len(calls):
            yield f"a tool_use id is used twice: {calls}"
        seen |= set(calls)
        results = [block["type"] == "tool_result" for block in content]
        if results != sorted(results, reverse=True):
            yield "a tool_result behind other content"
        if index == 0 and any(results):
            yield "a tool_result before any call"
        for block in content:
            if block["type"] == "tool_use":
                if not TOOL_ID.fullmatch(block["id"]) or not NAME.fullmatch(block["name"]):
                    yield f"illegal call {block['id']!r} {block['name']!r}"
                if not isinstance(block["input"], dict):
                    yield "an input that is not an object"


def _thinking(body: Json) -> Iterator[str]:
    for message in body["messages"]:
        content = message["content"]
        for block in content:
            if block["type"] == "thinking" and not (block.get("signature") and "thinking" in block):
                yield "thinking without its signature"
            if block["type"] == "redacted_thinking" and not block.get("data"):
                yield "redacted thinking without data"
        if content and content[-1]["type"] in THINKING:
            yield "thinking ends a turn"
    thinking = body.get("thinking", {})
    if thinking.get("type") == "enabled":
        if not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
            yield f"a budget of {thinking['budget_tokens']} of {body['max_tokens']}"
        last = [message for message in body["messages"] if message["role"] == "assistant"][-1:]
        answering = body["messages"][-1]["content"][0]["type"] == "tool_result"
        if answering and last and last[0]["content"][0]["type"] not in THINKING:
            yield "the calls being answered do not begin with thinking"
    if thinking and body.get("temperature", 1) != 1:
        yield "a temperature beside thinking"
    if thinking and body.get("tool_choice", {}).get("type") in ("any", "tool"):
        yield "a forced tool beside thinking"


def _tools(body: Json) -> Iterator[str]:
    names = [tool["name"] for tool in body.get("tools", [])]
    if len(set(names)) < len(names):
        yield f"a tool declared twice: {names}"
    for tool in body.get("tools", []):
        if not NAME.fullmatch(tool["name"]):
            yield f"illegal name {tool['name']!r}"
        if "type" not in tool and tool["input_schema"].get("type") != "object":
            yield f"the input of {tool['name']} is not an object"
    choice = body.get("tool_choice")
    if choice is not None and not names:
        yield "a tool_choice without tools"
    if choice is not None and choice["type"] == "tool" and choice["name"] not in names:
        yield f"{choice['name']} is chosen and not declared"
    if not names and any(block["type"] in ("tool_use", "tool_result") for _, block in _all(body)):
        yield "calls in the history, and no tools"


def _cache(body: Json) -> Iterator[str]:
    ends = [*body.get("tools", []), *body.get("system", []), *(block for _, block in _all(body))]
    if sum("cache_control" in end for end in ends) > 4:
        yield "more than four cache breakpoints"
