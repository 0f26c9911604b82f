"""The hosted tools of one request: what the upstream is sent instead of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.dialects.base import SEARCH_TOOLS
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.tools import AllowedToolChoice, FunctionToolChoice, FunctionToolParam
from openresponses_bridge.protocol.unknown import UnknownToolChoice
from openresponses_server.hosted.base import HostedCall, HostedTool

SLUG: Final = "openai:"


class HostedTools(Struct, frozen=True):
    """The tools of one request that the server runs."""

    tools: Mapping[str, tuple[HostedTool, str]]
    """The name that the model is shown → the tool, and the name that the tool itself has for it."""
    entries: Sequence[HostedTool]
    types: Mapping[str, Sequence[str]]
    """The type of a tool as the client declared it → the names that the model is shown."""
    rest: Sequence[Any]
    """The other tools of the request."""
    released: Sequence[HostedCall]
    """Calls that were approved, by the names that the model is shown."""

    def body(self, request: CreateResponse) -> CreateResponse:
        """The request as the upstream gets it."""
        shown = [
            FunctionToolParam(name, about.description, about.parameters)
            for name, (tool, own) in self.tools.items()
            for about in tool.functions
            if about.name == own
        ]
        return replace(request, tools=[*self.rest, *shown], tool_choice=self._choice(request.tool_choice))

    def _choice(self, choice: Any) -> Any:
        if isinstance(choice, UnknownToolChoice):
            names = self._named(choice)
            if names:
                return FunctionToolChoice(names[0]) if len(names) == 1 else "required"
        if isinstance(choice, AllowedToolChoice):
            chosen: list[Any] = []
            for each in choice.tools:
                names = self._named(each) if isinstance(each, UnknownToolChoice) else ()
                chosen += [FunctionToolChoice(name) for name in names] or [each]
            return AllowedToolChoice(chosen, choice.mode)
        return choice

    def _named(self, choice: UnknownToolChoice) -> Sequence[str]:
        """The functions that a choice by type means: the first of the tool's, or those of an MCP server, of
        which it may name one."""
        kind = choice.type.removeprefix(SLUG).partition("_20")[0]
        names = self.types.get(kind, ())
        if kind != "mcp":
            return names[:1] if kind in SEARCH_TOOLS else names
        wanted = {name: choice.raw.get(name) for name in ("server_label", "name")}
        return [name for name in names if self._is_of(name, wanted)]

    def _is_of(self, name: str, wanted: Mapping[str, Any]) -> bool:
        tool, own = self.tools[name]
        item = tool.announce(HostedCall("", own, ""))
        return all(item.get(field) == value for field, value in wanted.items() if value is not None)

    def following(self, request: CreateResponse, items: Sequence[Any], *, last: bool) -> CreateResponse:
        """The request for the next answer, with its input. A choice that forced a call has been met."""
        sent = replace(request, input=list(items))
        choice = request.tool_choice
        forced = choice == "required" or (isinstance(choice, UnknownToolChoice) and self._named(choice))
        if isinstance(choice, AllowedToolChoice) and choice.mode == "required":
            sent = replace(sent, tool_choice=replace(choice, mode="auto"))
        elif forced:
            sent = replace(sent, tool_choice="auto")
        if last and not self.rest:
            sent = replace(sent, tool_choice="none")
        return sent
