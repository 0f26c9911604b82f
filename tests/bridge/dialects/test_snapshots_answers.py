"""Answers that are not streamed: as we give them, and as an upstream gives them."""

import json
from collections.abc import Callable
from typing import Any

from syrupy.assertion import SnapshotAssertion

from openresponses_bridge.dialects import anthropic_messages, chat_completions
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.response import Response
from tests.support.checked_inbound import Build, CheckedInbound
from tests.support.model_scripts import SCRIPTS, played
from tests.support.snapshots import snapshots
from tests.support.transcripts import Transcript

ANSWERS: dict[str, Callable[[Response], Any]] = {
    "chat_completions": chat_completions.completion,
    "anthropic_messages": anthropic_messages.message,
}
INBOUNDS: dict[str, Build] = {
    "chat_completions": chat_completions.Inbound,
    "anthropic_messages": anthropic_messages.Inbound,
}

# a message that ends with the stop reason `refusal` is read as filtered
READ_AS = {
    ("anthropic_messages", "refusal"): "incomplete",
}


def answer(dialect: str, script: str) -> tuple[Response, bytes]:
    """A finished response and its answer; what was cut ended without saying why."""
    run = played(SCRIPTS[script], "openai")
    if script == "cut":
        run("finish", "stop")
    response = run.machine.snapshot
    return response, encode(ANSWERS[dialect](response))


@snapshots("{dialect}/answers_out/{script}.json", dialect=ANSWERS, script=SCRIPTS)
def test_answers_out(snapshot: SnapshotAssertion, dialect: str, script: str) -> None:
    response, body = answer(dialect, script)
    again = CheckedInbound(INBOUNDS[dialect], [body], wire="openai").response
    if response.status in ("failed", "cancelled"):  # an error body, which has no room for words
        assert again.status == "failed"
    else:
        assert again.output_text == response.output_text or script == "refusal"
        assert again.status == READ_AS.get((dialect, script), response.status)
    assert json.loads(body) == snapshot


@snapshots("{dialect}/answers_in/{script}.txt", dialect=ANSWERS, script=SCRIPTS)
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
