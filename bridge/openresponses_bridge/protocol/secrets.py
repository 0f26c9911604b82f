"""Secrets of a request: what a client gives with its tools for the upstream alone. They are left out of all
that is shown or stored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.protocol.input_items import AdditionalTools, InputItem, ToolSearchOutputParam
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.tools import NamespaceTool, ShellTool
from openresponses_bridge.protocol.unknown import UnknownTool

T = TypeVar("T")

SECRET_WORDS: Final = (
    "api_?key|authorization|(auth|access|refresh|id)_?token|password|passwd|secret|credential|cookie|bearer"
    "|private_?key"
)
"""A pattern for names of secrets, in lower case and with `_` for `-`, in the syntax that Python and
JavaScript share. The inspector's page masks by the same pattern (`secrets.js`)."""
_SECRET_NAME: Final = re.compile(SECRET_WORDS)
_MAPS: Final = frozenset({"env", "environment_variables", "domain_secrets", "secrets"})
_SCHEMAS: Final = frozenset({"parameters", "input_schema"})
_SCHEMES: Final = frozenset({"http", "https", "ws", "wss"})
SERVER_URL: Final = "server_url"
"""The address of an MCP server, of which any part but the origin may be a key."""


def names_secret(name: str) -> bool:
    """Whether a text in a field of this name is a secret."""
    return _SECRET_NAME.search(name.lower().replace("-", "_")) is not None


def maps_to_secrets(name: str, value: Any) -> bool:
    """Whether the value of this field maps names of any kind to secrets: headers, environment variables. An
    `environment` that has a type describes one."""
    if name == "environment":
        return isinstance(value, dict) and "type" not in value
    return name in _MAPS or name.endswith("headers")


def without_secrets(tool: T) -> T:
    """The tool as it is shown and stored: without the fields that have secrets, and with the origin alone of
    the addresses in it. The same object if that is all of it, as in functions and custom tools."""
    kept: Any = tool
    if isinstance(tool, UnknownTool):
        shown = _without(tool.raw)
        kept = tool if shown == tool.raw else UnknownTool(shown)
    elif isinstance(tool, ShellTool) and isinstance(tool.environment, dict):
        environment = _without({"environment": tool.environment}).get("environment", UNSET)
        kept = tool if environment == tool.environment else ShellTool(environment)
    elif isinstance(tool, NamespaceTool):
        tools = [without_secrets(each) for each in tool.tools]
        kept = tool if _are_same(tools, tool.tools) else replace(tool, tools=tools)
    return kept  # type: ignore[no-any-return]


def items_without_secrets(items: list[InputItem]) -> list[InputItem]:
    """The items of an input, those that bring tools with these as `without_secrets` returns them. The same
    list if nothing is left out."""
    kept = [_item_without(item) for item in items]
    return items if _are_same(kept, items) else kept


def request_without_secrets(request: CreateResponse) -> CreateResponse:
    """The request without the secrets of its tools, of those in its input, and of the fields that the
    protocol does not have. The same object if nothing is left out."""
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
        beyond = [found._replace(fields=_without(found.fields)) for found in request.beyond]
        if beyond != request.beyond:
            changed["beyond"] = beyond
    return replace(request, **changed) if changed else request


def _item_without(item: InputItem) -> InputItem:
    if isinstance(item, AdditionalTools | ToolSearchOutputParam):
        tools = [without_secrets(tool) for tool in item.tools]
        return item if _are_same(tools, item.tools) else replace(item, tools=tools)
    return item


def _are_same(kept: Iterable[Any], given: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(kept, given, strict=True))


def _without(value: Any) -> Any:
    if isinstance(value, list):
        return [_without(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, each in value.items():
        if name in _SCHEMAS:
            kept[name] = each
        elif isinstance(each, str):
            shown = _shown(name, each)
            if shown is not None:
                kept[name] = shown
        elif not maps_to_secrets(name, each):
            kept[name] = _without(each)
    return kept


def _shown(name: str, text: str) -> str | None:
    """The text of the field of this name; None if it is left out."""
    if names_secret(name) or maps_to_secrets(name, text):
        return None
    if name == SERVER_URL:
        return origin_of(text)
    scheme, separator, _ = text[:8].partition("://")
    if separator and scheme.lower() in _SCHEMES and (name.endswith("url") or "@" in text):
        return origin_of(text)
    return text


def origin_of(address: str) -> str | None:
    """The scheme, host and port of an address; None if it has no such parts."""
    try:
        parts = urlsplit(address)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port >= 0)
    except ValueError:  # the port is not a number: it may be a password
        return None
    if not has_host or parts.scheme not in _SCHEMES:
        return None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
