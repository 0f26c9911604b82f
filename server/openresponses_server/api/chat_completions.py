"""`POST /v1/chat/completions`: any model for clients of the Chat Completions API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp, Send

from openresponses_bridge.dialects.chat_completions import (
    AnswerOptions,
    ChatCompletion,
    Choices,
    Chunk,
    answer_options,
    completions,
    encode,
)
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol import codec
from openresponses_bridge.seal import Sealer
from openresponses_server.api.responders import (
    CHAT,
    ChatForm,
    JsonResponder,
    Responder,
    RunJsonResponder,
    RunStreamResponder,
    StreamingResponder,
    chat_options,
    failure_of,
)
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.memory import Reservation
from openresponses_server.limits.requests import check_choices
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.prepare import new_run, prepare
from openresponses_server.requests.prepared import PreparedRequest
from openresponses_server.requests.service import service_of
from openresponses_server.runs.client import Batch, Deliver
from openresponses_server.runs.run import Run

# Several choices are several concurrent runs. A run that fails is reported in its choice while the others
# continue. When all are refused before the first byte, the error of the first choice is the HTTP error.


class ChoicesResponder(Responder):
    """Responds with several runs. Their slots in `gate` are reserved together, and `reservation` is released
    after all; `end_choice` is called with the index of each run that has ended."""

    def __init__(
        self,
        runs: Sequence[Run],
        headers: Mapping[str, str],
        keep_alive: float,
        options: AnswerOptions,
        sealer: Sealer,
        gate: Gate,
        reservation: Reservation,
        end_choice: Callable[[int], None],
    ) -> None:
        super().__init__(runs, headers, keep_alive)
        self._options = options
        self._sealer = sealer
        self._gate = gate
        self._reservation = reservation
        self._end_choice = end_choice
        first = runs[0].translation
        self._id = "chatcmpl-" + first.response_id.removeprefix("resp_")
        self._created = first.snapshot.created_at
        self._refused: dict[int, BridgeError] = {}

    async def _answer(self, send: Send) -> None:
        try:
            async with self._gate.slots(self._runs[0].owner, len(self._runs)):
                await self._make(send)
        finally:
            self._reservation.release()

    async def _make(self, send: Send) -> None:
        raise NotImplementedError

    async def _run_all(self, delivers: Sequence[Deliver | None]) -> None:
        """Run all choices to their ends. Raises the first one's error when every run was refused."""
        async with anyio.create_task_group() as tasks:
            for number, deliver in enumerate(delivers):
                tasks.start_soon(self._run_one, number, deliver)
        if len(self._refused) == len(self._runs):
            raise self._refused[0]

    async def _run_one(self, number: int, deliver: Deliver | None) -> None:
        run = self._runs[number]
        try:
            await run.generate(deliver)
        except BridgeError as error:
            self._refused[number] = error
        finally:
            self._end_choice(number)


class ChoiceForm:
    """The chunks of one choice in the stream of all. They do not end with it."""

    stream_type = CHAT.stream_type
    keep_alive = CHAT.keep_alive

    def __init__(self, choices: Choices, number: int) -> None:
        self._choices = choices
        self._number = number

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        return encode([chunk for event in batch.events for chunk in self._choices.feed(self._number, event)])


class ChoicesStreamResponder(ChoicesResponder, StreamingResponder):
    """The interleaved chunks of all choices, with the usage, if requested, once at the end."""

    stream_type = CHAT.stream_type
    keep_alive = CHAT.keep_alive

    async def _make(self, send: Send) -> None:
        choices = Choices(
            len(self._runs),
            id=self._id,
            created=self._created,
            include_usage=self._options.include_usage,
            **chat_options(self._options, self._sealer, self._runs[0].translation),
        )
        forms = (ChoiceForm(choices, number) for number in range(len(self._runs)))
        await self._run_all([partial(self._deliver, send, form) for form in forms])
        last: list[Chunk] = []
        for number, error in sorted(self._refused.items()):
            last += [
                chunk for event in self._runs[number].refuse(error) for chunk in choices.feed(number, event)
            ]
        await self._send(send, encode([*last, *choices.close()]), more=False)


class ChoicesJsonResponder(ChoicesResponder, JsonResponder):
    """One completion of all choices when they have ended."""

    async def _make(self, send: Send) -> None:
        await self._run_all([None] * len(self._runs))
        for number, error in self._refused.items():
            self._runs[number].refuse(error)
        answer = completions(
            [run.translation.in_one_form for run in self._runs],
            id=self._id,
            created=self._created,
            **chat_options(self._options, self._sealer, self._runs[0].translation),
        )
        if not isinstance(answer, ChatCompletion):
            raise failure_of(self._runs[0].translation)
        await self._send(send, codec.encode(answer))


_SCHEMAS: Final = {"messages": "response_format.json_schema.schema", "input": "text.format.schema"}


async def create(request: Request) -> ASGIApp:
    """Chunks with `stream`, else one completion, with `n` choices. Nothing is stored: this API can't refer to
    stored responses."""
    service = service_of(request)
    sealer = service.sealer.bound(request.state.owner)
    (asked, losses), options = await read_json(
        request, service, lambda body: (CHAT.request(body, sealer), answer_options(body))
    )
    check_choices(options.n, request.state.owner, service.settings.limits)
    prepared = PreparedRequest(
        replace(asked, store=False),
        fields_of(request.scope),
        request.state.request_id,
        owner=request.state.owner,
        losses=losses,
        input_param=options.input_param,
        schema_param=_SCHEMAS[options.input_param],
        choices=options.n,
    )
    await prepare(prepared, service)
    headers = prepared.answer_headers
    keep_alive = service.settings.keep_alive
    if options.n > 1:
        runs = [new_run(prepared, service, choice) for choice in range(options.n)]
        choices_responder = ChoicesStreamResponder if asked.stream else ChoicesJsonResponder
        gate, reservation = service.gate, prepared.reservation
        end_choice = prepared.target.end_choice
        return choices_responder(runs, headers, keep_alive, options, sealer, gate, reservation, end_choice)
    responder = RunStreamResponder if asked.stream else RunJsonResponder
    run = new_run(prepared, service)
    form = ChatForm(options, sealer, run.translation)
    return responder(run, headers, keep_alive, form)
