"""Which calls a request admits: `tool_choice`, `allowed_tools` and `max_tool_calls` as hard constraints.

Upstreams get them in the request, and models break them all the same: a call outside must be kept back, and a
call that must be made and was not is a failure (specification, "tool_choice").
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from msgspec import Struct

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.tool_calls import is_another
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.tools import AllowedToolChoice, FunctionToolChoice
from openresponses_bridge.protocol.unknown import UnknownToolChoice

# choices of one tool by a type of its own; other types are hosted tools, which their upstream looks after
_NAMELESS = frozenset({"shell", "local_shell", "apply_patch"})


class ToolRules(Struct, frozen=True):
    """`names` are the client's names of the tools that may be called, None for all; `must_call` says
    that at least one is called; `most` is the greatest number of calls."""

    names: frozenset[str] | None
    must_call: bool
    most: int | None

    def admits(self, upstream_name: str, identities: ToolIdentityMap) -> bool:
        """Whether a call by the upstream's model under this name is one of the admitted tools."""
        if self.names is None:
            return True
        identity = identities.resolve(upstream_name)
        return (upstream_name if identity is None else identity.name) in self.names


def tool_rules(request: CreateResponse) -> ToolRules | None:
    """The rules of a request, None when it leaves everything to the model."""
    if request.tool_choice is None and request.max_tool_calls is None:
        return None
    names, must_call = _chosen(request.tool_choice)
    if names is None and not must_call and request.max_tool_calls is None:
        return None
    return ToolRules(names, must_call, request.max_tool_calls)


def _chosen(choice: Any) -> tuple[frozenset[str] | None, bool]:
    """(the names that are left, whether one must be called)."""
    if isinstance(choice, AllowedToolChoice):
        names = frozenset(filter(None, map(_name, choice.tools)))
        return (frozenset() if choice.mode == "none" else names), choice.mode == "required"
    if isinstance(choice, FunctionToolChoice | UnknownToolChoice):
        name = _name(choice)
        return (None, False) if name is None else (frozenset({name}), True)
    return (frozenset() if choice == "none" else None), choice == "required"


def _name(choice: Any) -> str | None:
    if isinstance(choice, FunctionToolChoice):
        return choice.name or None
    name = choice.raw.get("name") if isinstance(choice, UnknownToolChoice) else None
    if isinstance(name, str) and choice.type in ("custom", "function"):
        return name
    return choice.type if choice.type in _NAMELESS else None


class Verdict(Enum):
    """What becomes of a fragment of a call."""

    PASS = auto()
    WAIT = auto()  # for the call's name
    DROP = auto()


class _Call(Struct):
    """The newest call at an upstream's index."""

    id: str
    verdict: Verdict
    done: bool = False


class CallGate:
    """Judges the calls of one response. `made` counts those let through, `refused` those kept back."""

    def __init__(self, rules: ToolRules, identities: ToolIdentityMap, diagnostics: Diagnostics) -> None:
        self._rules = rules
        self._identities = identities
        self._diagnostics = diagnostics
        self._calls: dict[int, _Call] = {}
        self.made = 0
        self.refused = 0
        self.hosted = False
        """The upstream has run a tool of its own."""

    def judge(self, index: int, id: str, name: str) -> Verdict:
        """The verdict on a fragment; a call has one from its name on."""
        call = self._calls.get(index)
        if call is None or is_another(call.id, call.done, id, name):
            call = self._calls[index] = _Call(id, Verdict.WAIT)
        call.id = call.id or id
        if call.verdict is Verdict.WAIT and name:
            call.verdict = self.judge_whole(name)
        return call.verdict

    def judge_whole(self, name: str) -> Verdict:
        """The verdict on a call that comes in one piece."""
        what = self._objection(name)
        if what is None:
            self.made += 1
            return Verdict.PASS
        self.refused += 1
        self._diagnostics.warning("tool_choice", what)
        return Verdict.DROP

    def end(self, index: int) -> Verdict:
        """The call at this index is over."""
        call = self._calls.get(index)
        if call is None:
            return Verdict.PASS
        call.done = True
        return call.verdict

    @property
    def unmet(self) -> bool:
        """Whether a call must be made and was not."""
        return self._rules.must_call and not self.made and not self.hosted

    def _objection(self, name: str) -> str | None:
        if not self._rules.admits(name, self._identities):
            return "a call of a tool that may not be called was kept back"
        if self._rules.most is not None and self.made >= self._rules.most:
            return "a call beyond max_tool_calls was kept back"
        return None
