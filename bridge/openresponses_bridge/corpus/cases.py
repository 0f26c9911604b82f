"""Cases: a script on a wire, unchanged or in a variant, with the result that a reader should decode."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from inspect import cleandoc
from itertools import count
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import Struct

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.corpus.scripts import SCRIPTS, Step, machine_calls
from openresponses_bridge.corpus.truth import Expected, expected_of
from openresponses_bridge.corpus.variants import CUT, CUT_ASKS, CUT_SCRIPT, VARIANTS, cut, cuts, frame_of
from openresponses_bridge.decoder import (
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    Part,
    PartDecoder,
    ResponseAccumulator,
    encode_part,
)
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.errors import LocalError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.sse import SSEDecoder

VERSION: Final = 1
"""Rises when what a case expects changes, or a case is renamed or removed; new cases do not raise it."""

CaseWire = Literal["openresponses", "openai"]
WIRE_NAMES: Final[tuple[CaseWire, ...]] = get_args(CaseWire)
_CLOCK: Final = 1_700_000_000
_DONE: Final = "data: [DONE]\n\n"
Json = dict[str, Any]


class Case(Struct, frozen=True, kw_only=True):
    """One stream of a response, with the result that a reader should decode. `corpus show` prints it in this
    form."""

    corpus: int = VERSION
    id: str
    """`wire/script` or `wire/script/variant`, which is also the name of its model in `corpus serve`."""
    wire: CaseWire
    script: str
    variant: str | None = None
    asks: str
    """What a reader has to do to decode it."""
    builds_on: tuple[str, ...] = ()
    """The cases that a reader has to decode before it can decode this one."""
    expected: Expected
    response: dict[str, Any] | None
    """The response that the events add up to, as it is when the stream ends; None without events that have
    one."""
    parts: list[dict[str, Any]]
    """VS Code's parts; consecutive texts are joined, and so is the thinking of one block."""
    broken_rules: tuple[str, ...]
    """The ids of the rules of `validate` that the stream breaks."""
    events: list[dict[str, Any]]
    """The events, as the messages of a WebSocket."""
    sse: str
    """The events as server-sent events, as `POST /v1/responses` answers."""
    piece: int = 0
    """The number of bytes that the reader gets at a time; 0: any number."""

    @property
    def body(self) -> bytes:
        """The bytes of the server-sent stream."""
        return self.sse.encode()

    @property
    def document(self) -> bytes:
        """The case as one line of JSON, in which halves of surrogate pairs are escaped."""
        return json.dumps(msgspec.to_builtins(self), separators=(",", ":")).encode()

    @property
    def pieces(self) -> Iterator[bytes]:
        """The bytes of the stream, in the pieces in which a reader gets them."""
        body = self.body
        size = self.piece or len(body)
        return (body[at : at + size] for at in range(0, len(body), size))


def case_ids(wires: Collection[str] = WIRE_NAMES) -> list[str]:
    """Return the ids of all cases on these wires: each script, followed by its variants."""
    return [id for wire in WIRE_NAMES if wire in wires for id in _ids_of(wire)]


def case(case_id: str) -> Case:
    """Return the case with this id. Raises LocalError (`bridge.corpus.unknown_case`) if there is none."""
    wire, _, rest = case_id.partition("/")
    script, _, variant = rest.partition("/")
    if wire not in WIRE_NAMES or case_id not in _ids_of(wire):
        raise LocalError("bridge.corpus.unknown_case", f"the corpus has no case {case_id[:200]!r}")
    return _build(case_id, wire, script, variant)


def cases(only: Collection[str] = (), wires: Collection[str] = WIRE_NAMES) -> Iterator[Case]:
    """Yield the cases on these wires; with `only`, those of these scripts and variants, and those with these
    ids. Raises LocalError (`bridge.corpus.unknown_case`) for any other name."""
    return map(case, chosen_ids(only, wires))


def chosen_ids(only: Collection[str] = (), wires: Collection[str] = WIRE_NAMES) -> list[str]:
    """Return the ids of the cases that `cases` yields, without building the cases. Raises as `cases` does."""
    known = {name for id in case_ids() for name in _names_of(id)}
    if unknown := [name for name in only if name not in known]:
        names = ", ".join(repr(name[:80]) for name in unknown)
        raise LocalError("bridge.corpus.unknown_case", f"the corpus has no case, script or variant {names}")
    return [id for id in case_ids(wires) if not only or not _names_of(id).isdisjoint(only)]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a case."""
    document: dict[str, Any] = msgspec.json.schema(Case)
    for each in document["$defs"].values():
        if "description" in each:
            each["description"] = cleandoc(each["description"])  # as Python 3.13 and later do
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}


def stream_of(steps: Iterable[Step], wire: str = "openresponses") -> list[Json]:
    """Return the events of a script on a wire, as JSON objects. Ids are numbered from 1, and the clock does
    not advance."""
    numbers = count(1)
    machine = ResponseStreamStateMachine(
        model="m",
        response_id="resp_0",
        ids=lambda prefix: f"{prefix}_{next(numbers)}",
        clock=lambda: _CLOCK,
        wire=wire,
    )
    events = [
        event
        for method, arguments, named in machine_calls(steps)
        for event in getattr(machine, method)(*arguments, **named) or ()
    ]
    return [decode_json(encode(event)) for event in events]


def joined(parts: Iterable[Part]) -> list[Json]:
    """Return parts as JSON objects; consecutive texts are joined, and so is the thinking of one block."""
    objects: list[Json] = []
    for part in parts:
        new: Json = json.loads(encode_part(part))
        last = objects[-1] if objects else {}
        if (
            isinstance(part, LanguageModelTextPart | LanguageModelThinkingPart)
            and isinstance(new["value"], str)
            and last.get("type") == new["type"]
            and last.get("id") == new.get("id")
            and last.get("metadata") == new.get("metadata")
        ):
            last["value"] += new["value"]
        else:
            objects.append(new)
    return objects


@cache
def _ids_of(wire: str) -> dict[str, None]:
    """Return the ids on a wire as the keys of a dict, which are ordered and quick to look up."""
    ids: dict[str, None] = {}
    for script in SCRIPTS:
        ids[f"{wire}/{script}"] = None
        for variant in VARIANTS.values():
            if script in variant.scripts:
                ids[f"{wire}/{script}/{variant.name}"] = None
        if script == CUT_SCRIPT:
            for name in cuts(stream_of(SCRIPTS[script].steps, wire)):
                ids[f"{wire}/{script}/{name}"] = None
    return ids


def _names_of(case_id: str) -> set[str]:
    """Return the names that select a case: its id, its script, its variant."""
    _, script, *variant = case_id.split("/")
    return {case_id, script, *variant, *(CUT[:-1] for name in variant if name.startswith(CUT))}


def _build(case_id: str, wire: Any, script: str, name: str) -> Case:
    entry = SCRIPTS[script]
    events = stream_of(entry.steps, wire)
    expected = expected_of(entry.steps, wire)
    asks, builds_on = entry.asks, entry.builds_on
    sse, piece = None, 0
    if name.startswith(CUT):
        events, expected = cut(events, int(name.removeprefix(CUT)))
        asks, builds_on = CUT_ASKS, (script,)
        sse = "".join(map(frame_of, events))
    elif name:
        variant = VARIANTS[name]
        asks, builds_on, piece = variant.asks, (script,), variant.piece
        events = variant.events(events) if variant.events else events
        if variant.frame is not None:
            sse = "".join(variant.frame(at, event) for at, event in enumerate(events)) + _DONE
        if variant.text is not None:
            sse = variant.text("".join(map(frame_of, events)) + _DONE)
    sse = sse or "".join(map(frame_of, events)) + _DONE
    response, parts = _folded(events)
    return Case(
        id=case_id,
        wire=wire,
        script=script,
        variant=name or None,
        asks=asks,
        builds_on=tuple(f"{wire}/{each}" for each in builds_on),
        expected=expected,
        response=response,
        parts=parts,
        broken_rules=_broken_rules(sse.encode(), wire),
        events=events,
        sse=sse,
        piece=piece,
    )


def _folded(events: list[Json]) -> tuple[Json | None, list[Json]]:
    """Return the response and the parts that our own decoders make of the events."""
    accumulator, decoder = ResponseAccumulator(), PartDecoder()
    parts = []
    for event in events:
        accumulator.feed(event)
        parts += decoder.feed(event)
    parts += decoder.close()
    response = accumulator.response
    return None if response is None else decode_json(encode(response)), joined(parts)


def _broken_rules(body: bytes, wire: Any) -> tuple[str, ...]:
    validator = StreamValidator(wire)
    frames = (decoder := SSEDecoder()).feed(body) + decoder.close()
    for frame in frames:
        validator.feed_frame(frame)
    validator.close()
    return tuple(sorted({each.rule for each in validator.violations}))
