"""The cases that are played through a server of ours in front of an engine, and the function that plays one.

Every answer comes over every surface that can ask for it, whole and streamed; streams are held to the
validator on both wires, and all answers have to be the same.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from jsonschema import ValidationError, validate

from tests.engines.asking import SCHEMA, SURFACES, TOOL, Answer, Ask, Way, ask_over, ways
from tests.engines.engines import Engine, Running, bridge
from tests.engines.relay import cutting
from tests.engines.words import ANSWERS, THOUGHT
from tests.support.serving import opened

_AT_ONCE: Final = 20
_TOGETHER: Final = 4  # requests of one case
_IDLE_WITHIN: Final = 30.0  # seconds
_OVERFLOW: Final = "word " * 4500
_CUT_AFTER: Final = 1500  # bytes, which is within every engine's answer to COUNT
Kind = Literal["passes", "reported", "limit", "fails", "not asked"]


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `reported` when something was left out and every answer that lacks it says so,
    `limit` when the engine does something else; `what` was seen."""

    kind: Kind
    what: str = ""


@dataclass(frozen=True)
class Place:
    """Where a case is played: a server of ours at `base` in front of an engine."""

    engine: Engine
    running: Running
    dialect: str
    base: str


@dataclass(frozen=True)
class Case:
    """`expect` says what is wrong with one answer, or nothing; `loss` is a pattern for what may be reported
    as left out instead; `play` is for what is more than one question."""

    ask: Ask = field(default_factory=lambda: Ask(""))
    expect: Callable[[Answer], str] = lambda answer: ""
    loss: str = ""
    play: Callable[[Place], Iterable[str]] | None = None


def play(case: Case, place: Place, name: str) -> Outcome:
    """Play a case through a server of ours."""
    limit = place.engine.limit(place.dialect, name)
    if case.play is not None:
        problems = list(case.play(place))
        if problems == [_NOT_ASKED]:
            return Outcome("not asked")
        return _failed(limit, problems) if problems else Outcome("passes")
    answers = _asked(case.ask, place)
    broken = [f"{way}: {problem}" for way, answer in answers.items() for problem in answer.problems]
    broken += _differences(answers)
    if broken:
        return Outcome("fails", "; ".join(broken))
    wrong = {way: fault for way, answer in answers.items() if (fault := _wrong(case, answer))}
    if not wrong:
        lost = any(case.loss and re.search(case.loss, answer.losses) for answer in answers.values())
        return Outcome("reported" if lost else "passes")
    if all(_is_reported(case, answers[way]) for way in wrong):
        return Outcome("reported")
    return _failed(limit, [f"{way}: {fault}" for way, fault in wrong.items()])


def _failed(limit: str, found: list[str]) -> Outcome:
    return Outcome("limit", limit) if limit else Outcome("fails", "; ".join(found))


def _asked(ask: Ask, place: Place) -> dict[Way, Answer]:
    routes = ways(ask)
    with ThreadPoolExecutor(_TOGETHER) as threads:
        answers = threads.map(lambda way: ask_over(way, place.base, ask, place.running.model), routes)
        return dict(zip(routes, answers, strict=True))


def _wrong(case: Case, answer: Answer) -> str:
    if answer.status != 200 or answer.error is not None:
        return f"{answer.status} {json.dumps(answer.error)}"
    return case.expect(answer)


def _is_reported(case: Case, answer: Answer) -> bool:
    """Whether what is missing was said: as a loss, or by a refusal of the field."""
    if not case.loss:
        return False
    refused = f"{answer.error.get('param')} {answer.error.get('message')}" if answer.error else ""
    return re.search(case.loss, answer.losses + refused) is not None


def _differences(answers: dict[Way, Answer]) -> list[str]:
    """The ways over which something else came than over the first."""
    (first, one), *others = answers.items()
    differences = [
        f"{way}: {other.content}, but {first}: {one.content}"
        for way, other in others
        if other.content != one.content and {one.status, other.status} == {200}
    ]
    ends = {str(way): answer.end for way, answer in answers.items() if answer.end is not None}
    return differences + ([f"ends {ends}"] if len(set(ends.values())) > 1 else [])


# --- what is expected ------------------------------------------------------------------------------------


def _says(text: str, thinking: str = "", end: str = "stop") -> Callable[[Answer], str]:
    def expect(answer: Answer) -> str:
        if (answer.text.strip(), answer.thinking.strip()) != (text, thinking) or answer.calls:
            return f"{answer.content}"
        return _ended(answer, end)

    return expect


def _calls(*cities: str, text: str = "") -> Callable[[Answer], str]:
    expected = [(TOOL, {"city": city}) for city in cities]

    def expect(answer: Answer) -> str:
        if answer.calls != expected or answer.text.strip() != text:
            return f"{answer.content}"
        return _ended(answer, "calls")

    return expect


def _a_call(answer: Answer) -> str:
    """Some call of the tool; a model that was never trained to may have got to its limit instead."""
    if answer.end == "length":
        return ""
    return "" if answer.calls and {name for name, _ in answer.calls} == {TOOL} else f"{answer.content}"


def _one_call(answer: Answer) -> str:
    return "" if answer.calls == [(TOOL, {"city": "Paris"})] else f"{answer.content}"


def _no_call(answer: Answer) -> str:
    return f"{answer.calls}" if answer.calls else ""


def _an_object(answer: Answer) -> str:
    try:
        validate(json.loads(answer.text), SCHEMA)
    except (ValueError, ValidationError) as error:
        return f"{error}: {answer.text!r}"
    return ""


def _an_object_or_cut(answer: Answer) -> str:
    """A model that was never trained to may have got to its limit instead."""
    return "" if answer.end == "length" else _an_object(answer)


def _limited(answer: Answer) -> str:
    if not ANSWERS["COUNT"].startswith(answer.text.strip()):
        return f"{answer.content}"
    if answer.usage is not None and answer.usage[1] > _LIMIT:
        return f"{answer.usage[1]} tokens"
    return _ended(answer, "length")


def _with_logprobs(answer: Answer) -> str:
    return _says(ANSWERS["HELLO"])(answer) or ("" if answer.logprobs else "no log probabilities")


def _twice(answer: Answer) -> str:
    texts = [text.strip() for text in answer.choices]
    return "" if texts == [ANSWERS["HELLO"]] * 2 else f"{answer.choices}"


def _counted(answer: Answer) -> str:
    """Usage has both counts; how many a tokenizer makes of it is its own affair."""
    return "" if answer.usage and min(answer.usage) > 0 else f"usage {answer.usage}"


def _broken_bytes(answer: Answer) -> str:
    """Every byte that is no part of a character is one of the replacement characters, or several together."""
    match = re.fullmatch(r"ok \ufffd+A\ufffd+ \ufffd+ end \ufffd+", answer.text.strip())
    return "" if match else repr(answer.text)


def _ended(answer: Answer, end: str) -> str:
    return "" if answer.end in (None, end) else f"ended with {answer.end}"


# --- what is more than a question ------------------------------------------------------------------------

_NOT_ASKED: Final = "not asked"


def _overflow(place: Place) -> Iterable[str]:
    """A prompt beyond the window is refused in each surface's own form."""
    for way, answer in _asked(Ask(_OVERFLOW, limit=16), place).items():
        if answer.status not in (400, 413) or not (answer.error or {}).get("message"):
            yield f"{way}: {answer.status} {answer.error} {answer.text[:100]!r}"


def _down(place: Place) -> Iterable[str]:
    """An engine that closes every connection is a 502 everywhere."""
    with _behind_relay(place, 0) as broken:
        for way, answer in _asked(Ask("HELLO"), broken).items():
            if answer.status != 502 or not (answer.error or {}).get("message"):
                yield f"{way}: {answer.status} {answer.error}"


def _cut(place: Place) -> Iterable[str]:
    """A stream that breaks off ends as failed, whole on both wires, with what came before."""
    with _behind_relay(place, _CUT_AFTER) as broken:
        for way, answer in _streamed(Ask("COUNT"), broken).items():
            if answer.problems or answer.error is None or not ANSWERS["COUNT"].startswith(answer.text):
                yield f"{way}: {answer}"


def _streamed(ask: Ask, place: Place) -> dict[Way, Answer]:
    return {way: ask_over(way, place.base, ask, place.running.model) for way in ways(ask) if way.streamed}


@contextmanager
def _behind_relay(place: Place, after: int) -> Iterator[Place]:
    """Another server of ours, whose connections to the engine break off after that many bytes."""
    address = urlsplit(place.running.url)
    with cutting(address.port or 80, after) as port:
        url = f"http://127.0.0.1:{port}{address.path}"
        with bridge(place.engine, replace(place.running, url=url), place.dialect) as base:
            yield replace(place, base=base)


def _cancelled(place: Place) -> Iterable[str]:
    """A client that leaves stops the engine's work."""
    is_idle = place.running.is_idle
    if is_idle is None:
        yield _NOT_ASKED
        return
    for name, surface in SURFACES.items():
        body = surface.body(Ask("FOREVER"), place.running.model)
        body |= {} if surface.always_streams else {"stream": True}
        with opened(place.base, "POST", surface.path, body) as left:
            left.read(200)
        deadline = time.monotonic() + _IDLE_WITHIN
        while not is_idle():
            if time.monotonic() > deadline:
                yield f"{name}: the engine still works"
                break
            time.sleep(0.05)


def _at_once(place: Place) -> Iterable[str]:
    """Twenty streams at the same time, over all surfaces: each gets its own answer."""
    keys = ("HELLO", "THINK", "COUNT", "EMOJI", "JSON")
    requests = [(key, way) for key in keys for way in ways(Ask(key)) if way.streamed]
    requests = [requests[index % len(requests)] for index in range(_AT_ONCE)]
    model = place.running.model
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = threads.map(lambda each: ask_over(each[1], place.base, Ask(each[0]), model), requests)
        for (key, way), answer in zip(requests, answers, strict=True):
            if answer.text.strip() != ANSWERS[key] or answer.problems:
                yield f"{key}, {way}: {answer}"


_LIMIT: Final = 16
_WILLING: Final = Ask("the WEATHER please", tools=True)

CASES: Final[dict[str, Case]] = {
    "text": Case(Ask("HELLO"), _says(ANSWERS["HELLO"])),
    "thinking": Case(Ask("please THINK"), _says(ANSWERS["THINK"], THOUGHT)),
    "characters in pieces": Case(Ask("EMOJI"), _says(ANSWERS["EMOJI"])),
    "bytes that are not UTF-8": Case(Ask("BROKEN"), _broken_bytes),
    "a tool": Case(_WILLING, _calls("Paris")),
    "parallel calls": Case(Ask("PARALLEL", tools=True), _calls("Paris", "London", text=ANSWERS["PARALLEL"])),
    "one call at a time": Case(Ask("PARALLEL", tools=True, one_call=True), _one_call, "parallel_tool_calls"),
    "a required tool": Case(Ask("HELLO", tools=True, choice="required", limit=64), _a_call, "tool_choice"),
    "a named tool": Case(Ask("HELLO", tools=True, choice=TOOL, limit=64), _a_call, "tool_choice"),
    "no tool": Case(Ask("the WEATHER", tools=True, choice="none"), _no_call, "tool_choice|tools"),
    "after a tool": Case(Ask("the WEATHER please", tools=True, after_tool=True), _says(ANSWERS["RESPONSE"])),
    "a schema": Case(Ask("JSON please", schema=True), _an_object, "text|format|output_config"),
    "a schema unasked for in words": Case(
        Ask("HELLO", schema=True, limit=64), _an_object_or_cut, "text|format|output_config|schema|not JSON"
    ),
    "a limit": Case(Ask("COUNT", limit=_LIMIT), _limited),
    "stop": Case(Ask("STOPHERE", stop="STOP"), _says("First part."), "stop"),
    "log probabilities": Case(Ask("HELLO", logprobs=True), _with_logprobs, "logprobs"),
    "two choices": Case(Ask("HELLO", n=2), _twice),
    "an image": Case(Ask("HELLO", image=True), _says(ANSWERS["HELLO"]), "image"),
    "usage": Case(Ask("COUNT"), _counted),
    "beyond the window": Case(play=_overflow),
    "an error before the answer": Case(play=_down),
    "an answer that breaks off": Case(play=_cut),
    "cancelled": Case(play=_cancelled),
    f"{_AT_ONCE} at once": Case(play=_at_once),
}
