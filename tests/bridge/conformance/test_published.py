"""What the published wire allows: where the structs accept more, the OpenAPI document decides."""

from typing import Any

import pytest

from openresponses_bridge.conformance.published import OPENAI_EVENTS, deviations, has_event
from openresponses_bridge.protocol.codec import event_from
from openresponses_bridge.protocol.hosted import PROGRESS_EVENTS
from openresponses_bridge.protocol.lenient import Repair
from openresponses_bridge.state import PUBLISHED_EVENTS
from tests.support.schema import event_schemas, event_violations
from tests.support.scripts import CITATION, Event, everything
from tests.support.shared import require_shared

Change = tuple[str, Any]
FILE = {"type": "file_citation", "file_id": "f", "index": 0}
DOCUMENT = {"type": "input_file", "filename": "f"}
VIDEO = {"type": "input_video", "video_url": "u"}
IMAGE = {"type": "input_image", "image_url": None, "detail": "auto"}
FUNCTION = {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None}
JSON_SCHEMA = {"type": "json_schema", "name": "n", "description": None, "schema": None, "strict": True}


def respond(**fields: Any) -> Event:
    return {**everything()[0], "response": {**everything()[0]["response"], **fields}}


def added(**item: Any) -> Event:
    return {"type": "response.output_item.added", "sequence_number": 0, "output_index": 0, "item": item}


def message(*parts: Any) -> Event:
    return added(type="message", id="m", status="in_progress", role="assistant", content=list(parts))


def part(**fields: Any) -> Event:
    where = {"item_id": "m", "output_index": 0, "content_index": 0}
    return {"type": "response.content_part.added", "sequence_number": 0, **where, "part": fields}


def output(*parts: Any) -> Event:
    return added(type="function_call_output", id="o", call_id="c", status="in_progress", output=list(parts))


def reasoning(*parts: Any) -> Event:
    return added(type="reasoning", id="r", status="in_progress", summary=list(parts))


def annotated(annotation: Any) -> Event:
    where = {"item_id": "m", "output_index": 0, "content_index": 0, "annotation_index": 0}
    kind = "response.output_text.annotation.added"
    return {"type": kind, "sequence_number": 0, **where, "annotation": annotation}


ERROR = {"type": "server_error", "code": None, "message": "m", "param": None}

# an event, the path of what the published wire has against it (None: nothing), whether OpenAI's has it too
CASES: dict[str, tuple[Event, str | None, bool]] = {
    "a function": (respond(tools=[FUNCTION]), None, False),
    "a hosted tool": (respond(tools=[FUNCTION, {"type": "web_search"}]), "$.response.tools[1].type", False),
    "a custom tool": (respond(tools=[{"type": "custom", "name": "c"}]), "$.response.tools[0].type", False),
    "a tool without type": (respond(tools=[{"name": "f"}]), "$.response.tools[0].type", True),
    "a tool choice": (respond(tool_choice={"type": "function", "name": "f"}), None, False),
    "a custom choice": (
        respond(tool_choice={"type": "custom", "name": "f"}),
        "$.response.tool_choice.type",
        False,
    ),
    "allowed tools": (
        respond(
            tool_choice={
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}],
            }
        ),
        None,
        False,
    ),
    "allowed tools without mode": (
        respond(tool_choice={"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]}),
        "$.response.tool_choice.mode",
        False,
    ),
    "allowed tools that are not tools": (
        respond(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]}),
        "$.response.tool_choice.tools[0].type",
        False,
    ),
    "a JSON schema": (respond(text={"format": JSON_SCHEMA}), None, False),
    "a JSON schema echoed": (
        respond(text={"format": {**JSON_SCHEMA, "schema": {"type": "object"}}}),
        "$.response.text.format.schema",
        False,
    ),
    "a grammar": (respond(text={"format": {"type": "grammar"}}), "$.response.text.format.type", False),
    "reasoning": (respond(reasoning={"effort": "xhigh", "summary": "auto"}), None, False),
    "reasoning of null": (respond(reasoning={"effort": None, "summary": None}), None, False),
    "an effort": (
        respond(reasoning={"effort": "minimal", "summary": None}),
        "$.response.reasoning.effort",
        False,
    ),
    "a summary mode": (
        respond(reasoning={"effort": None, "summary": "long"}),
        "$.response.reasoning.summary",
        False,
    ),
    "a hosted item": (added(type="web_search_call", id="w", status="in_progress"), "$.item.type", False),
    "a custom call": (
        added(type="custom_tool_call", id="w", status="in_progress", call_id="c", name="n", input=""),
        "$.item.type",
        False,
    ),
    "an item without type": (added(id="m", role="assistant", content=[]), "$.item.type", True),
    "a namespace": (
        added(
            type="function_call",
            id="f",
            call_id="c",
            name="n",
            arguments="",
            status="in_progress",
            namespace="x",
        ),
        None,
        False,
    ),
    "a citation": (annotated(CITATION), None, False),
    "no citation": (annotated(None), None, False),
    "a file citation": (annotated(FILE), "$.annotation.type", False),
    "a file citation in a part": (
        part(type="output_text", text="", annotations=[FILE]),
        "$.part.annotations[0].type",
        False,
    ),
    "a file citation in an item": (
        message({"type": "output_text", "text": "", "annotations": [FILE]}),
        "$.item.content[0].annotations[0].type",
        False,
    ),
    "an unknown part": (part(type="hologram"), "$.part.type", False),
    "a part without type": (part(text=""), "$.part.type", True),
    "a video in a part": (part(type="input_video", video_url="u"), "$.part.type", False),
    "a video in a message": (message(VIDEO), None, False),
    "a video in reasoning": (reasoning(VIDEO), "$.item.summary[0].type", False),
    "an image": (message(IMAGE), None, False),
    "an original image": (message({**IMAGE, "detail": "original"}), "$.item.content[0].detail", False),
    "a file": (message(DOCUMENT), None, False),
    "a file of null": (message({**DOCUMENT, "filename": None}), "$.item.content[0].filename", False),
    "an output": (output(IMAGE, {"type": "input_text", "text": ""}), None, False),
    "a bare image": (output({"type": "input_image"}), "$.item.output[0].image_url", False),
    "a video in an output": (output(VIDEO), "$.item.output[0].type", False),
    "an error": ({"type": "error", "sequence_number": 0, "error": ERROR}, None, False),
    "an error at top level": ({**ERROR, "type": "error", "sequence_number": 0}, "$.error", False),
}


def sent(event: Event, wire: str) -> list[str]:
    repairs: list[Repair] = []
    event_from(event, repairs)
    return [path for path, _ in [*deviations(wire, event), *repairs]]


@pytest.mark.parametrize(("event", "path", "everywhere"), CASES.values(), ids=CASES)
def test_e10_the_published_wire_is_held_to_its_schema(
    event: Event, path: str | None, everywhere: bool
) -> None:
    paths = sent(event, "openresponses")
    assert (path in paths) if path else not paths
    for wire in ("openai", "any"):
        assert bool(sent(event, wire)) is everywhere


@pytest.mark.parametrize(("event", "path", "everywhere"), CASES.values(), ids=CASES)
def test_e3_the_openapi_document_says_the_same(event: Event, path: str | None, everywhere: bool) -> None:
    require_shared()
    assert bool(event_violations(event)) is (path is not None)


@pytest.mark.parametrize("kind", ["tools", "output"])
def test_extensions_stand_among_tools_and_items(kind: str) -> None:
    assert sent(respond(**{kind: [{"type": "acme:thing", "id": "x"}]}), "openresponses") == []


def test_an_extension_item_needs_an_id() -> None:
    for wire in ("openresponses", "openai", "any"):
        assert sent(added(type="acme:look", status="in_progress"), wire) == ["$.item.id"]


def test_the_published_events_are_the_document_s() -> None:
    require_shared()
    assert set(event_schemas()) == PUBLISHED_EVENTS


def test_openai_s_events_are_those_that_are_recorded() -> None:
    recorded = {path.stem for path in (require_shared() / "fixtures/spec-events").glob("*.json")}
    assert recorded <= OPENAI_EVENTS
    newer = (
        "apply_patch_call_operation_diff",
        "compaction",
        "shell_call_command",
        "shell_call_output_content",
    )
    assert {each.rpartition(".")[0] for each in OPENAI_EVENTS - recorded} == {f"response.{n}" for n in newer}
    assert all(stem.startswith("response.") for stem in PROGRESS_EVENTS)


@pytest.mark.parametrize(
    ("event_type", "wires"),
    [
        ("response.output_text.delta", "openresponses openai any"),
        ("error", "openresponses openai any"),
        ("acme:beat", "openresponses openai any"),
        ("acme:beat.again", "openresponses openai any"),
        ("response.reasoning.delta", "openresponses any"),
        ("response.reasoning_text.delta", "openai any"),
        ("response.web_search_call.searching", "openai any"),
        ("response.unheard_of", "any"),
        ("ping", ""),
        ("", ""),
        ("acme:", ""),
        (":beat", ""),
        ("acme: beat", ""),
    ],
)
def test_e10_which_wire_has_which_event(event_type: str, wires: str) -> None:
    assert {wire for wire in ("openresponses", "openai", "any") if has_event(wire, event_type)} == set(
        wires.split()
    )
