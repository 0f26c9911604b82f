"""The page's fold is the server's: after every event of every stream both show the same response."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from openresponses_bridge.corpus import cases
from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.protocol.codec import decode_response, encode
from tests.support.model_scripts import SCRIPTS, played
from tests.support.scripts import clean_streams
from tests.support.shared import REPOSITORY

NODE = shutil.which("node")
FOLD = REPOSITORY / "server/openresponses_server/api/inspector/protocol/fold.js"
SPELT_BEFORE = {
    "response.reasoning_summary_text.delta": "response.reasoning_summary.delta",
    "response.reasoning_summary_text.done": "response.reasoning_summary.done",
    "response.completed": "response.done",
}

Stream = list[dict[str, Any]]


def damaged(stream: Stream, random: Random) -> Stream:
    """The stream as a poor server sends it: events left out, repeated, swapped, whole texts empty."""
    events = [dict(event) for event in stream]
    for _ in range(1 + random.randrange(3)):
        at = random.randrange(len(events))
        match random.randrange(4):
            case 0:
                del events[at]
            case 1:
                events.insert(at, events[random.randrange(len(events))])
            case 2:
                events[at], events[0] = events[0], events[at]
            case 3:
                names = {"text", "arguments", "input"} & events[at].keys()
                events[at].update(dict.fromkeys(names, ""))
        if not events:
            return stream
    return events


def streams() -> Iterator[tuple[str, Stream]]:
    random = Random(18)
    result = dict(clean_streams())
    for name, script in SCRIPTS.items():
        for wire in ("openresponses", "openai"):
            result[f"{name} {wire}"] = json.loads(encode(played(script, wire).events))
    yield from (
        (each.id, each.events) for each in cases() if "\\ud83d" not in each.sse
    )  # halves are put together
    for name, stream in result.items():
        yield name, stream
        older = [{**event, "type": SPELT_BEFORE.get(event["type"], event["type"])} for event in stream]
        yield f"{name}, older names", older
        for number in range(3):
            yield f"{name}, damaged {number}", damaged(stream, random)


def test_the_page_folds_as_the_server_does() -> None:
    if NODE is None:
        pytest.skip("needs Node.js")
    named = list(streams())
    text = json.dumps([stream for _, stream in named])
    command = [NODE, str(Path(__file__).with_name("fold.mjs")), FOLD.as_uri()]
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    answers = json.loads(run.stdout)
    assert len(answers) == len(named) > 100
    for (name, stream), answer in zip(named, answers, strict=True):
        accumulator = ResponseAccumulator()
        for event, folded in zip(stream, answer["after"], strict=True):
            accumulator.feed(event)
            ours = accumulator.response
            assert (None if folded is None else decode_response(json.dumps(folded))) == (
                None if ours is None else decode_response(encode(ours))
            ), (name, event)
        assert answer["jumps"], name
