"""The frames that the model process sends, in Chat Completions and as a Responses stream: written here in the
shape of real providers' frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

_ENCODE: Final = msgspec.json.Encoder().encode
_RESPONSE: Final = {"id": "resp_0123456789", "object": "response", "created_at": 1_750_000_000, "model": "m"}
_MESSAGE: Final = {"id": "msg_0123456789", "type": "message", "role": "assistant"}
_WHERE: Final = {"item_id": "msg_0123456789", "output_index": 0, "content_index": 0}
_USAGE: Final = {"input_tokens": 9, "output_tokens": 20, "total_tokens": 29}


class Spoken(NamedTuple):
    """The frames of one stream: those before its text, one token, those after it; the same for the arguments
    of a call; and a whole answer. Frames that need it contain their number."""

    head: bytes
    token: Callable[[str, int], bytes]
    tail: Callable[[str, int], bytes]
    call: bytes
    fragment: bytes
    call_tail: bytes
    whole: bytes


def _frame(payload: object) -> bytes:
    return b"data: " + _ENCODE(payload) + b"\n\n"


def _chat(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _frame(
        {
            "id": "chatcmpl-0123456789abcdefghijklmnopqrs",
            "object": "chat.completion.chunk",
            "created": 1_750_000_000,
            "model": "model-2026-01-01",
            "service_tier": "default",
            "system_fingerprint": "fp_0123456789",
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        }
    )


def _chat_call(arguments: str, **more: object) -> bytes:
    call = {"index": 0, **more, "function": {"arguments": arguments, **({"name": "run"} if more else {})}}
    return _chat({"tool_calls": [call]})


_DONE: Final = b"data: [DONE]\n\n"

CHAT: Final = Spoken(
    head=_chat({"role": "assistant", "content": ""}),
    token=lambda text, _number: _chat({"content": text}),
    tail=lambda _text, _number: _chat({}, "stop") + _DONE,
    call=_chat_call("", id="call_0123456789", type="function") + _chat_call('{"words":"'),
    fragment=_chat_call(" word"),
    call_tail=_chat_call('"}') + _chat({}, "tool_calls") + _DONE,
    whole=_ENCODE(
        {
            "id": "chatcmpl-0123456789",
            "object": "chat.completion",
            "created": 1_750_000_000,
            "model": "model-2026-01-01",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "a short answer"},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
        }
    ),
)


def _event(kind: str, number: int, **fields: object) -> bytes:
    payload = _ENCODE({"type": kind, "sequence_number": number, **fields})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), payload)


def _item(text: str, status: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}] if status == "completed" else []
    return {**_MESSAGE, "status": status, "content": content}


def _responses_tail(text: str, number: int) -> bytes:
    item = _item(text, "completed")
    response = {**_RESPONSE, "status": "completed", "output": [item], "usage": _USAGE}
    return (
        _event("response.output_text.done", number, **_WHERE, text=text)
        + _event("response.content_part.done", number + 1, **_WHERE, part=item["content"][0])
        + _event("response.output_item.done", number + 2, output_index=0, item=item)
        + _event("response.completed", number + 3, response=response)
    )


RESPONSES: Final = Spoken(
    head=_event("response.created", 0, response={**_RESPONSE, "status": "in_progress", "output": []})
    + _event("response.output_item.added", 1, output_index=0, item=_item("", "in_progress"))
    + _event(
        "response.content_part.added",
        2,
        **_WHERE,
        part={"type": "output_text", "text": "", "annotations": []},
    ),
    token=lambda text, number: _event("response.output_text.delta", number + 3, **_WHERE, delta=text),
    tail=lambda text, number: _responses_tail(text, number + 3),
    call=b"",
    fragment=b"",
    call_tail=b"",
    whole=_ENCODE(
        {
            **_RESPONSE,
            "status": "completed",
            "output": [_item("a short answer", "completed")],
            "usage": _USAGE,
        }
    ),
)
