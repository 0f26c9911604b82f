"""A decoder as somebody writes it who has read the protocol, in forty lines. `faults` puts mistakes in."""

import json
from collections.abc import Collection, Iterator
from typing import Any

ONE_LINE, BY_ARRIVAL, ALWAYS_COMPLETED = "one data line", "calls by arrival", "always completed"
ENDS = ("response.completed", "response.incomplete", "response.failed")


def events(body: bytes, faults: Collection[str]) -> Iterator[dict[str, Any]]:
    text = body.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    for block in text.split("\n\n"):
        lines = [
            line.partition(":")[2].removeprefix(" ") for line in block.split("\n") if line[:5] == "data:"
        ]
        data = lines[0] if ONE_LINE in faults and lines else "\n".join(lines)
        try:
            yield json.loads(data)
        except ValueError:
            continue  # a comment, [DONE]


def decoded(body: bytes, faults: Collection[str] = ()) -> dict[str, Any]:
    text, error, response, newest, seen = "", None, None, {}, set()
    items: dict[int, dict[str, Any]] = {}
    for event in events(body, faults):
        at, kind, number = event.get("output_index", 0), event["type"], event.get("sequence_number")
        if number and (number, kind) in seen:
            continue
        seen.add((number, kind))
        if kind == "response.output_item.added":
            items[at] = newest = {**event["item"], "streamed": ""}
        elif kind.endswith("arguments.delta") and newest:
            newest["streamed"] += event["delta"]
        elif kind == "response.output_item.done":
            items[at] = {**items.get(at, {}), **event["item"]}
        elif kind == "response.output_text.delta":
            text += event["delta"]
        elif kind == "error":
            error = event.get("error", event)
        elif kind in ENDS:
            response = event["response"]
            break
    if response is None:
        return {"status": "failed" if error else "cut", "text": text, "calls": []}
    output = response["output"] or [items[at] for at in sorted(items)]
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    calls = [item for item in output if item["type"].endswith("_call") and item.get("status") == "completed"]
    calls = [item for item in calls if "call_id" in item]
    if BY_ARRIVAL in faults:
        streamed = {
            item.get("call_id"): item.get("streamed") for item in items.values() if "arguments" in item
        }
        calls = [{**item, "arguments": streamed.get(item["call_id"]) or item["arguments"]}
                 if "arguments" in item else item for item in calls]  # fmt: skip
    completed = ALWAYS_COMPLETED in faults and response["status"] != "failed"
    status = "completed" if completed else response["status"]
    joined = "".join(part["text"] for part in parts if part["type"] == "output_text")
    return {"status": status, "text": joined, "calls": calls}
