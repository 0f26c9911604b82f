"""A short stream with every kind of output in it, as JSON objects: what the examples of rules spoil."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import msgspec

from openresponses_bridge.protocol.response import RESPONSE_DEFAULTS

Json = dict[str, Any]

_RESPONSE: Final[Json] = {
    **msgspec.to_builtins(RESPONSE_DEFAULTS),
    "id": "resp_1",
    "object": "response",
    "created_at": 1_767_225_600,
    "status": "in_progress",
    "model": "m",
}
_USAGE: Final[Json] = {
    "input_tokens": 3,
    "output_tokens": 5,
    "total_tokens": 8,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 2},
}
CITATION: Final[Json] = {
    "type": "url_citation",
    "url": "https://example.org/",
    "start_index": 0,
    "end_index": 5,
    "title": "An example",
}
ERROR: Final[Json] = {"code": "server_error", "message": "it broke"}


class _Script:
    """Writes events one after the other."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.output: list[Json] = []
        self.say("response.created", response=self.response())
        self.say("response.in_progress", response=self.response())

    def say(self, kind: str, **fields: Any) -> None:
        self.events.append({"type": kind, "sequence_number": len(self.events)} | deepcopy(fields))

    def response(self, **changes: Any) -> Json:
        return {**_RESPONSE, "output": self.output, **changes}

    def item(self, kind: str, **fields: Any) -> tuple[int, Json]:
        index = len(self.output)
        item = {"type": kind, "id": f"item_{index}", "status": "in_progress", **fields}
        self.output.append(item)
        self.say("response.output_item.added", output_index=index, item=item)
        return index, item

    def done(self, index: int, **fields: Any) -> None:
        item = self.output[index]
        item |= {"status": "completed", **fields}
        self.say("response.output_item.done", output_index=index, item=item)

    def reasoning(self, *deltas: str) -> None:
        index, item = self.item("reasoning", summary=[])
        at = {"item_id": item["id"], "output_index": index, "summary_index": 0}
        part = {"type": "summary_text", "text": "".join(deltas)}
        self.say("response.reasoning_summary_part.added", **at, part=part | {"text": ""})
        for delta in deltas:
            self.say("response.reasoning_summary_text.delta", **at, delta=delta)
        self.say("response.reasoning_summary_text.done", **at, text=part["text"])
        self.say("response.reasoning_summary_part.done", **at, part=part)
        self.done(index, summary=[part])

    def message(self, *deltas: str, closed: bool = True) -> None:
        index, item = self.item("message", role="assistant", content=[])
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        part: Json = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self.say("response.content_part.added", **at, part=part)
        for delta in deltas:
            self.say("response.output_text.delta", **at, delta=delta, logprobs=[])
        part |= {"text": "".join(deltas)}
        if not closed:
            item |= {"status": "incomplete", "content": [part]}
            return
        part |= {"annotations": [CITATION]}
        added = {"annotation_index": 0, "annotation": CITATION}
        self.say("response.output_text.annotation.added", **at, **added)
        self.say("response.output_text.done", **at, text=part["text"], logprobs=[])
        self.say("response.content_part.done", **at, part=part)
        self.done(index, content=[part])

    def call(self, *deltas: str) -> None:
        index = len(self.output)
        _, item = self.item("function_call", call_id=f"call_{index}", name="look", arguments="")
        at = {"item_id": item["id"], "output_index": index}
        for delta in deltas:
            self.say("response.function_call_arguments.delta", **at, delta=delta)
        self.say("response.function_call_arguments.done", **at, arguments="".join(deltas))
        self.done(index, arguments="".join(deltas))


def completed() -> list[Json]:
    """Reasoning, a message with a citation, two calls, an item of an extension; completed."""
    script = _Script()
    script.reasoning("Look ", "it up.")
    script.message("Hel", "lo")
    script.call('{"a"', ":1}")
    script.call("{}")
    index, _ = script.item("acme:look")
    script.done(index)
    end = {"status": "completed", "completed_at": 1_767_225_601, "usage": _USAGE}
    script.say("response.completed", response=script.response(**end))
    return script.events


def failed() -> list[Json]:
    """A message that a failure cut."""
    script = _Script()
    script.message("Hel", "lo", closed=False)
    script.say("error", error={"type": "server_error", "param": None, **ERROR})
    script.say("response.failed", response=script.response(status="failed", error=ERROR))
    return script.events
