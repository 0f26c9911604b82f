"""Answers that are not streamed: as we give them, and as an upstream gives them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from openresponses_bridge.dialects import (
    anthropic_messages,
    bedrock_converse,
    chat_completions,
    gemini,
    interactions,
)
from openresponses_bridge.emitter.finished import events_of
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.response import Response
from tests.support.checked_inbound import Build, CheckedInbound
from tests.support.model_scripts import SCRIPTS, played
from tests.support.snapshots import snapshots
from tests.support.transcripts import Transcript


def converse_answer(response: Response) -> Any:
    """The answer, or the exception of a response that has none."""
    whole = bedrock_converse.answer(response)
    outbound = bedrock_converse.Outbound()
    return whole or [chunk for event in events_of(response) for chunk in outbound.feed(event)][-1]


ANSWERS: dict[str, Callable[[Response], Any]] = {
    "chat_completions": chat_completions.completion,
    "anthropic_messages": anthropic_messages.message,
    "gemini": lambda response: gemini.answer([response]),
    "interactions": lambda response: interactions.interaction(response, thoughts=True),
    "bedrock_converse": converse_answer,
}
INBOUNDS: dict[str, Build] = {
    "chat_completions": chat_completions.Inbound,
    "anthropic_messages": anthropic_messages.Inbound,
    "gemini": gemini.Inbound,
    "interactions": interactions.Inbound,
    "bedrock_converse": bedrock_converse.Inbound,
}

# an end that says that the model refused is read as filtered; one API has a status for what was cancelled
READ_AS = {
    ("anthropic_messages", "refusal"): "incomplete",
    ("bedrock_converse", "refusal"): "incomplete",
    ("interactions", "cancel"): "cancelled",
}


def answer(dialect: str, script: str) -> tuple[Response, bytes]:
    """A finished response and its answer; what was cut ended without saying why."""
    run = played(SCRIPTS[script], "openai")
    if script == "cut":
        run("finish", "stop")
    response = run.machine.snapshot
    return response, encode(ANSWERS[dialect](response))


@snapshots("{dialect}/answers_out/{script}.json", dialect=ANSWERS, script=SCRIPTS)
@pytest.mark.untraced
def test_answers_out(snapshot: SnapshotAssertion, dialect: str, script: str) -> None:
    response, body = answer(dialect, script)
    again = CheckedInbound(INBOUNDS[dialect], [body], wire="openai").response
    if response.status in ("failed", "cancelled"):  # an error body, which has no room for words
        assert again.status == READ_AS.get((dialect, script), "failed")
    else:
        assert again.output_text == response.output_text or script == "refusal"
        assert again.status == READ_AS.get((dialect, script), response.status)
    assert json.loads(body) == snapshot


@snapshots("{dialect}/answers_in/{script}.txt", dialect=ANSWERS, script=SCRIPTS)
@pytest.mark.untraced
def test_answers_in(snapshot: SnapshotAssertion, dialect: str, script: str) -> None:
    """The same body from an upstream: one frame, then the end."""
    _, body = answer(dialect, script)
    stream, transcript = CheckedInbound(INBOUNDS[dialect], close=False), Transcript()
    transcript.received(body)
    stream.feed(body)
    transcript.sent(stream.events)
    sent = len(stream.events)
    transcript.did("(the upstream's answer ends)")
    stream.close()
    transcript.sent(stream.events[sent:])
    transcript.notes(stream.inbound.diagnostics)
    assert str(transcript) == snapshot
