"""A Chat upstream that answers by keyword as the tiny model does, for what stands in front of a model."""

from __future__ import annotations

import json
from typing import Any

from tests.engines.words import ANSWERS, THOUGHT, Call
from tests.support.upstream import DONE, HANG, JSON, Received, Script, call, chunk, frame, refusal

_WINDOW = 4096
_PROMPT = 12


def answer(received: Received) -> Script:
    """The script for a request. Images and prompts beyond the window are refused."""
    body = received.body
    texts = json.dumps(body["messages"])
    if "image_url" in texts:
        return refusal(400, message="this model reads no images", type="invalid_request_error")
    if len(texts) // 4 > _WINDOW:
        message = f"This model's maximum context length is {_WINDOW} tokens."
        return refusal(400, message=message, type="invalid_request_error", code="context_length_exceeded")
    thinking, text, calls = _words(body, texts)
    pieces = [f"{word} " for word in text.split(" ")]
    pieces = [*pieces[:-1], pieces[-1].removesuffix(" ")] if text else []
    limit = body.get("max_tokens") or body.get("max_completion_tokens") or 512
    end = "length" if len(pieces) > limit else "tool_calls" if calls else "stop"
    return _script(body, thinking, pieces[:limit], calls, end)


def _words(body: dict[str, Any], texts: str) -> tuple[str, str, list[Call]]:
    """The thinking, text and calls that the last message asks for."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return "", ANSWERS["RESPONSE"], []
    key = next((key for key in ANSWERS if key in texts), "HELLO")
    text, calls = ANSWERS[key], list[Call]()
    choice, offered = body.get("tool_choice", "auto"), bool(body.get("tools"))
    if key in ("WEATHER", "PARALLEL"):
        calls = [Call("Paris"), Call("London")] if key == "PARALLEL" else [Call("Paris")]
    if offered and choice != "auto" and not calls:
        text, calls = ("", [Call("Paris")]) if choice != "none" else (text, [])
    if not offered or choice == "none":
        calls = []
    if body.get("parallel_tool_calls") is False:
        del calls[1:]
    if "response_format" in body:
        text = ANSWERS["JSON"]
    for stop in body.get("stop") or ():
        text = text.partition(stop)[0]
    return THOUGHT if key == "THINK" else "", text, calls


def _script(body: dict[str, Any], thinking: str, pieces: list[str], calls: list[Call], end: str) -> Script:
    tokens = len(pieces) + len(thinking.split()) + 8 * len(calls)
    usage = {"prompt_tokens": _PROMPT, "completion_tokens": tokens, "total_tokens": _PROMPT + tokens}
    if not body.get("stream"):
        whole = _whole(body, thinking, pieces, calls, end) | {"usage": usage}
        return Script([json.dumps(whole).encode()], 200, JSON)
    steps = [chunk(role="assistant", content="")]
    steps += [chunk(reasoning_content=thinking)] if thinking else []
    if pieces and ANSWERS["FOREVER"].startswith("".join(pieces[:3])):
        # LiteLLM ends an answer with an error after a hundred pieces that are alike
        return Script([*steps, *(frame(choices=[_choice(body, piece)]) for piece in pieces[:50]), HANG])
    steps += [frame(choices=[_choice(body, piece)]) for piece in pieces]
    for index, each in enumerate(calls):
        steps += [call(index, "", each.name, f"call_{index}"), call(index, each.arguments)]
    return Script([*steps, chunk(end), frame(choices=[], usage=usage), DONE])


def _choice(body: dict[str, Any], piece: str) -> dict[str, Any]:
    """A choice of a chunk, with the log probabilities that were asked for."""
    logprobs = {"content": _logprobs([piece])} if body.get("logprobs") else None
    return {"index": 0, "delta": {"content": piece}, "logprobs": logprobs, "finish_reason": None}


def _logprobs(pieces: list[str]) -> list[dict[str, Any]]:
    return [{"token": piece, "logprob": -0.5, "bytes": None, "top_logprobs": []} for piece in pieces]


def _whole(
    body: dict[str, Any], thinking: str, pieces: list[str], calls: list[Call], end: str
) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(pieces)}
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": each.name, "arguments": each.arguments},
            }
            for index, each in enumerate(calls)
        ]
    logprobs = {"content": _logprobs(pieces)} if body.get("logprobs") else None
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": end}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted"}
    return head | {"choices": [choice]}
