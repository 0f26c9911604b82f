"""Converts input items to steps, and the system instruction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from openresponses_bridge.calls.call_ids import sent_call_id
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import CallView, OutputView
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    CONTINUE,
    CONTINUED,
    BaseBuilder,
    Entry,
    object_in,
    place,
    searched,
)
from openresponses_bridge.dialects.interactions import types as t
from openresponses_bridge.dialects.interactions.carried import CarriedFields
from openresponses_bridge.dialects.interactions.hosted import steps_of
from openresponses_bridge.dialects.interactions.options import InteractionsOptions
from openresponses_bridge.dialects.interactions.signatures import CALL, open_signature
from openresponses_bridge.dialects.interactions.types import Json
from openresponses_bridge.dialects.interactions.upstream.media import ContentEncoder
from openresponses_bridge.seal import Sealer

_SYSTEM: Final = ("system", "developer")
_IMAGE: Final = "image_generation_call"


class InputBuilder(BaseBuilder[CarriedFields]):
    """Builds the steps from the entries of a request. The outputs of calls come directly after the calls,
    wherever they were in the input."""

    server = "a server of the Interactions API"

    def __init__(
        self,
        entries: Sequence[Entry],
        identities: ToolIdentityMap,
        sealer: Sealer,
        options: InteractionsOptions,
        carried: CarriedFields,
        diagnostics: Diagnostics,
    ) -> None:
        super().__init__(entries, identities, sealer, carried, diagnostics)
        if self._before is None and carried.parts:
            diagnostics.loss("steps", "the client's own fields are of another conversation, left out")
        self._encoder = ContentEncoder(options, diagnostics)
        self._open: list[tuple[CallView, str, int]] = []  # calls, their ids as sent, the indexes of outputs
        self._steps: list[Json] = []
        self._signature = ""  # of the next call
        self.system: list[str] = []

    def build(self, instructions: str | None) -> list[Json]:
        """Return the steps, after which `system` is complete too. Raises InvalidRequestError."""
        if instructions:
            self.system.append(instructions)
        self._walk()
        steps = self._steps
        if steps and steps[-1]["type"] == t.MODEL:
            self._diagnostics.repair("input", CONTINUED)
            steps.append({"type": t.USER, "content": [{"type": "text", "text": CONTINUE}]})
        return steps

    def _own(self, index: int, number: int | None = None) -> Json:
        """Return the fields of the client's own step or content that the protocol can't express."""
        if self._before is None:
            return {}
        return self._carried.parts.get(place(index - self._before, number), {})

    def _contents(self, content: Any, index: int, field: str) -> list[Json]:
        """Return the contents of a message or an output; empty texts are left out."""
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if content else []
        at = self._entries[index].at(field)
        contents = []
        for number, each in enumerate(content):
            encoded = self._encoder.content(each, f"{at}[{number}]")
            if encoded is not None:
                own = dict(self._own(index, number))
                had_data = own.pop("data", None) is not None
                if "data" in encoded and not had_data:  # the file was fetched meanwhile
                    own.pop("uri", None)
                contents.append({**encoded, **own})
        return contents

    def _message(self, item: Any, index: int) -> None:
        contents = self._contents(item.content, index, "content")
        if not contents:
            self._diagnostics.ignored("message", "empty, left out")
            return
        if item.role in _SYSTEM:
            self._instruct(contents, index)
            return
        self._begun = True
        if getattr(item, "phase", None):
            self._diagnostics.loss("message.phase", "Interactions knows no phases")
        if item.role == "assistant":
            self._output(contents, self._own(index), joins=False)
        else:
            self._answer(index)
            self._steps.append({"type": t.USER, "content": contents} | self._own(index))

    def _instruct(self, contents: list[Json], index: int) -> None:
        """Add a message of the system: at the beginning to the system instruction, later as a reminder in the
        user's."""
        texts = [each["text"] for each in contents if each["type"] == "text"]
        if len(texts) < len(contents):
            self._diagnostics.loss("message.system", "only its text has a place in the system instruction")
        if not self._begun:
            self.system += texts
            return
        where = self._entries[index].where
        self._diagnostics.repair(where, "a later system message, sent as a reminder of the user's")
        self._answer(index)
        reminder = "<system-reminder>\n" + "\n\n".join(texts) + "\n</system-reminder>"
        self._steps.append({"type": t.USER, "content": [{"type": "text", "text": reminder}]})

    def _output(self, contents: list[Json], own: Json, *, joins: bool) -> None:
        """Add contents of the model. Media are in one step with the contents beside them."""
        last = self._steps[-1] if self._steps else {}
        if last.get("type") == t.MODEL and not own:
            before = last["content"][-1].get("type")
            if joins or before != "text":
                last["content"] += contents
                return
        self._steps.append({"type": t.MODEL, "content": contents} | own)

    def _add_call(self, call: CallView, arguments: Json, index: int, answer: int) -> None:
        call_id = sent_call_id(call.call_id, None, self._diagnostics, self._entries[index].where)
        step: Json = {"type": t.CALL, "id": call_id, "name": call.name, "arguments": arguments}
        signature, self._signature = self._signature, ""
        step |= {"signature": signature} if signature else {}
        self._steps.append(step | self._own(index))
        self._open.append((call, call_id, answer))

    def _answer(self, index: int) -> None:
        for call, call_id, answer in self._open:
            if self._is_moved_up(answer, index):
                where = self._entries[answer].where
                self._diagnostics.repair(where, "a tool output was moved up to its call")
            output = self._views[answer]
            assert isinstance(output, OutputView)
            result: Any = output.output
            if not isinstance(result, str):
                result = self._contents(result, answer, "output")
            step: Json = {"type": t.RESULT, "call_id": call_id, "name": call.name, "result": result}
            failed = {"is_error": True} if output.failed else {}
            self._steps.append(step | failed | self._own(answer))
        self._open = []

    def _reasoning(self, item: Any, index: int) -> None:
        encrypted, where = item.encrypted_content, self._entries[index].where
        if (of_call := open_signature(self._sealer, encrypted, CALL)) is not None:
            self._signature = of_call
            return
        signature = open_signature(self._sealer, encrypted)
        if signature is None:
            what = "encrypted reasoning of another upstream, or of another key"
            if not encrypted:
                what = "reasoning without a signature of this API can't be sent back"
            self._diagnostics.loss(where, what)
            return
        self._begun = True
        texts = [part.text for part in item.content or item.summary if getattr(part, "text", "")]
        step: Json = {"type": t.THOUGHT}
        if texts:
            step["summary"] = [{"type": "text", "text": text} for text in texts]
        self._steps.append(step | ({"signature": signature} if signature else {}) | self._own(index))

    def _other(self, item: Any, index: int) -> None:
        raw = getattr(item, "raw", {})
        kind, result = item.type.removeprefix("openai:"), raw.get("result")
        if kind == _IMAGE and isinstance(result, str) and result:
            form = raw.get("output_format")
            media = form if isinstance(form, str) and form else "png"
            image = {"type": "image", "mime_type": f"image/{media}", "data": result}
            self._begun = True
            self._output([object_in(raw, t.STEPS) | image], {}, joins=True)
            return
        steps = steps_of(item) if isinstance(raw.get(t.STEPS), list) else None
        if steps is not None:
            self._begun = True
            for step in steps:
                contents = step.get("content")
                if step.get("type") == t.MODEL and isinstance(contents, list) and contents:
                    self._output(list(contents), {}, joins=True)
                else:
                    self._steps.append(step)
            return
        search = searched(item)
        if search is None:
            self._diagnostics.loss(f"item.{item.type[:64]}", "Interactions has no such step")
            return
        self._diagnostics.loss(self._entries[index].where, "a search, sent as text")
        self._begun = True
        self._output([{"type": "text", "text": search.text()}], {}, joins=False)
