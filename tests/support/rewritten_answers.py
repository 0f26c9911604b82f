"""Plays scenarios with changed answers: the answers of our own server are recorded once, and each is
rewritten before the scenario gets it. Nothing waits and nothing is sent, so that thousands of plays take
seconds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from openresponses_bridge.conformance.scenario import (
    Broken,
    HttpRequest,
    NotOffered,
    Scenario,
    ServerAnswer,
    ServerUnderTest,
    Step,
    WebSocketMessage,
)
from openresponses_bridge.conformance.scenarios import SCENARIOS
from openresponses_bridge.sse import is_done
from openresponses_cli.commands.playing import Player, ScenarioResult

JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream; charset=utf-8"}
DONE = b"data: [DONE]\n\n"

Object = dict[str, Any]
Exchange = tuple[Step, ServerAnswer]
Rewrite = Callable[[Step, ServerAnswer, list[Exchange]], ServerAnswer]
"""Returns what the scenario gets instead of an answer. Its arguments are the step, the recorded answer, and
the earlier exchanges as the scenario saw them."""
Condition = Callable[[Step, ServerAnswer, list[Exchange]], object]
Edit = Callable[[Object], Any]


class _Recorder(Player):
    """A player that records its exchanges."""

    def __init__(self, base: str) -> None:
        super().__init__(base, {}, 30)
        self.seen: list[Exchange] = []

    async def _run_step(self, step: Step) -> ServerAnswer:
        answer = await super()._run_step(step)
        self.seen.append((step, answer))
        return answer


def recorded(base: str, target: ServerUnderTest) -> dict[str, list[Exchange]]:
    """The exchanges of each scenario with the server at `base`; all of the scenarios have to pass."""

    async def play() -> dict[str, list[Exchange]]:
        exchanges = {}
        player = _Recorder(base + "/v1")
        async with player:
            for scenario in SCENARIOS.values():
                player.seen = []
                verdict: ScenarioResult = await player.play(scenario, target)
                assert verdict.outcome == "passed", verdict
                exchanges[scenario.id] = player.seen
        return exchanges

    return asyncio.run(play())


class Played:
    """A scenario played with rewritten answers: its outcome, the message and causes of a failure, and whether
    an answer was `changed`."""

    def __init__(
        self, scenario: Scenario, target: ServerUnderTest, record: list[Exchange], rewrite: Rewrite
    ) -> None:
        self.outcome = "passed"
        self.message = ""
        self.causes: tuple[str, ...] = ()
        self.changed = _changes(record, rewrite)
        if not self.changed:
            return  # the play equals the recorded one, which passed
        self._record = list(record)
        try:
            self._play(scenario, target, rewrite)
        except NotOffered as reason:
            self.outcome, self.message = "skipped", str(reason)
        except Broken as reason:
            self.outcome, self.message, self.causes = "failed", str(reason), reason.causes
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self.outcome, self.message = "failed", f"unreadable: {error!r}"

    def _play(self, scenario: Scenario, target: ServerUnderTest, rewrite: Rewrite) -> None:
        steps = scenario.play(target)
        before: list[Exchange] = []
        try:
            step = next(steps)
            while True:
                answer = rewrite(step, self._recorded_answer(step, before), before)
                before.append((step, answer))
                step = steps.send(answer)
        except StopIteration:
            return

    def _recorded_answer(self, step: Step, before: list[Exchange]) -> ServerAnswer:
        """The server's answer to this step; if the scenario takes another step because of a rewritten answer,
        the one to the next step of the same path, or the last one sent."""
        exact = [index for index, (known, _) in enumerate(self._record) if known == step]
        alike = [index for index, (known, _) in enumerate(self._record) if path_of(known) == path_of(step)]
        if exact or alike:
            return self._record.pop((exact or alike)[0])[1]
        sent = [answer for known, answer in before if path_of(known) == path_of(step)]
        return sent[-1] if sent else ServerAnswer(status=404, headers=JSON, body=b'{"error":{}}')


def _changes(record: list[Exchange], rewrite: Rewrite) -> bool:
    before: list[Exchange] = []
    for step, answer in record:
        if rewrite(step, answer, before) != answer:
            return True
        before.append((step, answer))
    return False


def path_of(step: Step) -> str:
    """`POST /responses`, `GET /responses/ID`, `SAY`, `WAIT`."""
    if isinstance(step, HttpRequest):
        parts = step.path.partition("?")[0].split("/")
        if len(parts) > 2 and parts[2].startswith("resp_"):
            parts[2] = "ID"
        return f"{step.method} {'/'.join(parts)}"
    return "SAY" if isinstance(step, WebSocketMessage) else "WAIT"


def asked(step: Step) -> Object:
    """Return the fields of the request."""
    fields = (
        step.body
        if isinstance(step, HttpRequest)
        else step.message
        if isinstance(step, WebSocketMessage)
        else None
    )
    return fields if isinstance(fields, dict) else {}


def said_in(step: Step) -> str:
    """Return the text of a step that is searched for words: its path and its body."""
    path = step.path if isinstance(step, HttpRequest) else ""
    return f"{path_of(step)} {path} {json.dumps(asked(step))}"


def at(where: str) -> Condition:
    """Return a condition that holds for the step with this path (see `path_of`)."""
    return lambda step, answer, before: path_of(step) == where


def mentions(text: str) -> Condition:
    """Return a condition that holds if the path or the body of the step contains this text."""
    return lambda step, answer, before: text in said_in(step)


def earlier(text: str) -> Condition:
    """Return a condition that holds if an earlier step contains this text."""
    return lambda step, answer, before: any(text in said_in(each) for each, _ in before)


def served(step: Step, answer: ServerAnswer, before: list[Exchange]) -> bool:
    return path_of(step) == "POST /responses" and answer.status == 200


def served_whole(step: Step, answer: ServerAnswer, before: list[Exchange]) -> bool:
    return served(step, answer, before) and answer.media_type == "application/json"


def served_stream(step: Step, answer: ServerAnswer, before: list[Exchange]) -> bool:
    return answer.media_type == "text/event-stream"


def refused(step: Step, answer: ServerAnswer, before: list[Exchange]) -> bool:
    return answer.status >= 400


def failed_turn(step: Step, answer: ServerAnswer, before: list[Exchange]) -> bool:
    return bool(answer.messages) and answer.json.get("type") == "error"


def both(*conditions: Condition) -> Condition:
    return lambda step, answer, before: all(each(step, answer, before) for each in conditions)


def when(condition: Condition, rewrite: Rewrite) -> Rewrite:
    return lambda step, answer, before: (
        rewrite(step, answer, before) if condition(step, answer, before) else answer
    )


def always(answer: ServerAnswer) -> Rewrite:
    return lambda *_: answer


def put(**fields: Any) -> Rewrite:
    """Change these fields of the answer (`status`, `headers`, `body`, `messages`)."""
    return lambda step, answer, before: replace(answer, **fields)


def with_json(answer: ServerAnswer, value: Any) -> ServerAnswer:
    return replace(answer, body=json.dumps(value).encode())


def body(edit: Edit) -> Rewrite:
    """Edit the JSON object of the body in place."""

    def rewrite(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
        document = answer.json
        if answer.messages or not isinstance(document, dict):
            return answer
        original = json.dumps(document)
        edit(document)
        return answer if json.dumps(document) == original else with_json(answer, document)

    return rewrite


def events(edit: Callable[[list[Object]], Any]) -> Rewrite:
    """Edit the events of a stream in place, over HTTP or in a turn on a WebSocket."""

    def rewrite(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
        objects = answer.events
        original = json.dumps(objects)
        edit(objects)
        if json.dumps(objects) == original:
            return answer
        if answer.messages:
            return replace(answer, messages=[json.dumps(event).encode() for event in objects])
        frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in objects]
        ended = [DONE] if any(map(is_done, answer.frames)) else []
        return replace(answer, body=b"".join(frames + ended))

    return rewrite


def data(change: Callable[[bytes], bytes]) -> Rewrite:
    """Change the bytes of the body and of each message."""
    return lambda step, answer, before: replace(
        answer, body=change(answer.body), messages=[change(each) for each in answer.messages]
    )


def whole(edit: Edit) -> Rewrite:
    """Edit the response of each `POST /responses` that is answered whole."""
    return when(served_whole, body(edit))


def streamed(edit: Callable[[list[Object]], Any]) -> Rewrite:
    """Edit the events of each stream over HTTP."""
    return when(served_stream, events(edit))


def of_type(kind: str, found: list[Object]) -> Iterator[Object]:
    return (event for event in found if event["type"] == kind)
