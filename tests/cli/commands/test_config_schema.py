"""`config schema`: the schema for editors and the server agree about files."""

import copy
import json
import math
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner
from msgspec.inspect import DictType, ListType, StructType, VarTupleType

from openresponses_cli.commands.cli import main
from openresponses_cli.commands.schemas import Kind, schema_of
from openresponses_server.settings import Settings, SettingsError
from openresponses_server.settings.files import as_toml, converted, substituted
from openresponses_server.upstreams.catalog import read_models
from openresponses_server.upstreams.profiles import names, profile
from tests.support.configurations import PROFILES, configurations

FORMATS = ("config", "profile", "models")


def _pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    """As editors do, whose `$` is the end, while Python's also stands before a last newline."""
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


Validator = jsonschema.validators.extend(jsonschema.Draft7Validator, {"pattern": _pattern})


@cache
def validator(kind: Kind) -> Any:
    return Validator(schema_of(kind))


def wrong(fields: Any, kind: Kind = "config") -> list[str]:
    return [f"{each.json_path}: {each.message}" for each in validator(kind).iter_errors(fields)]


def accepts(fields: dict[str, Any]) -> bool:
    try:
        converted(substituted(fields), Settings)
    except SettingsError:
        return False
    return True


CONFIGURATIONS = {name: tomllib.loads(text) for name, text in configurations()}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_schema_is_one_and_is_printed(kind: Kind) -> None:
    jsonschema.Draft7Validator.check_schema(schema_of(kind))
    printed = CliRunner().invoke(main, ["config", "schema", kind])
    assert (printed.exit_code, json.loads(printed.stdout)) == (0, json.loads(json.dumps(schema_of(kind))))


def test_every_field_says_what_it_is() -> None:
    def without(schema: Any, at: str) -> Iterator[str]:
        for name, each in schema.get("properties", {}).items() if isinstance(schema, dict) else ():
            if not each.get("description") and "$ref" not in each:
                yield f"{at}.{name}"
            yield from without(each, f"{at}.{name}")
            yield from without(each.get("items"), f"{at}.{name}[]")

    for kind in FORMATS:
        schema = schema_of(kind)
        assert list(without(schema, kind)) == []
        assert [path for each in schema.get("definitions", {}).values() for path in without(each, "")] == []


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_examples_are_right(name: str) -> None:
    assert wrong(CONFIGURATIONS[name]) == []


def test_there_are_examples() -> None:
    assert {"bridge.toml", "llamacpp.toml"} < CONFIGURATIONS.keys()
    assert len(CONFIGURATIONS) > 12


@pytest.mark.parametrize("name", names())
def test_the_profiles_are_right(name: str) -> None:
    assert wrong(tomllib.loads((PROFILES / f"{name}.toml").read_text("utf-8")), "profile") == []


def test_the_models_that_ship_are_right() -> None:
    path = PROFILES.parent / "models.toml"
    assert read_models(path)
    assert wrong(tomllib.loads(path.read_text("utf-8")), "models") == []


UPSTREAM = {"url": "http://127.0.0.1:1"}
RIGHT: list[dict[str, Any]] = [
    {},
    {"retention": "forever", "drain": "10m"},
    {"retention": "${KEPT:-90m}", "balance": "${BALANCE:-order}"},
    {"upstreams": [{"profile": "openai"}, {"profile": "mine", "options": {"anything": 1}}]},
    {"upstreams": [{**UPSTREAM, "verify": "system"}, {**UPSTREAM, "verify": False}]},
    {"upstreams": [{**UPSTREAM, "options": {"alternating": True}}]},
    {"upstreams": [{**UPSTREAM, "playback": {"speed": 2}}, {**UPSTREAM, "playback": {"speed": "max"}}]},
    {"upstreams": [{**UPSTREAM, "api_keys": ["${A:-a}", ["print-key", "b"]]}]},
    {"upstreams": [{"url": "unix:/run/model.sock"}, {"url": "recording:one.jsonl"}]},
    {"prices": {"*": {"input": 1, "output": 2.5, "tiers": [{"above": 9, "input": 1, "output": 2}]}}},
    {"store": "sqlite:///x", "event_log": "redis://127.0.0.1"},
]
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"prot": 1}, "'prot' was unexpected"),
    ({"port": 70000}, "$.port"),
    ({"port": "8080"}, "$.port"),
    ({"retention": "30 days"}, "$.retention"),
    ({"retention": "30d\n"}, "$.retention"),
    ({"drain": "forever"}, "$.drain"),
    ({"balance": "fair"}, "$.balance"),
    ({"limits": {"tols": 3}}, "'tols' was unexpected"),
    ({"upstreams": [{"url": "localhost:8080"}]}, "$.upstreams[0].url"),
    ({"upstreams": [{"name": "x"}]}, "$.upstreams[0]"),
    ({"upstreams": [{**UPSTREAM, "dialect": "soap"}]}, "$.upstreams[0].dialect"),
    ({"upstreams": [{**UPSTREAM, "options": {"alternatng": True}}]}, "'alternatng' was unexpected"),
    ({"upstreams": [{**UPSTREAM, "dialect": "gemini", "options": {"alternating": True}}]}, "'alternating'"),
    ({"upstreams": [{**UPSTREAM, "model_options": {"m": {"alternatng": 1}}}]}, "'alternatng'"),
    ({"oidc": [{"issuer": "i", "audience": ["a"], "jwks": "example.com"}]}, "$.oidc[0].jwks"),
    ({"oidc": [{"issuer": "i", "audience": [], "jwks": "https://x"}]}, "$.oidc[0].audience"),
    ({"functions": [{"module": "m", "label": "a b"}]}, "$.functions[0].label"),
    ({"store": "mysql://x"}, "$.store"),
]


@pytest.mark.parametrize("fields", RIGHT, ids=str)
def test_right_files(fields: dict[str, Any], tmp_path: Path) -> None:
    assert wrong(fields) == []
    assert accepts(fields)


@pytest.mark.parametrize(("fields", "said"), WRONG, ids=str)
def test_wrong_files(fields: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in "\n".join(wrong(fields))
    file = tmp_path / "bridge.toml"
    file.write_text("\n".join(f"{name} = {as_toml(value)}" for name, value in fields.items()))
    assert CliRunner().invoke(main, ["config", "check", str(file)]).exit_code == 1


VALUES: list[Any] = [
    *(True, 0, 1, -1, 7, 70_000, 10**13, 0.5, 2.0, float("inf"), float("nan")),
    *("", "x", "a b", "30s", "30s\n", "forever", "max", "always", "openai", "none", "RS256", "401", "high"),
    *("http://127.0.0.1:1", "${THERE}", "${MISSING:-1}", "$${x}"),
    *([], ["x"], [1], [["x"]], ["401"], ["${THERE}"], [{}]),
    *({}, {"a": "b"}, {"a": 1}, {"a": {}}, {"concurrent": "c"}, {"input": 1}),
]
# the least that each table needs beside the field that is tried
NEEDED: dict[str, dict[str, Any]] = {
    "UpstreamSettings": UPSTREAM,
    "OidcSettings": {"issuer": "i", "audience": ["a"], "jwks": "https://x.example"},
    "FunctionSettings": {"module": "m"},
    "McpServerSettings": {"name": "m", "command": "c"},
    "WebSearchSettings": {"provider": "duckduckgo"},
    "PriceTier": {"above": 1, "input": 1, "output": 1},
}
# what is checked when it is used, and not by the type of the field
LATER = {"upstreams", "url", "jwks", "store", "event_log", "dialect", "options", "model_options"}


def tables(info: Any, wrap: Any = lambda value: value) -> Iterator[tuple[Any, Any]]:
    """Each struct in the settings, with what makes a whole file of one of it."""
    if isinstance(info, msgspec.inspect.Metadata):
        yield from tables(info.type, wrap)
    elif isinstance(info, msgspec.inspect.UnionType):
        for each in info.types:
            yield from tables(each, wrap)
    elif isinstance(info, ListType | VarTupleType):
        yield from tables(info.item_type, lambda value: wrap([value]))
    elif isinstance(info, DictType):
        yield from tables(info.value_type, lambda value: wrap({"n": value}))
    elif isinstance(info, StructType):
        yield info, wrap
        needed = NEEDED.get(info.cls.__name__, {})
        for field in info.fields:

            def inside(value: Any, name: str = field.encode_name) -> Any:
                return wrap({**needed, name: value})

            yield from tables(field.type, inside)


TABLES = list(tables(msgspec.inspect.type_info(Settings)))


@pytest.mark.parametrize("number", range(len(TABLES)), ids=lambda at: f"{TABLES[at][0].cls.__name__}-{at}")
def test_the_schema_and_the_server_agree(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field of every table, with values that it may have and that it may not."""
    info, wrap = TABLES[number]
    monkeypatch.setenv("THERE", "order")
    needed = NEEDED.get(info.cls.__name__, {})
    assert accepts(wrap(copy.deepcopy(needed)))
    for field, value in product(info.fields, VALUES):
        name = field.encode_name
        if name in LATER:
            continue
        fields = wrap({**needed, name: value})
        expected, is_valid = accepts(fields), validator("config").is_valid(fields)
        # what only the server knows, and numbers that no schema tells from others
        unseen = "${" in str(value) or (isinstance(value, float) and (math.isnan(value) or value == 2))
        assert is_valid or not expected, f"the server takes {name} = {value!r}: {wrong(fields)}"
        assert expected or unseen or not is_valid, f"the server refuses {name} = {value!r}"


@pytest.mark.parametrize("field", ["store", "event_log"])
def test_addresses_may_be_variables(field: str) -> None:
    assert wrong({field: "${WHERE}"}) == []
    assert wrong({field: "x y"}) != []


def test_shipped_profiles_are_completed_and_others_accepted() -> None:
    (known, _) = schema_of("config")["properties"]["upstreams"]["items"]["properties"]["profile"]["anyOf"]
    assert known == {"enum": names()}
    assert all(profile(name) for name in names())
