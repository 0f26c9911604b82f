"""The register of scenarios, their verdicts, and what they expect of answers.

A scenario is a generator: it yields steps, is sent answers, and returns when all held. It ends early by
raising `Broken` (a clause is not kept) or `NotOffered` (the server does not have what is asked about).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, Literal, NamedTuple, get_args

from msgspec import Struct

from openresponses_bridge.conformance.alone import judge_response
from openresponses_bridge.conformance.exchange import Answer, Ask, Say, Step
from openresponses_bridge.conformance.published import WireName
from openresponses_bridge.conformance.registry import Violation
from openresponses_bridge.conformance.rules import RULES
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.sse import is_done

Level = Literal["core", "full"]
LEVELS: Final = get_args(Level)
"""`core` is what every server has: one request and its answer, streams, tools, errors. `full` adds what is
stored, continued, cancelled, resumed, compacted, and WebSockets."""
Play = Generator[Step, Answer, None]
_SHOWN = 3  # findings of one answer that are written out; the rest are counted
_ABSENT = frozenset({404, 405, 501})
_UNSUPPORTED = frozenset({400, 422, 501})


class Broken(Exception):
    """A clause that the server does not keep; the message says what and where.

    `causes` say what is at fault without saying where, so that failures of one cause can be put together;
    without any, the message is the cause.
    """

    def __init__(self, message: str, causes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(dict.fromkeys(causes)) or (message,)


class NotOffered(Exception):
    """The server has no such feature, and need not."""


class Target(Struct, frozen=True):
    """What the scenarios are played with: a model's name, and the wire that answers are held to."""

    model: str
    wire: WireName = "openresponses"

    def request(self, **fields: Any) -> dict[str, Any]:
        return {"model": self.model, "input": "Say hello in three words.", **fields}

    def create(self, **fields: Any) -> Ask:
        return Ask(body=self.request(**fields))

    def say(self, socket: int = 0, **fields: Any) -> Say:
        return Say(message={"type": "response.create", **self.request(**fields)}, socket=socket)


Script = Callable[[Target], Play]


class Scenario(NamedTuple):
    """One scenario. `id` is `area.what`; `source` says which text asks for it."""

    id: str
    description: str
    source: str
    level: Level
    play: Script

    @property
    def area(self) -> str:
        return self.id.partition(".")[0]


SCENARIOS: dict[str, Scenario] = {}


def scenario(source: str, level: Level = "core") -> Callable[[Script], Script]:
    """Register a generator function. Its id is its name with the first `_` as a dot, its description the
    first line of its docstring."""

    def register(play: Script) -> Script:
        name = play.__name__.replace("_", ".", 1).replace("_", "-")
        SCENARIOS[name] = Scenario(name, (play.__doc__ or "").partition("\n")[0], source, level, play)
        return play

    return register


def expect(holds: object, message: str) -> None:
    """Raise Broken with this message unless it holds."""
    if not holds:
        raise Broken(message)


def expect_whole(answer: Answer, target: Target, status: str = "completed") -> dict[str, Any]:
    """The response of an answer that came whole; it must keep the schema and have ended so."""
    expect(answer.status == 200, _unexpected(answer, 200))
    expect(answer.media_type == "application/json", f"content-type is {answer.media_type!r}, not JSON")
    response = answer.response
    _expect_clean("the response breaks the protocol", judge_response(response, target.wire))
    expect(response.get("status") == status, f"status is {response.get('status')!r}, not {status!r}")
    return response


def expect_stream(answer: Answer, target: Target, *statuses: str) -> dict[str, Any]:
    """The response that a clean stream (HTTP or WebSocket) ended with, in one of these statuses."""
    if not answer.messages:
        expect(answer.status == 200, _unexpected(answer, 200))
        expect(answer.media_type == "text/event-stream", f"content-type is {answer.media_type!r}")
    _expect_clean("the stream breaks the protocol", answer.violations(target.wire))
    status = answer.response.get("status")
    allowed = statuses or ("completed",)
    expect(status in allowed, f"the stream ended as {status!r}, not {' or '.join(allowed)}")
    return answer.response


def expect_marker(answer: Answer, target: Target) -> None:
    """The stream ends with [DONE]. OpenAI sends none."""
    if target.wire != "openai":
        expect(answer.frames and is_done(answer.frames[-1]), "the last frame is not [DONE]")


def _expect_clean(what: str, violations: list[Violation]) -> None:
    if violations:
        raise Broken(_listed(what, list(map(str, violations))), map(_cause, violations))


def _cause(violation: Violation) -> str:
    """The clause that is not kept and, of a field, which; not where in the stream or in a list."""
    if violation.rule == "schema":
        path = "".join(each for each in violation.path if not each.isdigit())
        return f"{violation.rule}: {path}: {violation.message}"
    return f"{violation.rule}: {RULES[violation.rule].description}"


def expect_refusal(answer: Answer, *statuses: int) -> dict[str, Any]:
    """The error of a request that must be refused with one of these statuses, as JSON in one shape."""
    expect(answer.status in statuses, _unexpected(answer, *statuses))
    expect(answer.media_type == "application/json", f"the refusal's content-type is {answer.media_type!r}")
    error = answer.error
    for name in ("type", "message"):
        expect(isinstance(error.get(name), str) and error[name], f"error.{name} is not text: {error!r:.200}")
    for name in ("code", "param"):
        expect(isinstance(error.get(name), str | None), f"error.{name} is neither text nor null")
    return error


def need_route(answer: Answer, what: str) -> None:
    """NotOffered when the server has no such endpoint at all."""
    if answer.status in _ABSENT:
        raise NotOffered(f"{what}: status {answer.status}")


def need_support(answer: Answer, what: str) -> None:
    """NotOffered when the server says that it does not do this."""
    if answer.status in _UNSUPPORTED:
        raise NotOffered(f"{what}: {answer.status} {str(answer.error.get('message', ''))[:120]}")


def items(response: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The output's items of this type."""
    output = response.get("output")
    found = output if isinstance(output, list) else []
    return [item for item in found if isinstance(item, dict) and item.get("type") == kind]


def text_of(response: dict[str, Any]) -> str:
    """All text of its messages."""
    parts = [part for item in items(response, "message") for part in item.get("content") or []]
    return "".join(str(part.get("text", "")) for part in parts if part.get("type") == "output_text")


def object_in(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is; None for other texts."""
    try:
        found = decode_json(text)
    except WireError:
        return None
    return found if isinstance(found, dict) else None


def _unexpected(answer: Answer, *wanted: int) -> str:
    said = answer.error.get("message") or answer.body[:120].decode("utf-8", "replace")
    return f"status {answer.status} instead of {' or '.join(map(str, wanted))}: {said!s:.160}"


def _listed(what: str, found: list[str]) -> str:
    more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
    return f"{what}: {'; '.join(found[:_SHOWN])}{more}"
