"""JSON schemas of the files that `serve` reads, for editors: made from the structs that read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.inspect import DictType, LiteralType, Metadata, StructType, UnionType

from openresponses_server.settings import EMBEDDED_STORE, OidcSettings, Settings, UpstreamSettings
from openresponses_server.settings.descriptions import described
from openresponses_server.upstreams.catalog import FiledModel
from openresponses_server.upstreams.dialects import DEFAULT, DIALECTS, HttpDialect
from openresponses_server.upstreams.profiles import Profile, ProfileDialect, names

Schema = dict[str, Any]
Kind = Literal["config", "profile", "models"]
"""A configuration of `serve`, a file in the folder `profiles`, or the file `models_file`."""

# the keys that Taplo and Even Better TOML read
_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_MOST_BYTES: Final = 4 * 1024 * 1024  # of a schema that is read
_VARIABLE: Final[Schema] = {"type": "string", "pattern": r"\$\{"}
_OUTSIDE: Final = ("default", "description")
_VARIABLE_IS: Final = "`${NAME}`: the value of an environment variable."

_ADDRESSES: Final[dict[tuple[type[Struct], str], str]] = {
    (UpstreamSettings, "url"): r"://|^recording:|^unix:",
    (ProfileDialect, "url"): r"://|\$\{",
    (OidcSettings, "jwks"): r"://",
    (Settings, "store"): r"^(memory:|sqlite|postgres)",
    (Settings, "event_log"): r"^(memory:|file:|redis)",
}
"""The patterns of addresses, which are checked when they are used. None of these patterns backtracks."""


def schema_of(kind: Kind) -> Schema:
    """Return the schema of a file of this kind."""
    what, make = _KINDS[kind]
    return {"$schema": _DRAFT, "title": what, **make()}


def printed(kind: Kind) -> bytes:
    """Return the schema of a file of this kind as text."""
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False).encode() + b"\n"


def is_printed(kind: Kind, file: Path) -> bool:
    """Return True if the file has a schema of this kind, of any version."""
    try:
        with file.open("rb") as opened:
            schema = json.loads(opened.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(schema, dict) and schema.get("title") == _KINDS[kind][0]


def _config() -> Schema:
    writer = _Writer(variables=True)
    schema = writer.struct(Settings)
    schema["properties"]["store"]["default"] = EMBEDDED_STORE
    upstream = schema["properties"]["upstreams"]["items"]
    upstream["anyOf"] = [{"required": ["url"]}, {"required": ["profile"]}]
    upstream["allOf"] = [
        {
            "if": {"properties": {"dialect": {"const": name}}, "required": ["dialect"]},
            "then": {"properties": _options(name)},
        }
        for name in DIALECTS
    ]
    # a profile has its own dialect, which may be of the user's folder
    upstream["allOf"].append(
        {
            "if": {"not": {"anyOf": [{"required": ["dialect"]}, {"required": ["profile"]}]}},
            "then": {"properties": _options(DEFAULT)},
        }
    )
    return schema | {"definitions": _dialects(writer)}


def _profile() -> Schema:
    writer = _Writer()
    profile_schema = writer.struct(Profile)
    any_dialect = profile_schema["properties"]["dialects"].pop("additionalProperties")
    tables = {}
    for name, dialect in DIALECTS.items():
        properties = {**any_dialect["properties"]}
        for field, schema in _options(name).items():
            properties[field] = {**properties[field], **schema} if "$ref" not in schema else schema
        needed = ["url"] if isinstance(dialect, HttpDialect) else []
        tables[name] = {**any_dialect, "properties": properties, "required": needed}
    profile_schema["properties"]["dialects"] |= {"properties": tables, "additionalProperties": False}
    return profile_schema | {"definitions": _dialects(writer)}


def _models() -> Schema:
    return {"type": "object", "additionalProperties": _Writer().struct(FiledModel)}


_KINDS: Final[dict[Kind, tuple[str, Callable[[], Schema]]]] = {
    "config": ("The configuration of openresponses-bridge serve", _config),
    "profile": ("A profile of an upstream for openresponses-bridge", _profile),
    "models": ("Models for openresponses-bridge", _models),
}


def _options(dialect: str) -> dict[str, Schema]:
    """Return the schemas of a dialect's options, by the fields with the options."""
    of_dialect = {"$ref": f"#/definitions/{dialect}"}
    return {"options": of_dialect, "model_options": {"additionalProperties": of_dialect}}


def _dialects(writer: _Writer) -> dict[str, Schema]:
    return {name: writer.struct(dialect.side.options) for name, dialect in DIALECTS.items()}


class _Writer:
    """Writes schemas of structs. With `variables`, a text may be a variable even if its values are
    limited."""

    def __init__(self, *, variables: bool = False) -> None:
        self._variables = variables

    def struct(self, kind: type[Struct]) -> Schema:
        """Return the schema of a struct, with those of the structs in it. Names that it does not have are
        errors, as in files."""
        (reference,), components = msgspec.json.schema_components([kind], ref_template="{name}")
        self._components = components
        return self._written(components[reference["$ref"]], msgspec.inspect.type_info(kind))

    def _written(self, schema: Schema, info: Any) -> Schema:
        """Return the schema of a struct or value in full: with descriptions, and without null, which TOML
        does not have."""
        if "$ref" in schema:
            written = self._written(self._components[schema["$ref"]], info)
            return {**written, **{name: each for name, each in schema.items() if name == "default"}}
        if (among := schema.get("anyOf")) is not None:
            return self._among(schema, [each for each in among if each != {"type": "null"}], info)
        written = {name: each for name, each in schema.items() if name != "title"}
        if "pattern" in written:  # Python's $ also matches before a last newline
            written["pattern"] = written["pattern"].replace("\\Z", "$")
        kind = _bare(info)
        if isinstance(kind, StructType):
            written |= self._table(kind, schema)
        elif isinstance(kind, DictType):
            if isinstance(schema.get("additionalProperties"), dict):
                written["additionalProperties"] = self._written(
                    schema["additionalProperties"], kind.value_type
                )
            if isinstance(key := _bare(kind.key_type), LiteralType):
                written["propertyNames"] = {"enum": list(key.values)}
        elif "prefixItems" in schema:  # the form of later drafts
            pairs = zip(written.pop("prefixItems"), kind.item_types, strict=True)
            written["items"] = [self._written(*pair) for pair in pairs]
            written["additionalItems"] = False
        elif isinstance(schema.get("items"), dict):
            written["items"] = self._written(schema["items"], kind.item_type)
        return self._or_variable(written)

    def _table(self, kind: StructType, schema: Schema) -> Schema:
        what = described(kind.cls)
        properties = {}
        for field in kind.fields:
            field_schema = schema["properties"][field.encode_name]
            written = self._written(field_schema, field.type)
            if (pattern := _ADDRESSES.get((kind.cls, field.name))) is not None:
                written = self._or_variable({**written, "pattern": pattern})
            if (more := _KNOWN.get((kind.cls, field.name))) is not None:
                written = self._or_variable(more(written))
            if written.get("default", 0) is None or isinstance(field.type, StructType):
                del written["default"]
            properties[field.encode_name] = {**written, "description": what[field.name]}
        return {"properties": properties, "additionalProperties": False}

    def _among(self, schema: Schema, among: list[Schema], info: Any) -> Schema:
        rest = {name: each for name, each in schema.items() if name != "anyOf"}
        if len(among) == 1:
            return {**self._written(among[0], info), **rest}
        kinds = [each for each in _bare(info).types if not isinstance(each, msgspec.inspect.NoneType)]
        written: list[Schema] = []
        for each, kind in zip(among, kinds, strict=True):
            alternative = self._written(each, kind)
            # a value with a variable already has alternatives
            written += alternative.get("anyOf", [alternative])
        return {**rest, "anyOf": [each for at, each in enumerate(written) if each not in written[:at]]}

    def _or_variable(self, schema: Schema) -> Schema:
        limited = "enum" in schema or {"pattern", "minLength"} & schema.keys()
        if not (self._variables and limited):
            return schema
        outside: Schema = {name: each for name, each in schema.items() if name in _OUTSIDE}
        inside = {name: each for name, each in schema.items() if name not in outside}
        return {"anyOf": [inside, {**_VARIABLE, "description": _VARIABLE_IS}], **outside}


def _bare(info: Any) -> Any:
    """Return a type without its metadata and, if one other type is left, without None."""
    if isinstance(info, Metadata):
        return _bare(info.type)
    if isinstance(info, UnionType):
        others = [each for each in info.types if not isinstance(each, msgspec.inspect.NoneType)]
        return _bare(others[0]) if len(others) == 1 else info
    return info


def _one_of_dialects(schema: Schema) -> Schema:
    return {**schema, "enum": list(DIALECTS)}


_KNOWN: Final[dict[tuple[type[Struct], str], Callable[[Schema], Schema]]] = {
    (UpstreamSettings, "dialect"): _one_of_dialects,
    (Profile, "dialect"): _one_of_dialects,
    # suggested by editors, but the user's folder may have others
    (UpstreamSettings, "profile"): lambda schema: {
        **schema,
        "anyOf": [{"enum": names()}, {"type": "string"}],
    },
}
