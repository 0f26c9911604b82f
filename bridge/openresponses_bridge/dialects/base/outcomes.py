"""The outcome of each field of a request at an upstream, as a table per dialect.

The request functions look fields up in these tables and docs/fields.md is generated from them. A field can't
be forgotten, since looking up one that is in no table fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from msgspec import UNSET, Struct
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.fields import invalid
from openresponses_bridge.protocol.beyond import names_of
from openresponses_bridge.protocol.request import RESTART, CreateResponse, ForeignFields

OutcomeKind = Literal["sent", "honoured", "refused", "loss"]
OTHER: Final = "any other field"
"""The row of all fields that no struct here has."""
STORE_OF_CHAT: Final = "store, from a Chat client"
METADATA_OF_CHAT: Final = "metadata, from a Chat client"
NATIVE_OF_MESSAGES: Final = "what only Anthropic has, from its client"
NATIVE_OF_CHAT: Final = "any other field, from a Chat client"
NATIVE_OF_GEMINI: Final = "what only Gemini has, from its client"
NATIVE_OF_INTERACTIONS: Final = "what only Interactions has, from its client"
NATIVE_OF_CONVERSE: Final = "what only Converse has, from its client"
CHAT: Final = "chat"
"""The `Native.dialect` of a client of Chat Completions."""

INEXPRESSIBLE: Final = "can't be expressed"
# values that ask for nothing, so that they are never losses
_NEUTRAL: Final[Mapping[str, Any]] = {
    "truncation": "disabled",
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "top_logprobs": 0,
    "top_p": 1,
    "stream_options.include_obfuscation": False,
    "reasoning.context": "auto",
    "reasoning.mode": "standard",
}
_NATIVE_ROWS: Final = {
    CHAT: NATIVE_OF_CHAT,
    "anthropic": NATIVE_OF_MESSAGES,
    "gemini": NATIVE_OF_GEMINI,
    "interactions": NATIVE_OF_INTERACTIONS,
    "bedrock": NATIVE_OF_CONVERSE,
}
"""The rows of the further fields of clients of each dialect."""
_CARRIED: Final = ("beyond", "native")
_NESTED: Final = ("reasoning", "text", "stream_options")
_SPOKEN: Final = {
    attribute: name
    for attribute, name in zip(
        CreateResponse.__struct_fields__, CreateResponse.__struct_encode_fields__, strict=True
    )
    if attribute not in _CARRIED
}
_NAMES: Final = tuple(_SPOKEN.values())
_values_of: Final = attrgetter(*_SPOKEN)


class Outcome(NamedTuple):
    """What becomes of a field: `sent` under the name `what`, `honoured` by whom or how, `refused` or a `loss`
    and why. With `built`, the dialect's request function translates the value, and reports itself what it
    can't keep of it."""

    kind: OutcomeKind
    what: str
    built: bool = False


Outcomes = Mapping[str, Outcome]


def sent(name: str) -> Outcome:
    """Return the outcome of a field that is sent unchanged."""
    return Outcome("sent", name)


def built(name: str) -> Outcome:
    """Return the outcome of a field that is sent in the dialect's own terms."""
    return Outcome("sent", name, built=True)


def honoured(how: str) -> Outcome:
    """Return the outcome of a field that is kept without the upstream."""
    return Outcome("honoured", how)


def refused(why: str) -> Outcome:
    """Return the outcome of a field that is refused: an answer without it would answer something else."""
    return Outcome("refused", why)


def loss(why: str = INEXPRESSIBLE) -> Outcome:
    """Return the outcome of a field that is left out and reported."""
    return Outcome("loss", why)


# What the bridge itself does for any upstream.
OURS: Final[Outcomes] = {
    "previous_response_id": honoured("the earlier turns are sent along"),
    "background": honoured("the bridge makes it in the background"),
    RESTART: honoured("the bridge makes it again after a crash"),
    "store": honoured("the bridge stores the response"),
    "metadata": honoured("kept with the response"),
    "max_tool_calls": honoured("calls beyond it are kept back"),
    "conversation": honoured("the conversation's items are sent along"),
    "prompt": refused("stored prompts are not known to this upstream"),
    "background_options": loss("no completion window is kept"),
    "context_management": honoured("the bridge compacts a conversation beyond the threshold"),
    "moderation": loss("nothing is moderated"),
    "access_programs": loss(),
    STORE_OF_CHAT: loss("the upstream stores nothing"),
    METADATA_OF_CHAT: loss(),
    NATIVE_OF_MESSAGES: loss(),
    NATIVE_OF_CHAT: loss(),
    NATIVE_OF_GEMINI: loss(),
    NATIVE_OF_INTERACTIONS: loss(),
    NATIVE_OF_CONVERSE: loss(),
    OTHER: loss("is not known"),
}


# The rows of fields in `beyond` by which a client of Chat Completions asks its own upstream to keep an
# answer: the bridge itself keeps none for it.
_KEPT_THERE: Final = {"store": STORE_OF_CHAT, "metadata": METADATA_OF_CHAT}
LEVELS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The levels of `reasoning.effort`, in order."""
EFFORTS: Final = frozenset(LEVELS)
"""The levels of `reasoning.effort` that are known."""


def effort_of(request: CreateResponse, known: Collection[str] = EFFORTS) -> str | None:
    """Return the requested effort; None if there is none. Raises InvalidRequestError for an unknown level,
    since its effect at the upstream would be unknown."""
    effort = (request.reasoning.effort or None) if request.reasoning is not None else None
    if effort is not None and effort not in known:
        levels = [level for level in sorted(EFFORTS | set(known)) if level in known]
        raise invalid("reasoning.effort", f"{effort[:32]!r} is not one of {', '.join(levels)}")
    return effort


def accepted_efforts(of_server: Collection[str] | None, of_model: Collection[str] | None) -> Collection[str]:
    """Return the levels that a server accepts for a model; either argument is None if it is not known. The
    model's levels include `none` if its reasoning can be turned off. A server may have levels of its own, and
    those take precedence if they have none in common with the model's."""
    if of_server is None:
        return EFFORTS if of_model is None else of_model
    if of_model is None:
        return of_server
    return {level for level in of_server if level in of_model or level not in EFFORTS} or of_server


def nearest_effort(effort: str, accepted: Collection[str]) -> str | None:
    """Return the accepted level that is nearest to this one, the higher of two; None if there is none. `none`
    is returned only for itself."""
    if effort in accepted or effort not in EFFORTS:
        return effort if effort in accepted else None
    at = LEVELS.index(effort)
    ranked = [(abs(rank - at), -rank, level) for rank, level in enumerate(LEVELS) if level in accepted]
    thinking = [each for each in ranked if each[2] != "none"]
    if thinking:
        return min(thinking)[2]
    return min((level for level in accepted if level not in EFFORTS), default=None)


def fitted_effort(effort: str, accepted: Collection[str], diagnostics: Diagnostics) -> str | None:
    """Return the level that `nearest_effort` finds; it is a loss if it is not the requested one."""
    level = nearest_effort(effort, accepted)
    if level != effort:
        detail = "left out, the model has no levels" if level is None else f"sent as {level!r}"
        diagnostics.loss("reasoning.effort", f"{effort!r} {detail}")
    return level


def kept_there(request: CreateResponse) -> dict[str, Any]:
    """Return the fields by which a Chat client asks for the answer to be stored, which are for an upstream of
    its dialect."""
    if not request.beyond:
        return {}
    fields = next((foreign.fields for foreign in request.beyond if not foreign.place), {})
    return {name: fields[name] for name in _KEPT_THERE if name in fields}


def may_pass(name: str, passes: Collection[str]) -> bool:
    """Return True if a field may be passed under its own name: if the option `passes` has it, or "*"."""
    return "*" in passes or name in passes


def passed_on(
    request: CreateResponse, passes: Collection[str], made: Collection[str], merged: Collection[str] = ()
) -> tuple[CreateResponse, dict[str, Any]]:
    """Return (the request without the fields that are passed under their own names, these fields): the
    unknown fields of the request itself that `passes` names, except those by which a Chat client asks for
    storage, those that the bridge has `made`, and values under a name in `merged` that are not objects."""
    if not passes:
        return request, {}

    def may(name: str, value: Any) -> bool:
        of_form = name not in merged or isinstance(value, dict)
        return of_form and name not in made and may_pass(name, passes)

    storage = kept_there(request)
    passed: dict[str, Any] = {}
    left: list[ForeignFields] = []
    for foreign in request.beyond or ():
        own = {} if foreign.place else foreign.fields
        mine = {name: value for name, value in own.items() if name not in storage and may(name, value)}
        passed |= mine
        rest = {name: value for name, value in foreign.fields.items() if name not in mine}
        left += [foreign._replace(fields=rest)] if rest else []
    return replace(request, beyond=left or UNSET), passed


def add_missing(fields: dict[str, Any], given: Mapping[str, Any], merged: Collection[str] = ()) -> None:
    """Add the given fields that are missing. For objects under a name in `merged`, the inner fields are added
    one by one."""
    for name, value in given.items():
        there = fields.get(name)
        if name in merged and isinstance(there, dict) and isinstance(value, dict):
            fields[name] = {**there, **{each: value[each] for each in value if each not in there}}
        elif name not in fields:
            fields[name] = value


def add_beside(
    fields: dict[str, Any],
    extra: Mapping[str, Any],
    *,
    carried: Mapping[str, Any],
    passed: Mapping[str, Any],
    merged: Collection[str] = (),
) -> None:
    """Add to the fields that the bridge has made those that only the upstream's API has, if they are missing:
    the operator's (the option `extra`), then those that a client of that API has sent (`carried`), then those
    that are `passed` on. `merged` is as in `add_missing`."""
    for addition in (extra, carried, passed):
        add_missing(fields, addition, merged)


def omit_within(
    fields: dict[str, Any], within: str, omitted: Collection[str], diagnostics: Diagnostics
) -> None:
    """Remove from the object under `within` the fields that the upstream does not accept, each a loss; and
    the object, if nothing is left of it."""
    inner: dict[str, Any] = fields[within]
    for name in sorted(inner.keys() & set(omitted)):
        diagnostics.loss(f"{within}.{name}", "the upstream does not accept it")
    fields[within] = {name: value for name, value in inner.items() if name not in omitted}
    if not fields[within]:
        del fields[within]


def check_include(included: Iterable[str], known: Collection[str], diagnostics: Diagnostics) -> None:
    """Report the values of `include` that are not known to the upstream."""
    for each in included:
        if each not in known:
            diagnostics.loss("include", f"{each[:64]!r} is not known to the upstream")


def asked(request: CreateResponse) -> list[tuple[str, Any]]:
    """Return the fields that ask for something, and their values; `reasoning.effort` is one of
    `reasoning`."""
    fields: list[tuple[str, Any]] = []
    for name, value in zip(_NAMES, _values_of(request), strict=True):
        if value is None or value is UNSET:
            continue
        if name in _NESTED and isinstance(value, Struct):
            inner = [(each, getattr(value, each)) for each in value.__struct_fields__]
            fields += [(f"{name}.{each}", member) for each, member in inner if member not in (None, UNSET)]
        else:
            fields += ((name, value),)
    return fields


CACHE_OF_PARTS: Final = "content.cache_control"
"""The name in `Native.names` of cache breakpoints on parts, which are also in the `extra` of the parts."""
BREAKPOINT: Final = "prompt_cache_breakpoint"
EXPLICIT: Final = {BREAKPOINT: {"mode": "explicit"}}
"""The unknown field of a part after which the cache of a prompt ends, as OpenAI spells it."""


def is_breakpoint(fields: Any) -> bool:
    """Return True if the unknown fields of a part have an explicit cache breakpoint."""
    return isinstance(fields, dict) and fields.get(BREAKPOINT) == EXPLICIT[BREAKPOINT]


def without_breakpoints(request: CreateResponse) -> CreateResponse:
    """Return the request without the cache breakpoints of parts, for an upstream that gets them otherwise, so
    that none is reported."""
    native = request.native
    if native is not UNSET and CACHE_OF_PARTS in native.names:
        request = replace(
            request, native=replace(native, names=[name for name in native.names if name != CACHE_OF_PARTS])
        )
    if request.beyond:
        request = replace(request, beyond=[_without_breakpoint(foreign) for foreign in request.beyond])
    return request


def _without_breakpoint(foreign: ForeignFields) -> ForeignFields:
    is_of_part = len(foreign.place) == 4 and foreign.place[2] in ("content", "output")
    if not is_of_part or not is_breakpoint(foreign.fields):
        return foreign
    return foreign._replace(
        fields={name: each for name, each in foreign.fields.items() if name != BREAKPOINT}
    )


def apply(request: CreateResponse, table: Outcomes, diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the fields that are sent unchanged, by the names of this dialect (`a.b` is within `a`); losses
    are reported.

    Raises InvalidRequestError with `param` for a field that is refused, and for a field of the client's API
    that only its own upstreams can honour and that changes the meaning of the rest (law N3).
    """
    body: dict[str, Any] = {}
    for name, value in asked(request):
        outcome = table[name]
        if outcome.built or outcome.kind == "honoured":
            continue
        if outcome.kind == "sent":
            within, _, last = outcome.what.rpartition(".")
            (body.setdefault(within, {}) if within else body)[last] = value
        elif _NEUTRAL.get(name, UNSET) != value:
            if outcome.kind == "refused":
                raise invalid(name, outcome.what)
            diagnostics.loss(name, outcome.what)
    if request.beyond:
        storage = kept_there(request)
        for name in names_of(request.beyond):
            outcome = table[_KEPT_THERE[name] if name in storage else OTHER]
            if outcome.kind == "loss" and storage.get(name, True):
                diagnostics.loss(name, outcome.what)
    if request.native is not UNSET:
        native = table[_NATIVE_ROWS[request.native.dialect]]
        for where, why in request.native.needed.items() if native.kind == "loss" else ():
            raise invalid(where, why)
        for name in request.native.names if native.kind == "loss" else ():
            diagnostics.loss(name, native.what)
    return body
