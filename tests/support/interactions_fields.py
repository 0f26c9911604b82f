"""Every field that google-genai's own types of the Interactions API have, in requests and answers as they are
on the wire.

`tests/bridge/dialects/interactions/fields.json` stores the result of `fields_of_sdk`, so that the tests need
no SDK. `tests/clients/test_google_interactions.py` compares both; `python -m
tests.support.interactions_fields` writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

from openresponses_bridge.dialects.interactions import (
    Inbound,
    Outbound,
    from_interactions,
    interaction,
    to_interactions,
)
from openresponses_bridge.dialects.interactions.client.interaction import Folding
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.seal import Sealer
from tests.support.gemini_fields import written
from tests.support.typed_fields import TypedFields

Json = dict[str, Any]
SEALER: Final = Sealer()
LIST: Final = Path(__file__).parents[1] / "bridge" / "dialects" / "interactions" / "fields.json"
_HELLO: Final[Json] = {"type": "user_input", "content": [{"type": "text", "text": "Hello"}]}
_CALL: Final[Json] = {"type": "function_call", "id": "text", "name": "text", "arguments": {}}
_RESULT: Final[Json] = {"type": "function_result", "call_id": "text", "name": "text", "result": "seen"}
_NEEDED: Final[dict[str, Json]] = {
    "Function": {"name": "text"},
    "MCPServer": {"url": "https://mcp.example"},
    "FunctionResultStep": {"result": "seen"},
    "ImageContent": {"data": "AAAA", "mime_type": "image/png"},
    "AudioContent": {"data": "AAAA", "mime_type": "audio/wav"},
    "DocumentContent": {"data": "AAAA", "mime_type": "application/pdf"},
    "VideoContent": {"data": "AAAA", "mime_type": "video/mp4"},
}
_NAMED: Final[Json] = {"uri": "gs://bucket/a", "data": "AAAA", "name": "text"}
_UNKNOWN: Final = ("is_unknown", "raw", "UNKNOWN")


def fields_in_list() -> Json:
    """Return `requests` and `answers` from the file: a wire value by the path of each field."""
    fields: Json = json.loads(LIST.read_text("utf-8"))
    return fields


def fields_of_sdk() -> Json:
    """Return `requests` and `answers`, derived from the installed SDK."""
    sdk = import_module("google.genai._gaos.types.interactions")
    return {"requests": dict(_requests(sdk)), "answers": dict(_answers(sdk))}


def _needed(sdk: Any) -> dict[str, Json]:
    """Return the fields that objects need in addition to the one under test: their type, which the SDK adds
    itself."""
    required = dict(_NEEDED)
    for module in iter_modules(sdk.__path__):
        for kind in vars(import_module(f"{sdk.__name__}.{module.name}")).values():
            own = getattr(kind, "model_fields", {}).get("type")
            if own is not None and isinstance(own.default, str):
                required[kind.__name__] = {"type": own.default} | _NEEDED.get(kind.__name__, {})
    return required


def _steps(sdk: Any) -> Iterator[tuple[str, Json]]:
    """A step for each field of each type of step."""
    for kind in import_module(f"{sdk.__name__}.step")._STEP_VARIANTS.values():
        for path, value in TypedFields(_needed(sdk), {}, _NAMED, whole=True).of(kind):
            if not set(_UNKNOWN) & set(path) and "UNKNOWN" not in str(value):
                named = kind.model_fields["type"].default
                yield ".".join(("steps", named, *path)), value


def _requests(sdk: Any) -> Iterator[tuple[str, Json]]:
    for path, value in TypedFields(_needed(sdk), {}, _NAMED, whole=True).of(sdk.CreateModelInteraction):
        if path[0] != "input" and not set(_UNKNOWN) & set(path) and "UNKNOWN" not in str(value):
            yield ".".join(path), {"input": [_HELLO], **value, "model": "m"}
    for name, step in _steps(sdk):
        before = [_CALL] if step["type"] == "function_result" else []
        behind = [{**_RESULT, "call_id": step["id"]}] if step["type"] == "function_call" else []
        yield name, {"model": "m", "input": [*before, step, *behind, _HELLO]}


def _answers(sdk: Any) -> Iterator[tuple[str, Json]]:
    ended: Json = {"id": "v1_a", "object": "interaction", "status": "completed"}
    for path, value in TypedFields(_needed(sdk), {}, _NAMED).of(sdk.Interaction):
        if path[0] not in ("steps", "input", *_MADE) and "UNKNOWN" not in str(value):
            yield ".".join(path), ended | {"steps": []} | value
    for name, step in _steps(sdk):
        if step["type"] not in ("user_input", "function_result"):
            status = "requires_action" if step["type"] == "function_call" else "completed"
            yield name, ended | {"status": status, "steps": [step]}


_MADE: Final = ("output_text", "output_image", "output_audio", "output_video")
"""Fields that the SDK sets itself."""


def sent(body: Json) -> tuple[Json, list[str]]:
    """Return what the upstream gets of such a body, and the reported losses."""
    request, read = from_interactions(encode(body), SEALER)
    payload, written = to_interactions(request, model="m", sealer=SEALER)
    wire: Json = decode_json(encode(payload))
    return wire, [str(case) for case in (*read, *written)]


def frames(answer: Json) -> list[Json]:
    """An answer as the events of its stream."""
    steps: list[Json] = answer["steps"]
    events: list[Json] = [{"event_type": "interaction.created", "interaction": {"status": "in_progress"}}]
    for index, step in enumerate(steps):
        events.append({"event_type": "step.start", "index": index, "step": step})
        events.append({"event_type": "step.stop", "index": index})
    ended = {name: value for name, value in answer.items() if name != "steps"}
    return [*events, {"event_type": "interaction.completed", "interaction": ended}]


def returned(events: list[Json]) -> tuple[Json, Json, list[str]]:
    """Return what a client gets for the events of an upstream: (the folded stream, the whole answer, the
    reported losses)."""
    machine = ResponseStreamStateMachine("m", wire="openai")
    inbound, outbound = Inbound(machine, SEALER), Outbound(SEALER, thoughts=True)
    folding, end = Folding(outbound.diagnostics), dict[str, Any]()
    stream_events = [event for frame in events for event in inbound.feed(encode(frame))] + inbound.close()
    for event in stream_events:
        chunks = outbound.feed(event)
        folding.feed(chunks)
        end |= next((each["interaction"] for each in chunks if "interaction" in each), {})
    whole = decode_json(encode(interaction(machine.snapshot, SEALER, thoughts=True)))
    report = [str(case) for case in (*machine.diagnostics, *outbound.diagnostics) if case.kind != "ignored"]
    return decode_json(encode(end | {"steps": folding.steps})), whole, report


if __name__ == "__main__":
    LIST.write_text(written(fields_of_sdk()), "utf-8")
