"""Anthropic streams for inbounds, recorded and generated, and their results, read without the project's own
code."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.decoder.accumulator import ResponseAccumulator
from openresponses_bridge.dialects.anthropic_messages import Inbound, Outbound, encode_sse
from openresponses_bridge.dialects.anthropic_messages.thinking import open_sealed
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer
from tests.support.machines import machine, plain, same
from tests.support.reference_validator import judge

Frame = tuple[bytes, str]  # payload, SSE event name
Json = dict[str, Any]


def recorded(path: Path) -> list[Frame]:
    """The frames of a recorded stream: SSE with LF line ends, or one JSON text per line."""
    data = path.read_bytes()
    if b"\ndata:" not in data:
        return [(line, "") for line in data.splitlines() if line.strip()]
    frames = []
    for block in data.split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in block.splitlines() if b": " in line)
        if b"data" in fields:
            frames.append((fields[b"data"], fields.get(b"event", b"").decode()))
    return frames


def frame(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


def start(id: str = "msg_1", **usage: int) -> bytes:
    head = {"id": id, "type": "message", "role": "assistant", "model": "m", "content": []}
    return frame("message_start", message={**head, "usage": {"input_tokens": 3, "output_tokens": 1, **usage}})


def opened(index: int, kind: str, **fields: Any) -> bytes:
    return frame("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: int, kind: str, **fields: Any) -> bytes:
    return frame("content_block_delta", index=index, delta={"type": kind, **fields})


def closed(index: int) -> bytes:
    return frame("content_block_stop", index=index)


def text(index: int, *pieces: str) -> list[bytes]:
    """A text block."""
    deltas = [delta(index, "text_delta", text=piece) for piece in pieces]
    return [opened(index, "text", text=""), *deltas, closed(index)]


def thinking(index: int, *pieces: str, signature: str = "sig") -> list[bytes]:
    """A thinking block; an empty signature is not sent."""
    deltas = [delta(index, "thinking_delta", thinking=piece) for piece in pieces]
    signed = [delta(index, "signature_delta", signature=signature)] if signature else []
    return [opened(index, "thinking", thinking="", signature=""), *deltas, *signed, closed(index)]


def tool(index: int, id: str, name: str, *pieces: str) -> list[bytes]:
    """A tool_use block whose input arrives in these pieces of JSON."""
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in pieces]
    return [opened(index, "tool_use", id=id, name=name, input={}), *deltas, closed(index)]


def stop(reason: str | None = "end_turn", **usage: int) -> list[bytes]:
    """The events that end a message."""
    sent = {"stop_reason": reason, "stop_sequence": None}
    return [
        frame("message_delta", delta=sent, usage={"output_tokens": 9, **usage}),
        frame("message_stop"),
    ]


class CheckedAnthropic:
    """An inbound that is checked against the laws that always hold: after each frame its events are valid and
    add up to the snapshot (laws E1–E3)."""

    def __init__(
        self, frames: Iterable[bytes | Frame] = (), wire: str = "openresponses", sealer: Sealer | None = None
    ) -> None:
        self.machine = machine(wire)
        self.sealer = sealer or Sealer()
        self.inbound = Inbound(self.machine, self.sealer)
        self.events: list[Event] = []
        self._folded = ResponseAccumulator()
        self._validator = StreamValidator(wire)  # type: ignore[arg-type]
        for each in frames:
            self.feed(*each) if isinstance(each, tuple) else self.feed(each)

    def feed(self, data: bytes, event: str = "") -> list[Event]:
        return self._watch(self.inbound.feed(data, event))

    def close(self) -> "CheckedAnthropic":
        self._watch(self.inbound.close())
        assert not self._validator.close()
        if self.machine.wire == "openresponses":
            assert not judge([plain(event) for event in self.events])
        return self

    @property
    def response(self) -> Response:
        return self.machine.snapshot

    @property
    def output(self) -> list[Json]:
        items: list[Json] = plain(self.response)["output"]
        return items

    def notes(self, kind: str) -> list[str]:
        return [case.where for case in self.inbound.diagnostics if case.kind == kind]

    def chunks(self, outbound: Outbound | None = None) -> list[Json]:
        """The events so far, encoded as an Anthropic stream again."""
        out = outbound or Outbound(self.sealer)
        stream = [chunk for event in self.events for chunk in out.feed(event)] + out.close()
        return parse_sse(encode_sse(stream))

    def _watch(self, events: list[Event]) -> list[Event]:
        for event in events:
            self._folded.feed(event)
            assert not (broken := self._validator.feed(event)), [str(each) for each in broken]
        self.events += events
        if self.events:
            assert same(self._folded.response, self.machine.snapshot), "E1"
        return events


def run(*frames: bytes | Sequence[bytes], **options: Any) -> CheckedAnthropic:
    """Feed a whole stream of frames and lists of frames, and return its inbound."""
    flat = [each for entry in frames for each in ([entry] if isinstance(entry, bytes) else entry)]
    return CheckedAnthropic(flat, **options).close()


def parse_sse(data: bytes) -> list[Json]:
    """Parse the SSE that this project writes; each event's name has to be its type."""
    chunks = []
    for block in data.decode().split("\n\n")[:-1]:
        name, payload = block.split("\n", 1)
        chunk = json.loads(payload.removeprefix("data: "))
        assert name == f"event: {chunk['type']}"
        chunks.append(chunk)
    return chunks


def sealed(item: Json, sealer: Sealer | None = None) -> tuple[str, Json]:
    """(kind, block) in an item's encrypted_content."""
    return open_sealed(sealer or Sealer(), item["encrypted_content"])


def calls(fed: CheckedAnthropic) -> list[tuple[str, str, str, str]]:
    """(call_id, name, arguments, status) of each call in the output."""
    return [
        (item["call_id"], item["name"], item["arguments"], item["status"])
        for item in fed.output
        if "call_id" in item
    ]


_GROWS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def add_up(chunks: Iterable[Json]) -> Json:
    """Fold the chunks of a stream into a message, according to the API's documentation. Blocks have to follow
    one another; a second message in the same list is not read."""
    message: Json = {}
    inputs: list[str] = []
    for chunk in chunks:
        kind = chunk["type"]
        if kind == "message_start" and not message:
            message = {**chunk["message"], "content": []}
        elif kind == "content_block_start":
            assert chunk["index"] == len(message["content"])
            message["content"].append(dict(chunk["content_block"]))
            inputs = []
        elif kind == "content_block_delta":
            assert chunk["index"] == len(message["content"]) - 1
            _grow(message["content"][-1], chunk["delta"], inputs)
        elif kind == "content_block_stop":
            assert chunk["index"] == len(message["content"]) - 1
            if "".join(inputs):
                message["content"][-1]["input"] = json.loads("".join(inputs))
        elif kind == "message_delta":
            message["usage"] |= {name: count for name, count in chunk["usage"].items() if count is not None}
            message |= {**chunk["delta"]}
            message |= (
                {"context_management": chunk["context_management"]} if chunk.get("context_management") else {}
            )
        elif kind == "message_stop":
            break
        elif kind == "error":
            message = chunk
    return message


def _grow(block: Json, grown: Json, inputs: list[str]) -> None:
    kind = grown["type"]
    if kind in _GROWS:
        block[_GROWS[kind]] += grown[_GROWS[kind]]
    elif kind == "input_json_delta":
        inputs.append(grown["partial_json"])
    elif kind == "citations_delta":
        block.setdefault("citations", []).append(grown["citation"])
    elif kind == "compaction_delta":
        block |= {name: value for name, value in grown.items() if name != "type"}
    else:
        raise AssertionError(kind)


def joined(content: list[Json]) -> list[Json]:
    """Content in which adjacent texts are joined and empty ones are left out, which a reader can't
    distinguish."""
    blocks: list[Json] = []
    for block in content:
        if block["type"] == "text" and not block["text"]:
            continue
        if block["type"] == "text" and blocks and blocks[-1]["type"] == "text":
            blocks[-1]["text"] += block["text"]
            if block.get("citations"):
                blocks[-1]["citations"] = blocks[-1].get("citations", []) + block["citations"]
        else:
            blocks.append(dict(block))
    return blocks
