"""Converts input items to contents of roles, and the system instruction."""

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
from openresponses_bridge.dialects.gemini.carried import CarriedFields, CarriedPart
from openresponses_bridge.dialects.gemini.models import ModelFacts
from openresponses_bridge.dialects.gemini.options import GeminiOptions
from openresponses_bridge.dialects.gemini.signatures import Signed, is_own_search, open_signatures
from openresponses_bridge.dialects.gemini.types import PART, SLUG
from openresponses_bridge.dialects.gemini.upstream.media import Part, PartEncoder
from openresponses_bridge.seal import Sealer

_OPENING: Final = "(earlier conversation)"
_SYSTEM: Final = ("system", "developer")
_IMAGE: Final = "image_generation_call"
_MODEL, _USER = "model", "user"
_SIGNATURE: Final = "thoughtSignature"


class _Turns:
    """Contents by the rules of the API: the first is the user's, roles alternate, the last is not the
    model's. Adjacent parts of one role are one content."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self.contents: list[dict[str, Any]] = []

    def add(self, role: str, parts: list[Part]) -> list[Part]:
        """Append to the last content, or to a new one if its role is another. Returns the parts of that
        content."""
        if not self.contents or self.contents[-1]["role"] != role:
            self.contents.append({"role": role, "parts": []})
        last_parts: list[Part] = self.contents[-1]["parts"]
        last_parts += parts
        return last_parts

    def finished(self) -> list[dict[str, Any]]:
        """Return the contents; empty if there are no parts."""
        contents = self.contents
        if contents and contents[0]["role"] != _USER:
            self._diagnostics.repair("contents", "a user's content put before the model's first")
            contents.insert(0, {"role": _USER, "parts": [{"text": _OPENING}]})
        if contents and contents[-1]["role"] != _USER:
            self._diagnostics.repair("contents", CONTINUED)
            contents.append({"role": _USER, "parts": [{"text": CONTINUE}]})
        return contents


class _Said:
    """The text that was added last, while nothing follows it: `size` parts of a content from `start` on."""

    def __init__(self, parts: list[Part], start: int) -> None:
        self.parts = parts
        self.start = start
        self.size = len(parts) - start


class ContentsBuilder(BaseBuilder[CarriedFields]):
    """Builds the contents from the entries of a request. A call's output comes directly after the content of
    the call, wherever it was in the input; all outputs of parallel calls are one content."""

    server = "a Gemini server"

    def __init__(
        self,
        entries: Sequence[Entry],
        identities: ToolIdentityMap,
        sealer: Sealer,
        options: GeminiOptions,
        facts: ModelFacts,
        carried: CarriedFields,
        diagnostics: Diagnostics,
    ) -> None:
        super().__init__(entries, identities, sealer, carried, diagnostics)
        self._options = options
        self._facts = facts
        if self._before is None and carried.parts:
            diagnostics.loss("parts", "the client's own fields are of another conversation, left out")
        self._encoder = PartEncoder(options, diagnostics)
        self._turns = _Turns(diagnostics)
        self._open: list[tuple[CallView, str, int]] = []  # calls, their ids as sent, the indexes of outputs
        self._signatures: dict[str, str] = {}  # call id → signature; "" stands for the next item
        self._said: _Said | None = None
        self.system: list[Part] = []

    def build(self, instructions: str | None) -> list[dict[str, Any]]:
        """Return the contents, after which `system` is complete too. Raises InvalidRequestError."""
        carried = self._carried
        if carried.system is not None and carried.instructions == (instructions or ""):
            parts = carried.system.get("parts") or []
            self.system += [parts] if isinstance(parts, dict) else parts
        elif instructions:
            self.system.append({"text": instructions})
        self._walk()
        if self._options.missing_signature is not None:
            self._sign_calls(self._options.missing_signature)
        return self._turns.finished()

    def _sign_calls(self, signature: str) -> None:
        """Add a placeholder to the first call of a content, if the model requires a signature."""
        for content in self._turns.contents:
            first = next((part for part in content["parts"] if "functionCall" in part), None)
            if first is not None and _SIGNATURE not in first:
                first[_SIGNATURE] = signature
                self._diagnostics.repair("contents", "a call without a thought signature, a placeholder sent")

    def _own(self, part: Part, index: int, number: int | None = None) -> Part:
        """Return the part with the fields of the client's own part that the protocol can't express."""
        if self._before is None:
            return part
        own = self._carried.parts.get(place(index - self._before, number))
        return part if own is None or own.kind not in part else _restored(part, own)

    def _parts(self, content: Any, index: int, field: str) -> list[Part]:
        """Return the parts of a message or an output; empty texts are left out."""
        if isinstance(content, str):
            return [{"text": content}] if content else []
        at = self._entries[index].at(field)
        parts = []
        for number, each in enumerate(content):
            part = self._encoder.part(each, f"{at}[{number}]")
            if part is not None and part.get("text") != "":
                parts.append(self._own(part, index, number))
        return parts

    def _message(self, item: Any, index: int) -> None:
        parts = self._parts(item.content, index, "content")
        if not parts:
            self._diagnostics.ignored("message", "empty, left out")
            return
        if item.role in _SYSTEM:
            self._instruct(parts, index)
            return
        self._begun = True
        if item.role == "assistant":
            if getattr(item, "phase", None):
                self._diagnostics.loss("message.phase", "Gemini knows no phases")
            content = self._turns.add(_MODEL, parts)
            self._said = _Said(content, len(content) - len(parts))
        else:
            self._answer(index)
            self._turns.add(_USER, parts)

    def _instruct(self, parts: list[Part], index: int) -> None:
        """Add a message of the system: at the beginning to the system instruction, later as a reminder in the
        user's."""
        texts = [part for part in parts if "text" in part]
        if len(texts) < len(parts):
            self._diagnostics.loss("message.system", "only its text has a place in the system instruction")
        if not self._begun:
            self.system += texts
            return
        where = self._entries[index].where
        self._diagnostics.repair(where, "a later system message, sent as a reminder of the user's")
        self._answer(index)
        text = "\n\n".join(part["text"] for part in texts)
        self._turns.add(_USER, [{"text": f"<system-reminder>\n{text}\n</system-reminder>"}])

    def _add_call(self, call: CallView, arguments: dict[str, Any], index: int, answer: int) -> None:
        call_id = sent_call_id(call.call_id, None, self._diagnostics, self._entries[index].where)
        part: Part = {"functionCall": {"id": call_id, "name": call.name, "args": arguments}}
        self._put(self._own(part, index), call.call_id)
        self._open.append((call, call_id, answer))

    def _put(self, part: Part, call_id: str = "") -> None:
        """Append an item's part, with its signature."""
        signatures = self._signatures
        signature = (signatures.pop(call_id, "") if call_id else "") or signatures.pop("", "")
        if signature:
            part[_SIGNATURE] = signature
        self._said = None
        self._turns.add(_MODEL, [part])

    def _answer(self, index: int) -> None:
        """Answer all open calls, since the entry at `index` is not the model's."""
        self._said = None
        if not self._open:
            return
        answers: list[Part] = []
        attachments: list[Part] = []
        for call, call_id, answer in self._open:
            if self._is_moved_up(answer, index):
                where = self._entries[answer].where
                self._diagnostics.repair(where, "a tool output was moved up to its call")
            answers.append(self._response(call, call_id, answer, attachments))
        self._turns.add(_USER, answers + attachments)
        self._open = []

    def _response(self, call: CallView, call_id: str, index: int, attachments: list[Part]) -> Part:
        output = self._views[index]
        assert isinstance(output, OutputView)
        parts = self._parts(output.output, index, "output")
        texts = [part["text"] for part in parts if "text" in part]
        media = [part for part in parts if "text" not in part]
        result = {"error" if output.failed else "output": "\n\n".join(texts)}
        response: Part = {"id": call_id, "name": call.name, "response": result}
        whole = self._own({"functionResponse": response}, index)
        if "parts" in whole["functionResponse"]:
            return whole
        if media and self._facts.media_in_outputs:
            response["parts"] = media
        elif media:
            what = "images and files stand behind the outputs of calls"
            self._diagnostics.loss(f"{self._entries[index].where}.output", what)
            attachments += [{"text": f"Attached to the output of tool call {call_id}:"}, *media]
        return self._own({"functionResponse": response}, index)

    def _reasoning(self, item: Any, index: int) -> None:
        encrypted, where = item.encrypted_content, self._entries[index].where
        signed = open_signatures(self._sealer, encrypted) if encrypted else self._unsigned(index)
        text = "\n\n".join(part.text for part in item.content or item.summary if part.text)
        if signed is None:
            if encrypted:
                self._diagnostics.loss(where, "encrypted reasoning of another upstream, or of another key")
            elif text.strip():
                self._diagnostics.loss(where, "reasoning without Gemini's signature can't be sent back")
            return
        self._begun = True
        thoughts = [each for each in signed if each.on == "thought"]
        if text or thoughts:
            self._said = None
            parts = _split({"text": text, "thought": True}, thoughts)
            if parts is None:
                self._diagnostics.repair(where, "signatures of another text, put behind it")
                parts = _behind({"text": text, "thought": True}, thoughts)
            self._turns.add(_MODEL, parts)
        if texts := [each for each in signed if each.on == "text"]:
            self._sign_text(texts, where)
        for each in signed:
            if each.on == "next":
                self._signatures[each.call_id] = each.signature

    def _unsigned(self, index: int) -> list[Signed] | None:
        """Return an empty list of signatures for thoughts that a client of this API sends without one; None
        for others."""
        before = self._before
        return None if before is None or place(index - before) not in self._carried.parts else []

    def _sign_text(self, signed: list[Signed], where: str) -> None:
        """Put signatures on the text before them, by making the parts of its message anew."""
        span, self._said = self._said, None
        if span is None:
            self._turns.add(_MODEL, _behind({"text": ""}, signed))
            return
        end = span.start + span.size
        before = span.parts[span.start : end]
        text = "".join(part.get("text", "") for part in before)
        parts = _split({"text": text}, signed) if all(part.keys() == {"text"} for part in before) else None
        if parts is None:
            self._diagnostics.repair(where, "signatures of another text, put behind it")
            parts = before + _behind({"text": ""}, signed)
        span.parts[span.start : end] = parts

    def _other(self, item: Any, index: int) -> None:
        if (search := searched(item)) is not None:
            if is_own_search(self._sealer, search.sealed):
                return  # the answer after it has the results
            self._diagnostics.loss(self._entries[index].where, "a search, sent as text")
            self._begun = True
            self._said = None
            self._turns.add(_MODEL, [{"text": search.text()}])
            return
        raw = getattr(item, "raw", {})
        part, result, kind = raw.get("part"), raw.get("result"), item.type.removeprefix("openai:")
        if item.type.startswith(SLUG) and isinstance(part, dict) and part:
            self._begun = True
            if raw.get("role") == _USER:
                self._answer(index)
                self._turns.add(_USER, [part])
            else:
                self._put(dict(part))
        elif kind == _IMAGE and isinstance(result, str) and result:
            self._begun = True
            media = raw.get("output_format")
            kind = media if isinstance(media, str) and media else "png"
            own = object_in(raw, PART)
            blob = {**object_in(own, "inlineData"), "mimeType": f"image/{kind}", "data": result}
            self._put({**own, "inlineData": blob})
        else:
            self._diagnostics.loss(f"item.{item.type[:64]}", "Gemini has no such part")


def _restored(part: Part, own: CarriedPart) -> Part:
    """Return a part with the client's own fields. For media, these are only used with the client's own
    data."""
    ours = part[own.kind]
    if isinstance(ours, dict):
        base = {"data": ours["data"]} if own.kind == "inlineData" else ours
        ours = {**base, **own.within}
    return {**part, own.kind: ours, **own.around}


def _split(part: Part, signed: Sequence[Signed]) -> list[Part] | None:
    """Return a part with text as several parts, one for each signature; None if it is not the text that was
    signed."""
    text, position = part["text"], 0
    parts: list[Part] = []
    for each in signed:
        end = each.start + each.length
        if each.start < position or each.length < 0 or end > len(text):
            return None
        if each.start > position:
            parts.append({**part, "text": text[position : each.start]})
        parts.append({**part, "text": text[each.start : end], _SIGNATURE: each.signature})
        position = end
    if position < len(text):
        parts.append({**part, "text": text[position:]})
    return parts


def _behind(part: Part, signed: Sequence[Signed]) -> list[Part]:
    """Return a part, and a part without text for each signature after it."""
    first = [part] if part["text"] else []
    return first + [{**part, "text": "", _SIGNATURE: each.signature} for each in signed]
