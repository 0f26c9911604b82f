"""The registry of rules: each with its id, its clause, the source of the clause, and the events that it
checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

import msgspec

from openresponses_bridge.conformance.tracks import EventContext
from openresponses_bridge.state import LIFECYCLE_EVENTS, ROLES, TERMINAL_EVENT
from openresponses_bridge.text import printable


class Violation(msgspec.Struct, frozen=True):
    """One clause that one event violates.

    `rule` is an id of `RULES`. `event_index` counts events from 0; the end of the stream is one past the
    last. `event_type` is "" at the end and for data that is not an event. `path` is the field
    (``$.response.usage``), or "".
    """

    rule: str
    event_index: int
    event_type: str
    path: str
    message: str

    def __str__(self) -> str:
        unnamed = "no type" if self.path else "not an event" if self.rule == "event.json" else "end of stream"
        named = self.event_type or unnamed
        where = " ".join(part for part in (named, self.path) if part)
        return printable(f"{self.rule}: event {self.event_index} ({where}): {self.message}")


class RuleFinding(NamedTuple):
    """A violation that a rule finds in an event."""

    message: str
    path: str = ""


Findings = Iterator[RuleFinding]
Check = Callable[[EventContext], Findings]

EVERY = "every event"
END = "end of stream"
FRAME = "frame"
MARKER = "[DONE]"
WITHIN = "progress of a hosted tool"
UNREADABLE = "unreadable data"
ENVELOPE = "error message of a WebSocket"
TERMINALS = frozenset(struct.type for struct in TERMINAL_EVENT.values())
RESPONSES = LIFECYCLE_EVENTS - {"error"}


class Rule(NamedTuple):
    """One clause. `source` says where it comes from: the specification, a law of this project, a field case,
    or the strict judge (an independent validator of streams, which calls it an error)."""

    id: str
    description: str
    source: str
    on: frozenset[str]
    check: Check


RULES: dict[str, Rule] = {}


def rule(source: str, *on: str | Iterable[str]) -> Callable[[Check], Check]:
    """Register a function as a rule. Its id is its name with the first `_` as a dot, its description
    the first line of its docstring. `on` names event types or constants of this module."""

    def register(check: Check) -> Check:
        name = check.__name__.replace("_", ".", 1)
        types = frozenset(kind for each in on for kind in ([each] if isinstance(each, str) else each))
        RULES[name] = Rule(name, (check.__doc__ or "").partition("\n")[0], source, types, check)
        return check

    return register


def event_types(*verbs: str, to: str = "part summary") -> frozenset[str]:
    """Return the types of the events that have one of these verbs and one of these subjects in
    `state.ROLES`."""
    subjects = to.split()
    return frozenset(kind for kind, role in ROLES.items() if role.subject in subjects and role.verb in verbs)


@cache
def rules_on(*kinds: str) -> tuple[Rule, ...]:
    """Return the rules for any of these, in the order in which they were registered."""
    return tuple(each for each in RULES.values() if not each.on.isdisjoint(kinds))
