"""MCP servers as tools that this server runs: those of the settings, and those that requests name if the
operator allows their hosts."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.hosted import error_text
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.secrets import names_secret
from openresponses_bridge.protocol.unknown import UnknownTool
from openresponses_server.errors import Outage
from openresponses_server.hosted.base import (
    NOTHING,
    TIMEOUT,
    HostedCall,
    HostedContext,
    HostedFunction,
    HostedResult,
    Recalled,
    bounded,
)
from openresponses_server.hosted.mcp.approvals import (
    PREFIX,
    Approvals,
    Conversation,
    UseOnce,
    granted,
    raw_of,
)
from openresponses_server.hosted.mcp.declared import (
    DeclaredServer,
    declared_of,
    function_name,
    function_names,
    headers_of,
    is_allowed,
    refused,
)
from openresponses_server.observation.recordings.masking import Secrets, header_secrets, hidden_in
from openresponses_server.observation.tracing import describe_tool, name_of
from openresponses_server.processes import inherited_environment
from openresponses_server.settings import McpServerSettings, Settings, SettingsError
from openresponses_server.settings.files import expanded
from openresponses_server.settings.hosts import PORTS
from openresponses_server.tasks import on_thread

if TYPE_CHECKING:
    from openresponses_server.hosted.mcp.connections import McpConnections, McpFailure, McpServer, McpTool

_STOP_SECONDS: Final = 3.0  # for a program after its input was closed
_OWN_SHARE: Final = 0.95  # of the time for a call, so that the call itself fails first
_UNDECIDED: Final = "The user did not approve this call, and it was not run."
_SHORTEST_SECRET: Final = 8  # characters
_CLOSED: Final = {"type": "object", "properties": {}}


class McpServers:
    """The MCP servers of one application: a `HostedProvider`. Nothing is connected, and the SDK is not
    imported, before a request uses one."""

    def __init__(
        self, settings: Settings, approval_keys: Callable[[], Sequence[bytes]], use_once: UseOnce
    ) -> None:
        """`approval_keys` returns the keys for approvals, `use_once` records those that were used. Raises
        SettingsError."""
        check_servers(settings)
        self._settings = settings
        self._configured = {each.name: each for each in settings.mcp_servers}
        self._approvals = Approvals(approval_keys, use_once)
        self._opened: McpConnections | None = None
        self._servers: dict[str, McpServer] = {}

    @property
    def is_set_up(self) -> bool:
        """True if the settings allow any server."""
        settings = self._settings
        return bool(settings.mcp_servers or settings.mcp_hosts or settings.mcp_private_hosts)

    @property
    def connections(self) -> McpConnections:
        """All connections, which need the SDK."""
        if self._opened is None:
            from openresponses_server.hosted.mcp.connections import McpConnections

            self._opened = McpConnections(self._settings.limits)
        return self._opened

    def takes(self, tool: Any, *, upstream_has: bool) -> bool:
        """Return True if this server runs the tool. An upstream that has MCP itself connects to servers with
        an address, but not to those of the settings."""
        if (
            not isinstance(tool, UnknownTool)
            or tool.type.removeprefix("openai:") != "mcp"
            or not self.is_set_up
        ):
            return False
        return not upstream_has or self._settings_of(tool.raw) is not None

    def _settings_of(self, raw: dict[str, Any]) -> McpServerSettings | None:
        """Return the server of the settings that a request names; None if it names none."""
        named = raw.get("connector_id") or raw.get("server_label")
        return self._configured.get(named) if isinstance(named, str) and not raw.get("server_url") else None

    async def open(self, tool: Any, context: HostedContext) -> McpToolSet:
        """Return the tools of a server, which is connected to if it is not yet. A server that can't list its
        tools has none, and its list has the reason. Raises InvalidRequestError, and HttpError 403 for a host
        that is not allowed."""
        if self._opened is None:
            await on_thread(_load_sdk)
        declared = declared_of(tool.raw)
        settings = self._settings_of(tool.raw)
        if settings is not None:
            key: tuple[Any, ...] = ("configured", settings.name)
            server = self._configured_server(settings)
        else:
            key, server = self._named_server(declared, tool.raw, context.owner)
        from openresponses_server.hosted.mcp.connections import McpFailure

        tools: list[McpTool] = []
        failure = None
        try:
            tools = await self.connections.tools(key, server, context.owner)
        except McpFailure as error:
            failure = error.message
        return McpToolSet(self, declared, settings, key, server, context, tools, failure)

    def _configured_server(self, settings: McpServerSettings) -> McpServer:
        server = self._servers.get(settings.name)
        if server is None:
            server = self._servers[settings.name] = configured_server(settings)
        return server

    def _named_server(
        self, declared: DeclaredServer, raw: dict[str, Any], owner: str
    ) -> tuple[tuple[Any, ...], McpServer]:
        """Return the key and the server for a request's address. The connection is for this owner and these
        headers only."""
        url = declared.server_url
        if url is None:
            names = ", ".join(sorted(self._configured)) or "none"
            raise refused(
                f"no MCP server {declared.server_label[:100]!r} is configured here (there are: {names}), "
                "and the request has no server_url for it"
            )
        is_private = is_allowed(url, self._settings.mcp_hosts, self._settings.mcp_private_hosts)
        headers = headers_of(declared)
        digest = hashlib.sha256(msgspec.json.encode((url, sorted(headers.items())))).digest()
        server = server_at(
            url,
            headers,
            label=declared.server_label,
            is_public=not is_private,
            # any header may be a secret, but a short value is a word
            secrets=[each for each in hidden_in(raw) if len(each) >= _SHORTEST_SECRET],
        )
        return ("named", owner, digest), server

    def offered(self, request: CreateResponse, context: HostedContext) -> None:
        """Return None: a request names the servers that it uses."""

    def recall(self, item: Any, *, upstream_has: bool) -> Recalled | None:
        """Return a call that ran, with its result, or a call that waits for approval. An upstream that has
        MCP itself gets its items unchanged, unless the server is one of the settings."""
        raw = raw_of(item)
        kind = raw.get("type")
        is_ours = not upstream_has or raw.get("server_label") in self._configured
        if kind == "mcp_approval_response" or (kind == "mcp_list_tools" and is_ours):
            return NOTHING
        if kind not in ("mcp_call", "mcp_approval_request") or not is_ours:
            return None
        label, name, arguments = (raw.get(field) for field in ("server_label", "name", "arguments"))
        if not (isinstance(label, str) and isinstance(name, str) and isinstance(arguments, str)):
            return None
        output = _output_of(raw) if kind == "mcp_call" else _UNDECIDED
        return Recalled(function_name(label, name), arguments, output)

    @property
    def approvals(self) -> Approvals:
        return self._approvals

    async def close(self) -> None:
        """Close all connections, and end the programs that the settings name."""
        if self._opened is not None:
            await self._opened.close()


def _load_sdk() -> None:
    """Import the SDK, which takes a second."""
    import openresponses_server.hosted.mcp.connections  # noqa: F401


def _output_of(raw: dict[str, Any]) -> str:
    """Return the result of a call as text for a model."""
    output = raw.get("output")
    return output if isinstance(output, str) else error_text(raw.get("error")) or "The call did not end."


def check_servers(settings: Settings) -> None:
    """Check the settings. Raises SettingsError for servers that can't be used, and if the SDK is not
    installed."""
    seen: set[str] = set()
    for number, each in enumerate(settings.mcp_servers):
        at = f"$.mcp_servers[{number}]"
        if (each.command is None) == (each.url is None):
            raise SettingsError("give either command or url", at)
        if each.name in seen:
            raise SettingsError(f"the name {each.name!r} is given twice", f"{at}.name")
        seen.add(each.name)
        _key_of(each, at)
    if (seen or settings.mcp_hosts or settings.mcp_private_hosts) and find_spec("mcp") is None:
        where = "$.mcp_servers" if seen else "$.mcp_hosts"
        raise SettingsError("it needs the extra mcp: pip install 'openresponses-server[mcp]'", where)


def _key_of(settings: McpServerSettings, at: str) -> str | None:
    if settings.api_key_env is None:
        return None
    key = os.environ.get(settings.api_key_env)
    if not key:
        raise SettingsError(
            f"the environment variable {settings.api_key_env} is not set", f"{at}.api_key_env"
        )
    return key


def configured_server(settings: McpServerSettings) -> McpServer:
    """Return a server of the settings. Raises SettingsError for a variable that is not set."""
    from openresponses_server.hosted.mcp.connections import McpServer
    from openresponses_server.hosted.mcp.transports import program

    env = {name: expanded(value) for name, value in settings.env.items()}
    times = (settings.start_seconds, settings.call_seconds, settings.list_seconds)
    if settings.command is None:
        headers = {name.lower(): expanded(value) for name, value in settings.headers.items()}
        if (key := _key_of(settings, "$.mcp_servers")) is not None:
            headers["authorization"] = f"Bearer {key}"
        return server_at(
            settings.url or "",
            headers,
            label=settings.name,
            secrets=[*header_secrets(settings.headers), *hidden_in(settings.url, "server_url"), key or ""],
            is_kept=True,
            times=times,
        )
    clean = Secrets(value for name, value in env.items() if names_secret(name)).out_of
    transport = partial(
        program,
        [settings.command, *settings.args],
        {**inherited_environment("SSL_CERT_FILE", "SSL_CERT_DIR"), **env},
        settings.cwd or os.getcwd(),
        name=settings.name,
        clean=clean,
        stop_seconds=_STOP_SECONDS,
    )
    return McpServer(settings.name, lambda traffic: transport(traffic=traffic), clean, True, *times)


def server_at(
    url: str,
    headers: Mapping[str, str],
    *,
    label: str,
    secrets: Sequence[str],
    is_public: bool = False,
    is_kept: bool = False,
    times: tuple[float, float, float] = (30.0, 60.0, 300.0),
) -> McpServer:
    """Return a server at an address. `secrets` are removed from its texts; `times` are the seconds for the
    start, for a call, and for which its list is valid."""
    from openresponses_server.hosted.mcp.connections import McpServer
    from openresponses_server.hosted.mcp.transports import streamable_http

    start, call, _ = times
    transport = partial(
        streamable_http,
        url,
        headers,
        is_public=is_public,
        connect_seconds=start,
        answer_seconds=max(start, call),
    )
    clean = Secrets(part for each in secrets for part in (each, each.removeprefix("Bearer "))).out_of
    where = _where(url)
    return McpServer(label, lambda traffic: transport(traffic=traffic), clean, is_kept, *times, where)


def _where(url: str) -> tuple[str, int] | None:
    """Return the host and port of an address; None if it has none."""
    try:
        parts = urlsplit(url)
        return (parts.hostname, parts.port or PORTS[parts.scheme]) if parts.hostname else None
    except (ValueError, KeyError):
        return None


class McpToolSet:
    """The tools of one server, as one request may use them: a `HostedTool`."""

    kind = "extension"

    def __init__(
        self,
        servers: McpServers,
        declared: DeclaredServer,
        settings: McpServerSettings | None,
        key: tuple[Any, ...],
        server: McpServer,
        context: HostedContext,
        tools: Sequence[McpTool],
        failure: str | None,
    ) -> None:
        """`failure` is the reason why there is no list of tools."""
        self._servers = servers
        self._declared = declared
        self._settings = settings
        self._key = key
        self._server = server
        self._context = context
        self._failure = failure
        label = declared.server_label
        self._tools = {each.name: each for each in tools if self._is_allowed(each)}
        self._functions = function_names(label, list(self._tools))
        self._listed: Any = None

    def _is_allowed(self, tool: McpTool) -> bool:
        ours = None if self._settings is None else self._settings.allowed_tools
        if ours is not None and tool.name not in ours:
            return False
        return self._declared.allows(tool.name, tool.is_read_only)

    @property
    def functions(self) -> Sequence[HostedFunction]:
        """The functions that stand for the tools."""
        about = (self._settings and self._settings.description) or self._declared.server_description
        return [
            HostedFunction(
                name,
                "\n\n".join(each for each in (about, self._tools[tool].description) if each),
                _parameters_of(self._tools[tool].input_schema),
            )
            for name, tool in self._functions.items()
        ]

    @cached_property
    def _list(self) -> list[dict[str, Any]]:
        return [
            {
                "name": each.name,
                "description": each.description,
                "input_schema": each.input_schema,
                "annotations": each.annotations,
            }
            for each in self._tools.values()
        ]

    @property
    def preface(self) -> Sequence[dict[str, Any]]:
        """The list of tools, unless the conversation already has the same one."""
        if self._failure is None and self._listed == self._list:
            return []
        label = self._declared.server_label
        error = {} if self._failure is None else {"error": self._failure}
        return [{"type": "mcp_list_tools", "server_label": label, "tools": self._list, **error}]

    def announce(self, call: HostedCall) -> dict[str, Any]:
        """Return the item of a call that begins. The item of an approved call has an id that is derived from
        its approval, by which it is found in stored responses."""
        approved = {} if call.approval_id is None else {"id": f"mcp_{call.approval_id.removeprefix(PREFIX)}"}
        return {
            **approved,
            "type": "mcp_call",
            "server_label": self._declared.server_label,
            "name": self._functions.get(call.name, call.name),
            "arguments": "",
            "status": "in_progress",
            "approval_request_id": call.approval_id,
            "output": None,
            "error": None,
        }

    def progress(self, call: HostedCall) -> Sequence[tuple[str, dict[str, Any]]]:
        """The events of a call that has begun."""
        return [
            ("response.mcp_call.in_progress", {}),
            ("response.mcp_call_arguments.delta", {"delta": call.arguments}),
            ("response.mcp_call_arguments.done", {"arguments": call.arguments}),
        ]

    def ending(self, result: HostedResult) -> str | None:
        """Return the type of the event of a call that has ended."""
        return "response.mcp_call.failed" if result.failed else "response.mcp_call.completed"

    def is_repeatable(self, call: HostedCall) -> bool:
        """Return True if the server says that the tool changes nothing, or the same however often it is
        called."""
        tool = self._tool_of(call)
        notes = (tool.annotations if tool is not None else None) or {}
        return notes.get("readOnlyHint") is True or notes.get("idempotentHint") is True

    def _tool_of(self, call: HostedCall) -> McpTool | None:
        return self._tools.get(self._functions.get(call.name, ""))

    def approval(self, call: HostedCall) -> dict[str, Any] | None:
        """Return the request to approve a call that needs approval and has none; None if the call may run."""
        tool = self._tool_of(call)
        if tool is None or call.approval_id is not None or not self._needs_approval(tool):
            return None
        return {
            "type": "mcp_approval_request",
            "id": self._servers.approvals.request_id(*self._signed(tool, call.arguments)),
            "server_label": self._declared.server_label,
            "name": tool.name,
            "arguments": call.arguments,
        }

    def _needs_approval(self, tool: McpTool) -> bool:
        """Return True if a call of this tool needs approval. A request can't lift what the operator
        requires."""
        required = "never" if self._settings is None else self._settings.require_approval
        if required == "always" or (isinstance(required, list) and tool.name in required):
            return True
        return self._declared.needs_approval(tool.name, tool.is_read_only)

    def _signed(self, tool: McpTool, arguments: str) -> tuple[str, ...]:
        """Return the parts that an approval is bound to: the owner, the tool as it was described, its server
        and the arguments."""
        where = self._declared.server_url or f"configured:{self._key[1]}"
        described = hashlib.sha256(msgspec.json.encode(tool)).hexdigest()
        return self._context.owner, self._declared.server_label, where, described, arguments

    def released(self, items: Sequence[Any]) -> Sequence[HostedCall]:
        """Return the calls that the approvals in a conversation release and that have not run. Raises
        InvalidRequestError for an approval that was requested for something else."""
        conversation = Conversation(items)
        self._listed = conversation.listed.get(self._declared.server_label)
        calls = []
        for request_id, answer in conversation.responses.items():
            request = conversation.requests.get(request_id)
            if (
                request is None
                or request.get("server_label") != self._declared.server_label
                or not granted(answer)
                or request_id in conversation.ran
            ):
                continue
            calls.append(self._released(request_id, request))
        return calls

    def _released(self, request_id: str, request: Mapping[str, Any]) -> HostedCall:
        name, arguments = request.get("name"), request.get("arguments")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None or not isinstance(arguments, str):
            raise refused(
                f"The approved call can't run: the MCP server {self._declared.server_label[:100]!r} does not "
                "have its tool, or the request does not allow it."
            )
        if not self._servers.approvals.is_for(request_id, *self._signed(tool, arguments)):
            raise refused(
                "mcp_approval_response: this server has not asked for the approval of this call, it did so "
                "more than a day ago, or the tool has changed since."
            )
        call_id = f"call_{request_id.removeprefix(PREFIX)}"
        return HostedCall(
            call_id, function_name(self._declared.server_label, tool.name), arguments, request_id
        )

    async def run(self, call: HostedCall) -> HostedResult:
        """Call the tool. A failure becomes a result."""
        from openresponses_server.hosted.mcp.connections import McpFailure

        seconds = self._context.seconds * _OWN_SHARE
        try:
            async with asyncio.timeout(seconds):
                output = await self._call(call)
        except McpFailure as failure:
            return self._failed(call, failure)
        except TimeoutError:
            what = f"it did not answer within {seconds:g} seconds"
            return self._failed(call, McpFailure(what, kind=TIMEOUT))
        output = bounded(output, self._context.most_bytes)
        fields = {"status": "completed", "arguments": call.arguments, "output": output, "error": None}
        return HostedResult(output, fields)

    def _failed(self, call: HostedCall, failure: McpFailure) -> HostedResult:
        message = bounded(failure.message, self._context.most_bytes)
        error = failure.error(message)
        fields = {"status": "failed", "arguments": call.arguments, "output": None, "error": error}
        if (code := failure.rpc_code) is not None:
            describe_tool({"rpc.response.status_code": name_of(str(code))})
        return HostedResult(message, fields, failed=True, error_type=failure.error_type)

    async def _call(self, call: HostedCall) -> str:
        """Call the tool. Raises McpFailure."""
        from openresponses_server.hosted.mcp.connections import McpFailure

        tool = self._tool_of(call)
        if tool is None:
            raise McpFailure("There is no such tool.")
        if call.approval_id is None and self._needs_approval(tool):
            raise McpFailure("The user has not approved this call.")
        arguments = _arguments_of(call.arguments)
        if arguments is None:
            raise McpFailure("The arguments are not a JSON object.")
        connections, where = self._servers.connections, (self._key, self._server, self._context.owner)
        if tool not in await connections.tools(*where):  # cached until the server reports a change
            raise McpFailure("The server has changed this tool since it was listed: the call was not run.")
        if call.approval_id is not None:
            try:
                is_first = await self._servers.approvals.use(call.approval_id)
            except Outage:
                raise McpFailure("The approval could not be recorded: the call was not run.") from None
            if not is_first:
                raise McpFailure("The approval of this call has been used.")
        return await connections.call(*where, tool.name, arguments)


def _arguments_of(text: str) -> dict[str, Any] | None:
    """Return the arguments as an object; None if they are not one."""
    try:
        arguments = decode_json(text or "{}")
    except WireError:
        return None
    return arguments if isinstance(arguments, dict) else None


def _parameters_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's schema as that of a function: of type object, with properties, which some upstreams
    require."""
    return {**_CLOSED, **schema, "type": "object"}
