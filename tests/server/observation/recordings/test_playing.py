"""All readers of a capture find the same responses in it: `validate`, `inspect` and the inspector's page."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_cli.commands.cli import main
from openresponses_server.observation.recordings.observing import observed_file
from tests.support.model_scripts import SCRIPTS, played

EVENTS = played(SCRIPTS["text_then_tool"]).events
STREAM = encode_sse(EVENTS)
CUT = encode_sse(EVENTS[:4])
MESSAGES = b"".join(encode(event) + b"\n" for event in EVENTS)
CUT_MESSAGES = b"".join(encode(event) + b"\n" for event in EVENTS[:4])
WHOLE = encode(played(SCRIPTS["text"]).machine.snapshot) + b"\n"


def line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


ERROR = line({"type": "error", "status": 400, "error": {"type": "e", "code": "c", "message": "m"}})
REQUEST = line({"type": "response.create", "model": "m", "input": "Hi"})
FAILURE = b"event: error\ndata: %b\n" % line(
    {"type": "error", "sequence_number": 4, "error": {"type": "e", "code": "c", "message": "m"}}
)


@pytest.mark.parametrize(
    ("capture", "responses"),
    [
        (STREAM + STREAM, 2),
        (CUT, 1),
        (CUT + STREAM, 1),  # the second beginning is a violation of the first stream
        (CUT + FAILURE + STREAM, 2),
        (MESSAGES + MESSAGES, 2),
        (REQUEST + MESSAGES + REQUEST + CUT_MESSAGES, 2),
        (ERROR, 1),
        (CUT_MESSAGES + ERROR + MESSAGES, 2),
        (CUT_MESSAGES + ERROR + REQUEST + MESSAGES + ERROR, 2),
        (WHOLE + WHOLE, 2),
        (CUT_MESSAGES + WHOLE + MESSAGES, 3),
    ],
)
def test_a_capture_has_the_same_responses_and_violations_for_all(capture: bytes, responses: int) -> None:
    inspected = [json.loads(entry) for entry in _run("inspect", "--json", stdin=capture)]
    assert len(inspected) == responses
    rules = [json.loads(entry)["rule"] for entry in _run("validate", "--json", stdin=capture)]
    assert [each["rule"] for entry in inspected for each in entry["violations"]] == rules
    shown = [json.loads(entry) for entry in observed_file(capture) if entry]
    findings = [each for entry in shown for each in entry.get("findings", ())]
    assert [each["rule"] for each in findings if each["kind"] == "violation"] == rules
    streams = sum(entry.get("ended", False) for entry in shown)
    assert streams + sum(entry.get("event") == "response" for entry in shown) == responses


def _run(*arguments: str, stdin: bytes) -> list[str]:
    result = CliRunner().invoke(main, arguments, input=stdin)
    assert result.exit_code in (0, 1), result.output
    return result.stdout.splitlines()


@pytest.mark.parametrize("stream", [STREAM, CUT], ids=["whole", "smaller than a buffer"])
def test_a_recording_is_read_from_a_pipe_as_from_a_file(tmp_path: Path, stream: bytes) -> None:
    request = {"type": "exchange", "exchange": 1, "at": 0, "dialect": "responses"}
    answer = {"type": "answer", "exchange": 1, "at": 0, "status": 200}
    chunk = {"type": "chunk", "exchange": 1, "at": 0, "text": stream.decode()}
    end = {"type": "end", "exchange": 1, "at": 0, "how": "finished"}
    records = [{"type": "recording", "version": 1}, request, answer, chunk, end]
    (tmp_path / "r").write_bytes(b"".join(map(line, records)))
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write((tmp_path / "r").read_bytes())
    try:
        from_file, from_pipe = (
            CliRunner().invoke(main, ["replay", path]) for path in (str(tmp_path / "r"), f"/dev/fd/{reading}")
        )
        assert from_file.stdout_bytes.startswith(stream.splitlines(keepends=True)[0])
        assert (from_pipe.exit_code, from_pipe.stdout_bytes) == (from_file.exit_code, from_file.stdout_bytes)
    finally:
        os.close(reading)
