"""Enforces a request's constraints on its response, its tools and stop sequences: what the request excludes
never becomes an event.

The filter sits between the inbound and the machine, so that one serves all dialects, sequence numbers and
output indexes stay dense, and the snapshot equals the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import is_native
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.emitter.held_calls import CallHoldingFilter, HeldCall
from openresponses_bridge.emitter.stopping import StopFilter, sequences_of
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.tools import AllowedToolChoice, FunctionToolChoice
from openresponses_bridge.protocol.unknown import UnknownToolChoice
from openresponses_server.upstreams.targets import Target

# `tool_choice`, `allowed_tools`, `parallel_tool_calls` and `max_tool_calls` as hard constraints. Upstreams
# are sent them, but models break them and servers ignore them: a call that is not allowed is suppressed, and
# a required call that was not made is a failure (specification, "tool_choice").

# tools that are chosen by type; other types are hosted tools, which the upstream enforces
_NAMELESS_TOOLS = frozenset({"shell", "local_shell", "apply_patch"})


class ToolRules(Struct, frozen=True):
    """The calls that a request allows."""

    names: frozenset[str] | None
    """The client's names of the tools that may be called, None for all."""
    must_call: bool
    most: int | None
    """The greatest number of calls; None: no limit."""
    parallel: bool = True
    """Whether there may be more than one call of the client's tools."""

    def allow(self, upstream_name: str, identities: ToolIdentityMap) -> bool:
        """Return True if the tool that the model calls by this name may be called."""
        if self.names is None:
            return True
        identity = identities.resolve(upstream_name)
        return (upstream_name if identity is None else identity.name) in self.names


def tool_rules(request: CreateResponse) -> ToolRules | None:
    """The rules of a request, None when it has none."""
    parallel = request.parallel_tool_calls is not False
    if request.tool_choice is None and request.max_tool_calls is None and parallel:
        return None
    names, must_call = _chosen(request.tool_choice)
    if names is None and not must_call and request.max_tool_calls is None and parallel:
        return None
    return ToolRules(names, must_call, request.max_tool_calls, parallel)


def _chosen(choice: Any) -> tuple[frozenset[str] | None, bool]:
    """Return (the names that may be called, whether one must be)."""
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
    return choice.type if choice.type in _NAMELESS_TOOLS else None


class CallFilter:
    """Decides which calls of one response are allowed."""

    def __init__(self, rules: ToolRules, identities: ToolIdentityMap, diagnostics: Diagnostics) -> None:
        self._rules = rules
        self._identities = identities
        self._diagnostics = diagnostics
        self.made = 0
        """Calls that were allowed."""
        self.refused = 0
        """Calls of this answer that were suppressed."""
        self.hosted = False
        """The upstream has run a hosted tool."""

    def allow(self, name: str) -> bool:
        """Return True if the next call, of the tool that the model calls by this name, is allowed."""
        what = self._objection(name)
        if what is None:
            self.made += 1
            return True
        self.refused += 1
        self._diagnostics.warning("tool_choice", what)
        return False

    @property
    def required_call_missing(self) -> bool:
        """True if a call is required and was not made."""
        return self._rules.must_call and not self.made and not self.hosted

    def _objection(self, name: str) -> str | None:
        if not self._rules.allow(name, self._identities):
            return "a call of a tool that may not be called was kept back"
        if self._rules.most is not None and self.made >= self._rules.most:
            return "a call beyond max_tool_calls was kept back"
        if self.made and not self._rules.parallel:
            return "a call beside the first was kept back, as parallel_tool_calls asks"
        return None


# the types of calls that come without a name → the name of their tool
_NAMELESS = {"shell_call": "shell", "local_shell_call": "local_shell", "apply_patch_call": "apply_patch"}
_CALL = "_call"  # ends the types of calls, those of hosted tools too
_NAMED = frozenset({"function_call", "custom_tool_call"})


def with_rules(
    machine: ResponseStream, request: CreateResponse, identities: ToolIdentityMap
) -> ResponseStream:
    """Return the machine for the response to this request behind a filter, if the request has rules for
    calls."""
    rules = tool_rules(request)
    if rules is None:
        return machine
    return ConstrainedStream(machine, CallFilter(rules, identities, machine.diagnostics))


class ConstrainedStream(CallHoldingFilter):
    """Suppresses calls that are not allowed, and fails the response when a required call is missing, or when
    every call was suppressed and nothing is left."""

    def __init__(self, stream: ResponseStream, allowed: CallFilter) -> None:
        super().__init__(stream)
        self._allowed = allowed
        self._deferred: str | None = None
        self._before = 0  # items of the output when this answer began

    def next_answer(self) -> None:
        super().next_answer()
        self._allowed.refused = 0
        self._before = len(self.snapshot.output)

    def _keeps(self, call: HeldCall, type: str, namespace: str | None) -> bool:
        return not self._allowed.allow(call.name)

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        self.require("item")
        name = _called_name(item)
        if name and not self._allowed.allow(name):
            return []
        self._allowed.hosted = self._allowed.hosted or (name is None and _is_call(item))
        return super().item(item)

    def defer_finish(self, reason: str | None) -> list[Event]:
        events = super().defer_finish(reason)
        self._deferred = reason
        return events

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        """Finish like the machine, except that a response that would complete without a required call fails.
        An incomplete response stays incomplete."""
        self.require("finish")
        events = self._pass_nameless()
        if not incomplete and outcome(reason or self._deferred)[0] is None:
            missing = self._missing()
            if missing is not None:
                return events + self.fail(ErrorPayload("model_error", "model_error", missing, None))
        return events + super().finish(reason, incomplete=incomplete)

    def _missing(self) -> str | None:
        """Return the error message for a required call that is missing; None if nothing is missing."""
        if self._allowed.required_call_missing:
            return "The model did not call a tool, although tool_choice requires it to."
        if self._allowed.refused and not self.snapshot.output[self._before :]:
            return "The model only called tools that the request does not allow."
        return None


def _is_call(item: Item | Mapping[str, Any]) -> bool:
    kind = item.get("type") if isinstance(item, Mapping) else item.type
    return isinstance(kind, str) and kind.endswith(_CALL)


def _called_name(item: Item | Mapping[str, Any]) -> str | None:
    """The name of the tool that an item calls; None when it is not a call."""
    of = item.get if isinstance(item, Mapping) else partial(getattr, item)
    kind = of("type", None)
    name = of("name", None) if kind in _NAMED else _NAMELESS.get(str(kind))
    return name if isinstance(name, str) else None


MAX_STOP_CHARACTERS: Final = 4096
"""The limit of all stop sequences of a request together: the matcher takes some hundred bytes for each
one."""


def check_stops(request: CreateResponse) -> None:
    """Raises InvalidRequestError with `param` for stop sequences beyond the limit."""
    length = sum(map(len, sequences_of(request.stop)))
    if length > MAX_STOP_CHARACTERS:
        name = "stop_sequences" if is_native(request) else "stop"
        what = f"{name}: {length} characters in all; the limit is {MAX_STOP_CHARACTERS}"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=name)


def with_stop_filter(machine: ResponseStream, stop: str | list[str]) -> ResponseStream:
    """The machine behind a filter for a request's stop sequences, if any is not empty."""
    sequences = sequences_of(stop)
    return StopFilter(machine, sequences) if sequences else machine


def stops_for_upstream(request: CreateResponse, target: Target) -> CreateResponse:
    """The request for this upstream: without stop sequences where it does not take them, or where the client
    uses the Messages API, whose response names the sequence that matched, and the upstream does not name
    it."""
    traits = target.traits
    sent = traits.takes_stops and (traits.names_stops or not is_native(request))
    return request if sent else replace(request, stop=None)
