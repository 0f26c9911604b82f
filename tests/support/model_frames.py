"""The scripts of `model_scripts` as the frames that an upstream of each dialect sends.

A dialect leaves out a step that it can't express. If it has no frame for an end, its stream stops without
one. No upstream's frames contain the client's cancellation.
"""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from openresponses_bridge.corpus.foreign import DONE, FRAMES, ForeignDialect
from openresponses_bridge.dialects import copilot, vscode
from openresponses_bridge.dialects.table import TABLE, dialects
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.sse import SSEDecoder
from tests.support import codex, converse
from tests.support.checked_inbound import Frame, encoded
from tests.support.model_scripts import USAGE, Step, played


def frames(dialect: str, steps: Iterable[Step]) -> list[bytes]:
    """The frames that an upstream of this package's dialect sends for these steps."""
    render = RENDERERS.get(dialect) or partial(_by_its_outbound, dialect)
    return [compact(frame) for frame in render(list(steps))]


def compact(frame: Frame) -> bytes:
    """A frame as JSON without whitespace, as servers send it."""
    data = encoded(frame)
    if data == DONE.encode():
        return data
    return json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":")).encode()


class _Proxy:
    """`response.*` notifications without indexes, as a proxy in front of Codex sends them."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def say(self, kind: str, **fields: Any) -> None:
        self.sent.append(compact(codex.proxied(kind, **fields)))

    def call(self, index: int, id: str, name: str) -> None:
        self._calls[index] = {"type": "function_call", "id": f"fc_{index}", "call_id": id, "name": name}
        self.say("output_item.added", item=self._calls[index])

    def arguments(self, index: int, delta: str) -> None:
        call = self._calls[index]
        call["arguments"] = call.get("arguments", "") + delta
        self.say("function_call_arguments.delta", call_id=call["call_id"], delta=delta)

    def call_end(self, index: int) -> None:
        call = self._calls[index]
        self.say("function_call_arguments.done", call_id=call["call_id"], arguments=call["arguments"])
        self.say("output_item.done", item=call)

    def encrypted(self, content: str) -> None:
        self.say("output_item.done", item={"type": "reasoning", "id": "rs_1", "encrypted_content": content})

    def cite(self, url: str, title: str, start: int, end: int) -> None:
        cited = {"type": "url_citation", "url": url, "title": title, "start_index": start, "end_index": end}
        self.say("output_text.annotation.added", item_id="msg_1", annotation=cited)

    def end(self, reason: str) -> None:
        cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reason)
        if cut is None:
            self.say("completed", response={"status": "completed", "usage": USAGE})
        else:
            response = {"status": "incomplete", "incomplete_details": {"reason": cut}, "usage": USAGE}
            self.say("incomplete", response=response)

    def fail(self, code: str, message: str) -> None:
        self.say("failed", response={"status": "failed", "error": {"code": code, "message": message}})

    def cancel(self) -> None:
        self.sent.append(codex.ended("interrupted"))


_PROXY_WORDS = {
    "text": ("output_text.delta", "msg_1"),
    "refusal": ("refusal.delta", "msg_1"),
    "reasoning": ("reasoning_text.delta", "rs_1"),
    "summary": ("reasoning_summary_text.delta", "rs_1"),
}


def _codex(steps: list[Step]) -> list[Frame]:
    proxy = _Proxy()
    for verb, *facts in steps:
        if verb in _PROXY_WORDS:
            kind, item_id = _PROXY_WORDS[verb]
            proxy.say(kind, item_id=item_id, delta=facts[0])
        elif verb != "cut":
            getattr(proxy, verb)(*facts)
    return proxy.sent


def _foreign(dialect: ForeignDialect, steps: list[Step]) -> list[Frame]:
    return [frame.encode() if isinstance(frame, str) else frame for frame in FRAMES[dialect](steps)]


def _responses(steps: list[Step]) -> list[Frame]:
    return [encode(event) for event in played(steps, "openai").events]


def _copilot(steps: list[Step]) -> list[Frame]:
    outbound = copilot.Outbound()
    events = played(steps, "openai").events
    return [copilot.encode_chunk(chunk) for event in events for chunk in outbound.feed(event)]


def _vscode(steps: list[Step]) -> list[Frame]:
    outbound = vscode.Outbound()
    return [line.rstrip() for event in played(steps).events for line in outbound.feed(event)]


def _by_its_outbound(package: str, steps: list[Step]) -> list[Frame]:
    client = next(dialects()[each.name] for each in TABLE if each.package == package).client
    assert client is not None, f"say how the scripts look in {package}"
    outbound = client.outbound()
    events = played(steps, "openai").events
    chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
    frames = (decoder := SSEDecoder()).feed(client.encode(chunks)) + decoder.close()
    return [frame.data for frame in frames]


RENDERERS: dict[str, Callable[[list[Step]], list[Frame]]] = {
    "chat_completions": partial(_foreign, "chat"),
    "anthropic_messages": partial(_foreign, "anthropic"),
    "codex": _codex,
    "gemini": partial(_foreign, "gemini"),
    "bedrock_converse": lambda steps: [json.dumps(event).encode() for event in converse.events_of(steps)],
    "responses": _responses,
    "copilot": _copilot,
    "vscode": _vscode,
}
