"""Converts the parts of an incoming content to calls of the machine.

Adjacent texts are one message, adjacent thoughts one reasoning item. A signature of a text comes after it,
since the text was sent before; one of a call comes before the call.
"""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.calls.argument_names import name_of_arguments
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import extension, other_fields
from openresponses_bridge.dialects.gemini.signatures import Signed, seal_signatures
from openresponses_bridge.dialects.gemini.types import DATA, PART, PARTS, SLUG
from openresponses_bridge.dialects.gemini.upstream.arguments import PartialArguments
from openresponses_bridge.dialects.gemini.upstream.citations import Sources
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.codec import encode, with_whole_characters
from openresponses_bridge.protocol.content import LogProb
from openresponses_bridge.protocol.events import Event, OutputItemAdded
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.seal import Sealer

_SIGNATURE: Final = "thoughtSignature"
_IMAGE: Final = "image/"
_OF_A_CALL: Final = frozenset({"id", "name", "args", "partialArgs", "willContinue"})
_OF_A_PART: Final = frozenset({*DATA, "thought", _SIGNATURE})


class _PartialCall:
    """A call whose arguments come in pieces: `fields` are those of its first part, `own` those beside its
    object."""

    def __init__(self, fields: dict[str, Any], signature: str, own: dict[str, Any]) -> None:
        self.fields = fields
        self.own = own
        self.signature = signature
        self.arguments = PartialArguments()


class PartReader:
    """Reads the parts of one candidate, in order."""

    __slots__ = (
        "_about",
        "_calls",
        "_has_items",
        "_length",
        "_machine",
        "_partial",
        "_sealer",
        "_signed",
        "_texts",
        "_thinking",
        "carried",
        "diagnostics",
    )

    def __init__(self, machine: ResponseStream, sealer: Sealer) -> None:
        self._machine = machine
        self._sealer = sealer
        self.diagnostics: Diagnostics = machine.diagnostics
        self._calls = 0
        self._has_items = False
        self._partial: _PartialCall | None = None
        self._thinking = False  # True while an item of thoughts is open, not a message
        self._length = 0  # of the open item's text, in code points
        self._texts: list[str] = []  # the pieces of the open message
        self._signed: list[Signed] = []  # signatures that are not sealed yet
        self._about = Sources()
        self.carried: dict[str, Any] = {}
        """Index of an item → the further fields of its part."""

    @property
    def has_output(self) -> bool:
        """True if the answer has some content so far, whether or not the machine has it already."""
        return self._has_items or self._length > 0 or self._partial is not None

    def text(self, text: str) -> list[Event]:
        """Feed the next piece of visible text."""
        events = self._end_thoughts() if self._thinking else []
        self._length += len(text)
        self._texts.append(text)
        return events + self._machine.text(text) if events else self._machine.text(text)

    def thought(self, text: str) -> list[Event]:
        """Feed the next piece of a summary of the model's thoughts."""
        events = self._begin_thoughts() if not self._thinking else []
        self._length += len(text)
        return (
            events + self._machine.reasoning_summary(text)
            if events
            else self._machine.reasoning_summary(text)
        )

    def part(self, part: dict[str, Any], logprobs: list[LogProb], *, whole: bool) -> list[Event]:
        """Feed any part, with names in camelCase. `whole` is False if the answer ended with it for a reason
        of its own, so that a call in it may be cut off."""
        own = other_fields(part, _OF_A_PART)
        if "text" not in part:  # the halves of a surrogate pair may be in two texts
            part = with_whole_characters(part)
        signature = part.get(_SIGNATURE)
        if signature is not None and not isinstance(signature, str):
            self.diagnostics.loss(_SIGNATURE, f"can't be read: {type(signature).__name__}")
            signature = ""
        kind = next((name for name in DATA if part.get(name) is not None), None)
        if kind == "functionCall" and isinstance(part[kind], dict):
            return self._call(part[kind], signature or "", whole, own)
        if part.get("text") in (None, "") and kind in (None, "text") and not (own or signature):
            return []  # it is empty, so that a call may continue after it
        events = self.end_call(whole=whole)
        if own and kind in (None, "text") and not part.get("text"):
            return events + self._whole(kind or next(iter(own)), part)
        if own and kind == "text" and isinstance(part["text"], str):
            return events + self._own_words(part, signature, logprobs, own)
        if kind is None or (kind == "text" and isinstance(part["text"], str)):
            return events + self._words(
                part.get("text") or "", part.get("thought") is True, signature, logprobs
            )
        if not isinstance(part[kind], dict):
            self.diagnostics.loss(f"part.{kind}", f"can't be read: {type(part[kind]).__name__}")
            return events
        return events + self._data(kind, part, signature or "", own)

    def _own_words(
        self, part: dict[str, Any], signature: str | None, logprobs: list[LogProb], own: dict[str, Any]
    ) -> list[Event]:
        """Return the events of a text with fields of its own, in an item of its own."""
        events = self._end_item()
        text_events = self._words(part["text"], part.get("thought") is True, signature, logprobs)
        return events + text_events + self._keep(text_events, own) + self._end_item()

    def _keep(self, events: list[Event], own: dict[str, Any]) -> list[Event]:
        """Keep the fields of the part for which these events begin an item."""
        begun = next((each for each in reversed(events) if isinstance(each, OutputItemAdded)), None)
        if begun is None or not own:
            return []
        where = str(begun.output_index)
        self.carried[where] = own
        return self._machine.extension_event(PART, {PARTS: {where: own}})

    def _end_item(self) -> list[Event]:
        """End the open item, since the next part begins another one."""
        events = self._seal(always=self._thinking) + self._machine.block_done()
        self._thinking, self._length, self._texts = False, 0, []
        return events

    def _words(self, text: str, thought: bool, signature: str | None, logprobs: list[LogProb]) -> list[Event]:
        events: list[Event] = []
        if text or signature:
            if thought != self._thinking and (text or thought):
                events = self._begin_thoughts() if thought else self._end_thoughts()
            start = self._length
            if text and thought:
                events += self.thought(text)
            elif text:
                self._length += len(text)
                self._texts.append(text)
                events += self._machine.text(text, logprobs or None)
            if signature:
                self._signed.append(Signed(signature, "thought" if thought else "text", start, len(text)))
        return events

    def _begin_thoughts(self) -> list[Event]:
        events = self._seal()
        self._has_items = True
        self._thinking, self._length, self._texts = True, 0, []
        return events

    def _end_thoughts(self) -> list[Event]:
        """Seal the thoughts by themselves, since the part after them has no signature."""
        events = self._seal(always=True)
        self._thinking, self._length = False, 0
        return events

    def _seal(self, *, always: bool = False) -> list[Event]:
        """Return the sources of the open message, and the signatures so far, in the open item of thoughts or
        in one after the message."""
        events = [] if self._thinking else self._add_citations()
        if not self._signed and not always:
            return events
        signed, self._signed = self._signed, []
        events += self._machine.reasoning_encrypted(seal_signatures(self._sealer, signed))
        return events + self._machine.block_done()

    def _before_item(self, signature: str, call_id: str = "") -> list[Event]:
        """Return the events before an item: the signatures so far, and its own signature."""
        if signature:
            self._signed.append(Signed(signature, "next", call_id=call_id))
        events = self._seal(always=self._thinking)
        self._thinking, self._length, self._texts = False, 0, []
        self._has_items = True
        return events

    def _call(self, call: dict[str, Any], signature: str, whole: bool, own: dict[str, Any]) -> list[Event]:
        goes_on = call.get("willContinue") is True
        if self._partial is not None and not call.get("name"):
            partial = self._partial
            partial.signature = partial.signature or signature
            if "partialArgs" in call:
                partial.arguments.add(call["partialArgs"])
            return [] if goes_on else self.end_call(whole=whole)
        events = self.end_call(whole=True)
        if not call:
            self.diagnostics.ignored("functionCall", "empty, and no call is open")
            return events
        self._partial = _PartialCall(call, signature, own)
        if "partialArgs" in call:
            self._partial.arguments.add(call["partialArgs"])
        return events if goes_on else events + self.end_call(whole=whole)

    def end_call(self, *, whole: bool) -> list[Event]:
        """End the call whose arguments came in pieces."""
        partial, self._partial = self._partial, None
        if partial is None:
            return []
        fields = partial.fields
        args = "args" if "partialArgs" in fields else name_of_arguments(fields, "args", self.diagnostics)
        rest = {field: value for field, value in fields.items() if field not in {*_OF_A_CALL, args}}
        own = partial.own | ({"functionCall": rest} if rest else {})
        call_id, name = self._word(fields, "id"), self._word(fields, "name")
        arguments = self._arguments(fields.get(args), partial.arguments)
        events = self._before_item(partial.signature, call_id)
        index, self._calls = self._calls, self._calls + 1
        begun = self._machine.tool_call(index, call_id or None, name or None, arguments)
        cut = not (name and whole) or partial.arguments.malformed
        return events + begun + self._keep(begun, own) + self._machine.tool_call_done(index, cut=cut)

    def _word(self, fields: dict[str, Any], field: str) -> str:
        value = fields.get(field)
        if value is not None and not isinstance(value, str):
            self.diagnostics.loss(f"functionCall.{field}", f"can't be read: {type(value).__name__}")
            return ""
        return value or ""

    def _arguments(self, whole: Any, pieces: PartialArguments) -> str:
        if isinstance(whole, str):
            self.diagnostics.repair("functionCall.args", "a string, taken as JSON")
            return whole
        built = pieces.whole()
        if pieces.malformed:
            self.diagnostics.loss("functionCall.partialArgs", "a piece has no place in the arguments")
        if whole is None or (isinstance(whole, dict) and built):
            whole = {**(whole or {}), **built}
        return encode(whole).decode()

    def _data(self, kind: str, part: dict[str, Any], signature: str, own: dict[str, Any]) -> list[Event]:
        """Return an item with an unchanged part that only Gemini has. Images are items of their own."""
        data = part[kind]
        media, result = data.get("mimeType"), data.get("data")
        if (
            kind == "inlineData"
            and isinstance(media, str)
            and media.startswith(_IMAGE)
            and isinstance(result, str)
        ):
            fields: dict[str, Any] = {
                "type": "image_generation_call",
                "id": "",
                "status": "completed",
                "result": result,
                "output_format": media.removeprefix(_IMAGE),
            }
            rest = {name: value for name, value in data.items() if name not in ("mimeType", "data")}
            own = own | ({kind: rest} if rest else {})
            fields |= {PART: own} if own else {}
            return self._before_item(signature) + self._machine.item(UnknownItem(fields))
        return self._whole(kind, part)

    def _whole(self, kind: str, part: dict[str, Any]) -> list[Event]:
        whole = {"type": extension(SLUG, kind), "id": "", "status": "completed", "part": part}
        return self._before_item("") + self._machine.item(UnknownItem(whole))

    def close(self, *, whole: bool) -> list[Event]:
        """Handle the end of the candidate's parts."""
        events = self.end_call(whole=whole) + self._seal(always=self._thinking)
        return events + self._add_citations()

    def annotate(self, candidate: dict[str, Any]) -> None:
        """Keep the sources that a chunk names for a message, for its end: servers send them with several
        chunks, and they are for the whole text."""
        self._about.add(candidate)

    def _add_citations(self) -> list[Event]:
        events: list[Event] = []
        if not self._about:
            return events
        about, self._about = self._about, Sources()
        for citation in about.citations("".join(self._texts), self.diagnostics):
            events += self._machine.annotation(citation)
        return events
