"""The model of a loop, over the service in this process and all of its upstreams."""

from __future__ import annotations

from typing import Unpack
from uuid import uuid4

import anyio
import msgspec
from msgspec.structs import replace

from openresponses_agent.loop import AskModel, ModelAnswer, ModelFailure
from openresponses_agent.prompt import BuildPromptResult, create_responses_request_body
from openresponses_agent.prompt.bodies import ResponsesFields
from openresponses_agent.tools.errors import CancellationToken
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.errors import BridgeError, HttpError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import Received
from openresponses_server.requests.service import Service
from openresponses_server.runs.client import Batch, Deliver

_THINKING = "reasoning.encrypted_content"
_PREVIOUS = "previous_response_id"


class ServiceModel:
    """Sends a loop's requests to `model`. With `stateful`, each round's response is stored, and the next
    request continues it (its id is the stateful marker) with only the new results; otherwise nothing is
    stored.

    `options` are further fields of each request, such as `max_output_tokens`. `diagnostics` are the parts of
    prompts that a request can't express: cache breakpoints, parts for other APIs.
    """

    def __init__(
        self, service: Service, model: str, *, stateful: bool = False, **options: Unpack[ResponsesFields]
    ) -> None:
        self._service = service
        self._model = model
        self._stateful = stateful
        self._options = options
        self.diagnostics = Diagnostics()

    async def ask(self, action: AskModel, token: CancellationToken) -> ModelAnswer | ModelFailure:
        """Stream one response. Cancelling the token, or a callback that asks to stop, ends the upstream's
        request."""
        reader = action.reader()
        with anyio.CancelScope() as reading:
            dispose = token.on_cancellation_requested(reading.cancel)

            async def deliver(batch: Batch) -> None:
                for event in batch.events:
                    if not reader.feed(event):
                        reading.cancel()
                        return

            try:
                await anyio.sleep(action.delay)
                await self._run(action, deliver)
            except BridgeError as error:
                return reader.fail(error)
            finally:
                dispose()
        if token.is_cancellation_requested:
            return reader.fail(HttpError(499, "the run was cancelled"))
        return reader.close()

    async def _run(self, action: AskModel, deliver: Deliver) -> None:
        marker = action.stateful_marker if self._stateful else None
        if marker is not None:
            try:
                return await self._generate(self._continuation(action.prompt, marker), deliver)
            except BridgeError as error:
                if error.param != _PREVIOUS:
                    raise  # else the response is no longer stored: send the whole prompt
        await self._generate(self._request(action.prompt), deliver)

    async def _generate(self, request: CreateResponse, deliver: Deliver) -> None:
        prepared = await prepare(Received(request, {}, f"agent_{uuid4().hex}"), self._service)
        run = RunAssembly(prepared, self._service).run()
        try:
            await run.generate(deliver)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await run.abandon()
            raise

    def _continuation(self, prompt: BuildPromptResult, marker: str) -> CreateResponse:
        """Return a request with what follows the model's last message: the results of its calls."""
        last = max(at for at, message in enumerate(prompt.messages) if message.role == "assistant")
        rest = replace(prompt, messages=prompt.messages[last + 1 :])
        return self._request(rest, previous_response_id=marker)

    def _request(self, prompt: BuildPromptResult, **more: Unpack[ResponsesFields]) -> CreateResponse:
        body = create_responses_request_body(
            prompt, self._model, sealer=self._service.sealer, diagnostics=self.diagnostics
        )
        fields = {"stream": True, "store": self._stateful, "include": [_THINKING], **self._options, **more}
        return decode_request(msgspec.json.encode(body | fields))
