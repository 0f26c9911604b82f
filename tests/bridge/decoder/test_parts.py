"""VS Code's parts and their JSON."""

import json
import sys
from typing import Any

import pytest

from openresponses_bridge import decoder
from openresponses_bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
    Part,
    encode_part,
    encode_parts,
)
from tests.support.parts import decode_part

RESULT = LanguageModelToolResultPart(
    "c",
    [
        LanguageModelTextPart("a"),
        LanguageModelDataPart(b"\x00", "image/png"),
        LanguageModelPromptTsxPart({}),
        7,
        {"x": 1},
    ],
    True,
)

CASES: list[tuple[Part, dict[str, Any]]] = [
    (LanguageModelTextPart("é🙂"), {"type": "LanguageModelTextPart", "value": "é🙂", "$mid": 21}),
    (
        LanguageModelToolCallPart("gw-c", "look", {"a": [1]}),
        {"type": "LanguageModelToolCallPart", "callId": "gw-c", "name": "look", "input": {"a": [1]}},
    ),
    (
        LanguageModelDataPart(b"\x00\xff", "image/png"),
        {"type": "LanguageModelDataPart", "data": "AP8=", "mimeType": "image/png", "$mid": 24},
    ),
    (LanguageModelThinkingPart("a"), {"type": "LanguageModelThinkingPart", "value": "a", "$mid": 22}),
    (
        LanguageModelThinkingPart(["a", "b"], "rs", {"x": 1}),
        {
            "type": "LanguageModelThinkingPart",
            "value": ["a", "b"],
            "id": "rs",
            "metadata": {"x": 1},
            "$mid": 22,
        },
    ),
    (LanguageModelPromptTsxPart([1]), {"type": "LanguageModelPromptTsxPart", "value": [1], "$mid": 23}),
    (
        RESULT,
        {
            "type": "LanguageModelToolResultPart",
            "callId": "c",
            "content": [
                {"type": "LanguageModelTextPart", "value": "a", "$mid": 21},
                {"type": "LanguageModelDataPart", "data": "AA==", "mimeType": "image/png", "$mid": 24},
                {"type": "LanguageModelPromptTsxPart", "value": {}, "$mid": 23},
                7,
                {"x": 1},
            ],
            "isError": True,
        },
    ),
]


@pytest.mark.parametrize(("part", "wire"), CASES)
def test_parts_there_and_back(part: Part, wire: dict[str, Any]) -> None:
    assert json.loads(encode_part(part)) == wire
    assert decode_part(encode_part(part)) == part
    assert decode_part(encode_part(part).decode()) == part


@pytest.mark.parametrize(("part", "wire"), CASES)
def test_the_marshalling_number_may_be_missing(part: Part, wire: dict[str, Any]) -> None:
    assert decode_part(json.dumps({name: value for name, value in wire.items() if name != "$mid"})) == part


def test_json_lines_are_one_part_a_line() -> None:
    parts = [part for part, _ in CASES]
    lines = encode_parts(parts).splitlines()
    assert encode_parts(parts).endswith(b"\n")
    assert [decode_part(line) for line in lines] == parts


def test_statics_have_vscodes_default_types() -> None:
    assert LanguageModelDataPart.image(b"x", "image/png") == LanguageModelDataPart(b"x", "image/png")
    assert LanguageModelDataPart.text("é") == LanguageModelDataPart("é".encode(), "text/plain")
    assert LanguageModelDataPart.text("a", "text/html").mime_type == "text/html"
    assert LanguageModelDataPart.json({"a": [1, "é"], "b": {}}) == LanguageModelDataPart(
        '{\n\t"a": [\n\t\t1,\n\t\t"é"\n\t],\n\t"b": {}\n}'.encode(), "text/x-json"
    )
    assert LanguageModelDataPart.json(1, "application/json").mime_type == "application/json"


def test_the_public_names_are_there() -> None:
    assert sorted(decoder.__all__) == list(dict.fromkeys(sorted(decoder.__all__)))
    assert all(hasattr(decoder, name) for name in decoder.__all__)


@pytest.mark.parametrize("kind", [tuple, list, iter])
def test_lines_leave_nothing_behind(kind: Any) -> None:
    """An encoder that kept its iterator would keep the parts in it, one for each line of each stream."""
    part = LanguageModelTextPart("Hi")
    encode_parts(kind([part]))
    blocks = sys.getallocatedblocks()
    for _ in range(1000):
        encode_parts(kind([part]))
    assert sys.getallocatedblocks() - blocks < 100
