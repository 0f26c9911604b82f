"""Streams of other servers of the Responses API, damaged on purpose and read by the responses dialect."""

from collections.abc import Iterable
from typing import Any

from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.emitter import ResponseStreamStateMachine
from tests.support.checked_inbound import CheckedInbound, Frame

Json = dict[str, Any]


def adopting(machine: ResponseStreamStateMachine) -> Inbound:
    return Inbound(machine, adopt=True)


class CheckedResponses(CheckedInbound):
    """An upstream's stream, checked as in `CheckedInbound`."""

    def __init__(
        self,
        frames: Iterable[Frame] = (),
        wire: str = "openresponses",
        close: bool = True,
        adopt: bool = True,
    ) -> None:
        super().__init__(adopting if adopt else Inbound, frames, wire, close)

    def named(self, name: str, data: bytes) -> list[str]:
        """A frame with an SSE event name."""
        inbound = self.inbound
        assert isinstance(inbound, Inbound)
        return self._watch(inbound.feed(data, name))

    @property
    def repairs(self) -> list[str]:
        return self.notes("repair")

    @property
    def texts(self) -> list[str]:
        """The text of each message."""
        return [text_of(item) for item in self.output if item["type"] == "message"]

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """(call_id, name, arguments) of each call of any kind."""
        return [
            (item["call_id"], item["name"], item.get("arguments", item.get("input")))
            for item in self.output
            if item["type"] in ("function_call", "custom_tool_call")
        ]


def text_of(item: Json) -> str:
    return "".join(part.get("text", part.get("refusal", "")) for part in item["content"])


def response(status: str = "in_progress", **fields: Any) -> Json:
    """The smallest response that servers send."""
    return {"id": "resp_u", "created_at": 1_700_000_000, "model": "up", "status": status, **fields}


def created() -> Json:
    return {"type": "response.created", "response": response()}


def ended(status: str = "completed", *output: Json, **fields: Any) -> Json:
    return {"type": f"response.{status}", "response": response(status, output=list(output), **fields)}


def added(item: Json, at: int = 0) -> Json:
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def done(item: Json, at: int = 0) -> Json:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def message(*texts: str, id: str = "msg_u", status: str = "completed", **fields: Any) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {
        "type": "message",
        "id": id,
        "status": status,
        "role": "assistant",
        "content": content,
        **fields,
    }


def call(arguments: str = "", id: str = "fc_u", call_id: str = "call_u", **fields: Any) -> Json:
    known = {"type": "function_call", "id": id, "call_id": call_id, "name": "look", "status": "completed"}
    return {**known, "arguments": arguments, **fields}


def reasoning(*raw: str, summary: Iterable[str] = (), id: str = "rs_u", **fields: Any) -> Json:
    item: Json = {"type": "reasoning", "id": id, **fields}
    item["summary"] = [{"type": "summary_text", "text": text} for text in summary]
    if raw:
        item["content"] = [{"type": "reasoning_text", "text": text} for text in raw]
    return item


def delta(kind: str, text: str, at: int = 0, id: str = "msg_u", **fields: Any) -> Json:
    """Return a delta event; `kind` is the middle of its type: `delta("output_text", …)`."""
    where: Json = {"item_id": id, "output_index": at}
    if kind.startswith("reasoning_summary"):
        where["summary_index"] = 0
    elif "call" not in kind:
        where["content_index"] = 0
    return {"type": f"response.{kind}.delta", **where, "delta": text, **fields}


def whole(kind: str, field: str, text: str, at: int = 0, id: str = "msg_u", **fields: Any) -> Json:
    """Return the done event that belongs to such a delta."""
    event = delta(kind, "", at, id, **fields)
    event["type"] = f"response.{kind}.done"
    del event["delta"]
    return {**event, field: text}


def say(text: str, at: int = 0, id: str = "msg_u", **fields: Any) -> Json:
    return delta("output_text", text, at, id, **fields)


def argue(text: str, at: int = 0, id: str = "fc_u") -> Json:
    return delta("function_call_arguments", text, at, id)
