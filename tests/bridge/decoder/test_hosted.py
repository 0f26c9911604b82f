"""Hosted tools, unknown events and items, the trace (laws D1–D9)."""

from base64 import b64encode
from typing import Any

import pytest

from openresponses_bridge.decoder import LanguageModelDataPart, PartDecoder
from openresponses_bridge.protocol.codec import event_from
from tests.support.vscode_parts import Decoded, added, completed, done, function, kinds, said, text_delta

PNG = b"\x89PNG\r\n\x1a\nrest"


def image(data: bytes = PNG, **fields: Any) -> dict[str, Any]:
    item = {
        "type": "image_generation_call",
        "id": "ig_0",
        "status": "completed",
        "result": b64encode(data).decode(),
    }
    return item | fields


@pytest.mark.parametrize("kind", ["image_generation_call", "openai:image_generation_call"])
def test_a_generated_image_is_a_data_part_once(kind: str) -> None:
    item = image(type=kind)
    decoded = Decoded([text_delta("a"), done(item, 1), done(item, 1), completed(item)])
    assert decoded.parts[1] == LanguageModelDataPart(PNG, "image/png")
    assert kinds(decoded.parts) == ["Text", "Data", "Data"]


def test_an_image_in_the_final_response_only_is_shown() -> None:
    assert Decoded([completed(image())]).data("image/png") == [PNG]


@pytest.mark.parametrize(
    ("data", "named", "mime"),
    [
        (PNG, "webp", "image/png"),
        (b"\xff\xd8\xffx", None, "image/jpeg"),
        (b"GIF89a", None, "image/gif"),
        (b"RIFFxxxxWEBP", None, "image/webp"),
        (b"BMxx", None, "image/bmp"),
        (b"????", "avif", "image/avif"),
        (b"????", None, "image/png"),
    ],
)
def test_the_type_of_an_image_is_what_its_bytes_say(data: bytes, named: str | None, mime: str) -> None:
    item = image(data, **({} if named is None else {"output_format": named}))
    assert Decoded([done(item), completed()]).data(mime) == [data]


@pytest.mark.parametrize("result", ["no base64!", "é", "abc"])
def test_an_image_that_is_no_base64_is_noted(result: str) -> None:
    decoded = Decoded([done(image(result=result)), completed()])
    assert kinds(decoded.parts) == ["Data"]
    assert "image_generation_call.result" in decoded.notes("loss")


@pytest.mark.parametrize("result", [None, "", 7])
def test_an_image_without_result_shows_nothing(result: Any) -> None:
    assert kinds(Decoded([done(image(result=result)), completed()]).parts) == ["Data"]


def test_images_without_ids_are_distinguished_by_index() -> None:
    assert len(Decoded([done(image(id=""), 0), done(image(id=""), 1), completed()]).data("image/png")) == 2


HOSTED: list[dict[str, Any]] = [
    {"id": "it_0", "status": "completed", **item}
    for item in (
        {"type": "web_search_call", "action": {"type": "search", "query": "x"}},
        {"type": "file_search_call", "queries": ["x"]},
        {"type": "code_interpreter_call", "code": "1"},
        {"type": "mcp_call", "name": "x", "arguments": "{}", "call_id": "call_m"},
        {"type": "mcp_list_tools", "tools": []},
        {"type": "mcp_approval_request", "name": "x", "arguments": "{}"},
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        {
            "type": "local_shell_call",
            "call_id": "c",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        },
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "acme:look"},
    )
]


@pytest.mark.parametrize("item", HOSTED, ids=lambda item: item["type"])
def test_hosted_tools_make_no_parts(item: dict[str, Any]) -> None:
    decoded = Decoded([added(item), done(item), completed(item)])
    assert kinds(decoded.parts) == ["Data"]
    assert decoded.result.finish_reason == "stop"


@pytest.mark.parametrize("kind", ["shell_call", "local_shell_call", "apply_patch_call", "compaction"])
def test_what_has_no_part_is_noted(kind: str) -> None:
    (item,) = [item for item in HOSTED if item["type"] == kind]
    assert kind in Decoded([done(item), completed(item)]).notes("loss")


@pytest.mark.parametrize("kind", ["mcp_approval_request", "openai:mcp_approval_request"])
def test_an_approval_nobody_can_give_is_noted(kind: str) -> None:
    item = {"type": kind, "id": "ma", "status": "completed", "name": "x", "arguments": "{}"}
    assert "mcp_approval_request" in Decoded([done(item), completed()]).notes("loss")


def test_a_done_event_without_item_is_tolerated() -> None:
    events = [
        {"type": f"response.output_item.{verb}", "output_index": 0, "item": None}
        for verb in ("added", "done")
    ]
    assert kinds(Decoded([*events, completed()]).parts) == ["Data"]


def test_unknown_events_are_ignored_and_noted_once_per_type() -> None:
    events = [
        said("sparkle.delta", delta="x"),
        {"type": "acme:beat"},
        said("sparkle.delta", delta="y"),
        {"x": 1},
    ]
    decoded = Decoded([*events, text_delta("a"), completed()])
    assert decoded.text == "a"
    assert [(case.where, case.times) for case in decoded.result.diagnostics.of("ignored")] == [
        ("response.sparkle.delta", 2),
        ("acme:beat", 1),
        ('""', 1),
    ]


def test_a_peers_long_names_do_not_fill_the_log() -> None:
    decoded = Decoded([{"type": "x" * 10_000}])
    assert all(len(case.where) <= 80 for case in decoded.result.diagnostics)


def test_events_that_only_frame_others_make_no_parts() -> None:
    frames = [
        said("content_part.added", part={"type": "output_text", "text": "", "annotations": []}),
        said("reasoning_summary_part.added", part={"type": "summary_text", "text": ""}),
    ]
    decoded = Decoded([*frames, completed()])
    assert kinds(decoded.parts) == ["Data"]
    assert len(decoded.result.diagnostics) == 0


def test_the_trace_reports_the_sequence_of_events_and_no_content() -> None:
    lines: list[str] = []
    decoder = PartDecoder(trace=lines.append)
    raw = [text_delta("secret"), done(function(1, '{"secret":1}'), 1), {"type": "acme:beat"}, completed()]
    frame = said("content_part.added", part={"type": "output_text", "text": "secret", "annotations": []})
    for number, event in enumerate([frame, *raw, text_delta("secret")]):
        decoder.feed(event_from(event | {"sequence_number": number}))
    assert lines == [
        "0 response.content_part.added -> nothing",
        "1 response.output_text.delta -> LanguageModelTextPart",
        "2 response.output_item.done -> LanguageModelToolCallPart",
        "3 acme:beat -> nothing",
        "4 response.completed -> LanguageModelDataPart",
        "5 response.output_text.delta -> nothing",
    ]
