"""What a stream of parts does beside reading events: it closes what is open before something else,
reports each error once, and gives what only the final response holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openresponses_bridge.decoder.finish import FinishReason, PartResult, marker_part, usage_part
from openresponses_bridge.decoder.flow import BREAK, Flow
from openresponses_bridge.decoder.images import Images
from openresponses_bridge.decoder.parts import LanguageModelTextPart, Part
from openresponses_bridge.decoder.prose import Prose
from openresponses_bridge.decoder.thinking import Thinking
from openresponses_bridge.decoder.tool_calls import ToolCallDecoder
from openresponses_bridge.errors import ToolError
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.errors import ResponseError
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.surrogates import is_whole, mended


class PartStream:
    """The parts of one response, until `_ended`."""

    result: PartResult
    _flow: Flow
    _prose: Prose
    _thinking: Thinking
    _images: Images
    _calls: ToolCallDecoder
    _reported: tuple[str, ...]
    _model: str | None
    _ended = False

    def _note_identity(self, response: Response) -> None:
        self.result.response_id = response.id or self.result.response_id
        self.result.model = response.model or self.result.model

    def _calling(self, method: Callable[..., list[Part]], *args: Any) -> list[Part]:
        """The calls' answer to an event, after what is open was closed. Too many arguments are the end."""
        try:
            made = method(*args)
        except ToolError as error:
            return self._overflow(error)
        return self._flow.leave() + made if made else made

    def _overflow(self, error: ToolError) -> list[Part]:
        return self._end("error", self._fail(ResponseError(error.code, error.message)))

    def _finished(self, output_index: int, item: it.Item | None) -> list[Part]:
        """What a finished item holds that was not sent before."""
        if isinstance(item, it.Message):
            return self._prose.item_done(output_index, item)
        if isinstance(item, it.ReasoningItem):
            return self._thinking.item_done(output_index, item)
        if isinstance(item, UnknownItem):
            return self._hosted(output_index, item)
        if isinstance(item, _PARTLESS):
            self.result.diagnostics.loss(item.type, "has no part, not shown")
        return self._calling(self._calls.item_done, output_index, item)

    def _hosted(self, output_index: int, item: UnknownItem) -> list[Part]:
        if item.type.endswith("mcp_approval_request"):
            self.result.diagnostics.loss("mcp_approval_request", "VS Code can't answer it, not shown")
        images = self._images.item_done(output_index, item)
        return self._flow.leave() + images if images else images

    def _remaining(self, response: Response, completed: bool) -> list[Part]:
        """What is in the final response only: calls if it is completed, words and reasoning if none
        were streamed, since positions there need not be output indexes."""
        wanted = {
            it.Message: self._prose.silent,
            it.ReasoningItem: self._thinking.silent,
            UnknownItem: True,
        }
        parts: list[Part] = []
        for position, item in enumerate(response.output):
            if self._ended:
                return parts  # it held more arguments than a call may have
            if type(item) in wanted:
                parts += self._finished(position, item) if wanted[type(item)] else []
            elif completed:
                parts += self._calling(self._calls.final, position, item)
        return parts + self._calling(
            self._calls.flush if completed and not response.output else self._calls.rest
        )

    def _fail(self, error: ResponseError) -> list[Part]:
        """Report an error, once."""
        if self.result.error is not None:
            return []
        self.result.error = error
        return self._calling(self._calls.rest) + self._report(
            "Error", error.message or "The model's server reported an error."
        )

    def _report(self, kind: str, message: str) -> list[Part]:
        return self._line(kind, message) if kind in self._reported else []

    def _line(self, kind: str, message: str) -> list[Part]:
        parts = self._flow.leave()
        before = BREAK if self._flow.text_written else ""
        return [*parts, LanguageModelTextPart(f"{before}**{kind}:** {mended(message)}")]

    def _data(self, response: Response, completed: bool) -> list[Part]:
        """The closing data parts: usage, and the marker to go on from if there is a stored response."""
        parts: list[Part] = []
        if response.usage is not None:
            self.result.usage = response.usage
            parts.append(usage_part(response.usage))
        model = self._model or self.result.model
        if completed and model and response.id and response.store:
            self.result.stateful_marker = response.id
            if "\\" in model + response.id or not is_whole(model + response.id):
                self.result.diagnostics.loss("stateful_marker", "model or id can't stand in it, not sent")
            else:
                parts.append(marker_part(model, response.id))
        return parts

    def _end(self, reason: FinishReason, parts: list[Part]) -> list[Part]:
        """Nothing comes after this. `parts` go last, when what is open is closed."""
        self.result.finish_reason = reason
        self._ended = True
        self._calls.clear()
        return self._flow.leave() + parts


_PARTLESS = (it.CompactionItem, it.ShellCall, it.LocalShellCall, it.ApplyPatchCall)
