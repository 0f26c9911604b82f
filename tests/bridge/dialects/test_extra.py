"""The option `extra` of every dialect that has it: the operator's fields replace those of clients that are
passed on, and none that the bridge makes."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from openresponses_bridge.dialects import (
    anthropic_messages,
    bedrock_converse,
    chat_completions,
    gemini,
    interactions,
)
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.request import CreateResponse
from tests.support.upstream_requests import CLOSED, COLUMNS, drive

Json = dict[str, Any]
TOOLS = [{"type": "function", "name": "f", "parameters": CLOSED}, {"type": "web_search"}]
SAID: Json = {"input": "Hi", "instructions": "Be brief.", "temperature": 0.5}
ASKED: Json = {"model": "m", "stream": True, "tools": TOOLS, **SAID}


class Row(NamedTuple):
    """`client` reads a request of a client of the dialect, whose least body is `body`. `field` is the path of
    a field that only the upstream's API has. `made` has fields that the bridge makes of ASKED, with other
    values."""

    client: Callable[[Json], tuple[CreateResponse, Any]]
    body: Json
    field: str
    made: Json


ROWS = {
    "chat": Row(
        chat_completions.from_chat,
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
        "provider",
        {"web_search_options": {"a": 1}},
    ),
    "anthropic": Row(
        anthropic_messages.from_messages,
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
        "speed",
        {"model": "x", "stream": "x", "messages": [], "system": "x", "tools": [], "temperature": 0.1},
    ),
    "gemini": Row(
        gemini.from_gemini,
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        "generationConfig.mediaResolution",
        {"contents": [], "systemInstruction": {}, "tools": [], "generationConfig": {"temperature": 0.1}},
    ),
    "interactions": Row(
        interactions.from_interactions,
        {"model": "m", "input": "Hi"},
        "generation_config.image_config",
        {
            "model": "x",
            "store": True,
            "input": "x",
            "system_instruction": "x",
            "tools": [],
            "generation_config": {"temperature": 0.1},
        },
    ),
    "bedrock": Row(
        bedrock_converse.from_converse,
        {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
        "additionalModelRequestFields.top_a",
        {"messages": [], "system": [], "toolConfig": {}, "inferenceConfig": {"temperature": 0.1}},
    ),
}


def names_of_options(column: str) -> tuple[str, ...]:
    """Return the names of a dialect's options."""
    side = COLUMNS[column][0]
    return () if side is None else side.options.__struct_fields__


# (dialect, how the field reaches it): from a client of the same API, or by the option `passes`
WAYS = [
    (column, way)
    for column in ROWS
    for way in ("carried", "passed")
    if way == "carried" or "passes" in names_of_options(column)
]


def at(path: str, value: Any) -> Json:
    """Return an object with the value at the path."""
    name, _, rest = path.partition(".")
    return {name: at(rest, value) if rest else value}


def found(body: Json, path: str) -> Any:
    """Return the value at the path."""
    for name in path.split("."):
        body = body[name]
    return body


def test_every_dialect_with_the_option_has_a_row() -> None:
    assert set(ROWS) == {column for column in COLUMNS if "extra" in names_of_options(column)}


@pytest.mark.parametrize(("column", "way"), WAYS)
def test_the_operators_fields_replace_those_that_a_client_has_sent(column: str, way: str) -> None:
    row = ROWS[column]
    fields = at(row.field, "the client's")
    if way == "carried":
        request, options = row.client({**row.body, **fields})[0], dict[str, Any]()
    else:
        request = decode_request(json.dumps({"model": "m", "input": "Hi", **fields}))
        options = {"passes": ["*"]}
    assert found(drive(column, request, **options)[0], row.field) == "the client's"
    options["extra"] = at(row.field, "the operator's")
    assert found(drive(column, request, **options)[0], row.field) == "the operator's"


@pytest.mark.parametrize("value", [True, False, None])
@pytest.mark.parametrize("column", ["chat", "interactions"])
def test_whether_an_answer_is_streamed_is_the_clients_alone(column: str, value: bool | None) -> None:
    """Where a whole answer is asked for, the body has no `stream`, so that the operator's would be added."""
    side = COLUMNS[column][0]
    assert side is not None
    with pytest.raises(ValueError, match="extra: stream is made by the bridge itself"):
        side.options(extra={"stream": value})


@pytest.mark.parametrize("column", ROWS)
def test_the_operators_fields_replace_none_that_the_bridge_makes(column: str) -> None:
    row = ROWS[column]
    options = {"web_search": "google"} if column == "chat" else {}
    request = decode_request(json.dumps(ASKED))
    original, _ = drive(column, request, **options)
    assert original.keys() >= row.made.keys()
    changed, _ = drive(column, request, **options, extra={**row.made, "added": 1})
    assert changed == {**original, "added": 1}
