"""Think tags in the text of a Responses stream: a reasoning item, wherever the deltas are cut."""

from __future__ import annotations

from typing import Any

import pytest

from openresponses_bridge.dialects.base import ThinkTags
from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.dialects.responses.tagged import TaggedReasoning
from openresponses_bridge.emitter import ResponseStreamStateMachine
from tests.support.checked_inbound import CheckedInbound
from tests.support.damaged_responses import Json, added, created, delta, done, ended, message
from tests.support.machines import WIRES

TEXT = "<think>\nHm, so.</think>\n\nHi <think>there"


def tagged(machine: ResponseStreamStateMachine) -> Inbound:
    return Inbound(TaggedReasoning(machine, ThinkTags()))


def read(*frames: Json, wire: str = "openresponses") -> CheckedInbound:
    """The stream as it is read; `CheckedInbound` holds what comes out to every rule."""
    return CheckedInbound(tagged, frames, wire, True)


def shown(fed: CheckedInbound) -> list[tuple[str, str]]:
    return [(item["type"], "".join(part["text"] for part in item["content"])) for item in fed.output]


def frames_of(*pieces: str, **more: Any) -> list[Json]:
    whole = message("".join(pieces))
    deltas = [delta("output_text", piece, id=whole["id"], **more) for piece in pieces]
    return [created(), added(message()), *deltas, done(whole), ended("completed", whole)]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("at", range(1, len(TEXT)))
@pytest.mark.untraced
def test_a_text_is_split_wherever_it_is_cut(at: int, wire: str) -> None:
    fed = read(*frames_of(TEXT[:at], TEXT[at:]), wire=wire)
    assert shown(fed) == [("reasoning", "Hm, so."), ("message", "Hi <think>there")]
    assert fed.status == "completed"


def test_the_message_keeps_its_id_and_the_reasoning_gets_one_of_its_own() -> None:
    fed = read(*frames_of(*TEXT))
    thought, message_id = (item["id"] for item in fed.output)
    assert message_id == message("x")["id"]
    assert thought.startswith("rs_")


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("<think></think>Hi", [("message", "Hi")]),
        ("<think>Hm", [("reasoning", "Hm")]),
        ("<think>Hm.</think>", [("reasoning", "Hm.")]),
        ("  <thin", [("message", "  <thin")]),
        ("<", [("message", "<")]),
        ("Hi <think>no</think>", [("message", "Hi <think>no</think>")]),
        ("</think>Hi", [("message", "</think>Hi")]),
    ],
)
@pytest.mark.parametrize("way", ["whole", "pieces", "terminal"])
def test_odd_texts(text: str, items: list[tuple[str, str]], way: str) -> None:
    whole = message(text)
    frames = {
        "whole": [created(), done(whole), ended("completed", whole)],
        "pieces": frames_of(*text),
        "terminal": [created(), ended("completed", whole)],
    }
    fed = read(*frames[way])
    assert shown(fed) == items
    assert fed.status == "completed"


def test_a_cut_stream_loses_nothing_that_was_held() -> None:
    fed = read(created(), added(message()), delta("output_text", "<thi", id=message()["id"]))
    assert (shown(fed), fed.status) == ([("message", "<thi")], "failed")
