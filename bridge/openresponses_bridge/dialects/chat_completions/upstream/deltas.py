"""Converts the deltas of one choice into calls of the machine.

Within a chunk the order is that of generation: reasoning, text, citations, refusal, calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from io import StringIO
from typing import Any, Final

from msgspec import structs

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.base import FrameString, Piece, ThinkTags
from openresponses_bridge.dialects.chat_completions.carried import (
    AUDIO,
    AUDIO_DELTA,
    Carried,
    DetailsField,
    KeptAudio,
    KeptDetails,
    seal_carried,
)
from openresponses_bridge.dialects.chat_completions.options import ChatOptions
from openresponses_bridge.dialects.chat_completions.types import (
    ChatAnnotation,
    ChatDelta,
    ChatFunction,
    ChatLogProb,
    ChatLogProbs,
    ChatToolCall,
)
from openresponses_bridge.dialects.chat_completions.upstream.decoding import (
    StrictDelta,
    arguments_of,
    content_of,
    logprobs_of,
)
from openresponses_bridge.dialects.chat_completions.upstream.search import FoundSources
from openresponses_bridge.dialects.chat_completions.upstream.text_calls import TextCall, TextCalls
from openresponses_bridge.dialects.chat_completions.upstream.tool_calls import (
    LEGACY_INDEX,
    Fragment,
    ToolCallResolver,
)
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.content import LogProb, UrlCitation
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.seal import Sealer

# Google's; the text is between think tags
_THOUGHT: Final = {"google": {"thought": True}}
_THOUGHTS: Final = ("thinking", "text", "summary")  # the fields with a part's reasoning


class TextPrefix:
    """A text whose pieces may repeat everything before them."""

    __slots__ = ("_text",)

    def __init__(self) -> None:
        self._text = StringIO()

    def add(self, piece: str) -> str:
        """Return the new text of the next piece."""
        size = self._text.tell()
        if size and len(piece) >= size and piece.startswith(self._text.getvalue()):
            piece = piece[size:]
        self._text.write(piece)
        return piece


class DeltaReader:
    """Reads one choice. Text is passed to the machine at once if no think tag can come and no log
    probabilities wait. Raises what the machine raises."""

    __slots__ = (
        "_buffers",
        "_carried",
        "_details",
        "_diagnostics",
        "_extra",
        "_first_text",
        "_legacy",
        "_machine",
        "_mirrored",
        "_probabilities",
        "_repeated",
        "_resolved",
        "_sealer",
        "_text_calls",
        "_think",
        "audio",
        "has_output",
        "has_text",
        "refused",
        "repeated",
        "sources",
    )

    def __init__(
        self, machine: ResponseStream, options: ChatOptions, sealer: Sealer, identities: ToolIdentityMap
    ) -> None:
        self._machine = machine
        self.has_output = False
        """True if the answer has some content so far, whether or not the machine has it already."""
        self.has_text = False
        self._sealer = sealer
        self._details: KeptDetails | None = None
        self._extra: dict[str, Any] | None = None  # of the message
        self._carried: set[int] = set()  # slots of the calls whose extra content was passed on
        self._diagnostics = machine.diagnostics
        self.sources = None if options.web_search == "none" else FoundSources()
        """What the chunks say about searches; None if the server is not asked for any."""
        self._resolved: ToolCallResolver | None = None
        self._legacy = ""  # the name in the `function_call`
        self._mirrored: list[int | None] = []  # the indexes of tool calls that are the same call
        self._think: ThinkTags | None = None
        if options.think != "off":
            opened = options.think == "opened"
            self._think = ThinkTags(options.think_tags, opened=opened, later=options.later_think_tags)
        self._text_calls = (
            TextCalls(options.text_tool_calls, identities) if options.text_tool_calls and identities else None
        )
        self._probabilities: list[LogProb] = []
        self.refused: list[ChatLogProb] = []
        """The log probabilities of a refusal, which only clients of this API use."""
        self.audio: KeptAudio | None = None
        """The sound so far."""
        # the text and the reasoning so far, if they may be repeated
        self._repeated = (TextPrefix(), TextPrefix()) if options.repeated_text else None
        self._first_text = ""
        self.repeated: tuple[str, str] | None = None
        """The first two pieces of the text, if the second begins with the first."""
        self._buffers = any((self._think, self._text_calls, self._repeated))

    @property
    def has_calls(self) -> bool:
        """True if the answer has a call."""
        return self._resolved is not None

    @property
    def _resolver(self) -> ToolCallResolver:
        """The resolver, made when the first call comes."""
        if self._resolved is None:
            self._resolved = ToolCallResolver(self._diagnostics)
        return self._resolved

    def continued(self, delta: StrictDelta) -> list[Event] | None:
        """Read a delta that has exactly one of text, reasoning and a call's fragment. Returns None, and does
        nothing, for any other."""
        content, calls, raw = delta.content, delta.tool_calls, delta.reasoning_content or delta.reasoning
        if content:
            if calls or raw:
                return None
            if not self.has_text:
                self.has_text = True
                if not self.has_output:
                    self.has_output, self._first_text = True, content
            return self._buffered_text(content) if self._buffers else self._machine.text(content)
        if raw:
            if calls or self._repeated is not None:
                return None
            self.has_output = True
            return self._machine.reasoning(raw)
        if not calls or not (self._think is None or self._think.is_flushed):
            return None
        if calls[0].extra_content or self._details is not None or self._extra is not None:
            return None
        if self._text_calls is not None and not self._text_calls.is_flushed:
            return None
        fragment, function = calls[0], calls[0].function
        if function is not None:
            resolver = self._resolved or self._resolver
            call = resolver.find_continued(fragment, function, function.arguments)
            if call is not None:
                return self._machine.tool_call(call.slot, None, None, call.last)
        return self.call(fragment)

    def continue_call(
        self, fragment: ChatToolCall, function: ChatFunction, arguments: object
    ) -> list[Event] | None:
        """Append the arguments to a known call; None, without a change, if the fragment needs a closer
        look."""
        call = (self._resolved or self._resolver).find_continued(fragment, function, arguments)
        return None if call is None else self._machine.tool_call(call.slot, None, None, call.last)

    def string_of(self, delta: StrictDelta) -> FrameString | None:
        """Return the string of this delta and a function that applies the next one, for chunks that differ
        only in it. None while text is buffered."""
        if delta.tool_calls:
            fragment, function = delta.tool_calls[0], delta.tool_calls[0].function
            if function is None or not isinstance(function.arguments, str) or not function.arguments:
                return None
            if fragment.extra_content:
                return None
            return FrameString(
                function.arguments, arguments_of, partial(self.continue_call, fragment, function)
            )
        if not delta.content:
            return None
        if self._first_text:
            first, self._first_text = self._first_text, ""
            if len(delta.content) > len(first) and delta.content.startswith(first):
                self.repeated = (first, delta.content)
        if self._buffers:
            return None
        return FrameString(delta.content, content_of, self._machine.text)

    def delta(self, delta: ChatDelta, logprobs: ChatLogProbs | None, events: list[Event]) -> None:
        """Feed a chunk's delta. The events are appended to `events`."""
        self._content(delta, logprobs, events)
        for call in delta.tool_calls or ():
            events += self.flush()
            events += self.call(call)

    def message(self, message: ChatDelta, logprobs: ChatLogProbs | None, events: list[Event]) -> None:
        """Feed a whole message."""
        self._content(message, logprobs, events)
        for call in message.tool_calls or ():
            self.has_output = True
            events += self.flush()
            events += self._call(self._resolver.whole(call), call)

    def call(self, call: ChatToolCall) -> list[Event]:
        """Read one fragment of a tool call. The caller must have flushed the text."""
        if self._legacy and call.index != LEGACY_INDEX and self._mirrors(call):
            return []
        self.has_output = True
        fragment = (self._resolved or self._resolver).resolve(call)
        if call.extra_content:
            return self._call(fragment, call)
        return [] if fragment is None else self._machine.tool_call(*fragment)

    def _call(self, fragment: Fragment | None, call: ChatToolCall) -> list[Event]:
        """Handle a fragment, or a whole call, after the data that have to come back to the upstream with
        it."""
        events: list[Event] = []
        slot = self._resolver.slot_at(call.index) if fragment is None else fragment.slot
        if call.extra_content and slot is not None and slot not in self._carried:
            self._carried.add(slot)
            carried = Carried(extra=call.extra_content, call_id=self._resolver.id_of(slot))
            events = self._carry(carried)
        return events if fragment is None else events + self._machine.tool_call(*fragment)

    def flush(self) -> list[Event]:
        """Send the buffered text, since something other than text follows."""
        think = self._think
        events = [] if think is None or think.is_flushed else self._split(think.close())
        if self._text_calls is not None and not self._text_calls.is_flushed:
            events += self._texts(self._text_calls.close())
        if self._details is not None or self._extra is not None:
            events += self._carry_message()
        return events

    def _carry_message(self) -> list[Event]:
        """Send the data that have to come back to the upstream with the message."""
        events: list[Event] = []
        details, self._details = self._details, None
        extra, self._extra = self._extra, None
        if details is not None and details.opaque:
            events += self._carry(Carried(details=details.whole(), field=details.field))
        if extra is not None:
            events += self._carry(Carried(extra=extra))
        return events

    def _carry(self, carried: Carried) -> list[Event]:
        try:
            sealed = seal_carried(self._sealer, carried)
        except RecursionError:
            self._diagnostics.loss("extra_content", "nested too deeply")
            return []
        return self._machine.reasoning_encrypted(sealed)

    def close(self) -> list[Event]:
        """Handle the end of the deltas."""
        if not (self._buffers or self._extra):
            return []
        events = self.flush()
        if self._probabilities:
            self._drop_probabilities()
        return events

    def _content(self, delta: ChatDelta, logprobs: ChatLogProbs | None, events: list[Event]) -> None:
        if logprobs is not None:
            self._keep_probabilities(delta, logprobs)
        # servers that know several names send the same text under each
        raw = delta.reasoning_content or delta.reasoning or delta.reasoning_text
        if raw or delta.reasoning_details or delta.thinking_blocks or delta.reasoning_opaque:
            self._reasoning(delta, raw, events)
        audio = delta.audio if delta.audio and any(delta.audio.values()) else None
        output = delta.content or delta.refusal or delta.images or audio
        self.has_output = bool(self.has_output or events or output)
        self.has_text = self.has_text or bool(delta.content)
        if delta.extra_content and delta.extra_content != _THOUGHT:
            self._extra = delta.extra_content
        if isinstance(delta.content, str):
            events += self._text(delta.content)
        else:
            for part in delta.content or ():
                self._part(part, events)
        for annotation in delta.annotations or ():  # their indexes count in the text
            self._annotate(annotation, events)
        if delta.refusal:
            events += self.flush()
            events += self._machine.refusal(delta.refusal)
        if delta.executed_tools:
            self._executed(delta.executed_tools)
        if audio:
            events += self.flush()
            events += self._receive_audio(audio)
        for image in delta.images or ():
            self._image(image, events)
        if delta.function_call is not None:
            self._legacy_call(delta.function_call, bool(delta.tool_calls), events)

    def _legacy_call(self, call: ChatFunction, has_others: bool, events: list[Event]) -> None:
        """Read the only call of servers from before tools. Others send it empty, or with the first tool call
        repeated in it."""
        if has_others or (self.has_calls and not self._legacy):
            self._diagnostics.ignored("function_call", "beside tool calls")
        elif any(structs.astuple(call)):
            named = None if call.name == self._legacy else call.name  # it may be repeated with its arguments
            self._legacy = self._legacy or call.name or ""
            events += self.flush()
            again = structs.replace(call, name=named)
            events += self.call(ChatToolCall(LEGACY_INDEX, function=again))

    def _mirrors(self, call: ChatToolCall) -> bool:
        """Return whether a tool call repeats the `function_call`, which servers send beside it."""
        name = (call.function.name if call.function is not None else None) or ""
        if call.index in self._mirrored:
            return name in ("", self._legacy)
        if name != self._legacy or self._mirrored:
            return False
        self._mirrored.append(call.index)
        self._diagnostics.ignored("tool_calls", "the same function_call again")
        return True

    def _text(self, text: str) -> list[Event]:
        return self._buffered_text(text) if self._buffers else self._machine.text(text)

    def _buffered_text(self, text: str) -> list[Event]:
        """Return the events of a text while think tags may come, while log probabilities wait for it, or if
        it may be repeated."""
        if self._repeated is not None:
            text = self._repeated[0].add(text)
        return self._split([(False, text)] if self._think is None else self._think.feed(text))

    def _split(self, pieces: list[Piece]) -> list[Event]:
        events: list[Event] = []
        for thinking, text in pieces:
            if thinking:
                if self._probabilities:
                    self._drop_probabilities()
                events += self._machine.reasoning(text)
            elif text:
                if self._details is not None:
                    events += self._carry_message()
                if self._text_calls is not None:
                    events += self._texts(self._text_calls.feed(text))
                    continue
                probabilities, self._probabilities = self._probabilities, []
                events += self._machine.text(text, probabilities)
        if self._think is not None and self._think.decided:
            self._think = None
        waits = self._details is not None or bool(self._probabilities)
        self._buffers = waits or any((self._think, self._text_calls, self._repeated))
        return events

    def _texts(self, pieces: Sequence[str | TextCall]) -> list[Event]:
        """Return the events of texts, and of calls that were written as text."""
        events: list[Event] = []
        for piece in pieces:
            if isinstance(piece, str):
                probabilities, self._probabilities = self._probabilities, []
                events += self._machine.text(piece, probabilities)
            else:
                self._diagnostics.repair("content", "a call that was written as text")
                call = ChatToolCall(function=ChatFunction(piece.name, piece.arguments))
                events += self._call(self._resolver.whole(call), call)
        return events

    def _part(self, part: Any, events: list[Event]) -> None:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind == "str":
            events += self._text(part)
        elif kind in ("text", "output_text") or (kind is None and isinstance(part.get("text"), str)):
            events += self._text(_text_of(part.get("text")))
        elif kind in ("thinking", "reasoning"):
            thought = next((part[name] for name in _THOUGHTS if part.get(name)), None)
            events += self._machine.reasoning(_text_of(thought))
        elif kind == "refusal":
            events += self.flush()
            events += self._machine.refusal(_text_of(part.get("refusal")))
        else:
            self._diagnostics.loss("content", f"a part of type {kind}")

    def _receive_audio(self, audio: dict[str, Any]) -> list[Event]:
        """Handle a piece of the sound, or all of it."""
        self.audio = self.audio or KeptAudio()
        self.audio.add(audio)
        return self._machine.extension_event(AUDIO_DELTA, {"audio": audio})

    def items_behind(self) -> Iterator[dict[str, Any] | Item]:
        """Yield the items that come after everything else in a whole answer."""
        if self.audio is not None:
            yield {"type": AUDIO, "id": "", "status": "completed", "audio": self.audio.whole()}
        if self.sources is not None:
            yield from self.sources.items()

    def _image(self, image: Any, events: list[Event]) -> None:
        item = _image_call(image)
        if item is None:
            self._diagnostics.loss("delta.images", "an image that is not within the answer")
            return
        events += self.flush()
        events += self._machine.item(item)

    def _annotate(self, annotation: ChatAnnotation, events: list[Event]) -> None:
        cited = annotation.url_citation or annotation
        if annotation.type != "url_citation" or not cited.url:
            self._diagnostics.loss("annotations", f"a citation of type {annotation.type}")
            return
        events += self.flush()
        citation = UrlCitation(cited.url, cited.start_index or 0, cited.end_index or 0, cited.title or "")
        if self.sources is not None:
            self.sources.annotate(citation)
        events += self._machine.annotation(citation)

    def _executed(self, tools: list[Any]) -> None:
        if self.sources is None:
            self._diagnostics.loss("executed_tools", "what the server ran by itself")
        else:
            self.sources.run(tools)

    def list_sources(self, sources: list[Any], where: str, url: str = "url") -> None:
        """Read a list of sources beside the choices. `url` is the name of the field with their addresses."""
        if self.sources is None:
            self._diagnostics.loss(where, "a list of sources without their places in the text")
        else:
            self.sources.list(sources, url)

    # Log probabilities are buffered until their text comes.
    def _keep_probabilities(self, delta: ChatDelta, logprobs: ChatLogProbs) -> None:
        self.refused += logprobs.refusal or ()
        self._probabilities += logprobs_of(logprobs.content or [], self._diagnostics)
        if self._probabilities:
            self._buffers = True
        if (
            self._probabilities
            and not delta.content
            and (delta.tool_calls or delta.reasoning_content or delta.reasoning)
        ):
            self._drop_probabilities()  # they are of arguments or of reasoning

    def _drop_probabilities(self) -> None:
        self._probabilities = []
        self._diagnostics.loss("logprobs", "not of visible text")

    def _reasoning(self, delta: ChatDelta, raw: str | None, events: list[Event]) -> None:
        is_readable = False
        field: DetailsField = "reasoning_details" if delta.reasoning_details else "thinking_blocks"
        for detail in delta.reasoning_details or delta.thinking_blocks or ():
            is_readable = self._detail(detail, events) or is_readable
            self._details = self._details or KeptDetails(field)
            if self._details.field == field:
                self._details.add(detail)
            self._buffers = self.has_output = True
        if raw and self._repeated is not None:
            raw = self._repeated[1].add(raw)
        if raw and not is_readable:
            events += self._machine.reasoning(raw)
        if delta.reasoning_opaque:
            events += self._machine.reasoning_encrypted(delta.reasoning_opaque)

    def _detail(self, detail: dict[str, Any], events: list[Event]) -> bool:
        """Read a detail. Returns True if it had readable text, which the plain field repeats. What is opaque
        is kept for the upstream."""
        text, summary, index = detail.get("text"), detail.get("summary"), detail.get("index")
        text = text or detail.get("thinking")
        if text and isinstance(text, str):
            events += self._machine.reasoning(text)
        elif summary and isinstance(summary, str):
            events += self._machine.reasoning_summary(summary, index if type(index) is int else 0)
        else:
            return False
        return True


def _text_of(value: Any) -> str:
    """Return a text, or the text in a list of parts."""
    if isinstance(value, str):
        return value
    texts = (part.get("text") for part in value if isinstance(part, dict)) if isinstance(value, list) else ()
    return "".join(text for text in texts if isinstance(text, str))


def _image_call(image: Any) -> dict[str, Any] | None:
    """Return the item of an image within the answer itself (a data URL, RFC 2397); None for an image
    elsewhere."""
    image_url = image.get("image_url") if isinstance(image, dict) else None
    url = image_url.get("url") if isinstance(image_url, dict) else image_url
    if not isinstance(url, str) or not url.startswith("data:image/"):
        return None
    kind, separator, result = url.removeprefix("data:image/").partition(";base64,")
    if not separator or not result:
        return None
    return {
        "type": "image_generation_call",
        "id": "",
        "status": "completed",
        "result": result,
        "output_format": kind,
    }
