"""Schemas of clients: which are taken, which are refused at which place, and that nothing is looked up."""

import ast
import json
import socket
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.schemas.checking import check_schema, dialect_of, validator
from tests.support.costs import assert_proportional

ROOT = Path(__file__).parents[3]
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def checked(schema: dict[str, Any], most_bytes: int = 100_000, most_nodes: int = 10_000) -> None:
    check_schema(schema, "the.param", most_bytes=most_bytes, most_nodes=most_nodes)


TAKEN: dict[str, dict[str, Any]] = {
    "empty": {},
    "a property called $ref": {"properties": {"$ref": {"type": "string"}, "$id": {}, "$schema": {}}},
    "a definition called $ref": {"$defs": {"$ref": {"type": "string"}}},
    "a reference in data": {
        "properties": {"a": {"const": {"$ref": "http://x/"}, "enum": [{"$ref": "file:///x"}]}},
        "default": {"$ref": "http://x/"},
        "examples": [{"$ref": "http://x/"}],
    },
    "a keyword that is not known": {"x-note": {"$ref": "http://x/"}, "components": [{"$ref": "y"}]},
    "a local reference": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
    "a recursive one": {"properties": {"next": {"$ref": "#"}}},
    "a circle": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "escapes in a pointer": {"$ref": "#/$defs/a~1b%20~0", "$defs": {"a/b ~": {}}},
    "a pointer into a list": {"$ref": "#/anyOf/0", "anyOf": [True]},
    "an anchor": {"items": {"$ref": "#here"}, "$defs": {"a": {"$anchor": "here"}}},
    "a dynamic anchor": {"$dynamicRef": "#here", "$defs": {"a": {"$dynamicAnchor": "here"}}},
    "a name at the root": {"$id": "https://example.com/a", "$ref": "#/$defs/a", "$defs": {"a": {}}},
    "draft 7": {"$schema": DRAFT_7, "definitions": {"a": {"$id": "#here"}}, "items": {"$ref": "#here"}},
    "lists of items": {"$schema": DRAFT_7, "items": [{"$ref": "#"}], "dependencies": {"a": ["b"]}},
    "a pattern that looks ahead": {"pattern": "^(?=.*[0-9])[a-z0-9]+$"},
}


@pytest.mark.parametrize("schema", TAKEN.values(), ids=TAKEN)
def test_schemas_that_are_taken(schema: dict[str, Any]) -> None:
    checked(schema)
    validator(dialect_of(schema) or "", schema)  # the engine can use them too


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "http": ({"$ref": "http://127.0.0.1:9/secret"}, "`$ref` at $.$ref is not a reference within it"),
    "file": (
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        "$.properties.a.$ref is not a reference within it",
    ),
    "relative": ({"allOf": [{}, {"$ref": "other.json"}]}, "$.allOf[1].$ref is not a reference within it"),
    "relative with a fragment": (
        {"items": {"$ref": "other.json#/a"}},
        "$.items.$ref is not a reference within it",
    ),
    "a name": ({"$ref": "urn:a:b"}, "is not a reference within it"),
    "the metaschema": ({"$ref": DRAFT_7}, "is not a reference within it"),
    "dynamic": (
        {"not": {"$dynamicRef": "http://x/#a"}},
        "`$dynamicRef` at $.not.$dynamicRef is not a reference within it",
    ),
    "recursive": (
        {"$recursiveRef": "http://x/"},
        "`$recursiveRef` at $.$recursiveRef is not a reference within it",
    ),
    "behind a reference": (
        {"$ref": "#/x", "x": {"y": {}, "$ref": "http://x/"}},
        "is not a reference within it",
    ),
    "behind a reference into data": (
        {"$ref": "#/const", "const": {"$ref": "http://x/"}},
        "is not a reference within it",
    ),
    "in a dependency": (
        {"$schema": DRAFT_7, "dependencies": {"a": {"$ref": "http://x/"}}},
        "is not a reference within it",
    ),
    "not words": (
        {"$schema": "http://json-schema.org/draft-04/schema#", "$ref": 7},
        "$.$ref is not a reference within it",
    ),
    "nowhere": ({"items": {"$ref": "#/$defs/a"}}, "$.items.$ref has no target"),
    "an anchor that is not there": ({"$ref": "#here"}, "$.$ref has no target"),
    "beyond a list": ({"$ref": "#/anyOf/7", "anyOf": [{}]}, "has no target"),
    "through a text": ({"$ref": "#/title/0", "title": "a"}, "has no target"),
    "to a text": ({"$ref": "#/title", "title": "a"}, "does not refer to a schema"),
    "a name within": ({"properties": {"a": {"$id": "http://x/y"}}}, "`$id` at $.properties.a"),
    "a dialect within": ({"items": {"$schema": "http://x/y"}}, "`$schema` at $.items"),
    "a dialect that is not known": ({"$schema": "http://127.0.0.1:9/schema"}, "`$schema` at $"),
    "a dialect that is a number": ({"$schema": 7}, "`$schema` at $"),
    "a type that is not known": ({"properties": {"a": {"type": "thing"}}}, "$.properties.a.type"),
    "a negative length": ({"minLength": -1}, "$.minLength: violates 'minimum'"),
    "half a surrogate pair": ({"properties": {"\ud800": {}}}, "surrogate"),
}


@pytest.mark.parametrize(("schema", "why"), REFUSED.values(), ids=REFUSED)
def test_schemas_that_are_refused(schema: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", None)  # nothing is fetched to find out
    with pytest.raises(InvalidRequestError) as refused:
        checked(schema)
    assert refused.value.param == "the.param"
    assert why in refused.value.message
    assert "secret" not in refused.value.message


def test_size_is_limited() -> None:
    schema = {"required": [str(number) for number in range(50)]}
    for limits, why in (({"most_nodes": 51}, "51"), ({"most_bytes": 100}, "100 bytes")):
        with pytest.raises(InvalidRequestError, match=why):
            checked(schema, **limits)
    checked(schema, most_nodes=52, most_bytes=1000)


def test_place_in_a_message_is_short_whatever_the_keys_are() -> None:
    schema: dict[str, Any] = {"$ref": "http://x/"}
    for _ in range(20):
        schema = {"properties": {"k\n" * 500: schema}}
    with pytest.raises(InvalidRequestError) as refused:
        checked(schema, most_bytes=10**6)
    assert len(refused.value.message) < 400
    assert "\n" not in refused.value.message


def test_checking_costs_what_the_schema_is_long() -> None:
    """References to one place, long keys above many schemas, and all of it in one list of alternatives."""

    def seconds(times: int) -> float:
        many = [{"$ref": "#/$defs/a"} for _ in range(times)]
        schema = {"properties": {"k" * times: {"anyOf": many}}, "$defs": {"a": {"allOf": many}}}
        before = process_time()
        checked(schema, 10**8, 10**7)
        return process_time() - before

    assert_proportional(seconds, 1000, 8000)


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/x", "file:///etc/hosts", "other.json"])
def test_engine_itself_looks_nothing_up(reference: str) -> None:
    with pytest.raises(Exception, match=r"Retrieval is disabled|No base URI"):
        validator(dialect_of({}) or "", {"$ref": reference})


# ── no validator that could look something up, anywhere ──────────────────────────────────────────────────
BUILDERS = {"validate", "validator_for", "validator_cls_for"}


def modules() -> list[Path]:
    """The modules that name either engine."""
    paths = [path for part in ("bridge", "server", "tests") for path in sorted((ROOT / part).rglob("*.py"))]
    return [path for path in paths if "jsonschema" in path.read_text()]


def imported(tree: ast.AST, library: str) -> dict[str, str]:
    """Local names → what they are called in the library they come from, the library's own among them."""
    aliases: list[ast.alias] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases += [each for each in node.names if each.name.split(".")[0] == library]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == library:
            aliases += node.names
    return {each.asname or each.name: each.name for each in aliases}


def builds(call: ast.Call, names: dict[str, str]) -> bool:
    """Whether the call makes a validator: by a name or an attribute that comes from the library."""
    called, name = call.func, ""
    if isinstance(called, ast.Name):
        name = names.get(called.id, "")
    elif (
        isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in names
    ):
        name = called.attr
    return name.endswith("Validator") or name in BUILDERS


def unguarded(source: str) -> list[int]:
    """The lines of a module where a validator of jsonschema is made without a registry of its own."""
    tree = ast.parse(source)
    names = imported(tree, "jsonschema")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and builds(node, names)]
    return [call.lineno for call in calls if "registry" not in {each.arg for each in call.keywords}]


def test_every_validator_has_a_registry_of_its_own() -> None:
    lines = {str(path.relative_to(ROOT)): unguarded(path.read_text()) for path in modules()}
    assert {path: numbers for path, numbers in lines.items() if numbers} == {}


def test_engine_is_built_in_one_module_and_offline() -> None:
    for path in modules():
        nodes = list(ast.walk(ast.parse(path.read_text())))
        attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
        used = {node.attr for node in attributes if ast.unparse(node.value) in ("engine()", "engine")}
        if path.as_posix().endswith("bridge/openresponses_bridge/schemas/checking.py"):
            calls = [node for node in nodes if isinstance(node, ast.Call)]
            constructions = [
                node for node in calls if ast.unparse(node.func) in ("made", "module.Draft202012Validator")
            ]
            assert len(constructions) == 3
            for call in constructions:
                offline = {each.arg: each.value for each in call.keywords}["offline"]
                assert isinstance(offline, ast.Constant)
                assert offline.value is True
        else:
            assert used <= {"ValidationError"}, path


def test_a_validator_without_a_registry_would_be_seen() -> None:
    assert unguarded("import jsonschema\njsonschema.validate(1, {})") == [2]
    assert unguarded("from jsonschema import Draft7Validator as V\nV({})") == [2]
    assert unguarded("from jsonschema import Draft7Validator\nDraft7Validator({}, registry=r)") == []


def test_surfaces_name_the_place_in_their_own_request(demo: str) -> None:
    from tests.support.serving import call

    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/secret"}}}
    ours = {"text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}
    chat = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}
    messages = {"output_config": {"format": {"type": "json_schema", "schema": schema}}, "max_tokens": 99}
    conversation = [{"role": "user", "content": "x"}]
    for path, body, param in (
        ("/v1/responses", ours | {"input": "x"}, "text.format.schema"),
        ("/v1/chat/completions", chat | {"messages": conversation}, "response_format.json_schema.schema"),
        ("/v1/messages", messages | {"messages": conversation}, None),
    ):
        reply = call(demo, "POST", path, {"model": "demo", **body})
        error = reply.json["error"]
        assert (reply.status, error.get("param")) == (400, param)
        assert "$.properties.a.$ref" in error["message"]
        assert "secret" not in json.dumps(error)


def test_a_schema_is_refused_before_a_walk_of_it_is_too_deep() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"items": schema}
    with pytest.raises(InvalidRequestError, match="nested too deeply"):
        checked(schema, 10**8, 10**7)
