"""The fields, as OpenAI's, with which a request declares a tool of the type `mcp`, and what an operator
allows."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from string import ascii_letters, digits
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from openresponses_bridge.errors import InvalidRequestError
from openresponses_server.errors import HttpError
from openresponses_server.http.client.connection import ascii_host
from openresponses_server.settings.hosts import PORTS, authority_of

Label = Annotated[str, Meta(min_length=1, max_length=128)]
Names = Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=1024)]


class ToolFilter(Struct, frozen=True):
    """Selects tools of a server: those with one of these names, if there are any, and those that change
    nothing, or that may change something, if `read_only` is given."""

    tool_names: Names | None = None
    read_only: bool | None = None

    def matches(self, name: str, is_read_only: bool) -> bool:
        """Return True if the filter selects this tool; a filter without conditions selects none."""
        if self.tool_names is None and self.read_only is None:
            return False
        named = self.tool_names is None or name in self.tool_names
        return named and (self.read_only is None or self.read_only == is_read_only)


class ApprovalFilter(Struct, frozen=True):
    """Tools whose calls need approval, and tools whose calls need none."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None


class DeclaredServer(Struct, frozen=True):
    """A tool of the type `mcp`. Other fields are ignored."""

    server_label: Label
    server_url: Annotated[str, Meta(max_length=8192)] | None = None
    connector_id: Annotated[str, Meta(max_length=256)] | None = None
    tunnel_id: str | None = None
    server_description: Annotated[str, Meta(max_length=8192)] | None = None
    headers: dict[str, str] | None = None
    authorization: Annotated[str, Meta(max_length=16384)] | None = None
    allowed_tools: Names | ToolFilter | None = None
    require_approval: Literal["always", "never"] | ApprovalFilter | None = None

    def allows(self, name: str, is_read_only: bool) -> bool:
        allowed = self.allowed_tools
        if isinstance(allowed, ToolFilter):
            says_nothing = allowed.tool_names is None and allowed.read_only is None
            return says_nothing or allowed.matches(name, is_read_only)
        return allowed is None or name in allowed

    def needs_approval(self, name: str, is_read_only: bool) -> bool:
        """Return True if the call needs approval: every call does unless the declaration says otherwise. A
        filter with `always` alone asks for no other approvals."""
        required = self.require_approval
        if not isinstance(required, ApprovalFilter):
            return required != "never"
        if required.always is not None and required.always.matches(name, is_read_only):
            return True
        if required.never is not None:
            return not required.never.matches(name, is_read_only)
        return required.always is None


_TOKEN: Final = frozenset(f"!#$%&'*+-.^_`|~{digits}{ascii_letters}")  # RFC 9110, section 5.6.2
_OWN_HEADERS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "content-type", "accept", "upgrade"}
)
_MOST_HEADER_BYTES: Final = 32 * 1024


def declared_of(raw: dict[str, Any]) -> DeclaredServer:
    """Return the declared server. Raises InvalidRequestError, which names the field."""
    try:
        return msgspec.convert(raw, DeclaredServer)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        field = f" in {where.rstrip('`')}" if where else ""
        raise refused(f"the MCP server is not declared as the protocol has it: {what}{field}") from None


def refused(message: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, message)


def headers_of(declared: DeclaredServer) -> dict[str, str]:
    """Return the headers of requests to the server. Raises InvalidRequestError."""
    headers = {}
    for name, value in (declared.headers or {}).items():
        if not name or not _TOKEN.issuperset(name) or not _is_header_value(value):
            raise refused("headers of the MCP server: a name or a value can't be a header's")
        if name.lower() in _OWN_HEADERS or name.lower().startswith("mcp-"):
            raise refused(f"headers of the MCP server: {name.lower()} is set by this server")
        headers[name.lower()] = value
    if declared.authorization is not None:
        if not _is_header_value(declared.authorization):
            raise refused("authorization of the MCP server: it can't be a header's value")
        headers["authorization"] = f"Bearer {declared.authorization}"
    if sum(len(name) + len(value) for name, value in headers.items()) > _MOST_HEADER_BYTES:
        raise refused(f"headers of the MCP server: they have more than {_MOST_HEADER_BYTES} bytes")
    return headers


def _is_header_value(value: str) -> bool:
    return value.isascii() and (value.isprintable() or value == "")


def is_allowed(url: str, hosts: Collection[str], private_hosts: Collection[str]) -> bool:
    """Check that requests may name this server. Returns True if its host may have private addresses. Raises
    HttpError 403 for a host that is not allowed, and InvalidRequestError for a text that is not an
    address."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
        host = ascii_host(parts.hostname or "").lower().rstrip(".")
    except (ValueError, KeyError):
        host = ""
    if not host or any(character <= " " for character in url):
        raise refused("server_url of the MCP server is not an https:// address")
    if "@" in parts.netloc:
        raise refused("server_url of the MCP server has a user name")
    default = PORTS[parts.scheme]
    if _is_among(host, port, default, private_hosts):
        return True
    if not _is_among(host, port, default, hosts):
        where = host if port == default else f"{host}:{port}"
        raise HttpError(
            403,
            f"The MCP server at {where[:300]} is not one that this server may connect to.",
            code="mcp_host_not_allowed",
        )
    if parts.scheme != "https":
        raise refused("server_url of the MCP server is not an https:// address")
    return False


def _is_among(host: str, port: int, default: int, entries: Collection[str]) -> bool:
    """Return True if an entry of the settings names this host and port."""
    for entry in entries:
        if entry == "*":
            if port == default:
                return True
            continue
        named = authority_of(entry.removeprefix("*."))
        if named is None or port != (default if named.port is None else named.port):
            continue
        if host.endswith(f".{named.host}") if entry.startswith("*.") else host == named.host:
            return True
    return False


_LONGEST_FUNCTION: Final = 64
_HASHED: Final = 8  # characters


def function_names(label: str, tools: Sequence[str]) -> dict[str, str]:
    """Return the names of functions for the tools of a server → the tools."""
    return {function_name(label, tool): tool for tool in tools}


def function_name(label: str, tool: str) -> str:
    """Return the name of the function for a tool of a server. It is the same in every request, whatever else
    is offered, so that the calls of earlier turns have the names of this turn's functions."""
    whole = f"mcp__{label}__{tool}"
    plain = "".join(each if each.isascii() and (each.isalnum() or each in "_-") else "_" for each in whole)
    if plain == whole and len(plain) <= _LONGEST_FUNCTION and "__" not in label:
        return plain
    digest = hashlib.sha256(f"{label}\n{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:_HASHED]
    return f"{plain[: _LONGEST_FUNCTION - _HASHED - 1]}_{digest}"
