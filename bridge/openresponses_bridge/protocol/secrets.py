"""The secrets of a request, which a client gives with its tools for the upstream only. They are left out of
everything that is shown or stored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from openresponses_bridge.protocol.input_items import AdditionalTools, InputItem, ToolSearchOutputParam
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.tools import NamespaceTool, ShellTool
from openresponses_bridge.protocol.unknown import Extensible, UnknownTool

T = TypeVar("T")

SECRET_WORDS: Final = (
    "api_?key|authorization|(api|auth|access|refresh|session|id)_?token|password|passwd|secret|credential|cookie"
    "|bearer|private_?key"
)
"""A pattern for names of secrets, in lower case and with `_` for `-`, in the syntax that Python and
JavaScript share. The inspector's page masks by the same pattern (`secrets.js`)."""
_SECRET_NAME: Final = re.compile(SECRET_WORDS)
_MAPS: Final = frozenset({"env", "envvars", "environmentvariables", "domainsecrets", "secrets"})
_PAIR: Final = frozenset({"name", "value"})
_SCHEMAS: Final = frozenset({"parameters", "schema", "inputschema", "outputschema"})
_SCHEMA_KEYWORDS: Final = frozenset({"type", "properties", "$ref", "$defs", "anyOf", "oneOf", "allOf"})
_SCHEMA_TYPES: Final = ("string", "object", "array", "number", "integer", "boolean", "null")
_OPEN_TOOLS: Final = frozenset({"function", "custom"})  # these have no secrets
_SERVER: Final = "mcp_server"  # the type of a tool of Interactions
_SCHEMES: Final = frozenset({"http", "https", "ws", "wss"})
_LONGEST_SCHEME: Final = 32  # characters


def names_secret(name: str) -> bool:
    """Return True if a text in a field of this name is a secret."""
    return _SECRET_NAME.search(name.lower().replace("-", "_")) is not None


def maps_to_secrets(name: str, value: Any) -> bool:
    """Return True if the value of this field maps names of any kind to secrets, or lists both: headers,
    environment variables. An `environment` with a type is something else."""
    plain = _plain(name)
    if plain == "environment":
        return isinstance(value, list) or (isinstance(value, dict) and "type" not in value)
    return plain in _MAPS or plain.endswith("headers")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


class NamedField:
    """The name of a field, examined once for all texts in its value, including those in lists and objects."""

    __slots__ = ("address", "fact", "maps", "schema", "secret", "server", "servers")

    def __init__(self, name: str, value: Any, fact: bool = False) -> None:
        plain = _plain(name)
        self.fact = fact
        """True if it belongs to an answer or an item: its addresses are those of what was read or made."""
        self.maps = maps_to_secrets(name, value)
        """True if it maps names to secrets."""
        self.secret = self.maps or names_secret(name)
        """True if texts in it are secrets."""
        self.server = plain == "serverurl"
        """True if it is the address of an MCP server, in which any part but the origin may be a key."""
        self.servers = plain == "mcpservers"
        """True if it lists MCP servers."""
        self.address = not fact and plain.removesuffix("s").endswith(("url", "uri"))
        """True if it is an address, or several."""
        self.schema = plain in _SCHEMAS and _is_schema(value)
        """True if it is a JSON Schema: names in it are those of parameters, and no texts are secrets."""

    def under(self, name: str, value: Any, within: dict[str, Any]) -> NamedField:
        """Return the field of this name in `within`, which is the value of this field or in its list. A
        secret may be an object with its name and its value, or with its type."""
        if self.schema:
            return self
        is_shown = not self.secret or (name != "value" and within.keys() >= _PAIR)
        if is_shown or within.get("type") in _SCHEMA_TYPES or (name == "type" and not self.maps):
            field = NamedField(name, value, self.fact)
            if name == "url" and (self.servers or within.get("type") == _SERVER):
                field.server = True
            return field
        return _SECRET


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict) and not _SCHEMA_KEYWORDS.isdisjoint(value)


_SECRET: Final = NamedField("secret", None)
_TOOL: Final = NamedField("", None)
_FACT: Final = NamedField("", None, fact=True)


def without_secrets(tool: T) -> T:
    """Return the tool as it is shown and stored: without the fields that have secrets, and with only the
    origin of each address. Returns the same object if nothing is removed, as in functions and custom
    tools."""
    safe_tool: Any = tool
    if isinstance(tool, UnknownTool):
        shown = _without(tool.raw, _TOOL)
        safe_tool = tool if shown == tool.raw else UnknownTool(shown)
    elif isinstance(tool, ShellTool) and isinstance(tool.environment, dict):
        environment = _without({"environment": tool.environment}, _TOOL).get("environment", UNSET)
        safe_tool = tool if environment == tool.environment else ShellTool(environment)
    elif isinstance(tool, NamespaceTool):
        tools = [without_secrets(each) for each in tool.tools]
        safe_tool = tool if _are_same(tools, tool.tools) else replace(tool, tools=tools)
    return safe_tool  # type: ignore[no-any-return]


def items_without_secrets(items: list[InputItem]) -> list[InputItem]:
    """Return the items of an input, in which tools are as `without_secrets` returns them. Returns the same
    list if nothing is removed."""
    safe_items = [_item_without(item) for item in items]
    return items if _are_same(safe_items, items) else safe_items


def request_without_secrets(request: CreateResponse) -> CreateResponse:
    """Return the request without the secrets of its tools, of the tools in its input, and of the fields that
    the protocol does not have. Returns the same object if nothing is removed."""
    changed: dict[str, Any] = {}
    if request.tools:
        tools = [without_secrets(tool) for tool in request.tools]
        if not _are_same(tools, request.tools):
            changed["tools"] = tools
    if isinstance(request.input, list):
        items = items_without_secrets(request.input)
        if items is not request.input:
            changed["input"] = items
    if request.beyond is not UNSET:
        beyond = [foreign._replace(fields=_without(foreign.fields, _TOOL)) for foreign in request.beyond]
        if beyond != request.beyond:
            changed["beyond"] = beyond
    return replace(request, **changed) if changed else request


def json_without_secrets(body: Any) -> list[tuple[Any, Any]]:
    """Return the replacements that remove the secrets of tools from the JSON of a response, a request, an
    input item or an event: pairs of a list of tools and the list to put in its place."""
    if not isinstance(body, dict):
        return []
    within = [body.get(name) for name in ("response", "item")]
    within += [each for name in ("input", "output") for each in _list_of(body, name)]
    replacements = [pair for each in within for pair in json_without_secrets(each)]
    tools = _list_of(body, "tools")
    safe_tools = [_raw_without(tool) for tool in tools]
    return replacements if safe_tools == tools else [*replacements, (tools, safe_tools)]


def request_json_without_secrets(body: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of a request without the secrets in the fields that the protocol does not have. Returns
    the same object if nothing is removed."""
    known = frozenset(CreateResponse.__struct_encode_fields__)
    beyond = {name: each for name, each in body.items() if name not in known}
    shown = _without(beyond, _TOOL)
    if shown == beyond:
        return body
    fields = {name: shown.get(name, each) for name, each in body.items()}
    return {name: each for name, each in fields.items() if name not in beyond or name in shown}


def _list_of(body: dict[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    return value if isinstance(value, list) else []


def _raw_without(tool: Any) -> Any:
    """Return the JSON of a tool without its secrets."""
    if not isinstance(tool, dict) or tool.get("type") in _OPEN_TOOLS:
        return tool
    if tool.get("type") == "namespace":
        return {**tool, "tools": [_raw_without(each) for each in _list_of(tool, "tools")]}
    return _without(tool, _TOOL)


def _item_without(item: InputItem) -> InputItem:
    safe_item: InputItem = _extra_without(item)
    if isinstance(safe_item, AdditionalTools | ToolSearchOutputParam):
        tools = [without_secrets(tool) for tool in safe_item.tools]
        return safe_item if _are_same(tools, safe_item.tools) else replace(safe_item, tools=tools)
    return safe_item


def _extra_without(value: Any) -> Any:
    """Return the object without secrets in the fields that its struct, or that of a part of it, does not
    have."""
    if not isinstance(value, Extensible):
        return value
    changed: dict[str, Any] = {}
    if value.extra:
        shown = fields_without_secrets(value.extra)
        changed = {} if shown == value.extra else {"extra": shown or UNSET}
    for name in value.__struct_fields__:
        inner = getattr(value, name)
        if isinstance(inner, list):
            parts = [_extra_without(each) for each in inner]
            changed |= {} if _are_same(parts, inner) else {name: parts}
    return replace(value, **changed) if changed else value


def _are_same(replacements: Iterable[Any], originals: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(replacements, originals, strict=True))


def fields_without_secrets(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the unknown fields of an item, a part or an answer as they are shown and stored. Addresses in
    them are kept, unless they have a password."""
    shown: dict[str, Any] = _without(fields, _FACT)
    return shown


def _without(value: Any, named: NamedField) -> Any:
    """Return the value of this field without its secrets; UNSET for a text that is one."""
    if isinstance(value, str):
        return _shown(value, named)
    if isinstance(value, list):
        shown = (_without(each, named) for each in value)
        return [each for each in shown if each is not UNSET]
    if not isinstance(value, dict) or named.schema:
        return value
    members = {}
    for name, each in value.items():
        field = named.under(name, each, value)
        if field.maps and isinstance(each, dict | list):
            continue
        shown = _without(each, field)
        if shown is not UNSET:
            members[name] = shown
    return members


def _shown(text: str, named: NamedField) -> str | UnsetType:
    if named.secret:
        return UNSET
    if named.server:
        return origin_of(text) or UNSET
    scheme, separator, _ = text.strip()[:_LONGEST_SCHEME].partition("://")
    if not separator or not scheme:
        return text
    if "@" in text or (named.address and scheme.lower() in _SCHEMES):
        return origin_of(text.strip()) or UNSET
    return text


def origin_of(address: str) -> str | None:
    """Return the scheme, host and port of an address; None if it does not have them."""
    try:
        parts = urlsplit(address)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port >= 0)
    except ValueError:  # the port is not a number, and may be a password
        return None
    if not has_host or parts.scheme not in _SCHEMES:
        return None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
