"""`process_stream`: reports the parts of a stream of events to a `Progress`."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from openresponses_bridge.decoder import (
    LanguageModelTextPart,
    LanguageModelToolCallPart,
    Part,
    PartDecoder,
    StreamResult,
    process_stream,
)
from openresponses_bridge.decoder.part_decoder import NO_RESPONSE
from openresponses_bridge.errors import HttpError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse
from tests.support.machines import Run


class Shown:
    """Takes parts; sets `cancel` when it has taken so many."""

    def __init__(self, cancel_after: int = 10**9) -> None:
        self.parts: list[Part] = []
        self.cancel = asyncio.Event()
        self._cancel_after = cancel_after

    def report(self, part: Part, /) -> None:
        self.parts.append(part)
        if len(self.parts) >= self._cancel_after:
            self.cancel.set()

    @property
    def text(self) -> str:
        return "".join(part.value for part in self.parts if isinstance(part, LanguageModelTextPart))


class SlowlyShown(Shown):
    async def report(self, part: Part, /) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().report(part)


def text_of(*pieces: str) -> list[Event]:
    run = Run()
    for piece in pieces:
        run("text", piece)
    run("usage", {"input_tokens": 3, "output_tokens": 2})
    run("finish")
    return run.events


def processed(
    events: Iterable[Any], shown: Shown, error: Exception | None = None, **options: Any
) -> tuple[StreamResult, list[str]]:
    """What comes of these events and then this error; and whether the source was closed."""
    steps: list[str] = []

    async def source() -> AsyncIterator[Any]:
        try:
            for event in events:
                yield event
            if error is not None:
                raise error
        finally:
            steps.append("closed")

    decoder = PartDecoder(**options) if options else None
    return asyncio.run(process_stream(source(), shown, shown.cancel, decoder=decoder)), steps


@pytest.mark.parametrize("kind", [Shown, SlowlyShown])
def test_parts_are_reported_in_order_and_the_rest_is_returned(kind: type[Shown]) -> None:
    shown = kind()
    result, steps = processed(text_of("a", "b"), shown)
    assert [part.value for part in shown.parts if isinstance(part, LanguageModelTextPart)] == ["a", "b"]
    assert result.usage is not None
    assert (result.finish_reason, result.usage.total_tokens, steps) == ("stop", 5, ["closed"])
    assert result.response_id == result.stateful_marker


def test_any_asynchronous_iterable_will_do() -> None:
    class Events:
        def __init__(self) -> None:
            self._left = iter(text_of("a"))

        def __aiter__(self) -> "Events":
            return self

        async def __anext__(self) -> Event:
            for event in self._left:
                return event
            raise StopAsyncIteration

    shown = Shown()
    assert asyncio.run(process_stream(Events(), shown)).finish_reason == "stop"
    assert shown.text == "a"


def test_events_may_be_json() -> None:
    shown = Shown()
    processed([{"type": "response.output_text.delta", "delta": "a"}, {"type": "unheard.of"}], shown)
    assert shown.text.startswith("a\n\n**Error:**")


@pytest.mark.parametrize(
    "script",
    [[], [("reasoning", "Hm.")], [("text", "")]],
    ids=["nothing", "reasoning alone", "empty text"],
)
def test_a_response_without_text_or_call_says_so(script: list[Any]) -> None:
    run = Run()
    for call in script:
        run(*call)
    run("finish")
    shown = Shown()
    result, _ = processed(run.events, shown)
    assert shown.text == f"**Error:** {NO_RESPONSE}"
    assert result.finish_reason == "stop"
    silent = Shown()
    processed(run.events, silent, thinking="part")
    assert silent.text == ""


def test_a_call_or_an_image_is_a_response() -> None:
    called = Run()
    called("tool_call", 0, "call_1", "find", "{}")
    called("finish")
    image = Run("openai")
    drawn = {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "iVBORw0KGgo="}
    image("item", drawn)
    image("finish")
    for run in (called, image):
        shown = Shown()
        processed(run.events, shown)
        assert shown.text == ""
    assert any(isinstance(part, LanguageModelToolCallPart) for part in called_parts(called))


def called_parts(run: Any) -> list[Part]:
    shown = Shown()
    processed(run.events, shown)
    return shown.parts


@pytest.mark.parametrize("when", [1, 2])
def test_after_cancelling_nothing_is_reported(when: int) -> None:
    shown = Shown(cancel_after=when)
    result, steps = processed(text_of("a", "b", "c", "d"), shown)
    assert [part.value for part in shown.parts if isinstance(part, LanguageModelTextPart)] == ["a", "b"][
        :when
    ]
    assert (result.finish_reason, result.error, steps) == ("cancelled", None, ["closed"])


def test_a_stream_that_is_cut_is_an_error_and_not_silence() -> None:
    shown = Shown()
    result, _ = processed(text_of("a")[:4], shown)
    assert (result.finish_reason, shown.text.count("**Error:**")) == ("error", 1)


def test_an_error_before_any_part_is_raised_and_after_it_ends_the_parts() -> None:
    error = HttpError(429, "Later.")
    begun = text_of("a")
    with pytest.raises(HttpError, match="Later"):
        processed(begun[:2], Shown(), error)
    shown = Shown()
    result, _ = processed([event for event in begun if event.type.endswith("delta")], shown, error)
    assert shown.text == "a\n\n**Error:** Later."
    assert result.error is not None
    assert (result.finish_reason, result.error.code) == ("error", "rate_limit_exceeded")
    kept = Shown()
    processed([event for event in begun if event.type.endswith("delta")], kept, error, errors="notes")
    assert kept.text == "a"


def test_a_cut_call_is_not_reported_when_the_stream_breaks() -> None:
    run = Run()
    run("text", "Let me see.")
    run("tool_call", 0, "call_1", "find", '{"q":')
    shown = Shown()
    processed(run.events, shown, HttpError(502, "Gone."))
    assert not any(isinstance(part, LanguageModelToolCallPart) for part in shown.parts)
    assert shown.text.endswith("**Error:** Gone.")


def test_a_defect_of_the_source_is_not_text_for_the_user() -> None:
    with pytest.raises(ZeroDivisionError):
        processed(text_of("a")[:4], Shown(), ZeroDivisionError())


def test_cut_offs_are_notes() -> None:
    run = Run()
    run("text", "a")
    run("finish", "length")
    for policy, is_noted in (("text", True), ("notes", True), ("none", False)):
        shown = Shown()
        processed(run.events, shown, errors=policy)
        assert ("**Note:**" in shown.text) is is_noted


def test_a_response_that_is_not_stored_has_no_marker() -> None:
    for store in (True, False):
        run = Run(request=CreateResponse(store=store))
        run("text", "a")
        run("finish")
        shown = Shown()
        result, _ = processed(run.events, shown)
        assert (result.stateful_marker is not None) is store
        assert any(getattr(part, "mime_type", "") == "stateful_marker" for part in shown.parts) is store
