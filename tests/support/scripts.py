"""Streams written by hand as plain JSON, event by event, for tests that validate or damage them."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from openresponses_bridge.protocol.response import RESPONSE_DEFAULTS

Event = dict[str, Any]

USAGE = {
    "input_tokens": 3,
    "output_tokens": 5,
    "total_tokens": 8,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 2},
}
RESPONSE: Event = {
    **msgspec.to_builtins(RESPONSE_DEFAULTS),
    "id": "resp_1",
    "object": "response",
    "created_at": 1_700_000_000,
    "status": "in_progress",
    "model": "m",
}
CITATION = {
    "type": "url_citation",
    "url": "https://a.example/",
    "start_index": 0,
    "end_index": 2,
    "title": "A",
}


class Script:
    """Builds a clean stream. Each method appends whole items; `events` is the result."""

    def __init__(self, *, queued: bool = False, **response: Any) -> None:
        self.events: list[Event] = []
        self.output: list[Event] = []
        self.response = deepcopy(RESPONSE) | response
        self._say("response.created", response=self._ended(status="queued" if queued else "in_progress"))
        if queued:
            self._say("response.queued", response=self._ended(status="queued"))
        self._say("response.in_progress", response=self._ended())

    def message(
        self,
        *parts: tuple[str, Sequence[str]],
        status: str = "completed",
        citations: Sequence[Event] = (),
        closed: bool = True,
    ) -> "Script":
        """Add a message. Its parts are ("output_text" | "refusal", deltas); citations are added to each text
        part."""
        at, item = self._begin({"type": "message", "role": "assistant", "content": []}, "msg")
        for kind, deltas in parts:
            where = {"item_id": item["id"], "output_index": at, "content_index": len(item["content"])}
            field = "text" if kind == "output_text" else "refusal"
            extra: Event = {"annotations": [], "logprobs": []} if field == "text" else {}
            self._say("response.content_part.added", **where, part={"type": kind, field: "", **extra})
            padding: Event = {"logprobs": []} if field == "text" else {}
            for delta in deltas:
                self._say(f"response.{kind}.delta", **where, delta=delta, **padding)
            if field == "text" and citations:
                extra["annotations"] = list(citations)
                for index, citation in enumerate(citations):
                    self._say(
                        "response.output_text.annotation.added",
                        **where,
                        annotation_index=index,
                        annotation=citation,
                    )
            part = {"type": kind, field: "".join(deltas), **extra}
            item["content"].append(part)
            if closed:
                self._say(f"response.{kind}.done", **where, **{field: part[field]}, **padding)
                self._say("response.content_part.done", **where, part=part)
        return self._end(at, item, status, closed)

    def reasoning(
        self, raw: Sequence[str] = (), summaries: Sequence[Sequence[str]] = (), encrypted: str | None = None
    ) -> "Script":
        at, item = self._begin({"type": "reasoning", "summary": []}, "rs")
        if raw:
            where = {"item_id": item["id"], "output_index": at, "content_index": 0}
            part = {"type": "reasoning_text", "text": "".join(raw)}
            self._say("response.content_part.added", **where, part={**part, "text": ""})
            for delta in raw:
                self._say("response.reasoning.delta", **where, delta=delta)
            self._say("response.reasoning.done", **where, text=part["text"])
            self._say("response.content_part.done", **where, part=part)
            item["content"] = [part]
        for index, deltas in enumerate(summaries):
            where = {"item_id": item["id"], "output_index": at, "summary_index": index}
            part = {"type": "summary_text", "text": "".join(deltas)}
            self._say("response.reasoning_summary_part.added", **where, part={**part, "text": ""})
            for delta in deltas:
                self._say("response.reasoning_summary_text.delta", **where, delta=delta)
            self._say("response.reasoning_summary_text.done", **where, text=part["text"])
            self._say("response.reasoning_summary_part.done", **where, part=part)
            item["summary"].append(part)
        if encrypted is not None:
            item["encrypted_content"] = encrypted
        return self._end(at, item, "completed")

    def calls(self, *calls: Sequence[str], cut: bool = False) -> "Script":
        """Add calls side by side, whose deltas alternate. With `cut`, all end before their arguments do."""
        begun = []
        for _ in calls:
            call_id = f"call_{len(self.output)}"
            fields = {"type": "function_call", "call_id": call_id, "name": "look", "arguments": ""}
            begun.append(self._begin(fields, "fc"))
        for turn in range(max(map(len, calls), default=0)):
            for (at, item), deltas in zip(begun, calls, strict=True):
                if turn < len(deltas):
                    where = {"item_id": item["id"], "output_index": at}
                    self._say("response.function_call_arguments.delta", **where, delta=deltas[turn])
                    item["arguments"] += deltas[turn]
        for at, item in begun:
            if not cut:
                where = {"item_id": item["id"], "output_index": at}
                self._say("response.function_call_arguments.done", **where, arguments=item["arguments"])
            self._end(at, item, "incomplete" if cut else "completed")
        return self

    def custom_call(self, *deltas: str) -> "Script":
        """Add one of OpenAI's calls with free text."""
        fields = {"type": "custom_tool_call", "call_id": "call_c", "name": "sql", "input": ""}
        at, item = self._begin(fields, "ctc")
        where = {"item_id": item["id"], "output_index": at}
        for delta in deltas:
            self._say("response.custom_tool_call_input.delta", **where, delta=delta)
        item["input"] = "".join(deltas)
        self._say("response.custom_tool_call_input.done", **where, input=item["input"])
        return self._end(at, item, "completed")

    def whole(self, item: Event, *progress: str) -> "Script":
        """Add an item of a type that does not stream, with progress events of these types."""
        at, item = self._begin(item, "it")
        for kind in progress:
            self._say(kind, item_id=item["id"], output_index=at)
        return self._end(at, item, "completed")

    def extension(self, kind: str = "acme:beat", **fields: Any) -> "Script":
        self._say(kind, **fields)
        return self

    def finish(self, reason: str | None = None) -> list[Event]:
        """Complete the response, or end it as incomplete for a reason, and return the whole stream."""
        if reason is None:
            sent = self._ended(status="completed", completed_at=1_700_000_009, usage=USAGE)
            self._say("response.completed", response=sent)
        else:
            sent = self._ended(status="incomplete", incomplete_details={"reason": reason}, usage=USAGE)
            self._say("response.incomplete", response=sent)
        return self.events

    def cancel(self) -> list[Event]:
        """Cancel the response as OpenAI does, and return the whole stream."""
        self._say("response.incomplete", response=self._ended(status="cancelled"))
        return self.events

    def fail(self, *, nested: bool = True) -> list[Event]:
        """Send an error and fail, with open items incomplete, and return the whole stream."""
        facts = {"code": "server_error", "message": "it broke", "param": None}
        if nested:
            self._say("error", error={"type": "server_error", **facts})
        else:
            self._say("error", **facts)
        error = {"code": "server_error", "message": "it broke"}
        self._say("response.failed", response=self._ended(status="failed", error=error))
        return self.events

    def _say(self, kind: str, **fields: Any) -> None:
        head = {"type": kind, "sequence_number": len(self.events)}
        self.events.append(deepcopy(head | fields))

    def _ended(self, **changes: Any) -> Event:
        return {**self.response, "output": self.output, **changes}

    def _begin(self, fields: Event, prefix: str) -> tuple[int, Event]:
        at = len(self.output)
        item = {"id": f"{prefix}_{at}", "status": "in_progress", **fields}
        self.output.append(item)
        self._say("response.output_item.added", output_index=at, item=item)
        return at, item

    def _end(self, at: int, item: Event, status: str, closed: bool = True) -> "Script":
        item["status"] = status if closed else "incomplete"
        if closed:
            self._say("response.output_item.done", output_index=at, item=item)
        return self


def renumber(events: list[Event]) -> list[Event]:
    """Return the same events, numbered from 0."""
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def settle(events: list[Event]) -> list[Event]:
    """Return the same events, with the finished items as the terminal output."""
    done = {each["output_index"]: each["item"] for each in events if each["type"].endswith("item.done")}
    output = [item for _, item in sorted(done.items())]
    return [
        {**event, "response": {**event["response"], "output": output}}
        if event["type"] in ("response.completed", "response.incomplete")
        else event
        for event in events
    ]


def everything() -> list[Event]:
    """A completed stream with every published kind of output in it."""
    script = Script(queued=True)
    script.reasoning(raw=["hm", "m."], summaries=[["One", "."], ["Two."]], encrypted="sealed")
    script.message(("output_text", ["Hel", "lo ", "é🙂"]), ("refusal", ["No", "."]), citations=[CITATION])
    script.calls(['{"a"', ":1}"], ["{", "}"]).extension(note="x").whole({"type": "acme:look", "seen": [1]})
    script.whole({"type": "function_call_output", "call_id": "call_2", "output": "ok"})
    return script.finish()


def clean_streams() -> Iterator[tuple[str, list[Event]]]:
    """Clean streams of the published wire by name: one for each way in which a stream can end."""
    yield "everything", everything()
    yield "nothing", Script().finish()
    yield "text", Script().message(("output_text", ["a", "b"])).finish()
    yield "incomplete", Script().message(("output_text", ["a"]), status="incomplete").finish("content_filter")
    yield "cancelled", Script().message(("output_text", ["a"]), status="incomplete").finish("cancelled")
    yield "cut calls", Script().calls(["{"], ['{"b'], cut=True).finish("max_output_tokens")
    yield "failed", Script().calls(["{}"]).message(("output_text", ["a", "b"]), closed=False).fail()
    yield "failed at once", Script().fail()
