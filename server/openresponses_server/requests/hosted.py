"""The tools of a request that the server runs itself: the model is shown functions in their place, and what
they did in earlier turns as calls and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from openresponses_bridge.calls.declarations import active_tools
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.ids import LONGEST_ID
from openresponses_bridge.protocol.input_items import FunctionCallOutputParam, FunctionCallParam
from openresponses_bridge.protocol.tools import NamespaceTool
from openresponses_server.hosted.base import HostedCall, HostedContext, HostedProvider, HostedTool, Recalled
from openresponses_server.requests.hosted_tools import SLUG, HostedTools
from openresponses_server.requests.prepared import PreparedRequest
from openresponses_server.requests.service import Service


async def offer_hosted(request: PreparedRequest, service: Service) -> None:
    """Find the tools that the server runs, and put calls and outputs in the place of what they did in earlier
    turns. Raises HttpError, and InvalidRequestError with the path of what is wrong."""
    body, has = request.body, request.target.traits.hosted_tools
    conversation = [*request.history, *request.own]
    request.history = _recalled(request.history, service.hosted, has)
    request.own = _recalled(request.own, service.hosted, has)
    if request.compacts or request.choices != 1:
        return
    limits = service.settings.tools
    context = HostedContext(request.owner, limits.result_bytes, limits.seconds)
    entries: list[tuple[str, HostedTool]] = []
    rest: list[Any] = []
    for index, tool in enumerate(body.tools or ()):
        kind = str(tool.type).removeprefix(SLUG).partition("_20")[0]  # without its version
        found = next((each for each in service.hosted if each.takes(tool, upstream_has=kind in has)), None)
        if found is None:
            rest.append(tool)
            continue
        try:
            entries.append((kind, await found.open(tool, context)))
        except InvalidRequestError as error:
            param = f"tools[{index}].{error.param}" if error.param else f"tools[{index}]"
            raise InvalidRequestError(error.code, error.message, param=param) from error
    for provider in service.hosted:
        if (offered := provider.offered(body, context)) is not None:
            entries.append(("", offered))
    if not entries:
        return
    taken = _names(each.tool for each in active_tools(rest, conversation))
    tools: dict[str, tuple[HostedTool, str]] = {}
    types: dict[str, list[str]] = {}
    released: list[HostedCall] = []
    for kind, entry in entries:
        shown: dict[str, str] = {}
        for function in entry.functions:
            name = _free(function.name, taken)
            taken.add(name)
            shown[function.name] = name
            tools[name] = entry, function.name
            types.setdefault(kind, []).append(name)
        released += [
            HostedCall(each.call_id, shown[each.name], each.arguments, each.approval_id)
            for each in entry.released(conversation)
            if each.name in shown
        ]
    request.hosted = HostedTools(tools, [entry for _, entry in entries], types, rest, released)


def _names(tools: Iterable[Any]) -> set[str]:
    """The names by which a model may call a client's tools."""
    found: set[str] = set()
    for tool in tools:
        members = tool.tools if isinstance(tool, NamespaceTool) else [tool]
        found |= {str(getattr(each, "name", None) or each.type) for each in members}
    return found


def _free(name: str, taken: set[str]) -> str:
    """The name, or another if a tool of the client has it."""
    candidate, number = name, 1
    while candidate in taken:
        prefix = "server_" if number == 1 else f"server_{number}_"
        candidate, number = f"{prefix}{name}"[:LONGEST_ID], number + 1
    return candidate


def _recalled(items: Sequence[Any], providers: Sequence[HostedProvider], has: frozenset[str]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        said = _recall(item, providers, has)
        if said is None:
            found.append(item)
            continue
        call_id = f"call_{item.id}"[:LONGEST_ID]
        found.append(FunctionCallParam(call_id, said.name, said.arguments))
        found.append(FunctionCallOutputParam(call_id, said.output))
    return found


def _recall(item: Any, providers: Sequence[HostedProvider], has: frozenset[str]) -> Recalled | None:
    tool = str(item.type).removeprefix(SLUG).removesuffix("_call")
    for provider in providers:
        if (said := provider.recall(item, upstream_has=tool in has)) is not None:
            return said
    return None
