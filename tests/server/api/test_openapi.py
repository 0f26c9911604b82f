"""`/openapi.json`: it describes what is served, and the published requests and our answers keep to it."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from openresponses_server.api.app import create_app
from openresponses_server.api.openapi import document
from openresponses_server.api.openapi.document import operations_of
from openresponses_server.api.openapi.operations import OPERATIONS
from openresponses_server.settings import Settings
from tests.support.schema import schemas, violations
from tests.support.serving import call, respond, stream
from tests.support.shared import shared_files

UNDESCRIBED = {"/", "/inspector", "/inspector/{file}"}  # pages, not an API


@pytest.fixture(scope="module")
def sent(demo: str) -> dict[str, Any]:
    reply = call(demo, "GET", "/openapi.json")
    assert reply.status == 200
    schema: dict[str, Any] = reply.json
    return schema


def problems(sent: dict[str, Any], name: str, instance: Any) -> list[str]:
    registry: Registry[Any] = Registry().with_resource("urn:ours", DRAFT202012.create_resource(sent))
    validator = Draft202012Validator({"$ref": f"urn:ours#/components/schemas/{name}"}, registry=registry)
    return [f"{error.json_path}: {error.message}"[:200] for error in validator.iter_errors(instance)]


def test_every_route_is_described_and_nothing_else() -> None:
    served = set(operations_of(create_app(Settings(store="memory://")).routes))
    assert {key for key in served if key[1] not in UNDESCRIBED} == set(OPERATIONS)


def test_what_is_not_served_is_not_described() -> None:
    assert list(document({("get", "/healthz")})["paths"]) == ["/healthz"]


def test_every_schema_is_a_schema_and_every_reference_leads_somewhere(sent: dict[str, Any]) -> None:
    known = sent["components"]["schemas"]
    for schema in known.values():
        Draft202012Validator.check_schema(schema)
    named = {part.split('"')[0] for part in json.dumps(sent).split("#/components/schemas/")[1:]}
    assert named <= set(known)


def test_examples_keep_to_their_schemas(sent: dict[str, Any]) -> None:
    seen = 0
    for path in sent["paths"].values():
        for operation in path.values():
            media = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            for example in media.get("examples", {}).values():
                name = media["schema"]["$ref"].rpartition("/")[2]
                assert problems(sent, name, example["value"]) == []
                seen += 1
    assert seen >= 6


def test_the_published_examples_that_keep_to_their_schema_keep_to_ours(sent: dict[str, Any]) -> None:
    names = {"ResponseResource": "Response", "CompactResource": "CompactResource"}
    valid = [
        (ours, example)
        for theirs, ours in names.items()
        if (example := schemas()[theirs].get("example")) is not None and not violations(theirs, example)
    ]
    assert valid
    assert [problems(sent, name, example) for name, example in valid] == [[]] * len(valid)


@pytest.mark.parametrize("recording", shared_files("client-requests", "*.jsonl"))
def test_requests_of_real_clients_keep_to_our_schema(recording: Path, sent: dict[str, Any]) -> None:
    for line in recording.read_text().splitlines():
        body = json.loads(line).get("body")
        if isinstance(body, dict) and "input" in body:
            assert problems(sent, "CreateResponse", body) == []


def test_answers_keep_to_it(demo: str, sent: dict[str, Any]) -> None:
    assert problems(sent, "Response", respond(demo, model="demo").json) == []
    for event in stream(demo, model="demo-reasoning").events:
        assert problems(sent, "StreamEvent", event) == []
    assert problems(sent, "ErrorBody", respond(demo, model="demo", max_output_tokens=1).json) == []
    assert problems(sent, "ModelList", call(demo, "GET", "/v1/models").json) == []


@pytest.mark.parametrize(
    "request_body",
    [
        {"input": 5},
        {"input": [{"type": "message", "role": "user"}]},
        {"input": [{"type": "function_call_output", "call_id": "c"}]},
        {"tools": [{"type": "function"}]},
        {"max_output_tokens": 1},
        {"metadata": {"a": 1}},
    ],
)
def test_what_the_server_refuses_is_against_the_schema(
    demo: str, sent: dict[str, Any], request_body: dict[str, Any]
) -> None:
    assert respond(demo, model="demo", **request_body).status == 400
    assert problems(sent, "CreateResponse", {"model": "demo", **request_body})


def test_an_extension_and_a_message_without_type_are_admitted(sent: dict[str, Any]) -> None:
    body = {
        "input": [{"role": "user", "content": "x"}, {"type": "acme:note", "text": "y"}],
        "tools": [{"type": "web_search"}],
    }
    assert problems(sent, "CreateResponse", body) == []
