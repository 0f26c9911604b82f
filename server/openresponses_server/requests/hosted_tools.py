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

    def excluded(self, choice: Any) -> frozenset[str]:
        """The names that a `tool_choice` leaves out. A choice that forces one tool of ours leaves the others
        to the answers that follow."""
        if choice == "none" or (isinstance(choice, AllowedToolChoice) and choice.mode == "none"):
            return frozenset(self.tools)
        if isinstance(choice, AllowedToolChoice):
            return frozenset(self.tools).difference(*map(self._meant, choice.tools))
        is_ours = choice is None or isinstance(choice, str) or self._meant(choice)
        return frozenset() if is_ours else frozenset(self.tools)

    def body(self, request: CreateResponse) -> CreateResponse:
        """The request as the upstream gets it. If no tool may be called, they are shown nevertheless, since
        earlier calls of them are in the conversation."""
        choice = request.tool_choice
        excluded = frozenset() if choice == "none" else self.excluded(choice)
        shown = [
            FunctionToolParam(name, about.description, about.parameters)
            for name, (tool, own) in self.tools.items()
            for about in tool.functions
            if about.name == own and name not in excluded
        ]
        return replace(request, tools=[*self.rest, *shown], tool_choice=self._choice(choice))

    def _choice(self, choice: Any) -> Any:
        if isinstance(choice, UnknownToolChoice):
            names = self._forced(choice)
            if names:
                return FunctionToolChoice(names[0]) if len(names) == 1 else "required"
        if isinstance(choice, AllowedToolChoice):
            chosen: list[Any] = []
            for each in choice.tools:
                chosen += [FunctionToolChoice(name) for name in self._meant(each)] or [each]
            return AllowedToolChoice(chosen, choice.mode)
        return choice

    def _forced(self, choice: UnknownToolChoice) -> Sequence[str]:
        """The functions of which a choice forces one: of a search it is the search itself."""
        names = self._meant(choice)
        return names[:1] if _kind(choice) in SEARCH_TOOLS else names

    def _meant(self, choice: Any) -> Sequence[str]:
        """The functions that a choice means: those of a tool by its type, or of an MCP server, of which it
        may name one."""
        if isinstance(choice, FunctionToolChoice):
            return [str(choice.name)] if choice.name in self.tools else ()
        if not isinstance(choice, UnknownToolChoice):
            return ()
        names = self.types.get(kind := _kind(choice), ())
        if kind != "mcp":
            return names
        fields = {name: choice.raw.get(name) for name in ("server_label", "name")}
        return [name for name in names if self._is_of(name, fields)]

    def _is_of(self, name: str, fields: Mapping[str, Any]) -> bool:
        tool, own = self.tools[name]
        item = tool.announce(HostedCall("", own, ""))
        return all(item.get(field) == value for field, value in fields.items() if value is not None)

    def following(self, request: CreateResponse, items: Sequence[Any], *, last: bool) -> CreateResponse:
        """The request for the next answer, with its input. A choice that forced a call no longer applies."""
        sent = replace(request, input=list(items))
        choice = request.tool_choice
        forced = choice == "required" or (isinstance(choice, UnknownToolChoice) and self._meant(choice))
        if isinstance(choice, AllowedToolChoice) and choice.mode == "required":
            sent = replace(sent, tool_choice=replace(choice, mode="auto"))
        elif forced:
            sent = replace(sent, tool_choice="auto")
        if last and not self.rest:
            sent = replace(sent, tool_choice="none")
        return sent


def _kind(choice: UnknownToolChoice) -> str:
    """The type that a choice names, without its version."""
    return choice.type.removeprefix(SLUG).partition("_20")[0]
