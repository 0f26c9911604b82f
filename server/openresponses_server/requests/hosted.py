"""The tools of a request that the server runs itself: the model is shown functions instead of them, and their
earlier work as calls and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.calls.declarations import tools_of
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.hosted import kind_of
from openresponses_bridge.protocol.ids import LONGEST_ID
from openresponses_bridge.protocol.input_items import FunctionCallOutputParam, FunctionCallParam
from openresponses_bridge.protocol.tools import NamespaceTool
from openresponses_server.hosted.base import (
    NOTHING,
    HostedCall,
    HostedContext,
    HostedProvider,
    HostedTool,
    Recalled,
)
from openresponses_server.hosted.mcp.approvals import Conversation, granted, raw_of
from openresponses_server.requests.hosted_tools import SLUG, HostedTools
from openresponses_server.requests.prepared import Placed
from openresponses_server.requests.service import Service
from openresponses_server.store.base import TooLarge

_MOST_TOOLS: Final = 16  # each may be a server that has to be waited for


async def offer_hosted(request: Placed, service: Service) -> Placed:
    """Find the tools that the server runs, and replace their items of earlier turns by calls and outputs.
    Raises HttpError, and InvalidRequestError with the path of what is wrong."""
    has = request.target.traits.hosted_tools
    conversation = [*request.history, *request.own]
    _check_decisions(request.history, request.own, request.providers, has)
    decisions = _decisions(conversation)
    request = replace(
        request,
        history=_recalled(request.history, request.providers, has, decisions),
        own=_recalled(request.own, request.providers, has, decisions),
    )
    if request.compacts or request.choices != 1:
        return request
    entries, rest = await _opened(request, service, has)
    if not entries:
        return request
    taken = _names(chain(rest, *map(tools_of, conversation)))
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
        approved_calls = [each for each in entry.released(conversation) if each.name in shown]
        await _check_unused([entry.announce(each) for each in approved_calls], request.owner, service)
        released += [
            HostedCall(each.call_id, shown[each.name], each.arguments, each.approval_id)
            for each in approved_calls
        ]
    hosted = HostedTools(tools, [entry for _, entry in entries], types, rest, released)
    return replace(request, hosted=hosted)


async def _opened(
    request: Placed, service: Service, has: frozenset[str]
) -> tuple[list[tuple[str, HostedTool]], list[Any]]:
    """Return the tools of the request that the server runs, each with its kind, and the other tools."""
    limits = service.settings.tools
    context = HostedContext(request.owner, limits.result_bytes, limits.seconds)
    entries: list[tuple[str, HostedTool]] = []
    rest: list[Any] = []
    for index, tool in enumerate(request.body.tools or ()):
        kind = str(tool.type).removeprefix(SLUG).partition("_20")[0]  # without its version
        handler = next(
            (each for each in request.providers if each.takes(tool, upstream_has=kind in has)), None
        )
        if handler is None:
            rest.append(tool)
            continue
        if len(entries) == _MOST_TOOLS:
            what = f"The server runs at most {_MOST_TOOLS} of the tools of a request."
            raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=f"tools[{index}]")
        try:
            entries.append((kind, await handler.open(tool, context)))
        except InvalidRequestError as error:
            param = f"tools[{index}].{error.param}" if error.param else f"tools[{index}]"
            raise InvalidRequestError(error.code, error.message, param=param) from error
    for provider in request.providers:
        if (offered := provider.offered(request.body, context)) is not None:
            entries.append(("", offered))
    return entries, rest


async def _check_unused(items: Sequence[Mapping[str, Any]], owner: str, service: Service) -> None:
    """Raises InvalidRequestError if a stored response has one of these items: an approval releases one call,
    whose item has its id from the approval."""
    ids = [str(item["id"]) for item in items if "id" in item]
    if not ids:
        return
    try:
        used = bool(await service.store.items(ids, owner, most=0))
    except TooLarge:
        used = True
    if used:
        what = "An approval in the input has been used: its call was begun."
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="input")


def _names(tools: Iterable[Any]) -> set[str]:
    """The names by which a model may call a client's tools."""
    names: set[str] = set()
    for tool in tools:
        members = tool.tools if isinstance(tool, NamespaceTool) else [tool]
        names |= {str(getattr(each, "name", None) or each.type) for each in members}
    return names


def _free(name: str, taken: set[str]) -> str:
    """The name, or another if a tool of the client has it."""
    candidate, number = name, 1
    while candidate in taken:
        prefix = "server_" if number == 1 else f"server_{number}_"
        candidate, number = f"{prefix}{name}"[:LONGEST_ID], number + 1
    return candidate


_GRANTED: Final = None


def _decisions(conversation: Iterable[Any]) -> dict[str, str | None]:
    """The user's decisions, by the ids of the requests for approval: None for one that was approved, so that
    its call has run or will run; else the reason why it was declined, which may be ""."""
    decisions: dict[str, str | None] = {}
    for request_id, answer in Conversation(conversation).responses.items():
        reason = answer.get("reason")
        if granted(answer):
            decisions[request_id] = _GRANTED
        else:
            decisions[request_id] = reason if isinstance(reason, str) else ""
    return decisions


def _check_decisions(
    history: Sequence[Any], own: Sequence[Any], providers: Sequence[HostedProvider], has: frozenset[str]
) -> None:
    """Raises InvalidRequestError if the input decides once more, and otherwise, on a call that the server
    runs: the first decision counts, since the call may have run, or the model read that it did not."""
    answers = [(index, raw) for index, raw in enumerate(map(raw_of, own)) if _asked_in(raw) is not None]
    if not answers:
        return
    requests = {each.id: each for each in chain(history, own) if kind_of(each) == "mcp_approval_request"}
    decided = Conversation(history).responses
    for index, raw in answers:
        item_id = str(_asked_in(raw))
        first = decided.setdefault(item_id, raw)
        is_ours = item_id in requests and _recall(requests[item_id], providers, has) is not None
        if is_ours and granted(first) != granted(raw):
            was, is_now = ("approved", "declined") if granted(first) else ("declined", "approved")
            what = f"The call of '{item_id[:80]}' was {was} before and can't be {is_now}: send one decision."
            raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=f"input[{index}]")


def _asked_in(raw: Mapping[str, Any]) -> Any:
    """The id of the request for approval that this item answers; None if it is not such an answer."""
    return raw.get("approval_request_id") if raw.get("type") == "mcp_approval_response" else None


def _recalled(
    items: Sequence[Any],
    providers: Sequence[HostedProvider],
    has: frozenset[str],
    decisions: Mapping[str, str | None],
) -> list[Any]:
    result: list[Any] = []
    for item in items:
        recalled = _recall(item, providers, has)
        if recalled is None:
            result.append(item)
            continue
        reason: str | None = ""
        if kind_of(item) == "mcp_approval_request":
            reason = decisions.get(item.id, "")
        if recalled is NOTHING or reason is _GRANTED:
            continue
        if reason:
            recalled = replace(recalled, output=f"This call was declined: {reason}")
        call_id = f"call_{item.id}"[:LONGEST_ID]
        result.append(FunctionCallParam(call_id, recalled.name, recalled.arguments))
        result.append(FunctionCallOutputParam(call_id, recalled.output))
    return result


def _recall(item: Any, providers: Sequence[HostedProvider], has: frozenset[str]) -> Recalled | None:
    kind = str(item.type).removeprefix(SLUG)
    tool = "mcp" if kind.startswith("mcp_") else kind.removesuffix("_call")
    for provider in providers:
        if (recalled := provider.recall(item, upstream_has=tool in has)) is not None:
            return recalled
    return None
