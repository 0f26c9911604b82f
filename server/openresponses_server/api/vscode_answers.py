"""A response as VS Code's parts over HTTP: one JSON line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from openresponses_bridge.decoder.part_decoder import ErrorPolicy
from openresponses_bridge.dialects.vscode import ChatRequest, Outbound, error_body
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer
from openresponses_server.api.answers import StreamedAnswer
from openresponses_server.api.foreign import PARTS, ForeignForm
from openresponses_server.errors import failure
from openresponses_server.runs.client import Batch
from openresponses_server.runs.run import Run

FailureForm = Literal["text", "line"]
"""How a failure after the first part is sent: as text for the user, or as a last line `{"error": …}`."""
FAILURES: dict[FailureForm, ErrorPolicy] = {"text": "text", "line": "notes"}


class PartsForm(ForeignForm):
    """The answer to one chat. `trace` gets a line for each event: what it became, never content."""

    def __init__(
        self,
        chat: ChatRequest,
        failures: FailureForm,
        sealer: Sealer,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self._parts = Outbound(
            errors=FAILURES[failures],
            no_response=True,
            model=chat.model,
            include_encrypted_thinking=chat.include_encrypted_thinking is True,
            trace=trace,
        )
        self._failures = failures
        super().__init__(PARTS, self._parts, sealer)

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        data = super().streamed(batch, ended)
        error = self._parts.result.error
        if ended and error is not None and self._failures == "line":
            return data + encode(error_body(failure(error))) + b"\n"
        return data


class PartsAnswer(StreamedAnswer):
    """VS Code cancels by leaving, whether the response is stored or not."""

    async def _leave(self, run: Run) -> None:
        run.stop()
        await super()._leave(run)
